"""Audit a guarantee: compute a lower bound on ε by a distinguishing game, and compare it with the certified ε.

`neighbours` searches for two neighbouring data sets, `transcripts` replays a run on either of them, and `losses` and
`bounds` compute the bound. Every audit also plays the game on two equal data sets, where the bound must be 0.

A larger score means that the first data set is more likely. The randomness of every run is derived from the seed of
the audit and the number of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from decentral_dp.algorithms.gossip.centring import strip_centring
from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.auditing.bounds import bound_by_likelihoods, counting_limit
from decentral_dp.auditing.losses import (
    are_close,
    drawn_noise,
    find_loss_distribution,
    has_separate_samples,
    is_amplified,
    log_ratio,
    mixture_log_ratio,
    refute_stated_laws,
    sampling_rates,
)
from decentral_dp.auditing.neighbours import find_neighbours
from decentral_dp.auditing.transcripts import Neighbours, Transcript, observe_runs, replay, replay_runs, runs_at_once
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
from decentral_dp.reporting.privacy import adjacency_text, summary_text
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.folder.layout import require_new
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob, require_records
from decentral_dp.simulation.metrics import average_agents
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

Method = Literal["exact", "likelihood", "counting", "difference"]
Status = Literal["ok", "refuted", "broken"]

FEWEST_RUNS = 20
# Largest number of floats that a participant releases in a run, and that each candidate's replay stores.
MOST_NUMBERS = 20_000_000


@dataclass(frozen=True)
class AuditPlan:
    """Prepared distinguishing game."""

    job: PlannedJob
    adversary: str
    runs: int
    confidence: float
    seed: int

    @property
    def epsilon_limit(self) -> float:
        """Largest bound that counting can achieve. Likelihood ratios have no such limit."""
        return counting_limit(self.runs, self.job.scenario.privacy.delta, 1.0 - self.confidence)

    def root(self, purpose: str, number: int) -> bytes:
        """Return the noise key of one run for one purpose."""
        return seeded_root(self.seed, f"audit {purpose} {number}".encode())


def plan_audit(
    scenario: str | Path | Mapping[str, Any] | Scenario | PlannedJob,
    runs: int,
    adversary: str,
    confidence: float = 0.95,
    seed: int = 0,
    overrides: Sequence[str] = (),
) -> AuditPlan:
    """Build the job of an audit and check the options of the audit.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, a built job, or a run folder.
        runs: number of runs on each of the two data sets, at least 20.
        adversary: values that the adversary observes. "all_messages": all messages (or all releases of a coordinator);
            "published": values published at the end; "agent:K": messages that agent K receives; "final_models" or
            "final_average": only these values, for a job with this privacy.adversary.
        confidence: confidence level of the bound, in [0.5, 1).
        seed: public seed of the noise in these runs.
        overrides: "table.key=value" with a TOML value.

    Returns:
        The plan of the audit.

    Raises:
        InputError: an option does not apply to the job, or the job is too large.
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
    plan = AuditPlan(job, adversary, runs, confidence, seed)
    refuse(plan, _REFUSALS)
    return plan


def _explain_unit(plan: AuditPlan) -> str:
    """Return the reason why the job's unit of privacy is not supported, or ""."""
    job, unit = plan.job, plan.job.unit
    if unit == RECORD:
        return ""
    algorithm = strip_centring(job.algorithm)
    if job.sampling.kind == "fixed_batch":
        return "batches of fixed size are audited for single records only"
    if unit.zeroed and not isinstance(job.problem, PlannedTraining):
        return f"{job.scenario.problem.kind} has no record that contributes nothing"
    if unit.zeroed and isinstance(algorithm, DpDsgd) and algorithm.local_steps:
        return "an agent without contributing records cannot be audited"
    return ""


def _list_adversaries(plan: AuditPlan) -> str:
    """Return the valid adversaries of the job if that of the plan is invalid, or ""."""
    kind, _, number = plan.adversary.partition(":")
    # A coordinator sends no messages to single agents.
    receivers = 0 if plan.job.plans_ahead else plan.job.n_agents
    is_agent = kind == "agent" and number.isdigit() and int(number) < receivers
    view = plan.job.scenario.privacy.adversary
    names = ("all_messages", "published", *(() if view == "all_messages" else (view,)))
    if is_agent or plan.adversary in names:
        return ""
    return ", ".join(names) + (f" or agent:0 to agent:{receivers - 1}" if receivers else "")


