"""Gaussian noise: a Gaussian pair, sensitivities in l2.

Values are rounded to a grid of a power of two before noise is added, and the rounding is part of the price:

    g = 2^(⌊log₂ s⌋ − 16), deterministic rounding, rounded normal noise:  k = rint(u/g) + rint(N·s/g),  N ~ N(0, 1)
              μ = (Δ₂ + √d·g)/s, exactly a Gaussian pair with this μ: rounded normal noise on an integer is
              post-processing of the Gaussian
    wide      (d > 2¹²) g = 2^(⌊log₂ s⌋ − 18), secret stochastic rounding, where √d·g would be much beside Δ₂:
              k = ⌊u/g⌋ + [U < frac(u/g)] + rint(N·s/g)
              μ = √((Δ₂ + 5g)² + (d/4 + 5√d)g²)/s, a Gaussian pair with this μ but for δ = 2e^{−40} < 1e-17

Wide: both neighbours share the uniform variates. Given these, a coordinate that moves by v_i (in g) is rounded to one
that moves by v_i + ξ_i, one of the integers around v_i, E ξ_i = 0. In ‖v + ξ‖² = ‖v‖² + 2⟨v, ξ⟩ + ‖ξ‖², but for e^{−L}
each (Hoeffding)

    ⟨v, ξ⟩ ≤ ‖v‖ √(L/2),   ‖ξ‖² ≤ d/4 + √(dL/2),

and 5 > √20 has room for the 53 bits of the variates. All coordinates of a deterministic rounding may go the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, final

import numpy as np

from decentral_dp.bounded import Array, Norm
from decentral_dp.privacy.mechanisms import grid_arithmetic
from decentral_dp.privacy.mechanisms.protocol import CostUnit, DominatingPair, NormalVariates, Sampling, Unnoised

# The scale is 2^bits to 2^(bits + 1) cells of the grid.
BITS, RANDOMISED_BITS = 16, 18
# Above it a release is wide.
_NARROW = 2**12


@final
@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise on every coordinate, its standard deviation the scale.

    Sensitivity:
        In l2. Rounding to the grid is in the price; formulas at the top of this module, see docs/proofs/08.

    Limits:
        Scale 0 costs +inf where a record can move the value, and nothing where none can.

    Example:
        >>> mechanism = Gaussian()
        >>> round(float(mechanism.cost(sensitivity=1.0, scale=2.0, width=10)), 3)
        0.5
        >>> float(mechanism.cost(1.0, 0.0, 10)), float(mechanism.cost(0.0, 0.0, 10))
        (inf, 0.0)
        >>> mechanism.rounds_at_random(width=10), mechanism.rounds_at_random(width=10_000)
        (False, True)
    """

    name = "gaussian"
    description = "Gaussian noise"
    norm: ClassVar[Norm] = "l2"
    pure = False
    unit: ClassVar[CostUnit] = "μ"
    dominating_pair = DominatingPair.GAUSSIAN
    charged = adds_noise = proven = True
    amplified_by: ClassVar[tuple[Sampling, ...]] = ("fixed", "poisson")
    deviation = 1.0
    columns_at_a_time = 2**14

    def scale_of(self, deviation: Array) -> Array:
        """Return the scale of noise with this standard deviation: itself, in its shape."""
        return np.asarray(deviation)

    def grid(self, scale: Array | float, width: int) -> Array:
        """Return the power of two that released values are multiples of, for each scale, in its shape."""
        return grid_arithmetic.power_of_two_grid(scale, self.bits(width))

    def bits(self, width: int) -> int:
        """Return how fine the grid is: the scale is 2^bits to 2^(bits + 1) cells of it."""
        return RANDOMISED_BITS if self.rounds_at_random(width) else BITS

    def rounds_at_random(self, width: int) -> bool:
        """Say whether a release of this width is rounded at random: where it is wide, d > 2¹²."""
        return width > _NARROW

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Price a release: μ = (Δ₂ + √d·g)/s; of a wide release √((Δ₂ + 5g)² + (d/4 + 5√d)g²)/s.

        Args:
            sensitivity: Δ₂, a number or an array.
            scale: s; broadcasts with Δ₂.
            width: d.
        """
        delta, sd = grid_arithmetic.broadcast(sensitivity, scale)
        g = self.grid(sd, width)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.rounds_at_random(width):
                randomised = np.sqrt(0.25 * width + 5.0 * np.sqrt(width))
                mu = np.hypot((delta + 5.0 * g) / sd, randomised * (g / sd))
            else:
                mu = (delta + np.sqrt(width) * g) / sd
        return grid_arithmetic.price_limits(mu, delta, sd)

    def float_slack(self, loss: Array, width: int) -> NormalVariates:
        """Return the law of the float64 variates, from which accountants bound what they add; see docs/proofs/09.

        loss: μ of releases, of any shape.
        """
        return NormalVariates(self.bits(width), self.rounds_at_random(width))

    def sample(self, request: Unnoised) -> Array:
        """Draw noised values in units of the grid, (b, Σ widths) float64 integers."""
        draws, query, grid, scale, widths, workspace = request[:6]
        (rows, columns), ends = query.shape, accumulate(widths)
        wide = [slice(end - w, end) for end, w in zip(ends, widths, strict=True) if self.rounds_at_random(w)]
        key = (rows, columns, *(c.stop for c in wide))
        if key not in workspace:
            # Half everywhere rounds to the nearest.
            workspace[key] = np.empty((rows, columns)), np.full((rows, columns if wide else 0), 0.5)
        normals, uniforms = workspace[key]
        draws.fill(("normal", normals), *[("uniform", uniforms[:, part]) for part in wide])
        return gaussian_integers(query, grid, scale, normals, uniforms if wide else None)


def gaussian_integers(query: Array, g: Array, ratio: Array, normals: Array, uniforms: Array | None = None) -> Array:
    """Compute rint(query/g), or with uniforms ⌊query/g⌋ + [U < frac(query/g)], + rint(N·ratio), as float64 integers.

    Args:
        query: (b, d).
        g: grid.
        ratio: scale/grid.
        normals: (b, d), overwritten.
        uniforms: (b, d) in [0, 1); None rounds to the nearest.

    Example:
        >>> one, noise = np.ones((1, 1)), np.array([[1.2]])
        >>> gaussian_integers(np.array([[3.4]]), one, one, noise).tolist()
        [[4.0]]
    """
    if uniforms is None:
        out = query * (1.0 / g)
        np.rint(out, out=out)
    else:
        out = grid_arithmetic.rounded_at_random(query, g, uniforms)
    normals *= ratio
    out += np.rint(normals, out=normals)
    return np.asarray(out)
