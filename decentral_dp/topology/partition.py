"""Which agents share a block, so that few messages leave it: by the public graph alone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import laplacian
from scipy.sparse.linalg import lobpcg

from decentral_dp.bounded import Array
from decentral_dp.data.dataset import IntArray
from decentral_dp.topology.over_time import off_diagonal

# Up to so many agents all eigenvectors are computed; of more one, as far as so many steps come.
_ALL, _STEPS = 500, 60


def rows_that_leave(links: sp.csr_array, owner: IntArray) -> int:
    """Count the rows that travel between blocks in an exchange: of each agent one to every other block that hears it.

    Args:
        links: (m, m) without diagonal; row i has the agents that agent i hears.
        owner: (m,) block of each agent.

    Example:
        >>> from decentral_dp.topology import build
        >>> rows_that_leave(off_diagonal(build("ring", 6).mixing), np.array([0, 0, 0, 1, 1, 1]))
        4
    """
    there = links.tocoo()
    hears, heard = owner[there.row], there.col.astype(np.int64)
    away = hears != owner[heard]
    return int(np.unique(heard[away] * (owner.max() + 1) + hears[away]).size)


def grouped(mixing: sp.csr_array, sizes: Sequence[int]) -> list[IntArray]:
    """Choose agents of blocks of these sizes, so that few rows leave a block.

    By their numbers, or by recursive bisection: halves are cut where the eigenvector of the graph's second smallest
    Laplacian eigenvalue is ordered; whichever lets fewer rows leave.

    Args:
        mixing: W, (m, m).
        sizes: agents of each block.

    Returns:
        The agents of each block, ascending.

    References:
        Fiedler 1973; Pothen, Simon & Liou 1990.

    Example:
        >>> from decentral_dp.topology import build
        >>> [agents.tolist() for agents in grouped(build("ring", 6).mixing, [3, 3])]
        [[0, 1, 2], [3, 4, 5]]
    """
    links = off_diagonal(mixing)
    both = sp.csr_array(((abs(links) + abs(links.T)) > 0.0).astype(np.float64))
    by_number = np.split(np.arange(links.shape[0]), np.cumsum(sizes)[:-1])

    def rows(blocks: Sequence[IntArray]) -> int:
        owner = np.empty(links.shape[0], dtype=np.int64)
        for k, agents in enumerate(blocks):
            owner[agents] = k
        return rows_that_leave(links, owner)

    return min((by_number, _bisected(both, np.arange(links.shape[0]), sizes)), key=rows)


def _bisected(links: sp.csr_array, agents: IntArray, sizes: Sequence[int]) -> list[IntArray]:
    if len(sizes) == 1:
        return [agents]
    half = len(sizes) // 2
    order = np.argsort(_fiedler(links[agents][:, agents]), kind="stable")
    parts = np.split(agents[order], [sum(sizes[:half])])
    return [
        block
        for part, of in zip(parts, (sizes[:half], sizes[half:]), strict=True)
        for block in _bisected(links, np.sort(part), of)
    ]


def _fiedler(links: sp.csr_array) -> Array:
    """The eigenvector of the second smallest eigenvalue of the Laplacian, about."""
    m, of = links.shape[0], sp.csr_array(laplacian(links))
    if m <= _ALL:
        return np.asarray(np.linalg.eigh(of.toarray())[1][:, min(1, m - 1)])
    start = np.random.default_rng(0).normal(size=(m, 1))
    with warnings.catch_warnings():
        # That it has not converged: any vector near it cuts well.
        warnings.simplefilter("ignore")
        inverse = sp.diags_array(1.0 / np.maximum(of.diagonal(), 1.0))
        return np.asarray(lobpcg(of, start, M=inverse, Y=np.ones((m, 1)), largest=False, maxiter=_STEPS)[1][:, 0])
