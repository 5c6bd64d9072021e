"""The runs of an audit's game: what is asked, and how a run is scored.

What is asked is checked against the job. A score is larger where the first of the two data sets is likelier. Every run
has coins of its own, which follow from the audit's seed and the number of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.algorithms.gossip.single_level import DpDsgd
from decentral_dp.auditing.bounds import counting_limit, plant
from decentral_dp.auditing.losses import is_amplified, log_ratio, mixture_log_ratio, sampling_rates, separate
from decentral_dp.auditing.transcripts import Neighbours, Transcript, replay
from decentral_dp.bounded import Array
from decentral_dp.config.loading import load_scenario
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import Refusal, refuse
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.privacy.unit import RECORD
from decentral_dp.problems.protocol import PlannedTraining
from decentral_dp.simulation.jobs.agent_records import require_records
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.result import refuse_damaged, require_run_folder

FEWEST_RUNS = 20
# That one participant releases in a run: each candidate's replay holds as many.
MOST_NUMBERS = 20_000_000
_MOST_HUNDREDS = 10_000


@dataclass(frozen=True)
class AuditPlan:
    """What is going to be played, and the most that it can show."""

    job: PlannedJob
    vantage: str
    runs: int
    confidence: float
    seed: int
    canaries: int | None = None

    @property
    def epsilon_limit(self) -> float:
        """By counting, if every run is told apart. A likelihood ratio has no such limit."""
        return counting_limit(self.runs, self.job.scenario.privacy.delta, 1.0 - self.confidence)

    def runs_to_show(self, epsilon: float) -> int | None:
        """How many runs, in hundreds, counting could show this ε with; None where they are more than a million."""
        delta, risk, hundreds = self.job.scenario.privacy.delta, 1.0 - self.confidence, 1
        while counting_limit(100 * hundreds, delta, risk) < epsilon:
            hundreds = math.ceil(1.1 * hundreds)
            if hundreds > _MOST_HUNDREDS:
                return None
        return 100 * hundreds

    def root(self, purpose: str, number: int) -> bytes:
        """The root of the coins of one run, for one purpose."""
        return seeded_root(self.seed, f"audit {purpose} {number}".encode())


def plan_audit(
    scenario: str | Path | Mapping[str, Any] | Scenario | PlannedJob,
    runs: int,
    vantage: str,
    confidence: float = 0.95,
    seed: int = 0,
    overrides: Sequence[str] = (),
    canaries: int | None = None,
) -> AuditPlan:
    """Settle an audit, and refuse whatever can be refused before it is played.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, a built job, or a run folder.
        runs: of each of the two neighbouring data sets, at least 20.
        vantage: "everybody" sees all messages (or all that a coordinator releases), "published" the values that are
            published at the end, "agent:K" the messages that agent K receives.
        confidence: of what is shown, from 0.5 up to, but below, 1.
        seed: of the noise of these runs, which is nobody's secret.
        overrides: "table.key=value" with a TOML value.
        canaries: how many records of one single run are replaced by invented ones, and guessed from what it publishes;
            by default none are.

    Returns:
        The built job, and what is asked of it.

    Raises:
        InputError: too few runs, a confidence, a vantage point or canaries that do not fit, or a job that is too large.
    """
    reading: AbstractContextManager[None] = nullcontext()
    if isinstance(scenario, str | Path) and Path(scenario).is_dir():
        folder = Path(scenario)
        require_run_folder(folder, "audit", ("scenario.toml",), more=("result.json",))
        scenario, reading = folder / "scenario.toml", refuse_damaged(folder, "audit")
    if isinstance(scenario, str | Path | Mapping | Scenario):
        with reading:
            job = build_job(load_scenario(scenario, overrides))
    else:
        job = scenario
    require_records(job.records, "audit")
    plan = AuditPlan(job, vantage, runs, confidence, seed, canaries)
    refuse(plan, _REFUSALS)
    if canaries is not None:
        # What it publishes is all that its attack sees.
        plant(job, canaries, b"plan")
        return replace(plan, vantage="published", runs=1)
    return plan


def _unplayed_unit(plan: AuditPlan) -> str:
    """Return why data sets that differ in the job's unit are not made; "" where they are."""
    job, unit = plan.job, plan.job.unit
    if unit == RECORD:
        return ""
    if plan.canaries is not None:
        return "a canary is one record"
    if job.stream.kind == "minibatch":
        return "which of them a batch of fixed size holds is followed for single records only"
    if unit.zeroed and not isinstance(job.problem, PlannedTraining):
        return f"records of {job.scenario.problem.kind} that contribute nothing are not made up"
    if unit.zeroed and isinstance(job.algorithm, DpDsgd) and job.algorithm.block:
        return "an agent without contributions that still takes part is not played"
    return ""


