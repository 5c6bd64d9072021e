"""Constants of bilevel problems: bounds on derivatives for all records in a public domain ‖a‖₂ ≤ R, |b| ≤ B.

    F(x, y) = (1/n_v) Σ_validation f(x, y; ξ)        G(x, y) = (1/n_t) Σ_train g(x, y; ξ) + R(x, y)

R is data-independent, G is μ-strongly convex in y, and y_Z(x) is its minimiser. `family_of(problem, R, B)` returns the
family of a problem; `constants(low, high, record_mass)` are its `ProblemConstants`, in l2 and spectral norms, for all x
of a box and all y of the ball around `centre(x)` that holds the minimisers of g (record_mass = 1), or of g + f/λ
(record_mass = 1 + 1/λ). At a public x, low = high = x. The proofs are in docs/proofs, by their numbers.

Losses, with m = b aᵀy, or with s = softmax(Ya) and the unit vector e_b:

    logistic   l = log(1 + e^{−m})            ∇l = −σ(−m) b a        ∇²l = σ(m)σ(−m) aaᵀ
    softmax    l = log Σ_r exp((Y_r − Y_b)a)   ∇l = (s − e_b) aᵀ      ∇²l = (diag(s) − ssᵀ) ⊗ aaᵀ
    squared    l = ½(aᵀy − b)²                 ∇l = (aᵀy − b) a       ∇²l = aaᵀ

`reach(w, c, x)` of a loss bounds ‖y − x₀‖ for the minimiser y of Σ_k c_k l_k(y) + (w/2)‖y − x₀‖², for all records,
where Σ c_k ≤ c and ‖x₀‖ ≤ x. With strengths w_s ≥ w, one per coordinate, and x₀ = 0 it holds as well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
import scipy

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.linear import (
    LogisticHyperparameter,
    Pull,
    Quadratic,
    SoftmaxHyperparameter,
    Strengths,
)
from decentral_dp.problems.bilevel.means import MeanEstimation, MeanLowerBound
from decentral_dp.problems.protocol import Problem


class ProblemConstants(NamedTuple):
    """Bounds on the per-record functions and on R, in the l2 and spectral norms.

    Args:
        radius: radius of a ball around `centre` that contains every minimiser y_Z(x).
        mu: strong convexity of G in y.
        l_fx: supremum of |∇_x f|.
        l_fy: supremum of |∇_y f|.
        l_gy: supremum of |∇_y G|.
        d_fx: largest change of ∇_x f between two records, in which data-independent terms cancel.
        d_fy: the same bound for ∇_y f.
        d_gy: the same bound for ∇_y g.
        b_fxx: supremum of |∇²_xx f|.
        b_fxy: supremum of |∇²_xy f|.
        b_fyy: supremum of |∇²_yy f|.
        b_gxy: supremum of |∇²_xy G|.
        b_gyy: supremum of |∇²_yy G|.
        d_hxy: largest change of ∇²_xy g between two records.
        d_hyy: the same bound for ∇²_yy g.
        c_gxy: Lipschitz constant in y of ∇²_xy G.
        c_gyy: Lipschitz constant in y of ∇²_yy G.
        m_gxy: Lipschitz constant in x of ∇²_xy G.
        m_gyy: Lipschitz constant in x of ∇²_yy G.
        m: supremum of |∇²_xy G (∇²_yy G)⁻¹| at minimisers, at most b_gxy/mu.

    References:
        Lowy & Liu 2025, Assumption 2.2, and differences of two records.
    """

    radius: float
    mu: float
    l_fx: float
    l_fy: float
    l_gy: float
    d_fx: float
    d_fy: float
    d_gy: float
    b_fxx: float
    b_fxy: float
    b_fyy: float
    b_gxy: float
    b_gyy: float
    d_hxy: float
    d_hyy: float
    c_gxy: float
    c_gyy: float
    m_gxy: float
    m_gyy: float
    m: float


# Room for the float64 arithmetic of the formulas and constants themselves.
UP = 1.0 + 1e-12


def round_up(value: float) -> float:
    """Round up a non-negative bound by more than the rounding errors of a few dozen float64 operations.

    Limits:
        The result is +inf for NaN, such as a product 0·∞ of declared constants.

    Example:
        >>> 1.0 < round_up(1.0) < 1.0 + 1e-11, round_up(math.nan)
        (True, inf)
    """
    return value * UP if value == value else math.inf


# exp of a larger number overflows float64.
_LARGEST_LOG = 700.0


def box_norm(low: Array, high: Array) -> float:
    """Check the box [low, high], and bound ‖x‖₂ on it.

    Args:
        low, high: ends of the box, (p,) each.

    Returns:
        The supremum of ‖x‖₂ on the box.

    Raises:
        InputError: a bound is not finite, or low > high.

    Example:
        >>> box_norm(np.array([-3.0, 0.0]), np.array([1.0, 4.0]))
        5.0
    """
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise InputError(
            f"algorithm.domain: x ranges from {np.min(low):g} to {np.max(high):g}, but analytic constants "
            "require finite bounds with low ≤ high. Fix: set algorithm.domain to a finite box."
        )
    with np.errstate(over="ignore"):
        return float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high))))


def box_strengths(low: Array, high: Array) -> tuple[float, float]:
    """Return the smallest and the largest e^{x_s} over the box [low, high].

    Args:
        low, high: ends of the box, (p,) each.

    Raises:
        InputError: as in `box_norm`, or exp of a bound is NaN.
    """
    box_norm(low, high)
    least, most = float(low.min()), float(high.max())
    if max(-least, most) > _LARGEST_LOG:
        raise InputError(
            f"algorithm.domain: logarithms of strengths range from {least:g} to {most:g}, but exp overflows "
            f"above {_LARGEST_LOG:g}. Fix: set algorithm.domain to a box closer to 0."
        )
    return math.exp(least), math.exp(most)


def box_weights(low: Array, high: Array) -> tuple[float, float]:
    """Return sup σ(x_g) and sup σ'(x_g) over the box; σ' is even, and decreases away from 0.

    Example:
        >>> [round(v, 4) for v in box_weights(-np.ones(2), np.ones(2))]
        [0.7311, 0.25]
    """
    nearest = math.exp(-float(np.maximum(np.maximum(low, -high), 0.0).min()))
    return 1.0 / (1.0 + math.exp(min(-float(high.max()), _LARGEST_LOG))), nearest / (1.0 + nearest) ** 2


def box_width(low: Array, high: Array) -> float:
    """Return D_x = ‖high − low‖₂, the diameter of the box [low, high], each (p,).

    Example:
        >>> box_width(np.zeros(2), np.array([3.0, 4.0]))
        5.0
    """
    return float(np.linalg.norm(high - low))


def round_up_constants(c: ProblemConstants) -> ProblemConstants:
    """Round up every bound, and round down μ, by more than the rounding errors of their computation."""
    sensitivity = ProblemConstants._make(UP * float(v) for v in c)
    return sensitivity._replace(mu=c.mu * (2.0 - UP))


def solution_spread(c: ProblemConstants, width: float, centred: bool) -> float:
    """Bound D_y, the distance between the minimisers y_Z(x) and y_Z(x') for any x and x' in the box.

    Args:
        c: constants of the problem.
        width: D_x, the box's l2 diameter.
        centred: whether the balls of minimisers for all x have the same centre.

    Returns:
        M D_x, as ‖dy_Z/dx‖ ≤ M. With one centre, it is also at most 2·radius and L_gy/μ, where L_gy is the
        largest over all x and all y of the ball.
    """
    along = c.m * width if c.m > 0.0 else 0.0
    return round_up(min(along, 2.0 * c.radius, c.l_gy / c.mu) if centred else along)


class ClassLoss(NamedTuple):
    """Softmax loss of `classes` classes, or logistic loss of two classes with one row of weights.

    The logistic loss is the softmax loss of two classes at Y = ½(y, −y), and so are its bounds. See docs/proofs/17.

    Args:
        radius: bound R ≥ ‖a‖₂ on the features.
        classes: number of classes.
        spread: bound ρ on |difference of two scores| per unit of R‖y‖: √2 for separate rows, 1 if the score is the
            margin.

    Example:
        >>> logistic_loss(1.0).smoothness, logistic_loss(1.0).gradient(0.0)
        (0.25, 0.5)
        >>> round(softmax_loss(1.0, classes=3).smoothness, 6)
        0.5
    """

    radius: float
    classes: int
    spread: float

    @property
    def smoothness(self) -> float:
        """Supremum of ‖∇²l‖: R²/4 for the logistic loss, R²/2 for the softmax loss.

        u ↦ uᵀ(diag(s) − ssᵀ)u is a variance over r ~ s, at most a quarter of the squared range of u (Popoviciu).
        The range of Va is at most ρR‖V‖.
        """
        return 0.25 * (self.spread * self.radius) ** 2

    @property
    def third(self) -> float:
        """Lipschitz constant of ∇²l: R³/(6√3) for the logistic loss, √2 R³/(3√3) for the softmax loss.

        The third derivative along one direction is a third central moment, at most range³/(6√3) (two points).
        It is a symmetric form, largest where its directions agree (Banach).
        """
        return (self.spread * self.radius) ** 3 / (6.0 * math.sqrt(3.0))

    @property
    def self_concordance(self) -> float:
        """Self-concordance κ: R for the logistic loss, √2 R for the softmax loss.

        Along v the variance of u changes at the rate E[(v_r − Ev)(u_r − Eu)²] ≤ range(v) Var(u).
        """
        return self.spread * self.radius

    def gradient(self, norm: float) -> float:
        """Bound R‖s − e_b‖, or Rσ(−m): R/(1 + e^{−R norm}) for the logistic loss, below √2 R for the softmax loss.

        π = 1 − s_b and every s_r are bounded through the differences of scores, and Σ_{r≠b} s_r² ≤ π max s_r.
        """
        least = math.exp(-min(self.spread * self.radius * norm, 700.0))
        n_other_classes = self.classes - 1
        wrong = n_other_classes / (n_other_classes + least)
        if self.spread == 1.0:
            return self.radius * wrong
        return self.radius * math.sqrt(wrong * (wrong + min(wrong, 1.0 / (1.0 + n_other_classes * least))))

    def loss_range(self, norm: float) -> float:
        """Return log(1 + (c − 1)e^t) between t = −ρR norm and ρR norm; for two classes their difference is ρR norm."""
        reach = self.spread * self.radius * norm
        log_other_classes = math.log(self.classes - 1)
        return float(np.logaddexp(0.0, log_other_classes + reach) - np.logaddexp(0.0, log_other_classes - reach))

    def reach(self, weight: float, record_mass: float, norm: float) -> float:
        """Bound ‖y − x₀‖ of minimisers.

            min(c G(x)/w, √(c W/w)),   W = sup −⟨∇l(y), y − x₀⟩ = W₀((c − 1)e^{ρRx − 1}), W₀ Lambert's function

        Proof: ⟨·, y − x₀⟩ of the stationarity condition is w‖y − x₀‖² = −Σ c_k⟨∇l_k(y), y − x₀⟩. That is at most
        −Σ c_k⟨∇l_k(x₀), y − x₀⟩, as gradients of convex functions are monotone, and at most cW. Let t_r be the
        differences of scores that y − x₀ adds, and u_r ≤ e^{ρRx}. Then Σ t_r u_r e^{−t_r}/(1 + Σ u_r e^{−t_r}) is
        stationary only where all t_r are one t with (t − 1)e^t = Σ u_r. It is t − 1 there. x = 0, two classes:
        W = 0.278464….
        """
        start = record_mass * self.gradient(norm) / weight
        shift = self.spread * self.radius * norm
        if shift > 600.0:
            return start
        gain = float(scipy.special.lambertw((self.classes - 1) * math.exp(shift - 1.0)).real)
        return min(start, math.sqrt(record_mass * gain / weight))


class SquaredLoss(NamedTuple):
    """Squared loss ½(aᵀy − b)².

    Args:
        radius: bound R ≥ ‖a‖₂ on the features.
        label_bound: bound B ≥ |b| on the labels.

    Example:
        >>> SquaredLoss(radius=1.0, label_bound=1.0).gradient(norm=1.0)
        2.0
    """

    radius: float
    label_bound: float

    @property
    def smoothness(self) -> float:
        return self.radius**2

    @property
    def third(self) -> float:
        return 0.0

    @property
    def self_concordance(self) -> float:
        return 0.0

    def gradient(self, norm: float) -> float:
        return self.radius * (self.radius * norm + self.label_bound)

    def loss_range(self, norm: float) -> float:
        return 0.5 * (self.radius * norm + self.label_bound) ** 2

    def reach(self, weight: float, record_mass: float, norm: float) -> float:
        """Bound ‖y − x₀‖ of minimisers.

            B√c · max_{0≤s≤S} s/(s² + w) + x S²/(S² + w),   S = R√c

        Proof: y − x₀ = (XᵀX + w)⁻¹(Xᵀβ − XᵀX x₀), where X has the rows √c_k a_k: its singular values are at most
        S, and ‖β‖ ≤ B√c. With strengths Ω ⪰ w, replace X by X Ω^{−½}.
        """
        most = self.radius * math.sqrt(record_mass)
        s = min(most, math.sqrt(weight))
        return self.label_bound * math.sqrt(record_mass) * s / (s * s + weight) + norm * most**2 / (most**2 + weight)


# Bounds of a convex loss for every record of a domain.
LossBounds: TypeAlias = ClassLoss | SquaredLoss


def logistic_loss(radius: float) -> ClassLoss:
    """Bound the logistic loss for records with ‖a‖₂ ≤ radius.

    Example:
        >>> round(logistic_loss(1.0).reach(weight=0.1, record_mass=1.0, norm=0.0), 4)
        1.6687
    """
    return ClassLoss(radius, 2, 1.0)


def softmax_loss(radius: float, classes: int) -> ClassLoss:
    """Bound the softmax loss for records with ‖a‖₂ ≤ radius."""
    return ClassLoss(radius, classes, math.sqrt(2.0))


# Constants for f that depends on y only.
_of_y_alone = partial(ProblemConstants, l_fx=0.0, d_fx=0.0, b_fxx=0.0, b_fxy=0.0)
# The same, with second derivatives of g that do not depend on records, y and x.
_of_constant_curvature = partial(_of_y_alone, d_hxy=0.0, d_hyy=0.0, c_gxy=0.0, c_gyy=0.0, m_gxy=0.0, m_gyy=0.0)


class Family(Protocol):
    """Problem whose constants hold for all records in the domain.

    Example:
        >>> from decentral_dp.problems.bilevel.means import MeanEstimation
        >>> family = family_of(MeanEstimation(2), radius=1.0)
        >>> family.centre(np.ones(2)).tolist()
        [0.5, 0.5]
        >>> round(family.constants(-np.ones(2), np.ones(2)).mu, 6)
        2.0
    """

    problem: Problem
    # True if the ball of minimisers does not depend on x.
    centred: ClassVar[bool] = True

    @property
    def self_concordance(self) -> float:
        """Self-concordance κ: ∇²_yy g(y + v) ⪯ e^{κ‖v‖} ∇²_yy g(y) for every record and for R; inf if unknown."""
        return math.inf

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        """Bound the derivatives for all x of a box and y in the ball of minimisers.

        Args:
            low, high: ends of the box of x, (p,) each.
            record_mass: 1 (the default) for minimisers of g, or 1 + 1/λ for minimisers of g + f/λ.

        Raises:
            InputError: the box is not finite.
        """
        ...

    def centre(self, x: Array) -> Array:
        """Return the data-independent centre (q,) of the ball of minimisers at a public x, by default 0."""
        return np.zeros(self.problem.q)

    def spread(self, low: Array, high: Array) -> float:
        """Return a bound D_y on ‖y_Z(x) − y_Z(x')‖₂ for all x, x' of the box [low, high], each (p,)."""
        return solution_spread(self.constants(low, high), box_width(low, high), self.centred)

    def loss_range(self, low: Array, high: Array) -> float:
        """Bound max f − min f over x of the box [low, high], each (p,), and y in its ball, for every record."""
        return math.inf


class LossFamily(Family, Protocol):
    """Family that has the same loss of y in both levels, and a ball around 0 that contains the minimisers.

    Args:
        loss: bounds on the loss, which is a field of the family.
    """

    loss: LossBounds

    @property
    def self_concordance(self) -> float:
        return self.loss.self_concordance

    def loss_range(self, low: Array, high: Array) -> float:
        return UP * self.loss.loss_range(self.constants(low, high).radius)


@dataclass(frozen=True)
class Weighed(LossFamily):
    """Family of `HyperCleaning`: l = σ(x_g) CE, h = CE, R = ½ ridge ‖y‖². Needs train records of `place_records`.

    A replaced record stays in its group g, so every difference of two records is multiplied by the weight σ(x_g) ≤ s
    or the slope σ'(x_g) ≤ s'. ∇²_xy G has the rows σ'(x_g) n_g/n · (mean of ∇CE over group g). With Σ(n_g/n)² ≤ 1 its
    norm is at most s' G. The change with x, coordinate by coordinate, is at most sup|σ''| G‖Δx‖ and s'·sup‖∇²CE‖‖Δx‖.
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
    """Family of `MeanEstimation`: l = −aᵀy, h = ½‖y − a‖², R = ½‖y‖² + ½ ridge ‖y − x‖², ‖a‖ ≤ record_radius.

    The minimiser is (c + (mass − 1) c̄ + ridge x)/(ridge + mass), with the means c and c̄ of the train and validation
    records.
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
        """Bound max f − min f: f lies between 0 and ½(‖y‖ + ‖a‖)². See `Family.loss_range`."""
        return UP * 0.5 * self.constants(low, high).l_fy ** 2


@dataclass(frozen=True)
class Linear(Family):
    """Family of `MeanLowerBound`: l = 0, h = −slope ⟨y, a⟩, R = ½ ridge ‖y − stretch·x‖², y_Z(x) = stretch·x."""

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

        See `Family.loss_range`.
        """
        return UP * self.constants(low, high).l_fy * self.problem.stretch * box_width(low, high)


@dataclass(frozen=True)
class Regularised(LossFamily):
    """Family with one loss of y and R = ½ scale Σ_s e^{x_s} ‖y_s‖², where y_s are the lower variables of strength s.

    With Ω = diag(w) and w_min ≤ w ≤ w_max, ∇²_xy R contains w_s y_s, with spectral norm max_s w_s‖y_s‖. Also,
    M ≤ min(‖y‖√(w_max/w_min), c G/w_min), as ‖Ω(H + Ω)⁻¹‖ ≤ √(w_max/w_min), not 1, and Ωy = −Σ c_k ∇l_k. With one
    common strength (p = 1), M ≤ ‖y‖. See docs/proofs/18.

    Args:
        problem: the bilevel problem.
        loss: bounds of l = h.
        scale: scale of R; default 1.
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
    """Family with one loss of y and R = ½ ridge ‖y − x‖²: the ball moves with x.

    ∇²_xy R = −ridge I, M ≤ 1. See docs/proofs/18.

    Args:
        problem: the bilevel problem.
        loss: bounds of l = h.
        ridge: strength of R.
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
    """Find the family of a problem for records in a public domain.

    Args:
        problem: a bilevel problem.
        radius: bound R ≥ ‖a‖₂ without an intercept.
        label_bound: bound B ≥ |b| for numeric labels. There is no default bound.

    Returns:
        The family, whose constants are proved.

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
    # ‖(a, 1)‖ ≤ √(R² + 1) with an intercept.
    bound = math.hypot(radius, 1.0) if getattr(problem, "intercept", False) else radius
    penalty = getattr(problem, "penalty", None)
    loss: LossBounds | None = None
    if isinstance(problem, LogisticHyperparameter):
        loss = logistic_loss(bound)
    elif isinstance(problem, SoftmaxHyperparameter | HyperCleaning):
        loss = softmax_loss(bound, len(problem.classes))
    elif isinstance(problem, Quadratic):
        _check_bound("label_bound", label_bound)
        loss = SquaredLoss(bound, label_bound)
    if loss is not None and isinstance(problem, HyperCleaning):
        return Weighed(problem, loss)
    if loss is not None and isinstance(penalty, Pull):
        return Pulled(problem, loss, penalty.ridge)
    if loss is not None and isinstance(penalty, Strengths):
        return Regularised(problem, loss, penalty.scale)
    raise InputError(
        f'problem.kind: "{getattr(problem, "name", type(problem).__name__)}" has no analytic constants. Fix: use '
        'another problem, for example "logistic_regularisation", or declare its constants.'
    )


# Pieces of the box of one upper variable.
_CELLS = 64


def worst_case(
    family: Family,
    low: Array,
    high: Array,
    bound: Callable[[ProblemConstants], float],
    record_mass: float = 1.0,
) -> float:
    """Bound a function of the constants over all x in a box.

    Args:
        family: family whose constants are used.
        low, high: ends of the box of x, (p,) each.
        bound: function of the constants that returns a number.
        record_mass: see `Family.constants`.

    Returns:
        For one upper variable, the largest value over 64 pieces of the box. For several, the bound for the whole box.
        The former is far smaller, since the largest and the smallest strength are not attained at the same x.

    Example:
        >>> from decentral_dp.problems.bilevel.means import MeanEstimation
        >>> family = family_of(MeanEstimation(1), radius=1.0)
        >>> round(worst_case(family, -np.ones(1), np.ones(1), lambda c: c.radius), 6)
        0.5
    """
    if family.problem.p > 1:
        return bound(family.constants(low, high, record_mass))
    edges = np.linspace(low, high, _CELLS + 1)
    edges[-1] = high
    return max(bound(family.constants(a, b, record_mass)) for a, b in itertools.pairwise(edges))


def _regularised_constants(
    loss: LossBounds,
    radius: float,
    norm: float,
    mu: float,
    mixed_bound: float,
    varying: float,
    most: float,
    m: float,
    varies: bool = True,
) -> ProblemConstants:
    """Compute the constants of a loss of y in both levels and a regulariser R.

    Args:
        loss: bounds of l = h.
        radius: radius of the ball of minimisers.
        norm: bound on ‖y‖.
        mu: strong convexity of R in y.
        mixed_bound: bound on ‖∇²_xy R‖.
        varying: Lipschitz constant in y of ∇²_xy R.
        most: bound on ‖∇²_yy R‖.
        m: see `ProblemConstants`.
        varies: whether the derivatives of R grow like e^x.
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
            b_gxy=mixed_bound,
            b_gyy=loss.smoothness + most,
            d_hxy=0.0,
            d_hyy=loss.smoothness,
            c_gxy=varying,
            c_gyy=loss.third,
            m_gxy=mixed_bound if varies else 0.0,
            m_gyy=most if varies else 0.0,
            m=m,
        )
    )


def _check_bound(name: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise InputError(
            f"{name}: out of range (got {value:g}, expected a finite bound above 0). Fix: declare such a bound."
        )
