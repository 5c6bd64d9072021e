"""Pages from templates: a run's page, and the views of runs and plans in notebooks."""

from __future__ import annotations

import base64
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from decentral_dp import formatting
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.bounded import SPLITS
from decentral_dp.errors import Stopped, printable
from decentral_dp.files.durable import write_whole
from decentral_dp.files.regular import own
from decentral_dp.formatting import (
    agent_names,
    capitalise,
    delta_text,
    epsilon_text,
    graph_text,
    power_text,
    score_text,
    sentence,
    spans,
    topology_name,
)
from decentral_dp.problems import PROBLEMS
from decentral_dp.reporting.report import (
    Drawing,
    baselines_in,
    compare_with_baselines,
    head_of,
    judge_of,
    method_lines,
    network_text,
    predicts,
    read_drawing,
    read_scenario,
    scenario_text,
    score_notes,
)
from decentral_dp.simulation.metrics import ENDINGS, JUDGES, MEASURES
from decentral_dp.simulation.result import RunResult, mode_of
from decentral_dp.simulation.statement import Cost, PrivacyStatement


def write_report(folder: Path, drawing: Drawing | None = None) -> Path:
    """Write `folder/report.html` and return its path; the figures are drawn if the folder has none yet.

    The page inlines `plots/*.png` and loads nothing from anywhere.

    Args:
        folder: of the run.
        drawing: its content; by default it is read.

    Raises:
        InputError: `folder` holds no readable result.json.
    """
    drawing = drawing or read_drawing(folder)
    # The folder's scenario also names components that were Python objects.
    result, scenario = drawing.result, read_scenario(folder)
    if not any((folder / "plots").glob("*.png")):
        # Only here: drawing imports matplotlib, and the figures of a run are usually there already.
        from decentral_dp.reporting.plots import write_plots

        write_plots(folder, drawing=drawing)
    privacy = result.privacy
    entry = ALGORITHMS.get(str(scenario.get("algorithm", {}).get("kind")))
    # What a coordinator's program has settled by itself stands in the result, all else in the scenario.
    ran = result.algorithm or scenario.get("algorithm", {})
    settled = ran.get("settled", ran)
    steps = {k: v for k, v in settled.items() if isinstance(v, Mapping) and "scale" in v}
    # Of what is settled all but a share of 1, which is no sample; else the algorithm's own numbers, as inner = 10.
    plain = {k: v for k, v in settled.items() if k not in steps and (k, v) != ("rate", 1.0)}
    if "settled" not in ran:
        plain = {k: v for k, v in plain.items() if type(v) in (int, float) and k != "rounds"}
    # A scale for what reads no record adds no noise, as a clip of it bounds nothing.
    scales = {k: v for k, v in scenario.get("privacy", {}).items() if isinstance(v, Mapping) and "scale" in v}
    reason = sentence(result.reason).removeprefix(f"stopped after round {result.rounds} of {result.rounds_planned}: ")
    x = drawing.x
    shared = _shared_parts(result, baselines_in(folder))
    stated = {text for _, text in shared["lines"]}
    plots = sorted(own(path, folder, "report") for path in (folder / "plots").glob("*.png"))
    markup = render(
        "run",
        **shared,
        title=result.title or scenario.get("title") or "A run without a title",
        scenario=scenario,
        scenario_text=scenario_text(folder),
        # A single letter is a variable and stays as it is.
        reason=capitalise(reason) if len(reason.split()[0]) > 1 else reason,
        ran=ran,
        steps=steps,
        plain=plain,
        noises={k: v for k, v in scales.items() if privacy.clip is None or k in privacy.clip},
        notes=[(head, under) for head, under in privacy.grouped_notes if head not in stated],
        # Of one level and of minimax problems all records are of one kind.
        two_kinds=not (result.is_one_level or result.is_minimax),
        price_kinds=[k for k in SPLITS if any(k in price.price for price in privacy.prices)],
        # Beyond so many coordinates x is drawn, not listed.
        x=x.reshape(-1).tolist() if x is not None and result.algorithm and 0 < x.size <= _LISTED_COORDINATES else None,
        predicts=predicts(result),
        network=network_text(result),
        pictures={path.stem: path.read_bytes() for path in plots},
        algorithm=entry,
        kind=str(ran.get("kind") or ""),
        citations=() if entry is None else entry.citations,
    )
    path = folder / "report.html"
    write_whole(path, markup.encode(), mode_of(folder))
    return path


