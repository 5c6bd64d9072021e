"""Building the problems and preparing records: what is accepted, and the sentence that refuses the rest."""

import pickle

import numpy as np
import pytest

from decentral_dp.errors import InputError
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter
from decentral_dp.problems.protocol import Problem


def test_from_dataset_gives_names_and_dimensions():
    logistic = LogisticHyperparameter.from_dataset(30, [0, 1], intercept=True)
    softmax = SoftmaxHyperparameter.from_dataset(13, [0, 1, 2])
    quadratic = Quadratic(5, ridge=0.2)
    assert [(q.name, q.p, q.q) for q in (logistic, softmax, quadratic)] == [
        ("logistic_hyperparameter", 31, 31),
        ("softmax_hyperparameter", 13, 39),
        ("quadratic", 5, 5),
    ]
    assert SoftmaxHyperparameter.from_dataset(13, [0, 1, 2], intercept=True).q == 42
    problems: list[Problem] = [logistic, softmax, quadratic]
    for problem in problems:
        assert pickle.loads(pickle.dumps(problem)) == problem  # noqa: S301 - our own bytes; Ray sends problems so


def test_labels_follow_the_declared_order_and_not_the_data():
    features = np.eye(2)
    up = LogisticHyperparameter(2, (3.0, 5.0)).prepare(features, np.array([5.0, 3.0]), "l1")
    down = LogisticHyperparameter(2, (5.0, 3.0)).prepare(features, np.array([5.0, 3.0]), "l1")
    np.testing.assert_array_equal(up.signed, [[1.0, 0.0], [0.0, -1.0]])
    np.testing.assert_array_equal(down.signed, -up.signed)
    softmax = SoftmaxHyperparameter(2, (7.0, 5.0, 3.0)).prepare(features, np.array([3.0, 7.0]), "l1")
    np.testing.assert_array_equal(softmax.label, [2, 0])


def test_an_intercept_is_an_appended_one():
    records = LogisticHyperparameter(2, intercept=True).prepare(np.array([[2.0, 3.0]]), np.array([-1.0]), "l1")
    np.testing.assert_array_equal(records.signed, [[-2.0, -3.0, -1.0]])
    assert records.l1[0] == 6.0


@pytest.mark.parametrize("problem", [LogisticHyperparameter(2), SoftmaxHyperparameter(2, (-1.0, 1.0)), Quadratic(2)])
@pytest.mark.parametrize(
    ("features", "labels", "sentence"),
    [
        ([[1.0, 2.0, 3.0]], [1.0], r"shape \(1, 3\).*wanted.*2 features"),
        ([[1.0, 2.0]], [1.0, 1.0], r"labels of shape \(2,\)"),
        (np.zeros((0, 2)), np.zeros(0), "at least one record"),
        ([[1.0, 2.0], [np.nan, 1.0]], [1.0, 1.0], "record 1 has a feature that is not a finite number"),
        ([[np.inf, 2.0], [0.0, 1.0]], [1.0, 1.0], "record 0 has a feature"),
    ],
)
def test_records_that_do_not_fit_are_refused(problem, features, labels, sentence):
    with pytest.raises(InputError, match=sentence):
        problem.prepare(np.array(features), np.array(labels), "l1")


@pytest.mark.parametrize("label", [0.0, np.nan, 2.0])
def test_undeclared_labels_are_refused(label):
    for problem in (LogisticHyperparameter(1), SoftmaxHyperparameter(1, (-1.0, 1.0))):
        with pytest.raises(InputError, match=r"record 1 has a label that is none of .* declare the class"):
            problem.prepare(np.ones((2, 1)), np.array([1.0, label]), "l1")


def test_quadratic_refuses_labels_that_are_not_numbers():
    with pytest.raises(InputError, match="record 1 has a label that is not a finite number"):
        Quadratic(1).prepare(np.ones((2, 1)), np.array([1.0, np.nan]), "l1")


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: LogisticHyperparameter(2, (0.0, 1.0, 2.0)), r"exactly 2 distinct .*softmax_hyperparameter"),
        (lambda: LogisticHyperparameter(2, (1.0,)), "exactly 2 distinct"),
        (lambda: LogisticHyperparameter(2, (1.0, 1.0)), "exactly 2 distinct"),
        (lambda: LogisticHyperparameter(2, (1.0, np.nan)), "finite"),
        (lambda: LogisticHyperparameter(0), "0 features"),
        (lambda: SoftmaxHyperparameter(2, (1.0,)), "two or more"),
        (lambda: SoftmaxHyperparameter(2, (1.0, 2.0, 1.0)), "distinct"),
        (lambda: Quadratic(2, 0.0), "positive finite"),
        (lambda: Quadratic(2, np.nan), "positive finite"),
        (lambda: Quadratic(0), "0 features"),
    ],
)
def test_impossible_problems_are_refused(build, sentence):
    with pytest.raises(InputError, match=sentence):
        build()
