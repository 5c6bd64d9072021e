"""Linear problems: records, losses and accuracy against plain Python loops, and margins of any size."""

import math

import numpy as np
import pytest

from decentral_dp.errors import InputError
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter, Quadratic, SoftmaxHyperparameter

D = 4
PROBLEMS = {
    "logistic": LogisticHyperparameter(D),
    "logistic_intercept": LogisticHyperparameter(D, intercept=True),
    "softmax": SoftmaxHyperparameter(D, (0.0, 1.0, 2.0)),
    "softmax_intercept": SoftmaxHyperparameter(D, (0.0, 1.0, 2.0), intercept=True),
    "quadratic": Quadratic(D, ridge=0.7),
}
LABELS = {"logistic": [-1.0, 1.0], "softmax": [0.0, 1.0, 2.0], "quadratic": [-1.3, 0.4, 2.0]}


def family(name):
    return name.removesuffix("_intercept")


def raw(name, rng, n, scale=1.0):
    return scale * rng.normal(size=(n, D)), rng.choice(LABELS[family(name)], size=n)


def dot(a, b):
    return sum(u * v for u, v in zip(a, b, strict=True))


def shares(scores):
    top = max(scores, key=lambda s: (math.isnan(s), s))
    if not math.isfinite(top):
        return [math.nan for _ in scores]
    weights = [math.exp(s - top) for s in scores]
    return [w / sum(weights) for w in weights]


@pytest.mark.parametrize("name", PROBLEMS)
def test_losses_and_accuracy_agree_with_loops(name):
    rng = np.random.default_rng([6, len(name)])
    problem = PROBLEMS[name]
    features, labels = raw(name, rng, 13)
    records = problem.prepare(features, labels, "l1")
    x, y = rng.normal(size=(5, problem.p)), rng.normal(size=(5, problem.q))
    weights = rng.dirichlet(np.ones(13))
    lower, upper = problem.losses(x, y, records, weights)
    accuracy = problem.accuracy(x, y, records)
    for row in range(5):
        loss, hits = 0.0, 0
        for a, b, w in zip(features.tolist(), labels.tolist(), weights, strict=True):
            v = [*a, 1.0] if name.endswith("intercept") else a
            if family(name) == "softmax":
                scores = [dot(y[row, r * len(v) : (r + 1) * len(v)], v) for r in range(3)]
                loss += w * -math.log(shares(scores)[int(b)])
                hits += scores[int(b)] == max(scores)
            elif family(name) == "logistic":
                margin = b * dot(v, y[row])
                loss += w * math.log(1 + math.exp(-margin))
                hits += margin > 0
            else:
                loss += w * 0.5 * (dot(v, y[row]) - b) ** 2
        assert lower[row] == pytest.approx(loss, rel=1e-12)
        assert upper[row] == pytest.approx(loss, rel=1e-12)
        if accuracy is not None:
            assert accuracy[row] == pytest.approx(hits / 13)
    assert (accuracy is None) == (name == "quadratic")


def test_labels_follow_the_declared_order_and_not_the_data():
    features = np.eye(2)
    up = LogisticHyperparameter(2, (3.0, 5.0)).prepare(features, np.array([5.0, 3.0]), "l1")
    down = LogisticHyperparameter(2, (5.0, 3.0)).prepare(features, np.array([5.0, 3.0]), "l1")
    np.testing.assert_array_equal(up.signed, [[1.0, 0.0], [0.0, -1.0]])
    np.testing.assert_array_equal(down.signed, -up.signed)
    softmax = SoftmaxHyperparameter(2, (7.0, 5.0, 3.0)).prepare(features, np.array([3.0, 7.0]), "l1")
    np.testing.assert_array_equal(softmax.label, [2, 0])


@pytest.mark.parametrize("problem", [LogisticHyperparameter(2), SoftmaxHyperparameter(2, (-1.0, 1.0)), Quadratic(2)])
@pytest.mark.parametrize(
    ("features", "labels", "sentence"),
    [
        ([[1.0, 2.0, 3.0]], [1.0], r"got features \(1, 3\).*expected \(n, 2\)"),
        ([[1.0, 2.0]], [1.0, 1.0], r"labels \(2,\)"),
        (np.zeros((0, 2)), np.zeros(0), "with n ≥ 1"),
        ([[1.0, 2.0], [np.nan, 1.0]], [1.0, 1.0], "record 1 has a feature or label that is not finite"),
        ([[1.0, 2.0]], [np.nan], "record 0 has a feature or label that is not finite"),
    ],
)
def test_records_that_do_not_fit_are_refused(problem, features, labels, sentence):
    with pytest.raises(InputError, match=sentence):
        problem.prepare(np.array(features), np.array(labels), "l1")


@pytest.mark.parametrize("label", [0.0, 2.0])
def test_undeclared_labels_are_refused(label):
    for problem in (LogisticHyperparameter(1), SoftmaxHyperparameter(1, (-1.0, 1.0))):
        with pytest.raises(InputError, match=r"record 1 has a label that is not one of .* declare the class"):
            problem.prepare(np.ones((2, 1)), np.array([1.0, label]), "l1")
