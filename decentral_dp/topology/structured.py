"""Regular structures, written down directly, with the ends of their Laplacian spectrum in closed form.

Each function takes (agents, parameters, seed) and returns a Graph; none is random, the seed is ignored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.topology.graph import Array, Graph, IntArray, canonical
from decentral_dp.topology.parameters import require_room, wrong_agents


def circle(agents: int) -> Array:
    """Place m agents on the unit circle, clockwise from the top: (m, 2).

    Example:
        >>> (circle(4).round(6) + 0.0).tolist()
        [[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]]
    """
    return _at(2 * math.pi * np.arange(agents) / agents)


def _at(clockwise: Array) -> Array:
    return np.stack([np.sin(clockwise), np.cos(clockwise)], axis=1)


def cycle_ends(agents: int) -> tuple[float, float]:
    """Compute λ₂ and λ_m of the cycle's Laplacian, whose eigenvalues are 4 sin²(πk/m).

    It is written with the sine: 2 − 2cos loses all digits for large m.

    Example:
        >>> [round(v, 6) for v in cycle_ends(6)]
        [1.0, 4.0]
    """
    if agents == 2:
        return 2.0, 2.0
    return 4 * math.sin(math.pi / agents) ** 2, 4 * math.sin(math.pi * (agents // 2) / agents) ** 2


def _path_ends(agents: int) -> tuple[float, float]:
    return 4 * math.sin(math.pi / (2 * agents)) ** 2, 4 * math.cos(math.pi / (2 * agents)) ** 2


def _product_ends(*ends: tuple[float, float]) -> tuple[float, float]:
    """A Cartesian product's eigenvalues are the sums of its factors' eigenvalues, zero included."""
    return min(low for low, _ in ends), sum(high for _, high in ends)


def _consecutive(agents: int) -> IntArray:
    return np.stack([np.arange(agents - 1), np.arange(1, agents)], axis=1)


def ring(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Build the cycle: every agent has two neighbours.

    Example:
        >>> ring(4, {}, 0).edges.tolist()
        [[0, 1], [0, 3], [1, 2], [2, 3]]
    """
    edges = canonical(np.append(_consecutive(agents), [[agents - 1, 0]], axis=0))
    return Graph(agents, edges, cycle_ends(agents), circle(agents))


def path(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Build the path: agents in a row."""
    # A horseshoe: a long straight line leaves no room for its agents.
    positions = _at(0.85 * math.pi * np.linspace(-1.0, 1.0, agents))
    return Graph(agents, _consecutive(agents), _path_ends(agents), positions)


def star(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Build the star: agent 0 is linked to all others, which have no other neighbour."""
    leaves = np.arange(1, agents)
    positions = np.concatenate([np.zeros((1, 2)), circle(agents - 1)])
    ends = (1.0, float(agents)) if agents > 2 else (2.0, 2.0)
    return Graph(agents, np.stack([np.zeros_like(leaves), leaves], axis=1), ends, positions)


def complete(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Build the complete graph.

    Raises:
        InputError: too many edges.
    """
    require_room("complete", agents * (agents - 1) / 2)
    edges = np.stack(np.triu_indices(agents, 1), axis=1).astype(np.int64)
    return Graph(agents, edges, (float(agents), float(agents)) if agents > 1 else None, circle(agents))


def _sides(kind: str, agents: int, params: Mapping[str, Any], least: int) -> tuple[int, int]:
    """Rows and columns: as given, else the most nearly square factorisation with both at least `least`."""
    rows, columns = params["rows"], params["columns"]
    if rows is None and columns is None:
        rows = _most_square(agents, least)
        if rows is None:
            near = next(n for n in itertools.count(agents + 1) if _most_square(n, least))
            wanted = f"a product rows × columns of at least {least} each as the number of"
            raise wrong_agents(kind, wanted, agents, f"use {near}, or another kind")
    rows = agents // columns if rows is None else rows
    columns = agents // rows if columns is None and rows else columns
    if min(rows, columns) < least or rows * columns != agents:
        raise InputError(
            f'topology (kind "{kind}"): rows × columns = {rows} × {columns} for {agents} agents, wanted sides of at '
            f"least {least} whose product is the number of agents."
        )
    return rows, columns


def _most_square(agents: int, least: int) -> int | None:
    return next((r for r in range(math.isqrt(agents), least - 1, -1) if agents % r == 0), None)


def grid(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Build the grid of rows × columns agents.

    Raises:
        InputError: the number of agents does not fit the rows and columns.
    """
    rows, columns = _sides("grid", agents, params, 2)
    index = np.arange(agents).reshape(rows, columns)
    right = np.stack([index[:, :-1], index[:, 1:]], axis=-1).reshape(-1, 2)
    down = np.stack([index[:-1], index[1:]], axis=-1).reshape(-1, 2)
    row, column = np.divmod(np.arange(agents), columns)
    positions = np.stack([column, -row], axis=1).astype(np.float64)
    ends = _product_ends(_path_ends(rows), _path_ends(columns))
    return Graph(agents, canonical(np.append(right, down, axis=0)), ends, positions)


def torus(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Build the torus: a grid of at least 3 × 3 whose rows and columns are cycles.

    Raises:
        InputError: the number of agents does not fit the rows and columns.
    """
    rows, columns = _sides("torus", agents, params, 3)
    index = np.arange(agents).reshape(rows, columns)
    near = [np.stack([index, np.roll(index, -1, axis)], axis=-1).reshape(-1, 2) for axis in (0, 1)]
    ends = _product_ends(cycle_ends(rows), cycle_ends(columns))
    return Graph(agents, canonical(np.concatenate(near)), ends)


def hypercube(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Build the hypercube: agents are linked whose numbers differ in one bit.

    Raises:
        InputError: the number of agents is no power of two.

    Example:
        >>> hypercube(8, {}, 0).degrees.tolist()
        [3, 3, 3, 3, 3, 3, 3, 3]
    """
    bits = agents.bit_length() - 1
    if agents != 1 << bits:
        raise wrong_agents("hypercube", "a power of two", agents, f"use {1 << bits} or {2 << bits}")
    index = np.arange(agents)
    edges = np.concatenate([np.stack([index, index ^ (1 << k)], axis=1) for k in range(bits)])
    # Every bit moves an agent in its own direction, by lengths that keep all agents apart.
    bit = np.arange(bits)
    steps = 0.72 ** bit[:, None] * _at(math.pi * bit / bits)
    positions = (index[:, None] >> bit & 1).astype(np.float64) @ steps
    return Graph(agents, canonical(edges), (2.0, 2.0 * bits), positions)


def circular_ladder(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Build the circular ladder: two cycles of m/2 agents, linked rung by rung.

    Raises:
        InputError: an odd number of agents.
    """
    if agents % 2:
        raise wrong_agents("circular_ladder", "an even number of", agents, f"use {agents - 1} or {agents + 1}")
    half = agents // 2
    outer = np.stack([np.arange(half), np.roll(np.arange(half), -1)], axis=1)
    rungs = np.stack([np.arange(half), np.arange(half, agents)], axis=1)
    positions = np.append(circle(half), 0.55 * circle(half), axis=0)
    edges = canonical(np.concatenate([outer, outer + half, rungs]))
    return Graph(agents, edges, _product_ends(cycle_ends(half), (2.0, 2.0)), positions)