_REFUSALS: tuple[Refusal[AuditPlan], ...] = (
    Refusal(
        lambda plan: plan.runs < FEWEST_RUNS,
        "runs",
        f"too few runs of each data set (got {{of.runs}}, expected at least {FEWEST_RUNS})",
        "use 200",
    ),
    Refusal(
        lambda plan: not 0.5 <= plan.confidence < 1.0,
        "confidence",
        "out of range (got {of.confidence}, expected a number in [0.5, 1))",
        "use 0.95",
    ),
    Refusal(
        # A trusted coordinator samples in its algorithm; its stream reads all records.
        lambda plan: plan.job.sampling.kind == "poisson",
        "audit",
        "Poisson samples of gossip algorithms are not supported",
        'set problem.sampling = "full", whose releases are the same at a larger privacy cost',
    ),
    Refusal(
        _explain_unit,
        "audit",
        "ε of this job is for {of.job.unit.noun}, but {it}",
        "remove privacy.unit and privacy.neighbours",
    ),
    Refusal(
        _list_adversaries,
        "adversary",
        "not of this job (got {of.adversary!r}, expected {it})",
        "use one of these",
    ),
    Refusal(
        lambda plan: sum(float(c.dimension * c.rounds.size) for c in plan.job.ledger.channels) > MOST_NUMBERS,
        "audit",
        f"too many floats in one run (expected at most {MOST_NUMBERS:.2g})",
        "decrease algorithm.rounds, or use a smaller model",
    ),
)


# Number of pairs of runs with common noise that train a projection.
_LEARNT = 16
# Number of runs that decide whether likelihoods are known.
_PROBES = 4


def choose_score(
    adversary: str, neighbours: Neighbours, roots: Callable[[int], bytes], lawful: bool
) -> tuple[Callable[[Sequence[Transcript]], list[float]], bool]:
    """Choose the score with which an adversary distinguishes transcripts.

    Args:
        adversary: "all_messages", "published" or "agent:K".
        neighbours: two neighbouring data sets.
        roots: number of a run → its noise key, for the runs from which the score may learn.
        lawful: whether random choices have their stated distribution.

    Returns:
        The score of transcripts, and whether it is the log-likelihood ratio. If not, it is a projection that is learned
        from these runs.
    """
    probes = [neighbours.observe(neighbours.second if k % 2 else neighbours.first, roots(k)) for k in range(_PROBES)]

    def is_replayed(probe: Transcript) -> bool:
        """Return whether a replay determines the distribution of all releases."""
        return (
            probe.is_replayable and probe.releases.keys() == replay(neighbours.first, neighbours.victim, probe).keys()
        )

    if adversary == "all_messages" and lawful and all(map(is_replayed, probes)):
        if not is_amplified(neighbours.first):

            def log_ratios(transcripts: Sequence[Transcript]) -> list[float]:
                sides = neighbours.first, neighbours.second
                replays = (replay_runs(side, neighbours.victim, transcripts) for side in sides)
                return [log_ratio(*run) for run in zip(transcripts, *replays, strict=True)]

            return log_ratios, True
        rates = sampling_rates(neighbours.first, neighbours.victim, neighbours.split)
        if rates is not None and all(has_separate_samples(neighbours, probe) for probe in probes):
            return lambda runs: [mixture_log_ratio(neighbours, run, rates=rates) for run in runs], True
    project = _learn_projection(adversary, neighbours, roots)
    return lambda runs: [project(run) for run in runs], False


def _learn_projection(
    adversary: str, neighbours: Neighbours, roots: Callable[[int], bytes]
) -> Callable[[Transcript], float]:
    """Learn the inner product with the mean difference divided by variances, from runs with common noise."""
    first: list[Array] = []
    second: list[Array] = []
    for k in range(_LEARNT):
        for side, numbers in ((neighbours.first, first), (neighbours.second, second)):
            numbers.append(visible_numbers(adversary, neighbours.observe(side, roots(k)), neighbours))
    difference = np.mean(first, axis=0) - np.mean(second, axis=0)
    variance = 0.5 * (np.var(first, axis=0) + np.var(second, axis=0))
    # Any difference in a constant coordinate decides. In few runs a variance may be small by chance.
    floor = 0.1 * np.median(variance[variance > 0.0]) if (variance > 0.0).any() else 1.0
    direction = np.where(np.isfinite(difference), difference, 0.0) / np.maximum(variance, max(floor, 1e-300))
    centre = 0.5 * (np.mean(first, axis=0) + np.mean(second, axis=0))

    def project(transcript: Transcript) -> float:
        value = float(np.nansum(direction * (visible_numbers(adversary, transcript, neighbours) - centre)))
        return value if np.isfinite(value) else 0.0

    return project