def _vantages(plan: AuditPlan) -> str:
    """Return the vantage points of the job where the plan's is none of them."""
    kind, _, number = plan.vantage.partition(":")
    # What a coordinator publishes is not a message to one agent.
    listeners = 0 if plan.job.plans_ahead else plan.job.n_agents
    is_agent = kind == "agent" and number.isdigit() and int(number) < listeners
    if is_agent or plan.vantage in ("everybody", "published"):
        return ""
    return "everybody, published" + (f" or agent:0 to agent:{listeners - 1}" if listeners else "")


def _released_numbers(plan: AuditPlan) -> float:
    """Return how many numbers a run releases where they are too many to be replayed."""
    numbers = float(sum(c.dimension * c.rounds.size for c in plan.job.ledger.channels))
    return numbers if numbers > MOST_NUMBERS and plan.canaries is None else 0.0


_REFUSALS: tuple[Refusal[AuditPlan], ...] = (
    Refusal(
        lambda plan: plan.runs < FEWEST_RUNS,
        "audit",
        "too few runs of each data set to show anything (got {of.runs} runs)",
        f"take at least {FEWEST_RUNS} (--runs)",
    ),
    Refusal(
        lambda plan: not 0.5 <= plan.confidence < 1.0,
        "audit",
        "the confidence is out of range (got {of.confidence}, expected a number in [0.5, 1))",
        "take 0.95",
    ),
    Refusal(
        # Samples of a trusted coordinator are its algorithm's, and its stream reads all records.
        lambda plan: plan.job.stream.kind == "poisson",
        "audit",
        "the Poisson samples of agents that gossip are not followed",
        'set problem.stream = "all", whose releases are the same at a larger privacy cost',
    ),
    Refusal(
        _unplayed_unit,
        "audit",
        "this ε is for {of.job.unit.noun}, and {it}",
        "leave privacy.unit and privacy.neighbours out",
    ),
    Refusal(_vantages, "audit", "this job has no vantage point {of.vantage!r}", "take {it}"),
    Refusal(
        _released_numbers,
        "audit",
        "a run of this job releases {it:.2g} numbers, and several copies are held at once "
        f"(expected at most {MOST_NUMBERS:.2g})",
        "take fewer rounds (--set algorithm.rounds=...), or a smaller model",
    ),
)


# Pairs of runs with common noise from which the direction of a projection is learnt.
_LEARNT = 16
# Runs on which it is tried whether likelihoods are known.
_PROBES = 4


@dataclass(frozen=True)
class Score:
    """function: a run's score. is_likelihood: whether it is the log-likelihood ratio of all that is seen."""

    function: Callable[[Transcript], float]
    is_likelihood: bool


def score_of(vantage: str, neighbours: Neighbours, roots: Callable[[int], bytes], lawful: bool) -> Score:
    """Choose the score for a vantage point.

    Args:
        vantage: "everybody", "published" or "agent:K", as of `plan_audit`.
        neighbours: the two neighbouring data sets.
        roots: number of a run → root of its coins, of the runs that the score may learn from.
        lawful: whether random choices have the law that they state.

    Returns:
        The log-likelihood ratio where it is known, else a projection learnt from these runs.
    """
    probes = [neighbours.observe(neighbours.second if k % 2 else neighbours.first, roots(k)) for k in range(_PROBES)]

    def is_replayed(probe: Transcript) -> bool:
        """Whether a replay gives the law of everything that is said."""
        return (
            probe.is_replayable and probe.releases.keys() == replay(neighbours.first, neighbours.victim, probe).keys()
        )

    if vantage == "everybody" and lawful and all(map(is_replayed, probes)):
        if not is_amplified(neighbours.first):
            return Score(partial(_ratio, neighbours), True)
        rates = sampling_rates(neighbours.first, neighbours.victim, neighbours.split)
        if rates is not None and all(separate(neighbours, probe) for probe in probes):
            return Score(partial(mixture_log_ratio, neighbours, rates=rates), True)
    return _projection(vantage, neighbours, roots)


