"""Pictures of paired gains: a phase diagram over two axes, or the gain with its interval over one."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from decentral_dp.reporting.plots.style import (
    GREY,
    SERIES_COLOURS,
    letter_size,
    new_figure,
    package_style,
    side_label,
    write_figure,
)
from decentral_dp.studies.gains import COSTS, FAILED, OPEN, PAYS, UNEQUAL
from decentral_dp.studies.plots import panel_height, set_foot
from decentral_dp.studies.schema import Gain, Study
from decentral_dp.studies.words import axis_label, metric_stem, words_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLE_LETTERS_PER_INCH = 10.5
_PANEL_COLUMNS = 3
# Inches that a panel needs at least, and those of the colour bar with its words, where a width is given.
_LEAST_PANEL, _BAR_WIDTH = 1.2, 0.8
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Colours of a diagram: what costs, what changes nothing, what pays.
_COLOURS = "RdBu"
_SIGN_SIZE = 13
# How a verdict is written into its field, and its meaning.
_SIGNS = {PAYS: "+", COSTS: "−", OPEN: "·", FAILED: "×", UNEQUAL: "≠"}
_MEANINGS = {
    PAYS: "+ the interval lies above 0",
    COSTS: "− below 0",
    OPEN: "· it holds 0",
    FAILED: "× cells failed",
    UNEQUAL: "≠ unequal ε",
}


def write_gain_plots(folder: Path, study: Study, table: pd.DataFrame, cells: pd.DataFrame) -> list[Path]:
    """Draw the gains of a study into a folder; one without a single number is not drawn.

    Args:
        folder: is made if it is not there.
        study: with its gains.
        table: of `gain_table`.
        cells: a row for each, with what its ε is.

    Returns:
        The paths that were written.
    """
    folder.mkdir(exist_ok=True)
    written: list[Path] = []
    with package_style(paper=study.width is not None):
        for gain in study.gains:
            rows = table[table["gain"] == gain.name]
            if not rows["mean"].notna().any():
                continue
            drawn = _lines if gain.y is None else _diagram
            figure = drawn(gain, rows, cells, study.width)
            _finish(figure, gain, rows, study)
            written += write_figure(figure, folder / gain.name, study.formats)
    return written


def _diagram(gain: Gain, rows: pd.DataFrame, cells: pd.DataFrame, width: float | None = None) -> Figure:
    """One panel a pair: fields coloured by the mean gain, with the sign of the verdict."""
    from matplotlib.colors import TwoSlopeNorm

    y = gain.y or ""
    across, upward = (sorted(set(rows[axis])) for axis in (gain.x, y))
    columns = 2 if len(gain.pairs) == 4 else min(_PANEL_COLUMNS, len(gain.pairs))
    if width is not None:
        columns = min(columns, max(1, int((width - _BAR_WIDTH) / _LEAST_PANEL)))
    down = math.ceil(len(gain.pairs) / columns)
    figure = new_figure(width or 2.2 + 2.1 * columns, 1.5 + (0.75 + 0.34 * len(upward)) * down)
    grid = figure.subplots(down, columns, sharex=True, sharey=True, squeeze=False)
    largest = max(float(rows["mean"].abs().max()), 1e-12)
    norm = TwoSlopeNorm(0.0, -largest, largest)
    image = None
    for ax, pair in zip(grid.flat, gain.pairs, strict=False):
        part = rows[rows["pair"] == pair.name]
        means = part.pivot_table("mean", y, gain.x, dropna=False).reindex(index=upward, columns=across)
        image = ax.imshow(means.to_numpy(), cmap=_COLOURS, norm=norm, origin="lower", aspect="auto")
        for row in part.to_dict("records"):
            dark = math.isfinite(row["mean"]) and abs(row["mean"]) > 0.6 * largest
            at = across.index(row[gain.x]), upward.index(row[y])
            sign, colour = _SIGNS[row["verdict"]], "white" if dark else "black"
            ax.text(*at, sign, ha="center", va="center", color=colour, fontsize=_SIGN_SIZE, fontweight="bold")
        ax.set_title(pair.name, fontweight="normal")
        ax.set_xticks(range(len(across)), [words_of(v) for v in across])
        ax.set_yticks(range(len(upward)), [words_of(v) for v in upward])
        ax.grid(False)
        ax.tick_params(labelbottom=True)
    for ax in grid.flat[len(gain.pairs) :]:
        ax.set_visible(False)
    for column in range(columns):
        lowest = [k for k in range(len(gain.pairs)) if k % columns == column][-1]
        grid.flat[lowest].set_xlabel(axis_label(gain.x, cells))
    figure.supylabel(side_label(axis_label(y, cells), figure), fontsize=letter_size("font"))
    if image is not None:
        bar = figure.colorbar(image, ax=grid, shrink=0.9)
        bar.set_label(_gain_label(gain))
    return figure


def _lines(gain: Gain, rows: pd.DataFrame, cells: pd.DataFrame, width: float | None = None) -> Figure:
    """One line a pair: the mean gain with its interval."""
    figure = new_figure(width or 5.8, 4.0)
    ax = figure.subplots()
    ax.axhline(0.0, color=GREY, linewidth=1.0)
    values = sorted(set(rows[gain.x]))
    places = {value: k for k, value in enumerate(values)}
    for k, pair in enumerate(gain.pairs):
        part = rows[(rows["pair"] == pair.name) & rows["mean"].notna()]
        aside = 0.12 * ((k + 0.5) / len(gain.pairs) - 0.5)
        at = np.array([places[v] + aside for v in part[gain.x]])
        mean = part["mean"].to_numpy(dtype=np.float64)
        spread = np.stack([mean - part["low"].to_numpy(), part["high"].to_numpy() - mean])
        colour = SERIES_COLOURS[k % len(SERIES_COLOURS)]
        ax.plot(at, mean, color=colour, marker=_MARKERS[k % len(_MARKERS)], label=pair.name)
        ax.errorbar(at, mean, spread, fmt="none", ecolor=colour, elinewidth=1.2, capsize=2)
        for place, row in zip(at, part.to_dict("records"), strict=True):
            if row["verdict"] in (FAILED, UNEQUAL):
                ax.annotate(_SIGNS[row["verdict"]], (place, row["mean"]), (5, 5), textcoords="offset points")
    ax.set_xticks(range(len(values)), [words_of(v) for v in values])
    ax.set_xlabel(axis_label(gain.x, cells))
    ax.set_ylabel(side_label(_gain_label(gain), figure))
    ax.legend()
    return figure


def _gain_label(gain: Gain) -> str:
    words = metric_stem(gain.measure)
    return f"gain in {words}" if gain.better == "higher" else f"fall of {words}"


def _finish(figure: Figure, gain: Gain, rows: pd.DataFrame, study: Study) -> None:
    """Title above, and below what the numbers are."""
    if gain.title:
        words = textwrap.fill(gain.title, int(figure.get_figwidth() * _TITLE_LETTERS_PER_INCH))
        figure.suptitle(words, x=0.01, ha="left", fontweight="bold", fontsize=letter_size("axes.title"))
    high = study.height
    if high is None and study.width is not None:
        high = panel_height(study.width, 1, 1) if gain.y is None else 0.5 + 0.2 * rows[gain.y].nunique()
    set_foot(figure, _caption(gain, rows, study.confidence) if study.foot else "", high)


def _caption(gain: Gain, rows: pd.DataFrame, confidence: float) -> str:
    low, high = int(rows["n"].min()), int(rows["n"].max())
    n = f"{low}" if low == high else f"{low} to {high}"
    said = [f"Means of n = {n} differences, seed by seed, at equal ε"]
    intervals = f"{100 * confidence:g} % intervals: Student's t"
    if gain.y is None:
        said.append(intervals)
    else:
        there = set(rows["verdict"])
        said.append(f"{intervals}. {', '.join(words for name, words in _MEANINGS.items() if name in there)}")
    failed, pairs = int(rows["failed"].sum()), int(rows["pairs"].sum())
    if failed:
        said.append(f"{failed} of {pairs} pairs failed")
    return ". ".join(said) + "."
