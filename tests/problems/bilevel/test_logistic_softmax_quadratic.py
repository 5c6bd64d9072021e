"""Oracles of the hand-written problems against plain Python loops over records, and against finite differences."""

import math

import numpy as np
import pytest

from decentral_dp.models import linear_terms
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter
from decentral_dp.problems.records import take

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


@pytest.mark.parametrize("name", PROBLEMS)
def test_touches_lists_exactly_the_terms_that_read_records(name):
    assert dict(PROBLEMS[name].reads_records) == {
        "lower_grad_y": "train",
        "lower_hvp": "train",
        "upper_grad_y": "validation",
    }


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e308, -1e308, 1e160])
@pytest.mark.parametrize("name", PROBLEMS)
def test_messages_that_are_not_finite_give_finite_terms(name, value, norm):
    """A neighbour may send anything: no NaN, no warning, and what is finite is still counted."""
    rng = np.random.default_rng([2, len(name)])
    problem = PROBLEMS[name]
    train, validation = raw(name, rng, 7), raw(name, rng, 5)
    prepared = problem.prepare(*train, norm), problem.prepare(*validation, norm)
    clip = Clip(norm, 1.0, 0.3, 0.2)
    for where in ("y", "z", "both", "everywhere"):
        x, y, z = points(problem, rng)
        for name_of, v in (("y", y), ("z", z)):
            if where in (name_of, "both"):
                v[1] = value
            if where == "everywhere":
                v[:] = value
        got = problem.terms(x, y, z, *prepared, clip)
        for term in TERMS:
            records = validation if term == "upper_grad_y" else train
            assert np.isfinite(getattr(got, term)).all()
            # Whether 1e308 overflows in a product, and what is left where 1e160 cancels, depends on the order of sums.
            if not np.isfinite(value) or (value == 1e160 and where != "everywhere"):
                want = naive_mean(name, term, *records, y, z, norm, bound_of(term, clip))
                np.testing.assert_allclose(getattr(got, term), want, rtol=1e-12, atol=1e-15, err_msg=f"{where} {term}")


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


