"""Solutions along a path keep the certificate of single solves, and take few passes over the records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.central import pooled as pooled_records
from decentral_dp.central.certified_solver import Facts, Objective
from decentral_dp.central.pooled import Pooled, extrapolate, solutions_along
from decentral_dp.central.selection import grid
from decentral_dp.constants.families import family_of
from decentral_dp.problems import lower_level as solve
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.regularised_losses import logistic_regularisation
from decentral_dp.problems.lower_level import CHUNK, UNCLIPPED, mean_losses, mean_term
from tests.support.pooled_oracle import DATA, Case, Exact, cases, dataset

Array = np.ndarray
CASES = cases()
Long = np.longdouble


def pooled(case: Case, name: str, n: int) -> tuple[Pooled, tuple[Array, Array]]:
    train = dataset(case, name, n)
    return Pooled.from_agents(
        case.family, [(case.prepared(*train, "train"), case.prepared(*train, "validation"))]
    ), train


def along(pool: Pooled, path: Array) -> Array:
    return solutions_along(path, lambda x: (pool._objective(x), pool.bounds.facts(x)))


def straight(p: int, n: int) -> Array:
    """From strong regularisation to weak, all coordinates at their own pace."""
    return np.linspace(np.full(p, 1.0), np.linspace(-6.0, -4.0, p), n)


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[None]:
    calls: list[None] = []
    whole = getattr(Objective, name)
    monkeypatch.setattr(Objective, name, lambda self, y: calls.append(None) or whole(self, y))
    return calls


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("key", CASES)
def test_every_solution_of_a_path_is_as_near_as_certified(key: str, name: str) -> None:
    case = CASES[key]
    pool, records = pooled(case, name, 5)
    path = straight(case.problem.p, 12)
    for x, y in zip(path, along(pool, path), strict=True):
        f = pool.bounds.facts(x)
        assert float(np.linalg.norm(y - Exact(case, x, records, records).minimiser())) <= f.accuracy
        assert np.linalg.norm(y - f.centre) <= f.radius * (1 + 1e-12)


@pytest.mark.parametrize(
    "path",
    [
        np.array([[-1.0], [-1.0], [-3.0], [-3.0], [-3.0], [0.5], [-6.0], [-5.9999], [-6.0]]),
        np.array([[-4.0]]),
        np.linspace(-6.0, 1.0, 30)[:, None] ** 3 / 36.0,
    ],
    ids=["back and forth", "one point", "uneven"],
)
def test_any_path_will_do(path: Array) -> None:
    case = CASES["logistic_shared"]
    pool, records = pooled(case, "random", 30)
    for x, y in zip(path, along(pool, path), strict=True):
        away = float(np.linalg.norm(y - Exact(case, x, records, records).minimiser()))
        assert away <= pool.bounds.facts(x).accuracy


def test_rows_of_a_grid_are_a_path() -> None:
    case = CASES["logistic_pull"]
    pool, records = pooled(case, "random", 20)
    path = grid(np.full(3, -2.0), np.full(3, 2.0), 3)
    for x, y in zip(path, along(pool, path), strict=True):
        away = float(np.linalg.norm(y - Exact(case, x, records, records).minimiser()))
        assert away <= pool.bounds.facts(x).accuracy


def long_newton(signed: Array, strength: Any) -> Array:
    """The logistic regression of signed rows in extended precision, by plain Newton steps that are halved."""
    rows, y = signed.astype(Long), np.zeros(signed.shape[1], dtype=Long)

    def slope(at: Array) -> tuple[Array, Array]:
        wrong = 1 / (1 + np.exp(rows @ at))
        return strength * at - (wrong[:, None] * rows).mean(axis=0), wrong

    g, wrong = slope(y)
    for _ in range(60):
        hessian = (rows.T * (wrong * (1 - wrong))) @ rows / len(rows) + strength * np.eye(len(y))
        step = np.linalg.solve(hessian.astype(float), g.astype(float)).astype(Long)
        for halving in range(40):
            new, there = slope(y - step * Long(0.5) ** halving)
            if np.linalg.norm(new) < np.linalg.norm(g):
                y, g, wrong = y - step * Long(0.5) ** halving, new, there
                break
        else:
            return y
    return y


def steep(n: int, d: int) -> tuple[Pooled, Array]:
    """Records over several chunks, with correlated features of very different sizes and labels that nearly separate."""
    rng = np.random.default_rng(5)
    features = rng.normal(size=(n, d)) * np.logspace(0, -3, d) + 0.3 * rng.normal(size=(n, 1))
    features /= 1.0001 * np.linalg.norm(features, axis=1).max()
    labels = (features[:, 0] + 0.02 * rng.normal(size=n) > 0.0).astype(float)
    problem = logistic_regularisation(d, [0.0, 1.0])
    records = problem.prepare(features, labels, "l2")
    return Pooled.from_agents(family_of(problem, 1.0, 1.0), [(records, records)]), features * (2.0 * labels - 1.0)[
        :, None
    ]


def test_a_path_over_many_chunks_is_certified_and_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """In extended precision, with no code shared; and at most two gradients for a strength on average."""
    gradients, hessians = counted(monkeypatch, "gradient"), counted(monkeypatch, "hessian")
    pool, signed = steep(2 * CHUNK + 500, 6)
    path = np.linspace(0.0, -6.0, 65)[:, None]
    ys = along(pool, path)
    assert len(gradients) <= 2 * len(path)
    assert len(hessians) <= 6
    inexact = pool.bounds.inexactness(path[-1], path[0])
    scores = pool.scores_along(path)
    for k in range(0, len(path), 5):
        exact = long_newton(signed, np.exp(path[k, 0].astype(Long)))
        assert float(np.linalg.norm(ys[k] - exact)) <= pool.bounds.facts(path[k]).accuracy
        value = float(np.logaddexp(Long(0), -signed.astype(Long) @ exact).mean())
        assert abs(scores[k] - value) <= inexact
    assert np.array_equal(ys, along(pool, path))


@pytest.mark.parametrize("bad", [np.zeros_like, np.negative, lambda r: np.full_like(r, np.nan), lambda r: 1e9 * r])
def test_a_bad_factor_costs_time_only(bad: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["logistic_shared"]
    pool, records = pooled(case, "random", 20)
    path = straight(1, 8)
    monkeypatch.setattr(pooled_records.certified, "cholesky_solver", lambda _: bad)
    for x, y in zip(path, along(pool, path), strict=True):
        away = float(np.linalg.norm(y - Exact(case, x, records, records).minimiser()))
        assert away <= pool.bounds.facts(x).accuracy


def test_starts_that_lead_astray_cost_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["logistic_shared"]
    pool, records = pooled(case, "random", 20)
    path = straight(1, 8)
    for wrong in (1e300, np.nan, -50.0):
        monkeypatch.setattr(pooled_records, "extrapolate", lambda *a, w=wrong: [np.full(3, w)] * len(a[1]))
        for x, y in zip(path, along(pool, path), strict=True):
            away = float(np.linalg.norm(y - Exact(case, x, records, records).minimiser()))
            assert away <= pool.bounds.facts(x).accuracy


def test_a_path_that_is_not_certified_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail: with a goal that is too loose it does."""
    case = CASES["logistic_shared"]
    pool, records = pooled(case, "random", 20)
    path = straight(1, 8)
    monkeypatch.setattr(Facts, "goal", property(lambda _: 1e-4))
    ys = along(pool, path)
    monkeypatch.undo()
    away = [np.linalg.norm(y - Exact(case, x, records, records).minimiser()) for x, y in zip(path, ys, strict=True)]
    assert max(float(a) for a in away) > max(pool.bounds.facts(x).accuracy for x in path)


