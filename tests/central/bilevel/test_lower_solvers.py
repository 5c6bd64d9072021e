"""Private solvers of the lower level: agreement with loops over records, and their defaults."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
import pytest

import decentral_dp
from decentral_dp.central.bilevel.lower_solvers import LowerObjective, PublicFacts, count_descent_steps, noise_gain
from decentral_dp.constants import ProblemConstants
from decentral_dp.exchange import Bundle, Release, Released
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.coordinator_replay import with_noise
from tests.support.penalty_jobs import agree, content, made
from tests.support.penalty_loop import Naive


@pytest.mark.parametrize("kind", ["logistic_hyperparameter", "ridge_regularisation", "mean_estimation"])
def test_output_perturbation_matches_loop(kind: str) -> None:
    drop = ("algorithm.inner", "algorithm.smoothness", "privacy.clip")
    job = made(kind, drop, algorithm={"solver": "output_perturbation"})
    assert job.algorithm.releases_per_round == 2
    agree(job, Naive(job, with_noise), solve="perturb")


def test_default_step_follows_from_constants_at_x() -> None:
    out = content("mean_estimation", ("algorithm.smoothness", "privacy.clip"))
    local = build(decentral_dp.load(out))
    for penalty, smooth in ((0.0, 1.5), (3.0, 1.5 + 1.0 / 3.0)):
        assert first_step(local, penalty, np.zeros(3)) == pytest.approx(0.01 / smooth)
    # No constants are known at a large x, so that y does not move.
    far = made(drop=("algorithm.smoothness",))
    assert first_step(far, 0.0, np.full(3, 1e4)) == 0.0


class KnownGradient(NamedTuple):
    """A lower objective with a constant gradient."""

    penalty: float
    channel: str = "y"

    def gradient(self, *point: Any) -> Generator[Any, Any, Released]:
        yield from ()
        return Released(Bundle({"y": np.full((1, 3), 0.01)}), {})


def first_step(job: Job, penalty: float, x: np.ndarray) -> float:
    """Compute how far a gradient of 0.01 moves y from 0."""
    solver = job.algorithm._solver._replace(steps=1)
    with pytest.raises(StopIteration) as end:
        next(solver.solve(job.context, KnownGradient(penalty), x, np.zeros(3)))
    return -float(end.value.value[0])


def test_data_independent_solution_is_free() -> None:
    job = made("mean_lower_bound", ("privacy.clip",))
    running = LowerObjective("y").gradient(job.context, np.zeros(3), np.ones(3), 1.0)
    first = next(running)
    assert isinstance(first, Release)
    np.testing.assert_allclose(first.values["y"], [[1.0, 1.0, 1.0]])


# Noise and numbers of steps -----------------------------------------------------------------------------------------


def public_facts(**changes: float) -> PublicFacts:
    c = ProblemConstants(*([1.0] * 20))._replace(mu=0.1, b_gyy=0.6, b_fyy=0.4, radius=3.0)
    return PublicFacts(c, 2.0, 1.5, 200, 0.3, 5)._replace(**changes)


def test_error_of_each_solver_matches_simulation() -> None:
    """Compare with the variance of y ← y − (1/b)(μ y + noise) after K steps, noise with μ = m/√K each."""
    k = public_facts()
    for steps in (1, 7, 60):
        variance = 0.0
        for _ in range(steps):
            variance = variance * (1.0 - 0.1 / 0.8) ** 2 + steps / 0.8**2
        assert noise_gain(k, steps) == pytest.approx(math.sqrt(variance))
    assert noise_gain(k, None) == pytest.approx(10.0)


def test_numbers_of_steps() -> None:
    k = public_facts()
    steps = count_descent_steps(k)
    assert steps == math.ceil(8.0 * math.log(0.1 * 6.0 * 200 * 0.3 / 1.5))
    # The bias is about as large as the noise: C/(μ n m).
    bias = 6.0 * (1.0 - 0.1 / 0.8) ** steps
    assert 0.3 * 1.5 / (0.1 * 200 * 0.3) < bias < 1.5 / (0.1 * 200 * 0.3)
    assert count_descent_steps(public_facts(records=1)) == 8
