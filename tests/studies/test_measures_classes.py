"""Measures of probabilities: a study takes those that it names, of problems that take none by default."""

from __future__ import annotations

import math
from typing import Any

import decentral_dp

FEW: dict[str, Any] = {"algorithm.rounds": 4, "run.evaluate_every": 2}
NAMED = ["test_auc", "test_brier_min", "rounds_to_test_f1_0.01", "upper_loss"]


def measured(**changed: Any) -> dict[str, float]:
    study = {"scenario": "ring_breast_cancer", "seeds": [5], "set": FEW | changed, "measure": NAMED}
    found = decentral_dp.study(study, workers=1).results
    return dict(found[found["last"]].set_index("name")["value"])


def test_a_study_takes_what_it_names_beside_what_is_taken_anyway() -> None:
    few, asked = FEW | {"seed": 5}, {"run.measures": ["test_auc", "test_brier"]}
    plain = decentral_dp.run("ring_breast_cancer", set=few).result.metrics
    wanted = decentral_dp.run("ring_breast_cancer", set=few | asked).result.metrics
    found = measured()
    assert found.pop("rounds_to_test_f1_0.01") in (2.0, 4.0)
    assert found == {
        "test_auc": wanted["test_auc"],
        "test_brier_min": wanted["test_brier_min"],
        "upper_loss": plain["upper_loss"],
    }


def test_what_its_scenario_chooses_stays_chosen() -> None:
    found = measured(**{"run.measures": ["test_auc"]})
    assert found.keys() == {"test_auc"}
    assert math.isfinite(found["test_auc"])