def visible_numbers(adversary: str, transcript: Transcript, neighbours: Neighbours) -> Array:
    """Return all floats that an adversary observes.

    Args:
        adversary: observed values, as in `plan_audit`.
        transcript: transcript of a run.
        neighbours: data sets, whose graph determines the in-neighbours of an agent.

    Returns:
        The floats, (k,), in the order of the releases.
    """
    if adversary in ("published", "final_models"):
        return transcript.published
    if adversary == "final_average":
        # One channel, agent by agent.
        return np.ravel(average_agents({"y": transcript.published.reshape(neighbours.first.n_agents, -1)})["y"])
    if adversary == "all_messages":
        return np.concatenate([values.ravel() for values in transcript.releases.values()])
    # The messages of the in-neighbours; of an algorithm with a server, of all agents.
    agent = int(adversary.partition(":")[2])
    job: Any = neighbours.first
    near: Sequence[int] = range(job.n_agents)
    if not job.has_server:
        row = job.public_network.mixing.toarray()[agent] != 0.0
        row[agent] = False
        near = np.flatnonzero(row).tolist()
    return np.concatenate([np.concatenate(blocks)[list(near)].ravel() for blocks in transcript.messages])


Sizes = Mapping[str, tuple[int, float]]
"""Mechanism → number of floats with its noise, and the sum of the sizes of that noise."""


def measure_noise(residuals: Mapping[str, Array]) -> Sizes:
    """Measure the noise of one run.

    Args:
        residuals: name of the mechanism → noise divided by its scale, (Σ d,).

    Returns:
        Name of the mechanism → number of floats, and the sum of squares (Gaussian) or absolute values (Laplace).
    """
    return {
        name: (values.size, float((values**2 if name == GAUSSIAN.name else np.abs(values)).sum()))
        for name, values in residuals.items()
        if name in (GAUSSIAN.name, LAPLACE.name) and np.isfinite(values).all()
    }


def sum_noise(sizes: Iterable[Sizes]) -> list[tuple[str, int, float]]:
    """Sum the noise of several runs, for `losses.drawn_noise`."""
    sums: dict[str, tuple[int, float]] = {}
    for run in sizes:
        for name, (n, total) in run.items():
            before = sums.get(name, (0, 0.0))
            sums[name] = before[0] + n, before[1] + total
    return [(name, n, total) for name, (n, total) in sums.items()]


@dataclass(frozen=True)
class AuditResult:
    """Result of an audit.

    Args:
        title: title of the scenario.
        claimed: ε of the paper's theorem for the worst agent, or None if there is no theorem.
        certified: ε at delta against the adversary, for the agent whose record is replaced.
        shown: empirical lower bound on ε.
        delta: δ of the guarantee.
        adjacency: neighbouring relation, "replace one record of one agent".
        confidence: confidence level of the lower bound.
        method: "exact" (the distribution of the likelihood ratio is known), "likelihood" or "counting" (from runs),
            or "difference" (without noise).
        adversary: "all_messages", "published" or "agent:K".
        runs: number of runs on each data set.
        null_shown: lower bound for two equal data sets. If this is above 0, the audit is broken.
        status: "ok", "refuted" (the lower bound is above certified), or "broken".
        sentences: the result in sentences.
        privacy: guarantee of the audited run, from `reporting.privacy.summary_text`.

    Example:
        >>> import decentral_dp
        >>> audit = decentral_dp.audit("network_view", set={"algorithm.rounds": 2}, runs=20)
        >>> audit.method, audit.status, 0.95 * audit.certified <= audit.shown <= audit.certified
        ('exact', 'ok', True)
    """

    title: str
    claimed: float | None
    certified: float
    shown: float
    delta: float
    adjacency: str
    confidence: float
    method: Method
    adversary: str
    runs: int
    null_shown: float
    status: Status
    sentences: tuple[str, ...]
    privacy: str

    def __repr__(self) -> str:
        budgets = f"empirical lower bound {at_least_text(self.shown)}, certified ε = {epsilon_text(self.certified)}"
        return f"<AuditResult {self.title!r}: {self.status}, {budgets}, {self.method}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, with "inf" for infinity."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


