"""Exponential mechanisms over x as releases: what one record moves, and draws at any scale.

    P(x) ∝ exp(−q̂(x)/scale)      `FiniteExponential`: of a public list

q is Φ(x) = F(x, y_Z(x)) or ‖∇Φ(x)‖, and q̂ what is computed of it: known up to `inexact`, and rounded to a grid of
r = 2⁻²⁰ of what a record can move. If one record of a kind moves all of q by amounts within s of each other
(`score_oscillation`; twice the sensitivity of ∇Φ for the norm), then it moves q̂ by amounts within

    s + 2r + 4·inexact,

which is the sensitivity stated here, and the price is that over the scale: pure ε, whether Φ is convex or not. Common
shifts cancel, so that no factor ½ is lost. Integers alone decide (`central.integer_samplers`).

At scale 0 the best leaves: no noise.

`RegularisedSelection` draws from a regularised law, which is priced as a Gaussian pair:

    density ∝ e^{−k·(Φ(x) + (μ_r/2)|x − x₀|²)} on a public box,     k = (μ_r + κ)/scale²

If Φ − (κ/2)|x|² is convex for every data set and one record moves ∇Φ by at most S anywhere on the box, a draw costs
μ = S/scale (Gopi, Lee & Liu, COLT 2022, Theorem 4.1). κ = 0 where Φ is known to be convex, as where y_Z(x) is affine in
x and f convex and quadratic; else κ = −(Lipschitz constant of ∇Φ), and μ_r has to be above it. Inexact scores, and a
grid of 2⁴⁰ positions along each axis, keep the law of what is drawn within a factor e^{±2e} of that density
(`RegularisedLaw.error`); e grows with k, and so is stated for the smallest scale that a run can have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.central.context import Domain
from decentral_dp.central.exponential_samplers import GRID_BITS, Box, law_at, score_unit
from decentral_dp.central.integer_samplers import Weights
from decentral_dp.central.log_concave_sampler import RegularisedLaw, draw_regularised, quadratic
from decentral_dp.central.pooled import PooledBounds
from decentral_dp.constants import round_up
from decentral_dp.errors import InputError
from decentral_dp.exchange import SelectionMechanism

# (n, p) points → (n,); lower is better.
Function = Callable[[Array], Array]

# Points per axis by p, where none is given.
_PER_AXIS = (65, 17, 9)
_MOST_CANDIDATES = 100_000
_ZOOMS, _ZOOM_POINTS = 14, (33, 9, 7)


@dataclass(frozen=True)
class SelectionBounds:
    """What is public of a score q.

    oscillation: split → sup − inf of what one record moves q by. inexact: e ≥ |computed − q|. lipschitz: of q, in l2.
    """

    oscillation: Mapping[Split, float]
    inexact: float
    lipschitz: float

    @classmethod
    def of_value(cls, bounds: PooledBounds, low: Array, high: Array) -> SelectionBounds:
        """Φ, on the box [low, high], each (p,). Lowy & Liu, Equation 4, with the last term over n."""
        error = bounds.inexactness(low, high)
        return cls(bounds.oscillation(low, high), error, bounds.lipschitz(low, high))

    @classmethod
    def of_norm(cls, bounds: PooledBounds, low: Array, high: Array) -> SelectionBounds:
        """‖∇Φ‖, on the box [low, high], each (p,). Lowy & Liu, Appendix C.3, with a bound on ∇Φ that holds."""
        error = bounds.gradient_error(low, high)
        return cls(bounds.norm_oscillation(low, high), error, bounds.smoothness(low, high))

    @property
    def unit(self) -> float:
        """r: the grid of the scores, a power of two."""
        return score_unit(max(self.oscillation.values()))

    @property
    def sensitivity(self) -> dict[Split, float]:
        """Split → s + 2r + 4·inexact."""
        room = 2.0 * self.unit + 4.0 * self.inexact
        return {split: round_up(s + room) for split, s in self.oscillation.items()}


@dataclass(frozen=True)
class FiniteExponential(SelectionMechanism):
    """One of finitely many public points, (n, p), at pure ε. facts: what is public of the score."""

    facts: SelectionBounds
    points: Array
    score: Function

    mechanism = "exponential"
    distortion = 0.0

    @property
    def sensitivity(self) -> Mapping[Split, float]:
        return self.facts.sensitivity

    @property
    def width(self) -> int:
        return int(self.points.shape[1])

    def draw(self, generator: np.random.Generator, scale: float) -> Array:
        scores = self.score(self.points)
        if scale == 0.0:
            return np.asarray(self.points[int(np.argmin(scores))])
        return np.asarray(self.points[self.law(scores, scale).draw(generator)])

    def law(self, scores: Array, scale: float) -> Weights:
        """Weights exp(−rounded score/scale) of candidates with these scores, (n,)."""
        return law_at(scores, self.facts.unit, 1 / Fraction(scale))


def best_point(score: Function, box: Box) -> Array:
    """(p,) the best point that a grid finds which closes in on its best point, p ≤ 3. Not private."""
    low, high = box.low, box.high
    at = 0.5 * (low + high)
    for _ in range(_ZOOMS):
        points = even_points(low, high, _ZOOM_POINTS[len(low) - 1])
        at = points[int(np.argmin(score(points)))]
        step = (high - low) / (_ZOOM_POINTS[len(low) - 1] - 1)
        low, high = np.maximum(box.low, at - step), np.minimum(box.high, at + step)
    return np.asarray(at)


def even_points(low: Array, high: Array, count: int) -> Array:
    """(count^p, p) points, even along each axis, corners included. low, high: (p,)."""
    axes = [np.linspace(a, b, count) for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def per_axis(p: int) -> int:
    """How many points along each axis where nothing is said. Raises InputError for too many axes."""
    if p > len(_PER_AXIS):
        raise InputError(
            f"algorithm.candidates: x has {p} coordinates, and a grid over more than {len(_PER_AXIS)} has too many "
            'points; take a problem with few upper variables, such as "logistic_regularisation", or the algorithm '
            '"second_order_dp_bilevel".'
        )
    return _PER_AXIS[p - 1]


def candidates(domain: Domain, p: int, count: int | None = None) -> Array:
    """Choose public points of a box, even along each axis.

    Args:
        domain: of x.
        p: coordinates of x.
        count: along each axis; default 65, 17 or 9 for p = 1, 2, 3.

    Returns:
        (n, p).

    Raises:
        InputError: for too many axes, and too few or too many points.
    """
    count = per_axis(p) if count is None else count
    if count < 2 or count**p > _MOST_CANDIDATES:
        raise InputError(
            f"algorithm.candidates: got {count} along each of {p} axes; wanted 2 or more, and no more than "
            f"{_MOST_CANDIDATES} together."
        )
    return even_points(*domain.corners(p), count)


# More proposals than these, and nobody waits for a draw.
_MOST_PROPOSALS = 1e5
_STEPS = 400


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
    def from_bounds(cls, bounds: PooledBounds, low: Array, high: Array, strength: float, finest: float) -> Density:
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
    def is_certified(self) -> bool:
        """Whether the regularised score is strictly convex for every data set."""
        return self.strength + self.curvature > 0.0

    @property
    def distortion(self) -> float:
        """τ = 2e at the finest scale, and no less than at any other."""
        if self.finest == 0.0:
            return 0.0
        return 2.0 * (self.regularise(self.finest).error() + 2.0 ** -(GRID_BITS + 1))

    @property
    def proposals(self) -> float:
        """About how many proposals from the tangent a draw can take."""
        curved = 0.5 * len(self.anchor) * math.log1p((self.smooth - self.curvature) / (self.strength + self.curvature))
        return math.exp(min(curved, 0.5 * self.trace / self.strength, 700.0))

    def regularise(self, scale: float) -> RegularisedLaw:
        return RegularisedLaw(
            self.box,
            (self.strength + self.curvature) / scale**2,
            self.strength,
            self.anchor,
            max(self.sensitivity.values()),
            self.lipschitz,
            self.curvature,
            self.inexact,
            self.gradient_error,
        )

    def check(self) -> None:
        """Raises InputError where nothing is proven, or a draw would take too long."""
        if not self.is_certified:
            raise InputError(
                f"algorithm.strength: {self.strength:.4g} does not make the regularised upper level convex for every "
                f"data set on this box, and without that nothing is proven; give more than {self.smooth:.4g}, which "
                "does, or narrow the box."
            )
        if self.proposals > _MOST_PROPOSALS:
            raise InputError(
                f"algorithm.strength: with {self.strength:.3g}, a draw could take {self.proposals:.1g} proposals; give "
                f"a strength nearer to {self.smooth:.3g}, the largest curvature of the upper level."
            )


@dataclass(frozen=True)
class RegularisedSelection:
    """score: Φ at (n, p) → (n,). gradient: ∇Φ at (p,). coefficients: (H, b) of Φ = ½ xᵀHx − bᵀx, where it is that."""

    facts: Density
    score: Function
    gradient: Callable[[Array], Array]
    coefficients: tuple[Array, Array] | None = None

    mechanism = "gaussian"

    @property
    def sensitivity(self) -> Mapping[Split, float]:
        """S; infinite where convexity is not known, and nothing is proven."""
        return self.facts.sensitivity if self.facts.is_certified else dict.fromkeys(self.facts.sensitivity, math.inf)

    @property
    def width(self) -> int:
        return len(self.facts.anchor)

    @property
    def distortion(self) -> float:
        return self.facts.distortion

    def draw(self, generator: np.random.Generator, scale: float) -> Array:
        """Draw a point (p,) from the law at this scale; 0 gives the minimiser.

        Raises:
            ValueError: a scale below the finest, whose law would be farther from the ideal than stated.
        """
        if scale == 0.0:
            return self.bottom()
        if scale < self.facts.finest * (1.0 - 1e-9):
            raise ValueError(f"a scale of {scale:g}, where the distortion is stated down to {self.facts.finest:g}")
        declared = self.facts.regularise(scale)
        if self.coefficients is not None:
            return quadratic(generator, declared, *self.coefficients)
        # Where to touch; a grid is quicker than descent along one axis only.
        near = self.bottom() if self.width == 1 else self._descend()
        return draw_regularised(generator, declared, self.score, self.gradient, near)

    def scores(self, points: Array) -> Array:
        """Φ at points (n, p)."""
        if self.coefficients is None:
            return self.score(points)
        hessian, linear = self.coefficients
        return np.asarray(0.5 * np.einsum("ni,ij,nj->n", points, hessian, points) - points @ linear)

    def bottom(self) -> Array:
        """(p,) about the minimiser of Φ + (μ_r/2)|x − x₀|² on the box. Not private."""
        facts = self.facts

        def regularised_scores(points: Array) -> Array:
            return np.asarray(self.scores(points) + 0.5 * facts.strength * ((points - facts.anchor) ** 2).sum(axis=1))

        return best_point(regularised_scores, facts.box) if self.width <= 3 else self._descend()

    def _descend(self) -> Array:
        facts, x = self.facts, self.facts.anchor
        for _ in range(_STEPS):
            slope = self.gradient(x) if self.coefficients is None else self.coefficients[0] @ x - self.coefficients[1]
            slope = slope + facts.strength * (x - facts.anchor)
            x = np.clip(x - slope / (facts.smooth + facts.strength), facts.box.low, facts.box.high)
        return np.asarray(x)
