"""Agents that share a block: few rows leave it, whatever numbers the agents have."""

from __future__ import annotations

import numpy as np
import pytest

from decentral_dp.topology import build
from decentral_dp.topology.over_time import off_diagonal
from decentral_dp.topology.partition import grouped, rows_that_leave


def leaving(kind: str, agents: int, options: dict[str, float], blocks: int) -> tuple[int, int]:
    """Rows that leave blocks of consecutive agents, and those of the chosen agents."""
    mixing, sizes = build(kind, agents, options, None, 1).mixing, [agents // blocks] * blocks
    chosen = grouped(mixing, sizes)
    assert [of.size for of in chosen] == sizes
    np.testing.assert_array_equal(np.sort(np.concatenate(chosen)), np.arange(agents))
    assert all((np.diff(of) > 0).all() for of in chosen)
    owner = np.empty(agents, dtype=np.int64)
    for k, of in enumerate(chosen):
        owner[of] = k
    links = off_diagonal(mixing)
    # By a loop over pairs of agents and blocks.
    pairs = {(j, owner[i]) for i, j in zip(*links.nonzero(), strict=True) if owner[i] != owner[j]}
    assert rows_that_leave(links, owner) == len(pairs)
    return rows_that_leave(links, np.repeat(np.arange(blocks), agents // blocks)), len(pairs)


@pytest.mark.parametrize(
    ("kind", "options", "blocks", "share"),
    [("ring", {}, 4, 1.0), ("torus", {}, 16, 0.7), ("geometric", {"radius": 0.12}, 4, 0.2), ("complete", {}, 2, 1.0)],
)
def test_fewer_rows_leave(kind: str, options: dict[str, float], blocks: int, share: float) -> None:
    before, after = leaving(kind, 256, options, blocks)
    assert after <= share * before


def test_many_agents_are_grouped_by_steps_of_an_eigenvector() -> None:
    before, after = leaving("geometric", 1024, {"radius": 0.06}, 8)
    assert after <= 0.2 * before


def test_a_graph_of_parts_is_cut_between_them() -> None:
    path = build("path", 8).mixing.toarray()
    path[3, 4] = path[4, 3] = 0.0
    dealt = np.random.default_rng(5).permutation(8)
    shuffled = np.zeros((8, 8))
    shuffled[np.ix_(dealt, dealt)] = path
    chosen = grouped(type(build("path", 8).mixing)(shuffled), [4, 4])
    assert {frozenset(of.tolist()) for of in chosen} == {frozenset(dealt[:4].tolist()), frozenset(dealt[4:].tolist())}