# Runs that must have equal query differences for a known distribution of the ratio.
COMPARED_RUNS = 6
# Fraction of the counting limit above which more runs would increase the bound.
_NEARLY = 0.9


@dataclass(frozen=True)
class LowerBound:
    """Lower bound on ε, the method that found it, and the bound for two equal data sets (null)."""

    method: Method
    epsilon: float
    null: float
    confidence: float
    runs: int
    noise: tuple[float, float] | None
    contradiction: str = ""


def describe_audit(
    plan: AuditPlan,
    neighbours: Neighbours,
    bound: LowerBound,
    status: Status,
    certified_epsilon: float,
    claimed_epsilon: float | None,
) -> list[str]:
    """Describe the result of an audit in sentences.

    Args:
        plan: plan of the audit.
        neighbours: two neighbouring data sets.
        bound: lower bound.
        status: status of the audit.
        certified_epsilon: ε of the agent whose record is replaced.
        claimed_epsilon: ε of the paper's theorem, or None if there is no theorem.
    """
    at_delta = f"at δ = {delta_text(plan.job.scenario.privacy.delta)}"
    confidence, limit = f"{100.0 * bound.confidence:g} %", plan.epsilon_limit
    if status == "broken":
        verdict = (
            f"Broken: two equal data sets are distinguished ({_lower_bound_text(bound.null)}), so no other result of "
            "this audit counts."
        )
    elif status == "refuted":
        verdict = (
            f"Refuted: {_lower_bound_text(bound.epsilon)} {at_delta}, and {epsilon_text(certified_epsilon)} is "
            "certified. This is a bug, or a broken guarantee."
        )
    elif math.isinf(certified_epsilon):
        verdict = "No finite ε is certified, so no lower bound contradicts the certificate."
    elif bound.method == "counting" and _NEARLY * limit <= bound.epsilon and limit < certified_epsilon:
        verdict = (
            f"Not refuted, and it could not be: {bound.runs} runs can show at most ε = {epsilon_text(limit)}, and "
            f"{epsilon_text(certified_epsilon)} is certified {at_delta}. Repeat with more --runs."
        )
    else:
        verdict = (
            f"Not refuted: the lower bound is at most the certified ε = {epsilon_text(certified_epsilon)} {at_delta}."
        )
    out = [verdict]
    if claimed_epsilon is not None and status != "broken":
        word = "Refuted" if bound.epsilon > claimed_epsilon else "Not refuted"
        out.append(f"{word}: the claim of ε = {epsilon_text(claimed_epsilon)}.")
    closing = [] if status == "broken" else ["The same game on two equal data sets gives 0, as required."]
    closing.append("The lower bound is that of one attack, so a small one does not certify a small ε.")
    method = {
        "exact": f"The two data sets are at the same distance on each of {COMPARED_RUNS} transcripts. If they are on "
        "all, the lower bound is exact for these two records.",
        "likelihood": f"Exact likelihood ratios of {bound.runs} runs of each data set, with confidence {confidence}.",
        "counting": f"Counts of {bound.runs} runs of each data set, with confidence {confidence}. They can show at "
        f"most {epsilon_text(limit)}.",
        "difference": "No noise hides the record: the same randomness gives other values in the other data set."
        if bound.epsilon
        else "No noise hides the record, but the visible values do not depend on it.",
    }[bound.method]
    out.append(f"In two data sets {_describe_difference(plan, neighbours)}. {method}")
    if bound.method in ("exact", "likelihood") and is_amplified(plan.job):
        out.append("The adversary knows which other records were drawn, as the certificate allows.")
    if bound.noise is not None and not bound.noise[0] <= 1.0 <= bound.noise[1]:
        out.append(f"The drawn noise is {bound.noise[0]:.3g} to {bound.noise[1]:.3g} times as large as stated.")
    return [*out, *filter(None, [bound.contradiction]), *closing]


def _describe_difference(plan: AuditPlan, neighbours: Neighbours) -> str:
    """Describe the difference of the two data sets, as the end of a sentence."""
    unit = plan.job.unit
    subject = f"{neighbours.split} record{'s' * (unit.records != 1)} of agent {neighbours.victim}"
    if unit.records != 1:
        change = "contribute nothing in one of them" if unit.zeroed else "are replaced by copies of one"
    else:
        change = "contributes nothing in one of them" if unit.zeroed else "is replaced"
    records = "all" if unit.records is None else "the first" if unit.records == 1 else f"the first {unit.records}"
    crowd = ", and all its others are copies of one of the two" if neighbours.copies else ""
    return f"{records} {subject} {change}{crowd}"


