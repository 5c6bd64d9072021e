"""Classifiers with the API of scikit-learn: its checks, their releases and privacy costs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import check_estimator

import decentral_dp
from decentral_dp.central.estimators import PrivateAUCClassifier, PrivateLogisticRegressionCV
from decentral_dp.config.arrays import PrivacyWarning, ScaleWarning
from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import InputError

BOTH = [PrivateLogisticRegressionCV, PrivateAUCClassifier]


def records(n: int = 2000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(n, 4)) / 4
    return features, np.where(features @ np.ones(4) + 0.1 * draw.normal(size=n) > 0.1, "yes", "no")


# Checks that scikit-learn skips, and why.
SKIPPED = {
    "check_array_api_input": "only numpy's arrays are read",
    "check_pipeline_consistency": "noise is drawn afresh without a seed",
}


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("kind", BOTH)
def test_passes_scikit_learn_checks(kind: Any, seed: int | None) -> None:
    with warnings.catch_warnings():
        # The checks declare no classes.
        warnings.simplefilter("ignore")
        results = check_estimator(kind(random_state=seed), on_fail=None, on_skip=None)
    assert len(results) > 40
    assert [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")] == []
    left_out = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert left_out <= set(SKIPPED) - ({"check_pipeline_consistency"} if seed is not None else set())


@pytest.mark.parametrize("kind", BOTH)
def test_accuracy_and_epsilon(kind: Any) -> None:
    features, labels = records()
    model = kind(epsilon=3.0, delta=1e-6, classes=("no", "yes"), random_state=2).fit(features, labels)
    assert roc_auc_score(labels == "yes", model.decision_function(features)) > 0.9
    assert model.score(features, labels) > 0.8
    assert 2.9 < model.epsilon_ <= 3.0
    assert (model.delta_, model.classes_.tolist(), model.coef_.shape) == (1e-6, ["no", "yes"], (1, 4))
    assert len(model.ledger_.to_frame()) > 0
    assert "replacing one of" in model.statement_
    assert "simulation" in model.statement_
    assert "inferred from y" not in model.statement_
    probabilities = model.predict_proba(features)
    assert np.allclose(probabilities.sum(axis=1), 1.0)
    assert np.array_equal(probabilities[:, 1] > 0.5, model.predict(features) == "yes")
    assert np.allclose(model.decision_function(features), np.log(probabilities[:, 1] / probabilities[:, 0]))


@pytest.mark.parametrize("kind", BOTH)
def test_undeclared_classes_are_reported(kind: Any) -> None:
    features, labels = records(200)
    with pytest.warns(PrivacyWarning, match="ε"):
        model = kind(random_state=0).fit(features, labels)
    assert model.statement_.startswith("Apart from the names of the classes, which were inferred from y: ")
    for classes in (("no", "maybe"), 3, ("yes",), ("no", "no"), ("no", "yes", "maybe")):
        with pytest.raises(InputError, match="classes"):
            kind(classes=classes).fit(features, labels)
    # A declared class may have no records.
    alone = kind(classes=("no", "yes"), random_state=0).fit(features, np.full(200, "no"))
    assert alone.classes_.tolist() == ["no", "yes"]


def test_regression_matches_tune() -> None:
    features, labels = records(300)
    features[:3] *= 100.0
    model = PrivateLogisticRegressionCV(
        epsilon=2.0,
        classes=("no", "yes"),
        random_state=4,
        validation=0.25,
        fit_intercept=False,
        weight_range=(0.1, 2.0),
    ).fit(features, labels)
    order, signs = public_generator(4, "validation").permutation(300), np.where(labels == "yes", 1.0, -1.0)
    shortened = model._score_rows(features)
    train, validation = ((shortened[part], signs[part]) for part in (order[75:], order[:75]))
    tuned = decentral_dp.tune(
        train=train, validation=validation, epsilon=2.0, delta=1e-5, weight_range=(0.1, 2.0), seed=4
    )
    assert np.array_equal(model.coef_[0], tuned.model)
    assert (model.weight_, model.intercept_[0]) == (tuned.weight, 0.0)
    assert model.statement_.startswith(tuned.statement)
    # Records beyond the radius are projected before scoring.
    assert np.linalg.norm(shortened, axis=1).max() <= 1.0
    assert np.allclose(model.decision_function(features), shortened @ tuned.model)


def test_positive_share_is_public_or_released() -> None:
    features, labels = records(300)
    usual = {"classes": ("no", "yes"), "random_state": 1, "rounds": 5}
    model = PrivateAUCClassifier(positive_share="released", **usual).fit(features, labels)
    assert model.epsilon_ <= 1.0
    with pytest.raises(InputError, match="positive_share: got"):
        PrivateAUCClassifier(positive_share="empirical", **usual).fit(features, labels)


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (PrivateLogisticRegressionCV(validation=1.0), "validation"),
        (PrivateLogisticRegressionCV(radius=0.0), "radius"),
        (PrivateLogisticRegressionCV(epsilon=-1.0), "epsilon"),
        (PrivateAUCClassifier(rounds=0), "rounds"),
        (PrivateAUCClassifier(step="far"), "^step: got"),
        (PrivateAUCClassifier(epsilon=-1.0), "epsilon"),
        (PrivateAUCClassifier(random_state=-3), "random_state: got -3"),
        (PrivateAUCClassifier(random_state="a"), "random_state: got 'a'"),
    ],
)
def test_fit_refuses_invalid_parameters(model: Any, key: str) -> None:
    features, labels = records(40)
    with pytest.raises(InputError, match=key):
        model.set_params(classes=("no", "yes")).fit(features, labels)
    with pytest.raises(TypeError, match="sample_weight"):
        model.fit(features, labels, sample_weight=np.ones(40))


@pytest.mark.parametrize("kind", BOTH)
def test_unscaled_columns_warn(kind: Any) -> None:
    features, labels = records(n=300)
    raw = features * np.array([1.0, 1.0, 1000.0, 1.0])
    model = kind(classes=("no", "yes"), random_state=1)
    with pytest.warns(ScaleWarning, match=r"column 2 outweighs the others.*2\*\(X - low\)/\(high - low\) - 1"):
        model.fit(raw, labels)
    with pytest.warns(ScaleWarning, match="'income' outweighs"):
        model.fit(pd.DataFrame(raw, columns=["age", "hours", "income", "years"]), labels)
    with pytest.warns(ScaleWarning):
        model.fit(features * 100.0, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(features, labels)


@pytest.mark.parametrize("kind", BOTH)
def test_warnings_are_excluded_from_the_statement(kind: Any) -> None:
    features, labels = records(n=60)
    model = kind(classes=("no", "yes"), random_state=1)
    statement = model.fit(features, labels).statement_
    with pytest.raises(ValueError, match="infinity"):
        model.fit(np.where(np.arange(60)[:, None] == 7, np.inf, features), labels)
    with pytest.raises(InputError, match="not one of `classes`"):
        model.fit(features, np.where(np.arange(60) == 7, "maybe", labels))
    with pytest.warns(ScaleWarning):
        model.fit(features * 1000.0, labels)
    for words in ("Not covered", "not finite", "not one of the classes", "not scaled"):
        assert words in statement
    assert not hasattr(model, "run_")
