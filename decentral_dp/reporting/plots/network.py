"""The graph of the agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.formatting import capitalise, cut_name, delta_text, epsilon_text, topology_name
from decentral_dp.reporting.folder import Drawing
from decentral_dp.reporting.plots.style import BLUE, GREY, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DRAWN_AGENTS, _NUMBERED_AGENTS = 200, 30


def topology(figure: Figure, d: Drawing) -> bool:
    """The graph, its agents coloured by ε where that differs; False where there is none."""
    from matplotlib.collections import LineCollection

    graph, privacy = d.result.topology, d.result.privacy
    m = int(graph.get("agents") or 0)
    # With a coordinator the graph plays no part.
    if not 1 <= m <= _DRAWN_AGENTS or d.is_trusted:
        return False
    edges = np.asarray([e[:2] for e in graph.get("edges") or []], dtype=np.int64).reshape(-1, 2)
    # A map brings coordinates of its own.
    at = np.asarray(graph.get("positions") or [], dtype=np.float64)
    if at.shape != (m, 2) or not np.isfinite(at).all() or not np.ptp(at):
        at = layout(m, edges)
    ax = figure.subplots()
    ax.set_axis_off()
    faint = min(0.7, 400 / (len(edges) + 1))
    ax.add_collection(LineCollection(list(at[edges]), colors=GREY, linewidths=1.1, alpha=faint))
    if graph.get("directed"):
        # A head past the middle of each arc, where no agent hides it.
        (x, y), (dx, dy) = at[edges[:, 0]].T, 0.6 * (at[edges[:, 1]] - at[edges[:, 0]]).T
        heads = ax.quiver(x, y, dx, dy, angles="xy", scale_units="xy", scale=1.0, width=0.003, headwidth=6.0)
        heads.set(color=GREY, alpha=faint)
    epsilon = privacy.agents.per_agent([budget.epsilon for budget in privacy.agents.different])
    label = f"at δ = {delta_text(privacy.delta)}, {privacy.certainty}"
    differs = epsilon.size == m and bool(np.isfinite(epsilon).all()) and np.ptp(epsilon) > 1e-3 * epsilon.max()
    nodes = ax.scatter(at[:, 0], at[:, 1], s=float(np.clip(9000 / m, 6, 330)), c=epsilon if differs else BLUE, zorder=3)
    nodes.set_cmap("cividis")
    nodes.set_edgecolor("white")
    numbers = f": ρ = {graph['rho']:.3f}" if graph["rho"] is not None and m > 1 else ""
    if differs:
        figure.colorbar(nodes, ax=ax, shrink=0.75, label=f"ε {label}").outline.set_visible(False)
    elif epsilon.size and epsilon.max() > 0:
        numbers += f"; ε = {epsilon_text(epsilon.max())}{' each' if m > 1 else ''} {label}"
    # Bright agents have the largest ε.
    bright = (epsilon - epsilon.min()) / np.ptp(epsilon) > 0.6 if differs else np.zeros(m, dtype=bool)
    names = [str(name) for name in graph.get("labels") or ()]
    for agent, place in enumerate(at if m <= _NUMBERED_AGENTS else ()):
        ink = "black" if bright[agent] else "white"
        ax.text(float(place[0]), float(place[1]), str(agent), color=ink, ha="center", va="center", fontsize=8, zorder=4)
        if len(names) == m and names[agent] != str(agent):
            below: dict[str, Any] = {"xytext": (0, -10), "textcoords": "offset points", "ha": "center", "va": "top"}
            ax.annotate(cut_name(names[agent]), (float(place[0]), float(place[1])), fontsize=7.5, zorder=5, **below)
    # As wide as the figure, so that the title has room: a path is flat, a ring is square.
    middle, (wide, high) = (at.min(axis=0) + at.max(axis=0)) / 2, 0.56 * np.ptp(at, axis=0) + 1e-9
    wide, high = max(wide, 1.55 * high), max(wide / 1.55, high)
    ax.set(xlim=(middle[0] - wide, middle[0] + wide), ylim=(middle[1] - high, middle[1] + high), aspect="equal")
    title(ax, capitalise(topology_name(graph)) + numbers)
    return True


def layout(m: int, edges: NDArray[np.int64]) -> Array:
    """Return (m, 2) places whose distances come close to the hop counts of the graph; a circle if it is in parts.

    Kamada & Kawai, "An algorithm for drawing general undirected graphs", Information Processing Letters 31 (1989).
    """
    # Slow to import, and only drawing needs it.
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(m))
    graph.add_edges_from(edges.tolist())
    places = nx.kamada_kawai_layout(graph) if nx.is_connected(graph) else nx.circular_layout(graph)
    return np.array([places[agent] for agent in range(m)], dtype=np.float64)
