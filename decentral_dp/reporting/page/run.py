"""The head of a page: what was run, by whom, at which budget, and how it ended; and the outcome.

The outcome is metrics and curves, and the network that they came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.bounded import Array
from decentral_dp.files.regular import own
from decentral_dp.formatting import (
    communication_text,
    compression_text,
    delta_text,
    epsilon_text,
    graph_text,
    over_time_text,
    schedule_text,
)
from decentral_dp.problems import PROBLEMS
from decentral_dp.reporting.baselines import JUDGES, compare_with_baselines
from decentral_dp.reporting.facts import facts, predicts, sentence
from decentral_dp.reporting.folder import published_x
from decentral_dp.reporting.markup import Html, Part, figure, formula, join, table, tag, with_formulas
from decentral_dp.reporting.tables import html
from decentral_dp.reporting.words import (
    CHANNELS,
    ENDINGS,
    MEASURES,
    Json,
    article,
    capitalise,
    choose_words,
    graph_noun,
    power_text,
    score_text,
    topology_name,
)
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import PrivacyStatement, number

NUMERALS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve")
# How a mechanism is called in a sentence.
_MECHANISMS = {
    "gaussian": "Gaussian noise",
    "laplace": "Laplace noise",
    "exponential": "a random choice by an exponential mechanism",
    "uncertified": "a random choice of which nothing is proven",
}


def opening(title: str, result: RunResult) -> list[Html]:
    """Title, one sentence with the outcome, whatever went wrong, and the main numbers."""
    shown = [
        tag("div", tag("dt", name), tag("dd", value), tag("small", note), class_="tile")
        for name, value, note in _tiles(result)
    ]
    worst = choose_words(result.privacy, result.topology).epsilon_owner == "worst agent"
    letters = with_formulas(
        f"If {result.privacy.protected} changed, any event in what is released would become at most e^ε times "
        "as probable, plus δ: the smaller both are, the less is told."
        f"{' The worst agent is the one whose ε is largest.' if worst else ''}"
    )
    return [
        tag("header", tag("h1", title), tag("p", lead(result), class_="lead")),
        *_status(result),
        tag("dl", *shown, class_="tiles"),
        *([tag("p", letters, class_="small")] if result.privacy.is_noisy else []),
    ]


def lead(result: RunResult) -> str:
    """The run in one sentence: who did what, at which budget, with which score."""
    return f"{_who_did_what(result)}; {_budget(result)}{_score(result)}."


def _who_did_what(result: RunResult) -> str:
    problem, graph = result.problem, result.topology
    m, kind = int(graph.get("agents") or 0), str(problem.get("kind") or "")
    who = f"{NUMERALS[m]} {'agent' if m == 1 else 'agents'}" if 0 <= m < len(NUMERALS) else f"{m} agents"
    known = PROBLEMS.get(kind)
    task = (known and known.task) or f"solved the {problem.get('solves') or 'bilevel'} problem {kind}".rstrip()
    if not result.tunes_x:
        which = "train" if result.is_one_level else "lower"
        task = (known and known.lower_task) or f"minimised the {which} loss of {kind}"
    where = choose_words(result.privacy, graph).participants or (
        f" on {article(graph_noun(graph))}" if graph and m > 1 else ""
    )
    return f"{who}{where} {task}" + (f" ({problem['data']} data)" if problem.get("data") else "")


def _budget(result: RunResult) -> str:
    privacy = result.privacy
    certified, delta = epsilon_text(privacy.epsilon_max), delta_text(privacy.delta)
    claim = privacy.claimed_epsilon
    if_true = ", if the declared constants are true" if privacy.is_declared else ""
    budget = {
        "certified": f"certified ε ≤ {certified} per agent at δ = {delta}{if_true}{_simulated(privacy)}",
        "as_printed": f"provable ε = {certified} at δ = {delta} for the protocol as printed{_simulated(privacy)}",
        "none": "no noise was added, so nothing is private",
    }.get(privacy.guarantee, "guarantee unknown")
    return budget + (f" (claimed by the paper, not certified: {epsilon_text(claim)})" if claim is not None else "")


def _simulated(privacy: PrivacyStatement) -> str:
    return " (SIMULATION)" if privacy.is_simulation else ""


def _score(result: RunResult) -> str:
    """The end of the first sentence."""
    words = choose_words(result.privacy, result.topology)
    of = f" of the {result.evaluated_on}" if result.solves_lower else ""
    of += " before it diverged" if result.has_diverged else ""
    for name, (word, digits) in JUDGES.items():
        if (value := result.score(name)) is not None:
            return f"; {words.mean_prefix}held-out {word} {value:.{digits}f}{of}"
    kind = "upper" if result.tunes_x else "lower"
    loss = result.score(f"{kind}_loss")
    kind = "train" if result.is_one_level else kind
    return (
        f"; {'' if result.has_diverged else words.final_prefix}{kind} loss {power_text(loss)}{of}"
        if loss is not None
        else ""
    )


def _tiles(result: RunResult) -> list[tuple[str, str, str]]:
    """The main numbers as (name, value, note)."""
    privacy, words = result.privacy, choose_words(result.privacy, result.topology)
    certified, delta = epsilon_text(privacy.epsilon_max), delta_text(privacy.delta)
    word = "Provable ε, as printed" if privacy.guarantee == "as_printed" else "Certified ε per agent"
    at = f"at δ = {delta}{_simulated(privacy)}"
    tiles = [(word, certified, f"{at}, {words.epsilon_owner}")]
    if privacy.is_declared and privacy.is_noisy:
        tiles = [("ε per agent, on declared constants", certified, f"{at}, only if they are true")]
    if not privacy.is_noisy:
        tiles = [("Privacy", "none", "noise is off: ε = ∞")]
    if (claim := privacy.claimed_epsilon) is not None:
        tiles.append(("Claimed ε, not certified", epsilon_text(claim), "by the printed formula"))
    rounds, planned = result.rounds, result.rounds if result.rounds_planned is None else result.rounds_planned
    seconds = result.seconds
    spent = f"in {seconds:.1f} s, {result.engine} engine" if seconds is not None else ""
    return [
        *tiles,
        *_score_tile(result),
        ("Rounds", str(rounds) if rounds == planned else f"{rounds} of {planned}", spent),
    ]


def _score_tile(result: RunResult) -> list[tuple[str, str, str]]:
    """Held-out AUC, accuracy or R², where there is one."""
    words = choose_words(result.privacy, result.topology)
    for name, (word, digits) in JUDGES.items():
        if (value := result.score(name)) is None:
            continue
        low, high = result.metric(f"{name}_min"), result.metric(f"{name}_max")
        spread = f", {low:.2f} to {high:.2f}" if low is not None and high is not None and low < high else ""
        note = f"{words.score_scope}{spread}" if words.score_scope else f"of the {result.evaluated_on}"
        if result.has_diverged:
            note = "at the last evaluation before it diverged"
        elif name == "test_r2" and (error := result.score("test_rmse")) is not None:
            note += f"; root mean squared error {score_text(error)}"
        return [(f"Held-out {word}", f"{value:.{digits}f}", note)]
    return []


def _status(result: RunResult) -> list[Html]:
    status = result.status
    if status == "ok":
        return []
    meaning = {"diverged": "This run diverged", "budget_reached": "This run stopped at its privacy cap"}.get(
        status, f"This run ended with status “{status}”"
    )
    planned = "?" if result.rounds_planned is None else result.rounds_planned
    done = f" after round {result.rounds} of {planned}"
    reason = sentence(result.reason).removeprefix(f"stopped{done}: ")
    if len(reason.split()[0]) > 1:  # A single letter is a variable and stays as it is.
        reason = capitalise(reason)
    if result.has_diverged and result.privacy.is_noisy:
        reason += " Budgets are those of the whole plan: the rounds that were run cost no more."
    kind = "bad" if status != "budget_reached" else "warn"
    return [tag("div", tag("strong", f"{meaning}{done}. "), reason, class_=f"note {kind}", role="alert")]


def what_was_run(result: RunResult, scenario: Json) -> list[Html]:
    """The facts of the run, then the scenario's own words about itself."""
    problem, graph, privacy = result.problem, result.topology, result.privacy
    words, privacy_table = choose_words(privacy, graph, str(problem.get("solves"))), scenario.get("privacy") or {}
    # What a coordinator's program has settled by itself stands in the result, all else in the scenario.
    ran: Json = result.algorithm or scenario.get("algorithm") or {}
    settled: Json = ran.get("settled", ran)
    steps = {k: v for k, v in settled.items() if isinstance(v, Mapping) and "scale" in v}
    plain = {k: v for k, v in settled.items() if k not in steps and _is_setting(k, v, "settled" in ran)}
    network = f"{topology_name(graph)}, {graph['weights']} weights" if graph.get("weights") else ""
    left_out = [str(name) for name in ran.get("left_out") or [] if name in steps or name in plain]
    stream = (scenario.get("problem") or {}).get("stream")
    clip = privacy.clip if "clip" in (result.get("privacy") or {}) else privacy_table.get("clip")
    variables = _CENTRE if result.is_one_level else words.variables if result.tunes_x else _GIVEN_X
    rows: list[tuple[str, Part]] = [
        ("Problem", " · ".join(str(v) for v in (problem.get("kind"), problem.get("data")) if v)),
        ("Dimensions", _dimensions(problem.get("p"), problem.get("q"), "y" if result.is_one_level else words.lower)),
        ("Variables", variables if problem.get("p") else ""),
        ("Records", _records(problem.get("records") or {})),
        ("Records in use", "all from round 0" if stream == "all" else settings_text(stream)),
        ("Topology", capitalise(words.network) or network),
        (
            "Algorithm",
            " · ".join(filter(None, (result.method or str(ran.get("kind") or ""), privacy.protocol))),
        ),
        ("Step sizes", schedules("λ", steps)),
        ("Settings", settings_text({k: v if isinstance(v, str) else power_text(v) for k, v in plain.items()})),
        ("Left out", f"{', '.join(left_out)}: by default, or from public facts" if left_out else ""),
        ("Domain of x", domain_text(ran.get("domain"), int(problem.get("p") or 0))),
        ("Start", _start(ran, privacy)),
        ("Releases", _releases(privacy)),
        ("Noise", _noise(privacy, privacy_table) if privacy.is_noisy else "none"),
        ("Clip per record", settings_text(clip)),
        (
            "Boxes on the arguments" if privacy.guarantee == "as_printed" else "Domain of releases",
            settings_text(privacy_table.get("box")),
        ),
        ("Constants", _CONSTANTS.get(str(privacy.constants), "")),
        ("Messages", with_formulas(_messages(ran, privacy))),
        ("Sent", "" if result.communication is None else communication_text(result.communication)),
        ("Evaluated on", result.evaluated_on),
        ("Versions", settings_text(result.versions)),
    ]
    stated = [(name, value) for name, value in rows if value and value != Html("") and name not in words.omitted_rows]
    return [tag("h2", "What was run"), fact_list(stated), *_description(scenario)]


