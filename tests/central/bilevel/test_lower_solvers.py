"""Private solvers of the lower level: loops over raw records, and what their radii and defaults promise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import decentral_dp
from decentral_dp.central.bilevel.lower_solvers import (
    DpLocGd,
    LowerObjective,
    Miss,
    ObjectiveBounds,
    PublicFacts,
    _bernstein,
    next_radius,
    noise_gain,
    solver_of,
    stages_of,
    steps_of_descent,
    steps_of_stage,
)
from decentral_dp.constants.problem_constants import ProblemConstants
from decentral_dp.exchange import Ask, Pool, Release
from decentral_dp.simulation.jobs.build import build
from tests.support.coordinator_replay import SCALE, Scripted, scripted, with_noise
from tests.support.penalty_jobs import agree, content, made, solved_by
from tests.support.penalty_loop import Naive

GAIN = 0.2784645427610738  # sup m σ(−m)


@pytest.mark.parametrize("kind", ["logistic_hyperparameter", "ridge_regularisation", "mean_estimation"])
def test_output_perturbation_is_the_loop(kind: str) -> None:
    drop = ("algorithm.inner", "algorithm.smoothness", "privacy.clip")
    job = made(kind, drop, algorithm={"solver": "output_perturbation"})
    assert job.algorithm.releases_per_round == 2
    agree(job, Naive(job, with_noise), solve="perturb")


def radius_by_hand(x: np.ndarray, penalty: float, now: float) -> float:
    """For the logistic loss of records of length 1, three coordinates, five steps in each of three stages."""
    w, record_mass = math.exp(min(x)), 1.0 + 1.0 / penalty if penalty else 1.0
    reach = min(record_mass * 0.5 / w, math.sqrt(record_mass * GAIN / w))
    steepest = 1.0 / (1.0 + math.exp(-reach))
    smooth = 0.25 * record_mass + math.exp(max(x))
    slope = min(2.0 * now * smooth, steepest * record_mass + math.exp(max(x)) * reach + now * smooth)
    steps, share = 5, 0.01 / 3
    along = SCALE * math.sqrt(2.0 * math.log(4.0 / share) / steps) * 2.0 * now
    noise = SCALE * (math.sqrt(3.0) + math.sqrt(2.0 * math.log(4.0 * steps / share)))
    mean = along + (1.0 + math.log(steps)) / (w * steps) * (slope**2 + noise**2)
    return min(now, math.sqrt(2.0 * mean / w))


def test_localised_descent_is_the_loop() -> None:
    job = made(drop=("algorithm.smoothness",), algorithm={"solver": "dp_loc_gd", "inner": 5, "rounds": 2})
    job = replace(job, algorithm=replace(job.algorithm, stages=3))
    agree(job, Naive(job, with_noise), solve="localise", next_radius=radius_by_hand)


def test_a_step_without_smoothness_is_that_of_the_constants_at_x() -> None:
    out = content("mean_estimation", ("algorithm.smoothness", "privacy.clip"))
    local = build(decentral_dp.load(out))
    for penalty, smooth in ((0.0, 1.5), (3.0, 1.5 + 1.0 / 3.0)):
        solver = local.algorithm._solver
        assert solver.smoothness is None
        assert solver._smoothness(local.context, LowerObjective("y", penalty), np.zeros(3)) == pytest.approx(smooth)
    # Nothing is known so far out, and so nothing moves.
    far = made(drop=("algorithm.smoothness",))
    assert far.algorithm._solver._smoothness(far.context, LowerObjective("y"), np.full(3, 1e4)) == math.inf


def test_what_each_solver_asks_for() -> None:
    for solver, asked in (("dp_gd", Ask), ("output_perturbation", Pool), ("dp_loc_gd", Ask)):
        job = solved_by(solver)
        running = job.algorithm.step(0, job.context, job.algorithm.init(job.context))
        assert isinstance(next(running), asked)
    sampled = solver_of("dp_loc_sgd", 3, 2, None, 0.2)
    assert isinstance(sampled, DpLocGd)
    assert (sampled.rate, sampled.publishes) == (0.2, 6)
    assert solver_of("dp_loc_gd", 3, 2, None, 0.2) == DpLocGd(3, 2, 1.0)


def test_what_reads_no_record_is_published_as_it_is() -> None:
    job = made("mean_lower_bound", ("privacy.clip",))
    running = LowerObjective("y").gradient(job.context, np.zeros(3), np.ones(3), 1.0)
    first = next(running)
    assert isinstance(first, Release)
    np.testing.assert_allclose(first.values["y"], [[1.0, 1.0, 1.0]])


# Radii ------------------------------------------------------------------------------------------------------------


def descents(runs: int, steps: int, radius: float, scale: float, rate: float, seed: int) -> np.ndarray:
    """One stage from the edge of the ball on ½‖y‖² − yᵀ mean(a), μ = b = 1, minimiser at distance `radius`: (runs,)."""
    rng = np.random.default_rng(seed)
    records = rng.normal(size=(60, 4))
    records /= np.linalg.norm(records, axis=1)[:, None]
    best = records.mean(axis=0)
    centre = best + radius * np.array([1.0, 0.0, 0.0, 0.0])
    at, total = np.tile(centre, (runs, 1)), np.zeros((runs, 4))
    for t in range(steps):
        total += at
        mean = best
        if rate < 1.0:
            mean = (rng.random((runs, 60)) < rate) @ records / (rate * 60)
        there = at - (at - mean + scale * rng.normal(size=(runs, 4))) / (t + 1)
        away = there - centre
        size = np.linalg.norm(away, axis=1)[:, None]
        at = centre + away * np.minimum(1.0, radius / size)
    return np.linalg.norm(total / steps - best, axis=1)


@pytest.mark.parametrize("scale", [0.01, 0.5])
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_the_next_ball_holds_the_minimiser_and_is_smaller(rate: float, scale: float) -> None:
    h, steps, radius = ObjectiveBounds(1.0, 1.0, 1.0, 4), 400, 2.0
    miss = Miss() if rate == 1.0 else Miss((1.0 - rate) / (rate * 60), 1.0 / (rate * 60))
    found = descents(300, steps, radius, scale, rate, 3)
    bound = next_radius(h, radius, scale, miss, steps, 0.01)
    assert found.max() <= bound < radius
    assert next_radius(h, radius, 2.0 * scale, miss, steps, 0.01) > bound
    # A distance from a gap of values that is itself a bound: loose, but not by orders of magnitude.
    assert found.max() > 0.01 * bound


def test_a_sample_misses_by_no_more_than_its_bound() -> None:
    """Against 20000 samples: above the largest miss of odds 1/1000, and within three times of it."""
    rng, rate = np.random.default_rng(1), 0.05
    records = rng.normal(size=(200, 3))
    records /= np.linalg.norm(records, axis=1)[:, None]
    drawn = (rng.random((20000, 200)) < rate) @ records / (rate * 200)
    missed = np.linalg.norm(drawn - records.mean(axis=0), axis=1)
    job = solved_by("dp_loc_sgd")
    n, clip = job.context.counts, job.scenario.privacy.clip
    miss = job.algorithm._solver._miss(job.context, LowerObjective("pulled", 3.0))
    parts = [clip["y"] ** 2 / n["train"], clip["z"] ** 2 / 9.0 / n["validation"]]
    assert miss.variance == pytest.approx(0.6 / 0.4 * sum(parts))
    assert miss.term == pytest.approx(max(clip["y"] / n["train"], clip["z"] / 3.0 / n["validation"]) / 0.4)
    assert job.algorithm._solver._miss(job.context, LowerObjective("y")).variance == pytest.approx(0.6 / 0.4 * parts[0])
    bound = _bernstein(Miss(0.95 / (rate * 200), 1.0 / (rate * 200)), 1.0, 2.0 * 1000)
    assert np.quantile(missed, 0.999) < bound < 3.0 * np.quantile(missed, 0.999)


# Noise and numbers of steps -----------------------------------------------------------------------------------------


def known(**changes: float) -> PublicFacts:
    c = ProblemConstants(*([1.0] * 20))._replace(mu=0.1, b_gyy=0.6, b_fyy=0.4, radius=3.0)
    return PublicFacts(c, 2.0, 1.5, 200, 0.3, 5)._replace(**changes)


def test_noise_that_is_left_in_each_solver() -> None:
    """Variance of y <- y − (1/b)(μ y + noise) after K steps, the noise of price m/√K in each: by iteration."""
    k = known()
    for steps in (1, 7, 60):
        kept = 0.0
        for _ in range(steps):
            kept = kept * (1.0 - 0.1 / 0.8) ** 2 + steps / 0.8**2
        assert noise_gain("dp_gd", k, steps, 1) == pytest.approx(math.sqrt(kept))
    assert noise_gain("output_perturbation", k, 1, 1) == pytest.approx(10.0)
    assert noise_gain("dp_loc_gd", k, 9, 4) == pytest.approx(20.0)


def test_numbers_of_steps() -> None:
    k = known()
    steps = steps_of_descent(k)
    assert steps == math.ceil(8.0 * math.log(0.1 * 6.0 * 200 * 0.3 / 1.5))
    # The bias that is left is about what noise leaves: C/(μ n m).
    left = 6.0 * (1.0 - 0.1 / 0.8) ** steps
    assert 0.3 * 1.5 / (0.1 * 200 * 0.3) < left < 1.5 / (0.1 * 200 * 0.3)
    assert steps_of_descent(known(records=1)) == 8
    assert [stages_of(0.5, 1.0, n) for n in (2, 50, 10**4, 10**9)] == [1, 2, 4, 5]
    assert steps_of_stage(1000, 0.1, 2, 5) == 250
    assert steps_of_stage(3, 0.1, 2, 5) == 1


def test_later_stages_of_localised_descent_come_nearer() -> None:
    """Without noise: the mean of a stage's points remembers where it started, and less so in the next."""
    table = {"solver": "dp_loc_gd", "rounds": 1, "inner": 100, "init": {"x": 0.0}}
    box = {"low": -0.1, "high": 0.1}
    far = []
    for stages in (1, 3):
        out = content("mean_estimation", ("algorithm.smoothness", "privacy.clip"), privacy={"epsilon": 5e4})
        out["algorithm"] |= table | {"domain": box}
        job = build(decentral_dp.load(out))
        job = replace(job, algorithm=replace(job.algorithm, stages=stages))
        y = scripted(job, Scripted(lambda index, channel, width: np.zeros(width)))[-1]["y"][0]
        train = job.shards.features[np.concatenate(job.shards.train)]
        far.append(float(np.linalg.norm(y - train.mean(axis=0) / 1.5)))
    assert far[1] < 0.2 * far[0] < 0.02
