"""Report of a run: the numbers, tables and sentences that its page, its figures and the terminal show.

`read_report` reads a run folder once and returns a `Report`. Pages and figures render it and read nothing else.
"""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import converting
from decentral_dp.files.exports import Columns
from decentral_dp.files.regular import own
from decentral_dp.formatting import agent_names, delta_text, epsilon_text, power_text, score_text, sentence, spans
from decentral_dp.problems import PROBLEMS
from decentral_dp.reporting.privacy import privacy_lines, stated_epsilons
from decentral_dp.simulation.metrics import JUDGES, MEASURES, scored_agents
from decentral_dp.simulation.result import (
    BASELINES_FOLDER,
    RunResult,
    further_seeds,
    is_complete,
    published_values,
    read_result,
)
from decentral_dp.simulation.statement import Cost, PrivacyStatement
from decentral_dp.simulation.statistics import over_seeds

if TYPE_CHECKING:
    import pandas as pd

# Baseline → its name in tables.
BASELINES = {"alone": "each agent alone", "central": "a trusted server", "none": "this network without noise"}
# Axes in float64 cannot hold larger values.
OVERFLOW = 1e100
# A run with fewer rounds has too few evaluations to detect a loss that still decreases.
_FEW_ROUNDS = 10
_METRIC_TYPES = {"round": "int64", "agent": "str", "name": "str", "value": "float64"}


class TextTable(NamedTuple):
    """Table of texts.

    Args:
        heads: name of each column, and the text below the name.
        numbers: whether a column holds numbers.
        rows: text of each cell.
        sorted_by: sort key of each cell, row by row; None sorts by the text.
        note: text below the table.
    """

    heads: Sequence[tuple[str, str]]
    numbers: Sequence[bool]
    rows: Sequence[Sequence[str]]
    sorted_by: Sequence[Sequence[float | None]] = ()
    note: str = ""


class Curve(NamedTuple):
    """Mean, lowest and highest value of a metric over agents by round, (T,); NaN from overflow, first at `overflow`."""

    rounds: Array
    mean: Array
    low: Array
    high: Array
    overflow: int | None

    @property
    def ends(self) -> tuple[float, float]:
        """First and last finite mean."""
        finite = self.mean[np.isfinite(self.mean)]
        return (float(finite[0]), float(finite[-1])) if finite.size else (math.nan, math.nan)


class ScoreTable(NamedTuple):
    """Metrics of the last evaluation.

    Args:
        columns: headings of the columns.
        rows: name and texts of each metric of the published values.
        others: name and texts of these metrics for other values.
        notes: heading and sentences of each group of notes.
    """

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    others: Sequence[tuple[str, Sequence[str]]]
    notes: Sequence[tuple[str, Sequence[str]]]


class BudgetColumn(NamedTuple):
    """Column of the budget table: short names of its group and of the column, and ε of each row."""

    group: str
    name: str
    head: str
    values: Sequence[float | None]
    is_claimed: bool = False


class BudgetTable(NamedTuple):
    """Table of ε of every agent: groups of columns with their widths, columns, and rows (agents, texts)."""

    groups: Sequence[tuple[str, int]]
    columns: Sequence[BudgetColumn]
    rows: Sequence[tuple[str, Sequence[str]]]


