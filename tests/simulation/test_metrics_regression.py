"""Scores of problems with numeric labels, in the unit of the labels, and the mean-label baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.constants import family_of
from decentral_dp.data.dataset import Dataset
from decentral_dp.data.shards import make_shards
from decentral_dp.errors import InputError
from decentral_dp.problems.bilevel.linear import Quadratic, ridge_hyperparameter, ridge_regularisation
from decentral_dp.simulation.jobs.build import build_job

RANGE = (-50.0, 150.0)


def records(n: int = 120, seed: int = 0) -> dict[str, Any]:
    """Return records with labels that are linear in the features, and a mean that is not the middle of the range."""
    draw = np.random.default_rng(seed)
    features = draw.uniform(-1.0, 1.0, (n, 3))
    labels = 70.0 + features @ np.array([20.0, -10.0, 5.0]) + draw.normal(0.0, 2.0, n)
    return {
        "features": features,
        "labels": labels,
        "classes": [],
        "split": np.resize(["train", "validation", "test"], n),
    }


def scenario(**problem: Any) -> dict[str, Any]:
    table = {"kind": "ridge_hyperparameter", "data": "breast_cancer", "classes": [], "intercept": True}
    return {
        "seed": 1,
        "problem": {**table, "label_range": list(RANGE), **problem},
        "topology": {"kind": "complete", "agents": 2},
        "algorithm": {
            "kind": "ldp_dsbo",
            "rounds": 400,
            **{"x": {"scale": 0.1}, "y": {"scale": 0.3}, "z": {"scale": 0.1}},
            "init": {"x": -9.0},
        },
        "privacy": {"guarantee": "none"},
        "run": {"evaluate_every": 400},
    }


def test_errors_are_in_the_unit_of_the_label_and_stand_beside_those_of_the_mean() -> None:
    data = records()
    run = decentral_dp.run(scenario(), data=data)
    held_out = data["labels"][data["split"] == "test"]
    known = data["labels"][data["split"] != "test"]
    metrics, baselines = run.result.metrics, run.result.baselines
    assert baselines["test_rmse"] == pytest.approx(np.sqrt(np.mean((held_out - known.mean()) ** 2)), rel=1e-9)
    assert baselines["test_r2"] == pytest.approx(1.0 - baselines["test_rmse"] ** 2 / held_out.var(), rel=1e-9)
    # The noise in the labels has a deviation of 2.
    assert 1.5 < metrics["test_rmse"] < 3.0 < 9.0 < baselines["test_rmse"]
    assert metrics["test_r2"] > 0.9 > 0.1 > baselines["test_r2"]
    # Agents differ a little, so that the mean of squares is not the square of the mean.
    assert metrics["test_r2"] == pytest.approx(1.0 - metrics["test_rmse"] ** 2 / held_out.var(), abs=1e-4)
    assert metrics["test_loss"] == pytest.approx(0.5 * (metrics["test_rmse"] / 100.0) ** 2, rel=1e-2)


def test_equal_labels_have_no_explained_variance() -> None:
    data = records()
    run = decentral_dp.run(scenario(), data={**data, "labels": np.full(120, 50.0)})
    assert "test_r2" not in run.result.metrics
    assert run.result.baselines == {"test_rmse": 0.0}


def test_a_replaced_label_changes_no_other_scaled_label() -> None:
    data = records(30)

    def scaled(labels: np.ndarray) -> np.ndarray:
        made = Dataset(data["features"], labels, (), ("a", "b", "c"), "made up")
        return make_shards(made, 2, seed=0, label_range=RANGE).labels

    other = data["labels"].copy()
    other[4] = 1e9
    assert np.flatnonzero(scaled(other) != scaled(data["labels"])).tolist() == [4]


def test_a_coordinator_takes_the_range_for_its_bound() -> None:
    content = decentral_dp.load("exponential_mechanism").model_dump(exclude_unset=True)
    own = {"kind": "ridge_regularisation", "classes": [], "normalise": "l2", "data": "breast_cancer", "scale": "none"}
    ranged = build_job({**content, "problem": {**own, "label_range": list(RANGE)}}, data=records())
    assert ranged.context.family.loss.label_bound == 1.0
    with pytest.raises(InputError, match="label_range: missing"):
        build_job({**content, "problem": own}, data=records())


@pytest.mark.parametrize("make", [ridge_hyperparameter, ridge_regularisation, lambda n, i: Quadratic(n, 0.1, i)])
def test_an_intercept_is_a_last_feature_of_one(make: Any) -> None:
    """Terms are those of records that have the feature already; a family knows that they are longer."""
    from decentral_dp.privacy.clipping import Clip

    draw = np.random.default_rng(1)
    features, labels = draw.normal(size=(9, 3)), draw.normal(size=9)
    with_one = np.concatenate([features, np.ones((9, 1))], axis=1)
    short, long = make(3, True), make(4, False)
    assert (short.p, short.q) == (long.p, long.q)
    x, y, z = draw.normal(size=short.p), draw.normal(size=4), draw.normal(size=4)
    clip = Clip("l2", y=0.7, z=0.7)
    own, same = short.prepare(features, labels, "l2"), long.prepare(with_one, labels, "l2")
    for found, wanted in zip(short.terms(x, y, z, own, own, clip), long.terms(x, y, z, same, same, clip), strict=True):
        assert (found is None and wanted is None) or np.array_equal(found, wanted)
    lengthened = family_of(long, np.sqrt(2.0), 1.0).loss.gradient(1.0)
    assert family_of(short, 1.0, 1.0).loss.gradient(1.0) == pytest.approx(lengthened, rel=1e-15)
