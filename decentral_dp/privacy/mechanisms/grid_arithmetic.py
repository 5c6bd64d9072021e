"""Arithmetic that mechanisms share: grids of a power of two, and prices at their ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array

_COLUMNS = 2**13


def power_of_two_grid(scale: Array | float, bits: int) -> Array:
    """Return the grid 2^(⌊log₂ scale⌋ − bits); 0 where the scale is 0.

    Example:
        >>> power_of_two_grid(np.array([3.0, 0.0]), bits=4).tolist()
        [0.125, 0.0]
    """
    size = np.asarray(scale, dtype=np.float64)
    exponent = np.frexp(size)[1]
    return np.where(size > 0.0, np.ldexp(1.0, exponent - 1 - bits), 0.0)


def by_columns(integers: Callable[[slice], Array], columns: int) -> Array:
    """Compute some thousand columns after the others: of wide rows, what is computed next is still in cache then.

    Args:
        integers: of these columns, (b, …).
        columns: how many there are.

    Example:
        >>> by_columns(lambda part: np.arange(20_000.0)[None, part], 20_000).shape
        (1, 20000)
    """
    if columns <= _COLUMNS:
        return integers(slice(None))
    return np.concatenate([integers(slice(k, k + _COLUMNS)) for k in range(0, columns, _COLUMNS)], axis=1)


def columns_of(values: Array, part: slice) -> Array:
    """Return these columns; a single one stands for all."""
    return values if values.shape[1] == 1 else values[:, part]


def broadcast(sensitivity: Array | float, scale: Array | float) -> tuple[Array, Array]:
    """Return both as float64 arrays of one shape."""
    wide = np.broadcast_arrays(np.asarray(sensitivity, dtype=np.float64), np.asarray(scale, dtype=np.float64))
    return wide[0], wide[1]


def at_the_ends(price: Array, sensitivity: Array, scale: Array) -> Array:
    """Return the price, but 0 where nothing can move, and +inf where nothing hides what can.

    Args:
        price: of a release, any shape.
        sensitivity: of the same shape.
        scale: of the noise, of the same shape.
    """
    unbounded = np.isinf(sensitivity) | ((sensitivity > 0.0) & (scale == 0.0))
    return np.where(sensitivity == 0.0, 0.0, np.where(unbounded, np.inf, price))


def no_slack(loss: Array) -> tuple[Array, Array]:
    """Return the (ε, δ) that exact samplers add: nothing."""
    return np.zeros_like(loss), np.zeros_like(loss)


def rounded_at_random(query: Array, grid: Array, uniforms: NDArray[np.float64]) -> Array:
    """Compute ⌊query/g⌋ + [U < frac(query/g)], as float64 integers.

    Args:
        query: (b, d).
        grid: powers of two, broadcastable.
        uniforms: (b, d) in [0, 1), secret.
    """
    # 1/g is exact, g being a power of two, and multiplying is faster than dividing.
    scaled = query * (1.0 / grid)
    out = np.floor(scaled)
    # Compared, not added: U + scaled would round away the low bits of U.
    scaled -= out
    out += uniforms < scaled
    return np.asarray(out)
