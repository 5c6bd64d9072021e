"""Figures of a study: means with intervals over an axis, a measure or rounds, and paired gains.

The caption of a figure states the number of cells of each mean and of failed cells. A gain over two axes is a heat map,
and over one axis a line with intervals. `FigureStyle` has the style of all figures.
"""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from decentral_dp.errors import nearest_of, quoted
from decentral_dp.reporting import style
from decentral_dp.studies.comparisons import COSTS, FAILED, OPEN, PAYS, UNEQUAL, select
from decentral_dp.studies.measures import axis_label, follows_rounds, is_log, label_text, metric_stem
from decentral_dp.studies.runs import GOOD
from decentral_dp.studies.schema import (
    VARIANT,
    Axis,
    FigureStyle,
    Gain,
    Label,
    Plot,
    SeriesStyle,
    Study,
    are_numbers,
    leaves,
)
from decentral_dp.studies.tables import Measured, different_threat_models, failures_text, intervals_text, methods_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", ":", "-.")
_COLOURS_OF_LINES = tuple(colour for colour in style.SERIES_COLOURS if colour != style.GREY)
# Number of panels side by side, and inches of a panel in a figure of a given width.
_MOST_COLUMNS, _LEAST_WIDTH = 3, 2.0
# Inches of a figure for narrow screens, in which its letters are large enough.
NARROW = 3.1
# A numeric axis with at most this many values has a tick at each.
_MOST_TICKS = 8
# Number of letters in a line of a legend, and in an inch of names below a categorical axis.
_LEGEND_LETTERS, _TICK_LETTERS = 26, 10.5


class Line(NamedTuple):
    """Line of a figure.

    Args:
        label: label in the legend.
        measure: measure of its values.
        where: axis → label of its points.
        look: arguments of matplotlib for its style.
    """

    label: str
    measure: str
    where: Mapping[str, Label]
    look: Mapping[str, Any]


# Name, figure, and the text of its caption, which is not drawn.
StudyFigure: TypeAlias = "tuple[str, Figure, str]"


def check_style(study: Study, axes: Sequence[Axis]) -> Iterator[str]:
    """Yield labels of unknown values, and colours and settings that matplotlib or this machine does not support."""
    from matplotlib import rcParams
    from matplotlib.colors import is_color_like

    names = {axis.name for axis in axes} | {name for plot in study.plots for name in (plot.x, *plot.measures)}
    names |= {gain.measure for gain in study.gains} | {pair.name for gain in study.gains for pair in gain.pairs}
    known = names.union(*({str(label), label_text(label)} for axis in axes for label in axis.labels))
    for name, series in study.style.labels.items():
        if name not in known:
            yield f"style.labels: {quoted(name)} is not a value{nearest_of(name, sorted(known))}"
        if series.colour is not None and not is_color_like(series.colour):
            yield f'style.labels.{name}.colour: unknown colour (got {quoted(series.colour)}). Fix: write "#0072B2".'
    valid = [name for name in rcParams if name.startswith(_SETTINGS) and name != "axes.prop_cycle"]
    for name, value in _settings(study.style).items():
        if name not in valid:
            yield f"style.matplotlib: {quoted(name)} is not a setting{nearest_of(name, valid)}"
            return
        try:
            rcParams.validate[name](value)
        except (ValueError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
            yield f"style.matplotlib.{name}: {error} (got {quoted(value)})."
    missing = [program for program in ("latex", "dvipng") if shutil.which(program) is None]
    if _settings(study.style).get("text.usetex") and missing:
        yield (
            f"style.matplotlib.text.usetex: LaTeX was not found (no program {missing[0]}). Fix: install it, "
            "or remove usetex."
        )


_SETTINGS = ("axes.", "font.", "grid.", "legend.", "lines.", "mathtext.", "text.", "xtick.", "ytick.")


def _settings(look: FigureStyle) -> dict[str, Any]:
    """Return the settings of matplotlib: black axes, no grid, small letters in a given width, and user settings."""
    settings: dict[str, Any] = {"axes.grid": False}
    settings |= dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), "black")
    if look.width is not None:
        settings |= {"font.size": 8.0, "axes.titlesize": 8.0, "lines.linewidth": 1.3, "lines.markersize": 3.0}
    return settings | {".".join(path): value for path, value in leaves(look.matplotlib)}


