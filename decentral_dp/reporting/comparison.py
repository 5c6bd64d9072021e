"""Runs side by side: what differs in their settings, what they cost, and how they went.

Everything is read from the run folders. Those of runs that are not complete are read as far as they go, which is said.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from decentral_dp.errors import InputError, quoted, quoted_path
from decentral_dp.files.durable import OWNERS, write_whole
from decentral_dp.files.regular import own
from decentral_dp.formatting import delta_text, epsilon_text, score_text, sentence, topology_name
from decentral_dp.reporting import style
from decentral_dp.reporting.page import render
from decentral_dp.reporting.report import Curve, TextTable, curve, parse_scenario, read_metrics, scenario_text
from decentral_dp.simulation.metrics import MEASURES, metric_label
from decentral_dp.simulation.result import (
    RESULT,
    RunResult,
    is_complete,
    is_private,
    read_any_result,
    require_own_files,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ABSENT = "–"
# What columns of the budgets of single channels begin with.
_CHANNEL = "channel "
# Keys of features' ranges.
_RANGES = "problem.scale."
# Words about a scenario, and who computed it: no settings.
_DESCRIPTIVE_KEYS = ("title", "description", "versions", "objects")
_SPREAD, _OTHER_STATES = ("_min", "_max"), ("_last", "_unreleased")


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A run folder, as far as it goes.

    Args:
        name: tells it from the others: the folder's name, or as much of its path as that takes.
        folder: of the run.
        result: of `result.json`.
        settings: key by its dotted path → value, every default filled in.
        metrics: rows (round, agent, name, value), up to the last state kept where the run is not complete.
        complete: whether it is.
        objects: components that were given as Python objects, of which no file has all.
    """

    name: str
    folder: Path
    result: RunResult
    settings: Mapping[str, Any]
    metrics: pd.DataFrame
    complete: bool
    objects: Sequence[str] = ()

    @property
    def measured_to(self) -> int | None:
        """The last round that was evaluated; None where nothing was."""
        return None if self.metrics.empty else int(self.metrics["round"].max())

    @property
    def last_metrics(self) -> Mapping[str, float]:
        """Name → mean over agents at the last round that was evaluated; not all that is priced is priced there."""
        means = self.metrics[(self.metrics["agent"] == "mean") & (self.metrics["round"] == self.measured_to)]
        return {str(name): float(value) for name, value in means.groupby("name")["value"].last().items()}

    def __repr__(self) -> str:
        return f"<ComparedRun {self.name!r}: {self.result!r}>"

    @property
    def remark(self) -> str | None:
        """A sentence on how it ended, where it did not end as planned."""
        status, reason = self.result.status, sentence(self.result.reason, "it has not ended.")
        if self.complete:
            return None if status == "ok" else f"{self.name}: {status}: {reason}"
        measured = (
            "nothing was measured yet" if self.measured_to is None else f"measured up to round {self.measured_to}"
        )
        return f"{self.name} is not complete ({reason.removesuffix('.')}); {measured}."


