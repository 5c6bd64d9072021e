"""What blocks of agents send each other: the messages of those agents alone that another block reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from decentral_dp.engines.protocol import AgentNode


class Boundary(NamedTuple):
    """The ends of a block's links to other blocks.

    Args:
        sent: rows of the block's message that some other block reads, ascending.
        own: the place of the block's own message, which stays, among those that it reads; None where it reads none.
        mixing: weights of its own rows and of the rows that others send, in the order of `AgentNode.mixing`.
    """

    sent: NDArray[np.int64]
    own: int | None
    mixing: sp.csr_array


def boundaries(nodes: Sequence[AgentNode]) -> list[Boundary]:
    """Find what each block has to send, and the weights of what it then reads.

    Left out are columns of weights that are zero: sums have the same terms in the same order, and the same bits.

    Example:
        >>> from decentral_dp.engines.protocol import blocks
        >>> from decentral_dp.topology import build
        >>> cut = blocks(build("path", 6).mixing, [3, 3])
        >>> nodes = [AgentNode(agents, None, None, None, near, mixing) for agents, near, mixing in cut]
        >>> [(b.sent.tolist(), b.own, b.mixing.shape) for b in boundaries(nodes)]
        [([2], 0, (3, 4)), ([0], 1, (3, 4))]
    """
    sizes = [node.agents.size for node in nodes]
    read: list[set[int]] = [set() for _ in nodes]
    for k, node in enumerate(nodes):
        for j, rows in _segments(node, sizes):
            if j != k:
                read[j].update((np.intersect1d(node.mixing.indices, rows) - rows[0]).tolist())
    sent = [np.array(sorted(rows), dtype=np.int64) for rows in read]
    found = []
    for k, node in enumerate(nodes):
        kept = [rows if j == k else rows[sent[j]] for j, rows in _segments(node, sizes)]
        mixing = sp.csr_array(node.mixing[:, np.concatenate(kept)])
        mixing.sort_indices()
        own = node.neighbours.index(k) if k in node.neighbours else None
        found.append(Boundary(sent[k], own, mixing))
    return found


def _segments(node: AgentNode, sizes: Sequence[int]) -> list[tuple[int, NDArray[np.int64]]]:
    """(block, its columns of the node's weights), in their order."""
    ends = np.cumsum([sizes[j] for j in node.neighbours])
    return [(j, np.arange(end - sizes[j], end)) for j, end in zip(node.neighbours, ends, strict=True)]
