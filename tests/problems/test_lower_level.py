"""Exact solutions by Newton's method, with Hessians and their products, against closed forms and finite differences."""

import numpy as np
import pytest
import scipy

from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems import lower_level
from decentral_dp.problems.bilevel.linear import (
    LogisticHyperparameter,
    Quadratic,
    SoftmaxHyperparameter,
    biased_regularisation,
)
from decentral_dp.problems.lower_level import CHUNK, UNCLIPPED, mean_losses, mean_term, solve_lower
from tests.support.closed_forms import QuadraticSolution
from tests.support.hypergradients import hypergradient, solve_inverse_hvp, true_hypergradient

COUNTS = ((5, 7), (5, 7), (9, 4), (6, 7), (5, 7))
D = 4


def raw_agents(labels, seed, d=D, counts=COUNTS):
    """Unequal shards, each around its own centre: weighting agents wrongly must show."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.normal(size=(len(counts), d))
    return [
        tuple((centre + rng.normal(size=(n, d)), rng.choice(labels, size=n)) for n in pair)
        for pair, centre in zip(counts, centres, strict=True)
    ]


def prepared(problem, agents):
    return [tuple(problem.prepare(*part, "l1") for part in pair) for pair in agents]


@pytest.mark.parametrize("ridge", [0.01, 1.0, 50.0])
def test_quadratic_closed_forms(ridge):
    problem = Quadratic(D, ridge)
    agents = prepared(problem, raw_agents([-1.0, 0.5, 3.0], 1))
    x = np.random.default_rng(2).normal(size=D)
    y = solve_lower(problem, x, agents)
    np.testing.assert_allclose(y, QuadraticSolution(problem).lower_solution(x, agents), rtol=1e-8)
    z = solve_inverse_hvp(problem, x, y, agents)
    np.testing.assert_allclose(z, QuadraticSolution(problem).z_star(x, agents), rtol=1e-7)
    np.testing.assert_allclose(
        hypergradient(problem, x, y, z, agents), QuadraticSolution(problem).hypergradient(x, agents), rtol=1e-7
    )
    np.testing.assert_allclose(
        true_hypergradient(problem, x, agents), QuadraticSolution(problem).hypergradient(x, agents), rtol=1e-7
    )


@pytest.mark.parametrize("spread", [2.0, 8.0, 14.0])
def test_strengths_over_many_decades(spread):
    """exp(x) from e⁻¹⁴ to e¹⁴: the systems are solved all the same."""
    d = 20
    problem = LogisticHyperparameter(d)
    agents = prepared(problem, raw_agents([-1.0, 1.0], 14, d=d, counts=((40, 30),) * 3))
    x = np.random.default_rng(15).uniform(-spread, spread, size=d)
    y = solve_lower(problem, x, agents)
    grads = [problem.terms(x, y, np.zeros(d), *pair, Clip()).lower_grad_y for pair in agents]
    assert np.linalg.norm(np.mean(grads, axis=0) + np.exp(x) * y) < 1e-8
    assert np.isfinite(true_hypergradient(problem, x, agents)).all()


@pytest.mark.parametrize(
    "problem",
    [
        LogisticHyperparameter(D),
        Quadratic(D, 0.3),
        SoftmaxHyperparameter(D, (0.0, 1.0, 2.0)),
        biased_regularisation(D, (-1.0, 1.0)),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_hessian_as_stacked_and_its_products_give_the_same(problem, monkeypatch):
    labels = [0.0, 1.0, 2.0] if isinstance(problem, SoftmaxHyperparameter) else [-1.0, 1.0]
    agents = prepared(problem, raw_agents(labels, 21))
    x = np.random.default_rng(22).normal(size=problem.p)
    formed = solve_lower(problem, x, agents), true_hypergradient(problem, x, agents)
    monkeypatch.setattr(lower_level.LowerLevel, "hessian", pytest.fail)
    monkeypatch.setattr(lower_level, "MOST_FORMED", 0)
    by_products = solve_lower(problem, x, agents), true_hypergradient(problem, x, agents)
    for one, other in zip(formed, by_products, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-10)


def test_a_hessian_that_is_singular_is_left_to_its_products():
    """exp(−800) = 0: nothing holds y where no record reaches."""
    problem = LogisticHyperparameter(D)
    flat = np.zeros((6, D))
    flat[:, 0] = [1.0, -1.0, 0.5, 2.0, -0.5, 1.5]
    agents = [tuple(problem.prepare(flat, np.array([1.0, -1.0, -1.0, 1.0, 1.0, -1.0]), "l1") for _ in range(2))]
    x = np.array([0.0, -800.0, -800.0, -800.0])
    with pytest.raises(np.linalg.LinAlgError):
        scipy.linalg.cho_factor(
            lower_level.LowerLevel.from_point(problem, x, lower_level.join_alike(agents)).hessian(np.zeros(D))
        )
    y = solve_lower(problem, x, agents)
    assert y[0] != 0.0
    np.testing.assert_array_equal(y[1:], 0.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, 800.0])
def test_a_diverged_upper_variable_gives_nan_and_no_error(value):
    problem = LogisticHyperparameter(D)
    agents = prepared(problem, raw_agents([-1.0, 1.0], 16))
    x = np.zeros(D)
    x[1] = value
    assert np.isnan(true_hypergradient(problem, x, agents)).any()


@pytest.mark.parametrize("n", [1, CHUNK, 2 * CHUNK, 2 * CHUNK + 7])
def test_a_mean_of_stacked_chunks_is_that_of_one_after_the_other(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(n)
    problem = LogisticHyperparameter(4)
    records = problem.prepare(rng.normal(size=(n, 4)), rng.choice([-1.0, 1.0], size=n), "l2")
    x, y, z = rng.normal(size=(3, 4))
    terms = ("lower_grad_y", "lower_hvp", "upper_grad_y")
    stacks = [mean_term(problem, x, y, z, records, term) for term in terms]
    monkeypatch.setattr(lower_level, "as_stacked", lambda _: None)
    singles = [mean_term(problem, x, y, z, records, term) for term in terms]
    assert np.array_equal(stacks, singles)
    whole = problem.terms(x, y, z, records, records, UNCLIPPED, terms)
    for term, found in zip(terms, stacks, strict=True):
        assert np.allclose(found, getattr(whole, term), rtol=0, atol=1e-14)


def test_losses_of_a_logistic_regression_are_those_of_extended_precision() -> None:
    """Test records that are all far on one side, and exponents beyond float64."""
    problem = LogisticHyperparameter(1)
    margins = np.array([0.0, 1e-300, -1e-17, 1.0, -1.0, 36.0, -36.0, 700.0, -700.0, 1e5, -1e5, 1e300, -1e300])
    records = problem.prepare(np.ones((1, 1)), np.ones(1), "l2")
    found = mean_losses(problem, np.zeros((len(margins), 1)), margins[:, None], records)
    exact = np.logaddexp(np.longdouble(0), -margins.astype(np.longdouble))
    assert np.allclose(found, exact.astype(float), rtol=4e-16, atol=0)
    alone = [mean_losses(problem, np.zeros((1, 1)), t[None, None], records)[0] for t in margins]
    assert np.array_equal(found, alone)
    strange = mean_losses(problem, np.zeros((3, 1)), np.array([[np.inf], [-np.inf], [np.nan]]), records)
    assert np.array_equal(strange, [0.0, np.inf, np.nan], equal_nan=True)