# Where the bounds on one record come from.
_CONSTANTS = {
    "analytic": "analytic: theorems about this problem, for all records of bounded length",
    "declared": "declared: nobody has proven or checked them",
}


def fact_list(lines: Iterable[tuple[str, Part]]) -> Html:
    """Names, each with what is to be known of it."""
    return tag("dl", *(join([tag("dt", name), tag("dd", value)]) for name, value in lines), class_="facts")


def _description(scenario: Json) -> list[Html]:
    paragraphs = [tag("p", part) for part in str(scenario.get("description") or "").split("\n\n") if part.strip()]
    if not paragraphs:
        return []
    aside = tag("p", "Its author's words. Where a setting was overridden, the list above is what ran.", class_="small")
    return [tag("h3", "What the scenario says of itself"), aside, *paragraphs]


def _dimensions(p: int | None, q: int | None, lower: str) -> str:
    """Numbers of coordinates; of a problem of one level those of the weights alone."""
    if p is None or q is None:
        return ""
    return f"x: {p}, {lower}: {q}" if p else f"y, the weights: {q}"


def _records(counts: Json) -> str:
    counted = []
    for kind in ("train", "validation"):
        if any(each := counts.get(kind) or ()):
            low, high = min(each), max(each)
            counted.append(f"{low if low == high else f'{low} to {high}'} {kind} records per agent")
    counted += [f"{counts['test']} held-out test records, used by no agent"] if counts.get("test") else []
    return "; ".join(counted)