class ComparisonTable(NamedTuple):
    """One table, with a column for each run.

    Args:
        title: of the table.
        rows: what is compared → its text in each run.
        numbers: whether texts are numbers.
        note: below the rows, or in place of a table without rows.
    """

    title: str
    rows: Sequence[tuple[str, Sequence[str]]]
    numbers: bool
    note: str


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    Args:
        runs: in the order given.

    Example:
        >>> import decentral_dp
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for rounds in (2, 3):
        ...         scenario = decentral_dp.load("quadratic", set={"algorithm.rounds": rounds})
        ...         run = decentral_dp.run(scenario, out=f"{folder}/{rounds}")
        ...     compared = decentral_dp.compare(f"{folder}/2", f"{folder}/3")
        >>> compared.settings
                          2  3
        algorithm.rounds  2  3
    """

    runs: Sequence[ComparedRun]

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(run.name for run in self.runs)}>"

    def _repr_html_(self) -> str:
        with style.package_style():
            return f"<div>{_render(self, 'comparison_sections', comparison_figure(self))}</div>"

    @property
    def settings(self) -> pd.DataFrame:
        """What differs: one row per dotted key, one column per run; None where a run has no such key."""
        keys = dict.fromkeys(key for run in self.runs for key in run.settings)
        differing = [key for key in keys if len({json.dumps(r.settings.get(key), default=str) for r in self.runs}) > 1]
        columns = {run.name: [run.settings.get(key) for key in differing] for run in self.runs}
        return pd.DataFrame(columns, index=differing, dtype=object)

    @property
    def budgets(self) -> pd.DataFrame:
        """One row per run: guarantee, delta, epsilon, epsilon_pure and claimed of the worst agent, ε of each channel.

        A column "channel y" is the ε at δ of that channel alone, of the agent that it costs most.
        """
        rows = []
        for run in self.runs:
            privacy = run.result.privacy
            row: dict[str, Any] = {"run": run.name, "guarantee": privacy.guarantee, "delta": privacy.delta}
            row |= {"epsilon": privacy.epsilon_max, "epsilon_pure": privacy.epsilon_pure_max}
            row["claimed"] = privacy.claimed_epsilon
            for budget in privacy.agents.different:
                for channel, cost in budget.channels.items():
                    name = f"{_CHANNEL}{channel}"
                    known = [e for e in (row.get(name), cost.epsilon) if e is not None]
                    row[name] = max(known, default=None)
            rows.append(row)
        return pd.DataFrame(rows).set_index("run")

    @property
    def communication(self) -> pd.DataFrame:
        """One row per run: messages, numbers and bits that all agents sent; NaN where it is not counted."""
        counts = ("messages", "numbers", "bits")
        sent = [[getattr(run.result.communication, name, None) for name in counts] for run in self.runs]
        return pd.DataFrame(sent, index=[run.name for run in self.runs], columns=list(counts), dtype=float)

    @property
    def metrics(self) -> pd.DataFrame:
        """The last values: one row per measured name, one column per run; NaN where a run did not measure it."""
        last = {run.name: run.last_metrics for run in self.runs}
        names = dict.fromkeys(n for values in last.values() for n in values if not n.endswith(_SPREAD))
        columns = {run: [values.get(name) for name in names] for run, values in last.items()}
        return pd.DataFrame(columns, index=list(names), dtype=float)

    @property
    def remarks(self) -> list[str]:
        """What has to be known beside the numbers, a sentence each."""
        remarks = [run.remark for run in self.runs if run.remark is not None]
        privacy = [run.result.privacy for run in self.runs]
        noisy = [p for p in privacy if p.is_noisy]
        if len({p.delta for p in noisy}) > 1:
            remarks.append("The runs have different δ: do not compare their ε.")
        threats = {"adversaries": [p.adversary for p in noisy], "adjacencies": [p.adjacency for p in noisy]}
        for name, texts in threats.items():
            if len(set(texts)) > 1:
                differing = "; ".join(dict.fromkeys(texts))
                remarks.append(f"The runs have different {name} ({differing}): do not compare their ε.")
        objects = sorted({w for run in self.runs for w in run.objects if w != "topology"})
        if objects:
            remarks.append(f"Python objects were given for: {', '.join(objects)}. Only their classes are known.")
        versions = [run.result.versions for run in self.runs if run.result.versions]
        other = sorted({key for one in versions for key in one if any(v.get(key) != one[key] for v in versions)})
        if other:
            remarks.append(f"They were computed by different versions of {', '.join(other)}.")
        return remarks

    def write(self, folder: str | Path, formats: Sequence[Any] = ()) -> Path:
        """Write `comparison.html`, one page that loads nothing, and its picture `comparison.png`.

        Args:
            folder: is made if it is not there.
            formats: of the picture besides PNG: "svg", "pdf".

        Returns:
            The path of the page.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        mode = OWNERS if any(is_private(run.folder) for run in self.runs) else 0o666
        with style.package_style():
            drawn = comparison_figure(self)
            if drawn is not None:
                style.write_figure(drawn, folder / "comparison", ["png", *formats], mode)
            page = _render(self, "comparison", drawn)
        path = folder / "comparison.html"
        write_whole(path, page.encode(), mode)
        return path