def _lower_bound_text(epsilon: float) -> str:
    return "no finite ε holds" if math.isinf(epsilon) else f"ε is at least {at_least_text(epsilon).removeprefix('≥ ')}"


# Number of runs without noise in which a sampled record may appear.
_COINS = 40
# Runs that test whether random choices have their stated distribution.
_LAWS = 200
# Relative difference of movements due to float64 rounding.
_EQUAL_WITHIN = 1e-6
# Risk of the game on two equal data sets: a sound audit fails with probability 1/1000.
_NULL_RISK = 1e-3


def play_game(
    plan: AuditPlan,
    out: Path | None = None,
    progress: Callback | None = None,
    null: Callable[[Neighbours], PlannedJob] = lambda neighbours: neighbours.first,
) -> AuditResult:
    """Play the distinguishing game, and play it again on two equal data sets.

    Args:
        plan: result of `plan_audit`.
        out: path of a new JSON file.
        progress: callback that receives a `Progress` for "runs".
        null: function that returns the second of the two equal data sets. By default this is the first data set.

    Raises:
        InputError: `out` exists, or its folder does not exist.
    """
    if out is not None:
        require_new("--out", out)
    neighbours = find_neighbours(plan.job, plan.root("search", 0))
    null_pair = neighbours._replace(second=null(neighbours))
    bound = _bound_epsilon(plan, neighbours, null_pair, Reporter(progress, "runs"))
    job, privacy, claim = plan.job, statement_of(plan.job), claim_of(plan.job)
    certified = job.budget.epsilon
    if isinstance(job, GossipJob) and job.published is not None and plan.adversary == job.scenario.privacy.adversary:
        certified = job.published
    certified_epsilon = float(certified[neighbours.victim])
    claimed_epsilon = None if claim is None else claim.epsilon_max
    status: Status = "broken" if bound.null > 0.0 else "refuted" if bound.epsilon > certified_epsilon else "ok"
    result = AuditResult(
        plan.job.scenario.title or "An audit",
        claimed_epsilon,
        certified_epsilon,
        bound.epsilon,
        plan.job.scenario.privacy.delta,
        adjacency_text(privacy),
        bound.confidence,
        bound.method,
        plan.adversary,
        bound.runs,
        bound.null,
        status,
        tuple(describe_audit(plan, neighbours, bound, status, certified_epsilon, claimed_epsilon)),
        summary_text(privacy),
    )
    if out is not None:
        # An audit reads the private records.
        write_whole(out, text_of(result.to_dict()).encode(), OWNERS if plan.job.scenario.seed is None else 0o666)
    return result


def add_to_run(audit: AuditResult, folder: Path) -> Path:
    """Add an audit to the result of a run, and rewrite the page of the run.

    Args:
        audit: result of the audit.
        folder: folder of the run.

    Returns:
        The path of the rewritten page.

    Raises:
        InputError: the result of the run cannot be read.
    """
    from decentral_dp.reporting.page import write_report

    result = read_result(folder)
    content = text_of(seal({**result.content, "audit": audit.to_dict()}))
    write_whole(folder / RESULT, content.encode(), mode_of(folder))
    with refuse_damaged(folder, "audit"):
        return write_report(folder)


def _bound_epsilon(plan: AuditPlan, neighbours: Neighbours, null_pair: Neighbours, report: Reporter) -> LowerBound:
    """Compute the lower bound by the best method for the job."""
    channels = plan.job.ledger.charged_channels
    has_noise = any(c.mechanism.proven or c.mechanism.name == "uncertified" for c in channels) or not channels
    if plan.job.mechanism.adds_noise is False or not has_noise:
        return _bound_by_difference(plan, neighbours)
    contradiction = ""
    if plan.adversary == "all_messages":
        contradiction = refute_stated_laws(neighbours, [plan.root("laws", k) for k in range(min(plan.runs, _LAWS))])
        exact = None if contradiction else _bound_exactly(plan, neighbours, null_pair)
        if exact is not None:
            return exact
    return replace(_bound_by_runs(plan, neighbours, null_pair, not contradiction, report), contradiction=contradiction)


