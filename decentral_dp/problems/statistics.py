"""Layout of the sufficient statistics of least squares as one vector.

With ã = (a, γ) (q,) and a label b, the vector is (vech(ã ãᵀ), ã b): the upper triangle of ã ãᵀ row by row, and ã b.
Off-diagonal entries are multiplied by √2, so that norms are Frobenius norms. The last entry of ã ãᵀ is always γ² and
left out.
"""

from __future__ import annotations

import numpy as np

from decentral_dp.bounded import Array


def statistics_width(q: int) -> int:
    """Return the number of statistics of q weights, q(q + 3)/2 − 1.

    Example:
        >>> statistics_width(3)
        8
    """
    return q * (q + 3) // 2 - 1


def pack_statistics(matrix: Array, vector: Array) -> Array:
    """Write means of ã ãᵀ (g, q, q) and ã b (g, q) as vectors, (g, width)."""
    rows, columns = np.triu_indices(matrix.shape[1])
    triangle = matrix[:, rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))
    return np.concatenate([triangle[:, :-1], vector], axis=1)


def unpack_statistics(statistics: Array, q: int, last: float) -> tuple[Array, Array]:
    """Read means of ã ãᵀ (g, q, q) and ã b (g, q) from vectors (g, width).

    Args:
        statistics: vectors, (g, width).
        q: number of coordinates of ã.
        last: last entry γ² of ã ãᵀ.

    Example:
        >>> means = np.arange(8.0)[None]
        >>> np.allclose(pack_statistics(*unpack_statistics(means, 3, 0.04)), means)
        True
    """
    rows, columns = np.triu_indices(q)
    triangle = np.concatenate([statistics[:, : rows.size - 1], np.full((len(statistics), 1), last)], axis=1)
    matrix = np.empty((len(statistics), q, q))
    matrix[:, rows, columns] = triangle / np.where(rows == columns, 1.0, np.sqrt(2.0))
    matrix[:, columns, rows] = matrix[:, rows, columns]
    return matrix, statistics[:, rows.size - 1 :]
