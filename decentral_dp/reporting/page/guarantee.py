"""What is guaranteed, and what is and is not covered by it."""

from __future__ import annotations

from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.reporting.page import trusted
from decentral_dp.reporting.page.markup import Html, Part, tag
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import Claim, PrivacyStatement

RELEASED = (tag("code", "released_…"), " and ", tag("code", "published_…"), " in ", tag("code", "state.npz"))


def guarantee_section(result: RunResult) -> list[Html]:
    """The verdict, what kind of noise it rests on, what ε compares, and what it covers."""
    privacy = result.privacy
    blocks = [tag("h2", "The guarantee"), verdict(privacy)]
    if not privacy.is_noisy:
        return blocks
    kind = "" if result.is_minimax else ", its kind (train or validation)"
    adjacency = tag(
        "p",
        tag("strong", "What ε compares. "),
        f"Two data sets that differ in one record of one agent: it is replaced by any other, and keeps its agent{kind} "
        "and its place. Partition, split, order, counts, classes and scaling constants are "
        "public. A person with several records is protected less, and runs on the same records add up.",
    )
    notes = [
        tag("li", head, *([tag("ul", *(tag("li", text) for text in under))] if under else []))
        for head, under in privacy.grouped_notes
    ]
    return [
        *blocks,
        *_about_noise(privacy, result.root_was_kept),
        *(trusted.who_saw(privacy) if result.privacy.is_trusted else []),
        adjacency,
        *_coverage(privacy, result),
        *([tag("h3", "Notes"), tag("ul", *notes)] if notes else []),
    ]


def verdict(privacy: PrivacyStatement) -> Html:
    """The guarantee in a paragraph."""
    guarantee, delta = privacy.guarantee, delta_text(privacy.delta)
    epsilon = epsilon_text(privacy.epsilon_max)
    proven = (
        "Nothing can be proven for this protocol on this problem: the certified ε is ∞."
        if epsilon == "∞"
        else f"What can be proven for it is ε = {epsilon} at δ = {delta}."
    )
    claim = privacy.claimed
    if privacy.is_trusted:
        return _trusted_verdict(privacy, epsilon, delta, proven)
    # Only where the paper prints a budget are protocol and constants its own.
    whose = "The paper's protocol and constants." if claim else "Noise on every message, and nothing is clipped."
    verdicts = {
        "certified": (
            "Certified. ",
            f"An adversary who sees every message ever sent, and knows everything except one record of one agent, "
            f"learns about that record at most what (ε, δ)-differential privacy with ε = {epsilon} and δ = {delta} "
            f"allows. This holds by construction{trusted.unchecked(privacy)}: each record's contribution is clipped, "
            f"noise is added before anything leaves an agent, and every release is charged."
            + (f" This ε is for {privacy.privacy_unit}, as the mechanism states." if privacy.privacy_unit else ""),
        ),
        "as_printed": (
            "As printed, for comparison. ",
            " ".join([whose, proven, *([_claim_in_words(claim)] if claim else [])]),
        ),
        "none": ("None. ", "Noise was switched off, and messages went out as they were: nothing is private."),
    }
    return _note(guarantee, *verdicts.get(guarantee, _unknown(guarantee)))


def _trusted_verdict(privacy: PrivacyStatement, epsilon: str, delta: str, proven: str) -> Html:
    guarantee, claim = privacy.guarantee, privacy.claimed
    what = (
        "The noise is the paper's, by its own formula; what it is worth follows from what one record can really move."
    )
    printed = [what, proven]
    verdicts = {
        "certified": trusted.certified(privacy, epsilon, delta),
        "as_printed": (
            "As printed, for comparison. ",
            " ".join([*printed, *([trusted.claim_words(claim)] if claim else [])]),
        ),
        "none": ("None. ", "Noise was switched off, and the coordinator published what it found: nothing is private."),
    }
    level = "as_printed" if privacy.is_declared and guarantee == "certified" else guarantee
    return _note(level, *verdicts.get(guarantee, _unknown(guarantee)))


def _unknown(guarantee: str) -> tuple[str, str]:
    return f"Unknown guarantee “{guarantee}”. ", "Treat the run as not private."


def _note(guarantee: str, verdict: str, words: str) -> Html:
    level = {"certified": "good", "as_printed": "warn"}.get(guarantee, "bad")
    return tag("p", tag("strong", verdict), words, class_=f"note {level}")


def _about_noise(privacy: PrivacyStatement, root_was_kept: bool) -> list[Html]:
    noise = privacy.noise
    if noise == "secret":
        kept = (
            ". Its root lay in this folder, for its owner only to read, until the run was complete."
            if root_was_kept
            else " and was written nowhere."
        )
        return [tag("p", "The noise came from the operating system", kept)]
    if noise in ("", "off"):
        return []
    words = (
        f"the noise is {noise.split(',')[0]}. Whoever knows the seed can subtract it, so this output protects nobody. "
        "Every certified ε here is what the same run costs when its noise is secret, which it is when the scenario "
        "states no seed."
    )
    return [tag("p", tag("strong", "This is a simulation: "), words, class_="note warn")]


def _coverage(privacy: PrivacyStatement, result: RunResult) -> list[Html]:
    unbounded = epsilon_text(privacy.epsilon_max) == "∞"
    empty = " (by ε = ∞, which protects nothing)" if unbounded else ""
    if result.privacy.is_trusted:
        lists = trusted.coverage(privacy, result, RELEASED, empty)
    else:
        lists = _lists(bool(result.topology.get("central")), empty)
    use: list[Part] = [
        tag("strong", "To pass results on, "),
        "copy the arrays ",
        *RELEASED,
        " to a new file, add the scenario without its seed, and leave out everything else in this folder.",
    ]
    if privacy.noise != "secret":
        use.append(" Do so only after a run whose noise is secret.")
    return [lists, *([] if unbounded else [tag("p", *use)])]


def _lists(central: bool, empty: str) -> Html:
    covered: list[tuple[Part, ...]] = [
        (f"every {'answer to the server' if central else 'message to a neighbour'}, at every round",),
        RELEASED,
        (tag("code", "ledger.parquet"), " and the scenario but for its seed: public settings only"),
    ]
    private: list[tuple[Part, ...]] = [
        trusted.MEASURED,
        (tag("code", "x, y, z"), " in ", tag("code", "state.npz")),
        trusted.CHOSEN,
    ]
    return trusted.list_coverage(
        (f"What agents released, and whatever is computed from it{empty}:", covered),
        ("What only the simulator sees, because it reads private data:", private),
    )


def _claim_in_words(claim: Claim) -> str:
    source, value = claim.source, claim.epsilon_max
    if value is None:
        return f"The claimed number ({source}) is undefined on this graph."
    return f"The claimed number {epsilon_text(value)} ({source}) is not a guarantee."
