"""Comparisons of runs: settings that differ, privacy cost, metrics and curves, read from run folders.

Runs that are not complete are read up to their last saved state.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd

from decentral_dp.errors import InputError, quoted
from decentral_dp.files.durable import OWNERS, write_whole
from decentral_dp.files.regular import own
from decentral_dp.formatting import delta_text, epsilon_text, score_text, topology_name
from decentral_dp.reporting import style
from decentral_dp.reporting.page import render
from decentral_dp.reporting.privacy import adjacency_text, adversary_text, certainty_text
from decentral_dp.reporting.report import TextTable, curve, parse_scenario, read_metrics, reason_text, scenario_text
from decentral_dp.simulation.metrics import MEASURES
from decentral_dp.simulation.result import RunResult, is_complete, is_private, read_any_result, require_own_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ABSENT = "–"
# Keys of features' ranges.
_RANGES = "problem.scale."
# Keys that are not settings.
_DESCRIPTIVE_KEYS = ("title", "description", "versions", "objects")
_SPREAD, _OTHER_STATES = ("_min", "_max"), ("_last", "_unreleased")
# Metrics in the order of their panels.
_DRAWN_METRICS = (
    *("upper_loss", "test_accuracy", "primal", "test_auc", "upper_loss_unreleased", "test_accuracy_unreleased"),
    *("stationarity", "gradient_norm", "epsilon_spent", "consensus_y", "test_loss", "lower_loss"),
)
_MOST_PANELS = 6
# Longer names of runs are replaced by the settings that differ.
_LONGEST_NAME = 20


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """Run of a comparison.

    Args:
        name: shortest unique end of the folder's path, or the settings that differ if this is too long.
        folder: folder of the run.
        result: content of `result.json`.
        settings: dotted key → value, with all defaults.
        metrics: rows (round, agent, name, value), up to the last saved state of a run that is not complete.
        complete: whether the run is complete.
        objects: components that were passed as Python objects.
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
        """Last evaluated round; None if there is none."""
        return None if self.metrics.empty else int(self.metrics["round"].max())

    @property
    def last_metrics(self) -> Mapping[str, float]:
        """Means over agents at the last evaluated round, by name."""
        means = self.metrics[(self.metrics["agent"] == "mean") & (self.metrics["round"] == self.measured_to)]
        return {str(name): float(value) for name, value in means.groupby("name")["value"].last().items()}

    def __repr__(self) -> str:
        return f"<ComparedRun {self.name!r}: {self.result!r}>"

    @property
    def remark(self) -> str | None:
        """Sentence on a run that did not end as planned; None for other runs."""
        status = self.result.status
        if self.complete:
            return None if status == "ok" else f"{self.name}: {status}: {reason_text(self.result)}"
        last = self.measured_to
        measured = "nothing was measured yet" if last is None else f"measured up to round {last}"
        reason = (self.result.reason or "it has not ended").removesuffix(".")
        return f"{self.name} is not complete ({reason}); {measured}."


class ComparisonTable(NamedTuple):
    """Table with a column for each run.

    Args:
        title: title of the table.
        rows: name of each row and its text for each run.
        numbers: whether texts are numbers.
        note: text below the rows, or instead of them.
    """

    title: str
    rows: Sequence[tuple[str, Sequence[str]]]
    numbers: bool
    note: str


