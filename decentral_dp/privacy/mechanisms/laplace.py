"""Laplace noise: pure ε, sensitivities in l1.

Values are rounded to a grid of a power of two before noise is added, and the rounding is part of the price:

    g = 2^(⌊log₂ b⌋ − 20), secret stochastic rounding, difference of two geometrics:
    k = ⌊u/g⌋ + [U < frac(u/g)] + ⌊E₁b/g⌋ − ⌊E₂b/g⌋,   U ~ U(0, 1), E ~ Exp(1)
    ε = (Δ₁/g + d·2⁻⁵²)(e^{g/b} − 1), and the release is dominated by one Laplace pair with this ε

Each ⌊Eb/g⌋ is exactly geometric, their difference is exactly discrete Laplace; stochastic rounding makes the price
independent of the dimension, but for the d·2⁻⁵² that the 53 bits of its uniform number can add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from decentral_dp.bounded import Array, Norm
from decentral_dp.privacy.mechanisms import grid_arithmetic
from decentral_dp.privacy.mechanisms.protocol import CostUnit, DominatingPair, Sampling, Unnoised

# The scale is 2^bits to 2^(bits + 1) cells of the grid.
BITS = 20


@final
@dataclass(frozen=True)
class Laplace:
    """Laplace noise: density ∝ e^{−|n|/b} on every coordinate, b the scale.

    Sensitivity:
        In l1. Rounding to the grid is in the price; formula at the top of this module, see docs/proofs/07.

    Limits:
        Scale 0 costs +inf where a record can move the value, and nothing where none can.

    Example:
        >>> mechanism = Laplace()
        >>> round(float(mechanism.cost(sensitivity=1.0, scale=2.0, width=10)), 5)
        0.5
        >>> float(mechanism.cost(1.0, 0.0, 10)), float(mechanism.cost(0.0, 0.0, 10))
        (inf, 0.0)
        >>> float(mechanism.grid(1.0, width=10)) == 2.0**-20
        True
    """

    name = "laplace"
    description = "Laplace noise"
    norm: ClassVar[Norm] = "l1"
    pure = True
    unit: ClassVar[CostUnit] = "ε"
    dominating_pair = DominatingPair.LAPLACE
    charged = adds_noise = proven = True
    amplified_by: ClassVar[tuple[Sampling, ...]] = ("fixed",)
    deviation = np.sqrt(2.0)
    columns_at_a_time = None

    def scale_of(self, deviation: Array) -> Array:
        """Return the scale b of noise with this standard deviation: deviation/√2, in its shape."""
        return np.asarray(deviation / self.deviation)

    def grid(self, scale: Array | float, width: int) -> Array:
        """Return the power of two that released values are multiples of, for each scale, in its shape."""
        return grid_arithmetic.power_of_two_grid(scale, BITS)

    def rounds_at_random(self, width: int) -> bool:
        """Say whether a release of this width is rounded at random: always."""
        return True

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Price a release: ε = (Δ₁/g + d·2⁻⁵²)(e^{g/b} − 1).

        Args:
            sensitivity: Δ₁, a number or an array.
            scale: b; broadcasts with Δ₁.
            width: d.
        """
        delta, b = grid_arithmetic.broadcast(sensitivity, scale)
        g = self.grid(b, width)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            loss = (delta / g + width * 2.0**-52) * np.expm1(g / b)
        return grid_arithmetic.price_limits(loss, delta, b)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        """Bound what float64 variates add to (ε, δ): (2e-15·d, 1.3e-16·(2d + e^ε − 1)).

        How that was measured is in `float_slack`; see docs/proofs/09.
        """
        is_charged = loss > 0.0
        with np.errstate(over="ignore"):
            delta = np.minimum(1.3e-16 * (2.0 * width + np.expm1(loss)), 1.0)
        return np.where(is_charged, 2e-15 * width, 0.0), np.where(is_charged, delta, 0.0)

    def sample(self, request: Unnoised) -> Array:
        """Draw noised values in units of the grid, (b, Σ widths) float64 integers."""
        draws, query, grid, scale, _, workspace = request[:6]
        if query.shape not in workspace:
            rows, columns = query.shape
            workspace[query.shape] = np.empty((rows, 2, columns)), np.empty((rows, columns))
        variates, uniforms = workspace[query.shape]
        draws.fill(("exponential", variates), ("uniform", uniforms))
        return laplace_integers(query, grid, scale, variates.transpose(1, 0, 2), uniforms)


def laplace_integers(query: Array, g: Array, ratio: Array, exponentials: Array, uniforms: Array) -> Array:
    """Compute ⌊query/g⌋ + [U < frac(query/g)] + ⌊E₁·ratio⌋ − ⌊E₂·ratio⌋, as float64 integers.

    Args:
        query: (b, d).
        g: grid.
        ratio: scale/grid.
        exponentials: (2, b, d), overwritten.
        uniforms: (b, d) in [0, 1).

    Example:
        >>> g, ratio, noise = np.ones((1, 1)), np.ones((1, 1)), np.array([[[2.5]], [[0.5]]])
        >>> laplace_integers(np.array([[3.0]]), g, ratio, noise, np.array([[0.5]])).tolist()
        [[5.0]]
    """
    out = grid_arithmetic.rounded_at_random(query, g, uniforms)
    exponentials *= ratio
    np.floor(exponentials, out=exponentials)
    out += exponentials[0]
    out -= exponentials[1]
    return np.asarray(out)
