"""Private solvers of the lower level: loops over raw records, and what their defaults promise."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
import pytest

import decentral_dp
from decentral_dp.central.bilevel.lower_solvers import LowerObjective, PublicFacts, noise_gain, steps_of_descent
from decentral_dp.constants import ProblemConstants
from decentral_dp.exchange import Bundle, Release, Released
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.coordinator_replay import with_noise
from tests.support.penalty_jobs import agree, content, made
from tests.support.penalty_loop import Naive


@pytest.mark.parametrize("kind", ["logistic_hyperparameter", "ridge_regularisation", "mean_estimation"])
def test_output_perturbation_is_the_loop(kind: str) -> None:
    drop = ("algorithm.inner", "algorithm.smoothness", "privacy.clip")
    job = made(kind, drop, algorithm={"solver": "output_perturbation"})
    assert job.algorithm.releases_per_round == 2
    agree(job, Naive(job, with_noise), solve="perturb")


def test_a_step_without_smoothness_is_that_of_the_constants_at_x() -> None:
    out = content("mean_estimation", ("algorithm.smoothness", "privacy.clip"))
    local = build(decentral_dp.load(out))
    for penalty, smooth in ((0.0, 1.5), (3.0, 1.5 + 1.0 / 3.0)):
        assert first_step(local, penalty, np.zeros(3)) == pytest.approx(0.01 / smooth)
    # Nothing is known so far out, and so nothing moves.
    far = made(drop=("algorithm.smoothness",))
    assert first_step(far, 0.0, np.full(3, 1e4)) == 0.0


class Told(NamedTuple):
    """A level whose gradient is known."""

    penalty: float
    channel: str = "y"

    def gradient(self, *point: Any) -> Generator[Any, Any, Released]:
        yield from ()
        return Released(Bundle({"y": np.full((1, 3), 0.01)}), {})


def first_step(job: Job, penalty: float, x: np.ndarray) -> float:
    """How far a gradient of 0.01 moves y from 0."""
    solver = job.algorithm._solver._replace(steps=1)
    with pytest.raises(StopIteration) as end:
        next(solver.solve(job.context, Told(penalty), x, np.zeros(3)))
    return -float(end.value.value[0])


def test_what_reads_no_record_is_published_as_it_is() -> None:
    job = made("mean_lower_bound", ("privacy.clip",))
    running = LowerObjective("y").gradient(job.context, np.zeros(3), np.ones(3), 1.0)
    first = next(running)
    assert isinstance(first, Release)
    np.testing.assert_allclose(first.values["y"], [[1.0, 1.0, 1.0]])


# Noise and numbers of steps -----------------------------------------------------------------------------------------


def known(**changes: float) -> PublicFacts:
    c = ProblemConstants(*([1.0] * 20))._replace(mu=0.1, b_gyy=0.6, b_fyy=0.4, radius=3.0)
    return PublicFacts(c, 2.0, 1.5, 200, 0.3, 5)._replace(**changes)


def test_noise_that_is_left_in_each_solver() -> None:
    """Variance of y <- y − (1/b)(μ y + noise) after K steps, noise with μ = m/√K in each: by iteration."""
    k = known()
    for steps in (1, 7, 60):
        kept = 0.0
        for _ in range(steps):
            kept = kept * (1.0 - 0.1 / 0.8) ** 2 + steps / 0.8**2
        assert noise_gain(k, steps) == pytest.approx(math.sqrt(kept))
    assert noise_gain(k, None) == pytest.approx(10.0)


def test_numbers_of_steps() -> None:
    k = known()
    steps = steps_of_descent(k)
    assert steps == math.ceil(8.0 * math.log(0.1 * 6.0 * 200 * 0.3 / 1.5))
    # The bias that is left is about what noise leaves: C/(μ n m).
    left = 6.0 * (1.0 - 0.1 / 0.8) ** steps
    assert 0.3 * 1.5 / (0.1 * 200 * 0.3) < left < 1.5 / (0.1 * 200 * 0.3)
    assert steps_of_descent(known(records=1)) == 8