def draw_run(folder: Path, drawing: Drawing | None = None) -> None:
    """Draw the pictures and the page of a complete run; what cannot be drawn now can be drawn later.

    Args:
        folder: of the run.
        drawing: its content; by default it is read.

    Raises:
        Stopped: interrupted.
        OSError: a file cannot be written.
    """
    from decentral_dp.reporting.plots import write_plots

    later = f'The run is complete and in {folder}; "decentral-dp report {folder}" draws its plots and its page.'
    try:
        drawing = drawing or read_drawing(folder)
        write_plots(folder, drawing=drawing)
        write_report(folder, drawing)
    except KeyboardInterrupt:
        raise Stopped(f"Interrupted. {later}") from None
    except OSError as error:
        raise OSError(f"{error}. {later}") from error


def run_view(result: RunResult, pictures: Iterable[bytes] = (), baselines: Mapping[str, RunResult] = {}) -> str:
    """Markup of a run for a notebook.

    Args:
        result: its numbers.
        pictures: PNGs.
        baselines: of the runs that it is judged by.
    """
    shared = _shared_parts(result, baselines)
    if result.status != "ok":
        shared["lines"].insert(0, (result.status.replace("_", " "), sentence(result.reason)))
    return render("run_view", **shared, pictures=pictures)


def _shared_parts(result: RunResult, baselines: Mapping[str, RunResult]) -> dict[str, Any]:
    """Values that the page and the notebook share."""
    kind, one_level = result.problem["kind"], result.is_one_level
    known, judge = PROBLEMS.get(kind), None
    task = (known and known.task) or f"solved the {result.problem['solves']} problem {kind}"
    if not result.tunes_x:
        task = (known and known.lower_task) or f"minimised the {'train' if one_level else 'lower'} loss of {kind}"
    loss, score = "upper_loss" if result.tunes_x else "lower_loss", ""
    if (name := judge_of(result)) is not None:
        word, digits = JUDGES[name]
        judge = {"name": name, "word": word, "text": f"{result.score(name):.{digits}f}"}
        score = f"{'' if result.privacy.is_trusted else 'mean '}held-out {word} {judge['text']}"
    elif (value := result.score(loss)) is not None:
        final = "" if result.has_diverged or result.privacy.is_trusted else "final "
        word = "train loss" if one_level and not result.tunes_x else loss.replace("_", " ")
        score = f"{final}{word} {power_text(value)}"
    return {
        "result": result,
        "task": task,
        "judge": judge,
        "score": score,
        "lines": [*method_lines(result), *result.privacy.lines],
        "budgets": _budget_table(result.privacy, result.topology),
        "scores": _score_tables(result),
        "baselines": compare_with_baselines(result, baselines),
    }


def plan_view(title: str, privacy: PrivacyStatement, graph: Mapping[str, Any], settings: str, method: str) -> str:
    """Markup of a plan for a notebook; graph: as in `result.json`; settings: those of training, or ""."""
    line = f"{capitalise(topology_name(graph))}, {graph['weights']} weights: {graph_text(graph)}."
    plays_a_part = not (privacy.network_text or graph["central"] or graph["agents"] == 1)
    return render(
        "plan_view",
        title=title,
        privacy=privacy,
        graph_line=" ".join([line, *(f"{capitalise(n)}." for n in graph["notes"])]) if plays_a_part else "",
        method=method,
        settings=settings,
        budgets=_budget_table(privacy, graph),
    )


_LISTED_COORDINATES = 4


