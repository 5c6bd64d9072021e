"""Problems whose constants are theorems, for records that the public projection brought into ‖a‖₂ ≤ R and |b| ≤ B.

`family_of(problem, R, B)` finds the family; `constants(low, high, record_mass)` are those of `ProblemConstants`, for
all x of a box and all y of the ball around `centre(x)` that holds the minimisers: of g for record_mass = 1, and of g +
f/λ, which lie farther out, for mass = 1 + 1/λ. At a public x, low = high = x.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.constants.boxes import UP, box_norm, box_strengths, rounded
from decentral_dp.constants.family import UPPER_OF_Y_ALONE, Family, LossFamily, MovingFamily
from decentral_dp.constants.loss_bounds import LossBounds, SquaredLoss, logistic_loss, softmax_loss
from decentral_dp.constants.problem_constants import ProblemConstants
from decentral_dp.constants.special_families import Linear, Mean, Weighed
from decentral_dp.errors import InputError
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.mean_estimation import MeanEstimation
from decentral_dp.problems.bilevel.mean_lower_bound import MeanLowerBound
from decentral_dp.problems.bilevel.penalties import Pull, SharedStrength, Strengths
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.regularised_losses import Regularised
from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter
from decentral_dp.problems.protocol import Problem


@dataclass(frozen=True)
class Shared(LossFamily):
    """A loss of y alone in both levels, R = ½ e^x ‖y‖², p = 1.

    With w = e^x: ∇²_xy R = w yᵀ, so M ≤ ‖y‖, and everything of x is w times something. See docs/proofs/18.

    Args:
        problem: the bilevel problem.
        loss: bounds of l = h.
    """

    problem: Problem
    loss: LossBounds

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        least, most = box_strengths(self.problem.p, low, high, record_mass)
        r = self.loss.reach(least, record_mass, 0.0)
        return _regularised(self.loss, r, r, least, most * r, most, most, m=r)


@dataclass(frozen=True)
class Separate(LossFamily):
    """A loss of y alone in both levels, R = ½ scale Σ_s e^{x_s} ‖y_s‖², y_s the lower variables of strength s.

    With Ω = diag(w) and w_min ≤ w ≤ w_max, ∇²_xy R holds w_s y_s, of spectral norm max_s w_s‖y_s‖. Further
    M ≤ min(‖y‖√(w_max/w_min), c G/w_min), as ‖Ω(H + Ω)⁻¹‖ ≤ √(w_max/w_min), not 1, and Ωy = −Σ c_k ∇l_k.
    See docs/proofs/18.

    Args:
        problem: the bilevel problem.
        loss: bounds of l = h.
        scale: of R, default 1.
    """

    problem: Problem
    loss: LossBounds
    scale: float = 1.0

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        least, most = (self.scale * w for w in box_strengths(self.problem.p, low, high, record_mass))
        r = self.loss.reach(least, record_mass, 0.0)
        m = min(r * math.sqrt(most / least), record_mass * self.loss.gradient(r) / least)
        return _regularised(self.loss, r, r, least, most * r, most, most, m)


@dataclass(frozen=True)
class Pulled(MovingFamily, LossFamily):
    """A loss of y alone in both levels, R = ½ ridge ‖y − x‖²: the ball moves with x.

    ∇²_xy R = −ridge I, M ≤ 1. See docs/proofs/18.

    Args:
        problem: the bilevel problem.
        loss: bounds of l = h.
        ridge: of R.
    """

    problem: Problem
    loss: LossBounds
    ridge: float

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        out = box_norm(self.problem.p, low, high, record_mass)
        r = self.loss.reach(self.ridge, record_mass, out)
        return _regularised(self.loss, r, out + r, self.ridge, self.ridge, 0.0, self.ridge, m=1.0, varies=False)

    def centre(self, x: Array) -> Array:
        return np.array(x, dtype=np.float64)

    def loss_range(self, low: Array, high: Array) -> float:
        c = self.constants(low, high)
        return UP * self.loss.loss_range(box_norm(self.problem.p, low, high, 1.0) + c.radius)


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
        >>> from decentral_dp.problems.bilevel.mean_estimation import MeanEstimation
        >>> round(family_of(MeanEstimation(2), radius=1.0).spread(-np.ones(2), np.ones(2)), 4)
        1.4142
    """
    _check_bound("radius", radius)
    if isinstance(problem, MeanEstimation):
        return Mean(problem, radius)
    if isinstance(problem, MeanLowerBound):
        return Linear(problem, radius)
    if isinstance(problem, HyperCleaning):
        return Weighed(problem, loss_of(problem.model, radius, label_bound))
    if isinstance(problem, Quadratic):
        return Pulled(problem, loss_of(problem, radius, label_bound), problem.ridge)
    if isinstance(problem, LogisticHyperparameter):
        return Separate(problem, loss_of(problem, radius, label_bound))
    if isinstance(problem, SoftmaxHyperparameter):
        return Separate(problem, loss_of(problem, radius, label_bound), 2.0 / problem.q)
    if isinstance(problem, Regularised):
        loss = loss_of(problem.model, radius, label_bound)
        if isinstance(problem.penalty, SharedStrength):
            return Shared(problem, loss)
        if isinstance(problem.penalty, Strengths):
            return Separate(problem, loss)
        if isinstance(problem.penalty, Pull):
            return Pulled(problem, loss, problem.penalty.ridge)
    raise _without(problem)


def loss_of(model: Problem, radius: float, label_bound: float) -> LossBounds:
    """Return bounds of the per-record loss of a linear model.

    Raises:
        InputError: no bounds are known.
    """
    if isinstance(model, LogisticHyperparameter):
        return logistic_loss(_lengthened(radius, model.intercept))
    if isinstance(model, SoftmaxHyperparameter):
        return softmax_loss(_lengthened(radius, model.intercept), len(model.classes))
    if isinstance(model, Quadratic):
        _check_bound("label_bound", label_bound)
        return SquaredLoss(_lengthened(radius, model.intercept), label_bound)
    raise _without(model)


def worst(
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
        >>> from decentral_dp.problems.bilevel.mean_estimation import MeanEstimation
        >>> family = family_of(MeanEstimation(1), radius=1.0)
        >>> round(worst(family, -np.ones(1), np.ones(1), lambda c: c.radius), 6)
        0.5
    """
    if family.problem.p > 1:
        return bound(family.constants(low, high, record_mass))
    edges = np.linspace(low, high, cells + 1)
    edges[-1] = high
    return max(bound(family.constants(a, b, record_mass)) for a, b in itertools.pairwise(edges))


def _regularised(
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
    return rounded(
        ProblemConstants(
            **UPPER_OF_Y_ALONE,
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


def _lengthened(radius: float, intercept: bool) -> float:
    """‖(a, 1)‖ ≤ √(R² + 1)."""
    return math.hypot(radius, 1.0) if intercept else radius


def _check_bound(name: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise InputError(f"{name}: got {value:g}, but analytic constants need a finite bound above 0; declare one.")


def _without(problem: Problem) -> InputError:
    name = getattr(problem, "name", type(problem).__name__)
    return InputError(
        f'problem.kind: "{name}" has no analytic constants, which this algorithm needs; choose another problem, for '
        'example "logistic_regularisation", or declare its constants.'
    )
