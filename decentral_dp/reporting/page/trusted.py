"""What the page says differently where agents trust a coordinator, who publishes one value for all."""

from __future__ import annotations

from decentral_dp.formatting import delta_text, epsilon_text, price_text
from decentral_dp.reporting.page.markup import Html, Part, formula, join, tag
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import Claim, PrivacyStatement

_CAPTIONS = {
    "losses": "Losses by round, each over the records of all agents.",
    "accuracy": "Shares of held-out records that are classified correctly, by round.",
    "upper_variable": "What was tuned: the published x, one place per coordinate; dashed: where x started. Drawn from "
    "published values alone.",
    "hypergradient": "Norm of the hypergradient at the published x, with the lower level solved there; zero at a "
    "stationary point. Where records are held out, also how far it is from the hypergradient on these, which stands "
    "for the gap to the population and has the sampling error of so many records in it.",
    "epsilon": "ε spent up to each round, the same for every agent, beside target and claim. Prices were fixed before "
    "the run.",
    "noise": "What each release carries: the scale of its noise, or of its random choice, and how far one replaced "
    "record can move it. Scales follow from sensitivities, which are public, and from prices fixed before the run. "
    "Lines that coincide are drawn as one, with all their names.",
}


_MINIMAX_CAPTIONS = {
    "noise": "What each release carries: the scale of its noise, and how far one replaced record can move it. Scales "
    "follow from sensitivities, which are public, and from prices fixed before the run. Lines that coincide are drawn "
    "as one, with all their names.",
    "accuracy": "How the published model does on held-out records, by round.",
    "upper_variable": "The published x, one place per coordinate; dashed: where x started.",
    "losses": "On held-out records, by round.",
    "primal": "Φ(x), which is F at the best y for the published x, on all train records; the best y is solved for.",
    "gradient": "The true norm of the gradient of Φ on all train records, not of what was released; zero at a "
    "stationary point inside the set of x.",
}

# What only the simulator sees, whoever is trusted.
MEASURED: tuple[Part, ...] = (
    *("metrics, curves and plots, this very page, ", tag("code", "result.json"), ", and running times"),
)
CHOSEN: tuple[Part, ...] = ("settings chosen by looking at earlier runs on the same records",)


def captions(result: RunResult) -> dict[str, str] | None:
    """What is said of figures instead of the usual; None where nobody is trusted."""
    if not result.privacy.is_trusted:
        return None
    of_whom = " They are those of the exact lower solution at the published x, which nobody sees."
    hidden = of_whom if result.solves_lower else ""
    texts = {**_CAPTIONS, **(_MINIMAX_CAPTIONS if result.is_minimax else {})}
    return {
        name: text + (hidden if name in ("losses", "accuracy", "explained") else "") for name, text in texts.items()
    }


def topology_text(result: RunResult) -> str:
    """Who talks to whom."""
    pools = result.privacy.pools_records
    asks = (
        "Every agent hands its records to a trusted coordinator" if pools else "A trusted coordinator asks every agent"
    )
    return f"{asks}; the scenario's graph plays no part."


# The guarantee --------------------------------------------------------------------------------------------------------


def unchecked(privacy: PrivacyStatement) -> str:
    """What a verdict adds where code of the user's own was not checked throughout."""
    return ", but for what the notes take on the author's word" if privacy.is_on_authors_word else ""


def certified(privacy: PrivacyStatement, epsilon: str, delta: str) -> tuple[str, str]:
    """The verdict, and why it holds."""
    reasons = ["each record's contribution is clipped"] if privacy.clip else []
    if privacy.constants == "analytic":
        reasons.append("what one record can do is bounded by constants that are theorems about this problem")
    if privacy.is_declared:
        reasons.append("what one record can do is bounded by the declared constants")
    noise = "draws every release at random" if privacy.mechanism == "exponential" else "adds noise to a release once"
    because = f"{' and '.join(reasons)}; " if reasons else ""
    words = (
        "An adversary who sees everything that the coordinator publishes, and knows everything except one record of "
        f"one agent, learns about that record at most what (ε, δ)-differential privacy with ε = {epsilon} and "
        f"δ = {delta} allows. This holds by construction{unchecked(privacy)}: {because}the coordinator {noise}, before "
        "it publishes it; the price of every release was fixed before the run, and how much noise that takes follows "
        "from public sensitivities alone. It does not hold against the coordinator, whom every agent trusts."
    )
    if privacy.is_declared:
        return "Certified only if the declared constants are true, which nobody has proven or checked. ", words
    return "Certified. ", words


