"""One self-contained page about a run: what was run, what is guaranteed, what it cost, what came out.

Read from the run folder alone. Every ε is printed rounded up. Everything that is not written here is escaped, by
construction: markup is a type of its own (`Html`), and any other text that enters an element is escaped.
"""

from __future__ import annotations

import base64
import html
import json
import math
import re
import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any, TypeAlias

from decentral_dp.errors import InputError

Json: TypeAlias = Mapping[str, Any]

LISTED_AGENTS = 30
WORST_AGENTS = 5
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NUMERALS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve")
GRAPHS = {
    "complete": "complete graph",
    "random_regular": "random regular graph",
    "erdos_renyi": "Erdős–Rényi graph",
    "small_world": "small-world graph",
    "preferential_attachment": "preferential-attachment graph",
}
TASKS = {
    "logistic_hyperparameter": "tuned the regularisation of a logistic regression",
    "softmax_hyperparameter": "tuned the regularisation of a softmax classifier",
    "quadratic": "solved a quadratic bilevel problem",
}


@dataclass(frozen=True)
class Html:
    """Markup, as opposed to text that has yet to be escaped."""

    markup: str


Part: TypeAlias = str | int | float | Html


def tag(name: str, *parts: Part, **attributes: str) -> Html:
    """An element; `class_` stands for class. Parts that are not Html are escaped."""
    heads = "".join(f' {key.rstrip("_")}="{html.escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{heads}>{join(parts).markup}</{name}>")


def join(parts: Iterable[Part], between: str = "") -> Html:
    return Html(between.join(p.markup if isinstance(p, Html) else html.escape(str(p)) for p in parts))


def read_result(folder: Path) -> dict[str, Any]:
    """The run's result.json. Raises InputError where there is none that can be read."""
    path = folder / "result.json"
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: no result.json found here; name the folder that a run has written.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not JSON ({error}); run the scenario again to write the folder anew.") from None
    if not isinstance(result, dict):
        raise InputError(f"{path}: got a {type(result).__name__}, wanted an object; run the scenario again.")
    return result


def scenario_text(folder: Path) -> str:
    path = folder / "scenario.toml"
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def read_scenario(folder: Path) -> dict[str, Any]:
    """The resolved scenario; empty where there is none that can be read, for the page can do without."""
    try:
        return tomllib.loads(scenario_text(folder))
    except tomllib.TOMLDecodeError:
        return {}


def number(value: object) -> float | None:
    """A number of result.json, where infinity is the string "inf"; None where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def power_text(value: float, pad: bool = False) -> str:
    """`value` in three digits (at most, unless `pad`), as a power of ten where it is very small or large."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:#.3g}".rstrip(".") if pad else f"{value:.3g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    short = mantissa.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
    return power if short == "1" else f"{short}·{power}"


def epsilon_text(value: float | None) -> str:
    """A budget rounded up: two decimals, or three digits where that would say too little."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if value <= 0:
        return "0"
    exact = Decimal(repr(float(value)))  # The digits that result.json shows: Decimal(2.2) itself would print as 2.21.
    if value < 1e-3 or value >= 1e5:
        rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 2), rounding=ROUND_CEILING)
        return f"{rounded.scaleb(-rounded.adjusted()):.2f}·10{str(rounded.adjusted()).translate(SUPERSCRIPTS)}"
    digits = 1 if value >= 1000 else max(2, 2 - exact.adjusted())
    return str(exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_CEILING))


def delta_text(value: float | None) -> str:
    return "–" if value is None else f"{value:g}".replace("e-0", "e-")


def write_report(folder: Path) -> Path:
    """Write `folder/report.html` and return its path; the figures are drawn if the folder has none yet.

    The page inlines `plots/*.png` and loads nothing from anywhere. Raises InputError where `folder` holds no readable
    result.json.
    """
    result, scenario = read_result(folder), read_scenario(folder)
    if not any((folder / "plots").glob("*.png")):
        # Only here: drawing imports matplotlib, and the figures of a run are usually there already.
        from decentral_dp.plots import write_plots

        write_plots(folder)
    title = str(scenario.get("title") or (result.get("problem") or {}).get("kind") or "A run without a title")
    sections = [
        *_opening(title, result, scenario),
        *_what_was_run(result, scenario),
        *_guarantee(result),
        *_budgets(folder, result),
        *_outcome(folder, result),
        *_topology(folder, result),
        *_theorem(result),
        *_scenario_and_citation(folder),
    ]
    head = join(
        [
            Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<link rel="icon" href="data:,">'),
            Html('<meta name="color-scheme" content="light dark">'),
            tag("title", title),
            tag("style", Html(STYLE)),
        ]
    )
    page = tag("html", tag("head", head), tag("body", tag("main", *sections)), lang="en")
    path = folder / "report.html"
    path.write_text(f"<!DOCTYPE html>\n{page.markup}\n", encoding="utf-8")
    return path


def _privacy(result: Json) -> Json:
    found: Json = result.get("privacy") or {}
    return found


def topology_name(graph: Json) -> str:
    """ "ring of 10 agents"."""
    m = int(graph.get("agents") or 0)
    return f"{_graph_noun(graph)} of {m} agent{'' if m == 1 else 's'}"


def _graph_noun(graph: Json) -> str:
    kind = str(graph.get("kind") or "")
    plain = kind.replace("_", " ") if kind.isascii() and kind.isprintable() else ""
    return GRAPHS.get(kind, plain) or "network"


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


def capitalised(text: str) -> str:
    """`str.capitalize` without lowering the rest: a name within stays a name."""
    return text[:1].upper() + text[1:]


def formula(text: str) -> Html:
    """Plain text where `_i` and `^-0.5` become subscript and superscript."""
    parts = re.split(r"([_^])(-?\w+(?:\.\w+)?)", text)
    marks: list[Part] = [parts[0]]
    for sign, mark, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        marks += [tag("sub" if sign == "_" else "sup", mark.replace("-", "−")), rest]
    return tag("span", *marks, class_="formula")


def _opening(title: str, result: Json, scenario: Json) -> list[Html]:
    privacy, problem, graph = _privacy(result), result.get("problem") or {}, result.get("topology") or {}
    guarantee, metrics = privacy.get("guarantee"), result.get("metrics") or {}
    m, certified = int(graph.get("agents") or 0), epsilon_text(number(privacy.get("epsilon_max")))
    claim = number((privacy.get("claimed") or {}).get("epsilon_max"))
    delta = delta_text(number(privacy.get("delta")))
    who = f"{NUMERALS[m] if 0 <= m < len(NUMERALS) else m} agent{'' if m == 1 else 's'}"
    kind = str(problem.get("kind") or "")
    task = TASKS.get(kind, f"solved the bilevel problem {kind}".rstrip())
    where = f" on {_article(_graph_noun(graph))}" if graph and m > 1 else ""
    data = f" ({problem['data']} data)" if problem.get("data") else ""
    budget = {
        "certified": f"certified ε ≤ {certified} per agent at δ = {delta}",
        "as_printed": f"certified ε = {certified} at δ = {delta}",
        "none": "no noise was added, so nothing is private",
    }.get(str(guarantee), "guarantee unknown")
    if claim is not None:
        budget += f" (claimed by the paper, not certified: {epsilon_text(claim)})"
    accuracy, loss = number(metrics.get("test_accuracy")), number(metrics.get("upper_loss"))
    score = f"; mean held-out accuracy {accuracy:.2f}" if accuracy is not None else ""
    if not score and loss is not None:
        score = f"; final upper loss {power_text(loss)}"
    tiles = [("Certified ε per agent", "∞" if guarantee == "none" else certified, f"at δ = {delta}, worst agent")]
    if claim is not None:
        tiles.append(("Claimed ε, not certified", epsilon_text(claim), "by the printed formula"))
    if accuracy is not None:
        tiles.append(("Held-out accuracy", f"{accuracy:.2f}", _range(metrics, "test_accuracy")))
    rounds, planned = result.get("rounds", 0), result.get("rounds_planned", result.get("rounds", 0))
    seconds = number(result.get("seconds"))
    spent = f"in {seconds:.1f} s, {result.get('engine', 'local')} engine" if seconds is not None else ""
    tiles.append(("Rounds", str(rounds) if rounds == planned else f"{rounds} of {planned}", spent))
    shown = [
        tag("div", tag("dt", name), tag("dd", value), tag("small", note), class_="tile") for name, value, note in tiles
    ]
    return [
        tag("header", tag("h1", title), tag("p", f"{who}{where} {task}{data}; {budget}{score}.", class_="lead")),
        *_status(result),
        tag("dl", *shown, class_="tiles"),
    ]


def _range(metrics: Json, name: str) -> str:
    low, high = number(metrics.get(f"{name}_min")), number(metrics.get(f"{name}_max"))
    return "mean over agents" + (f", {low:.2f} to {high:.2f}" if low is not None and high is not None else "")


def _status(result: Json) -> list[Html]:
    status = str(result.get("status", "unknown"))
    if status == "ok":
        return []
    meaning = {
        "diverged": "This run diverged",
        "budget_reached": "This run stopped at its privacy cap",
    }.get(status, f"This run ended with status “{status}”")
    done = f" after round {result.get('rounds', 0)} of {result.get('rounds_planned', '?')}"
    kind = "bad" if status != "budget_reached" else "warn"
    reason = str(result.get("reason") or "No reason was recorded.")
    return [tag("div", tag("strong", f"{meaning}{done}. "), reason, class_=f"note {kind}", role="alert")]


def _what_was_run(result: Json, scenario: Json) -> list[Html]:
    problem, graph, privacy = result.get("problem") or {}, result.get("topology") or {}, _privacy(result)
    algorithm, settings = scenario.get("algorithm") or {}, scenario.get("problem") or {}
    records = problem.get("records") or {}
    counts = [f"{_counts(records[k])} {k} records per agent" for k in ("train", "validation") if records.get(k)]
    if records.get("test"):
        counts.append(f"{records['test']} held-out test records, used by no agent")
    steps = [
        formula(f"λ_{v} = {s.get('scale')}" + (f"/(t+1)^{s['decay']}" if s.get("decay") else ""))
        for v in "xyz"
        if isinstance(s := algorithm.get(v), Mapping)
    ]
    stream = settings.get("stream")
    rows: list[tuple[str, Part]] = [
        ("Problem", " · ".join(str(v) for v in (problem.get("kind"), problem.get("data")) if v)),
        ("Dimensions", f"x: {problem['p']}, y and z: {problem['q']}" if "p" in problem and "q" in problem else ""),
        ("Records", "; ".join(counts)),
        ("Records in use", "all from round 0" if stream == "all" else _settings(stream)),
        ("Topology", f"{topology_name(graph)}, {graph['weights']} weights" if graph.get("weights") else ""),
        ("Algorithm", " · ".join(str(v) for v in (algorithm.get("kind"), privacy.get("protocol")) if v)),
        ("Step sizes", join(steps, ", ") if steps else ""),
        ("Noise", "none" if privacy.get("guarantee") == "none" else str(privacy.get("mechanism") or "").capitalize()),
        ("Clip per record", _settings((scenario.get("privacy") or {}).get("clip"))),
        ("Evaluated on", str(result.get("evaluated_on") or "")),
        ("Versions", _settings(result.get("versions"))),
    ]
    lines = [join([tag("dt", name), tag("dd", value)]) for name, value in rows if value]
    facts = [tag("h2", "What was run"), tag("dl", *lines, class_="facts")]
    told = [tag("p", part) for part in str(scenario.get("description") or "").split("\n\n") if part.strip()]
    return [*facts, tag("h3", "What the scenario says of itself"), *told] if told else facts


def _settings(value: object) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value or "")


def _counts(per_agent: Sequence[int]) -> str:
    low, high = min(per_agent), max(per_agent)
    return str(low) if low == high else f"{low} to {high}"


def _guarantee(result: Json) -> list[Html]:
    privacy = _privacy(result)
    guarantee, delta = str(privacy.get("guarantee")), delta_text(number(privacy.get("delta")))
    epsilon, claim = epsilon_text(number(privacy.get("epsilon_max"))), privacy.get("claimed") or {}
    proven = (
        "Nothing can be proven for this protocol on this problem: the certified ε is ∞."
        if epsilon == "∞"
        else f"What can be proven for it is ε = {epsilon} at δ = {delta}."
    )
    verdicts = {
        "certified": (
            "Certified. ",
            f"An adversary who sees every message ever sent, and knows everything except one record of one agent, "
            f"learns about that record at most what (ε, δ)-differential privacy with ε = {epsilon} and δ = {delta} "
            f"allows. This holds by construction: each record's contribution is clipped, noise is added before "
            f"anything leaves an agent, and every release is charged.",
        ),
        "as_printed": (
            "As printed, for comparison. ",
            f"The paper's protocol and constants. {proven} {_claim_in_words(claim)}",
        ),
        "none": ("None. ", "Noise was switched off, and messages went out as they were: nothing is private."),
    }
    verdict, words = verdicts.get(guarantee, (f"Unknown guarantee “{guarantee}”. ", "Treat the run as not private."))
    level = {"certified": "good", "as_printed": "warn"}.get(guarantee, "bad")
    blocks = [tag("h2", "The guarantee"), tag("p", tag("strong", verdict), words, class_=f"note {level}")]
    noise = str(privacy.get("noise") or "")
    if guarantee != "none" and noise not in ("", "off", "secret"):
        blocks.append(
            tag(
                "p",
                tag("strong", "This is a simulation: "),
                f"the noise is {noise.split(',')[0]}. Whoever knows the seed can subtract it, so this output "
                "protects nobody. Every certified ε here is what the same run costs when its noise is secret, "
                "which it is when the scenario states no seed.",
                class_="note warn",
            )
        )
    elif noise == "secret" and guarantee != "none":
        blocks.append(tag("p", "The noise came from the operating system and was written nowhere."))
    adjacency = tag(
        "p",
        tag("strong", "What ε compares. "),
        "Two data sets that differ in one record of one agent: it is replaced by any other, and keeps its agent, its "
        "kind (train or validation) and its place. Partition, split, order, counts, classes and scaling constants are "
        "public. A person with several records is protected less, and runs on the same records add up.",
    )
    empty = " (by ε = ∞, which protects nothing)" if epsilon == "∞" else ""
    covered = tag(
        "div",
        tag("h3", "Covered"),
        tag("p", f"What agents released, and whatever is computed from it{empty}:"),
        tag(
            "ul",
            tag("li", "every message to a neighbour, at every round"),
            tag("li", tag("code", "released_…"), " and ", tag("code", "published_…"), " in ", tag("code", "state.npz")),
            tag("li", tag("code", "ledger.parquet"), " and the scenario but for its seed: public settings only"),
        ),
    )
    private = tag(
        "div",
        tag("h3", "Not covered"),
        tag("p", "What only the simulator sees, because it reads private data:"),
        tag(
            "ul",
            tag("li", "metrics, curves and plots, this very page, and running times"),
            tag("li", tag("code", "x, y, z"), " in ", tag("code", "state.npz")),
            tag("li", "settings chosen by looking at earlier runs on the same records"),
        ),
    )
    if guarantee == "none":
        return blocks
    notes = [tag("li", str(note)) for note in privacy.get("notes") or []]
    return [
        *blocks,
        adjacency,
        tag("div", covered, private, class_="pair"),
        *([tag("h3", "Notes"), tag("ul", *notes)] if notes else []),
    ]


def _claim_in_words(claim: Json) -> str:
    if not claim:
        return ""
    source, value = claim.get("source") or "the paper", number(claim.get("epsilon_max"))
    if value is None:
        return f"The claimed number ({source}) is undefined on this graph."
    return f"The claimed number {epsilon_text(value)} ({source}) is not a guarantee."


def _budgets(folder: Path, result: Json) -> list[Html]:
    privacy = _privacy(result)
    agents, slack = privacy.get("agents") or [], privacy.get("numerical_slack") or {}
    if privacy.get("guarantee") == "none" or not agents:
        return []
    columns, free = _columns(privacy), privacy.get("free_channels") or {}
    blocks = [tag("h2", "Budget of every agent"), _budget_table(agents, columns)]
    remarks = [
        "An agent's ε is what its most expensive record costs: the larger of one train and one validation record. "
        "Channels are composed together, so their own budgets need not add up to it. All are rounded up."
    ]
    if privacy.get("claimed"):
        source = privacy["claimed"].get("source") or "the paper"
        remarks.append(f"The claimed column shows {source}. It is shown for comparison and is not certified.")
    if slack:
        remarks.append(
            f"Beside these numbers, not in them: sampling in float64 may add up to "
            f"{epsilon_text(number(slack.get('epsilon')))} to an agent's ε and "
            f"{epsilon_text(number(slack.get('delta')))} to its δ, over the whole run."
        )
    blocks += [tag("p", remark, class_="small") for remark in remarks]
    for channel, reason in free.items():
        blocks.append(tag("p", tag("strong", f"Channel {channel} is free: "), f"{reason}."))
    return [*blocks, *_figures(folder, "epsilon", "noise"), *_forever(privacy)]


def _forever(privacy: Json) -> list[Html]:
    """What the budget tends to as the number of rounds grows."""
    limit, claim = privacy.get("at_infinity") or {}, privacy.get("claimed") or {}
    finite, endless = number(limit.get("finite_data")), number(limit.get("endless_stream"))
    rows = []
    if finite is not None:
        grows = math.isinf(finite) and math.isfinite(number(privacy.get("epsilon_max")) or math.inf)
        why = " Once all records are in use, the cost of a round shrinks too slowly for a finite sum." if grows else ""
        rows.append(join([tag("dt", "With the records there are"), tag("dd", f"ε → {epsilon_text(finite)}.{why}")]))
    if endless is not None:
        text = f"ε → {epsilon_text(endless)}, if new records kept arriving for ever. Not a budget of this finite data."
        rows.append(join([tag("dt", "With an endless stream"), tag("dd", text)]))
    if (claimed := number(claim.get("epsilon_max_at_infinity"))) is not None:
        rows.append(join([tag("dt", "Claimed, not certified"), tag("dd", f"ε → {epsilon_text(claimed)}.")]))
    return [tag("h3", "If the run never ended (T → ∞)"), tag("dl", *rows, class_="facts")] if rows else []


@dataclass(frozen=True)
class Column:
    """A column of the budget table: its group, its name, and how to read it from an agent's entry and number."""

    group: str
    name: str
    read: Callable[[Json, int], float | None]


def _columns(privacy: Json) -> list[Column]:
    agents, free = privacy["agents"], privacy.get("free_channels") or {}
    claims = (privacy.get("claimed") or {}).get("agents") or []
    channels = [c for c in agents[0].get("channels") or {} if c not in free]
    records = list(agents[0].get("records") or {})

    def at(*path: str) -> Callable[[Json, int], float | None]:
        def read(agent: Json, _: int) -> float | None:
            found: Any = agent
            for key in path:
                found = found.get(key) if isinstance(found, Mapping) else None
            return number(found)

        return read

    def claim(_: Json, row: int) -> float | None:
        entry = claims[row] if row < len(claims) else None
        return number(entry.get("epsilon") if isinstance(entry, Mapping) else entry)

    columns = [
        Column("Whole run", f"ε at δ = {delta_text(number(privacy.get('delta')))}", at("epsilon")),
        Column("Whole run", "pure ε (δ = 0)", at("epsilon_pure")),
    ]
    for channel in channels:
        columns.append(Column(f"Channel {channel}", "ε", at("channels", channel, "epsilon")))
        pure = at("channels", channel, "epsilon_pure")
        if any(math.isfinite(pure(a, 0) or 0.0) and pure(a, 0) is not None for a in agents):
            columns.append(Column(f"Channel {channel}", "pure ε", pure))
    columns += [Column("ε of one record", kind, at("records", kind)) for kind in records]
    return [*columns, Column("Claimed, not certified", "ε", claim)] if claims else columns


def _budget_table(agents: Sequence[Json], columns: Sequence[Column]) -> Html:
    """One row per agent, equal rows merged; beyond LISTED_AGENTS rows the range and the most expensive agents."""
    values = [[column.read(agent, row) for column in columns] for row, agent in enumerate(agents)]
    names = [str(agent.get("agent", row)) for row, agent in enumerate(agents)]
    merged: dict[tuple[str, ...], list[str]] = {}
    for name, row in zip(names, values, strict=True):
        merged.setdefault(tuple(map(epsilon_text, row)), []).append(name)
    if len(merged) <= LISTED_AGENTS:
        body = [(_agent_names(of, len(agents)), shown) for shown, of in merged.items()]
    else:
        stacked = [[v for v in column if v is not None] or [math.nan] for column in zip(*values, strict=True)]
        body = [
            (f"{label} of {len(agents)}", tuple(epsilon_text(pick(v)) for v in stacked))
            for label, pick in (("lowest", min), ("median", statistics.median), ("highest", max))
        ]
        order = sorted(range(len(agents)), key=lambda row: [-(v or 0.0) for v in values[row]])[:WORST_AGENTS]
        body += [(f"agent {names[row]}", tuple(map(epsilon_text, values[row]))) for row in order]
    groups = list(dict.fromkeys(column.group for column in columns))
    spans = [(group, [c for c in columns if c.group == group]) for group in groups]
    claimed = [c.group.startswith("Claimed") for c in columns]
    heads = [tag("th", g, colspan=str(len(of)), scope="colgroup") for g, of in spans]
    first = tag("tr", tag("th", "Agent", rowspan="2", scope="col"), *heads)
    second = tag("tr", *(tag("th", column.name, scope="col") for column in columns))
    rows = []
    for name, shown in body:
        cells = [tag("td", s, class_="claimed" if c else "number") for s, c in zip(shown, claimed, strict=True)]
        rows.append(tag("tr", tag("th", name, scope="row"), *cells))
    table = tag("table", tag("thead", first, second), tag("tbody", *rows))
    return tag("div", table, class_="wide", tabindex="0")


def _agent_names(names: Sequence[str], total: int) -> str:
    """ "0–3, 7", or how many where that would be long."""
    if len(names) == total > 1:
        return f"all {total}"
    runs: list[list[str]] = []
    for name in names:
        if runs and runs[-1][-1].isdigit() and name.isdigit() and int(name) == int(runs[-1][-1]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    text = ", ".join(r[0] if len(r) == 1 else f"{r[0]}–{r[-1]}" for r in runs)
    return text if len(text) <= 24 else f"{len(names)} agents"


METRIC_NAMES = {
    "upper_loss": "Upper loss (validation records)",
    "lower_loss": "Lower loss (train records)",
    "test_loss": "Test loss (held-out records)",
    "test_accuracy": "Test accuracy (held-out records)",
    "hypergradient_norm": "Hypergradient norm",
    "consensus_x": "Distance to the average, x",
    "consensus_y": "Distance to the average, y",
    "consensus_z": "Distance to the average, z",
}
ENDINGS = {"_last": ", last released values", "_unreleased": ", unreleased state"}
CAPTIONS = {
    "losses": "Losses by round. Line: mean over agents; band: lowest to highest agent.",
    "accuracy": "Accuracy on held-out records by round. Line: mean over agents; band: worst to best agent.",
    "hypergradient": "Norm of the hypergradient at the agents' average x, with the lower level solved there; "
    "zero at a stationary point.",
    "consensus": "How far the agents lie from their average, per variable. Lower means that they agree.",
    "epsilon": "ε spent up to each round by the agent that spends most, beside target, cap and claim.",
    "noise": "What each release carries: noise scale, and how far one replaced record can move it. "
    "Solid: train record; dashed: validation record.",
    "topology": "Who talks to whom. Places follow hop counts; colour shows what differs between agents.",
}


def _figures(folder: Path, *names: str) -> list[Html]:
    figures = []
    for name in names:
        path = folder / "plots" / f"{name}.png"
        if path.exists():
            data = base64.b64encode(path.read_bytes()).decode("ascii")
            image = tag("img", src=f"data:image/png;base64,{data}", alt=CAPTIONS[name]).markup.removesuffix("</img>")
            figures.append(tag("figure", Html(image), tag("figcaption", CAPTIONS[name])))
    return [tag("div", *figures, class_="figures")] if figures else []


def _outcome(folder: Path, result: Json) -> list[Html]:
    metrics = result.get("metrics") or {}
    rows = []
    # A budget is no metric: it stands in its own table, rounded up.
    plain = [n for n in metrics if not re.search(r"_(min|max)(_last|_unreleased)?$", n) and n != "epsilon_spent"]
    order = [*METRIC_NAMES]
    for name in sorted(plain, key=lambda n: next((i for i, o in enumerate(order) if n.startswith(o)), len(order))):
        value = metrics[name]
        ending = next((e for e in ENDINGS if name.endswith(e)), "")
        stem = name.removesuffix(ending)
        label = METRIC_NAMES.get(stem, stem.replace("_", " ")) + ENDINGS.get(ending, "")
        band = [metrics.get(f"{name}_{side}", metrics.get(f"{stem}_{side}{ending}")) for side in ("min", "max")]
        cells = [number(v) for v in (value, *band)]
        shown = ["" if v is None else power_text(v, pad=True) for v in cells]
        rows.append(tag("tr", tag("th", label, scope="row"), *(tag("td", s, class_="number") for s in shown)))
    heads = [tag("th", text, scope="col") for text in ("Metric", "Mean over agents", "Lowest agent", "Highest agent")]
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    where = f"Evaluated on: {result['evaluated_on']}. " if result.get("evaluated_on") else ""
    curves = _figures(folder, "accuracy", "losses", "hypergradient", "consensus")
    return [
        tag("h2", "What came out"),
        tag("p", f"{where}These numbers and curves read private data: they are the simulator's view.", class_="small"),
        *([tag("div", table, class_="wide", tabindex="0")] if rows else []),
        *(curves or [tag("p", "No curves: the run kept no metrics.")]),
    ]


def _topology(folder: Path, result: Json) -> list[Html]:
    graph = result.get("topology") or {}
    rho, gap = number(graph.get("rho")), number(graph.get("spectral_gap"))
    weights = [w for w in map(number, graph.get("self_weight") or []) if w is not None]
    edges, drawing = len(graph.get("edges") or []), _figures(folder, "topology")
    parts = [f"{capitalised(_article(topology_name(graph)))} with {edges} edge{'' if edges == 1 else 's'}."]
    if rho is not None:
        pace = " Each round of gossip shrinks disagreement at least by the factor ρ" if rho > 0 else " One round agrees"
        parts.append(f"{pace} = {rho:.4f} (spectral gap 1 − ρ = {gap:.4f})." if rho > 0 and gap else f"{pace}: ρ = 0.")
    if weights:
        low, high = min(weights), max(weights)
        parts.append(f" Self weight |w_ii|: {low:.3f}" + ("." if low == high else f" to {high:.3f}."))
    if not drawing:
        parts.append(" The graph is too large to draw.")
    return [tag("h2", "Topology"), tag("p", *parts), *drawing] if graph else []


def _theorem(result: Json) -> list[Html]:
    """Which case of the theorem applies, and every condition once, with its margin and the cases that ask for it."""
    theorem = result.get("theorem") or {}
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


BIBTEX = """@inproceedings{chen2024locally,
  title     = {Locally Differentially Private Decentralized Stochastic Bilevel Optimization
               with Guaranteed Convergence Accuracy},
  author    = {Chen, Ziqin and Wang, Yongqiang},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series    = {Proceedings of Machine Learning Research},
  volume    = {235},
  year      = {2024}
}"""


def _scenario_and_citation(folder: Path) -> list[Html]:
    text = scenario_text(folder)
    summary = tag("summary", "The scenario, fully resolved")
    missing = tag("p", "The folder holds no scenario.toml.")
    cite = (
        "Algorithm and convergence theorem (Theorem 4.1): Z. Chen and Y. Wang, Locally Differentially Private "
        "Decentralized Stochastic Bilevel Optimization with Guaranteed Convergence Accuracy, ICML 2024, PMLR 235."
    )
    own = (
        "The certified number is decentral_dp's own analysis, not the paper's Theorem 4.5. "
        "Do not cite the paper for it; state the adjacency, δ and protocol given above."
    )
    return [
        tag("h2", "Scenario"),
        tag("details", summary, tag("pre", text)) if text else missing,
        tag("h2", "How to cite"),
        tag("p", cite),
        tag("p", tag("strong", own)),
        tag("details", tag("summary", "BibTeX"), tag("pre", BIBTEX)),
    ]


STYLE = """
:root{--ink:#1b1f24;--soft:#59636e;--line:#d9dee3;--page:#fff;--card:#f6f8fa;--accent:#0072b2;
--good:#e6f4ee;--good-ink:#00664a;--warn:#fdf3da;--warn-ink:#7a5200;--bad:#fbe6df;--bad-ink:#9c3d00}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,"Segoe UI",Roboto,sans-serif}
main{max-width:68rem;margin:0 auto;padding:2.2rem 1.2rem 4rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .6rem;text-wrap:balance}
h2{font-size:1.3rem;margin:2.6rem 0 .8rem;padding-top:1.1rem;border-top:1px solid var(--line)}
h3{font-size:1.02rem;margin:1.2rem 0 .3rem}
p,ul{max-width:46rem;margin:.6rem 0;text-wrap:pretty}
ul{padding-left:1.2rem}
.lead{font-size:1.15rem;max-width:52rem}
.small,small,figcaption{color:var(--soft);font-size:.9rem}
code,pre{font:.88em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--card);border-radius:8px;padding:.9rem 1rem;overflow-x:auto}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.8rem;margin:1.4rem 0}
.tile{background:var(--card);border-radius:10px;padding:.8rem 1rem}
.tile dt{color:var(--soft);font-size:.9rem}
.tile dd{margin:0;font-size:1.7rem;font-weight:650;line-height:1.3}
.facts{display:grid;grid-template-columns:minmax(8rem,max-content) 1fr;gap:.3rem 1.4rem;margin:.6rem 0}
.facts dt{color:var(--soft)}
.facts dd{margin:0;overflow-wrap:anywhere}
.note{max-width:none;border-radius:8px;padding:.75rem 1rem;margin:.9rem 0;border-left:4px solid currentColor}
.note.good{background:var(--good);border-color:var(--good-ink)}
.note.warn{background:var(--warn);border-color:var(--warn-ink)}
.note.bad{background:var(--bad);border-color:var(--bad-ink)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(17rem,1fr));gap:0 2rem}
.wide{overflow-x:auto;margin:.8rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.94rem}
th,td{padding:.32rem .8rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
thead th{font-weight:600;color:var(--soft);font-size:.86rem}
thead th[colspan]{text-align:center}
tbody th{font-weight:500}
td.claimed{color:var(--soft);font-style:italic}
td.good{color:var(--good-ink)}
td.bad{color:var(--bad-ink);font-weight:600}
.formula{white-space:nowrap}
sub,sup{font-size:.75em;line-height:0}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,28rem),1fr));gap:1.4rem;margin:1.2rem 0}
figure{margin:0}
figure img{width:100%;max-width:44rem;height:auto;display:block;border-radius:6px}
figcaption{margin-top:.3rem}
summary{cursor:pointer;color:var(--accent)}
@media screen and (prefers-color-scheme:dark){
:root{--ink:#e6e8eb;--soft:#9aa4af;--line:#333a42;--page:#14171a;--card:#1d2125;--accent:#6cb6e6;
--good:#12291f;--good-ink:#5fcf9f;--warn:#2e2512;--warn-ink:#e3b341;--bad:#331d14;--bad-ink:#ff9b6b}
figure img{filter:invert(.915) hue-rotate(180deg)}}
@media (max-width:40rem){.facts{grid-template-columns:1fr;gap:0}.facts dd{margin-bottom:.5rem}h1{font-size:1.5rem}}
@media print{body{font-size:10.5pt}main{max-width:none;padding:0}figure,tr,.note,.tile,.pair{break-inside:avoid}
.figures{grid-template-columns:1fr 1fr}
h2,h3{break-after:avoid}.wide{overflow:visible}pre{white-space:pre-wrap}summary{display:none}
details::details-content{content-visibility:visible;display:block;height:auto;opacity:1}}
"""
