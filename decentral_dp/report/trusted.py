"""What the page says differently where agents trust a coordinator, who publishes one value for all."""

from __future__ import annotations

from collections.abc import Mapping

from decentral_dp.formatting import delta_text, epsilon_text, price_text
from decentral_dp.report.markup import Html, Part, formula, join, tag
from decentral_dp.report.text import Json, number

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
    "Dashed: validation records alone. Lines that coincide are drawn as one, with all their names.",
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


def is_trusted(result: Json) -> bool:
    """Whether the run is a trusted coordinator's: then it says who sees what."""
    return bool((result.get("privacy") or {}).get("seen"))


def is_minimax(result: Json) -> bool:
    """Whether the problem is a minimax problem."""
    return (result.get("problem") or {}).get("solves") == "minimax"


def captions(result: Json) -> dict[str, str] | None:
    """What is said of figures instead of the usual; None where nobody is trusted."""
    if not is_trusted(result):
        return None
    of_whom = " They are those of the exact lower solution at the published x, which nobody sees."
    hidden = of_whom if solves(result) else ""
    texts = {**_CAPTIONS, **(_MINIMAX_CAPTIONS if is_minimax(result) else {})}
    return {name: text + (hidden if name in ("losses", "accuracy") else "") for name, text in texts.items()}


def topology_text(result: Json) -> str:
    """Who talks to whom."""
    pools = any("hands its records" in str(sentence) for sentence in result["privacy"]["seen"])
    asks = (
        "Every agent hands its records to a trusted coordinator" if pools else "A trusted coordinator asks every agent"
    )
    return f"{asks}; the scenario's graph plays no part."


def is_declared(privacy: Json) -> bool:
    """Whether ε rests on constants that nobody has proven."""
    return privacy.get("constants") == "declared"


def solves(result: Json) -> bool:
    """Whether x alone was published, so that scores are those of an exact lower solution that nobody sees."""
    metrics = result.get("metrics") or {}
    return not is_minimax(result) and "upper_loss" not in metrics and "upper_loss_unreleased" in metrics


# The guarantee --------------------------------------------------------------------------------------------------------


def certified(privacy: Json, epsilon: str, delta: str) -> tuple[str, str]:
    """The verdict, and why it holds."""
    reasons = ["each record's contribution is clipped"] if privacy.get("clip") else []
    if privacy.get("constants") == "analytic":
        reasons.append("what one record can do is bounded by constants that are theorems about this problem")
    if is_declared(privacy):
        reasons.append("what one record can do is bounded by the declared constants")
    noise = (
        "draws every release at random" if privacy.get("mechanism") == "exponential" else "adds noise to a release once"
    )
    because = f"{' and '.join(reasons)}; " if reasons else ""
    words = (
        "An adversary who sees everything that the coordinator publishes, and knows everything except one record of "
        f"one agent, learns about that record at most what (ε, δ)-differential privacy with ε = {epsilon} and "
        f"δ = {delta} allows. This holds by construction: {because}the coordinator {noise}, before "
        "it publishes it; the price of every release was fixed before the run, and how much noise that takes follows "
        "from public sensitivities alone. It does not hold against the coordinator, whom every agent trusts."
    )
    if is_declared(privacy):
        return "Certified only if the declared constants are true, which nobody has proven or checked. ", words
    return "Certified. ", words


def who_saw(privacy: Json) -> list[Html]:
    """Who sees what, and what bounds one record."""
    items = [tag("li", _with_formulas(str(sentence))) for sentence in privacy.get("seen") or []]
    return [tag("h3", "Who sees what"), tag("ul", *items)]


def _with_formulas(sentence: str) -> Html:
    """A sentence whose words may be formulas, such as ∇_y."""
    return join([formula(word) if "_" in word else word for word in sentence.split(" ")], " ")


def coverage(privacy: Json, result: Json, released: tuple[Part, ...], empty: str) -> Html:
    """What the guarantee is for, and what it is not for."""
    hidden = tag("li", "the exact lower solution at the published x, which the scores are of")
    solved = [hidden] if solves(result) else []
    covered = tag(
        "div",
        tag("h3", "Covered"),
        tag("p", f"What the coordinator published, and whatever is computed from it{empty}:"),
        tag(
            "ul",
            tag("li", "every release, at every round"),
            tag("li", *released),
            tag("li", tag("code", "ledger.parquet"), " and the scenario but for its seed: public settings and scales"),
        ),
    )
    private = tag(
        "div",
        tag("h3", "Not covered"),
        tag("p", "What the coordinator or only the simulator sees, because it reads private data:"),
        tag(
            "ul",
            tag("li", "whatever an agent hands to the coordinator"),
            tag("li", "metrics, curves and plots, this very page, ", tag("code", "result.json"), ", and running times"),
            *solved,
            tag("li", "settings chosen by looking at earlier runs on the same records"),
        ),
    )
    return tag("div", covered, private, class_="pair")


def price_table(privacy: Json) -> list[Html]:
    """What each release may cost, channel by channel."""
    listed = [p for p in privacy.get("prices") or [] if isinstance(p, Mapping)]
    if not listed:
        return []
    kinds = [k for k in ("train", "validation") if any(k in (p.get("price") or {}) for p in listed)]
    rows = []
    for entry in listed:
        unit, price, rate = str(entry.get("unit")), entry.get("price") or {}, entry.get("rate") or {}
        each = [price_text([number(v) or 0.0 for v in price[k]] if k in price else None, unit) for k in kinds]
        share = f"a sample, {min(number(v) or 0.0 for v in rate.values()):.3g} of them" if rate else "all records"
        cells = [str(entry.get("releases")), str(entry.get("width")), *each, share]
        rows.append(tag("tr", tag("th", str(entry.get("channel")), scope="row"), *(tag("td", c) for c in cells)))
    names = ("Channel", "Releases", "Numbers each", *(f"One {k} record" for k in kinds), "Read")
    heads = tag("tr", *(tag("th", name, scope="col") for name in names))
    sampled = any(entry.get("rate") for entry in listed)
    stated = "Fixed before the run; the scale of a release is its sensitivity over its price"
    stated += ", for the kind of record that needs more; the other kind is charged less." if len(kinds) > 1 else "."
    if any(entry.get("unit") == "μ" for entry in listed):
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


def claim_words(claim: Json) -> str:
    """The claim and its δ."""
    delta, epsilon = number(claim.get("delta")), epsilon_text(number(claim.get("epsilon_max")))
    at = f" at δ = {delta_text(delta)}" if delta is not None else ""
    return f"The claimed ε = {epsilon}{at} ({claim.get('source')}) is not a guarantee."
