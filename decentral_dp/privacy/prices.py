"""What one float-safe release costs one replaced record.

Both samplers round to a grid of a power of two before they add noise, and the rounding is part of the price:

    Laplace   g = 2^(⌊log₂ ν⌋ − 20), secret stochastic rounding, difference of two geometrics:
              ε = (Δ₁/g + d·2⁻⁵²)(e^{g/ν} − 1), and the release is dominated by one Laplace pair with this ε
    Gaussian  g = 2^(⌊log₂ s⌋ − 16), deterministic rounding, rounded normal noise:
              μ = (Δ₂ + √d·g)/s, exactly a Gaussian pair with this μ

The d·2⁻⁵² is what the 53 bits of the rounding's uniform number can add. A query that cannot move (Δ = 0) costs nothing.

That is the law of exact samplers. Float64 ones miss it by a relative η(n) at the outcome of noise n, and end. With
P, Q the ideal and P̂, Q̂ the real laws of two neighbours, L = log(P/Q) and e the sum over coordinates of η under both,

    δ̂(ε + s) ≤ E_P̂[(1 − e^{ε − L})₊] + E_P̂[(1 − e^{s − e})₊],

so s covers what η is in the bulk, and a slack in δ the outcomes where it is more, or where Q̂ has ended:

    Laplace   η ≤ 1e-15·max(1, e^{|n|/ν − 7.7}) up to 36 ν, a law of its own beyond:
              s = 2e-15·d,   δ = 1.3e-16·(2d + e^ε − 1)
    Gaussian  η ≤ 10·2¹⁷·2⁻⁵² in the bulk and 2⁻³⁵·e^{3.7(|n|/σ − 3.7)} up to 10 standard deviations σ:
              s = 20·2¹⁷·2⁻⁵²·d,   δ = 2e-14·d·e^{3.7 μ}

The η are measured: by enumerating the samplers exactly at fewer bits, and extrapolating.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.privacy.sensitivity import Array

GRID_BITS = {"laplace": 20, "gaussian": 16}


class Slack(NamedTuple):
    """What float64 sampling may add to the (ε, δ) of ideal samplers; elementwise.

    ratio: τ, where laws are away from the ideal ones by factors between e^{−τ} and e^τ; its 2τ is in epsilon already.
    """

    epsilon: Array
    delta: Array
    ratio: Array | float = 0.0

    def left(self, delta: float) -> Array:
        """The δ for which ideal samplers must be priced: δ̂ ≤ e^τ δ + what the samplers add."""
        return np.asarray(np.maximum(0.0, delta - self.delta) * np.exp(-np.asarray(self.ratio)))


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


def pure_loss(sensitivity: Array | float, scale: Array | float) -> Array:
    """Pure ε of one release with probabilities ∝ exp(−score/scale), sensitivity the oscillation of the scores.

    Its sampler is exact, and its grid is in the sensitivity. +inf and 0 as for `laplace_loss`.
    """
    delta, s = np.broadcast_arrays(np.asarray(sensitivity, dtype=np.float64), np.asarray(scale, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        loss = delta / s
    return _settle(loss, delta, s)


def numerical_slack(loss: Array, mechanism: str, dimension: int) -> Slack:
    """What float64 sampling may add to releases of these prices (pure ε or μ), by the bounds above; 0 for price 0.

    Exact samplers, as those of "pure" and "exponential" releases, add nothing.
    """
    moved = (loss > 0.0) & (mechanism not in ("pure", "exponential"))
    with np.errstate(over="ignore"):
        if mechanism == "laplace":
            epsilon, delta = 2e-15 * dimension, 1.3e-16 * (2.0 * dimension + np.expm1(loss))
        else:
            epsilon, delta = 20.0 * 2.0**-35 * dimension, 2e-14 * dimension * np.exp(3.7 * loss)
    return Slack(np.where(moved, epsilon, 0.0), np.where(moved, np.minimum(delta, 1.0), 0.0))


def _settle(price: Array, sensitivity: Array, scale: Array) -> Array:
    unbounded = np.isinf(sensitivity) | ((sensitivity > 0.0) & (scale == 0.0))
    return np.where(sensitivity == 0.0, 0.0, np.where(unbounded, np.inf, price))
