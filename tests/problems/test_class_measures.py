"""Measures of class probabilities, compared with scikit-learn on predictions from formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import special
from sklearn import metrics

import decentral_dp
from decentral_dp.bounded import Array
from decentral_dp.models.dense import DenseLayers
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter, SoftmaxHyperparameter
from decentral_dp.problems.bilevel.meta_learning import MetaLearning, Tasks
from decentral_dp.problems.class_measures import CLASS_MEASURES, OF_TWO_CLASSES, measure_classes
from decentral_dp.problems.training import CrossEntropy, Logistic, Training

RNG = np.random.default_rng(3)
ROWS, D = 3, 4


def calibration(share: Array, label: Array) -> float:
    """A loop over the ten intervals."""
    confidence, right = share.max(axis=1), share.argmax(axis=1) == label
    total = 0.0
    for k in range(10):
        inside = (confidence >= k / 10) & ((confidence < (k + 1) / 10) | (k == 9))
        if inside.any():
            total += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    return total


def oracle(share: Array, label: Array) -> dict[str, float]:
    """scikit-learn's numbers for probabilities (N, c) and classes (N,)."""
    out = {"calibration": calibration(share, label)}
    if share.shape[1] == 2:
        said = share[:, 1] > 0.5
        for name in ("recall", "precision", "f1"):
            out[name] = getattr(metrics, f"{name}_score")(label, said, zero_division=0.0)
        out |= {"auc": metrics.roc_auc_score(label, share[:, 1]), "brier": metrics.brier_score_loss(label, share[:, 1])}
    else:
        said = share.argmax(axis=1)
        out["f1"] = metrics.f1_score(label, said, average="macro")
        out["auc"] = metrics.roc_auc_score(label, share, multi_class="ovr")
        out["brier"] = sum(np.mean((share[:, k] - (label == k)) ** 2) for k in range(share.shape[1]))
    return out | {"balanced_accuracy": metrics.balanced_accuracy_score(label, said)}


def assert_agree(found: dict[str, Array], shares: list[Array], label: Array) -> None:
    for row, share in enumerate(shares):
        wanted = oracle(share, label)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert found[name][row] == pytest.approx(value, abs=1e-12), name


def case(classes: int) -> tuple[Array, Array]:
    return RNG.standard_normal((300, D)), RNG.integers(0, classes, 300).astype(np.float64)


def of_scores(y: Array, features: Array, intercept: bool) -> list[Array]:
    """Probabilities of a linear model: σ of one score, the softmax of several."""
    a = np.concatenate([features, np.ones((len(features), 1))], axis=1) if intercept else features
    scores = [a @ row.reshape(-1, a.shape[1]).T for row in y]
    if scores[0].shape[1] > 1:
        return [special.softmax(s, axis=1) for s in scores]
    return [np.column_stack([special.expit(-s), special.expit(s)]) for s in scores]


@pytest.mark.parametrize("intercept", [False, True])
def test_a_logistic_regression(intercept: bool) -> None:
    problem = LogisticHyperparameter(D, (0.0, 1.0), intercept)
    (features, label), y = case(2), RNG.standard_normal((ROWS, problem.q))
    x = np.zeros((ROWS, problem.p))
    found = measure_classes(problem, x, y, problem.prepare(features, label, "l1"), CLASS_MEASURES)
    assert_agree(found, of_scores(y, features, intercept), label)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", [SoftmaxHyperparameter, HyperCleaning])
def test_classifiers_of_five_classes(kind: Any, intercept: bool) -> None:
    more = {"agents": 3} if kind is HyperCleaning else {}
    problem = kind(D, (0.0, 1.0, 2.0, 3.0, 4.0), intercept=intercept, **more)
    (features, label), y = case(5), RNG.standard_normal((ROWS, problem.q))
    records = problem.prepare(features, label, "l2")
    found = measure_classes(problem, np.zeros((ROWS, problem.p)), y, records, CLASS_MEASURES)
    assert_agree(found, of_scores(y, features, intercept), label)


