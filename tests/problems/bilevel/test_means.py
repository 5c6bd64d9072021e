"""Mean estimation: oracle against loops over records, closed forms, clips, constants, and a whole run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.means import MeanEstimation
from decentral_dp.problems.lower_level import solve_lower
from tests.support.closed_forms import closed_form
from tests.support.hypergradients import solve_inverse_hvp, true_hypergradient

D = 3
PROBLEM = MeanEstimation(D, ridge=0.7)
LENGTH: dict[str, Callable[[Any], float]] = {"l1": lambda v: float(np.abs(v).sum()), "l2": lambda v: math.hypot(*v)}


def records(seed: int, n: int, scale: float = 1.0) -> Any:
    return PROBLEM.prepare(scale * np.random.default_rng(seed).normal(size=(n, D)), np.zeros(n), "l2")


def test_the_lower_gradient_ignores_the_state_and_nothing_else_reads_train_records() -> None:
    """What pricing pairs of agents rests on: the record's part of the update is the same wherever the state is."""
    train, clip = records(4, 6), Clip("l2", 1.0, 0.4, 0.4)
    points = np.random.default_rng(5).normal(size=(2, 3, D)) * 1e6
    one, other = (PROBLEM.terms(*p, train, train, clip).lower_grad_y for p in points)
    assert np.array_equal(one, other)
    assert dict(PROBLEM.reads_records) == {"lower_grad_y": "train", "upper_grad_y": "validation"}
    names = ("lower_hessian", "lower_jacobian", "lower_hessian_product")
    assert PROBLEM.matrices(*points[0][:2], np.eye(D), train, clip, names) == {}


def test_losses_agree_with_loops() -> None:
    part, rng = records(9, 6), np.random.default_rng(10)
    y, weights = rng.normal(size=(4, D)), rng.dirichlet(np.ones(6))
    lower, upper = PROBLEM.losses(y, y, part, weights)
    for row in range(4):
        pairs = list(zip(weights, part.features.tolist(), strict=True))
        assert lower[row] == pytest.approx(-sum(w * sum(np.array(a) * y[row]) for w, a in pairs), rel=1e-12)
        assert upper[row] == pytest.approx(sum(w * 0.5 * math.dist(a, y[row]) ** 2 for w, a in pairs), rel=1e-12)
    assert PROBLEM.accuracy(y, y, part) is None


@pytest.mark.parametrize("ridge", [0.01, 1.0, 50.0])
def test_closed_forms_agree_with_newton_and_conjugate_gradients(ridge: float) -> None:
    problem = MeanEstimation(D, ridge)
    agents = [(records(20 + i, 4 + i), records(30 + i, 9 - i)) for i in range(4)]
    x = np.random.default_rng(11).normal(size=D)
    y = solve_lower(problem, x, agents)
    np.testing.assert_allclose(y, closed_form(problem).lower_solution(x, agents), rtol=1e-8)
    np.testing.assert_allclose(
        solve_inverse_hvp(problem, x, y, agents), closed_form(problem).z_star(x, agents), rtol=1e-7
    )
    np.testing.assert_allclose(
        true_hypergradient(problem, x, agents), closed_form(problem).hypergradient(x, agents), rtol=1e-7
    )
    best = closed_form(problem).optimum(agents)
    assert np.abs(closed_form(problem).hypergradient(best.x, agents)).max() < 1e-12
    np.testing.assert_allclose(closed_form(problem).lower_solution(best.x, agents), best.y, rtol=1e-10)
    assert best.value < closed_form(problem).upper_value(best.x + 0.1, agents)
    step, h = np.random.default_rng(12).normal(size=D), 1e-5
    found = (
        closed_form(problem).upper_value(x + h * step, agents) - closed_form(problem).upper_value(x - h * step, agents)
    ) / (2 * h)
    assert closed_form(problem).hypergradient(x, agents) @ step == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("n", [1, 7, 300])
def test_opposite_records_move_the_mean_by_the_whole_bound(n: int, norm: Any) -> None:
    clip, features = Clip(norm, 1.0, 0.6, 0.25), np.random.default_rng(n).normal(size=(n, D))
    ends = []
    for far in (1e3, -1e3):
        features[0] = far, 0.0, 0.0
        part = PROBLEM.prepare(features, np.zeros(n), norm)
        ends.append(PROBLEM.terms(np.zeros(D), np.zeros(D), np.zeros(D), part, part, clip))
    for term, bound in (("lower_grad_y", 0.6), ("upper_grad_y", 0.25)):
        sensitivity = LENGTH[norm](getattr(ends[0], term) - getattr(ends[1], term))
        assert sensitivity == pytest.approx(2 * bound / n, rel=1e-9)
