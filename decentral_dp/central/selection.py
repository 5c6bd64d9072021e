"""Exponential mechanisms over x as releases: what one record moves, and draws at any scale.

    P(x) ∝ exp(−q̂(x)/scale)      `FiniteExponential`: of a public list      `BoxExponential`: of a public box, p ≤ 3

q is Φ(x) = F(x, y_Z(x)) or ‖∇Φ(x)‖, and q̂ what is computed of it: known up to `inexact`, and rounded to a grid of
r = 2⁻²⁰ of what a record can move. If one record of a kind moves all of q by amounts within s of each other
(`score_oscillation`; twice the sensitivity of ∇Φ for the norm), then it moves q̂ by amounts within

    s + 2r + 4·inexact,

which is the sensitivity stated here, and the price is that over the scale: pure ε, whether Φ is convex or not. Common
shifts cancel, so that no factor ½ is lost. Integers alone decide (`privacy.mechanisms.integer_samplers`).

At scale 0 the best leaves: no noise.

`GridWalkSelection` runs a chain towards that law for so many steps, of unknown distance from it. Cells of side γ on a
cube, F = e^{−Φ̂/scale}: stay with probability ½, else go to a neighbour along ±e_i (1/(4p) each) with probability
min(1, F'/F); then a uniform θ of the cell, accepted with F(θ)/(e^{αγ/2 + 2ζ} F(centre)), or all restarts. α is the
Lipschitz constant of Φ/scale in the infinity norm, ζ the error of the exponent: e would do for αγ/2 + 2ζ ≤ 1, as
printed; with what it is the last step is a probability in any case.

How close the chain is to its law after a number of steps is proven only for numbers that nobody can afford
(`papers.grid_walk_chains.certified_steps`), so this release is listed as uncertified, at ε = ∞.

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
from functools import cache

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.central import exponential_samplers
from decentral_dp.central.context import Domain
from decentral_dp.central.exponential_samplers import GRID_BITS, Box, GibbsTarget, law_at, score_unit
from decentral_dp.central.log_concave_sampler import RegularisedLaw, draw_regularised, quadratic
from decentral_dp.central.pooled import PooledBounds
from decentral_dp.constants.problem_constants import round_up
from decentral_dp.errors import InputError
from decentral_dp.exchange import SelectionMechanism
from decentral_dp.privacy.mechanisms.integer_samplers import Weights

# (n, p) points → (n,); lower is better.
Function = Callable[[Array], Array]

# Points per axis by p, where none is given.
_PER_AXIS = (65, 17, 9)
_MOST_CANDIDATES = 100_000
_ZOOMS, _ZOOM_POINTS = 14, (33, 9, 7)


@dataclass(frozen=True)
class ScoreBounds:
    """What is public of a score q.

    oscillation: split → sup − inf of what one record moves q by. inexact: e ≥ |computed − q|. lipschitz: of q, in l2.
    """

    oscillation: Mapping[Split, float]
    inexact: float
    lipschitz: float

    @classmethod
    def of_value(cls, bounds: PooledBounds, low: Array, high: Array) -> ScoreBounds:
        """Φ, on the box [low, high], each (p,). Lowy & Liu, Equation 4, with the last term over n."""
        error = bounds.inexactness(low, high)
        return cls(bounds.oscillation(low, high), error, bounds.lipschitz(low, high))

    @classmethod
    def of_norm(cls, bounds: PooledBounds, low: Array, high: Array) -> ScoreBounds:
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
class ScoreSelection(SelectionMechanism):
    """A draw by a score, at pure ε. facts: what is public of the score."""

    facts: ScoreBounds

    mechanism = "exponential"
    distortion = 0.0

    @property
    def sensitivity(self) -> Mapping[Split, float]:
        return self.facts.sensitivity


@dataclass(frozen=True)
class FiniteExponential(ScoreSelection):
    """One of finitely many public points, (n, p)."""

    points: Array
    score: Function

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


@dataclass(frozen=True)
class BoxSelection(ScoreSelection):
    """A draw of a point of a public box; the best at scale 0."""

    box: Box
    score: Function

    @property
    def width(self) -> int:
        return len(self.box.low)

    def draw(self, generator: np.random.Generator, scale: float) -> Array:
        return self.sample(generator, scale) if scale > 0.0 else best_point(self.score, self.box)

    def sample(self, generator: np.random.Generator, scale: float) -> Array:
        """(width,) a point at a scale above 0."""
        raise NotImplementedError


@dataclass(frozen=True)
class BoxExponential(BoxSelection):
    """A point of a public box, p ≤ 3: of 2⁴⁰ positions along each axis, by cells."""

    def sample(self, generator: np.random.Generator, scale: float) -> Array:
        return exponential_samplers.draw_point(generator, self.target(scale))

    def target(self, scale: float) -> GibbsTarget:
        facts = self.facts
        return GibbsTarget(self.score, self.box, 1 / Fraction(scale), facts.unit, facts.lipschitz, facts.inexact)


def best_point(score: Function, box: Box) -> Array:
    """(p,) the best point that a grid finds which closes in on its best point, p ≤ 3. Not private."""
    low, high = box.low, box.high
    at = 0.5 * (low + high)
    for _ in range(_ZOOMS):
        points = grid(low, high, _ZOOM_POINTS[len(low) - 1])
        at = points[int(np.argmin(score(points)))]
        step = (high - low) / (_ZOOM_POINTS[len(low) - 1] - 1)
        low, high = np.maximum(box.low, at - step), np.minimum(box.high, at + step)
    return np.asarray(at)


def grid(low: Array, high: Array, count: int) -> Array:
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
        InputError: for too many axes, too few or too many points, and a domain without bounds.
    """
    count = per_axis(p) if count is None else count
    if not domain.compact:
        raise InputError("algorithm.domain: candidates for x need bounds; give for example { low = -5, high = 0 }.")
    if count < 2 or count**p > _MOST_CANDIDATES:
        raise InputError(
            f"algorithm.candidates: got {count} along each of {p} axes; wanted 2 or more, and no more than "
            f"{_MOST_CANDIDATES} together."
        )
    return grid(*domain.corners(p), count)


