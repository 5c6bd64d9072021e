"""One strength for all features, and the lower bounds' instance: oracles, closed forms, constants, whole runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.problems.bilevel.means import MeanLowerBound
from decentral_dp.problems.lower_level import solve_lower
from tests.support.hypergradients import true_hypergradient

D = 3
LINEAR = MeanLowerBound(D, ridge=0.7, slope=1.3, stretch=0.6)


def raw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(n, D)), rng.integers(2, size=n).astype(float)


def agents(problem: Any, seed: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [tuple(problem.prepare(*raw(rng, n), "l2") for n in (7, 5)) for _ in range(3)]  # type: ignore[misc] # pairs


# The lower bounds' instance -----------------------------------------------------------------------------------------


def test_closed_forms() -> None:
    pairs = agents(LINEAR, 7)
    x = np.random.default_rng(8).normal(size=D)
    mean = np.mean([v.features.mean(axis=0) for _, v in pairs], axis=0)
    np.testing.assert_allclose(solve_lower(LINEAR, x, pairs), 0.6 * x, rtol=1e-9)
    np.testing.assert_allclose(true_hypergradient(LINEAR, x, pairs), -1.3 * 0.6 * mean, rtol=1e-9)
    losses = [LINEAR.losses(x[None], 0.6 * x[None], v, np.full(5, 0.2)) for _, v in pairs]
    assert np.mean([upper[0] for _, upper in losses]) == pytest.approx(-1.3 * 0.6 * x @ mean)
    assert all(lower[0] == 0.0 for lower, _ in losses)
    y = np.ones((1, D))
    assert LINEAR.regulariser_value(x[None], y)[0] == pytest.approx(0.35 * np.sum((y[0] - 0.6 * x) ** 2))
    got = LINEAR.regulariser(x[None], y, 2 * y)
    np.testing.assert_allclose(got.grad_y[0], 0.7 * (1 - 0.6 * x))
    np.testing.assert_allclose(got.hvp[0], 1.4)
    np.testing.assert_allclose(got.jvp[0], -0.7 * 0.6 * 2)
