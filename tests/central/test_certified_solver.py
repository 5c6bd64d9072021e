"""Certified solves over pooled records: their accuracy for every data set."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from decentral_dp.central import certified_solver
from decentral_dp.central.certified_solver import (
    MeanLoss,
    PenalisedObjective,
    Solve,
    SolveFacts,
    facts,
    inverse_product,
    mean_rounding,
    minimise,
    project_to_ball,
    solve_certificate,
)
from decentral_dp.central.pooled import Pooled
from decentral_dp.errors import InputError
from tests.support.pooled_oracle import DATA, RADIUS, Case, Exact, cases, dataset, solve_long

Array = np.ndarray
CASES = cases()


def setting(
    case: Case, x: Array, name: str, n: int, penalty: float | None
) -> tuple[PenalisedObjective, SolveFacts, Exact]:
    train, validation = dataset(case, name, n), dataset(case, name, n + 1, seed=1)
    pool = Pooled.from_agents(case.family, [(case.prepared(*train, "train"), case.prepared(*validation, "validation"))])
    return pool._objective(x, penalty), pool.bounds.facts(x, penalty), Exact(case, x, train, validation)


def points(case: Case) -> list[Array]:
    """Return upper variables with weak and strong regularisation, near and far."""
    p = case.problem.p
    if case.penalty in ("strengths", "shared", "scaled"):
        return [np.full(p, -1.0), np.linspace(-7.0, 1.0, p) if p > 1 else np.array([-7.0])]
    return [np.full(p, 0.3), np.linspace(-4.0, 4.0, p)]


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("key", CASES)
def test_minimisers_have_certified_accuracy(key: str, name: str) -> None:
    case = CASES[key]
    for k, x in enumerate(points(case)):
        for penalty in (None, 0.05 if k else 3.0):
            objective, f, exact = setting(case, x, name, 4, penalty)
            y = minimise(objective, f)
            away = float(np.linalg.norm(y - exact.minimiser(penalty)))
            assert away <= f.accuracy
            assert np.linalg.norm(y - f.centre) <= f.radius * (1 + 1e-12)
            # The certified error is far below the sensitivity to one record of a million.
            assert f.accuracy <= 1e-4 * (f.record + f.smooth * f.reach) / f.mu


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("key", CASES)
def test_linear_solves_have_certified_accuracy(key: str, name: str) -> None:
    case = CASES[key]
    for x in points(case):
        objective, f, exact = setting(case, x, name, 4, None)
        y = f.centre + 0.5 * f.radius * np.ones(case.problem.q) / np.sqrt(case.problem.q)
        c = case.family.constants(x, x)
        solve = solve_certificate(f, c.l_fy, f.rounding * (c.l_fy + c.b_fyy * f.reach))
        v = inverse_product(objective, f, y, objective.upper.gradient(y), solve)
        best = solve_long(exact.lower_hessian(y), exact.upper_gradient(y))
        assert float(np.linalg.norm(v - best)) <= solve.error
        assert np.linalg.norm(v) <= c.l_fy / f.mu * (1 + 1e-12)


@pytest.mark.parametrize("key", ["logistic", "softmax_pull", "ridge", "cleaning", "mean"])
def test_matrix_free_result_is_the_same(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[key]
    for x in points(case):
        for penalty in (None, 0.5):
            objective, f, _ = setting(case, x, "random", 40, penalty)
            objective = objective._replace(
                lower=objective.lower._replace(moments=None), upper=objective.upper._replace(moments=None)
            )
            dense = minimise(objective, f)
            c = case.family.constants(x, x)
            solve = solve_certificate(f, c.l_fy, f.rounding * c.l_fy)
            target = objective.upper.gradient(dense)
            v = inverse_product(objective, f, dense, target, solve)
            with monkeypatch.context() as patch:
                patch.setattr(certified_solver, "DENSE_LIMIT", 0)
                patch.setattr(PenalisedObjective, "hessian", _forbidden)
                sparse = minimise(objective, f)
                other = inverse_product(objective, f, dense, target, solve)
            assert np.linalg.norm(sparse - dense) <= 2.0 * f.accuracy
            assert np.linalg.norm(other - v) <= 2.0 * solve.error


def _forbidden(*_: Any) -> Array:
    raise AssertionError("a matrix was formed")


@pytest.mark.parametrize("bad", [np.zeros_like, np.negative, lambda r: np.full_like(r, np.nan), lambda r: 1e9 * r])
def test_bad_factor_keeps_accuracy(bad: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    root = rng.normal(size=(6, 6))
    matrix = root @ root.T / 20 + 0.1 * np.eye(6)
    target = rng.normal(size=6)
    smooth = float(np.linalg.eigvalsh(matrix)[-1]) * 1.01
    solve = Solve(float(np.linalg.norm(target)), 1e-13, 2e-12)
    v = certified_solver.solve(lambda d: matrix @ d, bad, target, 0.1, smooth, solve)
    assert np.linalg.norm(v - np.linalg.solve(matrix, target)) <= solve.error
    objective, f, exact = setting(CASES["logistic"], np.full(3, -1.0), "random", 20, None)
    monkeypatch.setattr(certified_solver, "cholesky_solver", lambda _: bad)
    assert float(np.linalg.norm(minimise(objective, f) - exact.minimiser())) <= f.accuracy


def test_steps_are_damped_far_from_the_minimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a start where every record is misclassified by far, a full step would leave the ball."""
    case = cases(ridge=0.003)["logistic_pull"]
    damped = []
    shrink = certified_solver.math.log1p
    monkeypatch.setattr(certified_solver.math, "log1p", lambda v: damped.append(v) or shrink(v))
    for away in (5.0, 20.0, 60.0):
        x = np.array([-away, 0.0, 0.0])
        train = (np.tile([0.9 * RADIUS, 0.1, 0.2], (9, 1)), np.ones(9))
        pool = Pooled.from_agents(case.family, [(case.prepared(*train, "train"),) * 2])
        f = pool.bounds.facts(x)
        y = minimise(pool._objective(x), f)
        assert float(np.linalg.norm(y - Exact(case, x, train, train).minimiser())) <= f.accuracy
    assert damped
    assert len(damped) < 200


