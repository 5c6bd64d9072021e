"""The first sweep over a budget: x stays where the steps of y and z are stable, and no run diverges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.participants import LocalDataset
from decentral_dp.problems.bilevel.linear import (
    LogisticHyperparameter,
    SoftmaxHyperparameter,
    logistic_regularisation,
    ridge_hyperparameter,
    ridge_regularisation,
)

MAIN = "ring_breast_cancer"


def _run(epsilon: float, seed: int, *more: str) -> decentral_dp.Run:
    changes = [f"privacy.epsilon={epsilon}", f"seed={seed}", "run.evaluate_every=150", *more]
    return decentral_dp.run(load(MAIN, changes))


def test_without_the_bound_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalDataset, "within_steps", lambda self, x, step: x)
    assert _run(1.0, 1).result.status == "diverged"


@pytest.mark.parametrize(
    "make",
    [
        lambda: LogisticHyperparameter(3),
        lambda: SoftmaxHyperparameter(3, (0.0, 1.0, 2.0)),
        lambda: ridge_hyperparameter(3),
        lambda: ridge_regularisation(3),
        lambda: logistic_regularisation(3, (-1.0, 1.0)),
    ],
    ids=["logistic", "softmax", "ridge", "one ridge", "one strength"],
)
@pytest.mark.parametrize("curvature", [0.03, 1.0, 40.0])
def test_the_largest_x_is_where_the_regulariser_curves_that_much(make: Callable[[], Any], curvature: float) -> None:
    problem = make()
    assert hasattr(problem, "largest_x")
    x = np.full((1, problem.p), problem.largest_x(curvature))
    at = np.random.default_rng(1).normal(size=(1, problem.q))
    # ∇²_yy R column by column, from differences of its gradient, which is linear in y.
    columns = [
        (problem.regulariser(x, at + e, at).grad_y - problem.regulariser(x, at, at).grad_y)[0]
        for e in np.eye(problem.q)
    ]
    assert np.linalg.eigvalsh(np.array(columns)).max() == pytest.approx(curvature, rel=1e-9)
