"""Axes, curves and titles of figures.

How figures look, and how curves, axes and titles are drawn.

What the figures are drawn from, as read from a run folder.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetFile

from decentral_dp.bounded import Array
from decentral_dp.reporting.folder import broken, published_x, read_scenario
from decentral_dp.reporting.plots.style import GREY, LETTERS_PER_INCH, TITLE_LETTERS_PER_INCH, side_label
from decentral_dp.reporting.words import SettingWords, power_text, words_of
from decentral_dp.simulation.result import RunResult, read_result
from decentral_dp.simulation.statements.statement import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OVERFLOW = 1e100  # Beyond this a curve is drawn as overflown: axes in float64 cannot hold it.
DRAWN_ROUNDS = 120


class Drawing(NamedTuple):
    """What the figures are drawn from.

    limits: ε that the scenario aims at ("target") or must not pass ("cap"). x: (m, p), last published; None where the
    folder has none. start: the value that every coordinate of x had first, where it is known.
    """

    result: RunResult
    metrics: pd.DataFrame
    ledger: pd.DataFrame
    limits: Mapping[str, float]
    x: Array | None
    start: float | None

    @property
    def diverged(self) -> bool:
        return self.result.has_diverged

    @property
    def trusted(self) -> bool:
        """Whether one value is published for all, by a coordinator whom all trust."""
        return self.result.privacy.is_trusted

    @property
    def words(self) -> SettingWords:
        """What is said differently by setting."""
        return words_of(self.result.privacy, self.result.topology)

    @property
    def minimax(self) -> bool:
        return self.result.is_minimax

    @property
    def solved(self) -> bool:
        """Whether x alone is published, so that scores are those of an exact lower solution that nobody sees."""
        return self.trusted and self.result.solves_lower

    @property
    def whose(self) -> str:
        """What the scores are of, at the end of an axis' label."""
        return "of the exact lower solution" if self.solved else "on held-out records"

    def score(self, name: str) -> Curve | None:
        """A score over rounds, of what was published or else of the exact lower solution there."""
        return curve(self.metrics, f"{name}_unreleased" if self.solved else name)


