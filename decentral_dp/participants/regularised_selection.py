"""A regularised exponential mechanism over x as a release: a Gaussian pair.

    density ∝ e^{−k·(Φ(x) + (μ_r/2)|x − x₀|²)} on a public box,     k = (μ_r + κ)/scale²

If Φ − (κ/2)|x|² is convex for every data set and one record moves ∇Φ by at most S anywhere on the box, a draw costs
μ = S/scale (Gopi, Lee & Liu, COLT 2022, Theorem 4.1). κ = 0 where Φ is known to be convex, as where y_Z(x) is affine in
x and f convex and quadratic; else κ = −(Lipschitz constant of ∇Φ), and μ_r has to be above it. Inexact scores, and a
grid of 2⁴⁰ positions along each axis, keep the law of what is drawn within a factor e^{±2e} of that density
(`Regularised.error`); e grows with k, and so is stated for the smallest scale that a run can have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.errors import InputError
from decentral_dp.participants.pooled import PooledBounds
from decentral_dp.participants.selection import Function, best
from decentral_dp.privacy.mechanisms import box_sampler
from decentral_dp.privacy.mechanisms.box_sampler import Box, Target
from decentral_dp.privacy.mechanisms.finite_sampler import GRID_BITS, Guarantee
from decentral_dp.privacy.mechanisms.log_concave_sampler import Regularised, quadratic, regularised

# More proposals than these, and nobody waits for a draw.
_MOST_PROPOSALS = 1e5
_STEPS = 400
# The samplers state a price, at a δ; here it is the ledger's.
_ANY_DELTA = 0.5

NOT_CONVEX = (
    "The theorem needs the regularised score of every data set to be convex, and this strength does not make it so."
)


@dataclass(frozen=True)
class Density:
    """What is public of the law. moved: kind → S. strength, anchor: μ_r and x₀ (p,).

    lipschitz, smooth: of Φ and of ∇Φ. inexact, gradient_error: of what is computed of them. convex: whether Φ is, for
    every data set. trace: bound on the trace of ∇²Φ where Φ is a quadratic, else inf; for speed alone. finest: the
    smallest scale to come, 0 where there is no noise.
    """

    box: Box
    sensitivity: Mapping[Split, float]
    strength: float
    anchor: Array
    lipschitz: float
    smooth: float
    inexact: float
    gradient_error: float
    convex: bool
    finest: float
    trace: float = math.inf

    @classmethod
    def of(cls, bounds: PooledBounds, low: Array, high: Array, strength: float, finest: float) -> Density:
        """State what is public of the law for Φ on a box, x₀ being its middle.

        Args:
            bounds: public numbers of the pooled records.
            low: (p,) of the box.
            high: (p,) of the box.
            strength: μ_r.
            finest: the smallest scale to come, 0 where there is no noise.
        """
        convex, reach = bounds.convex, float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high))))
        error = bounds.quadratic_inexactness(low, high) if convex else bounds.inexactness(low, high)
        smooth = bounds.smoothness(low, high)
        return cls(
            box=Box(low, high),
            sensitivity=bounds.gradient_sensitivity(low, high),
            strength=strength,
            anchor=0.5 * (low + high),
            lipschitz=bounds.lipschitz(low, high),
            smooth=smooth,
            inexact=error,
            # Of a quadratic: both errors are those of its two coefficients.
            gradient_error=2.0 * error / reach if convex else bounds.gradient_error(low, high),
            convex=convex,
            finest=finest,
            # ∇²Φ is a mean of matrices of rank one between contractions, or a multiple of the identity, whose
            # eigenvalues are alike and cost nothing.
            trace=smooth if convex else math.inf,
        )

    @property
    def curvature(self) -> float:
        """κ."""
        return 0.0 if self.convex else -self.smooth

    @property
    def certified(self) -> bool:
        """Whether the regularised score is strictly convex for every data set."""
        return self.strength + self.curvature > 0.0

    @property
    def distortion(self) -> float:
        """τ = 2e at the finest scale, and no less than at any other."""
        if self.finest == 0.0:
            return 0.0
        return 2.0 * (self.declared(self.finest).error() + 2.0 ** -(GRID_BITS + 1))

    @property
    def proposals(self) -> float:
        """About how many proposals from the tangent a draw can take."""
        curved = 0.5 * len(self.anchor) * math.log1p((self.smooth - self.curvature) / (self.strength + self.curvature))
        return math.exp(min(curved, 0.5 * self.trace / self.strength, 700.0))

    def declared(self, scale: float) -> Regularised:
        curvature = self.curvature if self.certified else 0.0
        return Regularised(
            self.box,
            (self.strength + curvature) / scale**2,
            self.strength,
            self.anchor,
            max(self.sensitivity.values()),
            self.lipschitz,
            curvature,
            self.inexact,
            self.gradient_error,
        )

    def check(self, method: str) -> None:
        """Raises InputError where a draw by this method would take too long, or has no law."""
        p = len(self.anchor)
        if method == "cells" and p > 3:
            raise InputError(
                f'algorithm.method: "cells" goes up to 3 upper variables, and x has {p}; leave it out, or take '
                '"second_order_dp_bilevel".'
            )
        if method == "tangent" and not self.certified:
            raise InputError(
                'algorithm.method: "tangent" needs a regularised upper level that is convex for every data set; give '
                '"cells", or a larger strength.'
            )
        if method == "tangent" and self.proposals > _MOST_PROPOSALS:
            raise InputError(
                f"algorithm.strength: with {self.strength:.3g}, a draw could take {self.proposals:.1g} proposals; give "
                f"a strength nearer to {self.smooth:.3g}, the largest curvature of the upper level."
            )


@dataclass(frozen=True)
class RegularisedSelection:
    """score: Φ at (n, p) → (n,). gradient: ∇Φ at (p,). coefficients: (H, b) of Φ = ½ xᵀHx − bᵀx, where it is that.

    method: "tangent" (rejection from a Gaussian) or "cells" (p ≤ 3).
    """

    facts: Density
    score: Function
    gradient: Callable[[Array], Array]
    coefficients: tuple[Array, Array] | None = None
    method: str = "tangent"

    @property
    def mechanism(self) -> str:
        return "gaussian" if self.facts.certified else "uncertified"

    @property
    def sensitivity(self) -> Mapping[Split, float]:
        return self.facts.sensitivity if self.facts.certified else dict.fromkeys(self.facts.sensitivity, math.inf)

    @property
    def width(self) -> int:
        return len(self.facts.anchor)

    @property
    def distortion(self) -> float:
        return self.facts.distortion

    def draw(self, generator: np.random.Generator, scale: float) -> Array:
        """Raises ValueError for a scale below the finest, whose law would be farther from the ideal than stated."""
        if scale == 0.0:
            return self.bottom()
        if scale < self.facts.finest * (1.0 - 1e-9):
            raise ValueError(f"a scale of {scale:g}, where the distortion is stated down to {self.facts.finest:g}")
        declared = self.facts.declared(scale)
        if self.method == "cells":
            rate, whole = Fraction(declared.rate), declared.whole(self.scores)
            target = Target(
                whole, declared.box, rate, declared.unit, declared.whole_lipschitz(), declared.whole_inexact()
            )
            return box_sampler.draw(generator, target, Guarantee(0.0, 0.0, False, "as the ledger says"), None).value
        if self.coefficients is not None:
            return quadratic(generator, declared, *self.coefficients, _ANY_DELTA).value
        # Where to touch; a grid is quicker than descent along one axis only.
        near = self.bottom() if self.width == 1 else self._descended()
        return regularised(generator, declared, self.score, self.gradient, near, _ANY_DELTA).value

    def scores(self, points: Array) -> Array:
        """Φ at points (n, p)."""
        if self.coefficients is None:
            return self.score(points)
        hessian, linear = self.coefficients
        return np.asarray(0.5 * np.einsum("ni,ij,nj->n", points, hessian, points) - points @ linear)

    def bottom(self) -> Array:
        """(p,) about the minimiser of Φ + (μ_r/2)|x − x₀|² on the box. Not private."""
        facts = self.facts

        def whole(points: Array) -> Array:
            return np.asarray(self.scores(points) + 0.5 * facts.strength * ((points - facts.anchor) ** 2).sum(axis=1))

        return best(whole, facts.box) if self.width <= 3 else self._descended()

    def _descended(self) -> Array:
        facts, x = self.facts, self.facts.anchor
        for _ in range(_STEPS):
            slope = self.gradient(x) if self.coefficients is None else self.coefficients[0] @ x - self.coefficients[1]
            slope = slope + facts.strength * (x - facts.anchor)
            x = np.clip(x - slope / (facts.smooth + facts.strength), facts.box.low, facts.box.high)
        return np.asarray(x)