def study_figures(measured: Measured, gains: pd.DataFrame) -> Iterator[StudyFigure]:
    """Draw those plots and gains of a study for which there are values.

    Args:
        measured: numbers of the study.
        gains: table of `comparisons.gain_table`.
    """
    study = measured.study
    with style.package_style(_settings(study.style)):
        for plot in study.plots:
            if (figure := draw_plot(plot, measured)) is not None:
                yield figure
        for gain in study.gains:
            rows = gains[gains["gain"] == gain.name]
            if rows["mean"].notna().any():
                yield (_draw_lines if gain.y is None else _draw_diagram)(gain, rows, measured.cells, study.style)


def draw_plot(plot: Plot, measured: Measured) -> StudyFigure | None:
    """Draw one plot inside `style.package_style`; return None if there are no numbers."""
    from matplotlib.lines import Line2D

    look, over_rounds = measured.study.style, follows_rounds(plot, measured.study)
    axes = {axis.name: axis for axis in measured.axes}
    cells, means = select(measured.cells, plot.where), select(measured.summary, plot.where)
    means = means[(means["n"] > 0) & (means["last"] != over_rounds)]
    panels = _labels(axes, plot.panels, cells, look)
    names = _labels(axes, plot.x, cells, look) if plot.x in axes and not axes[plot.x].is_numeric else []
    points = means[means["name"].isin(plot.measures)]
    points = points.assign(x=_positions(plot, names, axes, means, points)).dropna(subset="x")
    if points.empty:
        return None
    across = 1 if len(names) > 6 and look.columns is None else _panels_across(len(panels), look)
    figure, each = _figure(len(panels), across, look.width)
    width = figure.get_figwidth() / across
    lines = make_lines(plot, axes, cells, look, over_rounds)
    by_measure = ("x" if is_log(plot.x) else "") + ("y" if all(map(is_log, plot.measures)) else "")
    log = by_measure if plot.log is None else plot.log
    for ax, panel in zip(each, panels, strict=True):
        where = {} if plot.panels is None else {plot.panels: panel}
        _draw_panel(ax, lines, select(points, where), bool(names), over_rounds, "y" in log)
        if where:
            words = _series(look, panel).label or style.tex(panel_title(str(plot.panels), panel))
            ax.set_title(words, fontweight="normal")
        if names:
            _name_ticks(ax, [_name(look, name) for name in names], width)
    if not names:
        values = [float(label) for label in _labels(axes, plot.x, cells, look)] if plot.x in axes else []
        if "x" in log:
            style.log_axis(each[0], "x", values or points["x"].to_numpy(), narrow=width < _LEAST_WIDTH)
        if 0 < len(values) <= _MOST_TICKS:
            each[0].set_xticks(values, [_name(look, value) for value in values])
            each[0].minorticks_off()
    if "y" in log:
        ends = points[["mean", "low", "high"]].to_numpy()
        # An interval that almost reaches 0 would stretch the axis.
        least = points.loc[points["mean"] > 0, "mean"].min() / 3
        lower = np.where(ends > 0, np.maximum(ends, least), math.nan)
        style.log_axis(each[0], "y", np.concatenate([lower / 1.1, ends * 1.1]))
    notes = [_means_text(points, over_rounds), intervals_text(points, look.band)]
    notes += [failures_text(cells)] if not cells["status"].isin(GOOD).all() else []
    notes += [unnamed_axes_text(plot, measured)]
    # An algorithm may have other parts at some values of a numeric axis, such as ε.
    methods = methods_text(cells, [axis.name for axis in measured.axes if axis.is_numeric])
    notes += [methods] if methods != methods_text(cells, ()) else []
    notes += [f"Equal ε is not equal privacy: its {column} differs." for column in different_threat_models(cells)]
    side = plot.y_label or (_axis_name(look, plot.measures[0], cells) if len(plot.measures) == 1 else "")
    heading = "" if plot.lines in (None, VARIANT) else _axis_name(look, str(plot.lines), cells)
    handles = [Line2D([], [], label=line.label, **line.look) for line in lines] if len(lines) > 1 else []
    _finish(figure, plot.title, (_axis_name(look, plot.x, cells), side), handles, heading, look.width)
    return plot.name, figure, _caption(plot.title, notes)


