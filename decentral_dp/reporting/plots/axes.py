"""How figures look, and how curves, axes and titles are drawn."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.reporting.plots.drawing import Curve
from decentral_dp.reporting.plots.style import GREY, LETTERS_PER_INCH, side_label
from decentral_dp.reporting.text import power_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Inches of height that a legend below the axes takes.
_LEGEND = 0.35


def draw_curves(ax: Axes, curves: Mapping[str, tuple[Curve, str, str]]) -> None:
    """Draw label → (curve, colour, line style): mean as a line, lowest to highest agent as a band."""
    from matplotlib.ticker import MaxNLocator

    for label, (c, colour, style) in curves.items():
        marker = "o" if c.rounds.size <= 25 else None
        ax.fill_between(c.rounds, c.low, c.high, color=colour, alpha=0.16, linewidth=0)
        ax.plot(c.rounds, c.mean, style, color=colour, marker=marker, label=label)
    broken = [c.overflow for c, *_ in curves.values() if c.overflow is not None]
    if broken:
        ax.axvline(min(broken), color=GREY, linestyle=":", linewidth=1.2)
        note = f" overflow from round {min(broken)} "
        ax.annotate(note, (min(broken), 0.97), xycoords=("data", "axes fraction"), color=GREY, ha="right", va="top")
    ax.set_xlabel("round")
    first, last = min(c.rounds[0] for c, *_ in curves.values()), max(c.rounds[-1] for c, *_ in curves.values())
    margin = 0.02 * (last - first + 1) if last > first else 0.5  # A single round still has whole numbers beside it.
    ax.set_xlim(first - margin, last + margin)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    if len(curves) > 1:
        _legend(ax, curves)


def _legend(ax: Axes, curves: Mapping[str, tuple[Curve, str, str]]) -> None:
    """Say which curve is which: below the axes where there are bands, which may leave no free place inside."""
    if not any(np.any(c.high > c.low) for c, *_ in curves.values()):
        ax.legend(loc="best")
        return
    width = ax.figure.get_figwidth() if hasattr(ax.figure, "get_figwidth") else 0.0
    # A handle takes the room of five letters.
    fits = sum(len(label) + 5 for label in curves) <= width * LETTERS_PER_INCH
    ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.46, -0.19),
        ncols=len(curves) if fits else 2,
        handlelength=1.5,
        handletextpad=0.5,
        columnspacing=1.2,
        borderaxespad=0.0,
    )


def log_axis(ax: Axes, which: str, values: Array | Sequence[float]) -> None:
    """Make the x or y axis logarithmic over `values`, at least one decade long, with labels that can be read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    given = np.ravel(np.asarray(values, dtype=np.float64))
    positive = given[np.isfinite(given) & (given > 0)]
    low, high = (float(positive.min()), float(positive.max())) if positive.size else (1.0, 1.0)
    widen = max(1.2, math.sqrt(10.0 / (high / low)))
    limits = low / widen, high * widen
    if which == "x":
        axis: Any = ax.xaxis
        ax.set_xscale("log")
        ax.set_xlim(limits)
    else:
        axis = ax.yaxis
        # A zero is left out: a line that falls to it would look like a measured collapse.
        ax.set_yscale("log", nonpositive="mask")
        ax.set_ylim(limits)
    dense = high / low * widen**2 < 200
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if dense else (1.0,), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_text(value)))
    axis.set_minor_formatter(NullFormatter())


def title(ax: Axes, text: str, width: int = 60) -> None:
    """Set the title, and wrap the label of the y axis, which is set before.

    Args:
        ax: the axes.
        text: the title.
        width: letters in a line; fewer where long names of ticks push the axes to the right.
    """
    ax.set_title(textwrap.fill(text, width), loc="left")
    figure = ax.get_figure(root=True)
    if figure is not None:
        ax.set_ylabel(side_label(ax.get_ylabel(), figure, 0.0 if ax.get_legend() is None else _LEGEND))


def flat_axis(ax: Axes, values: Array) -> None:
    """Keep a linear y axis from magnifying rounding: at least 2 % of the largest value high."""
    finite = values[np.isfinite(values)]
    least = 0.02 * float(np.abs(finite).max(initial=0.0)) or 1.0
    if finite.size and np.ptp(finite) < least:
        middle = (float(finite.min()) + float(finite.max())) / 2
        ax.set_ylim(middle - least / 2, middle + least / 2)


def value_axis(ax: Axes, values: Array) -> None:
    """Make the y axis logarithmic where finite values are positive and span more than a factor 30, else linear."""
    drawn = values[np.isfinite(values)]
    if drawn.size and drawn.min() > 0 and drawn.max() > 30 * drawn.min():
        log_axis(ax, "y", drawn)
    else:
        flat_axis(ax, drawn)


def change(name: str, c: Curve) -> str:
    """What a curve did, in words: its ends, and an extreme in between that lies clearly beyond both."""
    first, last = c.ends
    if c.overflow is not None:
        return f"{name} overflows at round {c.overflow}"
    if c.mean.size == 1:
        return f"{name} at round {c.rounds[0]:.0f}: {power_text(last)}"
    low, high = int(np.argmin(c.mean)), int(np.argmax(c.mean))
    clear = 0.1 * (c.mean[high] - c.mean[low])
    peaks = [
        f"{power_text(c.mean[at])} at round\u00a0{c.rounds[at]:.0f}"
        for at, beyond in ((high, c.mean[high] - max(first, last)), (low, min(first, last) - c.mean[low]))
        if beyond > max(clear, 0.01 * abs(first))
    ]
    through = f", through {' and '.join(peaks)}" if peaks else ""
    if abs(last - first) <= 0.01 * abs(first):
        return f"{name} {'starts and ends' if peaks else 'stays'} at {power_text(last)}{through}"
    return f"{name} {'falls' if last < first else 'rises'} from {power_text(first)} to {power_text(last)}{through}"