class Curve(NamedTuple):
    """A metric over rounds: mean, lowest and highest over agents; NaN where one overflowed, first at `overflow`."""

    rounds: Array
    mean: Array
    low: Array
    high: Array
    overflow: int | None

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last finite mean."""
        finite = self.mean[np.isfinite(self.mean)]
        return (float(finite[0]), float(finite[-1])) if finite.size else (math.nan, math.nan)


def read_drawing(folder: Path) -> Drawing:
    """What `write_plots` draws. Raises InputError where `folder` holds no result.json, or a file that is broken."""
    result = read_result(folder)
    metrics, ledger = _read_metrics(folder), read_ledger(folder / "ledger.parquet", drawn_rounds(result))
    return drawing_of(result, read_scenario(folder), metrics, ledger, published_x(folder))


def drawing_of(
    result: RunResult, scenario: Mapping[str, Any], metrics: pd.DataFrame, ledger: pd.DataFrame, x: Array | None
) -> Drawing:
    """What figures are drawn from, of a run that is in memory.

    Args:
        result: its numbers.
        scenario: fully resolved.
        metrics: rows (round, agent, name, value).
        ledger: at as many rounds as are to be drawn.
        x: (m, p), last published, or None.
    """
    stated = {"target": scenario.get("privacy", {}).get("epsilon"), **(result.get("privacy") or {})}
    limits = {name: value for name in ("target", "cap") if (value := number(stated.get(name))) is not None}
    start = number((scenario["algorithm"].get("init") or {}).get("x", 0.0)) if "algorithm" in scenario else None
    if "x" in (scenario.get("problem", {}).get("start") or {}):
        # Coordinates start apart.
        start = None
    if "algorithm" in result:
        # A coordinator brings the start into its domain.
        start = number((result.algorithm.get("start") or {}).get("x"))
    return Drawing(result, metrics, ledger, limits, x, start)


def drawn_rounds(result: RunResult) -> Array:
    """The rounds at which a ledger is drawn, evenly spaced on a log axis."""
    last = max(1, result.rounds, result.rounds_planned or 0)
    return np.unique(np.geomspace(1, last, DRAWN_ROUNDS).round())


def _read_metrics(folder: Path) -> pd.DataFrame:
    path = folder / "metrics.parquet"
    try:
        frame = pd.read_parquet(path) if path.exists() else pd.DataFrame()
    except (ValueError, OSError) as error:  # Arrow's errors are among these.
        raise broken(path, error) from None
    return frame if "value" in frame else pd.DataFrame({"round": [], "agent": [], "name": [], "value": []})


def read_ledger(path: Path, rounds: Array) -> pd.DataFrame:
    """Read a ledger at some rounds, part by part: it may be longer than memory.

    Args:
        path: of `ledger.parquet`; where it is missing nothing is read.
        rounds: whole numbers.

    Raises:
        InputError: for a file that is broken.
    """
    if not path.exists():
        return pd.DataFrame()
    wanted = pa.array(rounds.astype(np.int64))
    try:
        with ParquetFile(path) as file:
            # A run without any release has a ledger without columns.
            if "round" not in file.schema_arrow.names:
                return pd.DataFrame()
            # A mask: filters that are expressions keep memory from part to part.
            parts = (file.read_row_group(k) for k in range(file.num_row_groups))
            chosen = (part.filter(pc.is_in(part["round"], value_set=wanted)) for part in parts)
            read = [part for part in chosen if part.num_rows] or [file.schema_arrow.empty_table()]
        ledger: pd.DataFrame = pa.concat_tables(read).unify_dictionaries().to_pandas()
        return ledger
    except (ValueError, OSError) as error:
        raise broken(path, error) from None


def curve(metrics: pd.DataFrame, name: str) -> Curve | None:
    """The metric over rounds, its band from `…_min`/`…_max` or else from rows per agent; None if it is missing."""
    stem, last = (name.removesuffix("_last"), "_last") if name.endswith("_last") else (name, "")
    sides = {side: (f"{name}_{side}", f"{stem}_{side}{last}") for side in ("min", "max")}
    # Of the many metrics of a run few are drawn together: they are looked for once.
    near = metrics[metrics["name"].isin([name, *sides["min"], *sides["max"]])]
    of_all = near["agent"] == "mean"
    means = {str(n): part.groupby("round")["value"].last() for n, part in near[of_all].groupby("name")}
    rows = near[~of_all & (near["name"] == name)]
    by_agent = None if rows.empty else rows.groupby("round")["value"]
    mean = means.get(name, None if by_agent is None else by_agent.mean())
    if mean is None:
        return None
    band = []
    for side, names in sides.items():
        edge = next((means[n] for n in names if n in means), mean if by_agent is None else by_agent.agg(side))
        band.append(edge.reindex(mean.index).to_numpy(dtype=np.float64))
    rounds, values = mean.index.to_numpy(dtype=np.float64), mean.to_numpy(dtype=np.float64)
    drawable = [np.where(np.abs(v) < OVERFLOW, v, np.nan) for v in (values, *band)]
    bad = rounds[~np.isfinite(drawable[0])]
    return Curve(rounds, drawable[0], drawable[1], drawable[2], int(bad[0]) if bad.size else None)


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
        bbox_to_anchor=(0.46, -0.22),
        ncols=len(curves) if fits else 2,
        handlelength=1.5,
        handletextpad=0.5,
        columnspacing=1.2,
        borderaxespad=0.0,
    )


def log_axis(ax: Axes, which: str, values: Array | Sequence[float]) -> None:
    """Make the x or y axis logarithmic over `values`, at least one decade long, with labels that can be read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    numbers = np.ravel(np.asarray(values, dtype=np.float64))
    positive = numbers[np.isfinite(numbers) & (numbers > 0)]
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


def title(ax: Axes, text: str) -> None:
    """Set the title, and wrap the label of the y axis, which is set before; both to the size of the figure."""
    figure = ax.get_figure(root=True)
    if figure is not None:
        ax.set_title(textwrap.fill(text, int(figure.get_figwidth() * TITLE_LETTERS_PER_INCH)), loc="left")
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
