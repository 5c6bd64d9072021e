"""Auditing a guarantee: a lower bound on ε by playing the distinguishing game, beside the certified and the claimed ε.

`neighbours` finds two data sets that differ in one record, `transcripts` replays a run in either, and `losses` and
`bounds` bound ε by both. Every audit plays against itself as well: between two equal data sets it must show nothing.

What is asked is checked against the job. A score is larger where the first of the two data sets is likelier. Every run
has coins of its own, which follow from the audit's seed and the number of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from decentral_dp.algorithms.gossip.single_level import DpDsgd
from decentral_dp.auditing.bounds import (
    Shown,
    counting_limit,
    from_likelihoods,
    gaussian_throughout,
    plant,
    shown_in_one_run,
)
from decentral_dp.auditing.losses import (
    are_close,
    drawn_noise,
    is_amplified,
    log_ratio,
    loss_law,
    mixture_log_ratio,
    refute_stated_laws,
    sampling_rates,
    separate,
)
from decentral_dp.auditing.neighbours import worst_neighbours
from decentral_dp.auditing.transcripts import Neighbours, Transcript, replay
from decentral_dp.bounded import Array
from decentral_dp.config.loading import load_scenario
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import Refusal, refuse
from decentral_dp.files.durable import OWNERS, write_whole
from decentral_dp.formatting import at_least_text, delta_text, epsilon_text
from decentral_dp.privacy.clipping import RECORD
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.problems.protocol import PlannedTraining
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.folder.layout import require_new
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.job import PlannedJob, require_records
from decentral_dp.simulation.result import (
    RESULT,
    mode_of,
    plain,
    read_result,
    refuse_damaged,
    require_run_folder,
    seal,
    text_of,
)
from decentral_dp.simulation.statistics import bound_by_counts
from decentral_dp.simulation.summary import claim_of, statement_of
from decentral_dp.tasks import write_json

Method = Literal["exact", "likelihood", "counting", "difference", "one run"]
Status = Literal["ok", "refuted", "broken"]

FEWEST_RUNS = 20
# That one participant releases in a run: each candidate's replay holds as many.
MOST_NUMBERS = 20_000_000


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
    if unit.zeroed and isinstance(job.algorithm, DpDsgd) and job.algorithm.local_steps:
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
        lambda plan: (
            plan.canaries is None
            and sum(float(c.dimension * c.rounds.size) for c in plan.job.ledger.channels) > MOST_NUMBERS
        ),
        "audit",
        f"a run of this job releases more than {MOST_NUMBERS:.2g} numbers, and several copies are held at once",
        "take fewer rounds (--set algorithm.rounds=...), or a smaller model",
    ),
)


# Pairs of runs with common noise from which the direction of a projection is learnt.
_LEARNT = 16
# Runs on which it is tried whether likelihoods are known.
_PROBES = 4


def score_of(
    vantage: str, neighbours: Neighbours, roots: Callable[[int], bytes], lawful: bool
) -> tuple[Callable[[Transcript], float], bool]:
    """Choose the score for a vantage point.

    Args:
        vantage: "everybody", "published" or "agent:K", as of `plan_audit`.
        neighbours: the two neighbouring data sets.
        roots: number of a run → root of its coins, of the runs that the score may learn from.
        lawful: whether random choices have the law that they state.

    Returns:
        The score of a run, larger where the first of the data sets is likelier, and whether it is the log-likelihood
        ratio of all that is seen; where that is not known, it is a projection learnt from these runs.
    """
    probes = [neighbours.observe(neighbours.second if k % 2 else neighbours.first, roots(k)) for k in range(_PROBES)]

    def is_replayed(probe: Transcript) -> bool:
        """Whether a replay gives the law of everything that is said."""
        return (
            probe.is_replayable and probe.releases.keys() == replay(neighbours.first, neighbours.victim, probe).keys()
        )

    if vantage == "everybody" and lawful and all(map(is_replayed, probes)):
        if not is_amplified(neighbours.first):
            sides = neighbours.first, neighbours.second
            return lambda seen: log_ratio(seen, *(replay(w, neighbours.victim, seen) for w in sides)), True
        rates = sampling_rates(neighbours.first, neighbours.victim, neighbours.split)
        if rates is not None and all(separate(neighbours, probe) for probe in probes):
            return partial(mixture_log_ratio, neighbours, rates=rates), True
    return _projection(vantage, neighbours, roots), False


def _projection(vantage: str, neighbours: Neighbours, roots: Callable[[int], bytes]) -> Callable[[Transcript], float]:
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

    return project


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


@dataclass(frozen=True)
class AuditResult:
    """What an audit shows.

    Args:
        claimed: ε of the paper's theorem, for the worst agent; None where none is given.
        certified: ε of the ledger at delta, of the agent whose record is replaced.
        shown: ε is at least this, with this confidence.
        method: "exact" (the law of the likelihood ratio is known), "likelihood" or "counting" (from runs),
            "difference" (nothing hides the record), or "one run" (canaries in a single one).
        vantage: "everybody", "published" or "agent:K".
        runs: of each data set.
        null_shown: the same of two equal data sets; above 0 the audit is broken.
        status: "ok", "refuted" (more is shown than is certified), or "broken".
        sentences: what the numbers say, and do not.
        privacy: the guarantee of the audited run, as in `PrivacyStatement.summary`.

    Example:
        >>> import decentral_dp
        >>> found = decentral_dp.audit("network_view", set={"algorithm.rounds": 2}, runs=20)
        >>> found.method, found.status, 0.95 * found.certified <= found.shown <= found.certified
        ('exact', 'ok', True)
    """

    title: str
    claimed: float | None
    certified: float
    shown: float
    delta: float
    confidence: float
    method: Method
    vantage: str
    runs: int
    null_shown: float
    status: Status
    sentences: tuple[str, ...]
    privacy: str

    def __repr__(self) -> str:
        budgets = f"ε {at_least_text(self.shown)} shown, {epsilon_text(self.certified)} certified"
        return f"<AuditResult {self.title!r}: {self.status}, {budgets}, {self.method}>"

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values; infinite numbers are "inf"."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


# Of runs in which movements are compared, and their noise measured, before the law of the ratio is taken as known.
COMPARED_RUNS = 6
# Of the most that counting can show; from there on more runs would show more.
_NEARLY = 0.9


@dataclass(frozen=True)
class LowerBound:
    """A lower bound, how it was found, and the same of two equal data sets."""

    method: Method
    epsilon: float
    null: float
    confidence: float
    runs: int
    noise: tuple[float, float] | None
    contradiction: str = ""
    one_run: Shown | None = None


def sentences_of(
    plan: AuditPlan, neighbours: Neighbours, bound: LowerBound, status: Status, certified: float, claimed: float | None
) -> list[str]:
    """Say what the numbers of an audit mean.

    Args:
        plan: what was asked.
        neighbours: the two that were told apart.
        bound: what was found.
        status: of the audit.
        certified: ε of the agent whose record is replaced.
        claimed: ε of the paper's theorem; None where there is none.

    Returns:
        One sentence or two each.
    """
    at = f"at δ = {delta_text(plan.job.scenario.privacy.delta)}"
    percent, limit = f"{100.0 * bound.confidence:g} %", plan.epsilon_limit
    out = []
    if status == "broken":
        out.append(
            f"Broken: two equal data sets are told apart ({_lower_bound_text(bound.null)}), so nothing else here can "
            "be believed."
        )
    elif status == "refuted":
        out.append(
            f"Refuted: {_lower_bound_text(bound.epsilon)} {at}, and {epsilon_text(certified)} is certified. A bug, or "
            "a broken guarantee."
        )
    elif math.isinf(certified):
        out.append("No finite ε is certified here, so nothing that is shown contradicts the certificate.")
    elif bound.method == "counting" and _NEARLY * limit <= bound.epsilon and limit < certified:
        out.append(
            f"Not refuted, and it could not be: what is shown is about the most that {bound.runs} runs can show, ε = "
            f"{epsilon_text(limit)}, and {epsilon_text(certified)} is certified {at}; repeat with more --runs."
        )
    else:
        out.append(f"Not refuted: no more is shown than the certified ε = {epsilon_text(certified)} {at}.")
    if claimed is not None and status != "broken":
        above = bound.epsilon > claimed
        out.append(f"{'Refuted' if above else 'Not refuted'} is the claim, ε = {epsilon_text(claimed)}.")
    closing = [] if status == "broken" else ["The same game between two equal data sets shows nothing, as it must."]
    closing.append("What is shown is a lower bound by one attack, and a small one certifies nothing.")
    if bound.one_run is not None:
        out.append(
            f"In one run {plan.canaries} records were replaced by canaries, whose labels are coins: "
            f"{bound.one_run.right} of these were guessed from what was published, with confidence {percent}."
        )
        if gaussian_throughout(plan.job):
            out.append(
                "What is shown takes the curve of one record to be that of Gaussian noise, as in the ledger, of "
                f"unknown size; without that, it shows ε {at_least_text(bound.one_run.plain)} with the same confidence."
            )
        return [*out, *closing]
    how = {
        "exact": f"The two data sets are equally far apart on each of {COMPARED_RUNS} transcripts of both, and if they "
        "are on all, what is shown is exact for these two records.",
        "likelihood": f"From exact likelihood ratios of {bound.runs} runs of each data set, with confidence {percent}.",
        "counting": f"By counting {bound.runs} runs of each data set, with confidence {percent}: so many can show at "
        f"most {epsilon_text(limit)}.",
        "difference": "No noise hides the record: the same coins give other values in the other data set."
        if bound.epsilon
        else "No noise hides the record, but what is seen from here does not depend on it.",
    }[bound.method]
    out.append(f"In two data sets {_difference_text(plan, neighbours)}. {how}")
    if bound.method in ("exact", "likelihood") and is_amplified(plan.job):
        out.append("It is taken as known how all other records were drawn, as the certificate allows.")
    if bound.noise is not None and not bound.noise[0] <= 1.0 <= bound.noise[1]:
        out.append(
            f"The noise that was drawn is {bound.noise[0]:.3g} to {bound.noise[1]:.3g} times as large as stated."
        )
    return [*out, *filter(None, [bound.contradiction]), *closing]


def _difference_text(plan: AuditPlan, neighbours: Neighbours) -> str:
    """Return what the two data sets differ in, as a sentence ends."""
    unit = plan.job.unit
    whose = f"{neighbours.split} record{'s' * (unit.records != 1)} of agent {neighbours.victim}"
    if unit.records != 1:
        zeroed = "contribute nothing in one of them" if unit.zeroed else "are replaced by copies of one"
    else:
        zeroed = "contributes nothing in one of them" if unit.zeroed else "is replaced"
    which = "all" if unit.records is None else "the first" if unit.records == 1 else f"the first {unit.records}"
    crowd = ", and all its others are copies of one of the two" if neighbours.copies else ""
    return f"{which} {whose} {zeroed}{crowd}"


def _lower_bound_text(epsilon: float) -> str:
    return "no finite ε holds" if math.isinf(epsilon) else f"ε is at least {at_least_text(epsilon).removeprefix('≥ ')}"


# Runs without noise in which a sampled record may show.
_COINS = 40
# Runs on which it is tried whether random choices have the law that they state.
_LAWS = 200
# Movements that differ by less than this part of the largest are the same but for float64.
_EQUAL_WITHIN = 1e-6
# With which the game of two equal data sets must show nothing: a sound audit fails it once in a thousand times.
_NULL_RISK = 1e-3


def play_game(
    plan: AuditPlan,
    out: Path | None = None,
    progress: Callback | None = None,
    null: Callable[[Neighbours], PlannedJob] = lambda neighbours: neighbours.first,
) -> AuditResult:
    """Play the game, and the game against itself.

    Args:
        plan: as `plan_audit` settles it.
        out: a new JSON file.
        progress: called with a `Progress` of "runs".
        null: the data set that is passed off as the first one, in the game against itself; by default that one.

    Returns:
        What was shown.

    Raises:
        InputError: `out` exists, or has no folder.
    """
    if out is not None:
        require_new("--out", out)
    if plan.canaries is not None:
        shown = shown_in_one_run(plan.job, plan.canaries, plan.root("canaries", 0), 1.0 - plan.confidence)
        bound = LowerBound("one run", shown.epsilon, shown.null, plan.confidence, 1, None, one_run=shown)
        # Any canary is the record that is replaced, so that the ε of all agents counts: the largest.
        neighbours = Neighbours(plan.job, plan.job, int(np.argmax(plan.job.budget.epsilon)), "train")
    else:
        neighbours = worst_neighbours(plan.job, plan.root("search", 0))
        same = neighbours._replace(second=null(neighbours))
        bound = _lower_bound(plan, neighbours, same, Reporter(progress, "runs"))
    claim, certified = claim_of(plan.job), float(plan.job.budget.epsilon[neighbours.victim])
    claimed = None if claim is None else claim.epsilon_max
    status: Status = "broken" if bound.null > 0.0 else "refuted" if bound.epsilon > certified else "ok"
    result = AuditResult(
        plan.job.scenario.title or "An audit",
        claimed,
        certified,
        bound.epsilon,
        plan.job.scenario.privacy.delta,
        bound.confidence,
        bound.method,
        plan.vantage,
        bound.runs,
        bound.null,
        status,
        tuple(sentences_of(plan, neighbours, bound, status, certified, claimed)),
        statement_of(plan.job).summary,
    )
    if out is not None:
        # Scores of an audit read the records, as metrics do.
        write_json(out, result.to_dict(), OWNERS if plan.job.scenario.seed is None else 0o666)
    return result


def add_to_run(audit: AuditResult, folder: Path) -> Path:
    """Write a finished audit into the result of a run, and draw its page again.

    Args:
        audit: what was shown.
        folder: of the run.

    Returns:
        The page.

    Raises:
        InputError: the result of the run cannot be read.
    """
    from decentral_dp.reporting.page import write_report

    result = read_result(folder)
    content = text_of(seal({**result.content, "audit": audit.to_dict()}))
    write_whole(folder / RESULT, content.encode(), mode_of(folder))
    with refuse_damaged(folder, "audit"):
        return write_report(folder)


def _lower_bound(plan: AuditPlan, neighbours: Neighbours, same: Neighbours, report: Reporter) -> LowerBound:
    """What the game shows by the best method that there is for it."""
    charged = plan.job.ledger.charged_channels
    has_noise = any(c.mechanism.proven or c.mechanism.name == "uncertified" for c in charged) or not charged
    if plan.job.mechanism.adds_noise is False or not has_noise:
        return _differing(plan, neighbours)
    contradicted = ""
    if plan.vantage == "everybody":
        contradicted = refute_stated_laws(neighbours, [plan.root("laws", k) for k in range(min(plan.runs, _LAWS))])
        exact = None if contradicted else _exact(plan, neighbours, same)
        if exact is not None:
            return exact
    return replace(_sampled(plan, neighbours, same, not contradicted, report), contradiction=contradicted)


def _differing(plan: AuditPlan, neighbours: Neighbours) -> LowerBound:
    """Where nothing hides a record: whether what is seen differs between runs with the same coins."""
    differs = [False, False]
    # A record that is rarely drawn shows in few of them.
    for k in range(_COINS):
        root = plan.root("first", k)
        observations = [neighbours.observe(w, root) for w in (neighbours.first, neighbours.second, neighbours.first)]
        values = [[t.published] if plan.vantage == "published" else list(t.releases.values()) for t in observations]
        for which in (0, 1):
            pairs = zip(values[0], values[which + 1], strict=True)
            differs[which] = differs[which] or any(not np.array_equal(a, b, equal_nan=True) for a, b in pairs)
        if differs[0] or not is_amplified(plan.job):
            break
    return LowerBound("difference", math.inf if differs[0] else 0.0, math.inf if differs[1] else 0.0, 1.0, 1, None)


def _exact(plan: AuditPlan, neighbours: Neighbours, same: Neighbours) -> LowerBound | None:
    """Where the queries of both data sets are equally far apart on every transcript that is tried; None elsewhere."""
    delta, laws, sizes = plan.job.scenario.privacy.delta, [], list[Sizes]()
    nothing = 0.0
    for k in range(COMPARED_RUNS):
        side = neighbours.second if k % 2 else neighbours.first
        transcript = neighbours.observe(side, plan.root("compare", k))
        law = loss_law(transcript, neighbours)
        none = None if law is None else loss_law(transcript, same)
        laws.append(law)
        if law is None or none is None or laws[0] is None or not are_close(laws[0], law, _EQUAL_WITHIN):
            return None
        sizes.append(noise_sizes(transcript.residuals))
        nothing = max(nothing, none.epsilon(delta, 1.0))
    # Few numbers say little of the noise: a release more costs nothing, being of the same law.
    runs = max(COMPARED_RUNS, min(plan.runs, 200))
    for k in range(COMPARED_RUNS, runs):
        sizes.append(noise_sizes(neighbours.observe(neighbours.first, plan.root("compare", k)).residuals))
    noise = drawn_noise(sum_noise(sizes))
    size = 1.0 if noise[0] <= 1.0 <= noise[1] else noise[1]
    return None if laws[0] is None else LowerBound("exact", laws[0].epsilon(delta, size), nothing, 1.0, runs, noise)


def _sampled(plan: AuditPlan, neighbours: Neighbours, same: Neighbours, lawful: bool, report: Reporter) -> LowerBound:
    """The larger of what counting and, where it is one, the likelihood ratio of runs shows; each gets half of the risk.

    lawful: whether random choices have the law that they state.
    """
    score, is_likelihood = score_of(plan.vantage, neighbours, lambda k: plan.root("learn", k), lawful)
    sides = {"first": neighbours.first, "second": neighbours.second, "null": same.second}
    scores: dict[str, list[float]] = {group: [] for group in sides}
    sizes = list[Sizes]()
    for k in range(plan.runs):
        for group, side in sides.items():
            transcript = neighbours.observe(side, plan.root(group, k))
            scores[group].append(score(transcript))
            sizes.append(noise_sizes(transcript.residuals) if is_likelihood else {})
        report(len(sides) * (k + 1), len(sides) * plan.runs)
    first, second, null = map(np.array, scores.values())
    noise_sums = sum_noise(sizes)
    delta, risk = plan.job.scenario.privacy.delta, 1.0 - plan.confidence
    share = 0.5 * risk if is_likelihood else risk
    bounds: list[tuple[float, Method]] = [(bound_by_counts(first, second, delta, share), "counting")]
    noise = drawn_noise(noise_sums) if is_likelihood else None
    # Of random choices alone, no noise has a size.
    power = {GAUSSIAN.name: 2, LAPLACE.name: 1, "": 1}.get(" and ".join(name for name, _, _ in noise_sums))
    mixed = is_likelihood and is_amplified(plan.job)
    if noise is not None and power is not None and (not mixed or noise[0] <= 1.0 <= noise[1]):
        # Under noise of another size than stated, a log-likelihood ratio is so many times as large.
        factor = 1.0 if noise[0] <= 1.0 <= noise[1] else noise[1] ** -power
        bounds.append((from_likelihoods(factor * first, factor * second, delta, share), "likelihood"))
    bound, method = max(bounds, key=lambda one: one[0])
    nothing = bound_by_counts(first, null, delta, _NULL_RISK)
    return LowerBound(method, bound, nothing, plan.confidence, plan.runs, noise)
