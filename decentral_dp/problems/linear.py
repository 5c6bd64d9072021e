"""What the linear models share: checked features, their norms, and clipping by coefficient.

Every per-record term of a linear model is a coefficient times the record's features (for several classes, an outer
product), so its norm is |coefficient|·‖a‖ and clipping costs one number per record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.errors import InputError
from decentral_dp.privacy.clipping import row_norms
from decentral_dp.privacy.sensitivity import Array

# Float64 numbers read at once, 2 MiB: small enough to stay in a core's cache from the forward product to the backward
# one, so that the records cross the memory bus once per round; large enough to hide the cost of the loop.
BLOCK = 1 << 18


def blocks(n_records: int, width: int) -> Iterator[slice]:
    """Slices over the records, each of about `BLOCK` numbers."""
    rows = max(1, BLOCK // max(1, width))
    for start in range(0, n_records, rows):
        yield slice(start, min(start + rows, n_records))


def checked_features(features: Array, labels: Array, n_features: int, intercept: bool) -> Array:
    """Features as a C-ordered float64 (N, d) array, with a last column of ones if `intercept`.

    Raises InputError on a wrong shape, no records, or a value that is not finite.
    """
    rows = np.ascontiguousarray(features, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != n_features or len(rows) == 0 or np.shape(labels) != (len(rows),):
        raise InputError(
            f"problem: records have features of shape {rows.shape} and labels of shape {np.shape(labels)}; "
            f"wanted at least one record, {n_features} features, and one label for each record."
        )
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise InputError(
            f"problem: record {int(np.argmax(bad))} has a feature that is not a finite number; remove or mend it."
        )
    if intercept:
        return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    return rows


def class_index(labels: Array, classes: Sequence[float]) -> NDArray[np.int64]:
    """Position of every label in the declared classes. Raises InputError on a label that was not declared."""
    match = np.asarray(labels)[:, None] == np.asarray(classes)
    unknown = ~match.any(axis=1)
    if unknown.any():
        row = int(np.argmax(unknown))
        raise InputError(
            f"problem: record {row} has the label {labels[row]:g}, and the declared classes are {list(classes)}; "
            "declare the class, or remove the record."
        )
    return np.asarray(np.argmax(match, axis=1), dtype=np.int64)


def check_classes(classes: Sequence[float], kind: str, exactly: int | None = None) -> None:
    """Raises InputError unless the classes are distinct finite numbers, two or more (or `exactly` so many)."""
    right = len(classes) == exactly if exactly else len(classes) >= 2
    if not right or len(set(classes)) != len(classes) or not np.isfinite(classes).all():
        wanted = f"exactly {exactly}" if exactly else "two or more"
        mend = '; with more classes use "softmax_hyperparameter"' if exactly and len(classes) > exactly else ""
        raise InputError(f"problem.classes: got {list(classes)}; {kind} wants {wanted} distinct finite labels{mend}.")


def check_n_features(n_features: int) -> None:
    if n_features < 1:
        raise InputError(f"problem: got {n_features} features; wanted at least one.")


def feature_norms(features: Array) -> tuple[Array, Array]:
    """(N,) ℓ1 and ℓ2 norms of the rows.

    The rows are scaled by their largest entry first: a plain sum of squares underflows to 0 below 1e-162, and a
    record with norm 0 is never clipped.
    """
    largest = np.abs(features).max(axis=1)
    scale = np.where(largest > 0, largest, 1.0)
    with np.errstate(over="ignore"):
        l2 = row_norms(features / scale[:, None], "l2") * scale
        return row_norms(features, "l1"), l2


class Bounds(NamedTuple):
    """radius: ‖a‖₁ of every record. strength: sup exp(x_s). y, z: sup |y_s| and sup |z_s|."""

    radius: float
    strength: float
    y: float
    z: float


def declared_bounds(box: Mapping[str, float], radius: float | None) -> Bounds | None:
    """What analytic constants start from; None where a bound is missing, or too large for a float64."""
    x, y, z = (box.get(channel, math.inf) for channel in ("x", "y", "z"))
    if radius is None or x > 700.0 or not all(math.isfinite(v) for v in (radius, x, y, z)):
        return None
    return Bounds(radius, math.exp(x), y, z)


def clip_coefficients(coefficients: Array, norms: Array, bound: float) -> Array:
    """Scale coefficients in place so that every |coefficient|·norm ≤ bound; a non-finite contribution becomes zero.

    coefficients, norms: (N,). Call it with floating-point warnings off. Total without a branch: whatever is not
    finite turns into NaN on the way (bound/NaN, inf·0, or inf/inf when nothing is clipped), and NaN into 0.
    """
    factors = np.abs(coefficients)
    factors *= norms
    np.divide(bound, factors, out=factors)
    np.minimum(factors, 1.0, out=factors)
    coefficients *= factors
    np.putmask(coefficients, coefficients != coefficients, 0.0)
    return coefficients
