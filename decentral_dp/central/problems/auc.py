"""AUC maximisation by the least-squares surrogate: a classifier that ranks positive records above negative ones.

With h = 1/(1 + exp(−score)) ∈ [0, 1], π the public share of positive records, and margin 1 (Ying, Wen & Lyu 2016; Yuan
et al. 2021, Equation 3),

    f(w, a, b; α; ξ) = (1−π)(h−a)² 1₊ + π(h−b)² 1₋ + 2α(π h 1₋ − (1−π) h 1₊),      r = 2απ(1−π) − π(1−π)α².

If π is the share of positive records, its min over a, b and max over α is π(1−π) E(1 − h₊ + h₋)² for independent
positive and negative records. It is 2π(1−π)-strongly concave in α ∈ [0, 2]. ∂f/∂α = 2t with t = π h 1₋ − (1−π) h 1₊ ∈
[−(1−π), π]: every record lies in a ball of radius 1. argmax_α F = 1 + mean(t)/(π(1−π)) requires a mean whose ball has
radius 1/2.

Accuracy and F1 of held-out records use the threshold that predicts as many positive records as there are.

π is a public constant. If it were counted from the records, one record would change the gradients of all records, and
clipping would not bound the change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import scipy
from typing_extensions import Doc

from decentral_dp.bounded import Array
from decentral_dp.central.problems.composite import Composite, Objective, Values, class_scores, ranking
from decentral_dp.central.problems.saddle import PublicBall
from decentral_dp.files.tables import Share
from decentral_dp.problems.entry import ModelChoice, ProblemEntry, ProblemFacts


@dataclass(frozen=True)
class AucObjective(Objective):
    """The AUC surrogate. Labels are 1 (positive) and 0; the first output of the model is the score.

    Args:
        share: share π of positive records.
    """

    share: float

    extra = 2

    @property
    def statistics(self) -> Mapping[str, int]:
        return {"dual": 1, "positive": 1}

    def with_parameters(self, parameters: Array) -> AucObjective:
        return replace(self, share=float(parameters[0]))

    def project_extra(self, extra: Array) -> Array:
        return np.clip(extra, 0.0, 1.0)

    def project_y(self, y: Array) -> Array:
        return np.clip(y, 0.0, 2.0)

    def slopes(self, outputs: Array, extra: Array, y: Array, labels: Array) -> Values:
        h, positive, p = scipy.special.expit(outputs[:, :1]), labels[:, None] == 1.0, self.share
        a, b = extra
        above, below = np.where(positive, 2.0 * (1.0 - p) * (h - a), 0.0), np.where(positive, 0.0, 2.0 * p * (h - b))
        by_h = above + below + 2.0 * y[0] * np.where(positive, p - 1.0, p)
        by_outputs = np.zeros_like(outputs)
        by_outputs[:, :1] = by_h * h * (1.0 - h)
        return Values(by_outputs, np.concatenate([-above, -below], axis=1), 2.0 * self._t(h, positive))

    def statistic(self, term: str, outputs: Array, extra: Array, y: Array, labels: Array) -> Array:
        positive = labels[:, None] == 1.0
        if term == "positive":
            return np.asarray(positive, dtype=np.float64)
        return self._t(scipy.special.expit(outputs[:, :1]), positive)

    def _t(self, h: Array, positive: Array) -> Array:
        return np.where(positive, (self.share - 1.0) * h, self.share * h)

    def public_ball(self, term: str, extra: Array, y: Array) -> PublicBall | None:
        if term == "positive":
            return PublicBall(np.full(1, 0.5), 0.5)
        half = 1.0 if term == "grad_y" else 0.5
        return PublicBall(np.array([half * (2.0 * self.share - 1.0)]), half)

    def public(self, term: str, extra: Array, y: Array) -> Array:
        spread = 2.0 * self.share * (1.0 - self.share)
        return np.zeros(2) if term == "grad_x" else spread * (1.0 - y)

    def dual(self, statistic: Array) -> Array:
        return self.project_y(1.0 + statistic / (self.share * (1.0 - self.share)))

    def scores(
        self, outputs: Array, extra: Array, y: Array, labels: Array, gradient: Callable[[Array], float]
    ) -> Mapping[str, float]:
        h, positive, p = scipy.special.expit(outputs[:, :1]), labels[:, None] == 1.0, self.share
        a, b = extra
        best = self.dual(np.mean(self._t(h, positive), axis=0))
        squares = np.where(positive, (1.0 - p) * (h - a) ** 2, p * (h - b) ** 2)
        at_best = squares + 2.0 * best[0] * self._t(h, positive)
        primal = float(at_best.mean() + p * (1.0 - p) * best[0] * (2.0 - best[0]))
        return {"primal": primal, "gradient_norm": gradient(best), **ranking(outputs[:, 0], labels == 1.0)}

    def test_scores(self, outputs: Array, labels: Array) -> Mapping[str, float]:
        """Compute AUC, and accuracy and F1 with the true number of positive predictions.

        Args:
            outputs: outputs of the model, (n, 1).
            labels: labels, (n,).
        """
        count = int((labels == 1.0).sum())
        scores = np.zeros(len(labels))
        scores[np.argsort(-outputs[:, 0], kind="stable")[:count]] = 1.0
        return {**ranking(outputs[:, 0], labels == 1.0), **class_scores(scores, labels)}

    def losses(self, outputs: Array, labels: Array) -> Array:
        """Compute (h − 1)² for positive records and h² for negative records, (n,)."""
        return np.asarray((scipy.special.expit(outputs[:, 0]) - (labels == 1.0)) ** 2)

    def predictions(self, outputs: Array) -> Array:
        """Return 1 − h and h, (n, 2), which rank records but are not calibrated."""
        h = scipy.special.expit(outputs[:, :1])
        return np.concatenate([1.0 - h, h], axis=1)


def auc_maximisation(
    facts: ProblemFacts,
    positive_share: Annotated[
        Share | Literal["released"],
        Doc('Public share of positive records; "released": a noisy one, which spends budget.'),
    ],
    model: ModelChoice | None = None,
) -> Composite:
    """Build the problem of a model, with a placeholder for a released share."""
    return Composite(facts.model(1, model), AucObjective(float(positive_share)))


ENTRY = ProblemEntry(
    "auc_maximisation",
    auc_maximisation,
    "a classifier of two classes by a least-squares surrogate of the AUC",
    task="trained a classifier by its AUC",
    labels="two",
    construction_of={"positive_share": "share"},
)