@pytest.mark.parametrize("classes", [2, 5])
def test_training_at_one_level(classes: int) -> None:
    model, loss = DenseLayers((D, 1 if classes == 2 else classes)), Logistic() if classes == 2 else CrossEntropy()
    problem = Training("classification", model, loss, D, classes)
    (features, label), y = case(classes), RNG.standard_normal((ROWS, problem.q))
    records = problem.prepare(features, label, "l2")
    found = measure_classes(problem, np.zeros((ROWS, 0)), y, records, CLASS_MEASURES)
    # Weights are ordered by class, and intercepts are last.
    wide = D * model.outputs
    apart = np.concatenate([y[:, :wide].reshape(ROWS, -1, D), y[:, wide:, None]], axis=2).reshape(ROWS, -1)
    assert_agree(found, of_scores(apart, features, intercept=True), label)


def test_tasks_count_alike_each_on_the_records_of_its_classes() -> None:
    """Class 4 is in no task; a hidden layer of 3 units, and one head a task, from the formulas."""
    tasks = ((0, 1, 2), (1, 2, 3))
    problem = replace(MetaLearning.from_dataset(D, 5, width=3), tasks=Tasks(tasks, 5))
    features, label = case(5)
    x, y = RNG.standard_normal((ROWS, problem.p)), RNG.standard_normal((ROWS, problem.q))
    records = problem.prepare(features, label, "l2")
    found = measure_classes(problem, x, y, records, CLASS_MEASURES)
    assert found.keys() == CLASS_MEASURES.keys() - set(OF_TWO_CLASSES)
    for row in range(ROWS):
        hidden = np.maximum(features @ x[row, : 3 * D].reshape(3, D).T + x[row, 3 * D :], 0.0)
        each = []
        for head, task in zip(y[row].reshape(2, 3, 4), tasks, strict=True):
            mine = np.isin(label, task)
            share = special.softmax(hidden[mine] @ head[:, :-1].T + head[:, -1], axis=1)
            each.append(oracle(share, np.array([task.index(int(k)) for k in label[mine]])))
        for name, values in found.items():
            assert values[row] == pytest.approx(np.mean([one[name] for one in each]), abs=1e-12), name
    # Records in no task have no probabilities.
    assert measure_classes(problem, x, y, problem.prepare(features[:3], np.full(3, 4.0), "l2"), ["f1"]) == {}


@pytest.mark.parametrize("classes", [2, 3])
def test_losses_of_ones_own_have_those_of_their_scores(classes: int) -> None:
    torch = pytest.importorskip("torch")

    def scores(y: Any, a: Any) -> Any:
        return y @ a if classes == 2 else y.reshape(-1, D) @ a

    def loss(x: Any, y: Any, a: Any, label: Any) -> Any:
        return (y[:D] @ a - label) ** 2

    def problem_of(predict: Any) -> Any:
        size = D if classes == 2 else D * classes
        return decentral_dp.from_losses(loss, loss, p=1, q=size, n_features=D, classes=classes, predict=predict)

    problem = problem_of(scores)
    (features, label), y = case(classes), RNG.standard_normal((ROWS, problem.q))
    records = problem.prepare(features, label, "l2")
    given = np.zeros((ROWS, 1)), y, records, CLASS_MEASURES
    assert_agree(measure_classes(problem, *given), of_scores(y, features, intercept=False), label)
    assert measure_classes(problem_of(lambda y, a: torch.sign(a[0]).long()), *given) == {}
    assert measure_classes(problem_of(None), *given) == {}


def test_records_of_one_class_have_no_auc_and_weights_that_are_no_numbers_say_nothing() -> None:
    problem = LogisticHyperparameter(D, (0.0, 1.0))
    features, label = case(2)
    y = np.full((1, problem.q), np.nan)
    alike = problem.prepare(features, np.ones(len(label)), "l2")
    assert measure_classes(problem, y, y, alike, ["auc", "recall"]) == {"recall": 0.0}
    found = measure_classes(problem, y, y, problem.prepare(features, label, "l2"), ["auc", "brier"])
    assert found == {"auc": 0.5, "brier": 0.25}
