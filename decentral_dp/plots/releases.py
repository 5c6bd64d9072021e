"""What was released: its noise and sensitivity, and the values of x."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from decentral_dp.plots.axes import BLUE, CHANNEL_COLOURS, GREY, PINK, flat_axis, log_axis, title
from decentral_dp.plots.drawing import OVERFLOW, Drawing
from decentral_dp.report.text import power_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN_COORDINATES = 100


def upper_variable(figure: Figure, d: Drawing) -> bool:
    """The published x per coordinate: mean over agents, lowest to highest, and where it started."""
    from matplotlib.ticker import MaxNLocator

    if d.x is None or not 0 < d.x.shape[1] <= DRAWN_COORDINATES or not np.all(np.abs(d.x) < OVERFLOW):
        return False
    ax = figure.subplots()
    index, mean = np.arange(d.x.shape[1]), d.x.mean(axis=0)
    ax.vlines(index, d.x.min(axis=0), d.x.max(axis=0), color=BLUE, alpha=0.35, linewidth=min(4.0, 160 / index.size))
    ax.plot(index, mean, "o", color=BLUE, markersize=4.5 if index.size <= 50 else 3.0)
    values = d.x
    if d.start is not None:
        ax.axhline(d.start, color=GREY, linestyle="--", linewidth=1.2, zorder=1)
        values = np.append(values, d.start)
    flat_axis(ax, values)
    ax.grid(visible=False, axis="x")
    ax.set_xlim(-0.7, index.size - 0.3)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    ax.set_xlabel("coordinate of x")
    ax.set_ylabel("published x")
    ends = f"x ends between {mean.min():.3g} and {mean.max():.3g}" if mean.size > 1 else f"x ends at {mean[0]:.3g}"
    title(
        ax, ends.replace("-", "−") + (f"; it started at {d.start:.3g}".replace("-", "−") if d.start is not None else "")
    )
    return True


def noise(figure: Figure, d: Drawing) -> bool:
    """Noise scale of every channel, and how far one replaced record can move the release that it hides."""
    from matplotlib.lines import Line2D

    if "scale" not in d.ledger:
        return False
    rows = d.ledger[(d.ledger["scale"] > 0) & ~d.ledger["mechanism"].isin(["free", "none"])]
    if rows.empty:
        return False
    left, right = figure.subplots(1, 2, sharex=True)
    unbounded = sorted({str(c) for c in rows.loc[~np.isfinite(rows["sensitivity"]), "channel"]})
    laplace = bool((rows["mechanism"] == "laplace").any())
    for channel, part in rows.groupby("channel", observed=True):
        colour = CHANNEL_COLOURS.get(str(channel), PINK)
        _ledger_line(left, part.groupby("round")["scale"], str(channel), colour, "-")
        hidden = sum(_coincide(left.lines[-1], earlier) for earlier in left.lines[:-1])
        if hidden:  # Dashes of its own length let the lines below show.
            left.lines[-1].set(linestyle=(0, (9 - 3 * hidden, 3 * hidden)) if hidden < 3 else ":")
        for kind, of_kind in part.groupby("records", observed=True):
            drawable = of_kind[(of_kind["sensitivity"] > 0) & np.isfinite(of_kind["sensitivity"])]
            if not drawable.empty:
                style = "-" if kind == "train" else "--"
                _ledger_line(right, drawable.groupby("round")["sensitivity"], f"{channel}, {kind}", colour, style)
    log_axis(left, "x", rows["round"].to_numpy(dtype=np.float64))
    log_axis(left, "y", rows["scale"].to_numpy())
    log_axis(right, "y", rows["sensitivity"].to_numpy())
    left.set_ylabel("noise: Laplace scale b" if laplace else "noise: standard deviation")
    right.set_ylabel(f"sensitivity to one replaced record ({'ℓ1' if laplace else 'ℓ2'})")
    for ax in (left, right):
        ax.set_xlabel("index of the release")
        if len(ax.lines) > 4:  # The colours are named beside; so many names would cover the lines.
            ax.legend(
                handles=[
                    Line2D([], [], color=GREY, linestyle="-", label="train record"),
                    Line2D([], [], color=GREY, linestyle="--", label="validation record"),
                ],
                loc="best",
            )
        elif ax.lines:
            ax.legend(loc="best")
        else:
            ax.tick_params(axis="y", which="both", left=False, labelleft=False)
            ax.text(0.5, 0.5, "∞", transform=ax.transAxes, ha="center", va="center", fontsize=28, color=GREY)
    ratio = (rows["scale"] / rows["sensitivity"])[rows["sensitivity"] > 0]
    if unbounded:
        message = f"Nothing bounds what one record can do to {', '.join(unbounded)}: no noise can be enough"
    else:
        low, high = (power_text(float(f"{r:.2g}")) for r in (ratio.min(), ratio.max()))
        message = f"Noise is {low} to {high} times what one replaced record can move"
    figure.suptitle(textwrap.fill(message, 64), x=0.02, ha="left", fontsize=10.5, fontweight="bold")
    return True


def _ledger_line(ax: Axes, by_round: Any, label: str, colour: str, style: str) -> None:
    middle, low, high = by_round.median(), by_round.min(), by_round.max()
    ax.fill_between(middle.index, low, high, color=colour, alpha=0.16, linewidth=0)
    ax.plot(middle.index, middle, style, color=colour, marker="o" if middle.size <= 25 else None, label=label)


def _coincide(line: Any, other: Any) -> bool:
    mine, its = np.asarray(line.get_ydata()), np.asarray(other.get_ydata())
    return mine.shape == its.shape and bool(np.allclose(mine, its, rtol=0.01, atol=0.0))