def compare(*runs: str | Path | Any) -> Comparison:
    """Set runs side by side: what differs in their settings, budgets, last metrics, curves.

    Args:
        runs: at least two run folders, or runs that have written one.

    Returns:
        Tables of all of these; `write` makes a page.

    Raises:
        InputError: one of them is no run folder, or they are fewer than two.

    Example:
        >>> import decentral_dp
        >>> try:
        ...     decentral_dp.compare("scenarios", "docs")
        ... except decentral_dp.InputError as error:
        ...     print(str(error).partition(";")[0])
        compare: "scenarios" is no run folder
    """
    folders = [Path(run) if isinstance(run, str | Path) else run.folder for run in runs]
    if None in folders:
        raise InputError('compare: a run has no folder. Give run(...) a folder, as in out="runs/mine".')
    if len(folders) < 2:
        raise InputError(f"compare: got {len(folders)} run, wanted at least two. Give several run folders.")
    same = [f for k, f in enumerate(folders) if f.resolve() in {other.resolve() for other in folders[:k]}]
    if same:
        raise InputError(f"compare: {quoted_path(same[0])} is given twice. Give different run folders.")
    return Comparison([_read_run(folder, name) for folder, name in zip(folders, _names(folders), strict=True)])


def _names(folders: Sequence[Path]) -> list[str]:
    """As much of the end of each path as tells it from the others."""
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = [os.sep.join(p[-depth:]) for p in parts]
        if len(set(names)) == len(names):
            break
    return names


def _read_run(folder: Path, name: str) -> ComparedRun:
    if not (folder / RESULT).is_file():
        raise InputError(
            f"compare: {quoted_path(folder)} is no run folder; it has no result.json. Give folders that "
            '"decentral-dp run" has written.'
        )
    result = read_any_result(folder)
    own(folder / "scenario.toml", folder, "compare")
    complete = is_complete(folder)
    if complete:
        require_own_files(folder, result, "compare", ("metrics.parquet", "scenario.toml"))
    scenario = parse_scenario(scenario_text(folder))
    settings = dict(_leaves({k: v for k, v in scenario.items() if k not in _DESCRIPTIVE_KEYS}))
    objects = dict(scenario.get("objects") or {})
    # A graph that was given as an object is compared by its facts, and not by what the scenario names.
    if "topology" in objects:
        settings = {k: v for k, v in settings.items() if k not in ("topology.kind", "topology.agents", "topology.file")}
        graph = result.topology
        gap = "" if graph["spectral_gap"] is None else f", spectral gap {graph['spectral_gap']:.4g}"
        objects["topology"] = f"{topology_name(graph)}, {len(graph['edges'])} links{gap}"
    return ComparedRun(
        name=name,
        folder=folder,
        result=result,
        settings=settings | {key: f"{words} (a Python object)" for key, words in objects.items()},
        metrics=_metrics(folder, complete),
        complete=complete,
        objects=tuple(objects),
    )


