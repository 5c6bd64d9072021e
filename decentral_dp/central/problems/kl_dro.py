"""Distributionally robust learning with the KL divergence, as a function of one mean (compositional form).

With losses ℓ_i clipped to [0, B] (problem.cap; see `losses`), ρ = problem.radius and λ₀ = problem.strength, over the
model's weights x and y = λ ≥ λ₀ (Xu et al. 2025, Equation 5)

    Ψ(x, λ) = λ log mean_i exp(ℓ_i/λ) + λρ = λ log h̄ + B + λρ,      h_i = exp((ℓ_i − B)/λ)

    ∇_xΨ = (λ/h̄) mean ∇_x h_i        ∂_λΨ = log h̄ + ρ + (λ/h̄) mean ∂_λ h_i

and min_λ Ψ = λ₀ρ + max_p Σ p_i ℓ_i − λ₀ KL(p, 1/n) over the p with KL(p, 1/n) ≤ ρ. Dividing by e^{B/λ} avoids an
exponential constant in the sensitivity, and overflow. The terms and their ranges at a released λ:

    inner    h_i ∈ [e^{−B/λ}, 1]
    inner_y  ∂_λ h_i = u e^{−u}/λ ∈ [0, v e^{−v}/λ],   u = (B − ℓ_i)/λ,  v = min(1, B/λ): at most 1/(eλ)
    inner_x  ∇_x h_i = (h_i/λ)∇ℓ_i, of norm at most ‖∇ℓ_i‖/λ: only a clip bounds it

h̄ ≥ e^{−B/λ} for all records, and a noisy h̄ is raised to this bound before a division. If e^{−B/λ₀} is below 10⁻⁶, the
noise of any useful budget exceeds the mean of fewer than a million records, and the strength raises InputError.

λ stays in [λ₀, max(λ₀, B/√(8ρ))] and starts at the upper end, where h̄ is largest. A best λ is in this interval: for
p ∝ e^{ℓ/λ}, ∂_λΨ = ρ − KL(p, 1/n), and KL = ∫_0^{1/λ} b Var_b(ℓ) db ≤ B²/(8λ²), because a variance within [0, B] is at
most B²/4.

problem.loss: cross_entropy (default for classes), logistic (two classes) or squared (default for numbers).

The metrics are objective = Ψ(x, λ) as published; primal = min_λ Ψ(x, λ), and best_strength, its λ; gradient_norm, the
norm of (∇_xΨ, ∂_λΨ) at the published (x, λ), without a ∂_λΨ that points out of λ ≥ λ₀; the mean loss, and robust_loss,
the worst mean max Σ p_i ℓ_i over KL(p, 1/n) ≤ ρ; and, for classes, test_accuracy, test_f1 and
test_worst_class_accuracy. All losses are clipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import scipy
from numpy.typing import NDArray
from typing_extensions import Doc

from decentral_dp.bounded import Array
from decentral_dp.central.problems.composite import Composite, Labelled, Values
from decentral_dp.central.problems.losses import Cap, Capped, CappedObjective, Loss, Strength, bisect, capped_loss
from decentral_dp.central.problems.saddle import PublicBall, Scores
from decentral_dp.errors import InputError
from decentral_dp.exchange import ClippedQuery
from decentral_dp.files.tables import Positive
from decentral_dp.formatting import least_text
from decentral_dp.models.build import Model
from decentral_dp.problems.entry import ModelChoice, ProblemEntry, ProblemFacts

# Smallest lower bound on h̄.
LEAST_MEAN = 1e-6
# Term → term of a composite problem with f = h.
_TERMS = {"inner": "inner", "inner_x": "grad_x", "inner_y": "grad_y"}


@dataclass(frozen=True)
class Inner(CappedObjective):
    """Objective h = exp((ℓ − shift)/λ): grad_x is ∇_x h, grad_y is ∂_λ h, and "inner" is h.

    Args:
        loss: loss ℓ, capped at B.
        lowest: smallest λ.
        highest: largest λ.
        shift: shift of the losses, which is B for all releases.
    """

    lowest: float
    highest: float
    shift: float

    @property
    def statistics(self) -> Mapping[str, int]:
        return {"inner": 1}

    @property
    def start(self) -> Mapping[str, Array]:
        return {"extra": np.zeros(0), "y": np.array([self.highest])}

    def project_y(self, y: Array) -> Array:
        return np.asarray(np.clip(y, self.lowest, self.highest))

    def slopes(self, outputs: Array, extra: Array, y: Array, labels: Array) -> Values:
        losses, slopes = self.loss.slopes(outputs, labels)
        u = (self.shift - losses[:, None]) / y[0]
        h = np.exp(-u)
        return Values(h / y[0] * slopes, np.zeros((len(labels), 0)), u * h / y[0])

    def statistic(self, term: str, outputs: Array, extra: Array, y: Array, labels: Array) -> Array:
        return np.asarray(np.exp((self.loss.values(outputs, labels)[:, None] - self.shift) / y[0]))

    def public_ball(self, term: str, extra: Array, y: Array) -> PublicBall | None:
        low, high = self.interval(term, y)
        return PublicBall(np.array([0.5 * (low + high)]), 0.5 * (high - low))

    def interval(self, term: str, y: Array) -> tuple[float, float]:
        """Return the interval that contains this term of every record at y, (q,)."""
        largest = self.loss.cap / float(y[0])
        peak = min(1.0, largest)
        return (math.exp(-largest), 1.0) if term == "inner" else (0.0, peak * math.exp(-peak) / float(y[0]))

    def scores(self, outputs: Array, extra: Array, y: Array, labels: Array, gradient: object) -> Scores:
        return {}


@dataclass(frozen=True)
class KlDro(Composite):
    """Problem of h on the outputs of a model, with additional terms.

    Args:
        model: model whose outputs h reads.
        objective: objective h.
        radius: radius ρ.
    """

    objective: Inner
    radius: float

    @property
    def loss(self) -> Capped:
        return self.objective.loss

    @property
    def terms(self) -> Mapping[str, bool]:
        return dict.fromkeys(_TERMS, True)

    def width(self, term: str) -> int:
        return super().width(_TERMS.get(term, term))

    def public_ball(self, term: str, x: Array, y: Array) -> PublicBall | None:
        return super().public_ball(_TERMS[term], x, y)

    def public(self, term: str, x: Array, y: Array, round: int) -> Array:
        return np.zeros(self.width(term))

    def outer(self, y: Array, inner: Array, inner_x: Array, inner_y: Array) -> tuple[Array, Array]:
        """Compute ∇_xΨ (p,) and −∂_λΨ (1,) from the means of the terms, or from estimates of the means.

        Values outside the interval that contains every mean are clipped to it.
        """
        h, by_strength = (
            np.clip(mean, *self.objective.interval(term, y)) for term, mean in (("inner", inner), ("inner_y", inner_y))
        )
        of_h = y / h
        return of_h * inner_x, -(np.log(h) + self.radius + of_h * by_strength)

    def sums(
        self, records: Labelled, queries: Sequence[ClippedQuery], is_drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        return super().sums(records, [q._replace(term=_TERMS.get(q.term, q.term)) for q in queries], is_drawn)

    def scores(self, x: Array, y: Array, train: Labelled, test: Labelled | None) -> Scores:
        losses, strength = self._losses(x, train), float(y[0])
        best = self.best(losses)
        by_x, by_strength = self.gradient(x, strength, train)
        if strength <= self.objective.lowest:
            by_strength = min(by_strength, 0.0)
        out = {
            "primal": self.value(losses, best),
            "gradient_norm": math.hypot(float(np.linalg.norm(by_x)), by_strength),
            "objective": self.value(losses, strength),
            "best_strength": best,
            "loss": float(losses.mean()),
            "robust_loss": self.robust(losses),
        }
        if test is not None:
            scores = self.objective.test_scores(self._outputs(x, test), test.labels)
            out |= {f"test_{name}": value for name, value in scores.items()}
            out["test_robust_loss"] = self.robust(self._losses(x, test))
        return out

    def value(self, losses: Array, strength: float) -> float:
        """Compute Ψ for losses (n,) at λ."""
        return strength * (float(scipy.special.logsumexp(losses / strength)) - math.log(len(losses)) + self.radius)

    def best(self, losses: Array) -> float:
        """Compute the λ that minimises Ψ for losses (n,).

        At this λ, KL(p, 1/n) = ρ for p ∝ e^{ℓ/λ}. The result is λ₀ if the divergence is less at λ₀.
        """
        return self._level(losses, self.objective.lowest)

    def robust(self, losses: Array) -> float:
        """Compute max Σ p_i ℓ_i over KL(p, 1/n) ≤ ρ for losses (n,)."""
        level = self._level(losses, 0.0)
        return float(losses.max()) if level == 0.0 else float(_tilt(losses, level) @ losses)

    def _level(self, losses: Array, lowest: float) -> float:
        """Compute the least λ ≥ lowest with KL(p, 1/n) ≤ ρ, by bisection."""
        if lowest > 0.0 and _spread(losses, lowest) <= self.radius:
            return lowest
        if lowest == 0.0 and math.log(len(losses) / np.count_nonzero(losses == losses.max())) <= self.radius:
            return 0.0
        return bisect(lambda strength: _spread(losses, strength) > self.radius, lowest, self.objective.highest)

    def gradient(self, x: Array, strength: float, records: Labelled) -> tuple[Array, float]:
        """Compute (∇_xΨ (p,), ∂_λΨ) on all these records."""
        # With the largest loss as shift, h̄ is at least 1/n at every λ; Ψ is the same.
        shift = float(self._losses(x, records).max())
        y = np.array([strength])
        query = [ClippedQuery(term, x, y, np.inf) for term in ("inner", "grad_x", "grad_y")]
        h, by_x, by_strength = replace(self, objective=replace(self.objective, shift=shift)).sums(records, query)
        of_h = strength / h[0]
        return of_h * by_x, math.log(h[0] / len(records.labels)) + self.radius + float(of_h * by_strength[0])

    def _losses(self, x: Array, records: Labelled) -> Array:
        return self.loss.apply_cap(self.record_losses(x, records))


def kl_robust(model: Model, loss: Capped, strength: float, radius: float) -> KlDro:
    """Build the problem from a model, the capped loss ℓ, λ₀ and ρ. A best λ is at most max(λ₀, B/√(8ρ))."""
    highest = max(strength, loss.cap / math.sqrt(8.0 * radius))
    return KlDro(model, Inner(loss, strength, highest, loss.cap), radius)


def _tilt(losses: Array, strength: float) -> Array:
    """Compute p ∝ e^{ℓ/λ}."""
    powers = np.exp((losses - losses.max()) / strength)
    return np.asarray(powers / powers.sum())


def _spread(losses: Array, strength: float) -> float:
    """Compute KL(p, 1/n) of p ∝ e^{ℓ/λ}."""
    weights = _tilt(losses, strength)
    return math.log(len(losses)) - float(np.sum(scipy.special.entr(weights)))


def kl_dro(
    facts: ProblemFacts,
    strength: Strength,
    radius: Annotated[Positive, Doc("Radius of the KL ball around the distribution of the records.")],
    cap: Cap,
    loss: Loss | None = None,
    model: ModelChoice | None = None,
) -> KlDro:
    """Build the problem from the keys of a scenario. Raises InputError if a key is invalid."""
    bounded_loss, reach = capped_loss(loss, cap, facts.n_classes), -math.log(LEAST_MEAN)
    if cap > reach * strength:
        raise InputError(
            f"problem.strength: too small for the cap {cap:g}: the denominator of kl_dro could be "
            f"exp(−{cap / strength:.3g}), below any noise (got {strength:g}, expected at least "
            f"{least_text(cap / reach)}). Fix: increase it, or lower the cap."
        )
    return kl_robust(facts.model(bounded_loss.loss.outputs, model), bounded_loss, strength, radius)


ENTRY = ProblemEntry(
    "kl_dro",
    kl_dro,
    "the worst mean loss over distributions in a KL ball around that of the records, in compositional form",
    task="trained a model that is robust to a shift of its records",
)
