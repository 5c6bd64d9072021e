"""What one float-safe release costs one replaced record.

Both samplers round to a grid of a power of two before they add noise, and the rounding is part of the price:

    Laplace   g = 2^(⌊log₂ ν⌋ − 20), secret stochastic rounding, difference of two geometrics:
              ε = (Δ₁/g + d·2⁻⁵²)(e^{g/ν} − 1), and the release is dominated by one Laplace pair with this ε
    Gaussian  g = 2^(⌊log₂ s⌋ − 16), deterministic rounding, rounded normal noise:
              μ = (Δ₂ + √d·g)/s, exactly a Gaussian pair with this μ

The d·2⁻⁵² is what the 53 bits of the rounding's uniform number can add. A query that cannot move (Δ = 0) costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.privacy.sensitivity import Array

GRID_BITS = {"laplace": 20, "gaussian": 16}


class Slack(NamedTuple):
    """What float64 sampling may add to the stated (ε, δ); reported beside the price, not inside it."""

    epsilon: float
    delta: float


def grid(scale: Array | float, mechanism: str) -> Array:
    """The grid of a release: 2^(⌊log₂ scale⌋ − 20) for Laplace, − 16 for Gaussian; 0 where the scale is 0."""
    if mechanism not in GRID_BITS:
        raise InputError(f"mechanism: no grid is defined for {mechanism!r}; it is one of {sorted(GRID_BITS)}")
    size = np.asarray(scale, dtype=np.float64)
    exponent = np.frexp(size)[1]
    return np.where(size > 0.0, np.ldexp(1.0, exponent - 1 - GRID_BITS[mechanism]), 0.0)


def laplace_loss(sensitivity: Array | float, scale: Array | float, dimension: int) -> Array:
    """Pure ε of one Laplace release.

    sensitivity: l1, any shape; scale: Laplace b, broadcastable. +inf where the sensitivity is infinite, or positive
    without noise; 0 where it is 0.
    """
    delta, nu = np.broadcast_arrays(np.asarray(sensitivity, dtype=np.float64), np.asarray(scale, dtype=np.float64))
    g = grid(nu, "laplace")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        loss = (delta / g + dimension * 2.0**-52) * np.expm1(g / nu)
    return _settle(loss, delta, nu)


def gaussian_mu(sensitivity: Array | float, scale: Array | float, dimension: int) -> Array:
    """μ of the Gaussian pair that one Gaussian release is equal to.

    sensitivity: l2, any shape; scale: standard deviation, broadcastable. +inf and 0 as for `laplace_loss`.
    """
    delta, sd = np.broadcast_arrays(np.asarray(sensitivity, dtype=np.float64), np.asarray(scale, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        mu = (delta + np.sqrt(dimension) * grid(sd, "gaussian")) / sd
    return _settle(mu, delta, sd)


def numerical_slack(mechanism: str, dimension: int) -> Slack:
    """What one release of a float64 sampler may deviate from its ideal law, in ε in the bulk and in δ in the tails."""
    if mechanism == "laplace":
        return Slack(1e-15 * dimension, 2e-16 * dimension)
    if mechanism == "gaussian":
        return Slack(dimension * 2.0**17 * 2.0**-52 * 10.0, 2e-16 * dimension)
    return Slack(0.0, 0.0)


def _settle(price: Array, sensitivity: Array, scale: Array) -> Array:
    unbounded = np.isinf(sensitivity) | ((sensitivity > 0.0) & (scale == 0.0))
    return np.where(sensitivity == 0.0, 0.0, np.where(unbounded, np.inf, price))