def test_whatever_a_float_process_does_the_path_stays_in_its_balls() -> None:
    pool, _ = pooled(CASES["logistic_shared"], "random", 9)
    for poison in (np.nan, np.inf, 1e300):
        bad = pool.train._replace(signed=pool.train.signed * poison, l2=pool.train.l2 * poison)
        path = straight(1, 5)

        def at(x: Array, bad: Any = bad) -> tuple[Objective, Facts]:
            objective = pool._objective(x)
            lower = objective.lower._replace(records=bad)
            return objective._replace(lower=lower), pool.bounds.facts(x)._replace(lipschitz=1.0)

        for x, y in zip(path, solutions_along(path, at), strict=True):
            assert np.linalg.norm(y) <= pool.bounds.facts(x).radius * (1 + 1e-12)


def test_without_matrices_a_path_is_certified_too(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["logistic_shared"]
    pool, records = pooled(case, "random", 20)
    path = straight(1, 6)
    monkeypatch.setattr(pooled_records.certified, "DENSE_LIMIT", 0)
    for x, y in zip(path, along(pool, path), strict=True):
        away = float(np.linalg.norm(y - Exact(case, x, records, records).minimiser()))
        assert away <= pool.bounds.facts(x).accuracy


def test_extrapolation_is_exact_for_polynomials() -> None:
    places = np.array([0.0, 0.3, 1.0, 1.1, 2.0])
    for degree in range(5):
        found = extrapolate(places, [np.array([t**degree, 1.0 - t**degree]) for t in places], 2.5)
        assert len(found) == 5
        for more in range(degree, 5):
            assert np.allclose(found[more], [2.5**degree, 1.0 - 2.5**degree], rtol=1e-12)
    assert not np.allclose(found[3], [2.5**4, 1.0 - 2.5**4])
    assert extrapolate(np.zeros(0), [], 1.0) == []


@pytest.mark.parametrize("n", [1, CHUNK, 2 * CHUNK, 2 * CHUNK + 7])
def test_a_mean_of_stacked_chunks_is_that_of_one_after_the_other(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(n)
    problem = LogisticHyperparameter(4)
    records = problem.prepare(rng.normal(size=(n, 4)), rng.choice([-1.0, 1.0], size=n), "l2")
    x, y, z = rng.normal(size=(3, 4))
    terms = ("lower_grad_y", "lower_hvp", "upper_grad_y")
    stacks = [mean_term(problem, x, y, z, records, term) for term in terms]
    monkeypatch.setattr(solve, "in_closed_form", lambda _: None)
    singles = [mean_term(problem, x, y, z, records, term) for term in terms]
    assert np.array_equal(stacks, singles)
    whole = problem.terms(x, y, z, records, records, UNCLIPPED, terms)
    for term, found in zip(terms, stacks, strict=True):
        assert np.allclose(found, getattr(whole, term), rtol=0, atol=1e-14)


def test_losses_of_a_logistic_regression_are_those_of_extended_precision() -> None:
    """Also where every record is far on one side, and beyond float64's exponents."""
    problem = LogisticHyperparameter(1)
    margins = np.array([0.0, 1e-300, -1e-17, 1.0, -1.0, 36.0, -36.0, 700.0, -700.0, 1e5, -1e5, 1e300, -1e300])
    records = problem.prepare(np.ones((1, 1)), np.ones(1), "l2")
    found = mean_losses(problem, np.zeros((len(margins), 1)), margins[:, None], records)
    exact = np.logaddexp(Long(0), -margins.astype(Long))
    assert np.allclose(found, exact.astype(float), rtol=4e-16, atol=0)
    alone = [mean_losses(problem, np.zeros((1, 1)), t[None, None], records)[0] for t in margins]
    assert np.array_equal(found, alone)
    strange = mean_losses(problem, np.zeros((3, 1)), np.array([[np.inf], [-np.inf], [np.nan]]), records)
    assert np.array_equal(strange, [0.0, np.inf, np.nan], equal_nan=True)
