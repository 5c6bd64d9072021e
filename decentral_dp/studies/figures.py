"""Figures of a study: means with intervals over an axis, a measure or rounds, and paired gains.

The note below a figure states the number of cells of each mean and of failed cells. A gain over two axes is a
heat map, and over one axis a line with intervals.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from decentral_dp.reporting import style
from decentral_dp.studies.comparisons import COSTS, FAILED, OPEN, PAYS, UNEQUAL, select
from decentral_dp.studies.measures import axis_label, label_text, metric_stem
from decentral_dp.studies.runs import GOOD
from decentral_dp.studies.schema import VARIANT, Axis, Gain, Label, Plot, Study, are_numbers
from decentral_dp.studies.tables import Measured, different_threat_models, failures_text, intervals_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", ":", "-.")
_MOST_COLUMNS = 3
# A numeric axis with at most this many values has a tick at each.
_MOST_TICKS = 8
# Letters in a line of a legend, and in an inch of names below a categorical axis.
_LEGEND_LETTERS, _TICK_LETTERS = 26, 10.5


class Line(NamedTuple):
    """A line of a figure.

    Args:
        label: label in the legend.
        measure: measure of its values.
        where: axis → label of its points.
        look: arguments of matplotlib.
    """

    label: str
    measure: str
    where: Mapping[str, Label]
    look: Mapping[str, Any]


def study_figures(measured: Measured) -> Iterator[tuple[str, Figure]]:
    """Draw the plots of a study that have numbers, each with its name."""
    with style.package_style():
        for plot in measured.study.plots:
            figure = draw_plot(plot, measured)
            if figure is not None:
                yield plot.name, figure


def draw_plot(plot: Plot, measured: Measured) -> Figure | None:
    """Draw one plot inside `style.package_style`; None without numbers."""
    axes = {axis.name: axis for axis in measured.axes}
    cells, means = select(measured.cells, plot.where), select(measured.summary, plot.where)
    means = means[(means["n"] > 0) & (means["last"] != (plot.x == "round"))]
    points = means[means["name"].isin(plot.measures)]
    if points.empty or (plot.x not in (*axes, "round") and plot.x not in set(means["name"])):
        return None
    panels = _labels(axes, plot.panels, cells)
    names = _labels(axes, plot.x, cells) if plot.x in axes and not axes[plot.x].is_numeric else []
    points = points.assign(x=_positions(plot, names, axes, means, points))
    across = 1 if len(names) > 6 else _panels_across(len(panels))
    figure, each = _figure(len(panels), across)
    lines = make_lines(plot, axes, cells)
    for ax, panel in zip(each, panels, strict=True):
        where = {} if plot.panels is None else {plot.panels: panel}
        _draw_panel(ax, lines, select(points, where), bool(names), plot.x == "round")
        if where:
            ax.set_title(panel_title(str(plot.panels), panel), fontweight="normal")
        if names:
            _name_ticks(ax, names, figure.get_figwidth() / across)
    if not names:
        values = [float(label) for label in _labels(axes, plot.x, cells)] if plot.x in axes else []
        if "x" in plot.log:
            style.log_axis(each[0], "x", values or points["x"].to_numpy())
        if 0 < len(values) <= _MOST_TICKS:
            each[0].set_xticks(values, [label_text(value) for value in values])
            each[0].minorticks_off()
    if "y" in plot.log:
        ends = points[["mean", "low", "high"]].to_numpy()
        style.log_axis(each[0], "y", np.concatenate([ends / 1.1, ends * 1.1]))
    notes = [_means_text(points, plot.x == "round"), intervals_text(points)]
    notes += [failures_text(cells)] if not cells["status"].isin(GOOD).all() else []
    notes += [unnamed_axes_text(plot, measured)]
    notes += [f"Equal ε is not equal privacy: its {column} differs." for column in different_threat_models(cells)]
    side = plot.y_label or (axis_label(plot.measures[0], cells) if len(plot.measures) == 1 else "")
    heading = "" if plot.lines in (None, VARIANT) else axis_label(str(plot.lines), cells)
    _finish(figure, plot.title, notes, (axis_label(plot.x, cells), side), _handles(lines), heading)
    return figure


def _labels(axes: Mapping[str, Axis], name: str | None, cells: pd.DataFrame) -> list[Label]:
    """Return the values of an axis that the cells have, in the order of the study; [""] without an axis."""
    return [""] if name is None else [label for label in axes[name].labels if label in set(cells[name])]


def make_lines(plot: Plot, axes: Mapping[str, Axis], cells: pd.DataFrame) -> list[Line]:
    """List the lines: a colour for each value of `lines` and a dash for each measure; without `lines`, a colour."""
    lines, values = [], _labels(axes, plot.lines, cells)
    # Points at names and at measured values are not connected.
    is_joined = plot.x == "round" or (plot.x in axes and axes[plot.x].is_numeric)
    for m, measure in enumerate(plot.measures):
        for k, value in enumerate(values):
            hue, dash = (m, 0) if plot.lines is None else (k, m)
            # A repeated colour has another marker.
            again, colour = divmod(hue, len(style.SERIES_COLOURS))
            words = [label_text(value), axis_label(measure, cells) if len(plot.measures) > 1 else ""]
            look = {
                "color": style.SERIES_COLOURS[colour],
                "marker": MARKERS[(hue + again) % len(MARKERS)],
                "linestyle": DASHES[dash % len(DASHES)] if is_joined else "none",
                "fillstyle": "full" if is_joined or not dash else "none",
            }
            where = {} if plot.lines is None else {plot.lines: value}
            lines.append(Line(": ".join(filter(None, words)), measure, where, look))
    return lines


def _handles(lines: Sequence[Line]) -> list[Any]:
    """Return handles of a legend; none for a single line."""
    from matplotlib.lines import Line2D

    return [Line2D([], [], label=line.label, **line.look) for line in lines] if len(lines) > 1 else []


def _positions(
    plot: Plot, names: Sequence[Label], axes: Mapping[str, Axis], means: pd.DataFrame, points: pd.DataFrame
) -> list[float]:
    """Return the x of each point: its place among names, its number, or its mean of the measured x."""
    rows = points.to_dict("records")
    if names:
        return [float(names.index(row[plot.x])) for row in rows]
    if plot.x in axes or plot.x == "round":
        return [float(row[plot.x]) for row in rows]
    measured = means[means["name"] == plot.x].to_dict("records")
    x_of = {tuple(row[axis] for axis in axes): float(row["mean"]) for row in measured}
    return [x_of.get(tuple(row[axis] for axis in axes), math.nan) for row in rows]


def _draw_panel(ax: Axes, lines: Sequence[Line], points: pd.DataFrame, is_named: bool, over_rounds: bool) -> None:
    """Draw the lines of one panel, with bands over rounds and bars otherwise."""
    for k, line in enumerate(lines):
        rows = select(points[points["name"] == line.measure], line.where).sort_values("x")
        x, mean, low, high = rows[["x", "mean", "low", "high"]].to_numpy(dtype=np.float64).T
        if is_named:
            # Bars of one name are side by side.
            x = x + 0.5 * ((k + 0.5) / len(lines) - 0.5)
        look = dict(line.look)
        if look["linestyle"] != "none" and x.size > 25:
            look["marker"] = "none"
        # A line has a gap at an infinite mean.
        ax.plot(x, np.where(np.isfinite(mean), mean, math.nan), **look)
        if over_rounds:
            ax.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0)
        else:
            is_finite = np.isfinite(low)
            spread = np.stack([mean - low, high - mean])[:, is_finite]
            ax.errorbar(
                x[is_finite], mean[is_finite], spread, fmt="none", ecolor=look["color"], elinewidth=1.2, capsize=2
            )


def _name_ticks(ax: Axes, names: Sequence[Label], width: float) -> None:
    """Write names below an axis, slanted if they are too long. width: of a panel in inches."""
    slanted: dict[str, Any] = {"rotation": 35, "rotation_mode": "anchor", "ha": "right"}
    is_long = sum(len(str(name)) for name in names) > _TICK_LETTERS * (width - 0.9)
    ax.set_xticks(range(len(names)), [label_text(name) for name in names], **(slanted if is_long else {}))
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.grid(False, axis="x")


def _means_text(points: pd.DataFrame, over_rounds: bool) -> str:
    """State the number of cells of each mean.

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
    """Return the title of a panel.

    Example:
        >>> panel_title("privacy.epsilon", 4.0), panel_title("topology", "small_world"), panel_title("variant", "ours")
        ('target ε: 4', 'topology: small world', 'ours')
    """
    return label_text(value) if axis == VARIANT else f"{metric_stem(axis)}: {label_text(value)}"


