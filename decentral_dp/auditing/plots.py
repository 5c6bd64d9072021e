"""Figure of network DP: the certified ε of every pair of agents against their distance.

Thick lines hold for float64 messages. Thin lines hold in real arithmetic. For training they show the ε of linear
gossip, which is not a bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.formatting import delta_text, epsilon_text, topology_name
from decentral_dp.reporting import style
from decentral_dp.reporting.style import BLUE, GREY

if TYPE_CHECKING:
    from decentral_dp.auditing.network_view import NetworkView

# The axis of ε ends at this fraction of the ε of all messages.
LEAST_DRAWN = 1e-3


def write_distances(view: NetworkView, folder: Path) -> list[Path]:
    """Draw the figure "distance" into a folder: every pair's certified ε against the number of edges between them.

    Returns:
        The paths of the written files.
    """
    from matplotlib.ticker import MaxNLocator

    with style.package_style():
        figure = style.new_figure(5.6, 3.5)
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
        style.title(ax, f"Network DP: {topology_name({'kind': view.name, 'agents': len(view.labels)})}")
        return style.write_figure(figure, folder / "distance", ("png",))


def _largest(epsilon: Array, distance: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array]:
    """Return the distances at which a pair has positive ε, and the largest ε at each distance."""
    edges = np.unique(distance[epsilon > 0.0])
    return edges, np.asarray([np.nanmax(epsilon[distance == k]) for k in edges])