def _leaves(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of all that is no table."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _metrics(folder: Path, complete: bool) -> pd.DataFrame:
    """What was measured; of a run that is not complete, up to its last state, part by part as far as they are whole."""
    whole = read_metrics(folder / "metrics.parquet")
    if complete:
        return whole
    paths = sorted(folder.glob("in_progress/metrics-*.parquet"), key=lambda path: (len(path.name), path.name))
    parts = []
    for path in paths:
        try:
            parts.append(read_metrics(path))
        except InputError:
            break
    # Rounds that were repeated after an interruption have the same values.
    return pd.concat([whole, *parts]).drop_duplicates(["round", "agent", "name"], keep="last", ignore_index=True)


def comparison_tables(comparison: Comparison) -> list[ComparisonTable]:
    """Put a comparison in words: budgets, last metrics, what was sent, settings that differ."""
    tables = [_budget_rows(comparison), _metric_rows(comparison)]
    sent, settings = comparison.communication, comparison.settings
    if sent.notna().any(axis=None):
        rows = [(str(n), [ABSENT if pd.isna(v) else f"{int(v):,}".replace(",", " ") for v in sent[n]]) for n in sent]
        note = "By all agents, in all rounds. A dash: agents answered a coordinator."
        tables.append(ComparisonTable("What was sent", rows, True, note))
    rows = [(str(key), [ABSENT if v is None else quoted(v) for v in settings.loc[key]]) for key in settings.index]
    # Two sets of records have other features, whose ranges would hide all that differs besides.
    others = [row for row in rows if not row[0].startswith(_RANGES)]
    note = "Ranges of features differ; Comparison.settings lists them." if len(others) < len(rows) else ""
    note = note or ("" if others else "Nothing: the settings are the same.")
    return [*tables, ComparisonTable("What differs in the settings", others, False, note)]


def _budget_rows(comparison: Comparison) -> ComparisonTable:
    results = [run.result for run in comparison.runs]
    statements = [result.privacy for result in results]
    rounds = [f"{r.rounds}{'' if r.rounds == r.rounds_planned else f' of {r.rounds_planned}'} rounds" for r in results]
    rows = [
        ("status", [f"{r.status.replace('_', ' ')}, {count}" for r, count in zip(results, rounds, strict=True)]),
        ("algorithm", [result.method for result in results]),
        ("guarantee", [p.certainty if p.is_noisy else "none: no noise" for p in statements]),
        ("δ", [delta_text(p.delta) for p in statements]),
        ("ε of the worst agent", [epsilon_text(p.epsilon_max) for p in statements]),
        ("pure ε of the worst agent", [epsilon_text(p.epsilon_pure_max) for p in statements]),
        ("adjacency", [p.adjacency if p.is_noisy else "" for p in statements]),
        ("adversary", [p.adversary if p.is_noisy else "" for p in statements]),
    ]
    claims = ["" if p.claimed is None else epsilon_text(p.claimed_epsilon) for p in statements]
    rows.append(("claimed by a paper, not certified", claims))
    rows = [(row, [text or ABSENT for text in texts]) for row, texts in rows if any(texts)]
    for column, prices in comparison.budgets.items():
        name = str(column).removeprefix(_CHANNEL)
        if name != column:
            free = [name in p.free_channels for p in statements]
            texts = ["free" if f else epsilon_text(price) for f, price in zip(free, prices, strict=True)]
            rows.append((f"ε of channel {name}", texts))
    note = "Rounded up. ε of channels is at δ, of the agent that it costs most; a run's ε composes them."
    return ComparisonTable("Budgets", rows, True, note)


def _metric_rows(comparison: Comparison) -> ComparisonTable:
    """The last values; those of other states than the published one only where this was not measured."""
    table = comparison.metrics
    rows: list[tuple[str, Sequence[str]]] = []
    for name in sorted(table.index):
        text = epsilon_text if name == "epsilon_spent" else score_text
        stem = next((name.removesuffix(end) for end in _OTHER_STATES if name.endswith(end)), "")
        if stem not in table.index:
            rows.append((str(name), [text(float(v)) for v in table.loc[name]]))
    if not rows:
        return ComparisonTable("Last metrics", [], True, "Nothing was measured.")
    rounds = [ABSENT if run.measured_to is None else str(run.measured_to) for run in comparison.runs]
    note = "Means over agents, in the simulator's view. A dash: this run has not measured it."
    return ComparisonTable("Last metrics", [("at round", rounds), *rows], True, note)


def _render(comparison: Comparison, template: str, drawn: Figure | None) -> str:
    """The page, or its sections. drawn: its picture."""
    heads = [("", ""), *((run.name, "") for run in comparison.runs)]
    tables = [
        (t, TextTable(heads, [True, *(t.numbers for _ in comparison.runs)], [(name, *texts) for name, texts in t.rows]))
        for t in comparison_tables(comparison)
    ]
    return render(
        template,
        title=f"{len(comparison.runs)} runs side by side",
        runs=comparison.runs,
        remarks=comparison.remarks,
        tables=tables,
        picture=None if drawn is None else style.picture_of(drawn),
    )


# What is drawn where it was measured, in this order; at most so many panels.
_DRAWN_METRICS = (
    *("upper_loss", "test_accuracy", "primal", "test_auc", "upper_loss_unreleased", "test_accuracy_unreleased"),
    *("hypergradient_norm", "gradient_norm", "epsilon_spent", "consensus_y", "test_loss", "lower_loss"),
)
_MOST_PANELS = 6
_DASHES = ("-", "--", ":", "-.")


def comparison_figure(comparison: Comparison, columns: int = 2) -> Figure | None:
    """Draw the curves of all runs inside `style.package_style`, in columns; None where nothing was measured."""
    from matplotlib.lines import Line2D

    runs = comparison.runs
    curves = {name: [curve(run.metrics, name) for run in runs] for name in _DRAWN_METRICS}
    names = [n for n, of in curves.items() if any(c is not None and np.any(c.mean > 0) for c in of)]
    # An unreleased state beside what was released is for those who look at one run.
    plain = [n for n in names if not n.endswith("_unreleased") or None in curves[n.removesuffix("_unreleased")]]
    names = plain[:_MOST_PANELS]
    if not names:
        return None
    down = math.ceil(len(names) / columns)
    figure = style.new_figure(4.2 * columns, 0.8 + 2.6 * down + 0.2 * math.ceil(len(runs) / columns))
    grid = figure.subplots(down, min(columns, len(names)), squeeze=False)
    for ax, name in zip(grid.flat, names, strict=False):
        _panel(ax, name, curves[name], runs)
    for ax in grid.flat[len(names) :]:
        ax.set_visible(False)
    looks = _looks(runs)
    handles = [Line2D([], [], color=colour, linestyle=dash) for colour, dash in looks]
    labels = [run.name if run.result.status == "ok" else f"{run.name} ({run.result.status})" for run in runs]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, title="run")
    return figure


