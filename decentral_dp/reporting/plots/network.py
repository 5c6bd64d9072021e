"""The graph of the agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from decentral_dp.bounded import Array
from decentral_dp.formatting import capitalise, delta_text, epsilon_text, topology_name
from decentral_dp.reporting.folder import Drawing
from decentral_dp.reporting.plots.style import BLUE, GREY, title
from decentral_dp.simulation.result import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN_AGENTS = 1000
NUMBERED_AGENTS = 30
_LONGEST_NAME = 16


def topology(figure: Figure, d: Drawing) -> bool:
    """The graph, its agents coloured by ε or by weight on neighbours where they differ; False where there is none."""
    from matplotlib.collections import LineCollection

    graph = d.result.topology
    m = int(graph.get("agents") or 0)
    # With a coordinator the graph plays no part.
    if not 1 <= m <= DRAWN_AGENTS or d.is_trusted:
        return False
    edges = np.asarray([e[:2] for e in graph.get("edges") or []], dtype=np.int64).reshape(-1, 2)
    at, (values, label) = _own_places(graph, m), _node_values(d.result, m)
    at = layout(m, np.unique(np.sort(edges, axis=1), axis=0)) if at is None else at
    ax = figure.subplots()
    ax.set_axis_off()
    faint = min(0.7, 400 / (len(edges) + 1))
    ax.add_collection(LineCollection(list(at[edges]), colors=GREY, linewidths=1.1, alpha=faint))
    if graph.get("directed"):
        # A head past the middle of each arc, where no agent hides it.
        (x, y), (dx, dy) = at[edges[:, 0]].T, 0.6 * (at[edges[:, 1]] - at[edges[:, 0]]).T
        heads = ax.quiver(x, y, dx, dy, angles="xy", scale_units="xy", scale=1.0, width=0.003, headwidth=6.0)
        heads.set(color=GREY, alpha=faint)
    size, rim = float(np.clip(9000 / m, 6, 330)), 0.8 if m <= 200 else 0.2
    nodes = ax.scatter(at[:, 0], at[:, 1], s=size, c=values if values is not None else BLUE, linewidths=rim, zorder=3)
    nodes.set_cmap("cividis")
    nodes.set_edgecolor("white")
    shade = np.zeros(m)
    if values is not None:
        shade = (values - values.min()) / np.ptp(values)
        bar = figure.colorbar(nodes, ax=ax, shrink=0.75, label=label)
        bar.outline.set_visible(False)
    for agent in range(m if m <= NUMBERED_AGENTS else 0):
        ink = "black" if shade[agent] > 0.6 else "white"
        ax.text(at[agent, 0], at[agent, 1], str(agent), color=ink, ha="center", va="center", fontsize=8, zorder=4)
    _name_agents(ax, at, [str(name) for name in graph.get("labels") or ()])
    centre, (half_width, half_height) = (at.min(axis=0) + at.max(axis=0)) / 2, 0.56 * np.ptp(at, axis=0) + 1e-9
    # As wide as the figure, so that the title has room: a path is flat, a ring is square.
    wide, high = max(half_width, 1.55 * half_height), max(half_width / 1.55, half_height)
    ax.set_xlim(centre[0] - wide, centre[0] + wide)
    ax.set_ylim(centre[1] - high, centre[1] + high)
    ax.set_aspect("equal")
    rho = graph["rho"]
    numbers = f": ρ = {rho:.3f}" if rho is not None and m > 1 else ""
    title(ax, capitalise(topology_name(graph)) + numbers + (f"; {label}" if values is None and label else ""))
    return True


def _own_places(graph: Mapping[str, Any], m: int) -> Array | None:
    """(m, 2) the coordinates that the graph brings, such as those of a map; None where it has none."""
    places = np.asarray(graph.get("positions") or [], dtype=np.float64)
    if places.shape != (m, 2) or not np.isfinite(places).all() or not np.ptp(places):
        return None
    return np.asarray(places / np.ptp(places, axis=0).max())


def _name_agents(ax: Axes, at: Array, names: Sequence[str]) -> None:
    """Write names below the agents of a small graph, where they are more than numbers."""
    from matplotlib.patheffects import withStroke

    if not 0 < len(names) == len(at) <= NUMBERED_AGENTS or all(name == str(k) for k, name in enumerate(names)):
        return
    for place, name in zip(at, names, strict=True):
        words = ax.annotate(
            name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…",
            (float(place[0]), float(place[1])),
            xytext=(0, -10),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=7.5,
            zorder=5,
        )
        words.set_path_effects([withStroke(linewidth=2.0, foreground="white")])


def _node_values(result: RunResult, m: int) -> tuple[Array | None, str]:
    """ε of every agent where it differs, else |w_ii| where that does, else None; and what it is."""
    budgets = result.privacy.agents
    epsilon = budgets.per_agent([budget.epsilon for budget in budgets.different])
    weight = np.asarray([w or 0.0 for w in result.topology["neighbour_weight"]])
    # Of a directed graph what an agent keeps does not tell what it hears.
    heard = "neighbours' weight" + " |w_ii|" * (not result.topology.get("directed"))
    at = f"at δ = {delta_text(result.privacy.delta)}, {result.privacy.certainty}"
    for values, label in ((epsilon, f"ε {at}"), (weight, heard)):
        if values.size == m and np.all(np.isfinite(values)) and np.ptp(values) > 1e-3 * np.abs(values).max():
            return values, label
    if not epsilon.size or not epsilon.max() > 0:
        return None, ""
    return None, f"ε = {epsilon_text(epsilon.max())}{' each' if m > 1 else ''} {at}"


def layout(m: int, edges: NDArray[np.int64]) -> Array:
    """(m, 2) places whose distances come close to the hop counts of the graph, by stress majorisation.

    Minimises Σ_{i<j} (‖u_i − u_j‖ − h_ij)² / h_ij² from the classical scaling of the hop counts h (Gansner, Koren &
    North, Graph Drawing 2004). Deterministic; a complete graph, whose hop counts are all one, is put on a circle.
    """
    angle = 2 * np.pi * np.arange(m) / m
    circle = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    if m < 4 or len(edges) >= m * (m - 1) // 2:
        return circle
    hops = shortest_path(csr_array((np.ones(len(edges)), edges.T.astype(np.int32)), (m, m)), directed=False)
    # Agents without a path are one edge further than the farthest with one.
    hops[np.isinf(hops)] = hops[np.isfinite(hops)].max() + 1.0
    square = hops**2
    centred = -0.5 * (square - square.mean(0) - square.mean(1)[:, None] + square.mean())
    values, vectors = np.linalg.eigh(centred)
    # A star or hypercube scales to coinciding points, from which majorisation cannot part them: hence a little circle.
    at: Array = vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0.0)) + 0.05 * circle
    np.fill_diagonal(hops, 1.0)
    weight = hops**-2.0
    np.fill_diagonal(weight, 0.0)
    laplacian = np.diag(weight.sum(1)) - weight
    if values[-2] > 0.99 * values[-1]:  # No direction is longer than another, so put agent 0 on top.
        u, v = at[0] / max(float(np.linalg.norm(at[0])), 1e-9)
        at = at @ np.array([[v, u], [-u, v]])
    inverse = np.linalg.inv(laplacian + 1.0 / m)
    for _ in range(max(20, 60 - m // 10)):
        gaps = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1))
        pull = weight * hops / np.maximum(gaps, 1e-9)
        at = inverse @ (pull.sum(1)[:, None] * at - pull @ at)
    return at
