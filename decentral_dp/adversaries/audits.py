"""Auditing a guarantee: a lower bound on ε by playing the distinguishing game, beside the certified and the claimed ε.

`neighbouring_worlds` finds two worlds that differ in one record, `transcripts` what is seen of a run in either,
`likelihoods` and `distinguishing_bounds` what that shows. Every audit plays against itself as well: between two equal
worlds nothing must be shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.adversaries.audit_result import AuditResult, Method, Status
from decentral_dp.adversaries.audit_scores import Score, score_of
from decentral_dp.adversaries.audit_storage import Played, fingerprint, resumed, write_json
from decentral_dp.adversaries.distinguishing_bounds import counted, from_likelihoods, most_counted, trade_off
from decentral_dp.adversaries.exact_losses import loss_law, not_as_stated
from decentral_dp.adversaries.likelihoods import drawn_noise
from decentral_dp.adversaries.neighbouring_worlds import Worlds, farthest
from decentral_dp.adversaries.one_run import plant, shown_in_one_run
from decentral_dp.adversaries.sampled_releases import amplified
from decentral_dp.adversaries.transcripts import observe
from decentral_dp.config.loading import load
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError, Stopped
from decentral_dp.files.regular import regular
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.job_builder import build
from decentral_dp.simulation.jobs import Job
from decentral_dp.simulation.result import as_written, require_complete

FEWEST_RUNS = 20
# That one participant releases in a run: each candidate's replay holds as many.
MOST_NUMBERS = 20_000_000
# Runs without noise in which a sampled record may show.
_COINS = 40
# Runs on which it is tried whether random choices have the law that they state.
_LAWS = 200
# Of runs in which movements are compared, and their noise measured, before the law of the ratio is taken as known.
_COMPARED = 6
# Movements that differ by less than this part of the largest are the same but for float64.
_SAME = 1e-6
# With which the game of two equal worlds must show nothing: an audit that is sound fails it once in a thousand times.
_NULL_RISK = 1e-3


@dataclass(frozen=True)
class AuditPlan:
    """What is going to be played, and the most that it can show."""

    job: Job
    vantage: str
    runs: int
    confidence: float
    seed: int
    canaries: int | None = None
    curve: bool = False

    @property
    def most_shown(self) -> float:
        """By counting, if every run is told apart. A likelihood ratio has no such limit."""
        return most_counted(self.runs, self.job.scenario.privacy.delta, 1.0 - self.confidence)


def audit(
    scenario: str | Path | Mapping[str, Any] | Scenario | Job,
    runs: int = 200,
    vantage: str = "everybody",
    confidence: float = 0.95,
    seed: int = 0,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    canaries: int | None = None,
    curve: bool = False,
) -> AuditResult:
    """Show how much a job really tells of one record, beside the ε that is certified and the one that is claimed.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, a built job, or a run folder.
        runs: of each of the two worlds, at least 20.
        vantage: "everybody" sees all messages (or all that a coordinator releases), "published" the values that are
            published at the end, "agent:K" the messages that agent K receives.
        confidence: of what is shown.
        seed: of the noise of these runs, which is nobody's secret.
        overrides: "table.key=value" with a TOML value.
        out: JSON file. Where it holds an audit that was interrupted, that one is continued.
        progress: called with runs done, and runs in all.
        canaries: how many records of one single run are replaced by invented ones, and guessed from what it publishes;
            by default none are, and two worlds are played.
        curve: whether to bound the trade-off curve of the two worlds, too, from `runs` of each.

    Returns:
        The numbers, and sentences about them.

    Raises:
        InputError: one sentence about whatever does not fit.
        Stopped: interrupted; what was played so far is in `out`.

    Limits:
        What is shown is a lower bound by the attacks that are here: a small one certifies nothing.

    Example:
        >>> import decentral_dp
        >>> found = decentral_dp.audit("network_view", overrides=["algorithm.rounds=2"], runs=20)
        >>> found.shown <= found.certified, found.null_shown, found.to_dict()["vantage"]
        (True, 0.0, 'everybody')
    """
    plan = planned(scenario, runs, vantage, confidence, seed, overrides, canaries, curve)
    return play(plan, None if out is None else Path(out), progress)


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
    if isinstance(scenario, str | Path) and Path(scenario).is_dir():
        folder = Path(scenario)
        for name in ("result.json", "scenario.toml"):
            regular(folder / name, "audit")
        require_complete(folder)
        if not (folder / "scenario.toml").is_file():
            raise InputError(f"audit: {folder} is no run folder: it has no scenario.toml. Give one that a run wrote.")
        with as_written(folder, "audit"):
            scenario = build(load(folder / "scenario.toml", overrides))
    job = build(load(scenario, overrides)) if isinstance(scenario, str | Path | Mapping | Scenario) else scenario
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
    return AuditPlan(job, vantage, runs, confidence, seed, None, curve)


def play(
    plan: AuditPlan,
    out: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    null: Callable[[Worlds], Job] = lambda worlds: worlds.first,
) -> AuditResult:
    """Play the game, and the game against itself.

    Args:
        plan: as `planned` settles it.
        out: JSON file; one that holds this audit, interrupted, is continued.
        progress: called with runs done, and runs in all.
        null: the world that is passed off as the first one, in the game against itself; by default that one.

    Returns:
        What was shown.

    Raises:
        Stopped: interrupted; what was played so far is in `out`.
    """
    if plan.canaries is not None:
        return _of_one_run(plan, plan.canaries, out)
    job = plan.job
    played = resumed(out, fingerprint(plan.job.scenario, plan.runs, plan.vantage, plan.confidence, plan.seed))
    worlds = farthest(job, _root(plan, "search", 0))
    same = worlds._replace(second=null(worlds))
    if job.mechanism.adds_noise is False or not _noised(job):
        return _finished(plan, worlds, _differing(plan, worlds), out, played)
    contradicted, exact = "", None
    if plan.vantage == "everybody":
        contradicted = not_as_stated(worlds, [_root(plan, "laws", k) for k in range(min(plan.runs, _LAWS))])
        exact = None if contradicted else _exact(plan, worlds, same)
        if exact is not None and not plan.curve:
            return _finished(plan, worlds, exact, out, played)
    score = score_of(plan.vantage, worlds, lambda k: _root(plan, "learn", k), not contradicted)
    groups = {"first": worlds.first, "second": worlds.second, "null": same.second}
    total = plan.runs * len(groups)
    try:
        # In turn, so that what an interrupt leaves is of all alike.
        for k in range(plan.runs):
            for name, world in groups.items():
                if k >= len(played.scores[name]):
                    transcript = observe(_keyed(world, _root(plan, name, k)), worlds.victim)
                    played.add(name, score.of(transcript), transcript.residuals if score.is_likelihood else {})
            if progress is not None:
                progress(len(groups) * (k + 1), total)
    except KeyboardInterrupt:
        if out is None:
            raise
        write_json(out, {"status": "interrupted", **played.to_dict()})
        raise Stopped(
            f"Interrupted; {len(played.scores['null'])} runs of each world are kept in {out}, and the same command "
            "goes on from there."
        ) from None
    bound = exact or replace(_judged(plan, score, played), contradicted=contradicted)
    return _finished(plan, worlds, bound, out, played)


def _of_one_run(plan: AuditPlan, canaries: int, out: Path | None) -> AuditResult:
    resumed(out, "one run")
    job, root = plan.job, _root(plan, "canaries", 0)
    shown, nothing, right = shown_in_one_run(job, canaries, root, 1.0 - plan.confidence)
    bound = _LowerBound("one run", shown, nothing, plan.confidence, 1, None, right=right)
    # Any canary is the record that is replaced, so that the ε of all agents counts: the largest.
    victim = int(np.argmax(job.budget.epsilon))
    return _finished(plan, Worlds(job, job, victim, "train"), bound, out, Played("one run"))


@dataclass(frozen=True)
class _LowerBound:
    """A lower bound, how it was found, and the same of two equal worlds."""

    method: Method
    epsilon: float
    null: float
    confidence: float
    runs: int
    noise: tuple[float, float] | None
    contradicted: str = ""
    right: int = 0


def _differing(plan: AuditPlan, worlds: Worlds) -> _LowerBound:
    """Where nothing hides a record: whether what is seen differs between runs with the same coins."""
    apart = [False, False]
    # A record that is rarely drawn shows in few of them.
    for k in range(_COINS):
        root = _root(plan, "first", k)
        seen = [observe(_keyed(w, root), worlds.victim) for w in (worlds.first, worlds.second, worlds.first)]
        values = [[t.published] if plan.vantage == "published" else list(t.said.values()) for t in seen]
        for which in (0, 1):
            pairs = zip(values[0], values[which + 1], strict=True)
            apart[which] = apart[which] or any(not np.array_equal(a, b, equal_nan=True) for a, b in pairs)
        if apart[0] or not amplified(plan.job):
            break
    return _LowerBound("difference", math.inf if apart[0] else 0.0, math.inf if apart[1] else 0.0, 1.0, 1, None)


def _exact(plan: AuditPlan, worlds: Worlds, same: Worlds) -> _LowerBound | None:
    """Where the queries of both worlds are equally far apart on every transcript that is tried; None elsewhere."""
    delta, laws, sums = plan.job.scenario.privacy.delta, [], Played(fingerprint="")
    nothing = 0.0
    for k in range(_COMPARED):
        world = worlds.second if k % 2 else worlds.first
        transcript = observe(_keyed(world, _root(plan, "compare", k)), worlds.victim)
        law = loss_law(transcript, worlds)
        none = None if law is None else loss_law(transcript, same)
        laws.append(law)
        if law is None or none is None or laws[0] is None or not laws[0].near(law, _SAME):
            return None
        sums.add("first", 0.0, transcript.residuals)
        nothing = max(nothing, none.epsilon(delta, 1.0))
    # Few numbers say little of the noise: a release more costs nothing, being of the same law.
    runs = max(_COMPARED, min(plan.runs, 200))
    for k in range(_COMPARED, runs):
        sums.add("first", 0.0, observe(_keyed(worlds.first, _root(plan, "compare", k)), worlds.victim).residuals)
    noise = drawn_noise(sums.noise())
    size = 1.0 if noise[0] <= 1.0 <= noise[1] else noise[1]
    return None if laws[0] is None else _LowerBound("exact", laws[0].epsilon(delta, size), nothing, 1.0, runs, noise)


def _judged(plan: AuditPlan, score: Score, played: Played) -> _LowerBound:
    """The larger of what counting and, where it is one, the likelihood ratio shows; each gets half of the risk."""
    first, second, null = (np.array(played.scores[name]) for name in ("first", "second", "null"))
    delta, risk = plan.job.scenario.privacy.delta, 1.0 - plan.confidence
    share = 0.5 * risk if score.is_likelihood else risk
    found: list[tuple[float, Method]] = [(counted(first, second, delta, share), "counting")]
    noise = drawn_noise(played.noise()) if score.is_likelihood else None
    # Of random choices alone, no noise has a size.
    power = {GAUSSIAN.name: 2, LAPLACE.name: 1, "": 1}.get(" and ".join(played.sizes))
    mixed = score.is_likelihood and amplified(plan.job)
    if noise is not None and power is not None and (not mixed or noise[0] <= 1.0 <= noise[1]):
        # Under noise of another size than stated, a log-likelihood ratio is so many times as large.
        factor = 1.0 if noise[0] <= 1.0 <= noise[1] else noise[1] ** -power
        found.append((from_likelihoods(factor * first, factor * second, delta, share), "likelihood"))
    bound, method = max(found, key=lambda one: one[0])
    nothing = counted(first, null, delta, _NULL_RISK)
    return _LowerBound(method, bound, nothing, plan.confidence, plan.runs, noise)


def _finished(plan: AuditPlan, worlds: Worlds, bound: _LowerBound, out: Path | None, played: Played) -> AuditResult:
    job, claim = plan.job, plan.job.claimed()
    certified = float(job.budget.epsilon[worlds.victim])
    status: Status = "broken" if bound.null > 0.0 else "refuted" if bound.epsilon > certified else "ok"
    claimed = None if claim is None else claim.epsilon_max
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
        tuple(_sentences(plan, worlds, bound, status, certified, claimed)),
        _curve(plan, played),
    )
    if out is not None:
        write_json(out, {**result.to_dict(), "fingerprint": played.fingerprint})
    return result


def _curve(plan: AuditPlan, played: Played) -> tuple[tuple[float, float], ...]:
    if not plan.curve or not played.scores["first"]:
        return ()
    first, second = (np.array(played.scores[name]) for name in ("first", "second"))
    return tuple(trade_off(first, second, 1.0 - plan.confidence))


def _sentences(
    plan: AuditPlan, worlds: Worlds, bound: _LowerBound, status: Status, certified: float, claimed: float | None
) -> list[str]:
    at = f"at δ = {delta_text(plan.job.scenario.privacy.delta)}"
    percent = f"{100.0 * bound.confidence:g} %"
    out = []
    if status == "broken":
        out.append(
            f"Broken: two equal worlds are told apart (ε ≥ {bound.null:.3g}), so nothing else here can be believed."
        )
    elif status == "refuted":
        out.append(
            f"Refuted: ε is at least {bound.epsilon:.4g} {at}, above the certified {epsilon_text(certified)}. A bug, "
            "or a broken guarantee."
        )
    elif math.isinf(certified):
        out.append("No finite ε is certified here, so nothing that is shown contradicts the certificate.")
    else:
        out.append(f"Not refuted: no more is shown than the certified ε = {epsilon_text(certified)} {at}.")
    if claimed is not None and status != "broken":
        above = bound.epsilon > claimed
        out.append(f"{'Refuted' if above else 'Not refuted'} is the claim, ε = {epsilon_text(claimed)}.")
    if plan.canaries is not None:
        out.append(
            f"In one run {plan.canaries} records were replaced by canaries, whose labels are coins: {bound.right} of "
            f"these were guessed from what was published, with confidence {percent}."
        )
        return [*out, *_last(status)]
    replaced = f"the first {worlds.split} record of agent {worlds.victim} is replaced"
    how = {
        "exact": f"The two worlds are equally far apart on each of {_COMPARED} transcripts of both, and if they are on "
        "all, what is shown is exact for these two records.",
        "likelihood": f"From exact likelihood ratios of {bound.runs} runs of each world, with confidence {percent}.",
        "counting": f"By counting {bound.runs} runs of each world, with confidence {percent}: so many can show at most "
        f"{plan.most_shown:.3g}.",
        "difference": "No noise hides the record: the same coins give other values in the other world."
        if bound.epsilon
        else "No noise hides the record, but what is seen from here does not depend on it.",
    }[bound.method]
    out.append(f"In two worlds {replaced}. {how}")
    if bound.noise is not None and not bound.noise[0] <= 1.0 <= bound.noise[1]:
        out.append(
            f"The noise that was drawn is {bound.noise[0]:.3g} to {bound.noise[1]:.3g} times as large as stated."
        )
    if bound.contradicted:
        out.append(bound.contradicted)
    return [*out, *_last(status)]


def _last(status: str) -> list[str]:
    same = ["The same game between two equal worlds shows nothing, as it must."] if status != "broken" else []
    return [*same, "What is shown is a lower bound by one attack, and a small one certifies nothing."]


def _noised(job: Job) -> bool:
    """Whether anything random stands between records and releases."""
    charged = job.ledger.charged
    return any(c.mechanism.proven or c.mechanism.name == "uncertified" for c in charged) or not charged


def _keyed(job: Any, root: bytes) -> Any:
    return job.keyed(root)


def _root(plan: AuditPlan, purpose: str, number: int) -> bytes:
    return seeded_root(plan.seed, f"audit {purpose} {number}".encode())