def _ratio(neighbours: Neighbours, transcript: Transcript) -> float:
    pair = [replay(side, neighbours.victim, transcript) for side in (neighbours.first, neighbours.second)]
    return log_ratio(transcript, *pair)


def _projection(vantage: str, neighbours: Neighbours, roots: Callable[[int], bytes]) -> Score:
    """The inner product with the mean difference over variances, learnt from runs of both with common noise."""
    ours: list[Array] = []
    theirs: list[Array] = []
    for k in range(_LEARNT):
        for side, numbers in ((neighbours.first, ours), (neighbours.second, theirs)):
            numbers.append(visible_numbers(vantage, neighbours.observe(side, roots(k)), neighbours))
    difference = np.mean(ours, axis=0) - np.mean(theirs, axis=0)
    variance = 0.5 * (np.var(ours, axis=0) + np.var(theirs, axis=0))
    # Of what never varies, any difference decides; of few runs a variance may be small by chance.
    floor = 0.1 * np.median(variance[variance > 0.0]) if (variance > 0.0).any() else 1.0
    direction = np.where(np.isfinite(difference), difference, 0.0) / np.maximum(variance, max(floor, 1e-300))
    centre = 0.5 * (np.mean(ours, axis=0) + np.mean(theirs, axis=0))

    def project(transcript: Transcript) -> float:
        value = float(np.nansum(direction * (visible_numbers(vantage, transcript, neighbours) - centre)))
        return value if np.isfinite(value) else 0.0

    return Score(project, False)


def visible_numbers(vantage: str, transcript: Transcript, neighbours: Neighbours) -> Array:
    """List all numbers that are seen from a vantage point.

    Args:
        vantage: "everybody", "published" or "agent:K".
        transcript: of a run.
        neighbours: whose graph says whom an agent hears.

    Returns:
        (k,), in the order in which they were said.
    """
    if vantage == "published":
        return transcript.published
    if vantage == "everybody":
        return np.concatenate([values.ravel() for values in transcript.releases.values()])
    # The messages of the agent's neighbours; of an algorithm that asks a server, of everybody.
    agent = int(vantage.partition(":")[2])
    job: Any = neighbours.first
    near: Sequence[int] = range(job.n_agents)
    if not job.central:
        row = job.public_network.mixing.toarray()[agent] != 0.0
        row[agent] = False
        near = np.flatnonzero(row).tolist()
    return np.concatenate([np.concatenate(blocks)[list(near)].ravel() for blocks in transcript.messages])


Sizes = Mapping[str, tuple[int, float]]
"""Mechanism → how many numbers it noised, and the sum of their sizes."""


def noise_sizes(residuals: Mapping[str, Array]) -> Sizes:
    """Measure the noise of one run.

    Args:
        residuals: mechanism's name → (Σ d,) its noise in units of the scale.

    Returns:
        Mechanism's name → how many numbers, and the sum of their sizes: of Gaussian noise squares, else absolute
        values.
    """
    return {
        name: (values.size, float((values**2 if name == GAUSSIAN.name else np.abs(values)).sum()))
        for name, values in residuals.items()
        if name in (GAUSSIAN.name, LAPLACE.name) and np.isfinite(values).all()
    }


def sum_noise(sizes: Iterable[Sizes]) -> list[tuple[str, int, float]]:
    """The noise of several runs, for `losses.drawn_noise`."""
    sums: dict[str, tuple[int, float]] = {}
    for run in sizes:
        for name, (n, total) in run.items():
            before = sums.get(name, (0, 0.0))
            sums[name] = before[0] + n, before[1] + total
    return [(name, n, total) for name, (n, total) in sums.items()]
