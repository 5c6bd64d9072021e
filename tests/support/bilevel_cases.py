"""Provide one small problem of every bilevel kind, for tests of their common guarantees."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from decentral_dp.bounded import Array
from decentral_dp.models.build import ModelTable
from decentral_dp.problems import BILEVEL, ProblemFacts
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.linear import (
    LogisticHyperparameter,
    Quadratic,
    SoftmaxHyperparameter,
    biased_regularisation,
    logistic_regularisation,
    ridge_hyperparameter,
    ridge_regularisation,
)
from decentral_dp.problems.bilevel.losses import from_losses
from decentral_dp.problems.bilevel.means import MeanEstimation, MeanLowerBound
from decentral_dp.problems.bilevel.meta_learning import MetaLearning
from decentral_dp.problems.bilevel.recordwise import recordwise

CLASSES, SIGNS = (0.0, 1.0, 2.0), (-1.0, 1.0)


class Logs:
    """Define custom formulas in numpy, with a matrix product and vectorised functions."""

    def sizes(self, n_features: int, n_classes: int) -> tuple[int, int]:
        return n_features, n_features

    def lower_loss(self, x: Any, y: Any, features: Any, labels: Any) -> Any:
        return np.log1p(np.exp(features @ y - labels)) + np.tanh(features @ x)

    def lower_grad_y(self, x: Any, y: Any, features: Any, labels: Any) -> Any:
        return np.tanh(features @ y - labels)[:, None] * np.sin(features)

    def lower_hvp(self, x: Any, y: Any, z: Any, features: Any, labels: Any) -> Any:
        return np.exp(-np.square(features @ y - labels) * (features @ z))[:, None] * features

    upper_loss, upper_grad_y = lower_loss, lower_grad_y


def _everything(x: Any, y: Any, features: Any, label: Any) -> Any:
    """Every derivative of it, in x and y, depends on the record."""
    return torch.tanh(features @ x) * torch.logaddexp(features @ y - label, y[0]) + (features @ y - label).abs()


def _curved(x: Any, y: Any) -> Any:
    return torch.cos(x.sum() * y[0]) + (y**4).sum() * x[0].exp()


@cache
def problem_of(kind: str, d: int) -> Any:
    """The problem, and its classes; None where labels are numbers."""
    made: dict[str, Any] = {
        "quadratic": lambda: (Quadratic(d, 0.7), None),
        "ridge_hyperparameter": lambda: (ridge_hyperparameter(d), None),
        "ridge_regularisation": lambda: (ridge_regularisation(d, intercept=True), None),
        "logistic_hyperparameter": lambda: (LogisticHyperparameter(d), SIGNS),
        "logistic_hyperparameter, intercept": lambda: (LogisticHyperparameter(d, intercept=True), SIGNS),
        "logistic_regularisation": lambda: (logistic_regularisation(d, SIGNS), SIGNS),
        "biased_regularisation": lambda: (biased_regularisation(d, CLASSES), CLASSES),
        "softmax_hyperparameter": lambda: (SoftmaxHyperparameter(d, CLASSES), CLASSES),
        "softmax_hyperparameter, intercept": lambda: (SoftmaxHyperparameter(d, CLASSES, intercept=True), CLASSES),
        "hyper_cleaning": lambda: (HyperCleaning(d, CLASSES, agents=1, groups=3, corrupt=0.4), CLASSES),
        "mean_estimation": lambda: (MeanEstimation(d, 0.7), None),
        "mean_lower_bound": lambda: (MeanLowerBound(d, ridge=0.7, slope=1.3, stretch=0.6), None),
        "meta_learning": lambda: (MetaLearning.from_dataset(d, 3, ways=2, width=4), CLASSES),
        "meta_learning of images": lambda: (MetaLearning.from_dataset(16, 3, (4, 4, 1), ways=2, width=2), CLASSES),
        "from_losses": lambda: (
            from_losses(_everything, _everything, p=d, q=d, n_features=d, regulariser=_curved),
            None,
        ),
        "classification": lambda: (BILEVEL["classification"].build({}, ProblemFacts(d, 3)), CLASSES),
        "regression": lambda: (BILEVEL["regression"].build({}, ProblemFacts(d, 0)), None),
        "classification by a network": lambda: (
            BILEVEL["classification"].build({"model": ModelTable(kind="mlp", hidden=[5, 4])}, ProblemFacts(d, 3)),
            CLASSES,
        ),
        "recordwise": lambda: (recordwise(Logs(), d, 0, "logs"), None),
    }
    return made[kind]()


KINDS = sorted(
    {
        *BILEVEL,
        "logistic_hyperparameter, intercept",
        "softmax_hyperparameter, intercept",
        "meta_learning of images",
        "classification by a network",
        "recordwise",
    }
)


def raw_records(kind: str, d: int, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Features (n, ·) and labels (n,) of a problem of this kind."""
    _, classes = problem_of(kind, d)
    features = rng.normal(size=(n, 16 if kind.endswith("images") else d))
    return features, rng.normal(size=n) if classes is None else rng.choice(classes, size=n)


def prepared(problem: Any, features: Array, labels: Array, norm: Any) -> Any:
    """Train records in their places."""
    records = problem.prepare(features, labels, norm)
    return problem.place_records(records, 0) if hasattr(problem, "place_records") else records


def point_of(problem: Any, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """x, y and z, near a public start where there is one."""
    start = getattr(problem, "start", {}).get("x", 0.0)
    return start + 0.3 * rng.normal(size=problem.p), rng.normal(size=problem.q), rng.normal(size=problem.q)
