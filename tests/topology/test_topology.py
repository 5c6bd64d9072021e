"""Graph families and mixing matrices: structure and known numbers."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

from decentral_dp.topology import GENERATORS, build_topology
from decentral_dp.topology.graphs import _bernoulli_pairs
from tests.support.topology_oracle import check, example, graph_of, naive

# --- the registry ------------------------------------------------------------------------------------------------


DIRECTED = {"directed_exponential"}


@pytest.mark.parametrize("kind", [kind for kind in GENERATORS if kind not in DIRECTED])
@pytest.mark.parametrize("weights", ["metropolis", "lazy_metropolis", "max_degree"])
def test_every_generator_with_every_rule(kind: str, weights: str) -> None:
    topology = example(kind, weights)
    check(topology)
    assert (topology.name, topology.weights) == (kind, weights)
    np.testing.assert_allclose(topology.mixing.toarray(), naive(topology, weights), rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("kind", GENERATORS)
def test_the_seed_decides(kind: str) -> None:
    first, again = example(kind, seed=11), example(kind, seed=11)
    np.testing.assert_array_equal(first.mixing.toarray(), again.mixing.toarray())
    assert first.delta2 == again.delta2
    differs = any(not np.array_equal(first.edges, example(kind, seed=s).edges) for s in range(3))
    assert differs == GENERATORS[kind].random


STRUCTURES: list[tuple[str, int, dict[str, Any], Any]] = [
    ("ring", 2, {}, nx.path_graph(2)),
    ("ring", 3, {}, nx.complete_graph(3)),
    ("ring", 9, {}, nx.cycle_graph(9)),
    ("path", 7, {}, nx.path_graph(7)),
    ("star", 2, {}, nx.path_graph(2)),
    ("star", 8, {}, nx.star_graph(7)),
    ("complete", 6, {}, nx.complete_graph(6)),
    ("grid", 12, {}, nx.grid_2d_graph(3, 4)),
    ("grid", 12, {"columns": 2}, nx.grid_2d_graph(6, 2)),
    ("torus", 15, {}, nx.grid_2d_graph(3, 5, periodic=True)),
    ("torus", 16, {"rows": 4, "columns": 4}, nx.grid_2d_graph(4, 4, periodic=True)),
    ("hypercube", 2, {}, nx.path_graph(2)),
    ("hypercube", 16, {}, nx.hypercube_graph(4)),
    ("circular_ladder", 6, {}, nx.circular_ladder_graph(3)),
    ("circular_ladder", 14, {}, nx.circular_ladder_graph(7)),
    ("random_regular", 2, {"degree": 1}, nx.path_graph(2)),
    ("random_regular", 10, {"degree": 2}, nx.cycle_graph(10)),
    ("random_regular", 10, {"degree": 9}, nx.complete_graph(10)),
    ("random_regular", 10, {"degree": 8}, nx.complete_multipartite_graph(2, 2, 2, 2, 2)),
    ("erdos_renyi", 9, {"probability": 1.0}, nx.complete_graph(9)),
    ("small_world", 9, {"degree": 4, "rewire": 0.0}, nx.circulant_graph(9, [1, 2])),
]


@pytest.mark.parametrize(("kind", "agents", "params", "expected"), STRUCTURES)
def test_structures(kind: str, agents: int, params: dict[str, Any], expected: Any) -> None:
    topology = build_topology(kind, agents, params)
    assert nx.is_isomorphic(graph_of(topology), expected)
    check(topology)


# --- sampling of pairs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probability", [0.05, 0.9])
def test_every_pair_is_equally_likely(probability: float) -> None:
    n, repeats = 7, 4000
    counts = np.zeros((n, n))
    for seed in range(repeats):
        i, j = _bernoulli_pairs(np.random.default_rng([1, seed]), n * (n - 1) // 2, probability).T
        counts[i, j] += 1
    z = (counts[np.triu_indices(n, 1)] / repeats - probability) / math.sqrt(probability * (1 - probability) / repeats)
    assert np.abs(z).max() < 4
    # A joint test has the power that the single ones lack: the squares sum to a χ² with 21 degrees of freedom.
    assert 6 < float((z**2).sum()) < 47
    assert counts[np.tril_indices(n)].sum() == 0


# --- known numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [4, 9, 10, 37])
def test_closed_forms(m: int) -> None:
    ring = build_topology("ring", m, weights={"kind": "constant", "value": 0.2})
    assert ring.delta2 == pytest.approx(0.4 * (1 - math.cos(2 * math.pi / m)), rel=1e-12)
    assert ring.delta_max == pytest.approx(0.4 * (1 - math.cos(2 * math.pi * (m // 2) / m)), rel=1e-12)
    assert build_topology("path", m).delta2 == pytest.approx((2 / 3) * (1 - math.cos(math.pi / m)), rel=1e-12)
    star = build_topology("star", m)
    assert star.delta2 == pytest.approx(1 / m, rel=1e-12)
    np.testing.assert_allclose(star.neighbour_weight, [(m - 1) / m] + [1 / m] * (m - 1), rtol=1e-14)
    complete = build_topology("complete", m)
    assert complete.rho < 1e-15
    np.testing.assert_allclose(complete.neighbour_weight, (m - 1) / m, rtol=1e-14)


def test_one_agent_and_two() -> None:
    alone = build_topology("complete", 1)
    assert alone.mixing.toarray().tolist() == [[0.0]]
    assert (alone.rho, alone.spectral_gap, alone.edges.shape) == (0.0, 1.0, (0, 2))
    pair = build_topology("ring", 2)
    assert pair.mixing.toarray().tolist() == [[-0.5, 0.5], [0.5, -0.5]]
    assert pair.rho == 0.0