def _bound_by_difference(plan: AuditPlan, neighbours: Neighbours) -> LowerBound:
    """Bound ε by runs with equal randomness, if no noise hides a record."""
    differs = [False, False]
    # A sampled record appears in few runs.
    for k in range(_COINS):
        root = plan.root("first", k)
        observations = [neighbours.observe(w, root) for w in (neighbours.first, neighbours.second, neighbours.first)]
        values = [[t.published] if plan.adversary == "published" else list(t.releases.values()) for t in observations]
        for side in (0, 1):
            pairs = zip(values[0], values[side + 1], strict=True)
            differs[side] = differs[side] or any(not np.array_equal(a, b, equal_nan=True) for a, b in pairs)
        if differs[0] or not is_amplified(plan.job):
            break
    return LowerBound("difference", math.inf if differs[0] else 0.0, math.inf if differs[1] else 0.0, 1.0, 1, None)


def _bound_exactly(plan: AuditPlan, neighbours: Neighbours, null_pair: Neighbours) -> LowerBound | None:
    """Bound ε by the distribution of the likelihood ratio, or return None if it depends on the transcript."""
    delta, laws, sizes = plan.job.scenario.privacy.delta, [], list[Sizes]()
    nothing = 0.0
    for k in range(COMPARED_RUNS):
        side = neighbours.second if k % 2 else neighbours.first
        transcript = neighbours.observe(side, plan.root("compare", k))
        law = find_loss_distribution(transcript, neighbours)
        none = None if law is None else find_loss_distribution(transcript, null_pair)
        laws.append(law)
        if law is None or none is None or laws[0] is None or not are_close(laws[0], law, _EQUAL_WITHIN):
            return None
        sizes.append(measure_noise(transcript.residuals))
        nothing = max(nothing, none.epsilon(delta, 1.0))
    # More runs estimate the noise more accurately.
    runs = max(COMPARED_RUNS, min(plan.runs, 200))
    for k in range(COMPARED_RUNS, runs):
        sizes.append(measure_noise(neighbours.observe(neighbours.first, plan.root("compare", k)).residuals))
    noise = drawn_noise(sum_noise(sizes))
    size = 1.0 if noise[0] <= 1.0 <= noise[1] else noise[1]
    return None if laws[0] is None else LowerBound("exact", laws[0].epsilon(delta, size), nothing, 1.0, runs, noise)


def _bound_by_runs(
    plan: AuditPlan, neighbours: Neighbours, null_pair: Neighbours, lawful: bool, report: Reporter
) -> LowerBound:
    """Bound ε by counting, and by likelihood ratios if they are known, each with half of the risk.

    Args:
        lawful: whether random choices have their stated distribution.
    """
    score, is_likelihood = choose_score(plan.adversary, neighbours, lambda k: plan.root("learn", k), lawful)
    sides = {"first": neighbours.first, "second": neighbours.second, "null": null_pair.second}
    scores: dict[str, list[float]] = {group: [] for group in sides}
    sizes = list[Sizes]()
    at_once = runs_at_once(plan.job)
    for first_run in range(0, plan.runs, at_once):
        numbers = range(first_run, min(first_run + at_once, plan.runs))
        for group, side in sides.items():
            transcripts = observe_runs(side, neighbours.victim, [plan.root(group, k) for k in numbers])
            scores[group] += score(transcripts)
            sizes += [measure_noise(run.residuals) if is_likelihood else {} for run in transcripts]
        report(len(sides) * numbers.stop, len(sides) * plan.runs)
    first, second, null = map(np.array, scores.values())
    noise_sums = sum_noise(sizes)
    delta, risk = plan.job.scenario.privacy.delta, 1.0 - plan.confidence
    share = 0.5 * risk if is_likelihood else risk
    bounds: list[tuple[float, Method]] = [(bound_by_counts(first, second, delta, share), "counting")]
    noise = drawn_noise(noise_sums) if is_likelihood else None
    # Random choices have no noise.
    power = {GAUSSIAN.name: 2, LAPLACE.name: 1, "": 1}.get(" and ".join(name for name, _, _ in noise_sums))
    is_mixture = is_likelihood and is_amplified(plan.job)
    if noise is not None and power is not None and (not is_mixture or noise[0] <= 1.0 <= noise[1]):
        # Another noise scale rescales the log-likelihood ratio.
        factor = 1.0 if noise[0] <= 1.0 <= noise[1] else noise[1] ** -power
        bounds.append((bound_by_likelihoods(factor * first, factor * second, delta, share), "likelihood"))
    bound, method = max(bounds, key=lambda pair: pair[0])
    nothing = bound_by_counts(first, null, delta, _NULL_RISK)
    return LowerBound(method, bound, nothing, plan.confidence, plan.runs, noise)
