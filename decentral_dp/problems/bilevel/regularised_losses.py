"""The per-record losses of one problem under another regulariser.

    biased_regularisation    logistic or softmax loss,   R(x, y) = ½ ridge ‖y − x‖²       x: the point to stay near
    ridge_hyperparameter     least squares,              R(x, y) = ½ Σ_s exp(x_s) y_s²    x: one strength per feature
    logistic_regularisation  logistic loss,              R(x, y) = ½ exp(x) ‖y‖²          x: one strength for all, p = 1
    ridge_regularisation     least squares,              R(x, y) = ½ exp(x) ‖y‖²          x: one strength for all, p = 1

No lower loss uses x, so nothing of x touches a record: its channel is free.
"""

from __future__ import annotations

from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.penalties import Intercept, Pull, Ridge, Strengths
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter
from decentral_dp.problems.entry import ProblemEntry


def biased_regularisation(
    n_features: int, classes: tuple[float, ...], ridge: Ridge = 0.1, intercept: Intercept = False
) -> LogisticHyperparameter | SoftmaxHyperparameter:
    """Learn the point x toward which every lower solution is pulled, so that it does well on validation records.

        y*(x) = argmin_y (1/m) Σ_i mean_i loss(y; a, b) + ½ ridge ‖y − x‖²

    with the logistic loss for two classes (q = n_features (+ 1)), else the softmax loss (q = classes × features).
    """
    model = LogisticHyperparameter if len(classes) == 2 else SoftmaxHyperparameter
    return model(n_features, classes, intercept, Pull(ridge), "biased_regularisation")


def ridge_hyperparameter(n_features: int, intercept: Intercept = False) -> Quadratic:
    """Least squares with one regularisation strength per feature, all tuned on validation records; labels are numbers.

    y*(x) = (A + diag exp(x))⁻¹ c     with A = (1/m) Σ_i mean_i a aᵀ and c = (1/m) Σ_i mean_i a b

    intercept → append a constant feature 1, regularised like the others.
    """
    return Quadratic(n_features, intercept=intercept, penalty_override=Strengths(), name="ridge_hyperparameter")


def logistic_regularisation(
    n_features: int, classes: tuple[float, ...], intercept: Intercept = False
) -> LogisticHyperparameter:
    """A logistic regression with one regularisation strength, tuned on validation records: p = 1.

    y*(x) = argmin_y (1/m) Σ_i mean_i log(1 + exp(−b aᵀy)) + ½ exp(x) ‖y‖²

    intercept → append a constant feature 1, regularised like the others.
    """
    shared = Strengths(n_features + intercept)
    return LogisticHyperparameter(n_features, classes, intercept, shared, "logistic_regularisation")


def ridge_regularisation(n_features: int, intercept: Intercept = False) -> Quadratic:
    """Least squares with one regularisation strength, tuned on validation records: p = 1; labels are numbers.

    y*(x) = (A + exp(x) I)⁻¹ c     with A = (1/m) Σ_i mean_i a aᵀ and c = (1/m) Σ_i mean_i a b

    intercept → append a constant feature 1, regularised like the others.
    """
    shared = Strengths(n_features + intercept)
    return Quadratic(n_features, intercept=intercept, penalty_override=shared, name="ridge_regularisation")


ENTRIES = (
    ProblemEntry(
        "biased_regularisation",
        biased_regularisation,
        "the point toward which a logistic or softmax regression is pulled",
        task="tuned the point that a classifier is drawn to",
        lower_task="trained a classifier that is drawn to a given point",
        labels="classes",
    ),
    ProblemEntry(
        "logistic_regularisation",
        logistic_regularisation,
        "one regularisation strength for all features of a logistic regression: x is one number",
        task="tuned the regularisation of a logistic regression",
        labels="two",
    ),
    ProblemEntry(
        "ridge_hyperparameter",
        ridge_hyperparameter,
        "one regularisation strength per feature of a least-squares regression",
        task="tuned the regularisation of a least-squares fit",
        lower_task="fitted least squares",
        labels="numbers",
    ),
    ProblemEntry(
        "ridge_regularisation",
        ridge_regularisation,
        "one regularisation strength for all features of a least-squares regression: x is one number",
        task="tuned the regularisation of a least-squares fit",
        labels="numbers",
    ),
)
