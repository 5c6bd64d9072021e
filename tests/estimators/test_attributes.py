"""Attributes of an estimator that differ between two data sets are released values, and no statistics of records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.central.estimators import PrivateAUCClassifier, PrivateLogisticRegressionCV
from decentral_dp.central.tuner import tune
from decentral_dp.estimators import DecentralisedClassifier, DecentralisedRegressor
from tests.support.leaves import differing, leaves

N, D = 80, 3
# Estimator → its parameters, and the places that hold functions of released values, which ε covers: noise of a tuned
# weight is drawn, and recorded, at the weight that the step before released.
LINEAR = {"coef_", "intercept_"}
TRAINED = LINEAR | {"model_.published"}
SCALES = {
    f"ledger_.channels.{k}.{part}" for k in (0, 1) for part in ("scale", "sensitivity.train", "sensitivity.validation")
}
ESTIMATORS: dict[Any, tuple[dict[str, Any], set[str]]] = {
    DecentralisedClassifier: ({"classes": (0, 1), "rounds": 5, "data_range": (-1.0, 1.0)}, TRAINED),
    DecentralisedRegressor: ({"label_range": (0.0, 1.0), "rounds": 5, "data_range": (-1.0, 1.0)}, TRAINED),
    PrivateLogisticRegressionCV: ({"classes": (0, 1)}, LINEAR | {"weight_", "path_", *SCALES}),
    PrivateAUCClassifier: ({"classes": (0, 1)}, LINEAR),
}


def records(world: int) -> tuple[Any, Any]:
    """Features and labels that share nothing with those of the other world but their number."""
    draw = np.random.default_rng(world)
    return draw.uniform(-1.0, 0.0, (N, D)) + world, (np.arange(N) % 8 == 0).astype(np.int64) ^ world


def attributes(kind: Any, parameters: dict[str, Any], world: int) -> dict[str, Any]:
    """Return all attributes of a fit."""
    fitted = kind(epsilon=1.0, random_state=3, **parameters).fit(*records(world))
    return dict(leaves(vars(fitted), "fitted"))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_only_released_values_follow_records(kind: Any) -> None:
    parameters, released = ESTIMATORS[kind]
    one, other = (attributes(kind, parameters, world) for world in (0, 1))
    places = {place.removeprefix("fitted.") for place in differing(one, other)}
    assert "coef_" in places
    assert places <= released


def test_only_released_values_of_a_tuned_model_follow_records() -> None:
    def tuned(world: int) -> dict[str, Any]:
        fixed = {"epsilon": 1.0, "delta": 1e-6, "weight_range": (0.1, 1.0), "steps": 3, "seed": 1}
        return dict(leaves(tune(train=records(world), validation=records(world), **fixed), "tuned"))

    places = {place.removeprefix("tuned.") for place in differing(tuned(0), tuned(1))}
    assert "model" in places
    assert places <= {"weight", "model", "path", *(place.replace("ledger_", "ledger") for place in SCALES)}
