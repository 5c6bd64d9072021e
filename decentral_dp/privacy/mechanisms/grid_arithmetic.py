"""Arithmetic that mechanisms share: grids of a power of two, and prices at their ends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array


def power_of_two_grid(scale: Array | float, bits: int) -> Array:
    """Return the grid 2^(⌊log₂ scale⌋ − bits) of each scale, in its shape; 0 where it is 0.

    Example:
        >>> power_of_two_grid(np.array([3.0, 0.0]), bits=4).tolist()
        [0.125, 0.0]
    """
    size = np.asarray(scale, dtype=np.float64)
    exponent = np.frexp(size)[1]
    return np.where(size > 0.0, np.ldexp(1.0, exponent - 1 - bits), 0.0)


def add_public(integers: Array, grid: Array, public: Array) -> None:
    """Make g·(rint(public/g) + integers) of the public part of a release, in place.

    All (b, d), or of a shape that broadcasts to it. Exact, unless the public part is 2^33 times as large as the noise:
    integers, times a power of two.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        public *= 1.0 / grid
        np.rint(public, out=public)
        public += integers
        public *= grid


def broadcast(sensitivity: Array | float, scale: Array | float) -> tuple[Array, Array]:
    """Return both as float64 arrays of one shape."""
    wide = np.broadcast_arrays(np.asarray(sensitivity, dtype=np.float64), np.asarray(scale, dtype=np.float64))
    return wide[0], wide[1]


def price_limits(price: Array, sensitivity: Array, scale: Array) -> Array:
    """Return the price, but 0 where nothing can move, and +inf where nothing hides what can.

    Args:
        price: of a release, any shape.
        sensitivity: of the same shape.
        scale: of the noise, of the same shape.
    """
    if sensitivity.size and sensitivity.min() > 0.0 and sensitivity.max() < np.inf and scale.min() > 0.0:
        return np.asarray(price)
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
