"""Auditing a guarantee: a lower bound on ε by playing the distinguishing game, beside the certified and the claimed ε.

`neighbours` finds two data sets that differ in one record, `transcripts` replays a run in either, and `losses` and
`bounds` bound ε by both. Every audit plays against itself as well: between two equal data sets it must show nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from decentral_dp.auditing.bounds import Shown, from_likelihoods, gaussian_throughout, shown_in_one_run, trade_off
from decentral_dp.auditing.losses import are_close, drawn_noise, is_amplified, loss_law, refute_stated_laws
from decentral_dp.auditing.neighbours import worst_neighbours
from decentral_dp.auditing.runs import (
    GROUPS,
    NO_ENDS,
    AuditPlan,
    Ends,
    Run,
    Score,
    Sizes,
    check_workers,
    game_of,
    noise_sizes,
    plan_again,
    play_runs,
    read_runs,
    request_of,
    sum_noise,
)
from decentral_dp.auditing.transcripts import Neighbours
from decentral_dp.bounded import Array
from decentral_dp.files.durable import OWNERS, write_whole
from decentral_dp.formatting import at_least_text, delta_text, epsilon_text
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from decentral_dp.privacy.unit import Unit
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.result import RESULT, mode_of, plain, read_result, refuse_damaged, seal, text_of
from decentral_dp.simulation.setting import claim_of, statement_of
from decentral_dp.simulation.statistics import bound_by_counts
from decentral_dp.tasks.outcomes import Outcomes, Request, fingerprint, keep_outcomes, outcomes_in, write_json
from decentral_dp.tasks.parallel import HERE, Workers

Method = Literal["exact", "likelihood", "counting", "difference", "one run"]


Status = Literal["ok", "refuted", "broken", "interrupted"]


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
        status: "ok", "refuted" (more is shown than is certified), "broken" or "interrupted".
        sentences: what the numbers say, and do not.
        privacy: the guarantee of the audited run, as in `PrivacyStatement.summary`.
        curve: (α, β) that the trade-off curve of the two data sets is at or below; empty where it was not asked for.

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
    curve: tuple[tuple[float, float], ...] = ()

    def __repr__(self) -> str:
        budgets = f"ε {at_least_text(self.shown)} shown, {epsilon_text(self.certified)} certified"
        return f"<AuditResult {self.title!r}: {self.status}, {budgets}, {self.method}>"

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values; infinite numbers are "inf"."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


# Seconds between two records of what was played.
_INTERVAL = 2.0
# What a file holds that is not of this audit.
_FOREIGN_RUNS = "of another scenario or with other settings, of one that has changed since"
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
    percent = f"{100.0 * bound.confidence:g} %"
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
    elif _is_saturated(plan, bound, certified):
        # Some room, for not every run is told apart.
        more = plan.runs_to_show(certified / _NEARLY)
        mend = f"repeat with --runs {more}" if more is not None else "no number of runs that can be made shows so much"
        out.append(
            f"Not refuted, and it could not be: what is shown is about the most that {bound.runs} runs can show, ε = "
            f"{epsilon_text(plan.epsilon_limit)}, and {epsilon_text(certified)} is certified {at}; {mend}."
        )
    else:
        out.append(f"Not refuted: no more is shown than the certified ε = {epsilon_text(certified)} {at}.")
    if claimed is not None and status != "broken":
        above = bound.epsilon > claimed
        out.append(f"{'Refuted' if above else 'Not refuted'} is the claim, ε = {epsilon_text(claimed)}.")
    if bound.one_run is not None:
        return [*out, *_of_canaries(plan, bound.one_run, percent), *_closing_sentences(status)]
    replaced = _difference_text(plan.job.unit, neighbours)
    if neighbours.copies:
        replaced += ", and all its others are copies of one of the two"
    how = {
        "exact": f"The two data sets are equally far apart on each of {COMPARED_RUNS} transcripts of both, and if they "
        "are on all, what is shown is exact for these two records.",
        "likelihood": f"From exact likelihood ratios of {bound.runs} runs of each data set, with confidence {percent}.",
        "counting": f"By counting {bound.runs} runs of each data set, with confidence {percent}: so many can show at "
        f"most {epsilon_text(plan.epsilon_limit)}.",
        "difference": "No noise hides the record: the same coins give other values in the other data set."
        if bound.epsilon
        else "No noise hides the record, but what is seen from here does not depend on it.",
    }[bound.method]
    out.append(f"In two data sets {replaced}. {how}")
    if bound.method in ("exact", "likelihood") and is_amplified(plan.job):
        out.append("It is taken as known how all other records were drawn, as the certificate allows.")
    if bound.noise is not None and not bound.noise[0] <= 1.0 <= bound.noise[1]:
        out.append(
            f"The noise that was drawn is {bound.noise[0]:.3g} to {bound.noise[1]:.3g} times as large as stated."
        )
    if bound.contradiction:
        out.append(bound.contradiction)
    return [*out, *_closing_sentences(status)]


def _difference_text(unit: Unit, neighbours: Neighbours) -> str:
    """What the two data sets differ in, as a sentence ends."""
    whose = f"{neighbours.split} record{'s' * (unit.records != 1)} of agent {neighbours.victim}"
    zeroed = "contribute nothing in one of them" if unit.zeroed else "are replaced by copies of one"
    if unit.records is None:
        return f"all {whose} {zeroed}"
    if unit.records > 1:
        return f"the first {unit.records} {whose} {zeroed}"
    return f"the first {whose} {'contributes nothing in one of them' if unit.zeroed else 'is replaced'}"


def _is_saturated(plan: AuditPlan, bound: LowerBound, certified: float) -> bool:
    """Whether counting shows about all that so many runs can, and that is less than would refute the certificate."""
    most = plan.epsilon_limit
    return bound.method == "counting" and most < certified and bound.epsilon >= _NEARLY * most


def _lower_bound_text(epsilon: float) -> str:
    return "no finite ε holds" if math.isinf(epsilon) else f"ε is at least {at_least_text(epsilon).removeprefix('≥ ')}"


def _of_canaries(plan: AuditPlan, shown: Shown, percent: str) -> list[str]:
    guessed = (
        f"In one run {plan.canaries} records were replaced by canaries, whose labels are coins: {shown.right} of "
        f"these were guessed from what was published, with confidence {percent}."
    )
    if not gaussian_throughout(plan.job):
        return [guessed]
    return [
        guessed,
        "What is shown takes the curve of one record to be that of Gaussian noise, as in the ledger, of unknown size; "
        f"without that, it shows ε {at_least_text(shown.plain)} with the same confidence.",
    ]


def _closing_sentences(status: str) -> list[str]:
    same = ["The same game between two equal data sets shows nothing, as it must."] if status != "broken" else []
    return [*same, "What is shown is a lower bound by one attack, and a small one certifies nothing."]


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
    workers: Workers = HERE,
    ends: Ends = NO_ENDS,
) -> AuditResult:
    """Play the game, and the game against itself.

    Args:
        plan: as `plan_audit` settles it.
        out: JSON file; one that holds this audit, interrupted, is continued.
        progress: called with a `Progress` of "runs".
        null: the data set that is passed off as the first one, in the game against itself; by default that one, and by
            other processes always.
        workers: who makes the runs; by default this process.
        ends: what the caller writes of the result besides, which is on record with what is played.

    Returns:
        What was shown.

    Raises:
        Stopped: interrupted; what was played so far is in `out`.
    """
    check_workers(plan, workers)
    if plan.canaries is not None:
        return _of_one_run(plan, plan.canaries, out)
    settings = [plan.vantage, plan.confidence, plan.seed]
    request = Request(
        "audit",
        None if out is None else request_of(plan, workers, ends),
        partial(fingerprint, [plan.job.scenario], settings),
        _FOREIGN_RUNS,
        lambda runs: f"{runs} runs of each data set are kept",
        _INTERVAL,
    )
    with keep_outcomes(out, request, read_runs) as outcomes:
        neighbours = worst_neighbours(plan.job, plan.root("search", 0))
        same = neighbours._replace(second=null(neighbours))
        bound = _lower_bound(plan, neighbours, same, outcomes, workers, Reporter(progress, "runs"))
        return _result(plan, neighbours, bound, out, _scores(plan, outcomes))


def resume_audit(out: Path, request: Any, progress: Callback | None = None) -> AuditResult:
    """Go on with an audit that was cut off: its runs so far are kept, the others are made, and all its files written.

    Args:
        out: its JSON file.
        request: of the file.
        progress: called with a `Progress` of "runs".

    Returns:
        As without the interruption.

    Raises:
        InputError: what it is of has changed since, or the file does not say it.
        Stopped: interrupted again.
    """
    plan, workers, ends = plan_again(out, request)
    shown = play_game(plan, out, progress, workers=workers, ends=ends)
    for _ in write_ends(shown, ends):
        pass
    return shown


def write_ends(audit: AuditResult, ends: Ends) -> Iterator[Path]:
    """Write what a finished audit is written to besides its file.

    Args:
        audit: what was shown.
        ends: where it goes.

    Returns:
        Each file, when it is written.

    Raises:
        InputError: the result of the run cannot be read.
    """
    if ends.curve is not None:
        # matplotlib is slow to import and only drawing needs it.
        from decentral_dp.auditing.plots import write_curve

        yield write_curve(audit.curve, audit.certified, audit.delta, ends.curve)
    if ends.run is not None:
        from decentral_dp.reporting.page import write_report

        result = read_result(ends.run)
        content = text_of(seal({**result.content, "audit": audit.to_dict()}))
        write_whole(ends.run / RESULT, content.encode(), mode_of(ends.run))
        with refuse_damaged(ends.run, "audit"):
            page = write_report(ends.run)
        yield page


def _lower_bound(
    plan: AuditPlan,
    neighbours: Neighbours,
    same: Neighbours,
    outcomes: Outcomes[list[Run]],
    workers: Workers,
    report: Reporter,
) -> LowerBound:
    """What the game shows by the best method that there is for it; `outcomes` grows by the runs that are missing."""
    charged = plan.job.ledger.charged_channels
    has_noise = any(c.mechanism.proven or c.mechanism.name == "uncertified" for c in charged) or not charged
    if plan.job.mechanism.adds_noise is False or not has_noise:
        return _differing(plan, neighbours)
    contradicted, exact = "", None
    if plan.vantage == "everybody":
        contradicted = refute_stated_laws(neighbours, [plan.root("laws", k) for k in range(min(plan.runs, _LAWS))])
        exact = None if contradicted else _exact(plan, neighbours, same)
        if exact is not None and not plan.curve:
            return exact
    lawful = not contradicted
    game = game_of(plan, neighbours, same.second, lawful)
    missing = [k for k in range(plan.runs) if str(k) not in outcomes.done]
    total = plan.runs * len(GROUPS)
    if len(missing) < plan.runs:
        report(total - len(GROUPS) * len(missing), total)
    with closing(play_runs(game, missing, workers, lawful)) as blocks:
        for numbers, runs in blocks:
            for k, run in zip(numbers, runs, strict=True):
                outcomes.add(str(k), run)
            report(len(GROUPS) * len(outcomes.done), total)
    return exact or replace(_judge_scores(plan, game.score, outcomes), contradiction=contradicted)


def _of_one_run(plan: AuditPlan, canaries: int, out: Path | None) -> AuditResult:
    # One single run has nothing to go on with: it is only seen that nothing is written over.
    outcomes_in(out, Request("audit", None, lambda salt: "one run", _FOREIGN_RUNS, str), read_runs)
    job, root = plan.job, plan.root("canaries", 0)
    shown = shown_in_one_run(job, canaries, root, 1.0 - plan.confidence)
    bound = LowerBound("one run", shown.epsilon, shown.null, plan.confidence, 1, None, one_run=shown)
    # Any canary is the record that is replaced, so that the ε of all agents counts: the largest.
    victim = int(np.argmax(job.budget.epsilon))
    return _result(plan, Neighbours(job, job, victim, "train"), bound, out, {})


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


def _judge_scores(plan: AuditPlan, score: Score, outcomes: Outcomes[list[Run]]) -> LowerBound:
    """The larger of what counting and, where it is one, the likelihood ratio shows; each gets half of the risk."""
    first, second, null = _scores(plan, outcomes).values()
    noise_sums = sum_noise(run.sizes for k in range(plan.runs) for run in outcomes.done[str(k)])
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


def _scores(plan: AuditPlan, outcomes: Outcomes[list[Run]]) -> dict[str, Array]:
    """Group → the scores of its runs, in the order of their numbers; empty where no runs were made."""
    runs = [outcomes.done[str(k)] for k in range(plan.runs)] if outcomes.done else []
    return {group: np.array([run[k].score for run in runs]) for k, group in enumerate(GROUPS)}


def _result(
    plan: AuditPlan, neighbours: Neighbours, bound: LowerBound, out: Path | None, scores: Mapping[str, Array]
) -> AuditResult:
    job, claim = plan.job, claim_of(plan.job)
    certified = float(job.budget.epsilon[neighbours.victim])
    status: Status = "broken" if bound.null > 0.0 else "refuted" if bound.epsilon > certified else "ok"
    claimed = None if claim is None else claim.epsilon_max
    curve = (
        trade_off(scores["first"], scores["second"], 1.0 - plan.confidence)
        if plan.curve and scores["first"].size
        else []
    )
    result = AuditResult(
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
        tuple(curve),
    )
    if out is not None:
        # Scores of an audit read the records, as metrics do.
        write_json(out, result.to_dict(), OWNERS if plan.job.scenario.seed is None else 0o666)
    return result
