"""The runs of an audit's game: what is asked, how a run is scored, and who makes the runs.

What is asked is checked against the job, and is kept as what it takes to ask again. A score is larger where the first
of the two data sets is likelier. Runs are made here, in processes of this machine, or as Ray tasks.

Every run has coins of its own, which follow from the audit's seed and the number of the run, so that it does not matter
where a run is made, nor in which order. Another process is told the scenario and the settings. It builds the job,
searches the two data sets and learns the score by itself, from the same seed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.algorithms.gossip.single_level import DpDsgd
from decentral_dp.auditing.bounds import counting_limit, plant
from decentral_dp.auditing.losses import is_amplified, log_ratio, mixture_log_ratio, sampling_rates, separate
from decentral_dp.auditing.neighbours import worst_neighbours
from decentral_dp.auditing.transcripts import Neighbours, Transcript, replay
from decentral_dp.bounded import Array
from decentral_dp.config.loading import find, load
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.files.regular import regular
from decentral_dp.privacy.fingerprint import digest_of_file
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.privacy.unit import RECORD
from decentral_dp.problems.protocol import PlannedTraining
from decentral_dp.simulation.jobs.agent_records import require_records
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.result import refuse_damaged, require_run_folder
from decentral_dp.tasks.outcomes import number, refuse_foreign
from decentral_dp.tasks.parallel import Workers, in_parallel

FEWEST_RUNS = 20
# Of a plan, what another process is told of it.
_SETTINGS = ("runs", "vantage", "confidence", "seed", "curve")
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

    job: PlannedJob
    vantage: str
    runs: int
    confidence: float
    seed: int
    canaries: int | None = None
    curve: bool = False
    source: tuple[Mapping[str, Any], Path] | None = None
    file: Path | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What `plan_audit` takes beside the scenario, by name."""
        return {name: getattr(self, name) for name in _SETTINGS}

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
    curve: bool = False,
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
        curve: whether to bound the trade-off curve of the two data sets, too.

    Returns:
        The built job, and what is asked of it.

    Raises:
        InputError: too few runs, a confidence, a vantage point or canaries that do not fit, or a job that is too large.
    """
    if runs < FEWEST_RUNS:
        raise InputError(f"audit: {runs} runs of each data set show nothing; take at least {FEWEST_RUNS} (--runs).")
    if not 0.5 <= confidence < 1.0:
        raise InputError(f"audit: the confidence is {confidence}, wanted a number from 0.5 up to, but below, 1.")
    reading: AbstractContextManager[None] = nullcontext()
    if isinstance(scenario, str | Path) and Path(scenario).is_dir():
        folder = Path(scenario)
        require_run_folder(folder, "audit", ("scenario.toml",), more=("result.json",))
        scenario, reading = folder / "scenario.toml", refuse_damaged(folder, "audit")
    source, file = None, find(str(scenario)) if isinstance(scenario, str | Path) else None
    if isinstance(scenario, str | Path | Mapping | Scenario):
        with reading:
            loaded = load(scenario, overrides)
            job = build_job(loaded)
        source = loaded.model_dump(exclude_unset=True), loaded.folder
    else:
        job = scenario
    require_records(job.records, "audit")
    _check_unit(job, canaries)
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


def _check_unit(job: PlannedJob, canaries: int | None) -> None:
    """Refuse units whose data sets cannot be made. Raises InputError."""
    unit = job.unit
    # Samples of a trusted coordinator are its algorithm's, and its stream reads all records.
    if job.stream.kind == "poisson":
        raise InputError(
            "audit: which records agents drew by their coins is not followed here. Audit it with problem.stream = "
            '"all", whose releases are the same at a larger price.'
        )
    if unit == RECORD:
        return
    reason = ""
    if canaries is not None:
        reason = "a canary is one record"
    elif job.stream.kind == "minibatch":
        reason = "which of them a batch of fixed size holds is followed of one record alone"
    elif unit.zeroed and not isinstance(job.problem, PlannedTraining):
        reason = f"records of {job.scenario.problem.kind} that contribute nothing are not made up"
    elif unit.zeroed and isinstance(job.algorithm, DpDsgd) and job.algorithm.block:
        reason = "an agent without contributions that still takes part is not played"
    if reason:
        raise InputError(
            f"audit: this ε is for {unit.noun}, and {reason}. Leave privacy.unit and privacy.neighbours out."
        )


def request_of(plan: AuditPlan, workers: Workers, ends: Ends) -> dict[str, Any] | None:
    """What it takes to ask for an audit again, as JSON values; None of a job that no other process can build.

    Args:
        plan: what is asked.
        workers: who makes its runs.
        ends: what is written in the end.
    """
    if plan.source is None:
        return None
    return {
        **_game_request(plan),
        "file": None if plan.file is None else str(plan.file.resolve()),
        "file_digest": None if plan.file is None else digest_of_file(plan.file),
        "jobs": workers.jobs,
        "ends": {name: None if path is None else str(path.resolve()) for name, path in ends._asdict().items()},
    }


def plan_again(out: Path, request: Any) -> tuple[AuditPlan, Workers, Ends]:
    """Read what an audit that was cut off was asked.

    Args:
        out: its file.
        request: as of `request_of`.

    Returns:
        Its plan, who makes its runs, and what is written in the end.

    Raises:
        InputError: it was asked of a job that was handed over, its scenario has changed, or the file is not what was
            written.
    """
    if request is None:
        raise InputError(
            f"resume: {out} does not say what was audited: a job that was built in Python, or by an earlier version of "
            "decentral_dp. Give the same audit with the same out again; what was played is kept."
        )
    with refuse_foreign(out, "Audit again with another --out."):
        file = request["file"]
        if file is not None and Path(file).exists() and digest_of_file(Path(file)) != request["file_digest"]:
            raise InputError(
                f"resume: {file} has changed since the audit in {out} was begun, and its runs would be of two "
                "scenarios. Put it back, or audit the new one with another --out."
            )
        ends = Ends(**{name: None if path is None else Path(path) for name, path in request["ends"].items()})
        workers = Workers(request["jobs"])
        # Of a run folder the names of keys and files are what that version wrote.
        with refuse_damaged(regular(out, "resume"), "resume"):
            scenario = load(request["scenario"], folder=Path(request["folder"]))
        known = None if file is None or not Path(file).exists() else Path(file)
        return replace(plan_audit(scenario, **_settings_in(request)), file=known), workers, ends


def _game_request(plan: AuditPlan) -> dict[str, Any]:
    """What another process must know to build the same job and ask the same of it, as JSON values."""
    content, folder = plan.source if plan.source is not None else ({}, Path())
    return {"scenario": json.loads(json.dumps(content, default=str)), "folder": str(folder), **plan.settings}


def _settings_in(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in _SETTINGS}


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
    if vantage == "everybody" and lawful and all(_has_known_likelihood(neighbours, probe) for probe in probes):
        if not is_amplified(neighbours.first):
            return Score(partial(_ratio, neighbours), True)
        rates = sampling_rates(neighbours.first, neighbours.victim, neighbours.split)
        if rates is not None and all(separate(neighbours, probe) for probe in probes):
            return Score(partial(mixture_log_ratio, neighbours, rates=rates), True)
    return _projection(vantage, neighbours, roots)


def _has_known_likelihood(neighbours: Neighbours, probe: Transcript) -> bool:
    """Whether a replay gives the law of everything that is said."""
    return probe.is_replayable and probe.releases.keys() == replay(neighbours.first, neighbours.victim, probe).keys()


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
    return _received_messages(transcript, neighbours, int(vantage.partition(":")[2]))


def _received_messages(transcript: Transcript, neighbours: Neighbours, agent: int) -> Array:
    """The messages of the agent's neighbours; of an algorithm that asks a server, of everybody."""
    job: Any = neighbours.first
    near: Sequence[int] = range(job.n_agents)
    if not job.central:
        row = job.public_network.mixing.toarray()[agent] != 0.0
        row[agent] = False
        near = np.flatnonzero(row).tolist()
    return np.concatenate([np.concatenate(blocks)[list(near)].ravel() for blocks in transcript.messages])


