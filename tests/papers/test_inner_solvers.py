"""Localised descent: its radii hold the minimiser, its numbers of stages and steps are those of the paper."""

from __future__ import annotations

import numpy as np
import pytest

from decentral_dp.constants import ProblemConstants
from papers.inner_solvers import next_radius, noise_quantile, stages_of, steps_of_stage


def test_noise_is_rarely_longer() -> None:
    rng = np.random.default_rng(5)
    for d in (1, 50):
        longest = np.linalg.norm(rng.normal(size=(4000, 20, d)), axis=2).max(axis=1)
        assert (longest > noise_quantile(1.0, d, 20, 0.05)).mean() <= 0.05


def descents(runs: int, steps: int, radius: float, scale: float) -> np.ndarray:
    """Run one stage from the edge of the ball on ½‖y‖², μ = b = 1, minimiser at distance `radius`: (runs,)."""
    rng = np.random.default_rng(3)
    centre = radius * np.array([1.0, 0.0, 0.0, 0.0])
    at, total = np.tile(centre, (runs, 1)), np.zeros((runs, 4))
    for t in range(steps):
        total += at
        away = at - (at + scale * rng.normal(size=(runs, 4))) / (t + 1) - centre
        size = np.linalg.norm(away, axis=1)[:, None]
        at = centre + away * np.minimum(1.0, radius / size)
    return np.linalg.norm(total / steps, axis=1)


@pytest.mark.parametrize("scale", [0.01, 0.5])
def test_the_next_ball_holds_the_minimiser_and_is_smaller(scale: float) -> None:
    c, steps, radius = ProblemConstants(*([1.0] * 20)), 400, 2.0
    stages, bound = descents(300, steps, radius, scale), next_radius(c, 4, radius, scale, steps, 0.01)
    assert stages.max() <= bound < radius
    assert next_radius(c, 4, radius, 2.0 * scale, steps, 0.01) > bound
    # A distance from a gap of values that is itself a bound: loose, but not by orders of magnitude.
    assert stages.max() > 0.01 * bound


def test_numbers_of_stages_and_steps() -> None:
    assert [stages_of(0.5, 1.0, n) for n in (2, 50, 10**4, 10**9)] == [1, 2, 4, 5]
    assert steps_of_stage(1000, 0.1, 2, 5) == 250
    assert steps_of_stage(3, 0.1, 2, 5) == 1
