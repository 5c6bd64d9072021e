"""Check the invariants of a topology with dense matrices.

W comes from loops over the edges, ρ from a singular value decomposition of I + W − 11ᵀ/m.
"""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

from decentral_dp.topology import GENERATORS, Topology, build_topology

Array = NDArray[np.float64]
THIRD = {"kind": "constant", "value": 0.3}


def naive(topology: Topology, rule: str, value: float = 0.0) -> Array:
    """W by its definition, link by link."""
    m = topology.n_agents
    near: list[set[int]] = [set() for _ in range(m)]
    for i, j in topology.edges.tolist():
        near[i].add(j)
        near[j].add(i)
    largest = max(len(s) for s in near)
    w = np.zeros((m, m))
    for i in range(m):
        for j in near[i]:
            w[i, j] = {
                "metropolis": 1 / (1 + max(len(near[i]), len(near[j]))),
                "lazy_metropolis": 0.5 / (1 + max(len(near[i]), len(near[j]))),
                "max_degree": 1 / (1 + largest),
                "constant": value,
            }[rule]
    for i in range(m):
        w[i, i] = -sum(w[i, j] for j in range(m) if j != i)
    return w


def svd_rho(w: Array) -> float:
    m = len(w)
    return float(np.linalg.svd(np.eye(m) + w - np.full((m, m), 1 / m), compute_uv=False)[0])


def example(kind: str, weights: Any = None, seed: int = 7) -> Topology:
    agents, params = GENERATORS[kind].example
    return build_topology(kind, agents, params, weights, seed)


def graph_of(topology: Topology) -> Any:
    graph = nx.Graph()
    graph.add_nodes_from(range(topology.n_agents))
    graph.add_edges_from(topology.edges.tolist())
    return graph


def check(topology: Topology) -> None:
    """Check all invariants of a topology."""
    w = topology.mixing.toarray()
    m = topology.n_agents
    assert topology.mixing.has_sorted_indices
    assert topology.mixing.nnz == m + 2 * len(topology.edges)
    np.testing.assert_array_equal(w, w.T)
    assert np.abs(w.sum(axis=1)).max() <= 1e-15 * (1 + np.abs(w).sum(axis=1).max())
    off = w - np.diag(np.diag(w))
    assert off.min() >= 0
    np.testing.assert_array_equal(np.argwhere(np.triu(off) > 0), topology.edges)
    np.testing.assert_array_equal(topology.neighbour_weight, -np.diag(w))
    assert np.linalg.eigvalsh(-w).min() > -1e-12
    assert topology.rho == pytest.approx(svd_rho(w), abs=1e-9)
    assert topology.spectral_gap == pytest.approx(1 - topology.rho, abs=1e-9)
    # Without edges, agents never reach consensus.
    assert topology.rho < 1 if topology.edges.size else topology.rho == 1
    assert nx.is_connected(graph_of(topology)) or not topology.edges.size
    np.testing.assert_array_equal(topology.degrees, (off > 0).sum(axis=1))