@dataclass(frozen=True)
class Comparison:
    """Comparison of runs.

    Args:
        runs: runs in the order of the columns.

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
            return f"<div>{_render(self, 'comparison_sections', [comparison_figure(self)])}</div>"

    @property
    def settings(self) -> pd.DataFrame:
        """Settings that differ, one row per dotted key, one column per run; None if a run does not have the key."""
        keys = dict.fromkeys(key for run in self.runs for key in run.settings)
        differing = [key for key in keys if len({json.dumps(r.settings.get(key), default=str) for r in self.runs}) > 1]
        columns = {run.name: [run.settings.get(key) for key in differing] for run in self.runs}
        return pd.DataFrame(columns, index=differing, dtype=object)

    @property
    def budgets(self) -> pd.DataFrame:
        """Guarantee, δ, and ε of the worst agent (all messages, pure, published, claimed), one row per run."""
        rows = []
        for run in self.runs:
            privacy = run.result.privacy
            row: dict[str, Any] = {"run": run.name, "guarantee": privacy.guarantee, "delta": privacy.delta}
            row |= {"epsilon": privacy.epsilon_max, "epsilon_pure": privacy.epsilon_pure_max}
            rows.append(row | {"epsilon_published": privacy.epsilon_published, "claimed": privacy.claimed_epsilon})
        return pd.DataFrame(rows).set_index("run")

    @property
    def communication(self) -> pd.DataFrame:
        """Messages, floats and bits of all agents, one row per run; NaN if they are not counted."""
        counts = {"messages": "messages", "floats": "numbers", "bits": "bits"}
        sent = [[getattr(run.result.communication, name, None) for name in counts.values()] for run in self.runs]
        return pd.DataFrame(sent, index=[run.name for run in self.runs], columns=list(counts), dtype=float)

    @property
    def metrics(self) -> pd.DataFrame:
        """Last metrics, one row per name, one column per run; NaN if a run did not measure the metric."""
        last = {run.name: run.last_metrics for run in self.runs}
        names = dict.fromkeys(n for values in last.values() for n in values if not n.endswith(_SPREAD))
        columns = {run: [values.get(name) for name in names] for run, values in last.items()}
        return pd.DataFrame(columns, index=list(names), dtype=float)

    @property
    def remarks(self) -> list[str]:
        """Sentences on differences that limit the comparison."""
        remarks = [run.remark for run in self.runs if run.remark is not None]
        privacy = [run.result.privacy for run in self.runs]
        noisy = [p for p in privacy if p.is_noisy]
        if len({p.delta for p in noisy}) > 1:
            remarks.append("The runs have different δ: do not compare their ε.")
        threats = {"adversaries": map(adversary_text, noisy), "adjacencies": map(adjacency_text, noisy)}
        for name, texts in threats.items():
            if len(different := dict.fromkeys(texts)) > 1:
                differing = "; ".join(different)
                remarks.append(f"The runs have different {name} ({differing}): do not compare their ε.")
        objects = sorted({w for run in self.runs for w in run.objects if w != "topology"})
        if objects:
            remarks.append(f"Python objects were given for: {', '.join(objects)}. Only their classes are known.")
        versions = [run.result.versions for run in self.runs if run.result.versions]
        differing_versions = sorted(
            {key for each in versions for key in each if any(v.get(key) != each[key] for v in versions)}
        )
        if differing_versions:
            remarks.append(f"The runs have different versions of {', '.join(differing_versions)}.")
        return remarks

    def write(self, folder: str | Path, formats: Sequence[Any] = ()) -> Path:
        """Write the self-contained page `comparison.html` with its figure.

        Args:
            folder: output folder, created if it does not exist.
            formats: formats of the figure's files: "svg", "png", "pdf". Default: none.

        Returns:
            The path of the page.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        mode = OWNERS if any(is_private(run.folder) for run in self.runs) else 0o666
        with style.package_style():
            # The second is for narrow screens.
            figures = [comparison_figure(self), comparison_figure(self, 1)]
            if figures[0] is not None:
                style.write_figure(figures[0], folder / "comparison", formats, mode)
            pages = {run.name: run.folder / "report.html" for run in self.runs}
            links = {name: quote(os.path.relpath(page, folder)) for name, page in pages.items() if page.is_file()}
            page = _render(self, "comparison", figures, links)
        path = folder / "comparison.html"
        write_whole(path, page.encode(), mode)
        return path


def compare(*runs: str | Path | Any) -> Comparison:
    """Compare runs: settings that differ, budgets, last metrics and curves.

    Args:
        runs: two or more run folders, or runs that have written a folder.

    Returns:
        The comparison, whose tables have these values. `write` makes a page.

    Raises:
        InputError: there are fewer than two runs, or one is not a run folder.

    Example:
        >>> import decentral_dp
        >>> try:
        ...     decentral_dp.compare("scenarios", "docs")
        ... except decentral_dp.InputError as error:
        ...     print(str(error).partition(". Fix")[0])
        scenarios/result.json: the file does not exist
    """
    folders = [Path(run) if isinstance(run, str | Path) else run.folder for run in runs]
    if None in folders:
        raise InputError('compare: a run was not written to a folder. Fix: pass out, as in run(..., out="runs/mine").')
    places = [folder.resolve() for folder in folders]
    if len(set(places)) < max(2, len(places)):
        counts = f"got {len(set(places))} different run folders, expected at least 2 and none twice"
        raise InputError(f"compare: too few distinct folders ({counts}). Fix: pass at least two different run folders.")
    depths = range(1, max(len(place.parts) for place in places) + 1)
    named = ([os.sep.join(place.parts[-depth:]) for place in places] for depth in depths)
    names = next(names for names in named if len(set(names)) == len(names))
    comparison = Comparison([_read_run(folder, name) for folder, name in zip(folders, names, strict=True)])
    if (longest := max(map(len, names))) > _LONGEST_NAME:
        changes = [comparison.settings[name].items() for name in names]
        short = ["-".join(f"{key}={value}" for key, value in each) for each in changes]
        if len(set(short)) == len(short) and max(map(len, short)) < longest:
            return Comparison([replace(run, name=name) for run, name in zip(comparison.runs, short, strict=True)])
    return comparison