@pytest.mark.parametrize("name", PROBLEMS)
def test_blocks_do_not_change_the_result(name, monkeypatch):
    rng = np.random.default_rng([3, len(name)])
    problem = PROBLEMS[name]
    train, validation = problem.prepare(*raw(name, rng, 23), "l1"), problem.prepare(*raw(name, rng, 17), "l1")
    point = points(problem, rng)
    rows = np.stack([point[0]] * 2), rng.normal(size=(2, problem.q))
    weights = rng.dirichlet(np.ones(23))

    def everything():
        terms = problem.terms(*point, train, validation, Clip("l1", 1.0, 0.3, 0.2))
        accuracy = problem.accuracy(*rows, train)
        return [*(t for t in terms if t is not None), *problem.losses(*rows, train, weights), accuracy]

    whole = everything()
    monkeypatch.setattr(linear_terms, "BLOCK", 5 * D)
    for a, b in zip(whole, everything(), strict=True):
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", PROBLEMS)
def test_terms_are_derivatives_of_the_losses(name):
    rng = np.random.default_rng([4, len(name)])
    problem = PROBLEMS[name]
    train, validation = problem.prepare(*raw(name, rng, 11), "l1"), problem.prepare(*raw(name, rng, 8), "l1")
    x, y, z = points(problem, rng, 0.7)
    got = problem.terms(x, y, z, train, validation, Clip())
    h = 1e-5

    def along(records, which, y_at):
        weights = np.full(len(records[0]), 1.0 / len(records[0]))
        return problem.losses(x[None], y_at[None], records, weights)[which][0]

    for _ in range(3):
        direction = rng.normal(size=problem.q)
        ends = y + h * direction, y - h * direction
        lower = (along(train, 0, ends[0]) - along(train, 0, ends[1])) / (2 * h)
        upper = (along(validation, 1, ends[0]) - along(validation, 1, ends[1])) / (2 * h)
        assert got.lower_grad_y @ direction == pytest.approx(lower, rel=1e-6, abs=1e-8)
        assert got.upper_grad_y @ direction == pytest.approx(upper, rel=1e-6, abs=1e-8)
    plus, minus = (problem.terms(x, y + s * h * z, z, train, validation, Clip()).lower_grad_y for s in (1, -1))
    np.testing.assert_allclose(got.lower_hvp, (plus - minus) / (2 * h), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", PROBLEMS)
def test_regulariser_is_the_derivative_of_its_value(name):
    rng = np.random.default_rng([5, len(name)])
    problem = PROBLEMS[name]
    x = rng.normal(size=(3, problem.p))
    y, z = rng.normal(size=(2, 3, problem.q))
    got = problem.regulariser(x, y, z)
    h = 1e-5
    dy, dx = rng.normal(size=y.shape), rng.normal(size=x.shape)
    slope = (problem.regulariser_value(x, y + h * dy) - problem.regulariser_value(x, y - h * dy)) / (2 * h)
    np.testing.assert_allclose((got.grad_y * dy).sum(axis=1), slope, rtol=1e-6, atol=1e-8)
    plus, minus = (problem.regulariser(x, y + s * h * z, z).grad_y for s in (1, -1))
    np.testing.assert_allclose(got.hvp, (plus - minus) / (2 * h), rtol=1e-6, atol=1e-8)
    plus, minus = ((problem.regulariser(x + s * h * dx, y, z).grad_y * z).sum(axis=1) for s in (1, -1))
    np.testing.assert_allclose((got.jvp * dx).sum(axis=1), (plus - minus) / (2 * h), rtol=1e-6, atol=1e-8)
    alone = problem.regulariser(x[1:2], y[1:2], z[1:2])
    for some, whole in zip(alone, got, strict=True):
        np.testing.assert_array_equal(some[0], whole[1])


def test_regulariser_values_by_hand():
    x, y = np.array([[math.log(2.0), 0.0]]), np.array([[1.0, 3.0]])
    assert LogisticHyperparameter(2).regulariser_value(x, y)[0] == pytest.approx(0.5 * (2 * 1 + 1 * 9))
    assert Quadratic(2, ridge=3.0).regulariser_value(np.array([[0.0, 1.0]]), y)[0] == pytest.approx(1.5 * (1 + 4))
    softmax = SoftmaxHyperparameter(2, (0.0, 1.0))
    rows = np.array([[1.0, 3.0, 2.0, 5.0]])  # Y = [[1, 3], [2, 5]]
    assert softmax.regulariser_value(x, rows)[0] == pytest.approx((2 * (1 + 4) + 1 * (9 + 25)) / 4)


@pytest.mark.parametrize("name", PROBLEMS)
def test_regulariser_overflows_without_a_warning(name):
    problem = PROBLEMS[name]
    huge = np.full((1, problem.q), 1e200)
    problem.regulariser(np.full((1, problem.p), 1e4), huge, -huge)
    problem.regulariser(np.full((1, problem.p), np.inf), 0 * huge, huge)
    problem.regulariser_value(np.full((1, problem.p), 1e4), huge)


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


@pytest.mark.parametrize("name", PROBLEMS)
def test_layout_and_prefixes_of_the_records(name):
    rng = np.random.default_rng([8, len(name)])
    problem = PROBLEMS[name]
    features, labels = raw(name, rng, 12)
    records = problem.prepare(features, labels, "l2")
    assert records[0].flags.c_contiguous
    assert records[0].dtype == np.float64
    wide = np.zeros((12, 2 * D))
    wide[:, ::2] = features
    for same in (np.asfortranarray(features), wide[:, ::2], features.astype(object).astype(float)):
        for got, want in zip(problem.prepare(same, labels, "l2"), records, strict=True):
            np.testing.assert_array_equal(got, want)
    point = points(problem, rng)
    clip = Clip("l2", 1.0, 0.3, 0.2)
    some = problem.prepare(features[:5], labels[:5], "l2")
    prefix = take(records, slice(0, 5))
    assert np.shares_memory(prefix[0], records[0])
    chosen = take(records, np.arange(5))
    for part in (prefix, chosen):
        for a, b in zip(problem.terms(*point, part, part, clip), problem.terms(*point, some, some, clip), strict=True):
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-13, atol=0)


@pytest.mark.parametrize("name", PROBLEMS)
def test_features_are_copied_where_labels_or_ones_are_folded_in(name):
    """Preparing never writes into the caller's arrays."""
    rng = np.random.default_rng([9, len(name)])
    features, labels = raw(name, rng, 6)
    before = features.copy(), labels.copy()
    PROBLEMS[name].prepare(features, labels, "l1")
    np.testing.assert_array_equal(features, before[0])
    np.testing.assert_array_equal(labels, before[1])