def schedules(symbol: str, table: Json) -> Html | str:
    """ "λ_x = 0.5/(t+1)^0.3, …", of everything that the table gives a scale."""
    terms = []
    for variable, entry in table.items():
        if isinstance(entry, Mapping) and isinstance(entry.get("scale"), int | float):
            faster, fall = entry.get("decay_per_agent"), schedule_text(entry)
            more = f" (exponent + {faster}·i for agent i = 1, 2, …)" if faster else ""
            terms.append(
                join([formula(f"{symbol}_{variable}"), " = ", power_text(entry["scale"]), formula(fall), more])
            )
    return join(terms, ", ") if terms else ""


def settings_text(value: object) -> str:
    """ "norm l2, y 1.0"; bounds to four digits, for those that follow from constants have seventeen."""
    if not isinstance(value, Mapping):
        return str(value or "")
    return ", ".join(f"{k} {f'{v:.4g}' if isinstance(v, float) else v}" for k, v in value.items())


def _is_setting(key: str, value: object, settled: bool) -> bool:
    """A number of the algorithm's own, as inner = 10; of what is settled all but a share of 1, which is no sample."""
    if settled:
        return (key, value) != ("rate", 1.0)
    return key != "rounds" and isinstance(value, int | float) and not isinstance(value, bool)