class BaselineComparison(NamedTuple):
    """Run next to its baselines.

    Args:
        table: scores and ε of the majority class, the run and each baseline.
        sentence: differences in the main score; "" if the run has no main score.
        price: total privacy cost of the run and its baselines.
    """

    table: TextTable
    sentence: str
    price: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Report:
    """Content of the report of a run, for pages, figures and the terminal.

    Args:
        result: content of `result.json`.
        scenario: all keys with their values; empty if the folder has no readable scenario.
        scenario_text: keys of the scenario as TOML.
        metrics: table with the columns round, agent, name, value.
        x: last published values of x, (m, p); None if the run has none.
        task: problem that was solved, as a verb phrase.
        judge: name and text of the main score; None if the run has none.
        score: main score or loss, in words.
        evaluated: evaluated values, in words.
        lines: heading and sentence of each note on data, algorithm and privacy.
        budgets: table of ε of every agent; None without noise.
        scores: metrics of the last evaluation.
        baselines: comparison with the baselines; None if the run has none.
        sites: scores of each agent's held-out records; None if they are not scored.
        non_private: last metrics of the same network without noise; empty if it was not run.
    """

    result: RunResult
    scenario: Mapping[str, Any]
    scenario_text: str
    metrics: Columns
    x: Array | None
    task: str
    judge: Mapping[str, str] | None
    score: str
    evaluated: str
    lines: Sequence[tuple[str, str]]
    budgets: BudgetTable | None
    scores: ScoreTable
    baselines: BaselineComparison | None
    sites: TextTable | None
    non_private: Mapping[str, float | None] = field(default_factory=dict)

    def curve(self, name: str) -> Curve | None:
        """Return a score over rounds, for the published values or, if missing, for the exact lower solution."""
        return curve(self.metrics, f"{name}_unreleased" if self.result.solves_lower else name)


def read_report(folder: Path) -> Report:
    """Read the report of a complete run folder.

    Raises:
        InputError: the folder has no result.json, or contains a damaged file.
    """
    result, text = read_result(folder), scenario_text(folder)
    runs = [(result, folder), *((read_result(path), path) for path in further_seeds(folder))]
    return make_report(
        result,
        parse_scenario(text),
        read_metrics(folder / "metrics.parquet"),
        published_values(folder, str(folder), ["x"]).get("x") if (folder / "state.npz").exists() else None,
        [(each, _baselines_in(place, folder)) for each, place in runs],
        text,
    )


def _baselines_in(place: Path, folder: Path) -> dict[str, RunResult]:
    """Read the results of the complete baselines of a run in `folder`, or of one of its further seeds."""
    places = {path.name: own(path, folder, str(folder)) for path in sorted((place / BASELINES_FOLDER).glob("*"))}
    return {name: read_result(path) for name, path in places.items() if path.is_dir() and is_complete(path)}


def make_report(
    result: RunResult,
    scenario: Mapping[str, Any],
    metrics: Columns,
    x: Array | None,
    compared: Sequence[tuple[RunResult, Mapping[str, RunResult]]],
    text: str = "",
) -> Report:
    """Build the report of a run from its results.

    Args:
        result: result of the run.
        scenario: see `Report`.
        metrics: see `Report`.
        x: see `Report`.
        compared: result of the run, and "alone", "central", "none" → result of that baseline, for each seed.
        text: scenario as TOML, if there is a folder.
    """
    problem, trusted = result.problem, result.privacy.is_trusted
    entry = PROBLEMS.get(problem["kind"])
    if result.tunes_x:
        task = (entry and entry.task) or f"solved the {problem['solves']} problem {problem['kind']}"
    else:
        level = "train" if result.is_one_level else "lower"
        task = (entry and entry.lower_task) or f"minimised the {level} loss of {problem['kind']}"
    loss, score, judge = "upper_loss" if result.tunes_x else "lower_loss", "", None
    if (name := result.judge) is not None:
        judge = {"name": name, "text": f"{result.score(name):.{JUDGES[name]}f}"}
        averaged = " of the averaged model" if result.scores_average else ""
        score = f"{'' if trusted or averaged else 'mean '}{name}{averaged} {judge['text']}"
    elif (value := result.score(loss)) is not None:
        final = "" if result.has_diverged or trusted else "final "
        score = f"{final}{loss} {power_text(value)}"
    return Report(
        result=result,
        scenario=scenario,
        scenario_text=text,
        metrics=metrics,
        x=x,
        task=task,
        judge=judge,
        score=score,
        evaluated=evaluated_text(result),
        lines=[*method_lines(result), *privacy_lines(result.privacy)],
        budgets=tabulate_budgets(result.privacy, result.topology),
        scores=_tabulate_scores(result),
        baselines=compare_with_baselines(compared),
        sites=tabulate_sites(result),
        non_private=compared[0][1]["none"].metrics if "none" in compared[0][1] else {},
    )


