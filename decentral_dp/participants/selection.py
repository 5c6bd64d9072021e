"""Exponential mechanisms over x as releases: what one record moves, and draws at any scale.

    P(x) ∝ exp(−q̂(x)/scale)      `FiniteExponential`: of a public list      `BoxExponential`: of a public box, p ≤ 3

q is Φ(x) = F(x, y_Z(x)) or ‖∇Φ(x)‖, and q̂ what is computed of it: known up to `inexact`, and rounded to a grid of
r = 2⁻²⁰ of what a record can move. If one record of a kind moves all of q by amounts within s of each other
(`score_oscillation`; twice the sensitivity of ∇Φ for the norm), then it moves q̂ by amounts within

    s + 2r + 4·inexact,

which is the sensitivity stated here, and the price is that over the scale: pure ε, whether Φ is convex or not. Common
shifts cancel, so that no factor ½ is lost. Integers alone decide (`privacy.integer_samplers`).

At scale 0 the best leaves: no noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.constants.problem_constants import up
from decentral_dp.errors import InputError
from decentral_dp.exchange import SelectionMechanism
from decentral_dp.participants.pooled import PooledBounds
from decentral_dp.privacy.mechanisms import box_sampler
from decentral_dp.privacy.mechanisms.box_sampler import Box, Target
from decentral_dp.privacy.mechanisms.finite_sampler import Guarantee, law_at, score_unit
from decentral_dp.privacy.mechanisms.integer_samplers import Weights
from decentral_dp.problems.domain import Domain

# (n, p) points → (n,); lower is better.
Function = Callable[[Array], Array]

# Points per axis by p, where none is given.
_PER_AXIS = (65, 17, 9)
_MOST_CANDIDATES = 100_000
_ZOOMS, _ZOOM_POINTS = 14, (33, 9, 7)


@dataclass(frozen=True)
class Score:
    """What is public of a score q.

    oscillation: split → sup − inf of what one record moves q by. inexact: e ≥ |computed − q|. lipschitz: of q, in l2.
    """

    oscillation: Mapping[Split, float]
    inexact: float
    lipschitz: float

    @classmethod
    def of_value(cls, bounds: PooledBounds, low: Array, high: Array) -> Score:
        """Φ, on a box. Lowy & Liu, Equation 4, with the last term over n."""
        error = bounds.inexactness(low, high)
        return cls(bounds.oscillation(low, high), error, bounds.lipschitz(low, high))

    @classmethod
    def of_norm(cls, bounds: PooledBounds, low: Array, high: Array) -> Score:
        """‖∇Φ‖, on a box. Lowy & Liu, Appendix C.3, with a bound on ∇Φ that holds."""
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
        return {split: up(s + room) for split, s in self.oscillation.items()}


@dataclass(frozen=True)
class ScoreSelection(SelectionMechanism):
    """A draw by a score, at pure ε. facts: what is public of the score."""

    facts: Score

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
        """∝ exp(−rounded score/scale)."""
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
        return self.sampled(generator, scale) if scale > 0.0 else best(self.score, self.box)

    def sampled(self, generator: np.random.Generator, scale: float) -> Array:
        """(width,) a point at a scale above 0."""
        raise NotImplementedError


@dataclass(frozen=True)
class BoxExponential(BoxSelection):
    """A point of a public box, p ≤ 3: of 2⁴⁰ positions along each axis, by cells."""

    def sampled(self, generator: np.random.Generator, scale: float) -> Array:
        price = Guarantee(max(self.sensitivity.values()) / scale, 0.0, True, "as the ledger says")
        return box_sampler.draw(generator, self.target(scale), price, None).value

    def target(self, scale: float) -> Target:
        facts = self.facts
        return Target(self.score, self.box, 1 / Fraction(scale), facts.unit, facts.lipschitz, facts.inexact)


def best(score: Function, box: Box) -> Array:
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
    """(count^p, p) points, even along each axis, corners included."""
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
    """Choose public points of a compact domain, even along each axis: of a box, a ball, the simplex.

    Args:
        domain: of x.
        p: coordinates of x.
        count: along each axis; default 65, 17 or 9 for p = 1, 2, 3.

    Returns:
        (n, p).

    Raises:
        InputError: for too many axes, too few or too many points, and a domain that is not compact.
    """
    count = per_axis(p) if count is None else count
    if not domain.compact:
        raise InputError(
            'algorithm.domain: candidates for x need bounds; give for example { kind = "box", low = -5, high = 0 }.'
        )
    if count < 2 or count**p > _MOST_CANDIDATES:
        raise InputError(
            f"algorithm.candidates: got {count} along each of {p} axes; wanted 2 or more, and no more than "
            f"{_MOST_CANDIDATES} together."
        )
    if domain.kind == "simplex":
        return _on_simplex(p, count)
    points = grid(*domain.corners(p), count)
    inside = np.linalg.norm(points, axis=1) <= domain.radius
    if not inside.any():
        raise InputError(f"algorithm.candidates: {count} along each axis leave none inside the ball; take more, or 3.")
    return np.asarray(points[inside])


def _on_simplex(p: int, count: int) -> Array:
    """The points of the simplex whose coordinates are multiples of 1/(count − 1)."""
    if p == 1:
        raise InputError("algorithm.domain: a simplex of one coordinate is one point, and leaves nothing to choose.")
    whole = count - 1
    heads = itertools.product(range(whole + 1), repeat=p - 1)
    points = [(*head, whole - sum(head)) for head in heads if sum(head) <= whole]
    return np.array(points, dtype=np.float64) / whole
