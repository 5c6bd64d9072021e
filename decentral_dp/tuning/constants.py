"""What one replaced record can do to each release of the tuner: analytic, for records with ‖a‖ ≤ R and |b| ≤ B.

With l(θ; a, b) = log(1 + exp(−b aᵀθ)) or ½(aᵀθ − b)², weight w and n_t train and n_v validation records,

    g(θ) = (1/n_t) Σ_train l(θ) + (w/2)‖θ‖²        f(θ) = (1/n_v) Σ_validation l(θ)        h = g + f/λ.

Every constant holds on the ball that contains the minimisers of *that* function for every data set; h has c = 1 + 1/λ
times the records' weight, and its minimisers lie outside the ball of g's. Dotting the stationarity condition with θ:

    logistic   ‖θ‖ ≤ min(Rc/(2w), √(cW/w)),   W = max_m m/(1 + e^m)
    squared    ‖θ‖ ≤ B√c · max_{0≤s≤R√c} s/(s² + w)

On a ball of radius r the gradient of l is at most G(r) = R/(1 + e^{−Rr}) or R(Rr + B). h is w-strongly convex, so its
minimiser moves by at most ‖∇h_Z(y') − ∇h_Z'(y')‖/w at the minimiser y' of the neighbour: 2G/(w n_t) for a train and
2G/(λ w n_v) for a validation record (Kornowski, Differentially Private Bilevel Optimization, Section 7; the released
minimiser is that of f + λg).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from decentral_dp.privacy.bounded import Split
from decentral_dp.tuning.records import LossName

# max over m of m/(1 + e^m), rounded up.
_MARGIN_GAIN = 0.2784645427611
# Room for the float64 arithmetic of the formulas themselves.
_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class Family:
    """A loss with the public bounds of its records. radius: R. label_bound: B, of the squared loss."""

    loss: LossName
    radius: float
    label_bound: float

    def solution_radius(self, weight: float, mass: float = 1.0) -> float:
        """A ball that contains the minimiser for every data set; mass: c, the sum of the records' weights."""
        r, w = self.radius, weight
        if self.loss == "logistic":
            return _UP * min(0.5 * r * mass / w, math.sqrt(mass * _MARGIN_GAIN / w))
        s = min(r * math.sqrt(mass), math.sqrt(w))
        return _UP * self.label_bound * math.sqrt(mass) * s / (s * s + w)

    def gradient_bound(self, norm: float) -> float:
        """G(r): the largest ‖∇l‖ over records, where ‖θ‖ ≤ norm."""
        reach = self.radius * norm
        if self.loss == "logistic":
            return _UP * self.radius / (1.0 + math.exp(-reach))
        return _UP * self.radius * (reach + self.label_bound)

    @property
    def link_smoothness(self) -> float:
        """The largest second derivative of the loss along the margin."""
        return 0.25 if self.loss == "logistic" else 1.0

    @property
    def curvature_bound(self) -> float:
        """C_h: the largest ‖∇²l‖ over records, anywhere."""
        return self.link_smoothness * self.radius**2

    def loss_range(self, norm: float) -> float:
        """The largest minus the smallest loss that records can have, where ‖θ‖ ≤ norm.

        Logistic: log(1 + e^m) − log(1 + e^{−m}) = m, the margin.
        """
        reach = self.radius * norm
        return _UP * (reach if self.loss == "logistic" else 0.5 * (reach + self.label_bound) ** 2)


def minimiser_sensitivity(
    family: Family, weight: float, train: int, accuracy: float, penalty: tuple[float, int] | None = None
) -> Mapping[Split, float]:
    """How far the minimiser of g, or with pull = (λ, n_v) that of g + f/λ, can move, in l2.

    accuracy: a ≥ ‖computed − exact minimiser‖, in both worlds.
    """
    mass = 1.0 if penalty is None else 1.0 + 1.0 / penalty[0]
    radius = family.solution_radius(weight, mass)
    swap = 2.0 * family.gradient_bound(radius)

    def sensitivity(per_record: float) -> float:
        # Two minimisers of any data sets are no further apart than the ball is wide.
        return _UP * (min(swap * per_record / weight, 2.0 * radius) + 2.0 * accuracy)

    if penalty is None:
        return {"train": sensitivity(1.0 / train)}
    return {"train": sensitivity(1.0 / train), "validation": sensitivity(1.0 / (penalty[0] * penalty[1]))}


def slope_sensitivity(
    family: Family, weight: float, norm: float, train: int, validation: int, solve_error: float
) -> Mapping[Split, float]:
    """How far −w θᵀ H⁻¹ b can move, where θ with ‖θ‖ = norm is public, H = mean_train ∇²l + wI, b = mean_validation ∇l.

    Validation: 2‖θ‖G/n_v. Train: H and H' lie between H₀ ⪰ wI and H₀ + C_h/n_t, so their inverses differ by at most
    (C_h/n_t)/(w(w + C_h/n_t)). solve_error: τ ≥ ‖computed − exact H⁻¹b‖, in both worlds.
    """
    gradient, share = family.gradient_bound(norm), family.curvature_bound / train
    slack = 2.0 * weight * norm * solve_error
    return {
        "train": _UP * (norm * gradient * share / (weight + share) + slack),
        "validation": _UP * (2.0 * norm * gradient / validation + slack),
    }


def score_sensitivity(
    family: Family, smallest: float, train: int, validation: int, score_error: float
) -> Mapping[Split, float]:
    """How much w ↦ f(θ_w) − f'(θ'_w), the difference of two neighbours' scores, can vary over w ≥ smallest.

    Validation: (1/n_v)(l(θ_w; z) − l(θ_w; z')) lies within ± the range of the loss. Train: ±G·2G/(w n_t).
    score_error: bound on |computed − exact score| at every w.
    """
    radius = family.solution_radius(smallest)
    gradient = family.gradient_bound(radius)
    sensitivity = min(2.0 * gradient / (smallest * train), 2.0 * radius)
    return {
        "train": _UP * (2.0 * gradient * sensitivity + 4.0 * score_error),
        "validation": _UP * (2.0 * family.loss_range(radius) / validation + 4.0 * score_error),
    }
