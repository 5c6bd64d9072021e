"""Figures of a study: means with their intervals over an axis, a measured name or rounds, and gains.

The legend says what colours and dashes mean. The foot says what the means are over, and how many cells failed. A gain
is a phase diagram over two axes, or a line with intervals over one.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from decentral_dp.reporting.plots import style
from decentral_dp.studies.comparisons import COSTS, FAILED, OPEN, PAYS, UNEQUAL, select
from decentral_dp.studies.measures import axis_label, label_text, metric_stem
from decentral_dp.studies.runs import GOOD
from decentral_dp.studies.schema import VARIANT, Axis, Gain, Label, Plot, Study, are_numbers
from decentral_dp.studies.tables import Measured, different_threat_models, failures_text, intervals_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Place: TypeAlias = "Callable[[Mapping[Any, Any]], float]"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", ":", "-.")
_MOST_COLUMNS = 3
# Values of a numeric axis that are few enough to be marked each.
_MOST_TICKS = 8
# Letters in a line of a legend, and in an inch of names below a categorical axis.
_LEGEND_LETTERS, _TICK_LETTERS = 26, 10.5


class Line(NamedTuple):
    """One line of a figure.

    Args:
        value: of the axis that colours tell apart; "" without one.
        measure: what is drawn.
        where: axis → label of its points.
        colour, marker, dash: of the line; the measure decides the dash where colours tell values.
    """

    value: str
    measure: str
    where: Mapping[str, Label]
    colour: str
    marker: str
    dash: str


def study_figures(measured: Measured) -> Iterator[tuple[str, Figure]]:
    """Draw the plots of a study, each with its name; one without a single number is left out."""
    with style.package_style():
        for plot in measured.study.plots:
            figure = draw_plot(plot, measured)
            if figure is not None:
                yield plot.name, figure


def draw_plot(plot: Plot, measured: Measured) -> Figure | None:
    """Draw one plot inside `style.package_style`; None where nothing of it was measured."""
    axes = {axis.name: axis for axis in measured.axes}
    cells, means = select(measured.cells, plot.where), select(measured.summary, plot.where)
    means = means[(means["n"] > 0) & (means["last"] != (plot.x == "round"))]
    points = means[means["name"].isin(plot.measures)]
    if points.empty or (plot.x not in (*axes, "round") and plot.x not in set(means["name"])):
        return None
    panels = _labels(axes, plot.panels, cells)
    names = _labels(axes, plot.x, cells) if plot.x in axes and not axes[plot.x].is_numeric else []
    # Points at names, and at measured values, have no order along which to join them.
    joined = plot.x == "round" or (plot.x in axes and axes[plot.x].is_numeric)
    across = 1 if len(names) > 6 else _panels_across(len(panels))
    figure, each = _figure(len(panels), across)
    lines, place = lines_of(plot, axes, cells), _place(plot, names, axes, means)
    for ax, panel in zip(each, panels, strict=True):
        where = {} if plot.panels is None else {plot.panels: panel}
        _draw_panel(ax, lines, place, select(points, where), bool(names), joined, plot.x == "round")
        if where:
            ax.set_title(panel_title(str(plot.panels), panel), fontweight="normal")
        if names:
            _name_ticks(ax, names, figure.get_figwidth() / across)
    if not names:
        values = [float(label) for label in _labels(axes, plot.x, cells)] if plot.x in axes else []
        if "x" in plot.log:
            style.log_axis(each[0], "x", values or [place(row) for row in points.to_dict("records")])
        if 0 < len(values) <= _MOST_TICKS:
            each[0].set_xticks(values, [label_text(value) for value in values])
            each[0].minorticks_off()
    if "y" in plot.log:
        drawn = points[["mean", "low", "high"]].to_numpy()
        style.log_axis(each[0], "y", np.concatenate([drawn / 1.1, drawn * 1.1]))
    beside = plot.y_label or (axis_label(plot.measures[0], cells) if len(plot.measures) == 1 else "")
    handles, heading = _legend_entries(plot, lines, cells, joined)
    notes = [_means_text(points, plot.x == "round"), intervals_text(points)]
    notes += [failures_text(cells)] if not cells["status"].isin(GOOD).all() else []
    notes += [unnamed_axes_text(plot, measured)]
    notes += [f"Do not compare ε: its {column} differs (see the table)." for column in different_threat_models(cells)]
    _finish(figure, plot.title, notes, (axis_label(plot.x, cells), beside), handles, heading)
    return figure


def _labels(axes: Mapping[str, Axis], name: str | None, cells: pd.DataFrame) -> list[Label]:
    """The values of an axis that are drawn, in the order of the study; one that is empty where there is no axis."""
    return [""] if name is None else [label for label in axes[name].labels if label in set(cells[name])]


def lines_of(plot: Plot, axes: Mapping[str, Axis], cells: pd.DataFrame) -> list[Line]:
    """List the lines: colours tell the values of `lines`, dashes the measures; without `lines` colours do."""
    lines = []
    for m, measure in enumerate(plot.measures):
        for k, value in enumerate(_labels(axes, plot.lines, cells)):
            hue, dash = (m, 0) if plot.lines is None else (k, m)
            # Where colours come again, their markers are others.
            again, colour = divmod(hue, len(style.SERIES_COLOURS))
            where = {} if plot.lines is None else {plot.lines: value}
            marker = MARKERS[(hue + again) % len(MARKERS)]
            looks = style.SERIES_COLOURS[colour], marker, DASHES[dash % len(DASHES)]
            lines.append(Line(label_text(value), measure, where, *looks))
    return lines


def _place(plot: Plot, names: Sequence[Label], axes: Mapping[str, Axis], means: pd.DataFrame) -> Place:
    """Return the place of a row along x: its round, number, name, or mean of the measured x; NaN if not known."""
    if names:
        return lambda row: float(names.index(row[plot.x]))
    if plot.x in axes or plot.x == "round":
        return lambda row: float(row.get(plot.x, math.nan))
    rows = means[means["name"] == plot.x].to_dict("records")
    known = {tuple(row[axis] for axis in axes): float(row["mean"]) for row in rows}
    return lambda row: known.get(tuple(row[axis] for axis in axes), math.nan)


def _draw_panel(
    ax: Axes,
    lines: Sequence[Line],
    place: Place,
    points: pd.DataFrame,
    is_named: bool,
    joined: bool,
    over_rounds: bool,
) -> None:
    """Draw the lines of one panel: means, with a band over rounds and bars elsewhere."""
    for k, line in enumerate(lines):
        # Side by side, so that the bars of one name do not hide each other.
        aside = 0.5 * ((k + 0.5) / len(lines) - 0.5) if is_named else 0.0
        rows = select(points[points["name"] == line.measure], line.where).to_dict("records")
        at = sorted(((place(row) + aside, row) for row in rows), key=lambda pair: pair[0])
        x, mean, low, high = np.array([(x, r["mean"], r["low"], r["high"]) for x, r in at]).reshape(-1, 4).T
        marker = "none" if joined and x.size > 25 else line.marker
        filled = "none" if not joined and line.dash != DASHES[0] else "full"
        looks: dict[str, Any] = {"marker": marker, "linestyle": line.dash if joined else "none", "fillstyle": filled}
        # A line has a gap where a mean is infinite.
        ax.plot(x, np.where(np.isfinite(mean), mean, math.nan), color=line.colour, **looks)
        if over_rounds:
            ax.fill_between(x, low, high, color=line.colour, alpha=0.16, linewidth=0)
        else:
            known = np.isfinite(low)
            spread = np.stack([mean - low, high - mean])[:, known]
            ax.errorbar(x[known], mean[known], spread, fmt="none", ecolor=line.colour, elinewidth=1.2, capsize=2)


def _name_ticks(ax: Axes, names: Sequence[Label], width: float) -> None:
    """Write names below an axis, aslant where they are too long to stand side by side. width: inches of a panel."""
    aslant = sum(len(str(name)) for name in names) > _TICK_LETTERS * (width - 0.9)
    ax.set_xticks(range(len(names)), [label_text(name) for name in names], **(_ASLANT if aslant else {}))
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.grid(False, axis="x")


_ASLANT: dict[str, Any] = {"rotation": 35, "rotation_mode": "anchor", "ha": "right"}


def _legend_entries(plot: Plot, lines: Sequence[Line], cells: pd.DataFrame, joined: bool) -> tuple[list[Any], str]:
    """Return handles with their labels, and a heading: of colours, and of dashes or fillings."""
    from matplotlib.lines import Line2D

    values = {line.value: line for line in lines}
    measures = {line.measure: line for line in lines}
    heading = "" if plot.lines is None else axis_label(plot.lines, cells)
    entries = []
    if len(values) > 1:
        entries = [(value, line.colour, line.marker, "-") for value, line in values.items()]
    if len(measures) > 1:
        heading = f"{heading} (colour), measured ({'dash' if joined else 'filling'})" if len(values) > 1 else "measured"
        for measure, line in measures.items():
            colour, marker = (style.GREY, "none" if joined else "o") if len(values) > 1 else (line.colour, line.marker)
            entries.append((axis_label(measure, cells), colour, marker, line.dash))
    handles = []
    for label, colour, marker, dash in entries:
        looks: dict[str, Any] = {"linestyle": dash if joined else "none", "fillstyle": "full"}
        if not joined and dash != "-":
            looks["fillstyle"] = "none"
        handles.append(Line2D([], [], label=label, color=colour, marker=marker, **looks))
    return handles, heading if handles else ""


def _means_text(points: pd.DataFrame, over_rounds: bool) -> str:
    """Say how many cells a point is the mean of.

    Example:
        >>> _means_text(pd.DataFrame({"n": [3, 2], "cells": [3, 3]}), over_rounds=False)
        'n = 2 to 3 of 3 cells a point, those that ended ok.'
    """
    counts, total = sorted(set(points["n"])), int(points["cells"].max())
    n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    of, ended = ("", "") if counts == [total] else (f" of {total}", ", those that ended ok")
    noun = "cell" if n == "1" and not of else "cells"
    return f"n = {n}{of} {noun} a {'line' if over_rounds else 'point'}{ended}."


def panel_title(axis: str, value: Label) -> str:
    """Write the words above a panel; a variant is named by itself.

    Example:
        >>> panel_title("privacy.epsilon", 4.0), panel_title("topology", "small_world"), panel_title("variant", "ours")
        ('target ε: 4', 'topology: small world', 'ours')
    """
    return label_text(value) if axis == VARIANT else f"{metric_stem(axis)}: {label_text(value)}"


def unnamed_axes_text(plot: Plot, measured: Measured) -> str:
    """Say which axes vary among a plot's points that it does not name; "" where it names all."""
    rows = select(measured.summary[measured.summary["last"]], plot.where)
    rows = rows[rows["name"].isin(plot.measures)]
    used = (plot.x, plot.lines, plot.panels)
    also = [axis.name for axis in measured.axes if axis.name not in used and len(set(rows[axis.name])) > 1]
    return f"Also varies: {', '.join(map(metric_stem, also))}." if also else ""


