"""Group DRO: the worst mean loss of a group, with classes as groups (Zhang et al. 2025, Equation 5).

With losses ℓ_i clipped to [0, B] (problem.cap; see `losses`), g_i the class of a record, public shares π_k of the
classes (problem.group_shares; default: equal) and μ = problem.strength,

    min_x max_{y ∈ Δ} Σ_k y_k L_k(x) − (μ/2)‖y‖²,      L_k = mean_i 1[g_i = k] ℓ_i/π_k

L_k is the mean loss of class k if π_k is its share of the records. The terms of a record, with e_k the k-th unit
vector, are

    grad_x   y_g/π_g ∇ℓ, clipped after weighting         grad_y   e_g ℓ/π_g, plus the public −μy
    dual     e_g ℓ, whose mean m gives argmax_y = Π_Δ((m_k/π_k)_k/μ)

Shares are constants: if they were counted, one record would change the gradients of all records. Vectors e_k ℓ a_k with
0 ≤ ℓ ≤ B lie on K orthogonal segments, so the distance of any two is at most B√(a_j² + a_k²) for the two largest a,
which is √2 B for the mean of "dual" over all records. For samples, the public ball is the smallest one around the
segments, whose radius is B√(1 − 1/K) for equal a and K > 1, compared with B for a ball around 0.

problem.loss: cross_entropy (default) or logistic (two classes).

The metrics are primal = max_y F and gradient_norm, the norm of its gradient; the mean loss; worst_group_loss, the
largest mean loss of a class by its own count, and test_worst_group_loss; test_accuracy, test_f1 and
test_worst_class_accuracy. All losses are clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from typing_extensions import Doc

from decentral_dp.bounded import Array
from decentral_dp.central.problems.composite import Composite, Values
from decentral_dp.central.problems.losses import Cap, CappedObjective, Loss, Strength, capped_loss
from decentral_dp.central.problems.saddle import PublicBall
from decentral_dp.errors import InputError
from decentral_dp.files.tables import Share
from decentral_dp.problems.entry import ModelChoice, ProblemEntry, ProblemFacts

# Declared shares may be rounded.
_SHARE_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class GroupDroObjective(CappedObjective):
    """The group DRO objective.

    Args:
        loss: loss ℓ, capped at B.
        strength: strength μ.
        shares: class shares π, (K,).
    """

    strength: float
    shares: Array

    @property
    def q(self) -> int:
        return self.shares.size

    @property
    def statistics(self) -> Mapping[str, int]:
        return {"dual": self.q}

    @property
    def start(self) -> Mapping[str, Array]:
        return {"extra": np.zeros(0), "y": np.full(self.q, 1.0 / self.q)}

    def project_y(self, y: Array) -> Array:
        """Return the nearest point of the simplex, (q,), or NaN if y is not finite."""
        if not np.isfinite(y).all():
            return np.full_like(y, np.nan)
        # The projection ignores a common shift, and is exact for small numbers.
        y = y - y.max()
        # Held, Wolfe & Crowder 1974: subtract the threshold that leaves the sum 1.
        descending = np.sort(y)[::-1]
        thresholds = (np.cumsum(descending) - 1.0) / np.arange(1, y.size + 1)
        last = int(np.flatnonzero(descending > thresholds)[-1])
        return np.asarray(np.maximum(y - thresholds[last], 0.0))

    def slopes(self, outputs: Array, extra: Array, y: Array, labels: Array) -> Values:
        losses, slopes = self.loss.slopes(outputs, labels)
        group = labels.astype(np.int64)
        weights = (y / self.shares)[group]
        return Values(
            weights[:, None] * slopes, np.zeros((len(labels), 0)), self._by_class(losses, labels) / self.shares
        )

    def statistic(self, term: str, outputs: Array, extra: Array, y: Array, labels: Array) -> Array:
        return self._by_class(self.loss.values(outputs, labels), labels)

    def _by_class(self, losses: Array, labels: Array) -> Array:
        """Compute e_g ℓ, (n, K)."""
        return np.where(labels[:, None] == np.arange(self.q), losses[:, None], 0.0)

    def public_ball(self, term: str, extra: Array, y: Array) -> PublicBall | None:
        return enclose_segments(np.full(self.q, self.loss.cap) / (self.shares if term == "grad_y" else 1.0))

    def public(self, term: str, extra: Array, y: Array) -> Array:
        return np.zeros(0) if term == "grad_x" else -self.strength * y

    def dual(self, statistic: Array) -> Array:
        return self.project_y(statistic / (self.shares * self.strength))

    def scores(
        self, outputs: Array, extra: Array, y: Array, labels: Array, gradient: Callable[[Array], float]
    ) -> Mapping[str, float]:
        losses = self.loss.values(outputs, labels)
        means = np.mean(self._by_class(losses, labels), axis=0) / self.shares
        best = self.dual(means * self.shares)
        return {
            "primal": float(best @ means - 0.5 * self.strength * best @ best),
            "gradient_norm": gradient(best),
            "loss": float(losses.mean()),
            "worst_group_loss": _worst_class_mean(losses, labels),
        }

    def test_scores(self, outputs: Array, labels: Array) -> Mapping[str, float]:
        worst = _worst_class_mean(self.loss.values(outputs, labels), labels)
        return {**super().test_scores(outputs, labels), "worst_group_loss": worst}


def _worst_class_mean(losses: Array, labels: Array) -> float:
    """Compute the largest mean loss of a class with records."""
    return max(float(losses[labels == k].mean()) for k in np.unique(labels))


def enclose_segments(ends: Array) -> PublicBall:
    """Compute the smallest ball around the segments from 0 to ends_k e_k, for positive ends (K,).

    Its centre is Σ_k λ_k ends_k e_k for the λ that solves the dual, max Σ_k (λ_k − λ_k²) ends_k² over λ ≥ 0 with Σ λ_k
    ≤ 1: λ_k = ½(1 − τ/ends_k²)₊, τ = (m − 2)/Σ ends_k⁻² over the m longest segments, for the largest m with τ below the
    smallest of their ends_k²; 0 for one and two. The radius is the largest distance from the centre, for any λ.
    """
    squares = ends**2
    descending = np.sort(squares)[::-1]
    levels = (np.arange(ends.size) - 1.0) / np.cumsum(1.0 / descending)
    tau = max(0.0, levels[np.flatnonzero(levels < descending)[-1]])
    centre = 0.5 * np.maximum(1.0 - tau / squares, 0.0) * ends
    to_ends = centre @ centre - 2.0 * centre * ends + squares
    radius = float(np.sqrt(max(to_ends.max(), centre @ centre)))
    longest = np.sqrt(np.sort(squares)[-2:].sum())
    return PublicBall(centre, _ROUND_UP * radius, _ROUND_UP * float(longest))


# Covers the rounding of these sums.
_ROUND_UP = 1.0 + 1e-14


def group_dro(
    facts: ProblemFacts,
    strength: Strength,
    cap: Cap,
    group_shares: Annotated[list[Share], Doc("Public shares of the groups, which are the classes; default equal.")]
    | None = None,
    loss: Loss | None = None,
    model: ModelChoice | None = None,
) -> Composite:
    """Build the problem from the keys of a scenario. Raises InputError if a key is invalid."""
    classes = facts.n_classes
    if classes < 2:
        raise InputError(
            "problem.kind: group_dro requires classes as groups (got numeric labels). Fix: declare "
            "problem.classes, or use dro."
        )
    shares = np.asarray([1.0 / classes] * classes if group_shares is None else group_shares, dtype=np.float64)
    if shares.size != classes or abs(shares.sum() - 1.0) > _SHARE_TOLERANCE:
        raise InputError(
            f"problem.group_shares: shares must sum to 1 (got {shares.size} shares with the sum "
            f"{shares.sum():.4g}, expected {classes} with the sum 1). Fix: set one public share for each "
            "class, in the order of the classes."
        )
    bounded_loss = capped_loss(loss, cap, classes)
    return Composite(facts.model(bounded_loss.loss.outputs, model), GroupDroObjective(bounded_loss, strength, shares))


ENTRY = ProblemEntry(
    "group_dro",
    group_dro,
    "the worst mean loss of a group, with classes as groups",
    task="trained a model for the worst group",
)
