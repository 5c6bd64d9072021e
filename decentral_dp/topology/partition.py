"""Which agents share a block, so that few messages leave it: by the public graph alone, and in whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


def rows_that_leave(links: sp.csr_array, blocks: Sequence[IntArray]) -> int:
    """Count the rows that travel between blocks in an exchange: of each agent one to every other block that hears it.

    Args:
        links: (m, m) without diagonal; row i has the agents that agent i hears.
        blocks: the agents of each.

    Example:
        >>> from decentral_dp.topology import build_topology
        >>> from decentral_dp.topology.over_time import off_diagonal
        >>> rows_that_leave(off_diagonal(build_topology("ring", 6).mixing), [np.arange(3), np.arange(3, 6)])
        4
    """
    return sum(np.setdiff1d(links[agents].indices, agents).size for agents in blocks)


def graph_partition(links: sp.csr_array, sizes: Sequence[int]) -> list[IntArray]:
    """Choose the agents of blocks of these sizes, so that few rows leave a block.

    By their numbers, or by greedy graph growing, whichever lets fewer rows leave. A block begins with the agent of
    fewest links to agents that are in no block, and takes the one whose links to such agents outnumber those to the
    block by least; the smaller number of equals. There are no eigenvectors, whose last bits depend on the processor.
    By their numbers, too, where agents have more neighbours in the mean than a block has members: most rows leave then.

    Args:
        links: (m, m) without diagonal; row i has the agents that agent i hears.
        sizes: agents of each block.

    Returns:
        The agents of each block, ascending.

    References:
        Farhat 1988; Karypis & Kumar 1998, section 3.2.

    Example:
        >>> from decentral_dp.topology import build_topology
        >>> [agents.tolist() for agents in graph_partition(build_topology("ring", 6).mixing, [3, 3])]
        [[0, 1, 2], [3, 4, 5]]
    """
    by_number = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    if links.nnz > links.shape[0] * max(sizes):
        return by_number
    return min(by_number, _grown(links, sizes), key=lambda blocks: rows_that_leave(links, blocks))


def _grown(links: sp.csr_array, sizes: Sequence[int]) -> list[IntArray]:
    both = sp.csr_array(abs(links) + abs(links.T))
    ends, near, m = both.indptr.tolist(), both.indices.tolist(), both.shape[0]
    # Links to agents that are in no block; of an agent that is in one, more than any has.
    free, blocks = np.diff(both.indptr), list[IntArray]()
    for size in sizes:
        block, ahead, inside = list[int](), list[tuple[int, int]](), dict[int, int]()
        while len(block) < size:
            increase, agent = heappop(ahead) if ahead else (0, int(free.argmin()))
            if free[agent] > m or (agent in inside and increase != free[agent] - inside[agent]):
                continue
            block.append(agent)
            free[agent] = 2 * m
            for other in near[ends[agent] : ends[agent + 1]]:
                free[other] -= 1
                if free[other] < m:
                    inside[other] = inside.get(other, 0) + 1
                    heappush(ahead, (int(free[other]) - inside[other], other))
        blocks.append(np.sort(block))
    return blocks
