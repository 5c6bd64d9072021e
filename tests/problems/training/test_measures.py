"""Measures of probabilities on held-out records, beside those of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics

import decentral_dp
from decentral_dp.bounded import Array
from decentral_dp.models.dense import DenseLayers
from decentral_dp.problems.training.losses import CrossEntropy, Logistic
from decentral_dp.problems.training.problem import Examples, Training


def case(classes: int, threshold: float = 0.5) -> tuple[Training, Array, Examples]:
    rng = np.random.default_rng(classes)
    model = DenseLayers((4, 1 if classes == 2 else classes), 1.0, 0.1)
    loss: Any = Logistic() if classes == 2 else CrossEntropy()
    problem = Training("classification", model, loss, 4, classes, threshold=threshold)
    records = Examples(rng.standard_normal((300, 4)), rng.integers(0, classes, 300).astype(np.float64))
    return problem, rng.standard_normal((3, problem.q)), records


@pytest.mark.parametrize("threshold", [0.5, 0.2, 0.6])
def test_two_classes_at_a_threshold(threshold: float) -> None:
    problem, y, records = case(2, threshold)
    found = problem.measures(np.zeros((3, 0)), y, records)
    share = problem.predict(y, records.features)[..., 1]
    for row in range(3):
        said, true = share[row] > threshold, records.label
        wanted = {
            "recall": metrics.recall_score(true, said),
            "precision": metrics.precision_score(true, said),
            "f1": metrics.f1_score(true, said),
            "balanced_accuracy": metrics.balanced_accuracy_score(true, said),
            "auc": metrics.roc_auc_score(true, share[row]),
            "brier": metrics.brier_score_loss(true, share[row]),
        }
        for name, value in wanted.items():
            assert found[name][row] == pytest.approx(value, abs=1e-12), name


def test_where_nobody_is_said_to_be_of_the_second_class_precision_is_0() -> None:
    problem, y, records = case(2)
    y[1] = 0.0
    found = problem.measures(np.zeros((3, 0)), y, records)
    assert found["precision"][1] == found["recall"][1] == 0.0
    assert (found["precision"][[0, 2]] > 0.0).all()


def test_many_classes() -> None:
    problem, y, records = case(5)
    found = problem.measures(np.zeros((3, 0)), y, records)
    share = problem.predict(y, records.features)
    for row in range(3):
        said, true = share[row].argmax(axis=1), records.label.astype(int)
        assert found["f1"][row] == pytest.approx(metrics.f1_score(true, said, average="macro"))
        assert found["balanced_accuracy"][row] == pytest.approx(metrics.balanced_accuracy_score(true, said))
        assert found["auc"][row] == pytest.approx(metrics.roc_auc_score(true, share[row], multi_class="ovr"))
    assert {"recall", "precision"}.isdisjoint(found)


@pytest.mark.parametrize("classes", [2, 5])
def test_calibration_is_a_mean_gap_over_ten_intervals(classes: int) -> None:
    """Oracle: a loop over the intervals."""
    problem, y, records = case(classes)
    found = problem.measures(np.zeros((3, 0)), y, records)["calibration"]
    share = problem.predict(y, records.features)
    for row in range(3):
        confidence, right = share[row].max(axis=1), share[row].argmax(axis=1) == records.label
        total = 0.0
        for k in range(10):
            inside = (confidence >= k / 10) & ((confidence < (k + 1) / 10) | (k == 9))
            if inside.any():
                total += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
        assert found[row] == pytest.approx(total, abs=1e-12)


def test_the_threshold_of_a_scenario_trades_recall_for_precision() -> None:
    def ends(threshold: float) -> dict[str, float]:
        few = {"algorithm.rounds": 40, "run.evaluate_every": 40, "problem.threshold": threshold}
        return dict(decentral_dp.run("classification", set=few).result.metrics)

    low, high = ends(0.2), ends(0.8)
    assert low["test_recall"] > high["test_recall"]
    assert low["test_precision"] < high["test_precision"]
    assert 0.0 <= low["test_calibration"] <= 1.0
    with pytest.raises(decentral_dp.InputError, match=r"problem\.threshold"):
        decentral_dp.plan("classification", set={"problem.threshold": 1.0})
