"""Records of one role, brought into their public bounds one by one.

Nothing here reads two records together or fails on a value: only shapes, which are public, are refused.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from decentral_dp.data.scaling import normalise
from decentral_dp.errors import InputError
from decentral_dp.privacy.bounded import Array, Split
from decentral_dp.privacy.clipping import row_norms

LossName: TypeAlias = Literal["logistic", "squared"]

# Larger ones would need more than a Hessian that fits in memory and a Cholesky factor of it.
MOST_FEATURES = 2000
# Sums run over blocks of so many records, so that their rounding error hardly grows with the number of records.
BLOCK = 4096


class Gram(NamedTuple):
    """mean a aᵀ (d, d), mean b a (d,), mean b²: all that the squared loss needs."""

    matrix: Array
    moment: Array
    square: float


class Records(NamedTuple):
    """features (n, d) with norms of at most R; labels (n,) in {−1, +1} or [−B, B]; gram where the loss is squared."""

    features: Array
    labels: Array
    gram: Gram | None


def shaped(features: ArrayLike, labels: ArrayLike, role: Split) -> tuple[Array, Array]:
    """The arrays of one role as float64. Raises InputError for shapes that cannot be used."""
    a, b = _numbers(features, f"{role} features"), _numbers(labels, f"{role} labels")
    if a.ndim != 2 or b.shape != a.shape[:1]:
        raise InputError(
            f"tune: {role} has features of shape {a.shape} and labels of shape {b.shape}, but (n, d) and (n,) are "
            "wanted; give one row and one label per record."
        )
    if not a.shape[0]:
        raise InputError(f"tune: {role} has no records, but at least one is wanted; move some there.")
    if not 1 <= a.shape[1] <= MOST_FEATURES:
        raise InputError(f"tune: {role} has {a.shape[1]} features, but 1 to {MOST_FEATURES} are wanted; drop some.")
    return a, b


def _numbers(values: ArrayLike, what: str) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"tune: {what} are not an array of numbers; convert them first.") from error


def project(features: Array, labels: Array, loss: LossName, radius: float, label_bound: float) -> Records:
    """Every record by itself into ‖a‖₂ ≤ R and |b| ≤ B (or b = ±1: a label above 0 is +1, any other −1).

    A record with a value that is not finite becomes one of zeros, which moves nothing. Longer features are shortened
    to R, shorter ones stay; the bound holds for the real norm of the float64 result.
    """
    finite = np.isfinite(features).all(axis=1) & np.isfinite(labels)
    a = np.where(finite[:, None], features, 0.0)
    # normalise leaves room for the rounding of norms, and so must the comparison.
    inside = row_norms(a, "l2") <= radius * (1.0 - (a.shape[1] + 8) * 2.0**-52)
    a = np.ascontiguousarray(np.where(inside[:, None], a, normalise(a, "l2", radius).features))
    b = np.where(finite, labels, 0.0)
    if loss == "logistic":
        return Records(a, np.where(b > 0.0, 1.0, -1.0), None)
    b = np.clip(b, -label_bound, label_bound)
    return Records(a, b, _gram(a, b))


def _gram(a: Array, b: Array) -> Gram:
    n, d = a.shape
    matrix, moment, square = np.zeros((d, d)), np.zeros(d), 0.0
    for part in blocks(n):
        matrix += a[part].T @ a[part]
        moment += a[part].T @ b[part]
        square += float(b[part] @ b[part])
    return Gram(matrix / n, moment / n, square / n)


def blocks(n: int) -> list[slice]:
    return [slice(first, min(first + BLOCK, n)) for first in range(0, n, BLOCK)]


def summation_error(counts: tuple[int, ...], d: int) -> float:
    """Relative error of a mean over blocks: (block + number of blocks + d + 40)·2⁻⁵², for any order within a block.

    Higham, Accuracy and Stability of Numerical Algorithms, 2002, Section 4.2: γ_k for sums of k + 1 terms.
    """
    longest = max(min(n, BLOCK) + -(-n // BLOCK) for n in counts)
    return (longest + d + 40) * 2.0**-52


def split(role: Any, name: Split) -> tuple[Array, Array]:
    """(features, labels) of what the caller gave as one role."""
    if not isinstance(role, tuple | list) or len(role) != 2:
        raise InputError(f"tune: {name} must be a pair (features, labels), got {type(role).__name__}.")
    return shaped(role[0], role[1], name)
