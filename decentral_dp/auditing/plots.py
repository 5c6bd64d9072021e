"""Figures of network DP: the certified ε of every pair of agents, and over their distance.

Thick lines hold for float64 messages. Thin lines hold in real arithmetic; for training they are the ε of linear gossip,
which is not a bound.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.formatting import cut_name, delta_text, epsilon_text, power_text, topology_name
from decentral_dp.reporting import style
from decentral_dp.reporting.style import BLUE, GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from decentral_dp.auditing.network_view import NetworkView

# Width of a figure in inches.
_WIDTH = 5.6
# With more agents or adversaries, names are omitted; longer names are truncated.
MOST_NAMED = 40
LONGEST_NAME = 18
# Colours and the axis of ε end at this fraction of the ε of all messages.
LEAST_DRAWN = 1e-3


def write_pairs(view: NetworkView, folder: Path) -> list[Path]:
    """Draw "pairs" and "distance" into a folder, and return the paths that were written."""
    height = 0.82 if len(view.pairs.observers) > 6 else 0.61
    paths = []
    with style.package_style(), warnings.catch_warnings():
        # Names of agents may have characters that the font does not contain.
        warnings.simplefilter("ignore", UserWarning)
        for name, share, draw in (("pairs", height, heat_map), ("distance", 0.63, by_distance)):
            figure = style.new_figure(_WIDTH, share * _WIDTH)
            draw(figure, view)
            paths += style.write_figure(figure, folder / name, ("png",))
    return paths


def heat_map(figure: Figure, view: NetworkView) -> None:
    """Draw the certified ε of every pair on a logarithmic colour scale; grey: members of the adversary."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator

    victims = np.flatnonzero(~np.isnan(view.certified).all(axis=0))
    values = view.certified[:, victims]
    # From the ε of all messages downwards, by at least a factor of 2.
    most = float(view.certified_total.max())
    least = min(max(float(np.nanmin(view.certified)), LEAST_DRAWN * most), most / 2.0)
    ax = figure.subplots()
    ax.set_facecolor("#DDDDDD")
    ax.grid(visible=False)
    image = ax.imshow(values, cmap="viridis", norm=LogNorm(least, most), aspect="auto", interpolation="nearest")
    beyond = "min" if np.nanmin(values) < least else "neither"
    bar = figure.colorbar(image, ax=ax, label=f"certified ε, δ = {delta_text(view.delta)}", extend=beyond)
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if most / least < 200 else (1.0,), numticks=9))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_text(value)))
    bar.ax.minorticks_off()
    names = [cut_name(view.labels[i], LONGEST_NAME) for i in victims]
    _name_ticks(ax.xaxis, names)
    if len(names) > 24 or any(len(name) > 3 for name in names):
        ax.tick_params("x", rotation=90)
    single = view.observes_single_agents
    rows = view.labels if single else [view.adversary(row) for row in range(len(view.pairs.observers))]
    _name_ticks(ax.yaxis, [cut_name(name, LONGEST_NAME) for name in rows])
    ax.set_xlabel("agent with the record")
    ax.set_ylabel("adversary (agent)" if single else "adversary")
    _title(figure, view)


def by_distance(figure: Figure, view: NetworkView) -> None:
    """Draw the certified ε of every pair over the edges between them, and the ε of all messages."""
    from matplotlib.ticker import MaxNLocator

    ax = figure.subplots()
    outside = ~np.isnan(view.certified)
    # A fixed jitter shows the number of pairs.
    aside = 0.24 * ((np.arange(outside.sum()) * 0.618) % 1.0 - 0.5)
    ax.scatter(view.distance[outside] + aside, view.certified[outside], s=9, color=BLUE, alpha=0.35, linewidths=0)
    ax.plot(*_largest(view.certified, view.distance), color=BLUE, marker="o", label="largest certified")
    thin = "largest in real arithmetic" if view.linear is None else "largest of linear gossip: no bound"
    ax.plot(*_largest(view.reference, view.distance), linewidth=0.8, linestyle=":", color=BLUE, label=thin)
    total = float(view.certified_total.max())
    ax.axhline(
        total, color=GREY, linestyle="--", linewidth=1.4, label=f"all messages: {epsilon_text(total)}, certified"
    )
    values = np.concatenate([part.ravel() for part in (view.certified, view.reference, view.certified_total)])
    style.log_axis(ax, "y", values[np.nan_to_num(values) >= LEAST_DRAWN * total])
    ax.set_xlim(0.5, int(view.distance.max()) + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
    ax.legend(loc="best", fontsize=8.0, frameon=True, edgecolor="none")
    ax.set_xlabel("distance from the adversary, in edges")
    ax.set_ylabel(f"ε of one record, δ = {delta_text(view.delta)}")
    _title(figure, view)


def _largest(epsilon: Array, distance: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array]:
    """Return the distances with a pair of positive ε, and the largest ε at each."""
    edges = np.unique(distance[epsilon > 0.0])
    return edges, np.asarray([np.nanmax(epsilon[distance == k]) for k in edges])


def _title(figure: Figure, view: NetworkView) -> None:
    size = style.letter_size("axes.title")
    # The width of a letter is about half its height.
    letters = int(_WIDTH * 72 / (0.53 * size))
    text = f"Network DP: {topology_name({'kind': view.name, 'agents': len(view.labels)})}"
    figure.suptitle(textwrap.fill(text, letters), x=0.02, ha="left", fontsize=size)


def _name_ticks(axis: Any, names: Sequence[str]) -> None:
    if len(names) <= MOST_NAMED:
        axis.set_ticks(range(len(names)), names, fontsize=7 if len(names) > 12 else min(8.5, style.letter_size("font")))
