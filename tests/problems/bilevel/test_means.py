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
    """Basis of network DP: the contribution of a record does not depend on the state."""
    train, clip = records(4, 6), Clip("l2", 1.0, 0.4, 0.4)
    points = np.random.default_rng(5).normal(size=(2, 3, D)) * 1e6
    one, other = (PROBLEM.terms(*p, train, train, clip).lower_grad_y for p in points)
    assert np.array_equal(one, other)
    assert dict(PROBLEM.reads_records) == {"lower_grad_y": "train", "upper_grad_y": "validation"}
    names = ("lower_hessian", "lower_jacobian", "lower_hessian_product")
    assert PROBLEM.matrices(*points[0][:2], np.eye(D), train, clip, names) == {}


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
