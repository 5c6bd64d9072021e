"""Symmetries of networks: all symmetries of known graphs."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import networkx as nx
import numpy as np
import pytest

from decentral_dp.topology.symmetries import Coloured, colour, symmetry


def graph_of(graph: nx.Graph) -> Coloured:
    return colour([np.ones(len(graph))], [nx.to_numpy_array(nx.convert_node_labels_to_integers(graph))])


def marked(agents: int, **at: int) -> Any:
    return np.array([at.get(f"_{i}", 0) for i in range(agents)])


def taken(graph: Coloured, first: Any, second: Any) -> bool:
    """Return whether the search finds a symmetry; compare it with its marks and numbers."""
    image = symmetry(graph, first, second)
    if image is None:
        return False
    assert sorted(image) == list(range(len(first)))
    assert (second[image] == first).all()
    assert (graph.links[np.ix_(image, image)] == graph.links).all()
    assert (graph.agents[image] == graph.agents).all()
    return True


KNOWN = {
    "ring": (nx.cycle_graph(12), 6),
    "hypercube": (nx.hypercube_graph(4), 4),
    "complete": (nx.complete_graph(9), 1),
    "petersen": (nx.petersen_graph(), 2),
    "torus": (nx.grid_2d_graph(5, 5, periodic=True), 5),
}


@pytest.mark.parametrize("name", KNOWN)
def test_every_agent_takes_the_place_of_every_other_and_pairs_are_as_many_as_orbits(name: str) -> None:
    graph, orbits = KNOWN[name]
    numbers = graph_of(graph)
    m = len(graph)
    assert all(taken(numbers, marked(m, _0=1), np.roll(marked(m, _0=1), k)) for k in range(m))
    firsts: list[int] = []
    for v in range(1, m):
        here = marked(m, _0=1, **{f"_{v}": 2})
        if not any(taken(numbers, here, marked(m, _0=1, **{f"_{u}": 2})) for u in firsts):
            firsts.append(v)
    assert len(firsts) == orbits


@pytest.mark.parametrize("seed", range(8))
def test_what_is_found_is_what_all_permutations_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    links = rng.integers(0, 2, (5, 5))
    links = np.triu(links) + np.triu(links, 1).T
    graph = colour([rng.integers(0, 2, 5).astype(float)], [links.astype(float)])
    there_are = [
        p
        for p in map(np.array, permutations(range(5)))
        if (graph.links[p][:, p] == graph.links).all() and (graph.agents[p] == graph.agents).all()
    ]
    for i in range(5):
        for j in range(5):
            wanted = any(p[i] == j for p in there_are)
            assert taken(graph, np.eye(5, dtype=int)[i], np.eye(5, dtype=int)[j]) == wanted


def test_arcs_numbers_and_later_rounds_break_symmetries() -> None:
    ring = nx.to_numpy_array(nx.cycle_graph(6))
    arcs = np.roll(np.eye(6), 1, axis=1)
    ends = marked(6, _0=1, _1=2), marked(6, _0=2, _1=1)
    assert taken(colour([np.ones(6)], [ring]), *ends)
    assert not taken(colour([np.ones(6)], [arcs]), *ends)
    assert not taken(colour([np.ones(6)], [ring, ring, arcs]), *ends)
    uneven = np.ones(6)
    uneven[0] = np.nextafter(1.0, 2.0)
    assert not taken(colour([np.ones(6), uneven], [ring]), *ends)
    assert taken(colour([np.ones(6), uneven], [ring]), marked(6, _0=1, _1=2), marked(6, _0=1, _5=2))
