"""The losses of one problem under another's regulariser: biased regularisation and the ridge hyperparameter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from decentral_dp import InputError
from decentral_dp.config.loading import load
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.penalties import Pull, Strengths
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.regularised_losses import biased_regularisation, ridge_hyperparameter
from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter
from decentral_dp.problems.lower_level import solve_lower
from decentral_dp.problems.protocol import MATRICES, TERMS
from decentral_dp.problems.records import regulariser_matrices
from decentral_dp.simulation.jobs.build import build
from tests.support.hypergradients import solve_inverse_hvp, true_hypergradient

D = 3
RIDGE = 0.4
PROBLEMS = {
    "logistic": biased_regularisation(D, (0.0, 1.0), RIDGE),
    "intercept": biased_regularisation(D, (0.0, 1.0), RIDGE, intercept=True),
    "softmax": biased_regularisation(D, (0.0, 1.0, 2.0), RIDGE),
    "ridge": ridge_hyperparameter(D),
}
MODELS = {
    "logistic": LogisticHyperparameter(D, (0.0, 1.0)),
    "intercept": LogisticHyperparameter(D, (0.0, 1.0), intercept=True),
    "softmax": SoftmaxHyperparameter(D, (0.0, 1.0, 2.0)),
    "ridge": Quadratic(D),
}
LENGTH = {"l1": lambda v: float(np.abs(v).sum()), "l2": lambda v: float(np.sqrt((v * v).sum()))}


def raw(name, rng, n, scale=1.0):
    features = scale * rng.normal(size=(n, D))
    if name == "ridge":
        return features, rng.normal(size=n)
    return features, rng.integers(3 if name == "softmax" else 2, size=n).astype(float)


def raw_agents(name, seed, counts=((8, 5), (8, 5), (6, 9))):
    rng = np.random.default_rng(seed)
    return [tuple(raw(name, rng, n) for n in pair) for pair in counts]


def prepared(problem, agents):
    return [tuple(problem.prepare(*part, "l1") for part in pair) for pair in agents]


def value(name, a, b, y):
    """Mean loss over records, in numpy, from the definition."""
    if name == "ridge":
        return np.mean((a @ y - b) ** 2) / 2
    if name == "intercept":
        a = np.concatenate([a, np.ones((len(a), 1))], axis=1)
    if name == "softmax":
        scores = a @ y.reshape(3, -1).T
        return np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(b)), b.astype(int)])
    return np.mean(np.log1p(np.exp(-(2 * b - 1) * (a @ y))))


def penalty(name, x, y):
    return 0.5 * np.sum(np.exp(x) * y**2) if name == "ridge" else 0.5 * RIDGE * np.sum((y - x) ** 2)


def numerical_upper(name, agents, x):
    """F(x) by a general minimiser of the lower level, sharing nothing with the package."""

    def lower(y):
        return np.mean([value(name, *train, y) for train, _ in agents]) + penalty(name, x, y)

    start = np.zeros(PROBLEMS[name].q)
    y = minimize(lower, start, method="BFGS", options={"gtol": 1e-9}).x
    y = minimize(lower, y, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15, "maxiter": 4000}).x
    return np.mean([value(name, *validation, y) for _, validation in agents])


@pytest.mark.parametrize("name", PROBLEMS)
def test_p_is_q_and_x_touches_nothing(name):
    problem = PROBLEMS[name]
    assert problem.p == problem.q == {"intercept": 4, "softmax": 9}.get(name, 3)
    assert dict(problem.reads_records) == {"lower_grad_y": "train", "lower_hvp": "train", "upper_grad_y": "validation"}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_reads_records_is_the_models_and_ignores_x(name):
    rng = np.random.default_rng([1, len(name)])
    problem, model = PROBLEMS[name], MODELS[name]
    train, held = raw(name, rng, 7), raw(name, rng, 5)
    own = problem.prepare(*train, "l2"), problem.prepare(*held, "l2")
    clip = Clip("l2", 1.0, 0.3, 0.2)
    x, y, z = rng.normal(size=(3, problem.q))
    matrix = rng.normal(size=(problem.q, problem.p))
    got = problem.terms(x, y, z, *own, clip)
    want = model.terms(np.zeros(model.p), y, z, *(model.prepare(*r, "l2") for r in (train, held)), clip)
    for term in TERMS:
        np.testing.assert_array_equal(getattr(got, term), getattr(want, term))
    matrices = problem.matrices(x, y, matrix, own[0], clip, set(MATRICES))
    assert set(matrices) == {"lower_hessian", "lower_hessian_product"}
    assert matrices["lower_hessian_product"].shape == (problem.q, problem.p)
    unclipped = problem.matrices(x, y, matrix, own[0], Clip(), set(MATRICES))
    np.testing.assert_allclose(unclipped["lower_hessian"] @ matrix, unclipped["lower_hessian_product"], atol=1e-12)
    weights = rng.dirichlet(np.ones(7))
    for a in problem.losses(x[None], y[None], own[0], weights):
        records = [value(name, f[None], b[None], y) for f, b in zip(*train, strict=True)]
        assert a[0] == pytest.approx(np.dot(weights, records), rel=1e-12)
    accuracy = problem.accuracy(x[None], y[None], own[0])
    assert (accuracy is None) == (name == "ridge")


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_regulariser_is_the_derivative_of_its_value(name):
    rng = np.random.default_rng([2, len(name)])
    problem, h = PROBLEMS[name], 1e-5
    x, y, z, dx, dy = rng.normal(size=(5, 2, problem.q))
    got = problem.regulariser(x, y, z)
    for row in range(2):
        assert problem.regulariser_value(x, y)[row] == pytest.approx(penalty(name, x[row], y[row]), rel=1e-12)
        slope = (penalty(name, x[row], y[row] + h * dy[row]) - penalty(name, x[row], y[row] - h * dy[row])) / (2 * h)
        assert got.grad_y[row] @ dy[row] == pytest.approx(slope, rel=1e-6)
    plus, minus = (problem.regulariser(x, y + s * h * z, z).grad_y for s in (1, -1))
    np.testing.assert_allclose(got.hvp, (plus - minus) / (2 * h), rtol=1e-6, atol=1e-8)
    plus, minus = ((problem.regulariser(x + s * h * dx, y, z).grad_y * z).sum(axis=1) for s in (1, -1))
    np.testing.assert_allclose((got.jvp * dx).sum(axis=1), (plus - minus) / (2 * h), rtol=1e-6, atol=1e-8)
    whole = regulariser_matrices(problem, x, y, None)
    np.testing.assert_allclose(np.einsum("bij,bj->bi", whole.hessian, z), got.hvp, rtol=1e-12)
    np.testing.assert_allclose(np.einsum("bij,bj->bi", whole.jacobian, z), got.jvp, rtol=1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_hypergradient_is_the_slope_of_f(name):
    agents, problem = raw_agents(name, [3, len(name)]), PROBLEMS[name]
    rng = np.random.default_rng([4, len(name)])
    x, direction = 0.3 * rng.normal(size=(2, problem.p))
    got = true_hypergradient(problem, x, prepared(problem, agents)) @ direction

    def f(at):
        pairs = prepared(problem, agents)
        y = solve_lower(problem, at, pairs)[None]
        return np.mean([problem.losses(at[None], y, v, np.full(len(v[0]), 1 / len(v[0])))[1][0] for _, v in pairs])

    h = 1e-4
    assert got == pytest.approx((f(x + h * direction) - f(x - h * direction)) / (2 * h), rel=1e-5)
    assert f(x) == pytest.approx(numerical_upper(name, agents, x), rel=1e-7)


def test_ridge_solutions_in_closed_form():
    problem, raw_pairs = PROBLEMS["ridge"], raw_agents("ridge", 5)
    agents = prepared(problem, raw_pairs)
    x = np.random.default_rng(6).normal(size=D)
    a = np.mean([f.T @ f / len(b) for (f, b), _ in raw_pairs], axis=0)
    c = np.mean([f.T @ b / len(b) for (f, b), _ in raw_pairs], axis=0)
    y = np.linalg.solve(a + np.diag(np.exp(x)), c)
    np.testing.assert_allclose(solve_lower(problem, x, agents), y, rtol=1e-8)
    gradient = np.mean([f.T @ (f @ y - b) / len(b) for _, (f, b) in raw_pairs], axis=0)
    z = np.linalg.solve(a + np.diag(np.exp(x)), gradient)
    np.testing.assert_allclose(solve_inverse_hvp(problem, x, y, agents), z, rtol=1e-7)
    np.testing.assert_allclose(true_hypergradient(problem, x, agents), -np.exp(x) * y * z, rtol=1e-7)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([(n, t) for n in PROBLEMS for t in ("lower_grad_y", "lower_hvp", "upper_grad_y")]),
    st.sampled_from(["l1", "l2"]),
    st.floats(-3, 6),
)
def test_random_neighbours_never_exceed_the_bound(seed, case, norm, feature_scale):
    name, term = case
    rng = np.random.default_rng(seed)
    problem, n = PROBLEMS[name], int(rng.integers(1, 10))
    x, y, z = rng.normal(size=(3, problem.q))
    clip = Clip(norm, 1.0, 0.6, 0.25)
    rows = raw(name, rng, n, 10.0**feature_scale)
    other = tuple(r.copy() for r in rows)
    k = rng.integers(n)
    for mine, new in zip(other, raw(name, rng, 1, 10.0 ** rng.uniform(-3, 6)), strict=True):
        mine[k] = new[0]
    a, b = (
        getattr(problem.terms(x, y, z, r, r, clip), term) for r in (problem.prepare(*s, norm) for s in (rows, other))
    )
    assert LENGTH[norm](a - b) <= (1 + 1e-9) * 2 * (clip.y if term == "lower_grad_y" else clip.z) / n


@pytest.mark.parametrize("name", ["logistic", "intercept", "softmax"])
def test_constants_hold_and_the_records_are_the_models(name):
    problem = PROBLEMS[name]
    box = {"y": 0.7, "z": 0.9}
    got, model = problem.constants(box, 1.3), MODELS[name].constants({**box, "x": 5.0}, 1.3)
    for kind in ("train", "validation"):
        np.testing.assert_array_equal(got.data[kind], model.data[kind])
        np.testing.assert_array_equal(got.swap[kind], model.swap[kind])
    assert problem.constants(box, None) is None
    assert problem.constants({"y": 0.7}, 1.3) is None


def test_constants_of_the_ridge_are_not_claimed():
    assert PROBLEMS["ridge"].constants({"x": 1.0, "y": 1.0, "z": 1.0}, 1.0) is None


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([Pull(RIDGE), Strengths()]))
def test_no_two_points_move_a_penalty_farther_than_its_constants(seed, rule):
    rng = np.random.default_rng(seed)
    box = {"x": 0.6, "y": 0.8, "z": 1.1}
    bound = rule.lipschitz(box)
    for argument, channel in enumerate(box):
        a = [rng.uniform(-limit, limit, size=(1, D)) for limit in box.values()]
        b = [v.copy() for v in a]
        b[argument] = rng.uniform(-box[channel], box[channel], size=(1, D))
        far = np.abs(a[argument] - b[argument]).sum()
        first, second = rule.terms(*a), rule.terms(*b)
        for row, term in enumerate(("jvp", "grad_y", "hvp")):
            sensitivity = np.abs(getattr(first, term) - getattr(second, term)).sum()
            assert sensitivity <= bound[row, argument] * far * (1 + 1e-12) + 1e-15


def test_penalty_constants_by_hand():
    np.testing.assert_allclose(Pull(3.0).lipschitz({}), [[0, 0, 3], [3, 3, 0], [0, 0, 3]])
    twice = Strengths().lipschitz({"x": np.log(2.0), "y": 3.0, "z": 5.0})
    np.testing.assert_allclose(twice, [[30, 10, 6], [6, 2, 0], [10, 0, 2]])
    assert Strengths().lipschitz({"y": 1.0, "z": 1.0}) is None
    assert Strengths().lipschitz({"x": 701.0, "y": 1.0, "z": 1.0}) is None


@pytest.mark.parametrize("ridge", [0.0, -1.0, np.inf, np.nan])
def test_a_ridge_that_is_not_positive_is_refused(ridge):
    with pytest.raises(InputError, match=r"problem\.ridge"):
        biased_regularisation(D, (0.0, 1.0), ridge)


def test_the_registry_chooses_the_loss_by_the_number_of_classes(scenario):
    two = build(load(scenario(problem={"kind": "biased_regularisation", "ridge": 0.5, "intercept": True}))).problem
    assert isinstance(two, LogisticHyperparameter)
    assert (two.p, two.penalty) == (31, Pull(0.5))
    many = build(load(scenario(problem={"kind": "biased_regularisation", "data": "wine"}))).problem
    assert isinstance(many, SoftmaxHyperparameter)
    assert (many.p, many.penalty) == (39, Pull(0.1))
