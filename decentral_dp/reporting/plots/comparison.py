"""Curves of several runs in one picture: one panel for each measured name, one colour for each run."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from decentral_dp.reporting.folder import Curve, curve
from decentral_dp.reporting.plots.style import (
    SERIES_COLOURS,
    Format,
    flat_axis,
    log_axis,
    new_figure,
    package_style,
    save_figure,
    value_axis,
)
from decentral_dp.reporting.words import described
from decentral_dp.simulation.result import RunResult

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# What is drawn where it was measured, in this order; at most so many panels.
_DRAWN = (
    *("upper_loss", "test_accuracy", "primal", "test_auc", "upper_loss_unreleased", "test_accuracy_unreleased"),
    *("hypergradient_norm", "gradient_norm", "epsilon_spent", "consensus_y", "test_loss", "lower_loss"),
)
_MOST_PANELS = 6
_DASHES = ("-", "--", ":", "-.")
# Beyond this ratio of lengths the shorter run could not be seen.
_FAR_APART = 20.0


class PlottedRun(NamedTuple):
    """A run beside others: its name among them, a label that says what it is, its numbers, and what it measured."""

    name: str
    label: str
    result: RunResult
    metrics: pd.DataFrame


def write_comparison_plot(
    runs: Sequence[PlottedRun], path: Path, formats: Sequence[Format], columns: Literal[1, 2] = 2
) -> list[Path]:
    """Draw the curves of all runs; nothing where nothing was measured.

    Args:
        runs: that are compared.
        path: of the picture without an ending.
        formats: of the picture.
        columns: of panels; one for a narrow screen.
    """
    from matplotlib.lines import Line2D

    curves = {name: [curve(run.metrics, name) for run in runs] for name in _DRAWN}
    names = [n for n, of in curves.items() if any(c is not None and np.any(c.mean > 0) for c in of)]
    # An unreleased state beside what was released is for those who look at one run.
    plain = [n for n in names if not n.endswith("_unreleased") or None in curves[n.removesuffix("_unreleased")]]
    names = plain[:_MOST_PANELS]
    if not names:
        return []
    down = math.ceil(len(names) / columns)
    with package_style():
        figure = new_figure(4.2 * columns, 0.8 + 2.6 * down + 0.2 * math.ceil(len(runs) / columns))
        grid = figure.subplots(down, min(columns, len(names)), squeeze=False)
        for ax, name in zip(grid.flat, names, strict=False):
            _panel(ax, name, curves[name], runs)
        for ax in grid.flat[len(names) :]:
            ax.set_visible(False)
        handles = [Line2D([], [], color=_colour(k), linestyle=_dash(k)) for k in range(len(runs))]
        figure.legend(
            handles,
            [_label(run) for run in runs],
            loc="outside lower center",
            ncols=columns,
            title="run",
        )
        return save_figure(figure, path, formats)


def _colour(which: int) -> str:
    return SERIES_COLOURS[which % len(SERIES_COLOURS)]


def _dash(which: int) -> Any:
    return _DASHES[which // len(SERIES_COLOURS) % len(_DASHES)]


def _label(run: PlottedRun) -> str:
    name = run.label if len(run.label) <= 60 else f"…{run.label[-59:]}"
    return name if run.result.status == "ok" else f"{name} ({run.result.status.replace('_', ' ')})"


def _panel(ax: Axes, name: str, curves: Sequence[Curve | None], runs: Sequence[PlottedRun]) -> None:
    spent = name == "epsilon_spent"
    # On a logarithmic axis there is no point for an ε of 0 or ∞.
    drawn = [(k, c) for k, c in enumerate(curves) if c is not None and (not spent or bool(np.any(c.mean > 0)))]
    for k, c in drawn:
        marker = "o" if c.rounds.size <= 25 else None
        ax.plot(c.rounds, c.mean, _dash(k), color=_colour(k), marker=marker)
        if c.overflow is not None:
            ax.axvline(c.overflow, color=_colour(k), linestyle=":", linewidth=1.2)
    values = np.concatenate([c.mean for _, c in drawn]) if drawn else np.zeros(0)
    if spent:
        log_axis(ax, "y", values)
    elif "accuracy" in name or "auc" in name:
        flat_axis(ax, values)
    else:
        value_axis(ax, values)
    ends = [float(c.rounds[-1]) for _, c in drawn if c.rounds[-1] > 0]
    if ends and max(ends) > _FAR_APART * min(ends):
        ax.set_xscale("symlog", linthresh=1.0)
        ax.set_xlim(left=0.0)
    ax.set_title(described(name), fontweight="normal")
    ax.set_xlabel(textwrap.fill(f"round{_left_out(name, curves, runs)}", 60))


def _left_out(name: str, curves: Sequence[Curve | None], runs: Sequence[PlottedRun]) -> str:
    """Which runs have no curve here, and why."""
    missing = [run.name for run, c in zip(runs, curves, strict=True) if c is None]
    endless = [
        run.name for run in runs if name == "epsilon_spent" and math.isinf(run.result.privacy.epsilon_max or 0.0)
    ]
    said = [f"not measured by {', '.join(missing)}"] if missing else []
    said += [f"∞: {', '.join(endless)}"] if endless else []
    return f" ({'; '.join(said)})" if said else ""