def domain_text(domain: object, p: int) -> str:
    """Where x may lie. p: coordinates of x."""
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


def _start(ran: Json, privacy: PrivacyStatement) -> str:
    """ "x = −2, y = 0": constants are public."""
    start, init = ran.get("start"), ran.get("init")
    if draws_x(privacy) or not ran:
        return ""
    if isinstance(start, Mapping):
        values = [f"{k} = {v:g}" if v is not None else f"{k} as the problem says" for k, v in start.items()]
        return ", ".join(values).replace("-", "−")
    if not isinstance(init, Mapping) or not init:
        return "every variable 0"
    return ", ".join(f"{k} = {v}".replace("-", "−") for k, v in init.items()) + "; every other variable 0"


def _releases(privacy: PrivacyStatement) -> str:
    """ "gx, the gradient by x: 10 of 1 number; …", of those whose price is fixed one by one."""
    counts = [
        f"{p.channel}{f', {CHANNELS[p.channel]}' if p.channel in CHANNELS else ''}: "
        f"{p.releases} of {p.width} {'number' if p.width == 1 else 'numbers'}"
        for p in privacy.prices
    ]
    free = list(privacy.free_channels)
    return "; ".join([*counts, *([f"{', '.join(free)}: no record read"] if free else [])]) if counts else ""


def _noise(privacy: PrivacyStatement, table: Json) -> Html:
    """The mechanism, and either the stated scales or what they were fitted to."""
    name = capitalise(" and ".join(_MECHANISMS.get(m, m.replace("_", " ")) for m in privacy.mechanisms))
    # A scale for what reads no record adds no noise, as a clip of it bounds nothing.
    noises = schedules("σ", {k: v for k, v in table.items() if privacy.clip is None or k in privacy.clip})
    target, claimed = privacy.target, number(table.get("epsilon"))
    if noises:
        return join([f"{name}, ", noises])
    if target is not None:
        return join([f"{name}, as much as ε = {power_text(target)} needs over all planned rounds"])
    if claimed is not None and privacy.guarantee == "as_printed":
        return join([f"{name}, as the paper calibrates it for ε = {power_text(claimed)}"])
    return join([name])