def _caption(title: str, notes: Sequence[str]) -> str:
    return " ".join(filter(None, [f"{title}." if title else "", *notes]))


def _series(look: FigureStyle, value: Label) -> SeriesStyle:
    return look.labels.get(str(value)) or look.labels.get(label_text(value)) or SeriesStyle()


def _name(look: FigureStyle, value: Label) -> str:
    """Return the name of a value in figures."""
    return _series(look, value).label or style.tex(label_text(value))


def _axis_name(look: FigureStyle, name: str, cells: pd.DataFrame) -> str:
    """Return the name of an axis or a measure in figures."""
    return _series(look, name).label or style.tex(axis_label(name, cells))


def _labels(axes: Mapping[str, Axis], name: str | None, cells: pd.DataFrame, look: FigureStyle) -> list[Label]:
    """Return the values of an axis that the cells have, in the order of the style; [""] if there is no axis."""
    if name is None:
        return [""]
    present = [label for label in axes[name].labels if label in set(cells[name])]
    order = [label for key in look.labels for label in present if key in (str(label), label_text(label))]
    return list(dict.fromkeys([*order, *present]))


def make_lines(
    plot: Plot, axes: Mapping[str, Axis], cells: pd.DataFrame, look: FigureStyle, over_rounds: bool
) -> list[Line]:
    """List the lines: a colour for each value of `lines`, and a dash (a colour without `lines`) for each measure."""
    lines, values = [], _labels(axes, plot.lines, cells, look)
    # Points at names and at measured values at the end are not connected.
    is_joined = axes[plot.x].is_numeric if plot.x in axes else over_rounds
    for m, measure in enumerate(plot.measures):
        for k, value in enumerate(values):
            hue, dash = (m, 0) if plot.lines is None else (k, m)
            # A repeated colour has another marker.
            again, colour = divmod(hue, len(_COLOURS_OF_LINES))
            words = [_name(look, value), _axis_name(look, measure, cells) if len(plot.measures) > 1 else ""]
            series_colour = _series(look, measure if plot.lines is None else value).colour
            options = {
                "color": series_colour or _COLOURS_OF_LINES[colour],
                "marker": MARKERS[(hue + again) % len(MARKERS)],
                "linestyle": DASHES[dash % len(DASHES)] if is_joined else "none",
                "fillstyle": "full" if is_joined or not dash else "none",
            }
            where = {} if plot.lines is None else {plot.lines: value}
            lines.append(Line(": ".join(filter(None, words)), measure, where, options))
    return lines


def _positions(
    plot: Plot, names: Sequence[Label], axes: Mapping[str, Axis], means: pd.DataFrame, points: pd.DataFrame
) -> list[float]:
    """Return the x of each point: index of its name, its number, or its mean of the measured x; NaN if it has none."""
    rows = points.to_dict("records")
    if names:
        return [float(names.index(row[plot.x])) for row in rows]
    if plot.x in axes or plot.x == "round":
        return [float(row[plot.x]) for row in rows]
    measured = means[means["name"] == plot.x].to_dict("records")
    # Runs may end at different rounds.
    by = [*axes, *([] if means["last"].any() else ["round"])]
    x_of = {tuple(row[key] for key in by): float(row["mean"]) for row in measured}
    return [x_of.get(tuple(row[key] for key in by), math.nan) for row in rows]


def _draw_panel(
    ax: Axes, lines: Sequence[Line], points: pd.DataFrame, is_named: bool, over_rounds: bool, log_y: bool
) -> None:
    """Draw the lines of one panel, with bands over rounds and bars otherwise."""
    for k, line in enumerate(lines):
        rows = select(points[points["name"] == line.measure], line.where).sort_values("x")
        x, mean, low, high = rows[["x", "mean", "low", "high"]].to_numpy(dtype=np.float64).T
        if is_named:
            # Bars of one name are side by side.
            x = x + 0.5 * ((k + 0.5) / len(lines) - 0.5)
        look = dict(line.look)
        if look["linestyle"] != "none" and x.size > 25:
            # Markers of lines that coincide are at different points.
            step = x.size // 6
            look["markevery"] = (k * step // len(lines), step)
        # A line has a gap at an infinite mean.
        ax.plot(x, np.where(np.isfinite(mean), mean, math.nan), **look)
        if over_rounds:
            # A logarithmic axis has no 0.
            low = np.fmax(low, np.finfo(np.float64).tiny) if log_y else low
            ax.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0)
        else:
            is_finite = np.isfinite(low)
            spread = np.stack([mean - low, high - mean])[:, is_finite]
            ax.errorbar(
                x[is_finite], mean[is_finite], spread, fmt="none", ecolor=look["color"], elinewidth=1.2, capsize=2
            )


