"""Exponential mechanisms over the upper variable x: their sensitivities and exact samplers.

    P(x) ∝ exp(−q̂(x)/scale)                                `FiniteExponential`: one of finitely many candidates
    density ∝ exp(−k·(Φ(x) + (μ_r/2)‖x − x₀‖²))            `RegularisedSelection`: a point of a box

q is Φ(x) = F(x, y_Z(x)) or ‖∇Φ(x)‖, and q̂ is q as computed.

**Finite candidates.** Let one replaced record change the scores of all candidates by amounts within s of each other
(their oscillation, sup − inf). Then exp(−λq) with λ = ε/s is ε-DP: a common shift cancels in the normalisation, so no
factor ½ is lost (McSherry & Talwar, FOCS 2007; Dong, Durfee & Rogers, ICML 2020). Scores are rounded to the public grid
r = 2^(⌊log₂ s⌋ − 20) and are known up to `inexact`, so the stated sensitivity is s + 2r + 4·inexact. The draw uses
integers only. Float64 would not do: NumPy's Gumbel variates lie in [−3.61, 36.74], so a candidate with λq = 40.4 above
the best has probability 0 for one dataset and may have a positive one for its neighbour, which is infinite pure ε.
A score must be a fixed function of dataset and candidate: no warm start from another candidate. Errors that depend on
batching belong in `inexact`.

**Regularised densities.** Let Φ − (κ/2)‖x‖² be convex for every dataset, and let one record change ∇Φ by at most S
anywhere on the box. Then with k = (μ_r + κ)/scale² a draw has the privacy of a Gaussian pair with μ = S/scale (Gopi,
Lee & Liu, COLT 2022, Theorem 4.1). κ = 0 where Φ is known to be convex; otherwise κ = −(Lipschitz constant of ∇Φ), and
μ_r must exceed it. The theorem is about exact Φ and a continuum. The sampler uses a grid of 2^40 positions on each
axis, and the log-density that it draws from differs by at most e (`RegularisedLaw.error`). The guarantee is therefore
(ε + 4e, e^{2e}δ). e grows with k and is stated for the smallest scale of a run.
`draw_regularised` proposes from a Gaussian below the tangent at a point near the minimum: exact discrete Gaussians, a
geometric tail if the centre is outside the box, and an exact acceptance, all with integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import frexp, isfinite, isqrt, ldexp
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.central.context import Domain
from decentral_dp.central.pooled import PooledBounds
from decentral_dp.constants.problem_constants import round_up
from decentral_dp.errors import InputError
from decentral_dp.exchange import SelectionMechanism
from decentral_dp.privacy.mechanisms.integer_samplers import (
    IntArray,
    Weights,
    bernoulli_exp,
    discrete_gaussian,
    draw_geometric,
    uniform_integer,
)

GRID_BITS = 20
# Positions along each axis of a box: 2 to this power.
DEPTH = 40
# Float64 itself errs by more than 2^-11 of the oscillation on scores beyond this many grid units.
_MOST_UNITS = 2.0**62

Score = Callable[[Array], Array]


def law_at(scores: Array, unit: float, rate: Fraction) -> Weights:
    """Return the law ∝ exp(−rate·score) over scores (n,) rounded to whole units."""
    whole = units(scores, unit)
    return Weights.from_gaps(whole - whole.min(), rate * Fraction(unit))


def score_unit(scale: float) -> float:
    """Return the grid of scores whose differences matter on this scale: a power of two, 2⁻²⁰ of it or a little less.

    Example:
        >>> score_unit(1.0) == 2.0**-20, score_unit(1.9) == 2.0**-20
        (True, True)
    """
    if not (isfinite(scale) and scale > 0.0):
        raise InputError(f"oscillation: got {scale}, wanted a finite number above 0; compute it from constants.")
    return ldexp(1.0, frexp(scale)[1] - 1 - GRID_BITS)


def units(scores: Array, unit: float) -> IntArray:
    """Round scores to whole units, a power of two: (n,) integers, each within half a unit.

    Raises:
        InputError: no scores, or some that are not finite or too large.

    Example:
        >>> units(np.array([0.0, 0.5, 0.7]), unit=0.25).tolist()
        [0, 2, 3]
    """
    with np.errstate(over="ignore"):
        scaled = np.rint(scores / unit)
    if not scores.size or not bool((np.abs(scaled) < _MOST_UNITS).all()):
        raise InputError(
            f"scores: got {scores.size} of which {int((~np.isfinite(scores)).sum())} are not finite or some exceed "
            f"{unit * _MOST_UNITS:g}, wanted one or more below that; such scores contradict the declared oscillation, "
            "so declare the one that they have."
        )
    return scaled.astype(np.int64)


class Box(NamedTuple):
    """A public box.

    Args:
        low: (d,) corner.
        high: (d,) corner, above low.

    Example:
        >>> box = Box(np.array([-1.0]), np.array([1.0]))
        >>> box.diameter, box.centres(np.array([[0], [1]]), depth=1).tolist()
        (2.0, [[-0.5], [0.5]])
    """

    low: Array
    high: Array

    @property
    def sides(self) -> Array:
        return np.asarray(self.high - self.low)

    @property
    def diameter(self) -> float:
        return float(np.linalg.norm(self.sides))

    def centres(self, cells: IntArray, depth: int) -> Array:
        """Return the centres of the cells with these numbers among the 2^depth along each axis, (n, d)."""
        return np.asarray(self.low + self.sides * ((cells + 0.5) * 2.0**-depth))

    def slack(self) -> float:
        """Bound how far a float64 centre may lie from the ideal one."""
        return float(np.linalg.norm(np.abs(self.low) + np.abs(self.high))) * 2.0**-50


_POSITIONS = 1 << DEPTH


class RegularisedLaw(NamedTuple):
    """What is declared of a score Φ, for every dataset, and how it is regularised.

    box: public. rate: k. strength, anchor: μ_r and x₀ (d,). sensitivity: S, the largest change of ∇Φ on the box.
    lipschitz: of Φ on the box. curvature: as above. inexact: bound on |score computed − Φ|. gradient_error: likewise
    for the gradient, l2; used for speed alone.
    """

    box: Box
    rate: float
    strength: float
    anchor: Array
    sensitivity: float
    lipschitz: float
    curvature: float = 0.0
    inexact: float = 0.0
    gradient_error: float = 0.0

    @property
    def unit(self) -> float:
        return score_unit(1.0 / self.rate)

    def farthest(self) -> float:
        """The largest distance of the box from the anchor."""
        return float(np.linalg.norm(np.maximum(self.box.high - self.anchor, self.anchor - self.box.low)))

    def whole_lipschitz(self) -> float:
        return self.lipschitz + self.strength * self.farthest()

    def whole_inexact(self) -> float:
        """With what float64 adds to the regulariser."""
        return self.inexact + self.strength * self.farthest() ** 2 * 2.0**-50

    def error(self) -> float:
        """e: sup |log of the law drawn − log of the continuous one in that cell|, before normalisation."""
        sensitivity = self.whole_lipschitz() * (0.5 * self.box.diameter * 2.0**-DEPTH + self.box.slack())
        return self.rate * (sensitivity + self.whole_inexact() + 0.5 * self.unit)

    def regularise(self, score: Score) -> Score:
        """Φ + (μ_r/2)|x − x₀|², (n, d) → (n,)."""

        def regularised_score(points: Array) -> Array:
            return np.asarray(score(points) + 0.5 * self.strength * ((points - self.anchor) ** 2).sum(axis=1))

        return regularised_score


def draw_regularised(
    generator: np.random.Generator,
    declared: RegularisedLaw,
    score: Score,
    gradient: Callable[[Array], Array],
    near: Array,
    *,
    envelope: float | None = None,
) -> Array:
    """Draw a point (d,) by rejection from the Gaussian that touches Φ + regulariser at `near`.

    Args:
        generator: of random bits.
        declared: what holds of Φ for every dataset, and its regulariser.
        score: Φ, (n, d) → (n,).
        gradient: of Φ, (d,) → (d,).
        near: (d,), a point near the minimum of Φ + regulariser.
        envelope: a lower bound on the curvature of this dataset's Φ, if one better than the declared one is known.

    Raises:
        InputError: a curvature that no regulariser of this strength makes positive.

    Limits:
        near, gradient and envelope change how long a draw takes, not its law. One proposal in about
        ((μ_r + smoothness)/(μ_r + curvature))^{d/2} is accepted.
    """
    if not declared.strength + declared.curvature > 0.0:
        raise InputError(f"strength + curvature: got {declared.strength + declared.curvature:g}, wanted above 0.")
    proposal = _touching(declared, score, gradient, near, declared.curvature if envelope is None else envelope)
    whole, box = declared.regularise(score), declared.box
    rate = Fraction(declared.rate) * Fraction(declared.unit)
    while True:
        numbers = [_on_axis(generator, a, m) for a, m in zip(proposal.precisions, proposal.centre, strict=True)]
        point = box.centres(np.array([numbers], dtype=np.int64), DEPTH)
        height = rate * int(units(whole(point), declared.unit)[0])
        squares = zip(proposal.precisions, numbers, proposal.centre, strict=True)
        gamma = height - sum((a * (n - m) ** 2 for a, n, m in squares), Fraction(0)) / 2 - proposal.floor
        # Below 0 only if a declared constant is wrong.
        if bernoulli_exp(generator, max(gamma, Fraction(0))):
            return np.asarray(point[0])


def quadratic(generator: np.random.Generator, declared: RegularisedLaw, hessian: Array, linear: Array) -> Array:
    """Draw a point (d,) from a truncated Gaussian: `draw_regularised` for Φ(x) = x'Hx/2 − b'x.

    One proposal in √(Π_i (λ_min + μ_r)/(λ_i + μ_r)) is accepted inside the box, λ the eigenvalues of H.

    Args:
        generator: of random bits.
        declared: as of `draw_regularised`; `inexact` has to cover the float64 evaluation of Φ.
        hessian: H, (d, d).
        linear: b, (d,).
    """
    eigenvalues = np.linalg.eigvalsh(hessian)
    least = float(eigenvalues[0]) - 1e-9 * float(np.abs(eigenvalues).max())
    ridge = declared.strength * np.eye(len(linear))
    near = np.asarray(np.linalg.solve(hessian + ridge, linear + declared.strength * declared.anchor), dtype=np.float64)
    return draw_regularised(
        generator,
        declared,
        lambda x: np.asarray(0.5 * np.einsum("ni,ij,nj->n", x, hessian, x) - x @ linear),
        lambda x: np.asarray(hessian @ x - linear),
        near,
        envelope=max(declared.curvature, least),
    )


class _Proposal(NamedTuple):
    """precisions: a of e^{−a(j − centre)²/2} along each axis. floor: of rate·score minus the proposal's exponent."""

    precisions: tuple[Fraction, ...]
    centre: tuple[int, ...]
    floor: Fraction


