"""What an audit is going to play: its settings, checked against the job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decentral_dp.adversaries.audit.bounds import most_counted
from decentral_dp.adversaries.audit.one_run import plant
from decentral_dp.config.loading import find, load
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.files.regular import regular
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.jobs.agent_records import require_records
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.result import as_written, require_complete

FEWEST_RUNS = 20
# That one participant releases in a run: each candidate's replay holds as many.
MOST_NUMBERS = 20_000_000
_MOST_HUNDREDS = 10_000


@dataclass(frozen=True)
class AuditPlan:
    """What is going to be played, and the most that it can show.

    source: the content of a scenario that gives the same job in another process, and the folder of its paths; None for
    a job that was handed over, which may have components that are objects. file: that the
    scenario was read from, if any.
    """

    job: Job
    vantage: str
    runs: int
    confidence: float
    seed: int
    canaries: int | None = None
    curve: bool = False
    source: tuple[Mapping[str, Any], Path] | None = None
    file: Path | None = None

    @property
    def most_shown(self) -> float:
        """By counting, if every run is told apart. A likelihood ratio has no such limit."""
        return most_counted(self.runs, self.job.scenario.privacy.delta, 1.0 - self.confidence)

    def runs_to_show(self, epsilon: float) -> int | None:
        """How many runs, in hundreds, counting could show this ε with; None where they are more than a million."""
        delta, risk, hundreds = self.job.scenario.privacy.delta, 1.0 - self.confidence, 1
        while most_counted(100 * hundreds, delta, risk) < epsilon:
            hundreds = math.ceil(1.1 * hundreds)
            if hundreds > _MOST_HUNDREDS:
                return None
        return 100 * hundreds

    def root(self, purpose: str, number: int) -> bytes:
        """The root of the coins of one run, for one purpose."""
        return seeded_root(self.seed, f"audit {purpose} {number}".encode())


def planned(
    scenario: str | Path | Mapping[str, Any] | Scenario | Job,
    runs: int,
    vantage: str,
    confidence: float = 0.95,
    seed: int = 0,
    overrides: Sequence[str] = (),
    canaries: int | None = None,
    curve: bool = False,
) -> AuditPlan:
    """Settle an audit, and refuse whatever can be refused before it is played.

    Args:
        scenario, runs, vantage, confidence, seed, overrides, canaries, curve: as of `audit`.

    Returns:
        The built job, and what is asked of it.

    Raises:
        InputError: too few runs, a confidence, a vantage point or canaries that do not fit, or a job that is too large.
    """
    if runs < FEWEST_RUNS:
        raise InputError(f"audit: {runs} runs of each world show nothing; take at least {FEWEST_RUNS} (--runs).")
    if not 0.5 <= confidence < 1.0:
        raise InputError(f"audit: the confidence is {confidence}, wanted a number from 0.5 up to, but below, 1.")
    reading: AbstractContextManager[None] = nullcontext()
    if isinstance(scenario, str | Path) and Path(scenario).is_dir():
        folder = Path(scenario)
        for name in ("result.json", "scenario.toml"):
            regular(folder / name, "audit")
        require_complete(folder)
        if not (folder / "scenario.toml").is_file():
            raise InputError(f"audit: {folder} is no run folder: it has no scenario.toml. Give one that a run wrote.")
        scenario, reading = folder / "scenario.toml", as_written(folder, "audit")
    source, file = None, find(str(scenario)) if isinstance(scenario, str | Path) else None
    if isinstance(scenario, str | Path | Mapping | Scenario):
        with reading:
            loaded = load(scenario, overrides)
            job = build(loaded)
        source = loaded.model_dump(exclude_unset=True), loaded.folder
    else:
        job = scenario
    require_records(job.records, "audit")
    kind, _, number = vantage.partition(":")
    known = vantage in ("everybody", "published") or (
        kind == "agent" and job.setting == "gossip" and number.isdigit() and int(number) < job.n_agents
    )
    if not known:
        some = f" or agent:0 to agent:{job.n_agents - 1}" if job.setting == "gossip" else ""
        raise InputError(f"audit: {vantage!r} is no vantage point of this job; take everybody, published{some}.")
    if canaries is not None:
        # What it publishes is all that its attack sees.
        plant(job, canaries, b"plan")
        return AuditPlan(job, "published", 1, confidence, seed, canaries)
    numbers = sum(c.dimension * c.rounds.size for c in job.ledger.channels)
    if numbers > MOST_NUMBERS:
        raise InputError(
            f"audit: one run of this job releases {numbers:.2g} numbers, of which several copies are held at once; at "
            f"most {MOST_NUMBERS:.2g} are audited. Take fewer rounds (--set algorithm.rounds=...), or a smaller model."
        )
    return AuditPlan(job, vantage, runs, confidence, seed, None, curve, source, file)