def scenario_text(folder: Path) -> str:
    """Return the scenario of a run folder as text; "" if there is none."""
    path = folder / "scenario.toml"
    return own(path, folder, str(folder)).read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def parse_scenario(text: str) -> dict[str, Any]:
    """Parse the scenario of a run folder; return an empty dict if it is damaged, since a page does not need it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def read_metrics(path: Path) -> pd.DataFrame:
    """Read the metrics of a run as rows (round, agent, name, value); empty if nothing was measured.

    Raises:
        InputError: the file is damaged, or its columns have unexpected types.
    """
    # Slow to import, and a run that ends is drawn from memory.
    import pandas as pd

    nothing = pd.DataFrame(columns=list(_METRIC_TYPES)).astype(_METRIC_TYPES)
    if not own(path, path.parent, str(path)).exists():
        return nothing
    # Errors of Arrow are among these.
    unreadable = converting(
        (ValueError, TypeError, RuntimeError, OSError),
        lambda e: f"{path}: cannot be read ({' '.join(str(e).split()).rstrip('.')}). Fix: run the scenario again.",
    )
    with unreadable:
        frame = pd.read_parquet(path)
        if not set(_METRIC_TYPES) <= set(frame):
            return nothing
        types = {name: pd.api.types.infer_dtype(frame[name], skipna=False) for name in ("agent", "name")}
        wrong = [n for n, kind in types.items() if kind not in ("string", "empty") or frame[n].isna().any()]
        wrong += [name for name in ("round", "value") if not pd.api.types.is_numeric_dtype(frame[name])]
        if wrong:
            raise ValueError(f"column {wrong[0]} has values of another type")
        return frame.astype({"round": "int64", "value": "float64"})


def curve(metrics: Columns, name: str) -> Curve | None:
    """Return a metric over rounds; None if it is missing.

    Its band is given by `…_min` and `…_max`, or by the rows of agents if these are missing.

    Args:
        metrics: table with the columns round, agent, name, value.
        name: name of the metric.
    """
    stem, last = (name.removesuffix("_last"), "_last") if name.endswith("_last") else (name, "")
    agents, names = np.asarray(metrics["agent"]), np.asarray(metrics["name"])
    every_round, every_value = np.asarray(metrics["round"]), np.asarray(metrics["value"], dtype=np.float64)

    def means(metric: str) -> dict[float, float]:
        rows = np.flatnonzero((names == metric) & (agents == "mean"))
        return dict(zip(every_round[rows].tolist(), every_value[rows].tolist(), strict=True))

    rows = np.flatnonzero((names == name) & (agents != "mean"))
    rows = rows[np.argsort(every_round[rows], kind="stable")]
    times, first = np.unique(every_round[rows], return_index=True)
    # Not strict: no rows are split into one part, which is empty.
    by_agent = dict(zip(times.tolist(), np.split(every_value[rows], first[1:]), strict=False))
    mean = means(name) or {t: float(np.mean(values)) for t, values in by_agent.items()}
    if not mean:
        return None
    lines = [mean]
    for side, extreme in (("min", np.min), ("max", np.max)):
        extremes = means(f"{name}_{side}") or means(f"{stem}_{side}{last}")
        lines.append(extremes or {t: float(extreme(values)) for t, values in by_agent.items()} or mean)
    rounds = np.array(sorted(mean), dtype=np.float64)
    values = np.array([[line.get(t, np.nan) for t in rounds.tolist()] for line in lines])
    drawable = np.where(np.abs(values) < OVERFLOW, values, np.nan)
    bad = rounds[~np.isfinite(drawable[0])]
    return Curve(rounds, drawable[0], drawable[1], drawable[2], int(bad[0]) if bad.size else None)


def method_lines(result: RunResult) -> list[tuple[str, str]]:
    """Return headings and sentences of notes on the data, the algorithm and its settings."""
    lines = [("Data", note) for note in result.problem["notes"]]
    lines += [("Warning", text) for text in result.problem["warnings"]]
    lines += [("Algorithm", f"{result.method}.")] if result.method else []
    return [*lines, ("Settings", result.problem["settings"])] if result.problem.get("settings") else lines


def reason_text(result: RunResult) -> str:
    """Return the reason why a run ended early or diverged, in sentences; "" if it ended as planned."""
    if (cause := result.divergence) is None:
        return "" if result.status == "ok" else sentence(result.reason)
    if cause.is_released:
        growth = "grew above 10⁶ times its public scale" if cause.is_finite else "stopped being finite"
        return (
            f"the released value of {cause.name} {growth} at round {result.rounds}; metrics are kept up to the last "
            "evaluation before it. Use smaller step sizes or a start nearer to 0. "
            '"decentral-dp plan" warns of unstable step sizes and momentum.'
        )
    if cause.first is None:
        return "what is minimised is not finite at the published x. Use smaller step sizes."
    last = f"{cause.last:.3g}" if cause.is_finite else "a value that is not finite"
    return (
        f"{cause.name} grew from {cause.first:.3g} to {last}, more than 1000 times max(start, 1), by an evaluation "
        "that no ε covers. Use smaller step sizes or a start nearer to 0. "
        '"decentral-dp plan" warns of unstable step sizes and momentum.'
    )


def skew_text(label_skew: float) -> str:
    """Write the label skew of the agents.

    Example:
        >>> skew_text(0.314)
        'Labels of an agent differ from those of all by 0.31 in total variation (mean). ε does not cover this number.'
    """
    return (
        f"Labels of an agent differ from those of all by {label_skew:.2f} in total variation (mean). ε does not cover "
        "this number."
    )


def _percent(share: float) -> str:
    """Write a share with two digits, above 0.995 as 100%."""
    return f"{100.0 * share:.2g}%" if share < 0.995 else "100%"


def score_notes(result: RunResult, brief: bool = False) -> list[tuple[str, str]]:
    """Return notes on the scores: baselines, clipped fractions, failed callbacks and advice, with their headings.

    Args:
        result: result of the run.
        brief: whether to omit baselines, and only count features outside their range.
    """
    notes = []
    guesses = (("Majority-class baseline", ("test_accuracy",)), ("Mean-label baseline", ("test_rmse", "test_r2")))
    for guess, names in () if brief else guesses:
        # R² of the mean train label is 0 except for chance; + 0.0 removes its sign.
        scores = [f"{n} {score_text(round(result.baselines[n], 4) + 0.0)}" for n in names if n in result.baselines]
        notes += [("", f"{guess}: {', '.join(scores)}.")] if scores else []
    clipped = []
    # Envelopes are losses whose gradients are never longer than the clip.
    if result.clipped and "method" not in (result.privacy.clip or {}):
        shares = ", ".join(
            f"{share:.0%}" if len(result.clipped) == 1 else f"{c} {share:.0%}" for c, share in result.clipped.items()
        )
        clipped.append(f"gradients {shares}")
    if features := result.features_cut:
        most = max(features.values())
        few = f"values of {len(features)} feature{'s' * (len(features) > 1)} (up to {_percent(most)})"
        listed = ", ".join(f"{name} {_percent(share)}" for name, share in list(features.items())[:5])
        more = f" and less of {len(features) - 5} others" if len(features) > 5 else ""
        clipped.append(few if brief else f"values outside problem.scale: {listed}{more}")
    if result.labels_cut:
        clipped.append(f"{result.labels_cut:.1%} of the labels, to problem.label_range")
    notes += [("Clipped", f"{'; '.join(clipped)}.")] if clipped else []
    notes += [("Skew", skew_text(result.label_skew))] if result.label_skew is not None and not brief else []
    return notes + [("Warning", text) for text in _warnings(result)]


def _warnings(result: RunResult) -> list[str]:
    """Return sentences on metrics that were not computed, on failed callbacks, and on a run that learned little."""
    out = []
    if result.absent_measures:
        out.append(f"Not measured, for this run has none: {', '.join(result.absent_measures)} (run.measures).")
    for failure in result.failed_callbacks:
        moment = "the end" if failure.done is None else f"round {failure.done}"
        out.append(f"The callback {failure.callback} failed at {moment} ({failure.error}). Results do not change.")
    if result.status == "ok" and result.rounds < (result.rounds_planned or 0):
        planned = result.rounds_planned
        out.append(f"`stop` ended the run after {result.rounds} of {planned} rounds. ε is that of all {planned}.")
    if cut := [name for name, share in result.features_cut.items() if share > 0.5]:
        others = f" and {len(cut) - 1} others" if len(cut) > 1 else ""
        out.append(f"Most values of {cut[0]}{others} lie outside problem.scale. Fix: correct problem.scale.")
    if (score := result.weak_score) is not None:
        records = f"{result.problem['records']['test']} held-out records"
        if score.name == "test_auc":
            text = f"test AUC of {score.value:.3f} over {records} does not exceed {score.baseline:g} by more than the "
            text += f"sampling error ({score.margin:.2g})"
        elif score.interval is not None:
            low, high = score.interval
            text = f"test accuracy of {score.value:.3f} (95 % interval {low:.3f} to {high:.3f} over {records}) does "
            text += f"not exceed {score.baseline:.3f}, the majority-class baseline"
        else:
            text = f"R² of {score.value:.3g} on {records} does not exceed {score.baseline:.3g}, that of the mean "
            text += f"label, by {score.margin:g}"
        out.append(f"The run learned little: the {text}.")
    if (trend := result.loss_trend) is not None:
        steps = "the steps" if result.privacy.is_trusted else "algorithm.learning_rate.scale"
        change = "was still decreasing. Fix: increase algorithm.rounds"
        if trend.last > trend.first:
            change = f"increased from {trend.first:.2g} to {trend.last:.2g}. Fix: decrease {steps}"
        out.append(f"The {trend.name.replace('_', ' ')} {change}.")
    elif result.rounds < _FEW_ROUNDS and max(result.clipped.values(), default=0.0) == 1.0:
        out.append(f"All gradients are clipped after {result.rounds} rounds. Fix: increase algorithm.rounds.")
    return out


def evaluated_text(result: RunResult) -> str:
    """Return the evaluated values, in words."""
    n = result.topology["agents"]
    last = f"average of the last {result.averaged}" if result.averaged > 1 else "last"
    n_scored = scored_agents(n).size
    some = "" if n_scored == n else f" of {n_scored} of the {n} agents"
    return {
        "released_values": f"{last} released values{some}",
        "final_average": f"average of the {n} final models",
        "x_and_y": "published x and y",
        "lower_solution": "exact lower solution at the published x",
    }[result.evaluated_on]


# If x is not tuned, there is no upper level, and agents do not differ in x.
_OF_X = ("upper_loss", "consensus_x")


def _tabulate_scores(result: RunResult) -> ScoreTable:
    metrics, local = result.metrics, not (result.privacy.is_trusted or result.scores_average)
    columns = ("Metric", "Mean over agents", "Lowest agent", "Highest agent") if local else ("Metric", "Value")
    order, ranked = list(MEASURES), []
    for name in metrics:
        ending = next((e for e in ("_last", "_unreleased") if name.endswith(e)), "")
        stem = name.removesuffix(ending)
        hidden = name == "epsilon_spent" or (not result.tunes_x and name.startswith(_OF_X))
        if not hidden and not stem.endswith(("_min", "_max")):
            ranked.append((order.index(stem) if stem in order else len(order), name, stem, ending))
    rows: list[tuple[str, Sequence[str]]] = []
    others: list[tuple[str, Sequence[str]]] = []
    for _, name, stem, ending in sorted(ranked, key=lambda row: row[0]):
        ends = [metrics.get(f"{name}_{side}", metrics.get(f"{stem}_{side}{ending}")) for side in ("min", "max")]
        values = [metrics[name], *ends][: len(columns) - 1]
        texts = ["" if v is None else score_text(v) if abs(v) >= 1e3 else power_text(v, pad=True) for v in values]
        (others if ending and stem in metrics else rows).append((name, texts))
    notes = groupby(score_notes(result), key=lambda note: note[0])
    return ScoreTable(columns, rows, others, [(head, [text for _, text in group]) for head, group in notes])


_LISTED_AGENTS, _WORST_AGENTS, _LONGEST_NAMES = 30, 5, 60


def tabulate_budgets(
    privacy: PrivacyStatement,
    graph: Mapping[str, Any],
    most_rows: int = _LISTED_AGENTS,
    worst_agents: int = _WORST_AGENTS,
) -> BudgetTable | None:
    """Tabulate ε of every agent by channel and split, or a summary and the most expensive agents if there are many.

    Args:
        privacy: privacy statement of the run or plan. Without noise, the table is None.
        graph: entry "topology" of `result.json`, for the names of agents.
        most_rows: number of different rows above which the table is a summary.
        worst_agents: number of agents in a summary.
    """
    budgets, claim, names = privacy.agents, privacy.claimed, agent_names(graph.get("labels"))
    if not privacy.is_noisy or not budgets:
        return None
    # Agents with equal budgets may have different claims.
    claims = claim.agents if claim is not None else ()
    rows = budgets[:] if claims else budgets.different
    members = [[k] for k in range(len(budgets))] if claims else budgets.members()
    delta, spent = f"at δ = {delta_text(privacy.delta)}", [row.epsilon for row in rows]
    columns = [BudgetColumn("Whole run", f"ε {delta}", "ε", spent)]
    if privacy.view != "all_messages":
        (published, _), (every, _) = stated_epsilons(privacy)
        values_published = [row.epsilon_published for row in rows]
        every_column = BudgetColumn(every, delta, every, spent)
        columns = [BudgetColumn(published, delta, published, values_published), every_column]
    # Gaussian noise has no pure ε.
    if any(math.isfinite(row.epsilon_pure or 0.0) for row in rows):
        columns.append(BudgetColumn("Whole run", "pure ε (δ = 0)", "pure ε", [row.epsilon_pure for row in rows]))
    if claim is not None and claims:
        # A claim without a δ is of pure ε.
        name = f"ε at δ = {delta_text(claim.delta)}" if claim.delta else "pure ε"
        columns.append(BudgetColumn("Claimed, not certified", name, "claimed", claims, is_claimed=True))
    for channel in rows[0].channels:
        if channel in privacy.free_channels:
            continue
        costs = [row.channels.get(channel, Cost()) for row in rows]
        group = f"Channel {channel}"
        columns.append(BudgetColumn(group, "ε", f"ε of {channel}", [cost.epsilon for cost in costs]))
        if not claims and any(cost.epsilon_pure is not None and math.isfinite(cost.epsilon_pure) for cost in costs):
            columns.append(BudgetColumn(group, "pure ε", f"pure ε of {channel}", [cost.epsilon_pure for cost in costs]))
    # With one split the cost of a record is that of the whole run.
    kinds = rows[0].records if len(rows[0].records) > 1 else ()
    columns += [BudgetColumn("ε of one record", kind, kind, [row.records.get(kind) for row in rows]) for kind in kinds]
    values = list(zip(*(column.values for column in columns), strict=True))
    merged: dict[tuple[str, ...], list[int]] = {}
    for agents, row in zip(members, values, strict=True):
        merged.setdefault(tuple(map(epsilon_text, row)), []).extend(agents)
    labels = names or [str(agent) for agent in range(len(budgets))]
    body = [(_agents_text(sorted(agents), labels, bool(names)), texts) for texts, agents in merged.items()]
    if len(merged) > most_rows:
        every_agent = [row for agents, row in zip(members, values, strict=True) for _ in agents]
        stacked = [[v for v in column if v is not None] or [math.nan] for column in zip(*every_agent, strict=True)]
        body = [
            (f"{label} of {len(budgets)}", tuple(epsilon_text(pick(v)) for v in stacked))
            for label, pick in (("lowest", min), ("median", statistics.median), ("highest", max))
        ]
        by_cost = sorted(range(len(members)), key=lambda row: [-(v or 0.0) for v in values[row]])[:worst_agents]
        worst = [(agent, row) for row in by_cost for agent in members[row]][:worst_agents]
        body += [(f"agent {labels[agent]}", tuple(map(epsilon_text, values[row]))) for agent, row in worst]
    groups = [(group, len(list(members))) for group, members in groupby(column.group for column in columns)]
    return BudgetTable(groups, columns, body)


def _agents_text(agents: Sequence[int], names: Sequence[str], are_named: bool) -> str:
    """Return "0–3, 7", "Bern, Zug", or a count if the list is long."""
    if len(agents) == len(names) > 1:
        return f"all {len(names)}"
    listed = [names[agent] for agent in agents]
    text = ", ".join(listed if are_named else spans(listed))
    if len(text) <= (_LONGEST_NAMES if are_named else 24) or len(agents) == 1:
        return text
    return f"{len(agents)} agents{f', {listed[0]} among them' if are_named else ''}"


def _join_isolated(run: RunResult, baselines: Mapping[str, RunResult]) -> Mapping[str, RunResult]:
    """Replace "alone_N" by one result "alone": the mean scores of all agents, with the worst ε of their runs."""
    isolated = [result for name, result in baselines.items() if name.startswith("alone_")]
    counts = [result.topology["agents"] for result in isolated]
    if not isolated or sum(counts) != run.topology["agents"]:
        return baselines
    worst = max(isolated, key=lambda result: result.privacy.epsilon_max or 0.0)
    scores = np.array([[result.metrics.get(name) for name in worst.metrics] for result in isolated], dtype=np.float64)
    means = dict(zip(worst.metrics, np.average(scores, axis=0, weights=counts).tolist(), strict=True))
    return {**baselines, "alone": replace(worst, metrics=means)}


def compare_with_baselines(compared: Sequence[tuple[RunResult, Mapping[str, RunResult]]]) -> BaselineComparison | None:
    """Compare a run with its baselines; return None if it has none.

    Args:
        compared: result of the run, and "alone", "central", "none" → result of that baseline, for each seed. Scores are
            means over seeds.
    """
    compared = [(run, _join_isolated(run, others)) for run, others in compared]
    result, baselines = compared[0]
    if not baselines:
        return None
    listed = [name for name in BASELINES if all(name in others for _, others in compared)]
    runs = {"this run": [run for run, _ in compared]}
    runs |= {BASELINES[name]: [others[name] for _, others in compared] for name in listed}
    names = [name for name in (*JUDGES, "test_loss") if result.score(name) is not None]

    def mean(results: Sequence[RunResult], name: str) -> float | None:
        scores = [score for each in results if (score := each.score(name)) is not None]
        return float(np.mean(scores)) if len(scores) == len(results) else None

    def text(value: float | None) -> str:
        return "–" if value is None or not math.isfinite(value) else score_text(value)

    guess = [text(result.baselines.get(name)) for name in names]
    constant = "majority class" if "test_accuracy" in result.baselines else "mean label"
    budget_heads = [head for head, _ in stated_epsilons(result.privacy)]
    cells = [[constant, *guess, *("" for _ in budget_heads)]] if any(cell != "–" for cell in guess) else []
    for label, results in runs.items():
        costs = [epsilon for _, epsilon in stated_epsilons(results[0].privacy)]
        # A baseline has one adversary.
        stated = [costs[0], *([costs[-1]] if len(budget_heads) > 1 else [])]
        cells.append([label, *(text(mean(results, name)) for name in names), *map(epsilon_text, stated)])
    heads = [("", ""), *((name, "") for name in names), *((head, "") for head in budget_heads)]
    table = TextTable(heads, [False] + [True] * (len(heads) - 1), cells)

    judge, parts, seeds = result.judge, [], len(compared)
    for name in listed:
        pairs = [(run.score(judge), others[name].score(judge)) for run, others in compared if judge and name in others]
        differences = [score - other for score, other in pairs if score is not None and other is not None]
        if len(differences) == seeds and np.isfinite(differences).all():
            difference, low, high = over_seeds(differences)
            paired = f" (95 % interval over seeds {low:+.3f} to {high:+.3f})" if seeds > 1 else ""
            reference = BASELINES[name] if name == "none" else f"{BASELINES[name]} at the same ε"
            parts.append(f"{difference:+.3f}{paired} against {reference}".replace("-", "−"))
    count = "One run each has no interval. Fix: --seeds 3" if seeds == 1 else f"Means of {seeds} runs each"
    sentence = f"Difference in {judge}: {', '.join(parts)}. {count}." if parts else ""

    noisy = [run for label, results in runs.items() if label != BASELINES["none"] for run in results]
    spent = [(stated_epsilons(run.privacy)[0][1] or 0.0, run.privacy.delta) for run in noisy]
    epsilon, delta = (sum(costs) for costs in zip(*spent, strict=True))
    price = "All runs read the same records and have the same held-out records."
    if len(noisy) > 1 and result.privacy.is_noisy and math.isfinite(epsilon):
        total = f"ε = {epsilon_text(epsilon)} at δ = {delta_text(delta)}"
        price += f" The releases of all runs with noise cost at most {total}."
    if result.privacy.shared is not None:
        colluders = f"{result.privacy.colluders} colluder{'s' * (result.privacy.colluders != 1)}"
        price += f" ε of this run holds against {colluders} (privacy.colluders), of the others against any number."
    if "none" in baselines:
        price += " Do not publish the run without noise or its scores: it is not private."
    return BaselineComparison(table, sentence, price)


def tabulate_sites(result: RunResult) -> TextTable | None:
    """Tabulate the scores of each agent's held-out records; return None if they are not scored."""
    sites, names = result.sites, agent_names(result.topology.get("labels"))
    if not sites:
        return None
    of_classes = bool(result.problem.get("classes"))

    def text(value: float | None) -> str:
        shown = "–" if value is None else f"{value:.3f}" if of_classes else score_text(value)
        return shown.replace("-", "−")

    common = "own" if result.personal else "common"
    heads = ("site", "held out", "alone", common, "gain (95 % interval)", "collaboration")
    rows = []
    for site in sites:
        gain = "–" if site.low is None else f"{text(site.gain)} ({text(site.low)} to {text(site.high)})"
        scores = (text(site.alone), text(site.score))
        rows.append((names[site.agent] if names else str(site.agent), str(site.records), *scores, gain, site.verdict))
    measure = "Accuracy" if of_classes else "Mean absolute error"
    model = "the site's own model" if result.personal else "the mean of all models"
    note, columns = f"{measure} of {model} on the site's held-out records. ε does not cover it.", [0, 1, 3]
    if any(site.verdict for site in sites):
        columns = list(range(len(heads)))
        seeds = f"{result.seeds} seed{'s' * (result.seeds > 1)}"
        note += f" Alone: a model of the site only, at the same ε. {seeds}, paired."
        note += " One seed does not contain the noise. Fix: --seeds 3." if result.seeds == 1 else ""
    cells = [[row[k] for k in columns] for row in rows]
    return TextTable([(heads[k], "") for k in columns], [k not in (0, 5) for k in columns], cells, note=note)