# Runs of each data set that a worker makes before it reports.
_BLOCK = 8
GROUPS = ("first", "second", "null")
Sizes = Mapping[str, tuple[int, float]]
"""Mechanism → how many numbers it noised, and the sum of their sizes."""


class Run(NamedTuple):
    """group: "first", "second" or "null". sizes: of the noise that was drawn."""

    group: str
    score: float
    sizes: Sizes


def read_runs(stored: Any) -> list[Run]:
    """Read the runs of one number as JSON has them; ValueError, TypeError or AttributeError where they are none."""
    runs = [
        Run(group, number(score), {str(name): (int(n), float(total)) for name, (n, total) in sizes.items()})
        for group, score, sizes in stored
    ]
    if tuple(run.group for run in runs) != GROUPS:
        raise ValueError("a run of some data set is missing")
    return runs


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


class Game(NamedTuple):
    """neighbours: what is told apart. null: a data set that is equal to the first. score: of a run."""

    plan: AuditPlan
    neighbours: Neighbours
    null: PlannedJob
    score: Score


def check_workers(plan: AuditPlan, workers: Workers) -> None:
    """Refuse what cannot be done by other processes, before anything is played.

    Raises:
        InputError: a job that no other process can build, canaries, or a Ray cluster without ray.
    """
    if workers.is_in_process:
        return
    workers.check()
    if plan.canaries is not None:
        raise InputError("audit: canaries are one single run, which is made here; leave --jobs and --address out.")
    if plan.source is None:
        raise InputError(
            "audit: a built job is audited in this process only, for another cannot build it again. Give a scenario "
            "whose components are in files, or leave jobs and address out."
        )