# Colours of a diagram: what costs, what changes nothing, what pays.
_COLOURS = "RdBu"
# How a verdict is written into its field, and its meaning.
_SIGNS = {PAYS: "+", COSTS: "−", OPEN: "·", FAILED: "×", UNEQUAL: "≠"}
_MEANINGS = {
    PAYS: "+ the interval lies above 0",
    COSTS: "− below 0",
    OPEN: "· it holds 0",
    FAILED: "× cells failed",
    UNEQUAL: "≠ unequal ε",
}


def gain_figures(study: Study, table: pd.DataFrame, cells: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Draw the gains of a study, each with its name; one without a single number is left out.

    Args:
        study: with its gains.
        table: of `comparisons.gain_table`.
        cells: of `tables.cell_table`.
    """
    with style.package_style():
        for gain in study.gains:
            rows = table[table["gain"] == gain.name]
            if rows["mean"].notna().any():
                yield gain.name, (_draw_lines if gain.y is None else _draw_diagram)(gain, rows, cells)


def _draw_diagram(gain: Gain, rows: pd.DataFrame, cells: pd.DataFrame) -> Figure:
    """One panel a pair: fields coloured by the mean gain, with the sign of the verdict."""
    y = str(gain.y)
    right, up = (sorted(set(rows[axis])) for axis in (gain.x, y))
    across = _panels_across(len(gain.pairs))
    figure, each = _figure(len(gain.pairs), across)
    largest = max(float(rows["mean"].abs().max()), 1e-12)
    for ax, pair in zip(each, gain.pairs, strict=True):
        part = rows[rows["pair"] == pair.name]
        means = part.pivot_table("mean", y, gain.x, dropna=False).reindex(index=up, columns=right)
        image = ax.pcolormesh(means.to_numpy(), cmap=_COLOURS, vmin=-largest, vmax=largest)
        for row in part.to_dict("records"):
            ink = "white" if abs(row["mean"]) > 0.6 * largest else "black"
            at = right.index(row[gain.x]) + 0.5, up.index(row[y]) + 0.5
            ax.text(*at, _SIGNS[row["verdict"]], ha="center", va="center", color=ink, fontsize=13, fontweight="bold")
        ax.set_title(pair.name, fontweight="normal")
        ax.set_xticks(np.arange(len(right)) + 0.5, [label_text(value) for value in right])
        ax.set_yticks(np.arange(len(up)) + 0.5, [label_text(value) for value in up])
        ax.grid(False)
    figure.colorbar(image, ax=each, label=f"gain in {metric_stem(gain.measure)}")
    signs = ", ".join(words for verdict, words in _MEANINGS.items() if verdict in set(rows["verdict"]))
    notes = [*_gain_notes(rows), f"{signs}."]
    _finish(figure, gain.title, notes, (axis_label(gain.x, cells), axis_label(y, cells)), [], "")
    return figure


def _draw_lines(gain: Gain, rows: pd.DataFrame, cells: pd.DataFrame) -> Figure:
    """One line a pair: the mean gain with its interval."""
    figure, (ax,) = _figure(1, 1)
    ax.axhline(0.0, color=style.GREY, linewidth=1.0)
    values = list(dict.fromkeys(rows[gain.x]))
    ordered = are_numbers(values)
    if ordered:
        values.sort()
    handles = []
    for k, pair in enumerate(gain.pairs):
        part = rows[(rows["pair"] == pair.name) & rows["mean"].notna()]
        at = part[gain.x].map(values.index) + (0.12 if ordered else 0.5) * ((k + 0.5) / len(gain.pairs) - 0.5)
        spread = [part["mean"] - part["low"], part["high"] - part["mean"]]
        looks: dict[str, Any] = {
            "color": style.SERIES_COLOURS[k % len(style.SERIES_COLOURS)],
            "marker": MARKERS[k % len(MARKERS)],
        }
        joined = "-" if ordered else "none"
        handles.append(ax.errorbar(at, part["mean"], spread, linestyle=joined, capsize=2, label=pair.name, **looks))
        for there, row in zip(at, part.to_dict("records"), strict=True):
            if row["verdict"] in (FAILED, UNEQUAL):
                ax.annotate(_SIGNS[row["verdict"]], (there, row["mean"]), (5, 5), textcoords="offset points")
    _name_ticks(ax, values, figure.get_figwidth())
    notes, labels = (
        _gain_notes(rows),
        (axis_label(gain.x, cells), f"gain in {metric_stem(gain.measure)}"),
    )
    _finish(figure, gain.title, notes, labels, handles, "")
    return figure


def _gain_notes(rows: pd.DataFrame) -> list[str]:
    """Say what the differences are over, and how many pairs failed."""
    least, most = rows["n"].min(), rows["n"].max()
    n = f"{least}" if least == most else f"{least} to {most}"
    notes = [f"Means of n = {n} differences, seed by seed, at equal ε.", intervals_text(rows)]
    failed = int(rows["failed"].sum())
    return [*notes, f"{failed} of {int(rows['pairs'].sum())} pairs failed."] if failed else notes


def _panels_across(panels: int) -> int:
    """Return how many panels stand side by side."""
    return 2 if panels == 4 else min(_MOST_COLUMNS, panels)


def _figure(panels: int, across: int) -> tuple[Figure, list[Axes]]:
    """Make a figure with so many panels, row by row, which share both scales."""
    down = math.ceil(panels / across)
    width = 5.8 if across == 1 else 3.6 * across
    # Inches of height per inch of width; panels below each other are flat.
    ratio = 0.46 if across == 1 < down else 0.58 if across == 1 else 0.75
    figure = style.new_figure(width, (0.5 + ratio * width / across) * down)
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for ax in grid.flat[panels:]:
        ax.set_visible(False)
    for ax in grid.flat[max(0, panels - across) : panels] if across > 1 else []:
        ax.tick_params(labelbottom=True)
    return figure, list(grid.flat[:panels])


def _finish(
    figure: Figure,
    title: str,
    notes: Sequence[str],
    labels: tuple[str, str],
    handles: Sequence[Any],
    heading: str,
) -> None:
    """Add the labels of both axes, the title above, the legend on the right and the notes below."""
    width, height = figure.get_size_inches()
    size = style.letter_size("font")
    figure.supylabel(style.side_label(labels[1], figure), fontsize=size)
    shown = [ax for ax in figure.axes if ax.get_visible() and ax.get_subplotspec() is not None]
    for ax in shown[-shown[0].get_subplotspec().get_gridspec().ncols :]:  # type: ignore[union-attr] # selected so
        ax.set_xlabel(labels[0])
    if handles:
        for handle in handles:
            handle.set_label(textwrap.fill(str(handle.get_label()), _LEGEND_LETTERS))
        look = {"fontsize": 0.88 * size, "title_fontsize": 0.88 * size}
        heading = textwrap.fill(heading, _LEGEND_LETTERS)
        legend = figure.legend(handles=handles, title=heading or None, loc="outside right center", **look)
        extent = legend.get_window_extent()
        width += extent.width / figure.dpi
        height = max(height, extent.height / figure.dpi + 0.1)
    words = textwrap.fill(" ".join(filter(None, notes)), int(width * 15.5))
    figure.set_size_inches(width, height + 0.15 * (words.count("\n") + 1))
    figure.supxlabel(words, x=0.01, ha="left", fontsize=min(8.0, size), color=style.GREY)
    if title:
        look = {"fontweight": "bold", "fontsize": style.letter_size("axes.title")}
        figure.suptitle(title, x=0.01, ha="left", wrap=True, **look)