def unnamed_axes_text(plot: Plot, measured: Measured) -> str:
    """Name the axes that vary among the points of a plot without a role in it; "" if none do."""
    rows = select(measured.summary[measured.summary["last"]], plot.where)
    rows = rows[rows["name"].isin(plot.measures)]
    used = (plot.x, plot.lines, plot.panels)
    also = [axis.name for axis in measured.axes if axis.name not in used and len(set(rows[axis.name])) > 1]
    return f"Also varies: {', '.join(map(metric_stem, also))}." if also else ""


# Colours of a diagram: what costs, what changes nothing, what pays.
_COLOURS = "RdBu"
# Sign of a verdict in its field, and its meaning.
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
        study: study with gains.
        table: table of `comparisons.gain_table`.
        cells: table of `tables.cell_table`.
    """
    with style.package_style():
        for gain in study.gains:
            rows = table[table["gain"] == gain.name]
            if rows["mean"].notna().any():
                yield gain.name, (_draw_lines if gain.y is None else _draw_diagram)(gain, rows, cells)


def _draw_diagram(gain: Gain, rows: pd.DataFrame, cells: pd.DataFrame) -> Figure:
    """Draw one panel per pair: fields coloured by the mean gain, with the sign of the verdict."""
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
            center = right.index(row[gain.x]) + 0.5, up.index(row[y]) + 0.5
            ax.text(
                *center, _SIGNS[row["verdict"]], ha="center", va="center", color=ink, fontsize=13, fontweight="bold"
            )
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
    """Draw one line per pair: the mean gain with its interval."""
    figure, (ax,) = _figure(1, 1)
    ax.axhline(0.0, color=style.GREY, linewidth=1.0)
    values = list(dict.fromkeys(rows[gain.x]))
    ordered = are_numbers(values)
    if ordered:
        values.sort()
    handles = []
    for k, pair in enumerate(gain.pairs):
        part = rows[(rows["pair"] == pair.name) & rows["mean"].notna()]
        x = part[gain.x].map(values.index) + (0.12 if ordered else 0.5) * ((k + 0.5) / len(gain.pairs) - 0.5)
        spread = [part["mean"] - part["low"], part["high"] - part["mean"]]
        looks: dict[str, Any] = {
            "color": style.SERIES_COLOURS[k % len(style.SERIES_COLOURS)],
            "marker": MARKERS[k % len(MARKERS)],
        }
        joined = "-" if ordered else "none"
        handles.append(ax.errorbar(x, part["mean"], spread, linestyle=joined, capsize=2, label=pair.name, **looks))
        for there, row in zip(x, part.to_dict("records"), strict=True):
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
    """Describe the number of differences and of failed pairs."""
    least, most = rows["n"].min(), rows["n"].max()
    n = f"{least}" if least == most else f"{least} to {most}"
    notes = [f"Means of n = {n} differences, seed by seed, at equal ε.", intervals_text(rows)]
    failed = int(rows["failed"].sum())
    return [*notes, f"{failed} of {int(rows['pairs'].sum())} pairs failed."] if failed else notes


def _panels_across(panels: int) -> int:
    """Return the number of panels in a row."""
    return 2 if panels == 4 else min(_MOST_COLUMNS, panels)


def _figure(panels: int, across: int) -> tuple[Figure, list[Axes]]:
    """Make a figure with panels in rows, which share both scales."""
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
    panels = [ax for ax in figure.axes if ax.get_visible() and ax.get_subplotspec() is not None]
    for ax in panels[-panels[0].get_subplotspec().get_gridspec().ncols :]:  # type: ignore[union-attr] # selected so
        ax.set_xlabel(labels[0])
    if handles:
        for handle in handles:
            handle.set_label(textwrap.fill(str(handle.get_label()), _LEGEND_LETTERS))
        heading, small = textwrap.fill(heading, _LEGEND_LETTERS), 0.88 * size
        legend = figure.legend(
            handles=handles, title=heading or None, loc="outside right center", fontsize=small, title_fontsize=small
        )
        extent = legend.get_window_extent()
        width += extent.width / figure.dpi
        height = max(height, extent.height / figure.dpi + 0.1)
    words = textwrap.fill(" ".join(filter(None, notes)), int(width * 15.5))
    figure.set_size_inches(width, height + 0.15 * (words.count("\n") + 1))
    figure.supxlabel(words, x=0.01, ha="left", fontsize=min(8.0, size), color=style.GREY)
    if title:
        title_size = style.letter_size("axes.title")
        figure.suptitle(title, x=0.01, ha="left", wrap=True, fontweight="bold", fontsize=title_size)
