"""Budgets of estimators: searches, cross-validation, and refits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

from decentral_dp import Budget, InputError
from decentral_dp.central.estimators import PrivateAUCClassifier, PrivateLogisticRegressionCV
from decentral_dp.estimators import DecentralisedClassifier, DecentralisedRegressor, PrivacyWarning

RNG = np.random.default_rng(11)
X = RNG.uniform(-1, 1, size=(300, 3))
Y = (X[:, 0] > 0).astype(int)
USUAL: dict[str, Any] = {"rounds": 4, "epsilon": 1.0, "delta": 1e-5, "agents": 3, "classes": (0, 1)}


def test_a_search_draws_every_fit_from_one_budget() -> None:
    budget = Budget(3.0, 1e-5, dataset="records")
    search = GridSearchCV(
        DecentralisedClassifier(**USUAL, budget=budget), {"l2": [0.0, 0.1]}, cv=2, error_score="raise"
    )
    search.fit(X, Y)
    # Two candidates on two folds, and the refit: ε of five runs of ε = 1 is about √5.
    with pytest.raises(InputError, match=r"spent by 5 runs"):
        DecentralisedClassifier(**USUAL | {"epsilon": 2.0}, budget=budget).fit(X, Y)
    small = Budget(1.5, 1e-5, dataset="records")
    with pytest.raises(InputError, match="exceeds the budget"):
        cross_val_score(DecentralisedClassifier(**USUAL, budget=small), X, Y, cv=3, error_score="raise")


def test_a_refit_without_a_budget_warns_of_the_sum() -> None:
    model = DecentralisedClassifier(**USUAL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, Y)
    with pytest.warns(PrivacyWarning, match=r"2 fits .* epsilon = [12]\.\d+, delta = 2e-05 together"):
        model.fit(X[::-1], Y[::-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A seed makes a simulation, and a budget composes.
        DecentralisedClassifier(**USUAL, random_state=1).fit(X, Y)
        DecentralisedClassifier(**USUAL, budget=Budget(1.0, 1e-5)).fit(X, Y)
    with pytest.warns(PrivacyWarning, match="3 fits"):
        model.fit(X[1:], Y[1:])


def test_a_search_without_a_budget_warns_of_the_record_in_most_fits() -> None:
    features = np.random.default_rng(12).uniform(-1, 1, size=(300, 3))
    model = DecentralisedClassifier(**USUAL)
    with pytest.warns(PrivacyWarning) as warned:
        cross_val_score(model, features, Y, cv=3, error_score="raise")
    # Two of three folds are in every fit, so each record is in two fits.
    assert [str(w.message)[:6] for w in warned] == ["2 fits", "2 fits"]
    with pytest.warns(PrivacyWarning) as warned:
        GridSearchCV(model, {"l2": [0.0, 0.1]}, cv=2, error_score="raise").fit(features, Y)
    # Two candidates on the fold of a record, and the refit.
    assert "5 fits on these records, or on some of them, cost epsilon = 5.00, delta = 5e-05" in str(warned[-1].message)


@pytest.mark.parametrize(
    "model", [PrivateAUCClassifier(rounds=2, classes=(0, 1)), PrivateLogisticRegressionCV(steps=2, classes=(0, 1))]
)
def test_fits_of_one_trusted_server_are_counted_too(model: Any) -> None:
    features = np.random.default_rng(13 + len(type(model).__name__)).uniform(-1, 1, size=(200, 3))
    with pytest.warns(
        PrivacyWarning, match=r"^2 fits .* epsilon = 2\.00, .*Fix: choose parameters without these records"
    ):
        cross_val_score(model, features, Y[:200], cv=3, error_score="raise")


def test_both_estimators_share_the_account_of_their_records() -> None:
    budget = Budget(1.2, 1e-5)
    DecentralisedClassifier(**USUAL, budget=budget, data_range=(-2, 2)).fit(X, Y)
    others = {key: value for key, value in USUAL.items() if key != "classes"}
    with pytest.raises(InputError, match="exceeds the budget"):
        DecentralisedRegressor(**others, label_range=(0, 1), budget=budget).fit(X, Y)
