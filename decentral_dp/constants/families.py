"""Problems whose constants are theorems, for records that the public projection brought into ‖a‖₂ ≤ R and |b| ≤ B.

`family_of(problem, R, B)` finds the family; `constants(low, high, record_mass)` are those of `ProblemConstants`, for
all x of a box and all y of the ball around `centre(x)` that holds the minimisers: of g for record_mass = 1, and of g +
f/λ, which lie farther out, for mass = 1 + 1/λ. At a public x, low = high = x.

What a family of problems offers: constants that hold for all its records, and the ball of its minimisers.

Families of one problem each: groups with weights, means in closed form; and constants that a user declares.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.constants.loss_bounds import LossBounds, SquaredLoss, logistic_loss, softmax_loss
from decentral_dp.constants.problem_constants import (
    UP,
    ProblemConstants,
    box_norm,
    box_strengths,
    box_weights,
    box_width,
    round_up_constants,
    solution_spread,
)
from decentral_dp.errors import InputError
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.means import MeanEstimation, MeanLowerBound
from decentral_dp.problems.bilevel.penalties import Pull, Strengths
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter
from decentral_dp.problems.protocol import Problem

# Where f is of y alone.
_of_y_alone = partial(ProblemConstants, l_fx=0.0, d_fx=0.0, b_fxx=0.0, b_fxy=0.0)
# Where besides neither a record, nor y, nor x changes the second derivatives of g.
_of_constant_curvature = partial(_of_y_alone, d_hxy=0.0, d_hyy=0.0, c_gxy=0.0, c_gyy=0.0, m_gxy=0.0, m_gyy=0.0)


class Family(Protocol):
    """A problem with constants that hold for all its records, and what scores need besides.

    Example:
        >>> from decentral_dp.problems.bilevel.means import MeanEstimation
        >>> family = family_of(MeanEstimation(2), radius=1.0)
        >>> family.centre(np.ones(2)).tolist()
        [0.5, 0.5]
        >>> round(family.constants(-np.ones(2), np.ones(2)).mu, 6)
        2.0
    """

    problem: Problem
    # Whether the ball of minimisers stays where it is as x moves.
    centred: ClassVar[bool] = True

    @property
    def self_concordance(self) -> float:
        """κ with ∇²_yy g(y + v) ⪯ e^{κ‖v‖} ∇²_yy g(y) for every record and for R; inf where nothing is known."""
        return math.inf

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        """Bound the derivatives for all x of a box and y in the ball of minimisers.

        Args:
            low: (p,) of x.
            high: (p,) of x.
            record_mass: 1 for minimisers of g, 1 + 1/λ for those of g + f/λ; default 1.

        Raises:
            InputError: the box is not finite.
        """
        ...

    def centre(self, x: Array) -> Array:
        """Return the (q,) centre of the ball of minimisers at a public x: data-independent, 0 by default."""
        return np.zeros(self.problem.q)

    def spread(self, low: Array, high: Array) -> float:
        """Bound ‖y_Z(x) − y_Z(x')‖₂ for all x, x' of the box [low, high], each (p,): D_y."""
        return solution_spread(self.constants(low, high), box_width(low, high), self.centred)

    def loss_range(self, low: Array, high: Array) -> float:
        """Bound max f − min f over x of the box [low, high], each (p,), and y in its ball, for every record."""
        return math.inf


class LossFamily(Family, Protocol):
    """A family with one loss of y in both levels, and a ball of minimisers around 0.

    Args:
        loss: bounds of the loss; a field of the family.
    """

    loss: LossBounds

    @property
    def self_concordance(self) -> float:
        return self.loss.self_concordance

    def loss_range(self, low: Array, high: Array) -> float:
        return UP * self.loss.loss_range(self.constants(low, high).radius)


@dataclass(frozen=True)
class Weighed(LossFamily):
    """`HyperCleaning`: l = σ(x_g) CE, h = CE, R = ½ ridge ‖y‖². Train records must be those of `placed`.

    A replaced record stays in its group g, so every difference of two records has the weight σ(x_g) ≤ s or the slope
    σ'(x_g) ≤ s' in front. ∇²_xy G has the rows σ'(x_g) n_g/n · (mean of ∇CE over group g). With Σ(n_g/n)² ≤ 1 its
    norm is at most s' G. What x moves, coordinate by coordinate, is at most sup|σ''| G‖Δx‖ and s'·sup‖∇²CE‖‖Δx‖.
    See docs/proofs/18.
    """

    problem: HyperCleaning
    loss: LossBounds

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        box_norm(low, high)
        ridge, (weight, slope) = self.problem.ridge, box_weights(low, high)
        r = self.loss.reach(ridge, weight + record_mass - 1.0, 0.0)
        g, smooth = self.loss.gradient(r), self.loss.smoothness
        return round_up_constants(
            _of_y_alone(
                radius=r,
                mu=ridge,
                l_fy=g,
                l_gy=weight * g + ridge * r,
                d_fy=2.0 * g,
                d_gy=2.0 * weight * g,
                b_fyy=smooth,
                b_gxy=slope * g,
                b_gyy=weight * smooth + ridge,
                d_hxy=2.0 * slope * g,
                d_hyy=weight * smooth,
                c_gxy=slope * smooth,
                c_gyy=weight * self.loss.third,
                m_gxy=g / (6.0 * math.sqrt(3.0)),
                m_gyy=slope * smooth,
                m=slope * g / ridge,
            )
        )


@dataclass(frozen=True)
class Mean(Family):
    """`MeanEstimation`: l = −aᵀy, h = ½‖y − a‖², R = ½‖y‖² + ½ ridge ‖y − x‖², for records with ‖a‖ ≤ record_radius.

    The minimiser is (c + (mass − 1) c̄ + ridge x)/(ridge + mass), c and c̄ the means of train and validation records.
    """

    centred, self_concordance = False, 0.0

    problem: MeanEstimation
    record_radius: float

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        k, a = self.problem.ridge, self.record_radius
        out = k / (1.0 + k) * box_norm(low, high)
        r = (record_mass * a + (record_mass - 1.0) * out) / (k + record_mass)
        return round_up_constants(
            _of_constant_curvature(
                radius=r,
                mu=1.0 + k,
                l_fy=out + r + a,
                l_gy=a + (1.0 + k) * r,
                d_fy=2.0 * a,
                d_gy=2.0 * a,
                b_fyy=1.0,
                b_gxy=k,
                b_gyy=1.0 + k,
                m=k / (1.0 + k),
            )
        )

    def centre(self, x: Array) -> Array:
        return np.asarray(self.problem.ridge / (1.0 + self.problem.ridge) * x)

    def loss_range(self, low: Array, high: Array) -> float:
        """Bound max f − min f: f lies between 0 and ½(‖y‖ + ‖a‖)². As of `Family.loss_range`."""
        return UP * 0.5 * self.constants(low, high).l_fy ** 2


@dataclass(frozen=True)
class Linear(Family):
    """`MeanLowerBound`: l = 0, h = −slope ⟨y, a⟩, R = ½ ridge ‖y − stretch·x‖². y_Z(x) = stretch·x for every Z."""

    centred, self_concordance = False, 0.0

    problem: MeanLowerBound
    record_radius: float

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        box_norm(low, high)
        k, slope = self.problem.ridge, self.problem.slope * self.record_radius
        r = (record_mass - 1.0) * slope / k
        return round_up_constants(
            _of_constant_curvature(
                radius=r,
                mu=k,
                l_fy=slope,
                l_gy=k * r,
                d_fy=2.0 * slope,
                d_gy=0.0,
                b_fyy=0.0,
                b_gxy=k * self.problem.stretch,
                b_gyy=k,
                m=self.problem.stretch,
            )
        )

    def centre(self, x: Array) -> Array:
        return np.asarray(self.problem.stretch * x)

    def loss_range(self, low: Array, high: Array) -> float:
        """Bound max f − min f: f varies along y_Z(x) = stretch·x, whose distances are at most stretch·D_x.

        As of `Family.loss_range`.
        """
        return UP * self.constants(low, high).l_fy * self.problem.stretch * box_width(low, high)


@dataclass(frozen=True)
class Regularised(LossFamily):
    """A loss of y alone in both levels, R = ½ scale Σ_s e^{x_s} ‖y_s‖², y_s the lower variables of strength s.

    With Ω = diag(w) and w_min ≤ w ≤ w_max, ∇²_xy R holds w_s y_s, of spectral norm max_s w_s‖y_s‖. Further
    M ≤ min(‖y‖√(w_max/w_min), c G/w_min), as ‖Ω(H + Ω)⁻¹‖ ≤ √(w_max/w_min), not 1, and Ωy = −Σ c_k ∇l_k. One strength
    for all (p = 1) has M ≤ ‖y‖. See docs/proofs/18.

    Args:
        problem: the bilevel problem.
        loss: bounds of l = h.
        scale: of R, default 1.
    """

    problem: Problem
    loss: LossBounds
    scale: float = 1.0

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        least, most = (self.scale * w for w in box_strengths(low, high))
        r = self.loss.reach(least, record_mass, 0.0)
        several = min(r * math.sqrt(most / least), record_mass * self.loss.gradient(r) / least)
        return _regularised_constants(
            self.loss, r, r, least, most * r, most, most, m=r if self.problem.p == 1 else several
        )


@dataclass(frozen=True)
class Pulled(LossFamily):
    """A loss of y alone in both levels, R = ½ ridge ‖y − x‖²: the ball moves with x.

    ∇²_xy R = −ridge I, M ≤ 1. See docs/proofs/18.

    Args:
        problem: the bilevel problem.
        loss: bounds of l = h.
        ridge: of R.
    """

    centred = False

    problem: Problem
    loss: LossBounds
    ridge: float

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        out = box_norm(low, high)
        r = self.loss.reach(self.ridge, record_mass, out)
        return _regularised_constants(
            self.loss, r, out + r, self.ridge, self.ridge, 0.0, self.ridge, m=1.0, varies=False
        )

    def centre(self, x: Array) -> Array:
        return np.array(x, dtype=np.float64)

    def loss_range(self, low: Array, high: Array) -> float:
        c = self.constants(low, high)
        return UP * self.loss.loss_range(box_norm(low, high) + c.radius)


def family_of(problem: Problem, radius: float, label_bound: float = math.inf) -> Family:
    """Find the family of a problem, for records of a public domain.

    Args:
        problem: a bilevel problem.
        radius: R with ‖a‖₂ ≤ R, before an intercept is appended, which it is lengthened for.
        label_bound: B with |b| ≤ B where labels are numbers; default none.

    Returns:
        The family, whose constants are theorems.

    Raises:
        InputError: no family is known for the problem.

    Example:
        >>> from decentral_dp.problems.bilevel.means import MeanEstimation
        >>> round(family_of(MeanEstimation(2), radius=1.0).spread(-np.ones(2), np.ones(2)), 4)
        1.4142
    """
    _check_bound("radius", radius)
    if isinstance(problem, MeanEstimation):
        return Mean(problem, radius)
    if isinstance(problem, MeanLowerBound):
        return Linear(problem, radius)
    if isinstance(problem, HyperCleaning):
        return Weighed(problem, loss_of(problem, radius, label_bound))
    loss = loss_of(problem, radius, label_bound)
    match problem.penalty if isinstance(problem, LogisticHyperparameter | SoftmaxHyperparameter | Quadratic) else None:
        case Strengths(_, scale):
            return Regularised(problem, loss, scale)
        case Pull(ridge):
            return Pulled(problem, loss, ridge)
    raise _no_constants_error(problem)


def loss_of(model: Problem, radius: float, label_bound: float) -> LossBounds:
    """Return bounds of the per-record loss of a linear model.

    Raises:
        InputError: no bounds are known.
    """
    if isinstance(model, LogisticHyperparameter):
        return logistic_loss(_norm_with_intercept(radius, model.intercept))
    if isinstance(model, SoftmaxHyperparameter | HyperCleaning):
        return softmax_loss(_norm_with_intercept(radius, model.intercept), len(model.classes))
    if isinstance(model, Quadratic):
        _check_bound("label_bound", label_bound)
        return SquaredLoss(_norm_with_intercept(radius, model.intercept), label_bound)
    raise _no_constants_error(model)


def worst_case(
    family: Family,
    low: Array,
    high: Array,
    bound: Callable[[ProblemConstants], float],
    record_mass: float = 1.0,
    cells: int = 64,
) -> float:
    """Bound, over x of a box, what follows from the constants at x.

    Args:
        family: with the constants.
        low: (p,) of x.
        high: (p,) of x.
        bound: constants → number.
        record_mass: as in `Family.constants`.
        cells: pieces of the box, default 64.

    Returns:
        One upper variable: the largest over the pieces. It is far less than the bound at the constants of the whole
        box, whose largest strength and smallest need not meet. More variables: that one bound.

    Example:
        >>> from decentral_dp.problems.bilevel.means import MeanEstimation
        >>> family = family_of(MeanEstimation(1), radius=1.0)
        >>> round(worst_case(family, -np.ones(1), np.ones(1), lambda c: c.radius), 6)
        0.5
    """
    if family.problem.p > 1:
        return bound(family.constants(low, high, record_mass))
    edges = np.linspace(low, high, cells + 1)
    edges[-1] = high
    return max(bound(family.constants(a, b, record_mass)) for a, b in itertools.pairwise(edges))


def _regularised_constants(
    loss: LossBounds,
    radius: float,
    norm: float,
    mu: float,
    mixed: float,
    varying: float,
    most: float,
    m: float,
    varies: bool = True,
) -> ProblemConstants:
    """Constants where records touch y alone, by a loss that both levels share.

    norm: ‖y‖ ≤ norm. mixed: sup ‖∇²_xy R‖. varying: its Lipschitz constant in y. most: sup ‖∇²_yy R‖. varies: whether
    the derivatives of R grow with e^x, at their own rate.
    """
    g = loss.gradient(norm)
    return round_up_constants(
        _of_y_alone(
            radius=radius,
            mu=mu,
            l_fy=g,
            l_gy=g + most * radius,
            d_fy=2.0 * g,
            d_gy=2.0 * g,
            b_fyy=loss.smoothness,
            b_gxy=mixed,
            b_gyy=loss.smoothness + most,
            d_hxy=0.0,
            d_hyy=loss.smoothness,
            c_gxy=varying,
            c_gyy=loss.third,
            m_gxy=mixed if varies else 0.0,
            m_gyy=most if varies else 0.0,
            m=m,
        )
    )


def _norm_with_intercept(radius: float, intercept: bool) -> float:
    """‖(a, 1)‖ ≤ √(R² + 1)."""
    return math.hypot(radius, 1.0) if intercept else radius


def _check_bound(name: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise InputError(f"{name}: got {value:g}, but analytic constants need a finite bound above 0; declare one.")


def _no_constants_error(problem: Problem) -> InputError:
    name = getattr(problem, "name", type(problem).__name__)
    return InputError(
        f'problem.kind: "{name}" has no analytic constants. Fix: take another problem, for example '
        '"logistic_regularisation", or declare its constants.'
    )
