"""Convex losses of records with ‖a‖₂ ≤ R and |b| ≤ B: bounds that hold for every such record, in l2 and spectral norms.

With m = b aᵀy, or with s = softmax(Ya) and the unit vector e_b:

    logistic   l = log(1 + e^{−m})            ∇l = −σ(−m) b a        ∇²l = σ(m)σ(−m) aaᵀ
    softmax    l = log Σ_r exp((Y_r − Y_b)a)   ∇l = (s − e_b) aᵀ      ∇²l = (diag(s) − ssᵀ) ⊗ aaᵀ
    squared    l = ½(aᵀy − b)²                 ∇l = (aᵀy − b) a       ∇²l = aaᵀ

`reach(w, c, x)` is where minimisers can be: ‖y − x₀‖ for the minimiser y of Σ_k c_k l_k(y) + (w/2)‖y − x₀‖², whatever
the records, where Σ c_k ≤ c and ‖x₀‖ ≤ x. With strengths w_s ≥ w, one per coordinate, and x₀ = 0 it holds as well.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import scipy


class LossBounds(Protocol):
    """Bounds of a convex loss for every record of a domain.

    Args:
        smoothness: sup ‖∇²l‖.
        third: Lipschitz constant of ∇²l.
        self_concordance: κ with ∇²l(y + v) ⪯ e^{κ‖v‖} ∇²l(y).
    """

    @property
    def smoothness(self) -> float: ...

    @property
    def third(self) -> float: ...

    @property
    def self_concordance(self) -> float: ...

    def gradient(self, norm: float) -> float:
        """Bound ‖∇l‖ where ‖y‖ ≤ norm."""
        ...

    def loss_range(self, norm: float) -> float:
        """Bound max l − min l where ‖y‖ ≤ norm."""
        ...

    def reach(self, weight: float, record_mass: float, norm: float) -> float:
        """Bound ‖y − x₀‖ of minimisers, as at the top of this module.

        Args:
            weight: w.
            record_mass: c.
            norm: bound on ‖x₀‖.
        """
        ...


class ClassLoss(NamedTuple):
    """The softmax loss of `classes` classes; with one row of weights instead of `classes`, the logistic loss of two.

    The logistic loss is the softmax loss of two classes at Y = ½(y, −y), and so are its bounds. See docs/proofs/17.

    Args:
        radius: R ≥ ‖a‖₂.
        classes: their number.
        spread: ρ ≥ |difference of two scores| per unit of R‖y‖: √2 for rows of their own, 1 where the score is the
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
        """sup ‖∇²l‖: R²/4 of the logistic, R²/2 of the softmax loss.

        u ↦ uᵀ(diag(s) − ssᵀ)u is a variance over r ~ s, at most a quarter of the squared range of u (Popoviciu).
        The range of Va is at most ρR‖V‖.
        """
        return 0.25 * (self.spread * self.radius) ** 2

    @property
    def third(self) -> float:
        """Lipschitz constant of ∇²l: R³/(6√3) of the logistic, √2 R³/(3√3) of the softmax loss.

        The third derivative along one direction is a third central moment, at most range³/(6√3) (two points).
        It is a symmetric form, largest where its directions agree (Banach).
        """
        return (self.spread * self.radius) ** 3 / (6.0 * math.sqrt(3.0))

    @property
    def self_concordance(self) -> float:
        """κ: R of the logistic, √2 R of the softmax loss.

        Along v the variance of u changes at the rate E[(v_r − Ev)(u_r − Eu)²] ≤ range(v) Var(u).
        """
        return self.spread * self.radius

    def gradient(self, norm: float) -> float:
        """Bound R‖s − e_b‖, or Rσ(−m): R/(1 + e^{−R norm}) for the logistic, below √2 R for the softmax loss.

        π = 1 − s_b and every s_r are bounded through the differences of scores, and Σ_{r≠b} s_r² ≤ π max s_r.
        """
        least = math.exp(-min(self.spread * self.radius * norm, 700.0))
        others = self.classes - 1
        wrong = others / (others + least)
        if self.spread == 1.0:
            return self.radius * wrong
        return self.radius * math.sqrt(wrong * (wrong + min(wrong, 1.0 / (1.0 + others * least))))

    def loss_range(self, norm: float) -> float:
        """Return log(1 + (c − 1)e^t) between t = −ρR norm and ρR norm; for two classes their difference is ρR norm."""
        reach = self.spread * self.radius * norm
        others = math.log(self.classes - 1)
        return float(np.logaddexp(0.0, others + reach) - np.logaddexp(0.0, others - reach))

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
    """The squared loss ½(aᵀy − b)².

    Args:
        radius: R ≥ ‖a‖₂.
        label_bound: B ≥ |b|.

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
        S, and ‖β‖ ≤ B√c. With strengths Ω ⪰ w take X Ω^{−½} for X.
        """
        most = self.radius * math.sqrt(record_mass)
        s = min(most, math.sqrt(weight))
        return self.label_bound * math.sqrt(record_mass) * s / (s * s + weight) + norm * most**2 / (most**2 + weight)


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