def _messages(ran: Json, privacy: PrivacyStatement) -> str:
    """What a message carries where one sentence says it; else how releases are numbered."""
    entry, each = ALGORITHMS.get(str(ran.get("kind"))), privacy.exchanges
    if entry is not None and entry.message:
        return f"message t = 1, 2, … {entry.message}"
    if not each:
        return ""
    if each == 1:
        numbered = "One exchange a round: release t leaves in round t"
    else:
        numbered = f"{each} exchanges a round: round t sends releases {each}t to {each}t + {each - 1}"
    noised = " with the noise of index t" if privacy.is_noisy else ""
    return f"{numbered}{noised}, t = 0, 1, …; release 0 is the start and reads no record."


# Beyond so many coordinates x is drawn, not listed.
LISTED_COORDINATES = 4
_CENTRE = "x is the mean of the features, which agents released once, and which features are read from. y is the model."
_GIVEN_X = "x stays as it is given. y is the model, which makes the loss small at that x."
# Where x is not tuned there is no upper level, and agents never differ in x.
_OF_X = ("upper_loss", "consensus_x", "hypergradient_")


def score_table(result: RunResult) -> list[Html]:
    """The last metrics, a row each; nothing where there are none. A budget is no metric: it has a table of its own.

    Those of other values than the published ones, where these have the same, are in a table to be opened.
    """
    metrics, words = result.metrics, choose_words(result.privacy, result.topology)
    rows: list[tuple[Part, list[Html]]] = []
    others: list[tuple[Part, list[Html]]] = []
    plain = [n for n in metrics if not re.search(r"_(min|max)(_last|_unreleased)?$", n) and n != "epsilon_spent"]
    if not result.tunes_x:
        plain = [n for n in plain if not n.startswith(_OF_X)]
    labels = {name: measure.page for name, measure in MEASURES.items() if measure.page}
    if result.is_one_level:
        labels["lower_loss"] = "Train loss (regulariser included)"
    order = [*labels]
    for name in sorted(plain, key=lambda n: next((i for i, o in enumerate(order) if n.startswith(o)), len(order))):
        value = metrics[name]
        ending = next((e for e in ENDINGS if name.endswith(e)), "")
        stem = name.removesuffix(ending)
        label = labels.get(stem, stem.replace("_", " ")) + (
            ENDINGS[ending][0] if ending and words.has_local_models else ""
        )
        band = [metrics.get(f"{name}_{side}", metrics.get(f"{stem}_{side}{ending}")) for side in ("min", "max")]
        cells = [number(v) for v in (value, *band)[: len(words.columns) - 1]]
        shown = ["" if v is None else score_text(v) if abs(v) >= 1e3 else power_text(v, pad=True) for v in cells]
        beside = others if ending and stem in metrics else rows
        beside.append((label, [tag("td", text, class_="number") for text in shown]))
    tables = [table(words.columns, rows)] if rows else []
    if others:
        summary = tag("summary", f"Of the last released values, and of what is not released ({len(others)})")
        tables.append(tag("details", summary, table(words.columns, others)))
    return tables


def outcome_section(folder: Path, result: RunResult) -> list[Html]:
    """A table of the last metrics, what to know beside it, and the curves."""
    where = f"Evaluated on: {result.evaluated_on}. " if result.evaluated_on else ""
    if result.has_diverged:
        where += "The last evaluation before the run diverged. "
    names = ("accuracy", "explained", "losses", "primal", "gradient", "upper_variable", "hypergradient", "consensus")
    curves = figures(folder, result, *names)
    return [
        tag("h2", "What came out"),
        *_published_x(published_x(folder), result),
        tag("p", f"{where}These numbers and curves read private data: they are the simulator's view.", class_="small"),
        *score_table(result),
        *beside_scores(result),
        *(curves or [tag("p", "No curves: the run kept no metrics.")]),
        *(
            [tag("p", "For predictions of new records, with this folder as RUN: ", tag("code", _PREDICT))]
            if predicts(result)
            else []
        ),
    ]


