"""What the page says differently where agents trust a coordinator, who publishes one value for all.

How the tables of a scenario are printed.

What was run and what came out, where agents trust a coordinator, who publishes one value for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decentral_dp.bounded import Array
from decentral_dp.formatting import delta_text, epsilon_text, price_text
from decentral_dp.reporting.page.markup import Html, Part, formula, join, tag
from decentral_dp.reporting.words import Json, capitalised, power_text
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import Claim, PrivacyStatement, number
from decentral_dp.user_code import own_name


def schedules(symbol: str, table: Json) -> Html | str:
    """ "λ_x = 0.5/(t+1)^0.3, …", of everything that the table gives a scale."""
    found = []
    for variable, entry in table.items():
        if isinstance(entry, Mapping) and isinstance(entry.get("scale"), int | float):
            decay = entry.get("decay")
            fall = f"/(t+1)^{decay}" if isinstance(decay, int | float) and decay else ""
            faster = entry.get("decay_per_agent")
            more = f" (exponent + {faster}·i for agent i = 1, 2, …)" if faster else ""
            found.append(join([formula(f"{symbol}_{variable} = {entry['scale']}{fall}"), more]))
    return join(found, ", ") if found else ""


def settings_text(value: object) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value or "")


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
    names = ("Channel", "Releases", "Numbers each", *(f"One {k} record" for k in kinds), "Read")
    rows = []
    for entry in listed:
        each = [price_text(entry.price.get(k), entry.unit) for k in kinds]
        share = f"a sample, {min(entry.rate.values()):.3g} of them" if entry.rate else "all records"
        cells = [str(entry.releases), str(entry.width), *each, share]
        named = zip(cells, names[1:], strict=True)
        tds = [tag("td", cell, data_head=name) for cell, name in named]
        rows.append(tag("tr", tag("th", entry.channel, scope="row"), *tds, data_head=names[0]))
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
        tag("div", tag("table", tag("thead", heads), tag("tbody", *rows), class_="rows"), class_="wide", tabindex="0"),
        tag("p", stated, class_="small"),
    ]


def claim_words(claim: Claim) -> str:
    """The claim and its δ."""
    at = f" at δ = {delta_text(claim.delta)}" if claim.delta is not None else ""
    return f"The claimed ε = {epsilon_text(claim.epsilon_max)}{at} ({claim.source}) is not a guarantee."


# How a mechanism is called in a sentence.
_MECHANISMS = {
    "gaussian": "Gaussian noise",
    "laplace": "Laplace noise",
    "exponential": "a random choice by an exponential mechanism",
    "uncertified": "a random choice of which nothing is proven",
}
# Beyond so many coordinates x is drawn, not listed.
LISTED_COORDINATES = 4


def rows(result: RunResult, scenario: Json, counts: str) -> list[tuple[str, Part]]:
    """The facts of the run as (name, what); counts: of records."""
    problem, privacy, ran = result.problem, result.privacy, result.algorithm
    stated, settled = scenario.get("privacy") or {}, ran.get("settled") or {}
    steps = {k: v for k, v in settled.items() if isinstance(v, Mapping)}
    # A share of 1 is no sample.
    rest = {k: v for k, v in settled.items() if k not in steps and (k, v) != ("rate", 1.0)}
    plain = {k: v if isinstance(v, str) else power_text(v) for k, v in rest.items()}
    noisy = privacy.is_noisy
    return [
        ("Problem", " · ".join(str(v) for v in (problem.get("kind"), problem.get("data")) if v)),
        ("Dimensions", f"x: {problem['p']}, y: {problem['q']}" if "p" in problem and "q" in problem else ""),
        ("Records", counts),
        ("Topology", capitalised(topology_text(result)).rstrip(".")),
        ("Algorithm", " · ".join(str(v) for v in (own_name(str(ran.get("kind") or "")), privacy.protocol) if v)),
        ("Step sizes", join([_step(k, v) for k, v in steps.items()], ", ") if steps else ""),
        ("Settings", settings_text(plain)),
        ("Left out", left_out_text(ran, rest)),
        ("Domain of x", domain_text(ran.get("domain"), int(problem.get("p") or 0))),
        ("Start", start_text(ran.get("start")) if not draws_x(privacy) else ""),
        ("Releases", releases_text(privacy)),
        ("Noise", noise_text(privacy, stated) if noisy else "none"),
        ("Clip per record", settings_text(_short(privacy.clip))),
        ("Constants", constants_text(privacy)),
        ("Evaluated on", result.evaluated_on),
        ("Versions", settings_text(result.versions)),
    ]


def constants_text(privacy: PrivacyStatement) -> str:
    """Where the bounds on one record come from."""
    return {
        "analytic": "analytic: theorems about this problem, for all records of bounded length",
        "declared": "declared: nobody has proven or checked them",
    }.get(str(privacy.constants), "")


def noise_text(privacy: PrivacyStatement, stated: Json) -> str:
    """How noise comes in, and what it was fitted to."""
    names = [_MECHANISMS.get(name, name) for name in privacy.mechanisms]
    asked = number(stated.get("epsilon"))
    if asked is None:
        return capitalised(" and ".join(names))
    fitted = f"as the paper calibrates it for ε = {power_text(asked)}"
    if privacy.guarantee == "certified":
        fitted = f"as much as ε = {power_text(asked)} needs over all planned rounds"
    return capitalised(f"{' and '.join(names)}, {fitted}")


def releases_text(privacy: PrivacyStatement) -> str:
    """ "y: 50 of 30 numbers; gx: 10 of 1 number"."""
    stated = [
        f"{p.channel}: {p.releases} of {p.width} {'number' if p.width == 1 else 'numbers'}" for p in privacy.prices
    ]
    free = list(privacy.free_channels)
    stated += [f"{', '.join(free)}: no record read"] if free else []
    return "; ".join(stated)


def domain_text(domain: object, p: int) -> str:
    if not isinstance(domain, Mapping):
        return ""
    kind = domain.get("kind")
    if kind == "box":
        ends = f"{domain.get('low'):g} to {domain.get('high'):g}".replace("-", "−")
        return f"interval from {ends}" if p == 1 else f"box, every coordinate from {ends}"
    return f"ball of radius {domain.get('radius'):g} around 0" if kind == "ball" else "simplex"


def draws_x(privacy: PrivacyStatement) -> bool:
    """Whether x is itself a release, drawn at random, so that it starts nowhere."""
    return any(p.channel in ("x", "x0") for p in privacy.prices)


def start_text(start: object) -> str:
    """ "x = −2, y = 0"."""
    if not isinstance(start, Mapping):
        return ""
    stated = [
        f"{k} = {v:g}".replace("-", "−") if v is not None else f"{k} as the problem says" for k, v in start.items()
    ]
    return ", ".join(stated)


def _step(variable: str, step: Mapping[str, float]) -> Html:
    fall = f"/(t+1)^{step['decay']:g}" if step.get("decay") else ""
    return join([formula(f"λ_{variable}"), " = ", power_text(step["scale"]), formula(fall)])


def left_out_text(ran: Json, shown: Json) -> str:
    """Which of the settings that are shown the scenario leaves out."""
    settled = ran.get("settled") or {}
    names = [n for n in ran.get("left_out") or [] if n in shown or isinstance(settled.get(n), Mapping)]
    return f"{', '.join(map(str, names))}: by default, or from public facts" if names else ""


def score(result: RunResult, before: str) -> str:
    """The end of the first sentence."""
    ending = "_unreleased" if result.solves_lower else ""
    of = f" of the {result.evaluated_on}" if ending else ""
    accuracy, loss = result.metric(f"test_accuracy{ending}"), result.metric(f"upper_loss{ending}")
    if (auc := result.metric("test_auc")) is not None:
        return f"; held-out AUC {auc:.3f}{before}"
    if accuracy is not None:
        return f"; held-out accuracy {accuracy:.2f}{of}{before}"
    if (explained := result.metric(f"test_r2{ending}")) is not None:
        return f"; held-out R² {explained:.2f}{of}{before}"
    return f"; upper loss {power_text(loss)}{of}{before}" if loss is not None else ""


def score_tile(result: RunResult, diverged: bool) -> list[tuple[str, str, str]]:
    """Held-out AUC, accuracy or R², where there is one."""
    ending = "_unreleased" if result.solves_lower else ""
    note = "at the last evaluation before it diverged" if diverged else f"of the {result.evaluated_on}"
    if (auc := result.metric("test_auc")) is not None:
        return [("Held-out AUC", f"{auc:.3f}", note)]
    for name, words in (("test_accuracy", "Held-out accuracy"), ("test_r2", "Held-out R²")):
        if (value := result.metric(f"{name}{ending}")) is not None:
            return [(words, f"{value:.2f}", note)]
    return []


def published_text(x: Array | None, result: RunResult) -> list[Html]:
    """The published x, where it is short; (1, p)."""
    if x is None or not 0 < x.size <= LISTED_COORDINATES:
        return []
    values = ", ".join(power_text(float(v)).replace("-", "−") for v in x.reshape(-1))
    ran = result.algorithm
    start, where = number((ran.get("start") or {}).get("x")), domain_text(ran.get("domain"), x.size)
    stated = f"x = {values}" if x.size == 1 else f"x = ({values})"
    if start is not None and not draws_x(result.privacy):
        stated += f", from a start at {start:g}".replace("-", "−")
    stated += f", in the {where}" if where else ""
    return [tag("p", tag("strong", "Published: "), f"{stated}.")]


def _short(clip: Any) -> Any:
    """Bounds to four digits: those that follow from constants have seventeen."""
    return {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in clip.items()} if isinstance(clip, dict) else clip
