"""Figures of experiments: means of each curve, ranges over repetitions, and fitted slopes."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from decentral_dp.reporting.style import (
    BLUE,
    SERIES_COLOURS,
    letter_size,
    log_axis,
    new_figure,
    package_style,
    picture_of,
)
from papers.findings import Finding, curve, fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "os^DvPX*<>"
_WIDTH, _HEIGHT, _COLUMNS = 4.3, 3.5, 3
# Smallest ratio of the largest to the smallest value for a logarithmic axis, without and with zeros.
_DECADES, _DECADES_WITH_ZEROS = 5.0, 1e3
_MOST_TICKS, _MOST_AMONG, _MOST_INSIDE = 6, 3, 8
_TITLE_LETTERS, _NAME_LETTERS = 46, 30


def write_finding(finding: Finding, path: Path) -> Path:
    """Draw a figure with a plot for each panel.

    Args:
        finding: result of `papers.run`.
        path: path of a .png file.

    Returns:
        The path.
    """
    panels = list(dict.fromkeys(finding.rows["panel"]))
    across = 2 if len(panels) == 4 else min(_COLUMNS, len(panels))
    down = math.ceil(len(panels) / across)
    with package_style():
        figure = new_figure(_WIDTH * across, _HEIGHT * down + 0.3)
        grid = figure.subplots(down, across, squeeze=False)
        for ax, panel in zip(grid.flat, panels, strict=False):
            rows = finding.rows[finding.rows["panel"] == panel]
            single = rows["point"].min() == rows["point"].max()
            (_plot_repetitions if single else _plot_curves)(ax, finding, panel, rows)
            ax.set_title(textwrap.fill(panel, _TITLE_LETTERS), fontweight="normal")
            ax.set_ylabel(" or ".join(dict.fromkeys(rows["measure"])))
        for ax in grid.flat[len(panels) :]:
            ax.set_visible(False)
        size = letter_size("axes.title")
        figure.suptitle(
            f"{finding.title}: {finding.verdict}", x=0.01, ha="left", fontweight="bold", fontsize=size, wrap=True
        )
        path.write_bytes(picture_of(figure, "png"))
    return path


def _plot_curves(ax: Axes, finding: Finding, panel: str, rows: pd.DataFrame) -> None:
    """Plot a line for each series, with the fitted power law."""
    slopes = {check.curve: check for check in finding.checks if check.curve}
    for k, series in enumerate(dict.fromkeys(rows["series"])):
        colour, marker = SERIES_COLOURS[k % len(SERIES_COLOURS)], MARKERS[k % len(MARKERS)]
        points = curve(rows, panel, series)
        by_point = points.groupby("point")["value"]
        at, mean = by_point.mean().index.to_numpy(dtype=np.float64), by_point.mean().to_numpy()
        ax.fill_between(at, by_point.min(), by_point.max(), color=colour, alpha=0.16, linewidth=0)
        check = slopes.get((panel, series))
        fitted = "" if check is None else f": slope {check.measured.value:.2f}".replace("-", "−")
        name = textwrap.fill(f"{series}{fitted}", _NAME_LETTERS)
        linestyle = "-" if check is None else "none"
        ax.plot(at, mean, color=colour, marker=marker, label=name, linestyle=linestyle)
        if check is not None:
            inclination, intercept = fit(points)
            ends = np.array([at.min(), at.max()])
            ax.plot(ends, np.exp(intercept) * ends**inclination, color=colour, linewidth=1.2)
    for which, column in (("x", "point"), ("y", "value")):
        numbers = rows[column].to_numpy(dtype=np.float64)
        above = numbers[numbers > 0.0]
        least = _DECADES if above.size == numbers.size else _DECADES_WITH_ZEROS
        if (above.size and above.max() > least * above.min()) or any(place[0] == panel for place in slopes):
            log_axis(ax, which, numbers)
        elif which == "x" and np.unique(numbers).size <= _MOST_TICKS:
            ax.set_xticks(np.unique(numbers))
    ax.set_xlabel(textwrap.fill(str(rows["axis"].iloc[0]), _TITLE_LETTERS))
    if len(ax.get_lines()) > _MOST_INSIDE:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=6)
    elif len(ax.get_lines()) > _MOST_AMONG:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=7)
    else:
        ax.legend(loc="best", fontsize=7)


def _plot_repetitions(ax: Axes, finding: Finding, panel: str, rows: pd.DataFrame) -> None:
    """Plot the repetitions of each series side by side, for a panel with a single point."""
    names = list(dict.fromkeys(rows["series"]))
    for k, series in enumerate(names):
        numbers = curve(rows, panel, series)["value"].to_numpy(dtype=np.float64)
        ax.plot(np.full(numbers.size, k), numbers, "o", color=BLUE, alpha=0.4)
        ax.plot([k - 0.25, k + 0.25], [numbers.mean()] * 2, color=BLUE)
    ax.set_xticks(range(len(names)), [textwrap.fill(name, 16) for name in names], fontsize=7)
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_xlabel(f"{rows['axis'].iloc[0]} = {rows['point'].iloc[0]:g}")
