"""Facts of a result, each once: the page, the terminal, the notebook and comparisons print these.

A fact that is new stands in `result.json`, and here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.problems import PROBLEMS
from decentral_dp.reporting.words import cut_text, observer_text, score_text, trust_text
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import PrivacyStatement, SharedNoise, number

# A guarantee on the terminal, and in a column of a comparison.
_GUARANTEES = {
    "certified": ("certified", "certified"),
    "as_printed": ("provable for the protocol as printed", "provable, as printed"),
    "none": ("none", "none: no noise"),
}


class Fact(NamedTuple):
    """A fact of a result.

    Args:
        topic: what it stands beside: the status, the records, the guarantee or the scores.
        name: its head, which may be that of several; "" where it needs none.
        text: a sentence.
        columns: row of a comparison → what stands there.
    """

    topic: Literal["status", "data", "privacy", "scores"]
    name: str
    text: str
    columns: Mapping[str, str] = {}


def facts(result: RunResult) -> list[Fact]:
    """List the facts of a run, in the order in which they are told.

    Example:
        >>> import decentral_dp
        >>> run = decentral_dp.run("quadratic", set={"algorithm.rounds": 2})
        >>> [(fact.name, fact.text) for fact in facts(run.result)]
        [('Algorithm', 'ldp_dsbo.'), ('Privacy', 'none: noise is off, ε = ∞.')]
    """
    status = [] if result.status == "ok" else [Fact("status", result.status.replace("_", " "), sentence(result.reason))]
    return [
        *status,
        *data_facts(result.problem.get("notes") or (), result.problem.get("settings", ""), result.method),
        *privacy_facts(result.privacy),
        *_score_facts(result),
    ]


def data_facts(notes: Iterable[str], settings: str, method: str = "") -> list[Fact]:
    """List notes on the records, the algorithm with what is on, and what the settings of training come to."""
    facts = [Fact("data", "Data", str(note)) for note in notes]
    facts += [Fact("data", "Algorithm", f"{method}.", {"algorithm": method})] if method else []
    return [*facts, Fact("data", "Settings", settings)] if settings else facts


def predicts(result: RunResult) -> bool:
    """Whether a run of training at one level left a model for new records."""
    kind = PROBLEMS.get(str(result.problem.get("kind")))
    return kind is not None and kind.one_level and not result.has_diverged and bool(result.problem.get("features"))


def privacy_facts(privacy: PrivacyStatement) -> list[Fact]:
    """List what is guaranteed, what a paper claims, whether noise is secret, what to beware of, and who sees what."""
    out = [_guarantee(privacy)]
    if not privacy.is_noisy:
        return out
    if privacy.privacy_unit:
        out.append(Fact("privacy", "Unit", f"this ε is for {privacy.privacy_unit}, as the mechanism states."))
    if privacy.protected:
        out.append(Fact("privacy", "Protected", f"{privacy.protected}.", {"protected": privacy.protected}))
    if privacy.setting == "gossip" and privacy.pools_records:
        out.append(Fact("privacy", "Trust", f"{trust_text(privacy)}; ε is against everybody else."))
    if beside := observer_text(privacy):
        out.append(Fact("privacy", "Observer", f"has every message, and {beside}.", {"observer has, beside": beside}))
    if privacy.shared is not None:
        out.append(Fact("privacy", "Shared", _shared(privacy.shared)))
    if (claim := privacy.claimed) is not None:
        # A claim without a δ of its own is of pure ε.
        at, claimed = f" at δ = {delta_text(claim.delta)}" if claim.delta else "", epsilon_text(claim.epsilon_max)
        text = f"ε = {claimed}{at} by {claim.source}; not certified."
        out.append(Fact("privacy", "Claimed", text, {"claimed by a paper, not certified": claimed}))
    if privacy.noise:
        out.append(Fact("privacy", "Noise", f"{privacy.noise}."))
    out += [Fact("privacy", "Note", note) for note in privacy.cautions]
    return out + ([Fact("privacy", "Seen", privacy.seen_briefly)] if privacy.seen_briefly else [])


def _guarantee(privacy: PrivacyStatement) -> Fact:
    """The guarantee and its price, and what both rest on."""
    word, briefly = _GUARANTEES.get(privacy.guarantee, (f"unknown ({privacy.guarantee})", privacy.guarantee))
    if privacy.is_noisy and privacy.is_declared:
        word, briefly = (f"{words}, if the declared constants are true" for words in (word, briefly))
    if privacy.is_on_authors_word:
        word += ", but for what is on the author's word (see the notes)"
        briefly += ", on the author's word"
    epsilon, pure = epsilon_text(privacy.epsilon_max), epsilon_text(privacy.epsilon_pure_max)
    delta = delta_text(privacy.delta)
    most = "at most " if len({epsilon_text(budget.epsilon) for budget in privacy.agents.different}) > 1 else ""
    text = f"{word}: {most}ε = {epsilon} at δ = {delta} for every agent (pure ε = {pure})."
    columns = {
        "guarantee": f"{briefly}; {trust_text(privacy)}",
        "δ": delta,
        "ε of the worst agent": epsilon,
        "pure ε of the worst agent": pure,
    }
    return Fact("privacy", "Privacy", text if privacy.is_noisy else "none: noise is off, ε = ∞.", columns)


def _shared(shared: SharedNoise) -> str:
    """What agents share, and what it is worth against each number of colluders."""
    telling = {"0": "no agent tells what it knows", "1": "one does"}
    prices = ", ".join(f"{epsilon_text(e)} if {telling.get(q, f'{q} do')}" for q, e in shared.epsilon.items())
    who = "every two agents" if shared.across == "zero_sum" else "each two neighbours"
    size = f"{'on average ' if shared.across == 'optimised' else ''}{shared.ratio:.3g} times an agent's own"
    text = f"{who} share noise that cancels, {size}. ε is {prices}."
    return f"{text} Against {shared.worthless} some agent may be left with its own noise alone."


def _score_facts(result: RunResult) -> list[Fact]:
    """What to know beside the scores: what a guess scores, what was cut, and what to change."""
    texts = []
    for guess, names in (("commonest class", ("test_accuracy",)), ("mean label", ("test_rmse", "test_r2"))):
        known = {name: value for name in names if (value := number(result.baselines.get(name))) is not None}
        # R² of a mean over the train records is 0 but for chance; + 0.0 leaves no sign on it.
        scores = [f"{name} {score_text(round(value, 4) + 0.0)}" for name, value in known.items()]
        texts += [f"Always the {guess}: {', '.join(scores)}."] if scores else []
    if result.labels_cut:
        texts.append(
            f"{result.labels_cut:.1%} of the labels lie outside problem.label_range and were cut, as scores know them."
        )
    if result.clipped:
        shares = ", ".join(f"{channel} {number(share) or 0.0:.0%}" for channel, share in result.clipped.items())
        texts.append(f"Records that a clip cuts at these values: {shares}.")
    texts += [cut_text(result.features_cut), *result.clip_advice, result.unmeasured]
    facts = [Fact("scores", "", text) for text in texts if text]
    return facts + [Fact("scores", "What to change", advice) for advice in result.learning]


def sentence(text: str | None, otherwise: str = "No reason was recorded.") -> str:
    """The text with a full stop; what is said otherwise where there is none.

    Example:
        >>> sentence("it ended"), sentence(None)
        ('it ended.', 'No reason was recorded.')
    """
    stated = (text or "").strip() or otherwise
    return stated if stated[-1] in ".!?" else f"{stated}."