def who_saw(privacy: PrivacyStatement) -> list[Html]:
    """Who sees what, and what bounds one record."""
    items = [tag("li", _with_formulas(str(sentence))) for sentence in privacy.seen]
    return [tag("h3", "Who sees what"), tag("ul", *items)]


def _with_formulas(sentence: str) -> Html:
    """A sentence whose words may be formulas, such as ∇_y."""
    return join([formula(word) if "_" in word else word for word in sentence.split(" ")], " ")


def coverage(privacy: PrivacyStatement, result: RunResult, released: tuple[Part, ...], empty: str) -> Html:
    """List what the guarantee is for, and what it is not for.

    Args:
        privacy: the statement; not read.
        result: of the run; whether the lower level is solved is read.
        released: words that name the released arrays.
        empty: words that follow where the guarantee protects nothing, else "".

    Returns:
        The two lists, as HTML.
    """
    solved: list[tuple[Part, ...]] = []
    if result.solves_lower:
        solved = [("the exact lower solution at the published x, which the scores are of",)]
    covered: list[tuple[Part, ...]] = [
        ("every release, at every round",),
        released,
        (tag("code", "ledger.parquet"), " and the scenario but for its seed: public settings and scales"),
    ]
    private: list[tuple[Part, ...]] = [
        ("whatever an agent hands to the coordinator",),
        MEASURED,
        *solved,
        CHOSEN,
    ]
    return list_coverage(
        (f"What the coordinator published, and whatever is computed from it{empty}:", covered),
        ("What the coordinator or only the simulator sees, because it reads private data:", private),
    )


def list_coverage(covered: tuple[str, list[tuple[Part, ...]]], private: tuple[str, list[tuple[Part, ...]]]) -> Html:
    """Two lists beside each other, each with a sentence: what the guarantee is for, and what it is not for."""
    halves = [
        tag("div", tag("h3", head), tag("p", sentence), tag("ul", *(tag("li", *item) for item in items)))
        for head, (sentence, items) in (("Covered", covered), ("Not covered", private))
    ]
    return tag("div", *halves, class_="pair")


def price_table(privacy: PrivacyStatement) -> list[Html]:
    """What each release may cost, channel by channel."""
    listed = privacy.prices
    if not listed:
        return []
    kinds = [k for k in ("train", "validation") if any(k in p.price for p in listed)]
    rows = []
    for entry in listed:
        each = [price_text(entry.price.get(k), entry.unit) for k in kinds]
        share = f"a sample, {min(entry.rate.values()):.3g} of them" if entry.rate else "all records"
        cells = [str(entry.releases), str(entry.width), *each, share]
        rows.append(tag("tr", tag("th", entry.channel, scope="row"), *(tag("td", c) for c in cells)))
    names = ("Channel", "Releases", "Numbers each", *(f"One {k} record" for k in kinds), "Read")
    heads = tag("tr", *(tag("th", name, scope="col") for name in names))
    sampled = any(entry.rate for entry in listed)
    stated = "Fixed before the run; the scale of a release is its sensitivity over its price"
    stated += ", for the kind of record that needs more; the other kind is charged less." if len(kinds) > 1 else "."
    if any(entry.unit == "μ" for entry in listed):
        stated += (
            " μ: nobody tells two data sets that differ in the record apart more surely than two Gaussians of "
            "deviation 1 at the distance μ."
        )
    if sampled:
        stated += " Of a sample, the price is that of a record which is in it; that it may not be is counted in ε."
    return [
        tag("h3", "Price of each release"),
        tag("div", tag("table", tag("thead", heads), tag("tbody", *rows)), class_="wide", tabindex="0"),
        tag("p", stated, class_="small"),
    ]


def claim_words(claim: Claim) -> str:
    """The claim and its δ."""
    at = f" at δ = {delta_text(claim.delta)}" if claim.delta is not None else ""
    return f"The claimed ε = {epsilon_text(claim.epsilon_max)}{at} ({claim.source}) is not a guarantee."