def _name_ticks(ax: Axes, names: Sequence[str], width: float) -> None:
    """Write names below an axis, slanted if they are too long for a panel of `width` inches."""
    slanted: dict[str, Any] = {"rotation": 35, "rotation_mode": "anchor", "ha": "right"}
    letters = _TICK_LETTERS * (width - 0.9) / len(names)
    is_long = any(len(left) + len(right) + 2 > 2 * letters for left, right in pairwise(names))
    ax.set_xticks(range(len(names)), names, **(slanted if is_long else {}))
    ax.set_xlim(-0.6, len(names) - 0.4)


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
    """Name the axes that vary among the points of a plot but have no role in it; "" if there are none."""
    rows = select(measured.summary[measured.summary["last"]], plot.where)
    rows = rows[rows["name"].isin(plot.measures)]
    used = (plot.x, plot.lines, plot.panels)
    also = [axis.name for axis in measured.axes if axis.name not in used and len(set(rows[axis.name])) > 1]
    return f"Also varies: {', '.join(map(metric_stem, also))}." if also else ""


# Colours of a diagram for levels that cost, change nothing, and pay.
_COLOURS = "RdBu"
# Sign of a verdict in its field, and its meaning.
SIGNS = {PAYS: "+", COSTS: "−", OPEN: "·", FAILED: "×", UNEQUAL: "≠"}
_MEANINGS = {
    PAYS: "+ the interval lies above 0",
    COSTS: "− below 0",
    OPEN: "· it holds 0",
    FAILED: "× cells failed",
    UNEQUAL: "≠ unequal ε",
}


def _draw_diagram(gain: Gain, rows: pd.DataFrame, cells: pd.DataFrame, look: FigureStyle) -> StudyFigure:
    """Draw one panel per pair: fields coloured by the mean gain, with the sign of the verdict."""
    y = str(gain.y)
    right, up = (sorted(set(rows[axis])) for axis in (gain.x, y))
    across = _panels_across(len(gain.pairs), look)
    figure, each = _figure(len(gain.pairs), across, look.width)
    largest = max(float(rows["mean"].abs().max()), 1e-12)
    for ax, pair in zip(each, gain.pairs, strict=True):
        part = rows[rows["pair"] == pair.name]
        means = part.pivot_table("mean", y, gain.x, dropna=False).reindex(index=up, columns=right)
        image = ax.pcolormesh(means.to_numpy(), cmap=_COLOURS, vmin=-largest, vmax=largest)
        for row in part.to_dict("records"):
            ink = "white" if abs(row["mean"]) > 0.6 * largest else "black"
            center = right.index(row[gain.x]) + 0.5, up.index(row[y]) + 0.5
            sign = style.tex(SIGNS[row["verdict"]])
            ax.text(*center, sign, ha="center", va="center", color=ink, fontsize=13, fontweight="bold")
        ax.set_title(_name(look, pair.name), fontweight="normal")
        ax.set_xticks(np.arange(len(right)) + 0.5, [_name(look, value) for value in right])
        ax.set_yticks(np.arange(len(up)) + 0.5, [_name(look, value) for value in up])
    figure.colorbar(image, ax=each, label=f"gain in {_gain_name(look, gain)}")
    signs = ", ".join(words for verdict, words in _MEANINGS.items() if verdict in set(rows["verdict"]))
    notes = [*_gain_notes(rows), f"{signs}."]
    labels = _axis_name(look, gain.x, cells), _axis_name(look, y, cells)
    _finish(figure, gain.title, labels, [], "", look.width)
    return gain.name, figure, _caption(gain.title, notes)


def _gain_name(look: FigureStyle, gain: Gain) -> str:
    return _series(look, gain.measure).label or style.tex(metric_stem(gain.measure))