# Where fewer of the last steps are accepted, restarts go on and on.
_LEAST_ACCEPTANCE = 1e-4


@dataclass(frozen=True)
class GridWalkSelection(BoxSelection):
    """cells: along each axis. steps: of the walk, every time it starts."""

    cells: int
    steps: int

    mechanism = "uncertified"

    @property
    def sensitivity(self) -> Mapping[Split, float]:
        """Nothing is proven."""
        return dict.fromkeys(self.facts.sensitivity, math.inf)

    def sample(self, generator: np.random.Generator, scale: float) -> Array:
        @cache
        def exponent(cell: tuple[int, ...]) -> float:
            """Φ̂/scale at the centre of a cell."""
            return self._height(np.array(cell) + 0.5) / scale

        gamma = float(self.box.sides.max()) / self.cells
        # e^{−αγ/2 − 2ζ}, or 1/e where that is more.
        least = 1.0 / (math.e * max(1.0, acceptance(self.alpha(scale), gamma, self.facts.inexact / scale)))
        while True:
            cell = self._walk(generator, exponent)
            place = np.array(cell) + generator.random(self.width)
            if generator.random() < math.exp(exponent(cell) - self._height(place) / scale) * least:
                return np.asarray(self.box.low + self.box.sides * (place / self.cells))

    def _height(self, place: Array) -> float:
        """Φ̂ at a point, in units of a cell."""
        return float(self.score((self.box.low + self.box.sides * (place / self.cells))[None])[0])

    def _walk(self, generator: np.random.Generator, exponent: Callable[[tuple[int, ...]], float]) -> tuple[int, ...]:
        """From the middle."""
        cell = (self.cells // 2,) * self.width
        moves = generator.integers(4 * self.width, size=self.steps)
        for move, coin in zip(moves.tolist(), generator.random(self.steps).tolist(), strict=True):
            axis, sign = divmod(move, 4)
            # Two of four stay.
            if sign < 2:
                there = cell[axis] + 2 * sign - 1
                if 0 <= there < self.cells:
                    other = (*cell[:axis], there, *cell[axis + 1 :])
                    if coin < math.exp(min(0.0, exponent(cell) - exponent(other))):
                        cell = other
        return cell

    def alpha(self, scale: float) -> float:
        """α."""
        return self.facts.lipschitz * math.sqrt(self.width) / scale

    def check(self, scale: float) -> None:
        """Raises InputError where cells are so wide that hardly a point is accepted."""
        gamma, zeta = float(self.box.sides.max()) / self.cells, self.facts.inexact / scale
        # Twice: F(θ) may be as far below as it is above.
        if acceptance(2.0 * self.alpha(scale), gamma, 2.0 * zeta) * math.e > 1.0 / _LEAST_ACCEPTANCE:
            wanted = math.ceil(self.alpha(scale) * float(self.box.sides.max()))
            raise InputError(
                f"algorithm.candidates: {self.cells} cells along each axis are so wide that hardly any point is kept; "
                f"take about {wanted}, or a smaller epsilon."
            )


def acceptance(alpha: float, gamma: float, zeta: float = 0.0) -> float:
    """The largest "probability" F(θ)/(e·F(x)) of the last step: e^{αγ/2 + 2ζ − 1}, no probability where above 1.

    alpha: Lipschitz constant of the exponent in the infinity norm. gamma: side of a cell. zeta: error of the exponent.
    """
    return math.exp(alpha * gamma / 2.0 + 2.0 * zeta - 1.0)


# More proposals than these, and nobody waits for a draw.
_MOST_PROPOSALS = 1e5
_STEPS = 400

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
        curvature = self.curvature if self.is_certified else 0.0
        return RegularisedLaw(
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
        if method == "tangent" and not self.is_certified:
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
        return "gaussian" if self.facts.is_certified else "uncertified"

    @property
    def sensitivity(self) -> Mapping[Split, float]:
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
        if self.method == "cells":
            return exponential_samplers.draw_point(generator, declared.target(self.scores))
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
