"""What an audit is going to play: its settings, checked against the job, and what it takes to ask for it again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from decentral_dp.adversaries.audit.bounds import most_counted
from decentral_dp.adversaries.audit.one_run import plant
from decentral_dp.config.loading import find, load
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.files.regular import regular
from decentral_dp.privacy.fingerprint import digest_of_file
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.jobs.agent_records import require_records
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.result import as_written, require_complete
from decentral_dp.tasks.parallel import Workers

FEWEST_RUNS = 20
# That one participant releases in a run: each candidate's replay holds as many.
MOST_NUMBERS = 20_000_000
_MOST_HUNDREDS = 10_000


class Ends(NamedTuple):
    """What is written of a finished audit besides its file.

    Args:
        run: a run folder, whose result.json and page get the numbers.
        curve: PNG file of the trade-off curve.
    """

    run: Path | None = None
    curve: Path | None = None


NO_ENDS = Ends()


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
    # What a coordinator publishes is not a message to one agent.
    listeners = 0 if job.plans_ahead else job.n_agents
    known = vantage in ("everybody", "published") or (kind == "agent" and number.isdigit() and int(number) < listeners)
    if not known:
        some = f" or agent:0 to agent:{listeners - 1}" if listeners else ""
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


def request_of(plan: AuditPlan, workers: Workers, ends: Ends) -> dict[str, Any] | None:
    """What it takes to ask for an audit again, as JSON values; None of a job that no other process can build.

    Args:
        plan: what is asked.
        workers: who makes its runs.
        ends: what is written in the end.
    """
    if plan.source is None:
        return None
    content, folder = plan.source
    return {
        "scenario": json.loads(json.dumps(content, default=str)),
        "folder": str(folder),
        "file": None if plan.file is None else str(plan.file.resolve()),
        "file_digest": None if plan.file is None else digest_of_file(plan.file),
        "runs": plan.runs,
        "vantage": plan.vantage,
        "confidence": plan.confidence,
        "seed": plan.seed,
        "curve": plan.curve,
        "jobs": workers.jobs,
        "address": workers.address,
        "ends": {name: None if path is None else str(path.resolve()) for name, path in ends._asdict().items()},
    }


def plan_again(out: Path, asked: Any) -> tuple[AuditPlan, Workers, Ends]:
    """Read what an audit that was cut off was asked.

    Args:
        out: its file.
        asked: as of `request_of`.

    Returns:
        Its plan, who makes its runs, and what is written in the end.

    Raises:
        InputError: it was asked of a job that was handed over, its scenario has changed, or the file is not what was
            written.
    """
    if asked is None:
        raise InputError(
            f"resume: {out} does not say what was audited: a job that was built in Python, or by an earlier version of "
            "decentral_dp. Give the same audit with the same out again; what was played is kept."
        )
    try:
        file, folder = asked["file"], Path(asked["folder"])
        if file is not None and Path(file).exists() and digest_of_file(Path(file)) != asked["file_digest"]:
            raise InputError(
                f"resume: {file} has changed since the audit in {out} was begun, and its runs would be of two "
                "scenarios. Put it back, or audit the new one with another --out."
            )
        settings = {name: asked[name] for name in ("runs", "vantage", "confidence", "seed", "curve")}
        ends = Ends(**{name: None if path is None else Path(path) for name, path in asked["ends"].items()})
        workers = Workers(asked["jobs"], asked["address"])
        # Of a run folder the names of keys and files are what that version wrote.
        with as_written(regular(out, "resume"), "resume"):
            scenario = load(asked["scenario"], folder=folder)
        known = None if file is None or not Path(file).exists() else Path(file)
        plan = replace(planned(scenario, **settings), file=known)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"resume: {out} is not what an audit writes ({error}); audit again with another --out."
        ) from None
    return plan, workers, ends
