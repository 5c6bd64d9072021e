"""Exponential mechanisms over the upper variable x, with their sensitivities and exact samplers.

    P(x) ∝ exp(−q̂(x)/scale)                                `FiniteExponential`: one of finitely many candidates
    density ∝ exp(−k·(Φ(x) + (μ_r/2)‖x − x₀‖²))            `RegularisedSelection`: a point of a box

q is Φ(x) = F(x, y_Z(x)) or ‖∇Φ(x)‖, and q̂ is q as computed.

**Finite candidates.** Let one replaced record change the scores of all candidates by amounts within s of each other
(oscillation, sup − inf). Then exp(−λq) with λ = ε/s is ε-DP: a common shift cancels in the normalisation, so no factor
½ is lost (McSherry & Talwar, FOCS 2007; Dong, Durfee & Rogers, ICML 2020). Scores are rounded to the public grid r =
2^(⌊log₂ s⌋ − 20) and are known up to `inexact`, so the stated sensitivity is s + 2r + 4·inexact. The draw uses integers
only. Float64 does not suffice: NumPy's Gumbel variates lie in [−3.61, 36.74], so a candidate with λq = 40.4 above the
best has probability 0 for one dataset and may have a positive probability for its neighbour, which makes pure ε
infinite. A score must be a fixed function of dataset and candidate, without a warm start from another candidate.
`inexact` must include errors that depend on batching.

**Regularised densities.** Let Φ − (κ/2)‖x‖² be convex for every dataset, and let one record change ∇Φ by at most S
anywhere on the box. Then with k = (μ_r + κ)/scale² a draw has the privacy of a Gaussian pair with μ = S/scale (Gopi,
Lee & Liu, COLT 2022, Theorem 4.1). κ = 0 if Φ is known to be convex; otherwise κ = −(Lipschitz constant of ∇Φ), and
μ_r must exceed it. The theorem assumes exact Φ and a continuum. The sampler uses a grid of 2^40 positions on each
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
from decentral_dp.central.integer_samplers import (
    Weights,
    bernoulli_exp,
    discrete_gaussian,
    draw_geometric,
    uniform_integer,
)
from decentral_dp.central.pooled import PooledBounds
from decentral_dp.constants import round_up
from decentral_dp.errors import InputError, Refusal, refuse
from decentral_dp.exchange import SelectionMechanism
from decentral_dp.privacy.accounting.float_slack import IntArray

GRID_BITS = 20
# log₂ of the number of positions on each axis of a box.
DEPTH = 40
# Float64 errs by more than 2^-11 of the oscillation on scores beyond this many grid units.
_MOST_UNITS = 2.0**62

# (n, p) points → (n,); lower is better.
Score = Callable[[Array], Array]


def score_unit(scale: float) -> float:
    """Return the spacing of the grid of scores, a power of two that is at most 2⁻²⁰ times this scale of differences.

    Example:
        >>> score_unit(1.0) == 2.0**-20, score_unit(1.9) == 2.0**-20
        (True, True)
    """
    if not (isfinite(scale) and scale > 0.0):
        raise InputError(f"oscillation: got {scale}, expected a finite number above 0. Fix: narrow the domain.")
    return ldexp(1.0, frexp(scale)[1] - 1 - GRID_BITS)


def units(scores: Array, unit: float) -> IntArray:
    """Round scores to integer multiples, (n,), of `unit`, a power of two.

    Raises:
        InputError: there are no scores, or scores are not finite or too large.

    Example:
        >>> units(np.array([0.0, 0.5, 0.7]), unit=0.25).tolist()
        [0, 2, 3]
    """
    with np.errstate(over="ignore"):
        quotients = np.rint(scores / unit)
    if not scores.size or not bool((np.abs(quotients) < _MOST_UNITS).all()):
        raise InputError(
            f"scores: not finite, or too large for their oscillation (expected at least one, all below "
            f"{unit * _MOST_UNITS:g}). Fix: narrow the domain."
        )
    return quotients.astype(np.int64)


class Box(NamedTuple):
    """Public box.

    Args:
        low: lower corner, (d,).
        high: upper corner, (d,).

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
        """Return the centres, (n, d), of the cells with these indices (n, d) among the 2^depth cells on each axis."""
        return np.asarray(self.low + self.sides * ((cells + 0.5) * 2.0**-depth))

    def slack(self) -> float:
        """Bound the distance between a float64 centre and the exact one."""
        return float(np.linalg.norm(np.abs(self.low) + np.abs(self.high))) * 2.0**-50


