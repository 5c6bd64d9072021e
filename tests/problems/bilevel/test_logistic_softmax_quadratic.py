"""Oracles of the hand-written problems against plain Python loops over records, and against finite differences."""

import math

import numpy as np
import pytest

from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter

D = 4
PROBLEMS = {
    "logistic": LogisticHyperparameter(D),
    "logistic_intercept": LogisticHyperparameter(D, intercept=True),
    "softmax": SoftmaxHyperparameter(D, (0.0, 1.0, 2.0)),
    "softmax_intercept": SoftmaxHyperparameter(D, (0.0, 1.0, 2.0), intercept=True),
    "quadratic": Quadratic(D, ridge=0.7),
}
LABELS = {"logistic": [-1.0, 1.0], "softmax": [0.0, 1.0, 2.0], "quadratic": [-1.3, 0.4, 2.0]}
TERMS = ("lower_grad_y", "lower_hvp", "upper_grad_y")
CLIPS = [Clip("l1", 1.0, 0.3, 0.2), Clip("l2", 1.0, 0.3, 0.2), Clip("l1", np.inf, 0.5, np.inf), Clip("l1"), Clip("l2")]


def family(name):
    return name.removesuffix("_intercept")


def raw(name, rng, n, scale=1.0):
    return scale * rng.normal(size=(n, D)), rng.choice(LABELS[family(name)], size=n)


def points(problem, rng, scale=1.0):
    return rng.normal(size=problem.p), scale * rng.normal(size=problem.q), scale * rng.normal(size=problem.q)


def dot(a, b):
    return sum(u * v for u, v in zip(a, b, strict=True))


def sigmoid(t):
    if math.isnan(t):
        return t
    return 1.0 / (1.0 + math.exp(-t)) if t > -700 else 0.0


def shares(scores):
    top = max(scores, key=lambda s: (math.isnan(s), s))
    if not math.isfinite(top):
        return [math.nan for _ in scores]
    weights = [math.exp(s - top) for s in scores]
    return [w / sum(weights) for w in weights]


def naive_record(kind, term, a, b, y, z):
    """One record's term, by its formula, in Python floats."""
    if kind == "quadratic":
        factor = dot(a, z) if term == "lower_hvp" else dot(a, y) - b
        return [factor * v for v in a]
    if kind == "logistic":
        t = b * dot(a, y)
        factor = sigmoid(t) * sigmoid(-t) * dot(a, z) if term == "lower_hvp" else -b * sigmoid(-t)
        return [factor * v for v in a]
    d = len(a)
    s = shares([dot(y[r * d : r * d + d], a) for r in range(3)])
    if term == "lower_hvp":
        u = [dot(z[r * d : r * d + d], a) for r in range(3)]
        r = [s[k] * (u[k] - dot(s, u)) for k in range(3)]
    else:
        r = [s[k] - (k == int(b)) for k in range(3)]
    return [factor * v for factor in r for v in a]


def naive_mean(name, term, features, labels, y, z, norm, bound):
    problem = PROBLEMS[name]
    total = [0.0] * problem.q
    for row, b in zip(features.tolist(), labels.tolist(), strict=True):
        a = [*row, 1.0] if name.endswith("intercept") else row
        v = naive_record(family(name), term, a, b, y.tolist(), z.tolist())
        size = sum(abs(u) for u in v) if norm == "l1" else math.hypot(*v)
        if not math.isfinite(size):
            continue
        factor = min(1.0, bound / size) if size > 0 else 1.0
        total = [t + factor * u for t, u in zip(total, v, strict=True)]
    return np.array(total) / len(features)


def bound_of(term, clip):
    return clip.y if term == "lower_grad_y" else clip.z


@pytest.mark.parametrize("clip", CLIPS, ids=repr)
@pytest.mark.parametrize("name", PROBLEMS)
def test_terms_agree_with_a_loop_over_records(name, clip):
    rng = np.random.default_rng([1, len(name)])
    problem = PROBLEMS[name]
    train, validation = raw(name, rng, 9, 2.0), raw(name, rng, 6, 2.0)
    x, y, z = points(problem, rng)
    got = problem.terms(x, y, z, problem.prepare(*train, clip.norm), problem.prepare(*validation, clip.norm), clip)
    assert got.lower_jvp is None
    assert got.upper_grad_x is None
    for term in TERMS:
        records = validation if term == "upper_grad_y" else train
        want = naive_mean(name, term, *records, y, z, clip.norm, bound_of(term, clip))
        np.testing.assert_allclose(getattr(got, term), want, rtol=1e-12, atol=1e-15, err_msg=term)


def test_very_large_margins_keep_their_accuracy():
    problem = LogisticHyperparameter(1)
    records = problem.prepare(np.array([[1.0]]), np.array([1.0]), "l1")
    for t in (-800.0, -300.0, -40.0, 40.0, 300.0, 700.0, 800.0):
        got = problem.terms(np.zeros(1), np.array([t]), np.ones(1), records, records, Clip())
        small = math.exp(-abs(t))
        assert got.lower_grad_y[0] == pytest.approx(-small if t > 0 else -1.0, rel=1e-12)
        assert got.lower_hvp[0] == pytest.approx(small, rel=1e-12, abs=1e-307)
        loss = problem.losses(np.zeros((1, 1)), np.array([[t]]), records, np.ones(1))[0][0]
        assert loss == pytest.approx(max(-t, 0.0) + math.log1p(small), rel=1e-12)


def test_regulariser_values_by_hand():
    x, y = np.array([[math.log(2.0), 0.0]]), np.array([[1.0, 3.0]])
    assert LogisticHyperparameter(2).regulariser_value(x, y)[0] == pytest.approx(0.5 * (2 * 1 + 1 * 9))
    assert Quadratic(2, ridge=3.0).regulariser_value(np.array([[0.0, 1.0]]), y)[0] == pytest.approx(1.5 * (1 + 4))
    softmax = SoftmaxHyperparameter(2, (0.0, 1.0))
    rows = np.array([[1.0, 3.0, 2.0, 5.0]])  # Y = [[1, 3], [2, 5]]
    assert softmax.regulariser_value(x, rows)[0] == pytest.approx((2 * (1 + 4) + 1 * (9 + 25)) / 4)


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


def test_a_model_that_says_nothing_scores_as_a_coin():
    rng = np.random.default_rng(7)
    for name, chance in (("logistic", 1 / 2), ("softmax", 1 / 3)):
        problem = PROBLEMS[name]
        records = problem.prepare(*raw(name, rng, 10), "l1")
        assert problem.accuracy(np.zeros((1, problem.p)), np.zeros((1, problem.q)), records)[0] == pytest.approx(chance)
        assert problem.accuracy(np.zeros((1, problem.p)), np.full((1, problem.q), np.nan), records)[0] == 0.0
