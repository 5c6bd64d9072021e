"""Distributionally robust learning under a ψ-divergence: the worst mean of losses, over distributions near the data's.

With a public strength λ, losses ℓ_i cut to [0, B] (problem.cap; see `losses`), and ψ, ψ* and w = (ψ*)' as in
`conjugates`, the problem is that of Xu et al. 2025 (Equation 3), minimised by x and by y = η:

    Φ(x) = max_p Σ_i p_i ℓ_i(x) − λ D(p, 1/n) = min_η F(x, η),       F = mean_i λψ*((ℓ_i − η)/λ) + η
    ∇_x of a record: w_i ∇ℓ_i,  grad_y = −∂F/∂η of a record: w_i − 1,      w_i = w((ℓ_i − η)/λ)

problem.divergence: chi2, kl, kl_cvar (level), cvar (level; it has no strength), cressie_read (order).
problem.loss: cross_entropy (of classes, the default), logistic (of two), squared (of numbers, the default), absolute
or huber.

η stays in [0, B], which loses nothing: w is nondecreasing with 1 between w(0−) and w(0+), so ∂F/∂η = 1 − mean w_i is
at least 0 above all losses and at most 0 below them, and a best η lies among the losses. There every w_i is bounded:
at a released η grad_y lies between w(−η/λ) − 1 and w((B − η)/λ) − 1 for every record whatever, a ball whose centre and
radius are public. A divergence whose weights grow is refused where w(B/λ) exceeds 10⁶, and with it Cressie-Read below
order 1 unless B/λ < 1/(1 − k), where ψ* ends.

η starts at 0, where no record weighs less than it would in a plain mean. The numbers of a run: primal = Φ and
gradient_norm = ‖∇Φ‖ at the best η; loss, the mean; robust_loss, Φ of held-out records; of classes test_accuracy,
test_f1 and test_worst_class_accuracy. All losses are cut. cvar has kinks, and there the gradient is one of many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.central.problems.composite import Composite, Values
from decentral_dp.central.problems.conjugates import DIVERGENCES, PsiDivergence, divergence_of
from decentral_dp.central.problems.losses import Cap, CappedObjective, Loss, Strength, bisect, capped_loss
from decentral_dp.errors import InputError
from decentral_dp.files.tables import Finite, Key, Share
from decentral_dp.formatting import least_text
from decentral_dp.problems.entry import ModelChoice, ProblemEntry, ProblemFacts
from decentral_dp.problems.saddle import PublicBall

# More weight than this, beside 1 on average, is no bound that noise could hide.
LARGEST_WEIGHT = 1e6


@dataclass(frozen=True)
class DroObjective(CappedObjective):
    """loss: ℓ with its cap B. strength: λ."""

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
        """F at η, of these losses (n,)."""
        return float(np.mean(self.strength * self.divergence.conjugate((losses - eta) / self.strength)) + eta)

    def best(self, losses: Array) -> float:
        """The η that minimises F of these losses (n,), by bisection of 1 − mean w among the losses."""
        return bisect(lambda eta: bool(np.mean(self._weights(losses, eta)) > 1.0), losses.min(), losses.max())

    def robust(self, losses: Array) -> float:
        """max_p Σ_i p_i ℓ_i − λ D(p, 1/n) of these losses (n,)."""
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
        return {**self.loss.score(outputs, labels), "robust_loss": robust}

    def _weights(self, losses: Array, eta: float) -> Array:
        return self.divergence.weight((losses - eta) / self.strength)


def dro(
    facts: ProblemFacts,
    divergence: Annotated[str, Key("The divergence between distributions, by name.")],
    cap: Cap,
    order: Annotated[Finite, Key("Order of the divergence, where it has one.")] | None = None,
    level: Annotated[Share, Key("Level of CVaR, above 0 and below 1.")] | None = None,
    strength: Strength | None = None,
    loss: Loss | None = None,
    model: ModelChoice | None = None,
) -> Composite:
    """From the keys of a scenario. Raises InputError."""
    capped = capped_loss(loss, cap, facts.n_classes)
    chosen, takes_strength = divergence_of(divergence, order, level), DIVERGENCES[divergence].strength
    if strength is None and takes_strength:
        raise InputError(f"problem.strength: missing. {divergence} needs it; give for example strength = 1.0.")
    if strength is not None and not takes_strength:
        raise InputError(
            f"problem.strength: {divergence} takes none, for its level alone says how robust. Leave it out."
        )
    if strength is not None and not chosen.weight(np.array(cap / strength)) <= LARGEST_WEIGHT:
        # Where ψ* ends, the weight at the very bound may be lost to rounding.
        least = 1.001 * cap / chosen.reach(LARGEST_WEIGHT)
        raise InputError(
            f"problem.strength: got {strength:g}, but with the cap {cap:g} one record could then weigh more than a "
            f"million times the average of {divergence}. Give at least {least_text(least)}, or lower the cap."
        )
    objective = DroObjective(capped, chosen, 1.0 if strength is None else strength)
    return Composite(facts.model(capped.loss.outputs, model), objective)


ENTRY = ProblemEntry(
    "dro",
    dro,
    "the worst mean loss over distributions near that of the records, by a ψ-divergence and its dual",
    task="trained a model that is robust to a shift of its records",
)
