"""Messages between blocks: exactly the rows that are read, and equal sums to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.engines.protocol import AgentNode, Block, agent_blocks, boundaries, server_blocks
from decentral_dp.topology import build_topology
from decentral_dp.topology.over_time import OverTime, fixed_weights, matching, off_diagonal, one_peer_exponential

GRAPHS: dict[str, dict[str, Any]] = {"ring": {}, "complete": {}, "star": {}, "grid": {"rows": 3}, "path": {}}
SIZES = ([1] * 12, [5, 4, 3], [6, 6], [1, 10, 1], [12])


def nodes(cut: list[Block]) -> list[AgentNode]:
    none: Any = None
    return [AgentNode(agents, none, none, none, near, mixing) for agents, near, mixing in cut]


def summed(placed: list[AgentNode], messages: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the sums of every block, from whole messages, and from the rows that are sent."""
    whole = [n.mixing @ np.concatenate([messages[j] for j in n.neighbours]) for n in placed]
    found, parts = boundaries(placed), []
    for k, (n, b) in enumerate(zip(placed, found, strict=True)):
        received = [messages[j][found[j].sent_rows] for j in n.neighbours if j != k]
        if b.own_place is not None:
            received.insert(b.own_place, messages[k])
        parts.append(b.mixing @ np.concatenate(received))
    return whole, parts


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("kind", GRAPHS)
def test_sums_keep_their_bits(kind: str, sizes: list[int], mixed: bool) -> None:
    draw = np.random.default_rng(1)
    order = draw.permutation(12) if mixed else np.arange(12)
    members = [np.sort(of) for of in np.split(order, np.cumsum(sizes)[:-1])]
    mixing = build_topology(kind, 12, GRAPHS[kind]).mixing
    placed = nodes(agent_blocks(mixing, sizes, members if mixed else None))
    values = draw.normal(size=(12, 7))
    whole, parts = summed(placed, [values[of] for of in members])
    at_once = off_diagonal(mixing) @ values
    for of, one, other in zip(members, whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, at_once[of])


def test_a_server_is_sent_every_answer() -> None:
    placed = nodes(server_blocks([3, 2]))
    draw = np.random.default_rng(2)
    assert [b.sent_rows.tolist() for b in boundaries(placed)] == [[0, 1, 2], [0, 1]]
    whole, parts = summed(placed, [draw.normal(size=(n, 4)) for n in (3, 2)])
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


# Rows that travel in an exchange, in the mean of 60 rounds, of 64 agents in four blocks; and rows of the blocks read.
CHANGES: dict[str, tuple[OverTime, float, int]] = {
    "fixed": (fixed_weights(off_diagonal(build_topology("ring", 64).mixing)), 16.0, 128),
    "one_peer_exponential": (one_peer_exponential(64, seed=1), 32.0, 128),
    "matching": (matching(off_diagonal(build_topology("ring", 64).mixing), seed=1), 6.0, 128),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_changing_network_sends_only_the_rows_of_the_round(kind: str) -> None:
    over_time, largest, whole = CHANGES[kind]
    placed = nodes(agent_blocks(over_time.links, [16] * 4))
    cut, draw, travelled = boundaries(placed), np.random.default_rng(4), 0
    assert sum(16 * len(b.other_blocks) for b in cut) == whole
    for t in range(60):
        heard = over_time.received_weights(t)
        messages = [draw.normal(size=(16, 3)) for _ in placed]
        for k, (n, b) in enumerate(zip(placed, cut, strict=True)):
            others = [j for j in n.neighbours if j != k]
            sent = [
                cut[j].outgoing(messages[j], heard)
                for j, read in zip(others, b.blocks_read(heard), strict=True)
                if read
            ]
            travelled += sum(map(len, sent))
            received = b.fill(sent, heard, 3)
            if b.own_place is not None:
                received.insert(b.own_place, messages[k])
            of = np.concatenate([np.arange(16 * j, 16 * j + 16) for j in n.neighbours])[b.kept_columns]
            np.testing.assert_array_equal(
                heard[n.agents][:, of] @ np.concatenate(received), heard[n.agents] @ np.concatenate(messages)
            )
    assert 0.5 * largest < travelled / 60 <= largest