_PREDICT = "decentral-dp predict RUN FILE --out FILE"


def beside_scores(result: RunResult) -> list[Html]:
    """The facts that stand beside scores, those under one head in a paragraph."""
    notes = [(fact.name, fact.text) for fact in facts(result) if fact.topic == "scores"]
    return [
        tag("p", *([tag("strong", f"{head}. ")] if head else []), " ".join(text for _, text in of))
        for head, of in groupby(notes, key=lambda fact: fact[0])
    ]


def baselines_section(result: RunResult, baselines: Mapping[str, RunResult]) -> list[Html]:
    """The run beside those that it is judged by; nothing where there are none."""
    comparison = compare_with_baselines(result, baselines)
    if comparison is None:
        return []
    return [
        tag("h2", "Is it worth it?"),
        *([tag("p", tag("strong", comparison.sentence))] if comparison.sentence else []),
        html(comparison.table, "scores"),
        tag("p", comparison.price, class_="small"),
    ]


def _published_x(x: Array | None, result: RunResult) -> list[Html]:
    """The published x, where it is one for all, and short; (1, p)."""
    ran = result.algorithm
    if x is None or not ran or not 0 < x.size <= LISTED_COORDINATES:
        return []
    values = ", ".join(power_text(float(v)).replace("-", "−") for v in x.reshape(-1))
    start, where = number((ran.get("start") or {}).get("x")), domain_text(ran.get("domain"), x.size)
    point = f"x = {values}" if x.size == 1 else f"x = ({values})"
    if start is not None and not draws_x(result.privacy):
        point += f", from a start at {start:g}".replace("-", "−")
    return [tag("p", tag("strong", "Published: "), f"{point}{f', in the {where}' if where else ''}.")]


def figures(folder: Path, result: RunResult, *names: str) -> list[Html]:
    """Those of the named figures that the folder has, side by side."""
    captions, unit = choose_words(result.privacy, result.topology).captions, result.privacy.protected
    hidden = " They are those of the exact lower solution at the published x, which nobody sees."
    pictures = []
    for name in names:
        path = own(folder / "plots" / f"{name}.png", folder, "report")
        of_whom = hidden if result.solves_lower and name in ("losses", "accuracy", "explained") else ""
        if path.exists():
            pictures.append(figure(path.read_bytes(), captions[name].format(unit=unit) + of_whom))
    return [tag("div", *pictures, class_="figures")] if pictures else []


def topology_section(folder: Path, result: RunResult) -> list[Html]:
    """The graph in words and as a drawing."""
    graph = result.topology
    words = "one agent, who talks to nobody" if graph.get("agents") == 1 else ""
    if not graph:
        return []
    if words := choose_words(result.privacy, graph).network or words:
        return [tag("h2", "Topology"), tag("p", f"{capitalise(words)}.")]
    rho, gap = number(graph.get("rho")), number(graph.get("spectral_gap"))
    drawing = figures(folder, result, "topology")
    parts: list[Part] = [f"{capitalise(article(topology_name(graph)))}: {graph_text(graph)}."]
    if graph.get("over_time"):
        # What a period leaves says more than the rate of any one graph.
        pass
    elif rho is not None and gap and rho > 0:
        # A non-symmetric matrix may let it grow for a while.
        arcs = "In the long run a round of push-sum shrinks disagreement by the factor"
        pace = arcs if graph.get("directed") else "Each round of gossip shrinks disagreement at least by the factor"
        parts.append(f" {pace} ρ = {rho:.4f}, 1 less the spectral gap.")
    elif rho is not None:
        parts.append(" One round agrees: ρ = 0." if rho == 0 else f" ρ = {rho:.4f}.")
    parts += [f" {said}." for said in (over_time_text(graph), compression_text(graph)) if said]
    parts += [f" {capitalise(str(note))}." for note in graph.get("notes") or []]
    if not drawing:
        parts.append(" The graph is too large to draw.")
    return [tag("h2", "Topology"), tag("p", *parts), *drawing]
