"""Distributionally robust learning with a ψ-divergence: the worst mean loss over distributions near the empirical one.

A ψ-divergence is D(p, q) = Σ_i q_i ψ(p_i/q_i), ψ convex on t ≥ 0 with its minimum ψ(1) = 0. Its conjugate is
ψ*(s) = sup_{t ≥ 0} {ts − ψ(t)}, and w = (ψ*)' is the maximising t. With a public strength λ and losses ℓ_i clipped to
[0, B] (problem.cap; see `losses`), the problem is Equation 3 of Xu et al. 2025, minimised over x and y = η:

    Φ(x) = max_p Σ_i p_i ℓ_i(x) − λ D(p, 1/n) = min_η F(x, η),       F = mean_i λψ*((ℓ_i − η)/λ) + η
    ∇_x of a record: w_i ∇ℓ_i,  grad_y = −∂F/∂η of a record: w_i − 1,      w_i = w((ℓ_i − η)/λ)

    problem.divergence    ψ(t)               ψ*(s)                   w(s)
    chi2                  ½(t − 1)²          ½((s + 1)₊² − 1)        (s + 1)₊
    kl                    t log t − t + 1    e^s − 1                 e^s

(t − 1)² at strength λ is chi2 at strength 2λ. Table 1 of Xu et al. prints −1 + ¼(s + 2)² for chi2, which is the
conjugate of (t − 1)² without (·)₊ and allows negative weights.
problem.loss: cross_entropy (default for classes), logistic (two classes) or squared (default for numbers).

η stays in [0, B]. w is nondecreasing with 1 between w(0−) and w(0+), so ∂F/∂η = 1 − mean w_i is at least 0 above all
losses and at most 0 below them, and a best η lies among the losses. Every w_i is bounded there: at a released η grad_y
lies between w(−η/λ) − 1 and w((B − η)/λ) − 1 for every possible record, a ball with public centre and radius. A
strength with w(B/λ) above 10⁶ raises InputError.

η starts at 0, where every record has at least its weight in an unweighted mean. The metrics are primal = Φ and
gradient_norm = ‖∇Φ‖ at the best η; the mean loss; robust_loss, which is Φ of held-out records; and, for classes,
test_accuracy, test_f1 and test_worst_class_accuracy. All losses are clipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from typing_extensions import Doc

from decentral_dp.bounded import Array
from decentral_dp.central.problems.composite import Composite, Values
from decentral_dp.central.problems.losses import Cap, CappedObjective, Loss, Strength, bisect, capped_loss
from decentral_dp.central.problems.saddle import PublicBall
from decentral_dp.errors import InputError
from decentral_dp.formatting import least_text
from decentral_dp.problems.entry import ModelChoice, ProblemEntry, ProblemFacts

# Largest weight of one record; the mean weight is 1.
LARGEST_WEIGHT = 1e6


class PsiDivergence(NamedTuple):
    """A ψ-divergence.

    Args:
        conjugate: function ψ*.
        weight: nondecreasing function w.
        reach: function that maps t ≥ 1 to sup {s : w(s) ≤ t}.
    """

    conjugate: Callable[[Array], Array]
    weight: Callable[[Array], Array]
    reach: Callable[[float], float]


DIVERGENCES: Mapping[str, PsiDivergence] = {
    "chi2": PsiDivergence(
        lambda s: 0.5 * np.maximum(s, -1.0) * (np.maximum(s, -1.0) + 2.0),
        lambda s: np.maximum(s + 1.0, 0.0),
        lambda t: t - 1.0,
    ),
    "kl": PsiDivergence(np.expm1, np.exp, math.log),
}


@dataclass(frozen=True)
class DroObjective(CappedObjective):
    """DRO objective F.

    Args:
        loss: loss ℓ, capped at B.
        divergence: divergence ψ.
        strength: strength λ.
    """

    divergence: PsiDivergence
    strength: float

    def project_y(self, y: Array) -> Array:
        return np.clip(y, 0.0, self.loss.cap)

    def slopes(self, outputs: Array, extra: Array, y: Array, labels: Array) -> Values:
        losses, slopes = self.loss.slopes(outputs, labels)
        weights = self._weights(losses, y[0])[:, None]
        return Values(weights * slopes, np.zeros((len(labels), 0)), weights - 1.0)

    def public_ball(self, term: str, extra: Array, y: Array) -> PublicBall | None:
        ends = self._weights(np.array([0.0, self.loss.cap]), y[0]) - 1.0
        return PublicBall(np.array([ends.mean()]), float(0.5 * (ends[1] - ends[0])))

    def value(self, losses: Array, eta: float) -> float:
        """Compute F at η for losses (n,)."""
        return float(np.mean(self.strength * self.divergence.conjugate((losses - eta) / self.strength)) + eta)

    def best(self, losses: Array) -> float:
        """Compute the η that minimises F for losses (n,), by bisection of 1 − mean w among the losses."""
        return bisect(lambda eta: bool(np.mean(self._weights(losses, eta)) > 1.0), losses.min(), losses.max())

    def robust(self, losses: Array) -> float:
        """Compute max_p Σ_i p_i ℓ_i − λ D(p, 1/n) for losses (n,)."""
        return self.value(losses, self.best(losses))

    def scores(
        self, outputs: Array, extra: Array, y: Array, labels: Array, gradient: Callable[[Array], float]
    ) -> Mapping[str, float]:
        losses = self.loss.values(outputs, labels)
        best = self.best(losses)
        primal = self.value(losses, best)
        return {"primal": primal, "gradient_norm": gradient(np.array([best])), "loss": float(losses.mean())}

    def test_scores(self, outputs: Array, labels: Array) -> Mapping[str, float]:
        robust = self.robust(self.loss.values(outputs, labels))
        return {**super().test_scores(outputs, labels), "robust_loss": robust}

    def _weights(self, losses: Array, eta: float) -> Array:
        return self.divergence.weight((losses - eta) / self.strength)


def dro(
    facts: ProblemFacts,
    divergence: Annotated[Literal["chi2", "kl"], Doc('Divergence between distributions: "chi2" or "kl".')],
    cap: Cap,
    strength: Strength,
    loss: Loss | None = None,
    model: ModelChoice | None = None,
) -> Composite:
    """Build the problem from the keys of a scenario. Raises InputError if a key is invalid."""
    bounded_loss, psi = capped_loss(loss, cap, facts.n_classes), DIVERGENCES[divergence]
    with np.errstate(over="ignore"):
        heaviest = psi.weight(np.array(cap / strength))
    if not heaviest <= LARGEST_WEIGHT:
        smallest = 1.001 * cap / psi.reach(LARGEST_WEIGHT)
        raise InputError(
            f"problem.strength: too small for the cap {cap:g}: {divergence} could weight one record a million "
            f"times the average (got {strength:g}, expected at least {least_text(smallest)}). Fix: increase "
            "it, or lower the cap."
        )
    return Composite(facts.model(bounded_loss.loss.outputs, model), DroObjective(bounded_loss, psi, strength))


ENTRY = ProblemEntry(
    "dro",
    dro,
    "the worst mean loss over distributions near that of the records, by the dual of a ψ-divergence",
    task="trained a model that is robust to a shift of its records",
)
