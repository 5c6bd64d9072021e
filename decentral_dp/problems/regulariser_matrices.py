"""The second derivatives of a regulariser as matrices, from its products with directions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.problems.protocol import Problem, Regulariser

# Float64 numbers per argument in one call of a regulariser on many directions, 16 MiB.
DIRECTIONS = 1 << 21


class RegulariserMatrices(NamedTuple):
    """Data-independent matrices, row-wise: ∇²_yy R (b, q, q), ∇²_xy R (b, p, q), ∇²_yy R·Z (b, q, p) or None."""

    hessian: Array
    jacobian: Array
    product: Array | None


def regulariser_matrices(problem: Problem, x: Array, y: Array, matrix: Array | None) -> RegulariserMatrices:
    """Form the second derivatives of R, column by column from `problem.regulariser`; exact, and never clipped.

    Args:
        problem: with the regulariser.
        x: (b, p).
        y: (b, q).
        matrix: Z (b, q, p), or None where no product is wanted.

    Returns:
        The matrices of every row.
    """
    b, p, q = len(y), problem.p, problem.q
    units, whole = np.eye(q), RegulariserMatrices(np.empty((b, q, q)), np.empty((b, p, q)), None)
    product = None if matrix is None else np.empty((b, q, p))
    for row in range(b):
        for part in _columns(q, p + q):
            along = _along(problem, x[row], y[row], units[part])
            whole.hessian[row][:, part], whole.jacobian[row][:, part] = along.hvp.T, along.jvp.T
        if matrix is not None and product is not None:
            for part in _columns(p, p + q):
                product[row][:, part] = _along(problem, x[row], y[row], matrix[row].T[part]).hvp.T
    return whole._replace(product=product)


def _columns(n: int, width: int) -> Iterator[slice]:
    step = max(1, DIRECTIONS // max(1, width))
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def _along(problem: Problem, x: Array, y: Array, directions: Array) -> Regulariser:
    """The regulariser's terms at one point along many directions (n, q)."""
    n = len(directions)
    return problem.regulariser(np.tile(x, (n, 1)), np.tile(y, (n, 1)), directions)