def _touching(
    declared: RegularisedLaw, score: Score, gradient: Callable[[Array], Array], near: Array, curvature: float
) -> _Proposal:
    """The Gaussian proposal whose exponent lies below k·(Φ + regulariser) by at least `floor` on the whole box.

    F(x) ≥ F(y) + ⟨∇F(y), x − y⟩ + (κ/2)|x − y|² for κ = μ_r + curvature; the right side minus (κ/2)|x − m|² is affine
    in x, with the gradient ∇F(y) − κ(y − m), which vanishes but for rounding where m = y − ∇F(y)/κ is put on the grid.
    """
    box, kappa = declared.box, declared.strength + curvature
    y = np.clip(near, box.low, box.high)
    slope = gradient(y) + declared.strength * (y - declared.anchor)
    step = box.sides * 2.0**-DEPTH
    centre = np.rint((y - slope / kappa - box.low) / step - 0.5)
    m = box.low + step * (centre + 0.5)
    value, square = float(declared.regularise(score)(y[None])[0]), kappa * float((y - m) @ (y - m))
    tilt = float(np.linalg.norm(slope - kappa * (y - m))) + 1e-12 * float(np.linalg.norm(slope))
    lost = (tilt + declared.gradient_error) * box.diameter + 2.0 * declared.whole_inexact() + declared.unit
    lost += 2.0 * declared.whole_lipschitz() * box.slack() + 1e-12 * (abs(value) + square)
    floor = declared.rate * (value - 0.5 * square - lost)
    precisions = tuple(Fraction(float(a) * (1.0 - 1e-12)) for a in declared.rate * kappa * step**2)
    return _Proposal(precisions, tuple(int(c) for c in centre), Fraction(floor))


def _on_axis(generator: np.random.Generator, precision: Fraction, centre: int) -> int:
    """j in [0, 2^40) with probability proportional to e^{−precision·(j − centre)²/2}, exactly."""
    last = _POSITIONS - 1
    if centre > last:
        return last - _on_axis(generator, precision, last - centre)
    outside = max(0, -centre)
    farthest = max(last - centre, centre)
    spread = precision * (farthest**2 - outside**2) / 2
    deviation = isqrt(int(1 / precision))
    while True:
        if spread <= 2:
            j = uniform_integer(generator, _POSITIONS)
            accepted = bernoulli_exp(generator, precision * ((j - centre) ** 2 - outside**2) / 2)
        elif outside <= deviation:
            j = centre + discrete_gaussian(generator, precision)
            accepted = 0 <= j <= last
        else:
            j = draw_geometric(generator, precision * outside)
            accepted = j <= last and bernoulli_exp(generator, precision * j**2 / 2)
        if accepted:
            return j


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
