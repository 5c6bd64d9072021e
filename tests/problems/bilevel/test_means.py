"""Mean estimation: oracle against loops over records, closed forms, clips, constants, and a whole run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.problems.bilevel.means import MeanEstimation
from decentral_dp.problems.lower_level import solve_lower
from tests.support.closed_forms import closed_form
from tests.support.hypergradients import solve_inverse_hvp, true_hypergradient

D = 3
PROBLEM = MeanEstimation(D, ridge=0.7)


def records(seed: int, n: int, scale: float = 1.0) -> Any:
    return PROBLEM.prepare(scale * np.random.default_rng(seed).normal(size=(n, D)), np.zeros(n), "l2")


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