_POSITIONS = 1 << DEPTH


class RegularisedLaw(NamedTuple):
    """Regularised density, with bounds on the score Φ that hold for every dataset.

    Args:
        box: public box.
        rate: rate k of the density.
        strength: μ_r.
        anchor: x₀, (d,).
        sensitivity: S, the largest change of ∇Φ on the box.
        lipschitz: Lipschitz constant of Φ on the box.
        curvature: κ for which Φ − (κ/2)‖x‖² is convex.
        inexact: bound on |computed − exact Φ|.
        gradient_error: l2 bound on the error of a computed gradient, which affects only the running time.
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
        """Compute the largest distance of a point of the box from the anchor."""
        return float(np.linalg.norm(np.maximum(self.box.high - self.anchor, self.anchor - self.box.low)))

    def whole_lipschitz(self) -> float:
        """Bound the Lipschitz constant of Φ + regulariser."""
        return self.lipschitz + self.strength * self.farthest()

    def whole_inexact(self) -> float:
        """Bound the error of Φ + regulariser, with the float64 error of the regulariser."""
        return self.inexact + self.strength * self.farthest() ** 2 * 2.0**-50

    def error(self) -> float:
        """Compute e, the largest error of the unnormalised log-density on a cell."""
        sensitivity = self.whole_lipschitz() * (0.5 * self.box.diameter * 2.0**-DEPTH + self.box.slack())
        return self.rate * (sensitivity + self.whole_inexact() + 0.5 * self.unit)

    def regularise(self, score: Score) -> Score:
        """Return the function Φ + (μ_r/2)‖x − x₀‖², which maps (n, d) to (n,)."""
        return lambda points: np.asarray(
            score(points) + 0.5 * self.strength * ((points - self.anchor) ** 2).sum(axis=1)
        )


def draw_regularised(
    generator: np.random.Generator,
    law: RegularisedLaw,
    score: Score,
    gradient: Callable[[Array], Array],
    near: Array,
    *,
    envelope: float | None = None,
) -> Array:
    """Draw a point (d,) by rejection from the Gaussian that touches Φ + regulariser at `near`.

    One proposal in about ((μ_r + smoothness)/(μ_r + curvature))^{d/2} is accepted.

    Args:
        generator: source of random bits.
        law: regularised density.
        score: function Φ, which maps (n, d) to (n,).
        gradient: gradient of Φ, which maps (d,) to (d,).
        near: point near the minimum of Φ + regulariser, (d,). Like `gradient` and `envelope`, it affects the running
            time only.
        envelope: lower bound on the curvature of this dataset's Φ, if it is better than the declared bound.

    Raises:
        InputError: the regularised score need not be convex.
    """
    if not law.strength + law.curvature > 0.0:
        raise InputError(f"strength + curvature: got {law.strength + law.curvature:g}, expected above 0.")
    curvature = law.curvature if envelope is None else envelope
    precisions, centre, floor = _touching(law, score, gradient, near, curvature)
    score_law, box = law.regularise(score), law.box
    rate = Fraction(law.rate) * Fraction(law.unit)
    while True:
        numbers = [_on_axis(generator, a, m) for a, m in zip(precisions, centre, strict=True)]
        point = box.centres(np.array([numbers], dtype=np.int64), DEPTH)
        height = rate * int(units(score_law(point), law.unit)[0])
        squares = zip(precisions, numbers, centre, strict=True)
        gamma = height - sum((a * (n - m) ** 2 for a, n, m in squares), Fraction(0)) / 2 - floor
        # Negative only if a declared bound is wrong.
        if bernoulli_exp(generator, max(gamma, Fraction(0))):
            return np.asarray(point[0])


def quadratic(generator: np.random.Generator, law: RegularisedLaw, hessian: Array, linear: Array) -> Array:
    """Draw a point (d,) from a truncated Gaussian, using `draw_regularised` with Φ(x) = x'Hx/2 − b'x.

    A proposal inside the box is accepted with probability √(Π_i (λ_min + μ_r)/(λ_i + μ_r)), with λ_i the eigenvalues of
    H.

    Args:
        generator: source of random bits.
        law: regularised density, whose `inexact` covers the float64 evaluation of Φ.
        hessian: H, (d, d).
        linear: b, (d,).
    """
    eigenvalues = np.linalg.eigvalsh(hessian)
    smallest = float(eigenvalues[0]) - 1e-9 * float(np.abs(eigenvalues).max())
    ridge = law.strength * np.eye(len(linear))
    near = np.asarray(np.linalg.solve(hessian + ridge, linear + law.strength * law.anchor), dtype=np.float64)
    return draw_regularised(
        generator,
        law,
        lambda x: np.asarray(0.5 * np.einsum("ni,ij,nj->n", x, hessian, x) - x @ linear),
        lambda x: np.asarray(hessian @ x - linear),
        near,
        envelope=max(law.curvature, smallest),
    )


def _touching(
    law: RegularisedLaw, score: Score, gradient: Callable[[Array], Array], near: Array, curvature: float
) -> tuple[list[Fraction], list[int], Fraction]:
    """Return the Gaussian proposal whose exponent is below k·(Φ + regulariser) by at least `floor` on the whole box.

    F(x) ≥ F(y) + ⟨∇F(y), x − y⟩ + (κ/2)‖x − y‖² for κ = μ_r + curvature. The right side minus (κ/2)‖x − m‖² is affine
    in x with gradient ∇F(y) − κ(y − m), which is zero up to rounding if m is y − ∇F(y)/κ rounded to the grid.

    Returns:
        The precision a of e^{−a(j − centre)²/2} and the position of the centre on each axis, and `floor`.
    """
    box, kappa = law.box, law.strength + curvature
    y = np.clip(near, box.low, box.high)
    slope = gradient(y) + law.strength * (y - law.anchor)
    step = box.sides * 2.0**-DEPTH
    centre = np.rint((y - slope / kappa - box.low) / step - 0.5)
    m = box.low + step * (centre + 0.5)
    value, square = float(law.regularise(score)(y[None])[0]), kappa * float((y - m) @ (y - m))
    tilt = float(np.linalg.norm(slope - kappa * (y - m))) + 1e-12 * float(np.linalg.norm(slope))
    error = (tilt + law.gradient_error) * box.diameter + 2.0 * law.whole_inexact() + law.unit
    error += 2.0 * law.whole_lipschitz() * box.slack() + 1e-12 * (abs(value) + square)
    floor = law.rate * (value - 0.5 * square - error)
    precisions = [Fraction(float(a) * (1.0 - 1e-12)) for a in law.rate * kappa * step**2]
    return precisions, [int(c) for c in centre], Fraction(floor)


def _on_axis(generator: np.random.Generator, precision: Fraction, centre: int) -> int:
    """Draw j in [0, 2^40) with probability exactly proportional to e^{−precision·(j − centre)²/2}."""
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
            is_accepted = bernoulli_exp(generator, precision * ((j - centre) ** 2 - outside**2) / 2)
        elif outside <= deviation:
            j = centre + discrete_gaussian(generator, precision)
            is_accepted = 0 <= j <= last
        else:
            j = draw_geometric(generator, precision * outside)
            is_accepted = j <= last and bernoulli_exp(generator, precision * j**2 / 2)
        if is_accepted:
            return j


# Default number of points on each axis, by p.
_PER_AXIS = (65, 17, 9)
_MOST_CANDIDATES = 100_000
_ZOOMS, _ZOOM_POINTS = 14, (33, 9, 7)


@dataclass(frozen=True)
class SelectionBounds:
    """Public bounds on a score q.

    Args:
        oscillation: sup − inf of the change of q caused by one record of each split.
        inexact: bound e ≥ |computed − q|.
        lipschitz: l2 Lipschitz constant of q.
    """

    oscillation: Mapping[Split, float]
    inexact: float
    lipschitz: float

    @classmethod
    def from_value(cls, bounds: PooledBounds, low: Array, high: Array) -> SelectionBounds:
        """Return the bounds on Φ over the box [low, high], (p,) each (Lowy & Liu, Equation 4, last term over n)."""
        error = bounds.inexactness(low, high)
        return cls(bounds.oscillation(low, high), error, bounds.lipschitz(low, high))

    @classmethod
    def from_norm(cls, bounds: PooledBounds, low: Array, high: Array) -> SelectionBounds:
        """Return the bounds on ‖∇Φ‖ over the box [low, high], (p,) each (Lowy & Liu, Appendix C.3, corrected)."""
        error = bounds.gradient_error(low, high)
        return cls(bounds.norm_oscillation(low, high), error, bounds.smoothness(low, high))

    @property
    def unit(self) -> float:
        """Spacing r of the grid of the scores, a power of two."""
        return score_unit(max(self.oscillation.values()))

    @property
    def sensitivity(self) -> dict[Split, float]:
        """Sensitivity s + 2r + 4·inexact by split."""
        room = 2.0 * self.unit + 4.0 * self.inexact
        return {split: round_up(s + room) for split, s in self.oscillation.items()}


@dataclass(frozen=True)
class FiniteExponential(SelectionMechanism):
    """Exponential mechanism over finitely many public points, ε-DP. Without noise it releases the best point.

    Args:
        facts: public bounds on the score.
        points: candidate points, (n, p).
        score: function that maps (n, p) to (n,). Lower is better.
    """

    facts: SelectionBounds
    points: Array
    score: Score

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
        """Return the distribution ∝ exp(−rounded score/scale) over candidates with these scores, (n,)."""
        integers = units(scores, self.facts.unit)
        return Weights.from_gaps(integers - integers.min(), Fraction(self.facts.unit) / Fraction(scale))


def best_point(score: Score, box: Box) -> Array:
    """Return the best point, (p,) with p ≤ 3, of a grid that is refined around its best point. It is not private."""
    low, high = box.low, box.high
    point = 0.5 * (low + high)
    for _ in range(_ZOOMS):
        points = even_points(low, high, _ZOOM_POINTS[len(low) - 1])
        point = points[int(np.argmin(score(points)))]
        step = (high - low) / (_ZOOM_POINTS[len(low) - 1] - 1)
        low, high = np.maximum(box.low, point - step), np.minimum(box.high, point + step)
    return np.asarray(point)


def even_points(low: Array, high: Array, count: int) -> Array:
    """Return (count^p, p) points that are evenly spaced on each axis and include the corners low and high, (p,)."""
    axes = [np.linspace(a, b, count) for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


# For (coordinates of x, points on each axis or None).
_WRONG_GRID = (
    Refusal[tuple[int, int | None]](
        lambda c: c[1] is None and c[0] > len(_PER_AXIS),
        "algorithm.candidates",
        "a grid over {of[0]} coordinates of x has too many points (expected at most 3)",
        'use a problem such as "logistic_regularisation", or "second_order_dp_bilevel"',
    ),
    Refusal[tuple[int, int | None]](
        lambda c: c[1] is not None and (c[1] < 2 or c[1] ** c[0] > _MOST_CANDIDATES),
        "algorithm.candidates",
        "out of range (got {of[1]} on each of {of[0]} axes, expected at least 2, and at most 100 000 points in total)",
        "change it",
    ),
)


def count_per_axis(p: int) -> int:
    """Return the default number of points on each axis. Raises InputError for too many axes."""
    grid: tuple[int, int | None] = (p, None)
    refuse(grid, _WRONG_GRID)
    return _PER_AXIS[p - 1]


def candidates(domain: Domain, p: int, count: int | None = None) -> Array:
    """Return public points of a box, evenly spaced on each axis, (n, p).

    Args:
        domain: domain of x.
        p: number of coordinates of x.
        count: number of points on each axis, default 65, 17 or 9 for p = 1, 2, 3.

    Raises:
        InputError: there are too many axes, or too few or too many points.
    """
    refuse((p, count), _WRONG_GRID)
    count = count_per_axis(p) if count is None else count
    return even_points(*domain.corners(p), count)


# Largest expected number of proposals of a draw.
_MOST_PROPOSALS = 1e5
_STEPS = 400


@dataclass(frozen=True)
class Density:
    """Public facts of a regularised density over the upper variable.

    Args:
        box: box of x.
        sensitivity: sensitivity S to a record of each split.
        strength: μ_r.
        anchor: x₀, (p,).
        lipschitz: Lipschitz constant of Φ.
        smooth: Lipschitz constant of ∇Φ.
        inexact: bound on the error of a computed Φ.
        gradient_error: bound on the error of a computed ∇Φ.
        convex: whether Φ is convex for every dataset.
        finest: smallest scale of a run, or 0 without noise.
        trace: bound on the trace of ∇²Φ for a quadratic Φ, otherwise inf. It affects the running time only.
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
        """Return the facts of the density for Φ on a box with middle x₀.

        Args:
            bounds: public bounds on pooled records.
            low: lower corner of the box, (p,).
            high: upper corner of the box, (p,).
            strength: μ_r.
            finest: smallest scale of a run, or 0 without noise.
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
            # Both errors of a quadratic are those of its two coefficients.
            gradient_error=2.0 * error / reach if convex else bounds.gradient_error(low, high),
            convex=convex,
            finest=finest,
            # ∇²Φ is a mean of rank-one matrices between contractions, or a multiple of the identity, for which all
            # proposals are accepted.
            trace=smooth if convex else math.inf,
        )

    @property
    def curvature(self) -> float:
        """Curvature κ, for which Φ − (κ/2)‖x‖² is convex."""
        return 0.0 if self.convex else -self.smooth

    @property
    def is_certified(self) -> bool:
        """Return whether the regularised score is strictly convex for every dataset."""
        return self.strength + self.curvature > 0.0

    @property
    def distortion(self) -> float:
        """Distortion τ = 2e at the finest scale, where it is largest."""
        if self.finest == 0.0:
            return 0.0
        return 2.0 * (self.regularise(self.finest).error() + 2.0 ** -(GRID_BITS + 1))

    @property
    def proposals(self) -> float:
        """Approximate upper bound on the expected number of proposals of a draw."""
        log_curvature = (
            0.5 * len(self.anchor) * math.log1p((self.smooth - self.curvature) / (self.strength + self.curvature))
        )
        return math.exp(min(log_curvature, 0.5 * self.trace / self.strength, 700.0))

    def regularise(self, scale: float) -> RegularisedLaw:
        """Return the density at a scale."""
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
        """Raise InputError if convexity is not proved, or if a draw would take too long."""
        refuse(self, _UNSOUND)


_UNSOUND = (
    Refusal[Density](
        lambda d: not d.is_certified,
        "algorithm.strength",
        "the regularised upper level is not convex for every data set on this box, so nothing is proven (got "
        "{of.strength:.4g}, expected more than {of.smooth:.4g})",
        "raise it, or narrow the domain",
    ),
    Refusal[Density](
        lambda d: d.proposals > _MOST_PROPOSALS,
        "algorithm.strength",
        "a draw could take {of.proposals:.1g} proposals (got {of.strength:.3g})",
        "set a strength nearer to {of.smooth:.3g}, the largest curvature of the upper level",
    ),
)


@dataclass(frozen=True)
class RegularisedSelection:
    """Draw from a regularised density, with the privacy of a Gaussian pair.

    Args:
        facts: public facts of the density.
        score: function Φ, which maps (n, p) to (n,).
        gradient: function ∇Φ, which maps (p,) to (p,).
        coefficients: coefficients (H, b) if Φ = ½ xᵀHx − bᵀx.
    """

    facts: Density
    score: Score
    gradient: Callable[[Array], Array]
    coefficients: tuple[Array, Array] | None = None

    mechanism = "gaussian"

    @property
    def sensitivity(self) -> Mapping[Split, float]:
        """Sensitivity S, which is infinite if convexity is unknown, because the proof requires it."""
        return self.facts.sensitivity if self.facts.is_certified else dict.fromkeys(self.facts.sensitivity, math.inf)

    @property
    def width(self) -> int:
        return len(self.facts.anchor)

    @property
    def distortion(self) -> float:
        return self.facts.distortion

    def draw(self, generator: np.random.Generator, scale: float) -> Array:
        """Draw a point (p,) at this scale, or return the minimiser at scale 0.

        Raises:
            ValueError: the scale is below the finest, so the distortion would exceed its stated value.
        """
        if scale == 0.0:
            return self.bottom()
        if scale < self.facts.finest * (1.0 - 1e-9):
            raise ValueError(f"the distortion is stated for scales of at least {self.facts.finest:g} (got {scale:g})")
        law = self.facts.regularise(scale)
        if self.coefficients is not None:
            return quadratic(generator, law, *self.coefficients)
        # On one axis a grid search is faster than descent.
        near = self.bottom() if self.width == 1 else self._descend()
        return draw_regularised(generator, law, self.score, self.gradient, near)

    def scores(self, points: Array) -> Array:
        """Compute Φ at the points (n, p), as (n,)."""
        if self.coefficients is None:
            return self.score(points)
        hessian, linear = self.coefficients
        return np.asarray(0.5 * np.einsum("ni,ij,nj->n", points, hessian, points) - points @ linear)

    def bottom(self) -> Array:
        """Return the approximate minimiser, (p,), of Φ + (μ_r/2)‖x − x₀‖² on the box. It is not private."""
        score_law = self.facts.regularise(1.0).regularise(self.scores)
        return best_point(score_law, self.facts.box) if self.width <= 3 else self._descend()

    def _descend(self) -> Array:
        facts, x = self.facts, self.facts.anchor
        for _ in range(_STEPS):
            slope = self.gradient(x) if self.coefficients is None else self.coefficients[0] @ x - self.coefficients[1]
            slope = slope + facts.strength * (x - facts.anchor)
            x = np.clip(x - slope / (facts.smooth + facts.strength), facts.box.low, facts.box.high)
        return np.asarray(x)