def test_gradient_rounding_is_within_its_bound() -> None:
    """Thirty thousand equal records far from a solution, so that rounding errors have one sign."""
    case = CASES["quadratic"]
    n = 30_000
    train = (np.tile([1.1, 0.7, 1 / 3], (n, 1)), np.full(n, 2.0))
    records = case.prepared(*train, "train")
    x, y = np.zeros(3), np.full(3, 1.0 / 7.0)
    small = (train[0][:1], train[1][:1])
    exact = Exact(case, x, small, small).lower_gradient(y)
    objective = PenalisedObjective(
        MeanLoss(case.problem, x, records, "lower"), MeanLoss(case.problem, x, records, "upper")
    )
    f = facts(case.family.constants(x, x), np.zeros(3), (n,), 0.0)
    lost = float(np.linalg.norm(objective.gradient(y) - exact))
    assert 0.0 < lost <= f.gradient_error
    assert f.rounding == mean_rounding((n,), 3)


def test_refuses_a_weak_ridge() -> None:
    case = CASES["logistic_shared"]
    x = np.array([-24.0])
    with pytest.raises(InputError, match="float64 cannot certify"):
        facts(case.family.constants(x, x), np.zeros(3), (1000,), case.family.self_concordance)


def test_result_is_always_in_the_ball() -> None:
    """Bounded records exclude values that are not finite; even with them a solve ends in the ball."""
    case = CASES["logistic"]
    objective, f, _ = setting(case, np.full(3, -1.0), "random", 9, None)
    for poison in (np.nan, np.inf, 1e300):
        train = objective.lower.records
        bad = objective._replace(
            lower=objective.lower._replace(records=train._replace(signed=train.signed * poison, l2=train.l2 * poison))
        )
        start = time.perf_counter()
        y = minimise(bad, f._replace(lipschitz=1.0, self_concordance=1e-3))
        assert time.perf_counter() - start < 5.0
        assert np.linalg.norm(y) <= f.radius
        v = inverse_product(bad, f._replace(smooth=f.mu), y, np.ones(3), Solve(2.0, 0.1, 1.0))
        assert np.linalg.norm(v) <= 2.0 / f.mu * (1 + 1e-12)
    assert np.array_equal(project_to_ball(np.array([np.nan, 1.0]), np.array([3.0, 4.0]), 1.0), [3.0, 4.0])
    assert np.allclose(project_to_ball(np.array([3.0, 4.0]), np.zeros(2), 1.0), [0.6, 0.8])
