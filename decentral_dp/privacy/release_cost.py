"""What one float-safe release costs one replaced record.

Samplers round to a grid of a power of two before they add noise, and the rounding is part of the price:

    Laplace   g = 2^(⌊log₂ ν⌋ − 20), secret stochastic rounding, difference of two geometrics:
              ε = (Δ₁/g + d·2⁻⁵²)(e^{g/ν} − 1), and the release is dominated by one Laplace pair with this ε
    Gaussian  g = 2^(⌊log₂ s⌋ − 16), deterministic rounding, rounded normal noise:
              μ = (Δ₂ + √d·g)/s, exactly a Gaussian pair with this μ
    wide      (Gaussian, d > 2¹²) g = 2^(⌊log₂ s⌋ − 18), secret stochastic rounding, rounded normal noise:
              μ = √((Δ₂ + 5g)² + (d/4 + 5√d)g²)/s, a Gaussian pair with this μ but for δ = 2e^{−40} < 1e-17

The d·2⁻⁵² is what the 53 bits of the rounding's uniform number can add. A query that cannot move (Δ = 0) costs nothing.

Wide: given the tosses, which both neighbours share, a coordinate that moves by v_i (in g) is rounded to one that moves
by v_i + ξ_i, one of the integers around v_i, E ξ_i = 0. In ‖v + ξ‖² = ‖v‖² + 2⟨v, ξ⟩ + ‖ξ‖², but for e^{−L} each
(Hoeffding)

    ⟨v, ξ⟩ ≤ ‖v‖ √(L/2),   ‖ξ‖² ≤ d/4 + √(dL/2),

and 5 > √20 has room for the 53 bits of the tosses. All coordinates of a deterministic rounding may go the same way.

That is the law of exact samplers. What float64 ones may add is bounded in `float_slack`.
"""

from __future__ import annotations

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.privacy.bounded import Array

GRID_BITS = {"laplace": 20, "gaussian": 16}
RANDOMISED_BITS = 18
# Above it a Gaussian release is wide.
_NARROW = 2**12


def uses_randomised_rounding(mechanism: str, dimension: int) -> bool:
    """Whether releases of this dimension are rounded by tosses, on the finer grid."""
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
    """μ of the Gaussian pair that one Gaussian release is equal to, or, if wide, worth but for that δ.

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


def pure_loss(sensitivity: Array | float, scale: Array | float) -> Array:
    """Pure ε of one release with probabilities ∝ exp(−score/scale), sensitivity the oscillation of the scores.

    Its sampler is exact, and its grid is in the sensitivity. +inf and 0 as for `laplace_loss`.
    """
    delta, s = np.broadcast_arrays(np.asarray(sensitivity, dtype=np.float64), np.asarray(scale, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        loss = delta / s
    return _settle(loss, delta, s)


def _settle(price: Array, sensitivity: Array, scale: Array) -> Array:
    unbounded = np.isinf(sensitivity) | ((sensitivity > 0.0) & (scale == 0.0))
    return np.where(sensitivity == 0.0, 0.0, np.where(unbounded, np.inf, price))
