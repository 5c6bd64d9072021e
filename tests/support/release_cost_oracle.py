"""Compute costs of single releases by a mechanism's name: an oracle for the classes of mechanisms."""

from __future__ import annotations

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError

GRID_BITS = {"laplace": 20, "gaussian": 16}
RANDOMISED_BITS = 18
# Above it a Gaussian release is wide.
_NARROW = 2**12


def uses_randomised_rounding(mechanism: str, dimension: int) -> bool:
    """Return whether releases of this dimension use randomised rounding, on the finer grid."""
    return mechanism == "gaussian" and dimension > _NARROW


def grid_bits(mechanism: str, dimension: int) -> int:
    """The scale is 2^bits to 2^(bits + 1) cells of its grid."""
    if mechanism not in GRID_BITS:
        raise InputError(f"mechanism: no grid is defined for {mechanism!r}; it is one of {sorted(GRID_BITS)}")
    return RANDOMISED_BITS if uses_randomised_rounding(mechanism, dimension) else GRID_BITS[mechanism]


def grid(scale: Array | float, mechanism: str, dimension: int) -> Array:
    """The grid of a release: 2^(⌊log₂ scale⌋ − bits); 0 where the scale is 0."""
    size = np.asarray(scale, dtype=np.float64)
    exponent = np.frexp(size)[1]
    return np.where(size > 0.0, np.ldexp(1.0, exponent - 1 - grid_bits(mechanism, dimension)), 0.0)


def laplace_loss(sensitivity: Array | float, scale: Array | float, dimension: int) -> Array:
    """Pure ε of one Laplace release.

    sensitivity: l1, any shape; scale: Laplace b, broadcastable. +inf where the sensitivity is infinite, or positive
    without noise; 0 where it is 0.
    """
    delta, nu = np.broadcast_arrays(np.asarray(sensitivity, dtype=np.float64), np.asarray(scale, dtype=np.float64))
    g = grid(nu, "laplace", dimension)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        loss = (delta / g + dimension * 2.0**-52) * np.expm1(g / nu)
    return _settle(loss, delta, nu)


def gaussian_mu(sensitivity: Array | float, scale: Array | float, dimension: int) -> Array:
    """Compute μ of the Gaussian pair equal to one Gaussian release; a wide release equals it up to δ.

    sensitivity: l2, any shape; scale: standard deviation, broadcastable. +inf and 0 as for `laplace_loss`.
    """
    delta, sd = np.broadcast_arrays(np.asarray(sensitivity, dtype=np.float64), np.asarray(scale, dtype=np.float64))
    g = grid(sd, "gaussian", dimension)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if uses_randomised_rounding("gaussian", dimension):
            randomised = np.sqrt(0.25 * dimension + 5.0 * np.sqrt(dimension))
            mu = np.hypot((delta + 5.0 * g) / sd, randomised * (g / sd))
        else:
            mu = (delta + np.sqrt(dimension) * g) / sd
    return _settle(mu, delta, sd)


def _settle(price: Array, sensitivity: Array, scale: Array) -> Array:
    unbounded = np.isinf(sensitivity) | ((sensitivity > 0.0) & (scale == 0.0))
    return np.where(sensitivity == 0.0, 0.0, np.where(unbounded, np.inf, price))
