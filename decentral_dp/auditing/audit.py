"""Auditing a guarantee: a lower bound on ε by playing the distinguishing game, beside the certified and the claimed ε.

`neighbours` finds two data sets that differ in one record, `transcripts` replays a run in either, and `losses` and
`bounds` bound ε by both. Every audit plays against itself as well: between two equal data sets it must show nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from decentral_dp.auditing.bounds import Shown, from_likelihoods, gaussian_throughout, shown_in_one_run
from decentral_dp.auditing.losses import are_close, drawn_noise, is_amplified, loss_law, refute_stated_laws
from decentral_dp.auditing.neighbours import worst_neighbours
from decentral_dp.auditing.runs import AuditPlan, Sizes, noise_sizes, score_of, sum_noise
from decentral_dp.auditing.transcripts import Neighbours
from decentral_dp.files.durable import OWNERS, write_whole
from decentral_dp.formatting import at_least_text, delta_text, epsilon_text
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.folder.layout import require_new
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.result import RESULT, mode_of, plain, read_result, refuse_damaged, seal, text_of
from decentral_dp.simulation.setting import claim_of, statement_of
from decentral_dp.simulation.statistics import bound_by_counts
from decentral_dp.tasks.outcomes import write_json

Method = Literal["exact", "likelihood", "counting", "difference", "one run"]
Status = Literal["ok", "refuted", "broken"]


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
        # Some room, for not every run is told apart.
        more = plan.runs_to_show(certified / _NEARLY)
        mend = f"repeat with --runs {more}" if more is not None else "no number of runs that can be made shows so much"
        out.append(
            f"Not refuted, and it could not be: what is shown is about the most that {bound.runs} runs can show, ε = "
            f"{epsilon_text(limit)}, and {epsilon_text(certified)} is certified {at}; {mend}."
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
    result = _result(plan, neighbours, bound)
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
    score = score_of(plan.vantage, neighbours, lambda k: plan.root("learn", k), lawful)
    sides = {"first": neighbours.first, "second": neighbours.second, "null": same.second}
    scores: dict[str, list[float]] = {group: [] for group in sides}
    sizes = list[Sizes]()
    for k in range(plan.runs):
        for group, side in sides.items():
            transcript = neighbours.observe(side, plan.root(group, k))
            scores[group].append(score.function(transcript))
            sizes.append(noise_sizes(transcript.residuals) if score.is_likelihood else {})
        report(len(sides) * (k + 1), len(sides) * plan.runs)
    first, second, null = map(np.array, scores.values())
    noise_sums = sum_noise(sizes)
    delta, risk = plan.job.scenario.privacy.delta, 1.0 - plan.confidence
    share = 0.5 * risk if score.is_likelihood else risk
    bounds: list[tuple[float, Method]] = [(bound_by_counts(first, second, delta, share), "counting")]
    noise = drawn_noise(noise_sums) if score.is_likelihood else None
    # Of random choices alone, no noise has a size.
    power = {GAUSSIAN.name: 2, LAPLACE.name: 1, "": 1}.get(" and ".join(name for name, _, _ in noise_sums))
    mixed = score.is_likelihood and is_amplified(plan.job)
    if noise is not None and power is not None and (not mixed or noise[0] <= 1.0 <= noise[1]):
        # Under noise of another size than stated, a log-likelihood ratio is so many times as large.
        factor = 1.0 if noise[0] <= 1.0 <= noise[1] else noise[1] ** -power
        bounds.append((from_likelihoods(factor * first, factor * second, delta, share), "likelihood"))
    bound, method = max(bounds, key=lambda one: one[0])
    nothing = bound_by_counts(first, null, delta, _NULL_RISK)
    return LowerBound(method, bound, nothing, plan.confidence, plan.runs, noise)


def _result(plan: AuditPlan, neighbours: Neighbours, bound: LowerBound) -> AuditResult:
    job, claim = plan.job, claim_of(plan.job)
    certified = float(job.budget.epsilon[neighbours.victim])
    status: Status = "broken" if bound.null > 0.0 else "refuted" if bound.epsilon > certified else "ok"
    claimed = None if claim is None else claim.epsilon_max
    return AuditResult(
        job.scenario.title or "An audit",
        claimed,
        certified,
        bound.epsilon,
        job.scenario.privacy.delta,
        bound.confidence,
        bound.method,
        plan.vantage,
        bound.runs,
        bound.null,
        status,
        tuple(sentences_of(plan, neighbours, bound, status, certified, claimed)),
        statement_of(job).summary,
    )