def _read_run(folder: Path, name: str) -> ComparedRun:
    result = read_any_result(folder)
    own(folder / "scenario.toml", folder, "compare")
    complete = is_complete(folder)
    if complete:
        require_own_files(folder, result, "compare", ("metrics.parquet", "scenario.toml"))
    metrics = read_metrics(folder / "metrics.parquet")
    if not complete:
        paths = sorted(folder.glob("in_progress/metrics-*.parquet"), key=lambda path: (len(path.name), path.name))
        parts = [metrics]
        with suppress(InputError):
            for path in paths:
                parts.append(read_metrics(path))
        # Rounds that were repeated after an interruption have the same values.
        metrics = pd.concat(parts).drop_duplicates(["round", "agent", "name"], keep="last", ignore_index=True)
    scenario = parse_scenario(scenario_text(folder))
    settings = dict(_leaves({k: v for k, v in scenario.items() if k not in _DESCRIPTIVE_KEYS}))
    objects = dict(scenario.get("objects") or {})
    # A graph that was passed as an object is compared by its facts, not by the scenario's keys.
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
        metrics=metrics,
        complete=complete,
        objects=tuple(objects),
    )


def _leaves(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of all values that are not tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def comparison_tables(comparison: Comparison) -> list[ComparisonTable]:
    """Return a comparison as texts: settings that differ, budgets, last metrics, communication."""
    runs, results = comparison.runs, [run.result for run in comparison.runs]
    statements = [result.privacy for result in results]
    hidden = any(p.view != "all_messages" for p in statements)
    rounds = [f"{r.rounds}{'' if r.rounds == r.rounds_planned else f' of {r.rounds_planned}'} rounds" for r in results]
    budgets: list[tuple[str, Sequence[str]]] = [
        ("status", [f"{r.status.replace('_', ' ')}, {count}" for r, count in zip(results, rounds, strict=True)]),
        ("algorithm", [result.method for result in results]),
        ("guarantee", [certainty_text(p) if p.is_noisy else "none: no noise" for p in statements]),
        ("δ", [delta_text(p.delta) for p in statements]),
        (
            "ε of the published models, worst agent",
            ["" if p.epsilon_published is None else epsilon_text(p.epsilon_published) for p in statements],
        ),
        (
            "ε of all messages, worst agent" if hidden else "ε of the worst agent",
            [epsilon_text(p.epsilon_max) for p in statements],
        ),
        ("pure ε of the worst agent", [epsilon_text(p.epsilon_pure_max) for p in statements]),
        ("adjacency", [adjacency_text(p) if p.is_noisy else "" for p in statements]),
        ("adversary", [adversary_text(p) if p.is_noisy else "" for p in statements]),
        (
            "claimed by a paper, not certified",
            ["" if p.claimed is None else epsilon_text(p.claimed_epsilon) for p in statements],
        ),
    ]
    budgets = [(row, [text or ABSENT for text in texts]) for row, texts in budgets if any(texts)]
    note = "Rounded up."
    tables = [ComparisonTable("Budgets", budgets, True, note)]

    last = comparison.metrics
    scores: list[tuple[str, Sequence[str]]] = []
    for name in sorted(last.index):
        # Other states only if the published values have no such metric.
        stem = next((name.removesuffix(end) for end in _OTHER_STATES if name.endswith(end)), "")
        if stem not in last.index:
            text = epsilon_text if name == "epsilon_spent" else score_text
            scores.append((str(name), [text(float(v)) for v in last.loc[name]]))
    if scores:
        scores.insert(0, ("at round", [ABSENT if run.measured_to is None else str(run.measured_to) for run in runs]))
    note = "Means over agents, non-private evaluation. A dash: not measured."
    tables.append(ComparisonTable("Last metrics", scores, True, note if scores else "Nothing was measured."))

    sent, settings = comparison.communication, comparison.settings
    if sent.notna().any(axis=None):
        rows = [(str(n), [ABSENT if pd.isna(v) else f"{int(v):,}".replace(",", " ") for v in sent[n]]) for n in sent]
        note = "Totals of all agents and rounds. A dash: agents answered a coordinator."
        tables.append(ComparisonTable("Communication", rows, True, note))
    rows = [(str(key), [ABSENT if v is None else quoted(v) for v in settings.loc[key]]) for key in settings.index]
    # Ranges of two sets of features would hide all other differences.
    shown = [row for row in rows if not row[0].startswith(_RANGES)]
    note = "" if shown else "Nothing: the settings are the same."
    if len(shown) < len(rows):
        note = "Ranges of features differ; Comparison.settings lists them."
    # Readers of several runs first look for the differences.
    return [ComparisonTable("Settings that differ", shown, False, note), *tables]


def _render(
    comparison: Comparison,
    template: str,
    figures: Sequence[Figure | None],
    links: Mapping[str, str] = MappingProxyType({}),
) -> str:
    heads = [("", ""), *((run.name, "") for run in comparison.runs)]
    tables = [
        (t, TextTable(heads, [True, *(t.numbers for _ in comparison.runs)], [(name, *texts) for name, texts in t.rows]))
        for t in comparison_tables(comparison)
    ]
    return render(
        template,
        title=f"Comparison of {len(comparison.runs)} runs",
        runs=comparison.runs,
        remarks=comparison.remarks,
        tables=tables,
        links=links,
        pictures=[style.picture_of(figure) for figure in figures if figure is not None],
    )


def comparison_figure(comparison: Comparison, across: int = 2) -> Figure | None:
    """Draw the curves of all runs, with `across` panels in a row; return None if nothing was measured.

    Call it inside `style.package_style`.
    """
    from matplotlib.lines import Line2D

    runs = comparison.runs
    curves = {name: [curve(run.metrics, name) for run in runs] for name in _DRAWN_METRICS}
    names = [n for n, each in curves.items() if any(c is not None and np.any(c.mean > 0) for c in each)]
    # An unreleased state is drawn only for a run that released none.
    plain = [n for n in names if not n.endswith("_unreleased") or None in curves[n.removesuffix("_unreleased")]]
    names = plain[:_MOST_PANELS]
    if not names:
        return None
    down = math.ceil(len(names) / across)
    figure = style.new_figure(4.2 * across, 0.8 + 2.6 * down + 0.2 * math.ceil(len(runs) / across))
    grid = figure.subplots(down, min(across, len(names)), squeeze=False)
    pairs = itertools.cycle(itertools.product(("-", "--", ":", "-."), style.SERIES_COLOURS))
    looks: list[tuple[str, Any]] = [(colour, dash) for _, (dash, colour) in zip(runs, pairs, strict=False)]
    references: dict[str, str] = {}
    for ax, name in zip(grid.flat, names, strict=False):
        spent = name == "epsilon_spent"
        # On a logarithmic axis there is no point for an ε of 0 or ∞.
        shown = [
            (style.thin(c), *look)
            for c, look in zip(curves[name], looks, strict=True)
            if c and (not spent or np.any(c.mean > 0))
        ]
        for c, colour, dash in shown:
            ax.plot(c.rounds, c.mean, dash, color=colour, marker="o" if c.rounds.size <= 25 else None)
            ax.margins(x=0.015)
            if c.overflow is not None:
                ax.axvline(c.overflow, color=colour, linestyle=":", linewidth=1.2)
        measure = MEASURES.get(name.removesuffix("_unreleased"))
        style.scale_axis(ax, "values" if measure is None else measure.axis, np.concatenate([c.mean for c, *_ in shown]))
        ax.set_title(name, fontweight="normal")
        for value in sorted({run.result.baselines[name] for run in runs if name in run.result.baselines}):
            ax.axhline(value, color=style.GREY, linestyle=":", linewidth=1.2)
            references["majority class"] = style.GREY
        endless = [run.name for run in runs if spent and math.isinf(run.result.privacy.epsilon_max)]
        ax.set_xlabel(textwrap.fill(f"round (∞: {', '.join(endless)})" if endless else "round", 60))
    for ax in grid.flat[len(names) :]:
        ax.set_visible(False)
    handles = [Line2D([], [], color=colour, linestyle=dash) for colour, dash in looks]
    labels = [run.name if run.result.status == "ok" else f"{run.name} ({run.result.status})" for run in runs]
    handles += [Line2D([], [], color=colour, linestyle=":") for colour in references.values()]
    labels += references
    figure.legend(handles, labels, loc="outside lower center", ncols=across, title="run")
    return figure