class _Scores(NamedTuple):
    """Metrics at the end: rows (label, texts), those of other states than the published one, and notes by head."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    others: Sequence[tuple[str, Sequence[str]]]
    notes: Sequence[tuple[str, Sequence[str]]]


# Where x is not tuned there is no upper level, and agents never differ in x.
_OF_X = ("upper_loss", "consensus_x", "hypergradient_")


def _score_tables(result: RunResult) -> _Scores:
    metrics, local = result.metrics, not result.privacy.is_trusted
    columns = ("Metric", "Mean over agents", "Lowest agent", "Highest agent") if local else ("Metric", "Value")
    order, named = list(MEASURES), []
    rows: list[tuple[str, Sequence[str]]] = []
    others: list[tuple[str, Sequence[str]]] = []
    for name in metrics:
        ending = next((e for e in ("_last", "_unreleased") if name.endswith(e)), "")
        stem = name.removesuffix(ending)
        if (
            stem.endswith(("_min", "_max"))
            or name == "epsilon_spent"
            or (not result.tunes_x and name.startswith(_OF_X))
        ):
            continue
        named.append((order.index(stem) if stem in order else len(order), name, stem, ending))
    for _, name, stem, ending in sorted(named, key=lambda row: row[0]):
        label = capitalise(MEASURES[stem].label if stem in MEASURES else stem.replace("_", " "))
        if stem == "lower_loss" and result.is_one_level:
            label = "Train loss (regulariser included)"
        label += ENDINGS[ending][0] if ending and local else ""
        ends = [metrics.get(f"{name}_{side}", metrics.get(f"{stem}_{side}{ending}")) for side in ("min", "max")]
        values = [metrics[name], *ends][: len(columns) - 1]
        texts = ["" if v is None else score_text(v) if abs(v) >= 1e3 else power_text(v, pad=True) for v in values]
        (others if ending and stem in metrics else rows).append((label, texts))
    notes = groupby(score_notes(result), key=lambda note: note[0])
    return _Scores(columns, rows, others, [(head, [text for _, text in of]) for head, of in notes])


class _Column(NamedTuple):
    """A column of the budget table: its group, its name, and the ε of each row."""

    group: str
    name: str
    values: Sequence[float | None]
    is_claimed: bool = False


class _BudgetTable(NamedTuple):
    """ε of every agent: groups of columns with their widths, columns, and rows (agents, texts)."""

    groups: Sequence[tuple[str, int]]
    columns: Sequence[_Column]
    rows: Sequence[tuple[str, Sequence[str]]]


_LISTED_AGENTS, _WORST_AGENTS, _LONGEST_NAMES = 30, 5, 60


def _budget_table(privacy: PrivacyStatement, graph: Mapping[str, Any]) -> _BudgetTable | None:
    """Every agent's ε by channel and kind of record; of many agents a summary and the most expensive.

    Args:
        privacy: of the run or plan; None is returned if there is no noise.
        graph: as in `result.json`, for the names of agents.
    """
    budgets, claim, names = privacy.agents, privacy.claimed, agent_names(graph.get("labels"))
    if not privacy.is_noisy or not budgets:
        return None
    # Agents that cost alike may have claims that differ.
    claims = claim.agents if claim is not None else ()
    rows = budgets[:] if claims else budgets.different
    members = [[k] for k in range(len(budgets))] if claims else budgets.members()
    at = f"ε at δ = {delta_text(privacy.delta)}"
    columns = [
        _Column("Whole run", at, [row.epsilon for row in rows]),
        _Column("Whole run", "pure ε (δ = 0)", [row.epsilon_pure for row in rows]),
    ]
    if claim is not None and claims:
        # A claim without a δ of its own is of pure ε.
        name = f"ε at δ = {delta_text(claim.delta)}" if claim.delta else "pure ε"
        columns.append(_Column("Claimed, not certified", name, claims, is_claimed=True))
    for channel in rows[0].channels:
        if channel in privacy.free_channels:
            continue
        costs = [row.channels.get(channel, Cost()) for row in rows]
        columns.append(_Column(f"Channel {channel}", "ε", [cost.epsilon for cost in costs]))
        if not claims and any(cost.epsilon_pure is not None and math.isfinite(cost.epsilon_pure) for cost in costs):
            columns.append(_Column(f"Channel {channel}", "pure ε", [cost.epsilon_pure for cost in costs]))
    # Of one kind the cost of a record is that of the whole run.
    kinds = rows[0].records if len(rows[0].records) > 1 else ()
    columns += [_Column("ε of one record", kind, [row.records.get(kind) for row in rows]) for kind in kinds]
    values = list(zip(*(column.values for column in columns), strict=True))
    merged: dict[tuple[str, ...], list[int]] = {}
    for agents, row in zip(members, values, strict=True):
        merged.setdefault(tuple(map(epsilon_text, row)), []).extend(agents)
    total = len(budgets)
    named = names or [str(agent) for agent in range(total)]
    body = [(_agents_text(sorted(of), named, bool(names)), shown) for shown, of in merged.items()]
    if len(merged) > _LISTED_AGENTS:
        each = [row for agents, row in zip(members, values, strict=True) for _ in agents]
        stacked = [[v for v in column if v is not None] or [math.nan] for column in zip(*each, strict=True)]
        body = [
            (f"{label} of {total}", tuple(epsilon_text(pick(v)) for v in stacked))
            for label, pick in (("lowest", min), ("median", statistics.median), ("highest", max))
        ]
        by_cost = sorted(range(len(members)), key=lambda row: [-(v or 0.0) for v in values[row]])[:_WORST_AGENTS]
        worst = [(agent, row) for row in by_cost for agent in members[row]][:_WORST_AGENTS]
        body += [(f"agent {named[agent]}", tuple(map(epsilon_text, values[row]))) for agent, row in worst]
    groups = [(group, len(list(of))) for group, of in groupby(column.group for column in columns)]
    return _BudgetTable(groups, columns, body)


def _agents_text(agents: Sequence[int], names: Sequence[str], named: bool) -> str:
    """ "0–3, 7", "Bern, Zug", or how many where that would be long."""
    if len(agents) == len(names) > 1:
        return f"all {len(names)}"
    listed = [names[agent] for agent in agents]
    text = ", ".join(listed if named else spans(listed))
    if len(text) <= (_LONGEST_NAMES if named else 24) or len(agents) == 1:
        return text
    return f"{len(agents)} agents{f', {listed[0]} among them' if named else ''}"


# A number, and what it is the value of: "δ = 1e-5", "0.590 ± 0.02".
_NUMBERS = re.compile(r"((?:\S+ = )?[-−]?\d[\d.]*(?:e[-+]?\d+)?(?: ± [\d.]+)?)")


def render(template: str, **values: Any) -> str:
    """Render a template of this package.

    Args:
        template: its name without the ending.
        values: of its variables.
    """
    return environment().get_template(f"{template}.html.j2").render(values).strip() + "\n"


def unbroken(text: str) -> Markup:
    """Keep every number of a text on one line, however narrow its column is."""
    return Markup("").join(
        Markup('<span class="unbroken">{}</span>').format(part) if k % 2 and len(part) > 1 else escape(part)
        for k, part in enumerate(_NUMBERS.split(printable(text)))
    )


def breakable(text: str) -> Markup:
    """Allow a break after an underscore, or after a dot between keys, in a narrow column."""
    return Markup("<wbr>").join(unbroken(part) for part in re.split(r"(?<=_)|(?<=\.)(?=[a-z])", text))


def formula(text: str) -> Markup:
    """Write `_i`, `_(t−1)` and `^-0.5` of a plain text as subscripts and superscripts."""
    parts = re.split(r"([_^])(-?\w+(?:\.\w+)?|\([^()]*\))", printable(text))
    marks = [escape(parts[0])]
    for sign, mark, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        element = Markup("<sub>{}</sub>") if sign == "_" else Markup("<sup>{}</sup>")
        marks += [element.format(mark.strip("()").replace("-", "−")), escape(rest)]
    return Markup('<span class="formula">{}</span>').format(Markup("").join(marks))


def with_formulas(sentence: str) -> Markup:
    """Write the words of a sentence that are formulas, such as ∇_y, as `formula` does."""
    words = (formula(word) if re.search("[_^]", word) else escape(printable(word)) for word in sentence.split(" "))
    return Markup(" ").join(words)


def _data_uri(png: bytes) -> Markup:
    return Markup(f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}")


_NUMERALS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"]


def _agent_count(count: int) -> str:
    """ "Ten agents", at the start of a sentence."""
    return f"{_NUMERALS[count] if count < len(_NUMERALS) else count} {'agent' if count == 1 else 'agents'}"


def _margin(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{formatting.power_text(abs(value))}"


@cache
def environment() -> Environment:
    """Make the environment of templates, once."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        lstrip_blocks=True,
        # Only markup of templates and of this module is not text.
        finalize=lambda value: printable(value) if isinstance(value, str) and type(value) is not Markup else value,
    )
    texts = {name.removesuffix("_text"): f for name, f in vars(formatting).items() if name.endswith("_text")}
    made.filters |= texts | {
        "article": formatting.article,
        "capitalise": formatting.capitalise,
        "graph_noun": formatting.graph_noun,
        "topology_name": formatting.topology_name,
        "agents": _agent_count,
        "breakable": breakable,
        "data_uri": _data_uri,
        "formula": formula,
        "head": head_of,
        "margin": _margin,
        "minus": lambda text: str(text).replace("-", "−"),
        "number": lambda value: None if value is None else float(value),
        "unbroken": unbroken,
        "with_formulas": with_formulas,
    }
    return made