def game_of(plan: AuditPlan, neighbours: Neighbours, null: PlannedJob, lawful: bool) -> Game:
    """Choose the score of a game between two data sets.

    Args:
        plan: what is asked.
        neighbours: the two.
        null: the data set that is passed off as the first one.
        lawful: whether random choices have the law that they state.

    Returns:
        The game.
    """
    return Game(plan, neighbours, null, score_of(plan.vantage, neighbours, lambda k: plan.root("learn", k), lawful))


def runs_of(game: Game, numbers: Sequence[int]) -> list[Run]:
    """Make runs of both data sets, and of the one that is passed off as the first.

    Args:
        game: what is played.
        numbers: of the runs, from which their coins follow.

    Returns:
        One for each group of GROUPS, number by number.
    """
    runs = []
    for k in numbers:
        for group, side in zip(GROUPS, (game.neighbours.first, game.neighbours.second, game.null), strict=True):
            transcript = game.neighbours.observe(side, game.plan.root(group, k))
            sizes = noise_sizes(transcript.residuals) if game.score.is_likelihood else {}
            runs.append(Run(group, game.score.function(transcript), sizes))
    return runs


def play_runs(
    game: Game, numbers: Sequence[int], workers: Workers, lawful: bool
) -> Generator[tuple[Sequence[int], list[list[Run]]], None, None]:
    """Make the runs with these numbers.

    Args:
        game: what is played.
        numbers: of the runs.
        workers: who makes them.
        lawful: as of `game_of`.

    Returns:
        Some numbers with the runs of each, in the order in which they are done.

    Raises:
        InputError: a worker that ended.
    """
    if workers.is_in_process:
        for k in numbers:
            yield [k], [runs_of(game, [k])]
        return
    blocks = [tuple(numbers[k : k + _BLOCK]) for k in range(0, len(numbers), _BLOCK)]
    game_described = json.dumps([_game_request(game.plan), lawful])
    work: Callable[[tuple[int, ...]], list[Run] | str] = partial(_play_remotely, game_described)
    with closing(in_parallel(work, blocks, _lost_message, workers)) as outcomes:
        for block, runs in outcomes:
            if isinstance(runs, str):
                raise InputError(f"audit: {runs}")
            yield block, [runs[k : k + len(GROUPS)] for k in range(0, len(runs), len(GROUPS))]


def _lost_message(reason: str) -> list[Run] | str:
    return f"{reason}. What was played before is kept, if --out names a file; start again."


def _play_remotely(described: str, numbers: tuple[int, ...]) -> list[Run] | str:
    return runs_of(_game_there(described), numbers)


@lru_cache(maxsize=1)
def _game_there(described: str) -> Game:
    """The same game, found again from the same seed."""
    request, lawful = json.loads(described)
    plan = plan_audit(load(request["scenario"], folder=Path(request["folder"])), **_settings_in(request))
    neighbours = worst_neighbours(plan.job, plan.root("search", 0))
    return game_of(plan, neighbours, neighbours.first, lawful)
