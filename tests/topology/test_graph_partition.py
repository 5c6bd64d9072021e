"""Agents that share a block: few rows leave it, whatever numbers the agents have."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from decentral_dp.topology import build_topology
from decentral_dp.topology.over_time import off_diagonal
from decentral_dp.topology.partition import graph_partition, rows_that_leave

GRAPHS: dict[str, tuple[dict[str, float], int, float]] = {
    # Options, blocks, and the largest share of the rows that leave blocks of random agents.
    "ring": ({}, 4, 0.03),
    "torus": ({}, 16, 0.5),
    "small_world": ({"degree": 4, "rewire": 0.1}, 4, 0.3),
    "random_regular": ({"degree": 4}, 4, 0.7),
    "complete": ({}, 2, 1.0),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_fewer_rows_leave(kind: str) -> None:
    options, blocks, share = GRAPHS[kind]
    links = off_diagonal(build_topology(kind, 256, options, None, 1).mixing)
    dealt = np.random.default_rng(5).permutation(256)
    links = sp.csr_array(links[dealt][:, dealt])
    sizes = [100, *[156 // (blocks - 1)] * (blocks - 2)]
    sizes.append(256 - sum(sizes))
    chosen = graph_partition(links, sizes)
    assert [of.size for of in chosen] == sizes
    np.testing.assert_array_equal(np.sort(np.concatenate(chosen)), np.arange(256))
    assert all((np.diff(of) > 0).all() for of in chosen)
    # By a loop over pairs of agents and blocks.
    owner = {int(agent): k for k, of in enumerate(chosen) for agent in of}
    pairs = {(int(j), owner[int(i)]) for i, j in zip(*links.nonzero(), strict=True) if owner[int(i)] != owner[int(j)]}
    assert rows_that_leave(links, chosen) == len(pairs)
    by_number = np.split(np.arange(256), np.cumsum(sizes)[:-1])
    assert len(pairs) <= share * rows_that_leave(links, by_number)


def test_numbers_that_are_near_already_stay() -> None:
    links = off_diagonal(build_topology("small_world", 1024, {"degree": 4, "rewire": 0.1}, None, 1).mixing)
    for blocks in (4, 16):
        by_number = np.array_split(np.arange(1024), blocks)
        chosen = graph_partition(links, [of.size for of in by_number])
        assert rows_that_leave(links, chosen) <= rows_that_leave(links, by_number)


def test_a_graph_of_parts_is_cut_between_them() -> None:
    path = build_topology("path", 8).mixing.toarray()
    path[3, 4] = path[4, 3] = 0.0
    dealt = np.random.default_rng(5).permutation(8)
    shuffled = np.zeros((8, 8))
    shuffled[np.ix_(dealt, dealt)] = path
    chosen = graph_partition(off_diagonal(sp.csr_array(shuffled)), [4, 4])
    assert {frozenset(of.tolist()) for of in chosen} == {frozenset(dealt[:4].tolist()), frozenset(dealt[4:].tolist())}
