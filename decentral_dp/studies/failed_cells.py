"""What the pictures of a study say of cells that failed, and of how many cells their means are over."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd

from decentral_dp.bounded import Array
from decentral_dp.reporting.plots.style import GREY
from decentral_dp.studies.axis_labels import words_of
from decentral_dp.studies.grid import Label
from decentral_dp.studies.intervals import described_intervals
from decentral_dp.studies.study_runs import GOOD
from decentral_dp.studies.study_tables import counts_of
from decentral_dp.studies.study_text import failures_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Labels: TypeAlias = "tuple[Label, ...]"
FAILED_LABEL = "all cells failed"
# Where failures are marked, in heights of the axes.
_MARK_HEIGHT = 0.035
_GID = "failed"
# Combinations that a caption names.
_MOST_NAMES = 4


def is_lost(cells: pd.DataFrame) -> bool:
    """Say whether there are cells, and all of them failed.

    Example:
        >>> is_lost(pd.DataFrame({"status": ["diverged", "ok"]})), is_lost(pd.DataFrame({"status": ["diverged"]}))
        (False, True)
    """
    return len(cells) > 0 and not cells["status"].isin(GOOD).any()


def places(value: str, cells: pd.DataFrame, over_rounds: bool) -> str:
    """Name a line in the legend; over rounds, where its points cannot say it, with how many cells ended ok.

    Example:
        >>> places("ring", pd.DataFrame({"status": ["ok", "diverged"]}), over_rounds=True)
        'ring (1 of 2 ended ok)'
    """
    ok = int(cells["status"].isin(GOOD).sum())
    return f"{value} ({ok} of {len(cells)} ended ok)" if over_rounds and ok < len(cells) else value


def failed_handle() -> Any:
    """The cross that stands for a combination without any cell that ended ok."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=GREY, marker="x", linestyle="none", markersize=6, markeredgewidth=1.6)


def mark_failed(
    ax: Axes,
    colour: str,
    cells: pd.DataFrame,
    axes: Sequence[str],
    found: pd.DataFrame,
    placed: Callable[[pd.DataFrame], Array],
) -> list[Labels]:
    """Put a cross at the foot where all cells failed, and "3/5" beside the mean of those that ended ok.

    Args:
        ax: the panel.
        colour: of the line.
        cells: of the line in this panel.
        axes: names of the axes.
        found: the line's means here.
        placed: labels of combinations → their places along x.

    Returns:
        The combinations that failed and have no place, since what x measures is not known of them.
    """
    means = {tuple(row[a] for a in axes): row for row in found.to_dict("records")}
    unplaced = []
    for labels, (total, failed) in counts_of(cells, axes).items():
        row = means.get(labels)
        if row is not None and (row["n"] == total or not math.isfinite(row["mean"])):
            continue
        at = float(placed(pd.DataFrame([labels], columns=list(axes)))[0]) if failed else math.nan
        if row is not None and failed:
            words, offset = f"{row['n']}/{total}", (4, 4)
            ax.annotate(words, (at, row["mean"]), xytext=offset, textcoords="offset points", fontsize=7, color=GREY)
        elif failed == total and math.isnan(at):
            unplaced.append(labels)
        elif failed == total:
            _cross(ax, at, colour, ax.get_xaxis_transform())
    return unplaced


def mark_failed_line(ax: Axes, colour: str, place: int) -> None:
    """Put the cross of a line over rounds, which has no place among them, at the foot on the right."""
    _cross(ax, 0.98 - 0.035 * place, colour, ax.transAxes)


def _cross(ax: Axes, at: float, colour: str, transform: Any) -> None:
    (cross,) = ax.plot([at], [_MARK_HEIGHT], "x", color=colour, transform=transform, markersize=6, zorder=5)
    cross.set(markeredgewidth=1.6, clip_on=False, gid=_GID)


def are_marked(axes: Iterable[Axes]) -> bool:
    """Say whether there is a cross on any of these."""
    return any(line.get_gid() == _GID for ax in axes for line in ax.lines)


def caption(
    rows: pd.DataFrame,
    cells: pd.DataFrame,
    confidence: float,
    over_rounds: bool,
    unplaced: Sequence[Labels],
    more: Sequence[str] = (),
) -> str:
    """Say what the points are means of, with which intervals, and how many cells failed.

    Args:
        rows: means that are drawn.
        cells: of the picture.
        confidence: level of the intervals.
        over_rounds: whether the means are along lines, not single points.
        unplaced: combinations that failed and are not drawn.
        more: sentences on what is drawn otherwise than a reader would expect.
    """
    low, high, total = int(rows["n"].min()), int(rows["n"].max()), int(rows["cells"].max())
    n = f"{low}" if low == high else f"{low} to {high}"
    of = "" if low == high == total else f" of {total}"
    noun = "cell" if n == "1" and not of else "cells"
    ended = ", those that ended ok" if of else ""
    said = [f"n = {n}{of} {noun} a {'line' if over_rounds else 'point'}{ended}"]
    said.append(described_intervals(rows["interval"], confidence) or "No intervals")
    if not cells["status"].isin(GOOD).all():
        said.append(failures_text(cells).removesuffix("."))
    if unplaced:
        names = [" ".join(map(words_of, labels)) for labels in dict.fromkeys(unplaced)]
        others = f" and {len(names) - _MOST_NAMES} others" if len(names) > _MOST_NAMES else ""
        said.append(f"Failed, and without a place here: {', '.join(names[:_MOST_NAMES])}{others}")
    return ". ".join([*said, *more]) + "."
