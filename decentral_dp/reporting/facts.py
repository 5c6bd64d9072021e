"""Facts of a result, each once: the page, the terminal, the notebook and comparisons print these.

A fact that is new stands in `result.json`, and here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.problems import PROBLEMS
from decentral_dp.reporting.words import cut_text, score_text
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import PrivacyStatement, SharedNoise, number


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
    """List the guarantee, what a paper claims, cautions, and who sees what."""
    out = [_guarantee(privacy)]
    if not privacy.is_noisy:
        return out
    if privacy.shared is not None:
        out.append(Fact("privacy", "Shared", _shared(privacy.shared)))
    if (claim := privacy.claimed) is not None:
        # A claim without a δ of its own is of pure ε.
        at, claimed = f" at δ = {delta_text(claim.delta)}" if claim.delta else "", epsilon_text(claim.epsilon_max)
        text = f"ε = {claimed}{at} by {claim.source}; not certified."
        out.append(Fact("privacy", "Claimed", text, {"claimed by a paper, not certified": claimed}))
    out += [Fact("privacy", "Note", note) for note in privacy.cautions]
    return out + ([Fact("privacy", "Seen", privacy.seen_briefly)] if privacy.seen_briefly else [])


def _guarantee(privacy: PrivacyStatement) -> Fact:
    """The guarantee and all that it depends on."""
    columns = {
        "guarantee": privacy.certainty if privacy.is_noisy else "none: no noise",
        "δ": delta_text(privacy.delta),
        "ε of the worst agent": epsilon_text(privacy.epsilon_max),
        "pure ε of the worst agent": epsilon_text(privacy.epsilon_pure_max),
    }
    if privacy.is_noisy:
        columns |= {"adjacency": privacy.adjacency, "adversary": privacy.adversary}
    return Fact("privacy", "Privacy", privacy.summary, columns)


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
    texts += [cut_text(result.features_cut), *result.clip_advice, result.unmeasured, *result.failed_callbacks]
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