def _looks(runs: Sequence[ComparedRun]) -> list[tuple[str, Any]]:
    """Return the colour and the dashes of each run."""
    pairs = itertools.product(_DASHES, style.SERIES_COLOURS)
    return [(colour, dash) for _, (dash, colour) in zip(runs, itertools.cycle(pairs), strict=False)]


def _panel(ax: Axes, name: str, curves: Sequence[Curve | None], runs: Sequence[ComparedRun]) -> None:
    measure = MEASURES.get(name.removesuffix("_unreleased"))
    scale, spent = "values" if measure is None else measure.axis, name == "epsilon_spent"
    # On a logarithmic axis there is no point for an ε of 0 or ∞.
    shown = [(c, look) for c, look in zip(curves, _looks(runs), strict=True) if c and (not spent or np.any(c.mean > 0))]
    for c, (colour, dash) in shown:
        ax.plot(c.rounds, c.mean, dash, color=colour, marker="o" if c.rounds.size <= 25 else None)
        if c.overflow is not None:
            ax.axvline(c.overflow, color=colour, linestyle=":", linewidth=1.2)
    values = np.concatenate([np.zeros(0), *(c.mean for c, _ in shown)])
    if scale == "log":
        style.log_axis(ax, "y", values)
    elif scale == "flat":
        style.flat_axis(ax, values)
    else:
        style.value_axis(ax, values)
    ax.set_title(metric_label(name), fontweight="normal")
    endless = [run.name for run in runs if spent and math.isinf(run.result.privacy.epsilon_max or 0.0)]
    ax.set_xlabel(textwrap.fill(f"round (∞: {', '.join(endless)})" if endless else "round", 60))
