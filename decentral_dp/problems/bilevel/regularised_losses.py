"""The per-record losses of one problem under another regulariser.

    biased_regularisation    logistic or softmax loss,   R(x, y) = ½ ridge ‖y − x‖²       x: the point to stay near
    ridge_hyperparameter     least squares,              R(x, y) = ½ Σ_s exp(x_s) y_s²    x: one strength per feature
    logistic_regularisation  logistic loss,              R(x, y) = ½ exp(x) ‖y‖²          x: one strength for all, p = 1
    ridge_regularisation     least squares,              R(x, y) = ½ exp(x) ‖y‖²          x: one strength for all, p = 1

No lower loss uses x, so nothing of x touches a record: its channel is free.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from decentral_dp.bounded import Array, LipschitzConstants, Norm, Split
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.penalties import (
    Intercept,
    Penalty,
    Pull,
    Ridge,
    SharedStrength,
    Strengths,
    check_ridge,
)
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter
from decentral_dp.problems.entry import Entry
from decentral_dp.problems.protocol import Predicting, Predictor, Regulariser, StackedProblem, Terms


@dataclass(frozen=True)
class Regularised(StackedProblem):
    """The losses of `model`, which must not use x, with R = `penalty` in place of its own regulariser."""

    name: str
    model: StackedProblem
    penalty: Penalty

    @property
    def p(self) -> int:
        return self.penalty.uppers(self.model.q)

    @property
    def q(self) -> int:
        return self.model.q

    @property
    def reads_records(self) -> Mapping[str, Split]:
        return self.model.reads_records

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Any:
        """As the model's. Raises InputError."""
        return self.model.prepare(features, labels, norm)

    def stacked_terms(self, x: Array, y: Array, z: Array, records: Any, clip: Clip, wanted: Collection[str]) -> Terms:
        return self.model.stacked_terms(x, y, z, records, clip, wanted)

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: Any, clip: Clip, wanted: Collection[str]
    ) -> dict[str, Array]:
        return self.model.matrices(x, y, matrix, train, clip, wanted)

    def largest_x(self, curvature: float) -> float:
        return self.penalty.largest_x(curvature)

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        return self.penalty.terms(x, y, z)

    def regulariser_value(self, x: Array, y: Array) -> Array:
        return self.penalty.value(x, y)

    def losses(self, x: Array, y: Array, records: Any, weights: Array) -> tuple[Array, Array]:
        return self.model.losses(x, y, records, weights)

    def accuracy(self, x: Array, y: Array, records: Any) -> Array | None:
        return self.model.accuracy(x, y, records)

    def regression_scores(self, x: Array, y: Array, records: Any) -> Mapping[str, Array]:
        return self.model.regression_scores(x, y, records) if isinstance(self.model, Predicting) else {}

    @property
    def words(self) -> str:
        return self._predictor.words

    def predict(self, y: Array, features: Array) -> Array:
        return self._predictor.predict(y, features)

    def named(self, y: Array) -> dict[str, Array]:
        return self._predictor.named(y)

    @property
    def _predictor(self) -> Predictor:
        return cast(Predictor, self.model)

    def constants(self, box: Mapping[str, float], radius: float | None) -> LipschitzConstants | None:
        """The model's for its records, which do not hang on x, and the penalty's; None where either has none."""
        of_records = self.model.constants({**box, "x": 0.0}, radius)
        of_penalty = self.penalty.lipschitz(box)
        if of_records is None or of_penalty is None:
            return None
        return replace(of_records, regulariser=of_penalty)


def biased_regularisation(
    n_features: int, classes: Sequence[float], ridge: Ridge = 0.1, intercept: Intercept = False
) -> Regularised:
    """Learn the point x toward which every lower solution is pulled, so that it does well on validation records.

        y*(x) = argmin_y (1/m) Σ_i mean_i loss(y; a, b) + ½ ridge ‖y − x‖²

    with the logistic loss for two classes (q = n_features (+ 1)), else the softmax loss (q = classes × features).
    """
    check_ridge(ridge)
    split = LogisticHyperparameter if len(classes) == 2 else SoftmaxHyperparameter
    model = split.from_dataset(n_features, classes, intercept)
    return Regularised("biased_regularisation", model, Pull(ridge))


def ridge_hyperparameter(n_features: int, intercept: Intercept = False) -> Regularised:
    """Least squares with one regularisation strength per feature, all tuned on validation records; labels are numbers.

    y*(x) = (A + diag exp(x))⁻¹ c     with A = (1/m) Σ_i mean_i a aᵀ and c = (1/m) Σ_i mean_i a b

    intercept → append a constant feature 1, regularised like the others.
    """
    return Regularised("ridge_hyperparameter", Quadratic(n_features, intercept=intercept), Strengths())


def logistic_regularisation(n_features: int, classes: Sequence[float], intercept: Intercept = False) -> Regularised:
    """A logistic regression with one regularisation strength, tuned on validation records: p = 1.

    y*(x) = argmin_y (1/m) Σ_i mean_i log(1 + exp(−b aᵀy)) + ½ exp(x) ‖y‖²

    intercept → append a constant feature 1, regularised like the others.
    """
    model = LogisticHyperparameter.from_dataset(n_features, classes, intercept)
    return Regularised("logistic_regularisation", model, SharedStrength(model.q))


def ridge_regularisation(n_features: int, intercept: Intercept = False) -> Regularised:
    """Least squares with one regularisation strength, tuned on validation records: p = 1; labels are numbers.

    y*(x) = (A + exp(x) I)⁻¹ c     with A = (1/m) Σ_i mean_i a aᵀ and c = (1/m) Σ_i mean_i a b

    intercept → append a constant feature 1, regularised like the others.
    """
    model = Quadratic(n_features, intercept=intercept)
    return Regularised("ridge_regularisation", model, SharedStrength(model.q))


ENTRIES = (
    Entry(
        "biased_regularisation",
        biased_regularisation,
        "the point toward which a logistic or softmax regression is pulled",
        task="tuned the point that a classifier is drawn to",
        lower_task="trained a classifier that is drawn to a given point",
        labels="classes",
    ),
    Entry(
        "logistic_regularisation",
        logistic_regularisation,
        "one regularisation strength for all features of a logistic regression: x is one number",
        task="tuned the regularisation of a logistic regression",
        labels="two",
    ),
    Entry(
        "ridge_hyperparameter",
        ridge_hyperparameter,
        "one regularisation strength per feature of a least-squares regression",
        task="tuned the regularisation of a least-squares fit",
        lower_task="fitted least squares",
        labels="numbers",
    ),
    Entry(
        "ridge_regularisation",
        ridge_regularisation,
        "one regularisation strength for all features of a least-squares regression: x is one number",
        task="tuned the regularisation of a least-squares fit",
        labels="numbers",
    ),
)
