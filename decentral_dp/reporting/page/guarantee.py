"""What is guaranteed, and what is and is not covered by it.

The convergence theorem's conditions, and which of them hold.

How large what records add can be beside the noise of every channel: a bound from public numbers.

What an audit of the run has shown, beside what is claimed and certified.
"""

from __future__ import annotations

from decentral_dp.formatting import at_least_text, delta_text, epsilon_text
from decentral_dp.reporting.page import trusted
from decentral_dp.reporting.page.markup import Html, Part, formula, join, tag
from decentral_dp.reporting.words import Json, power_text
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import Claim, PrivacyStatement, number

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


def theorem_section(result: RunResult) -> list[Html]:
    """Which case of the theorem applies, and every condition once, with its margin and the cases that ask for it."""
    theorem = result.theorem
    cases = theorem.get("cases") or []
    if not cases:
        return []
    verdicts = []
    conditions: dict[str, Json] = {}
    for case in cases:
        listed = case.get("conditions") or []
        conditions |= {str(c.get("condition")): c for c in listed}
        failing = sum(not c.get("holds") for c in listed)
        words: Part = f"{failing} of {len(listed)} conditions fail."
        if case.get("holds"):
            words = join(["applies: ", formula(str(case["rate"]))]) if case.get("rate") else "applies."
        verdicts.append(tag("li", tag("strong", f"{case.get('case')}: "), words))
    rows = []
    for name, condition in conditions.items():
        good = bool(condition.get("holds"))
        asking = [any(str(c.get("condition")) == name for c in case.get("conditions") or []) for case in cases]
        marks = [
            tag("td", ("holds" if good else "fails") if a else "", class_="good" if good else "bad") for a in asking
        ]
        rows.append(tag("tr", tag("th", formula(name), scope="row"), tag("td", _margin(condition)), *marks))
    names = ("Condition", "Left − right (must exceed 0)", *(str(case.get("case")) for case in cases))
    heads = tag("tr", *(tag("th", name, scope="col") for name in names))
    return [
        tag("h2", str(theorem.get("name") or "Theorem 4.1")),
        tag(
            "p",
            "Convergence conditions on the exponents of step sizes (v) and noise (ς). They concern the rate that the "
            "paper proves, not privacy: no budget depends on them.",
        ),
        tag("ul", *verdicts),
        tag("div", tag("table", tag("thead", heads), tag("tbody", *rows)), class_="wide", tabindex="0"),
    ]


def _margin(condition: Json) -> str:
    margin = number(condition.get("margin"))
    if margin is None:
        return "–"
    return f"{'+' if margin > 0 else '−' if margin < 0 else ''}{power_text(abs(margin))}"


def signal_section(result: RunResult) -> list[Html]:
    """A table of the largest signal in units of the noise; nothing where no channel has such a bound."""
    privacy = result.privacy
    if not privacy.signal:
        return []
    whose = "over all rounds" if privacy.is_trusted else "over all rounds and agents"
    heads = ("Channel", "in one release", whose)
    rows = [
        tag(
            "tr",
            tag("th", channel, scope="row"),
            *(tag("td", _ratio(value), class_="number") for value in (signal.one_release, signal.all_releases)),
        )
        for channel, signal in privacy.signal.items()
    ]
    table = tag("table", tag("thead", tag("tr", *(tag("th", h, scope="col") for h in heads))), tag("tbody", *rows))
    said = (
        "At most so many times the noise, as a norm, is what all records together add, if all of them agree. Most "
        "records do not agree that well: a run may learn nothing at several times 1, and below 1 noise alone moves it. "
        "The bound follows from sensitivities, counts and scales, and reads no record."
    )
    return [tag("h2", "Signal beside the noise"), tag("div", table, class_="wide"), tag("p", said, class_="small")]


def _ratio(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2g}" if value < 10.0 else f"{value:.0f}"


def audit_section(result: RunResult) -> list[Html]:
    """Nothing where the run was not audited."""
    audit = result.audit
    if not audit:
        return []
    shown, claimed = number(audit.get("shown")) or 0.0, number(audit.get("claimed"))
    confidence = number(audit.get("confidence")) or 0.0
    rows = [
        ("claimed by the paper", "–" if claimed is None else epsilon_text(claimed)),
        ("certified", epsilon_text(number(audit.get("certified")))),
        ("shown by an attack", f"{at_least_text(shown)}, with confidence {100.0 * confidence:g} %"),
    ]
    body = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows]
    delta = delta_text(number(audit.get("delta")) or 0.0)
    sentences = [str(s) for s in audit.get("sentences") or []]
    return [
        tag("h2", "Audit"),
        tag(
            "p",
            f"ε at δ = {delta} of one replaced record, for an observer who sees {_who(str(audit.get('vantage')))}. "
            f"Method: {_how(str(audit.get('method')), audit.get('runs'))}.",
        ),
        tag("div", tag("table", tag("tbody", *body)), class_="wide", tabindex="0"),
        tag("ul", *(tag("li", sentence) for sentence in sentences)),
    ]


def _who(vantage: str) -> str:
    kind, _, agent = vantage.partition(":")
    words = {"everybody": "everything that is sent", "published": "what is published at the end"}
    return words.get(vantage, f"what agent {agent} receives" if kind == "agent" else vantage)


def _how(method: str, runs: object) -> str:
    return "canaries in one run" if method == "one run" else f"{method}, {runs} runs of each of two worlds"