def _draw_lines(gain: Gain, rows: pd.DataFrame, cells: pd.DataFrame, look: FigureStyle) -> StudyFigure:
    """Draw one line per pair: the mean gain with its interval."""
    figure, (ax,) = _figure(1, 1, look.width)
    ax.axhline(0.0, color="black", linewidth=0.6)
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
            "color": _series(look, pair.name).colour or _COLOURS_OF_LINES[k % len(_COLOURS_OF_LINES)],
            "marker": MARKERS[k % len(MARKERS)],
        }
        joined = "-" if ordered else "none"
        name = _name(look, pair.name)
        handles.append(ax.errorbar(x, part["mean"], spread, linestyle=joined, capsize=2, label=name, **looks))
        for there, row in zip(x, part.to_dict("records"), strict=True):
            if row["verdict"] in (FAILED, UNEQUAL):
                ax.annotate(style.tex(SIGNS[row["verdict"]]), (there, row["mean"]), (5, 5), textcoords="offset points")
    _name_ticks(ax, [_name(look, value) for value in values], figure.get_figwidth())
    labels = _axis_name(look, gain.x, cells), f"gain in {_gain_name(look, gain)}"
    _finish(figure, gain.title, labels, handles, "", look.width)
    return gain.name, figure, _caption(gain.title, _gain_notes(rows))


def _gain_notes(rows: pd.DataFrame) -> list[str]:
    """Describe the number of differences and of failed pairs."""
    least, most = rows["n"].min(), rows["n"].max()
    n = f"{least}" if least == most else f"{least} to {most}"
    notes = [f"Means of n = {n} differences, seed by seed, at equal ε.", intervals_text(rows)]
    failed = int(rows["failed"].sum())
    return [*notes, f"{failed} of {int(rows['pairs'].sum())} pairs failed."] if failed else notes


def _panels_across(panels: int, look: FigureStyle) -> int:
    """Return the number of panels in a row."""
    fit = _MOST_COLUMNS if look.width is None else max(1, min(_MOST_COLUMNS, int(look.width / _LEAST_WIDTH)))
    return min(panels, look.columns or (min(2, fit) if panels == 4 else fit))


def _figure(panels: int, across: int, width: float | None) -> tuple[Figure, list[Axes]]:
    """Make a figure with panels in rows, which share both scales; `width` is in inches, None for the default."""
    down = math.ceil(panels / across)
    width = width or (5.2 if across == 1 else 3.6 * across)
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
    labels: tuple[str, str],
    handles: Sequence[Any],
    heading: str,
    fixed: float | None,
) -> None:
    """Add the labels of both axes, the title above, and the legend: on the right, or below in a fixed width."""
    width, height = figure.get_size_inches()
    size = style.letter_size("font")
    panels = [ax for ax in figure.axes if ax.get_visible() and ax.get_subplotspec() is not None]
    across = panels[0].get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr] # selected so
    # The middle of the figure is below that of one panel with a legend.
    label_side: Any = panels[0].set_ylabel if len(panels) == 1 else figure.supylabel
    label_side(style.side_label(labels[1], figure), fontsize=size)
    for ax in panels[-across:]:
        ax.set_xlabel(textwrap.fill(labels[0], max(12, int(12 * width / across) - 4)))
    if handles:
        for handle in handles:
            handle.set_label(textwrap.fill(str(handle.get_label()), _LEGEND_LETTERS))
        heading, small = textwrap.fill(heading, _LEGEND_LETTERS), 0.88 * size
        looks: dict[str, Any] = {"title": heading or None, "fontsize": small, "title_fontsize": small}
        if fixed is None:
            extent = figure.legend(handles=handles, loc="outside right center", **looks).get_window_extent()
            width += extent.width / figure.dpi
            height = max(height, extent.height / figure.dpi + 0.1)
        else:
            looks |= {"loc": "outside lower center", "columnspacing": 1.2, "handlelength": 1.8}
            for columns in range(len(handles), 0, -1):
                legend = figure.legend(handles=handles, ncols=columns, **looks)
                extent = legend.get_window_extent()
                if extent.width / figure.dpi <= fixed or columns == 1:
                    break
                legend.remove()
            height += extent.height / figure.dpi
    figure.set_size_inches(width, height)
    if title:
        title_size = style.letter_size("axes.title")
        figure.suptitle(title, x=0.01, ha="left", wrap=True, fontweight="bold", fontsize=title_size)
