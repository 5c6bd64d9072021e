"""The penalty method against a loop over raw records and closed forms; its plan."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.central.sensitivities import penalty_bias
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.coordinator_replay import Listening, Scripted, keyed, performed, scripted, with_noise, without
from tests.support.penalty_jobs import SOLVING, SPLITS, UNKNOWN, agree, content, groups, made, solved_by
from tests.support.penalty_loop import Naive

# The loop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPLITS)
def test_it_is_the_loop_over_raw_records(kind: str) -> None:
    job = made(kind)
    assert (job.context.family is None) == (kind in UNKNOWN)
    agree(job, Naive(job, with_noise, groups(kind)))


@pytest.mark.parametrize("kind", SPLITS)
def test_without_noise_it_is_the_loop_without_clips(kind: str) -> None:
    job = made(kind, privacy={"guarantee": "none"})
    wide = dict.fromkeys("xyz", math.inf)
    agree(job, Naive(job, without, groups(kind), clip=wide), Listening(job))


@pytest.mark.parametrize("rate", [0.5, 0.03])
@pytest.mark.parametrize("kind", ["logistic_hyperparameter", "hyper_cleaning"])
def test_samples_are_those_of_the_coins_and_may_be_empty(kind: str, rate: float) -> None:
    job = made(kind, algorithm={"rate": rate})
    agree(job, Naive(job, with_noise, groups(kind)))
    for line in job.ledger.charged_channels:
        assert line.sampling == "poisson"
        assert all((r == rate).all() for r in line.rate.values())


@pytest.mark.parametrize("kind", ["logistic_regularisation", "hyper_cleaning"])
def test_with_its_own_noise_it_is_the_loop_with_the_keyed_streams(kind: str) -> None:
    """Scales by hand: the larger over both kinds of what one record moves, over the planned price."""
    job = made(kind)
    lam, clip, n = job.algorithm.penalty, job.scenario.privacy.clip, job.context.counts
    sensitivity = {
        "y": {"train": 2 * clip["y"] / n["train"]},
        "pulled": {"train": 2 * clip["y"] / n["train"], "validation": 2 * clip["z"] / n["validation"] / lam},
        "gx": {"train": 2 * clip["x"] / n["train"]},
    }
    prices = {c.channel: {k: s[0, 0] for k, s in c.sensitivity.items()} for c in job.ledger.channels}

    def scale(index: int, channel: str) -> float:
        return max(s / prices[channel][k] for k, s in sensitivity[channel].items())

    agree(job, Naive(job, keyed(job, scale), groups(kind)), Listening(job))


def test_the_output_is_the_point_of_the_smallest_gradient_mapping() -> None:
    """With a step that decays, that is not where the smallest step was made."""
    job = made(algorithm={"rounds": 8, "x": {"scale": 0.5, "decay": 2.0}})
    seen, loop = scripted(job, Scripted()), Naive(job, with_noise)
    loop.run()
    moves = np.linalg.norm(np.diff(loop.path, axis=0), axis=1)
    sizes = moves * np.arange(1.0, 9.0) ** 2 / 0.5
    best = [int(np.argmin(sizes[: t + 1])) for t in range(8)]
    assert best != [int(np.argmin(moves[: t + 1])) for t in range(8)]
    for t, at in enumerate(best):
        np.testing.assert_allclose(seen[t + 1]["x"][0], loop.path[at], atol=1e-12)


# What it finds ----------------------------------------------------------------------------------------------------


def exact(kind: str = "mean_estimation", seed: int = 4, records: int = 10, **algorithm: Any) -> Job:
    """Without noise, at exact lower-level solutions unless another solver is given."""
    table = {"solver": "output_perturbation", **algorithm}
    drop = [key for key in ("inner", "smoothness", "domain") if key not in table]
    synthetic = {"dimension": 8, "records": records, "test_records": 5, "separation": 1.0}
    out = content(kind, ("privacy.clip",), algorithm=table, privacy={"guarantee": "none"})
    out["problem"]["synthetic"], out["seed"] = synthetic, seed
    for key in drop:
        out["algorithm"].pop(key)
    return build(decentral_dp.load(out))


@pytest.mark.parametrize("solver", ["output_perturbation", "dp_gd"])
def test_without_noise_the_closed_form_optimum_of_mean_estimation_is_reached(solver: str) -> None:
    """At the optimum both solutions are equal, so the penalty has no bias there. Every record counts the same."""
    steps = {} if solver == "output_perturbation" else {"inner": 8, "smoothness": 2.0}
    job = exact(solver=solver, rounds=60, x={"scale": 6.0}, penalty=5.0, **steps)
    assert len({len(s) for s in job.shards.train}) > 1
    parts = (job.shards.train, job.shards.validation)
    c, c_v = (job.shards.features[np.concatenate(part)].mean(axis=0) for part in parts)
    last = performed(job.coordinator_node(), job.rounds)[1][-1]
    np.testing.assert_allclose(last["x"][0], (1.5 * c_v - c) / 0.5, atol=1e-8)
    np.testing.assert_allclose(last["y"][0], c_v, atol=1e-8)


def validation_loss(job: Job, x: float) -> float:
    """Φ(x) of ridge regression by its closed form, (A + e^x)⁻¹ c."""
    a, b = job.shards.features, np.asarray(job.shards.labels, dtype=np.float64)
    t, v = (np.concatenate(part) for part in (job.shards.train, job.shards.validation))
    y = np.linalg.solve(a[t].T @ a[t] / t.size + math.exp(x) * np.eye(8), a[t].T @ b[t] / t.size)
    return float(0.5 * np.mean((a[v] @ y - b[v]) ** 2))


def test_without_noise_ridge_regression_ends_within_the_bias_of_a_stationary_point() -> None:
    """The bias falls as 1/λ, and stays below D₁/λ."""
    slopes = []
    for penalty in (10.0, 100.0, 1000.0):
        domain = {"low": -5.0, "high": 2.0}
        job = exact("ridge_regularisation", rounds=200, x={"scale": 10.0}, penalty=penalty, domain=domain)
        x = float(performed(job.coordinator_node(), job.rounds)[1][-1]["x"][0, 0])
        assert -4.9 < x < 1.9
        slopes.append(abs(validation_loss(job, x + 1e-4) - validation_loss(job, x - 1e-4)) / 2e-4)
        assert slopes[-1] <= penalty_bias(job.context.constants_at(np.array([x]), penalty)) / penalty
    assert 5.0 < slopes[0] / slopes[1] < 20.0
    assert 5.0 < slopes[1] / slopes[2] < 20.0


# The ledger -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["logistic_hyperparameter", "hyper_cleaning", "mean_lower_bound"])
@pytest.mark.parametrize("solver", SOLVING)
def test_no_release_costs_more_than_planned(solver: str, kind: str) -> None:
    if kind == "mean_lower_bound" and solver == "output_perturbation":
        with pytest.raises(InputError, match="nothing to perturb"):
            solved_by(solver, kind)
        return
    job = solved_by(solver, kind)
    outcome = performed(job.coordinator_node(), job.rounds)[0]
    assert outcome.ledger.costs_within(job.ledger)
    half = replace(job.ledger, channels=tuple(replace(c, scale=1.01 * c.scale) for c in job.ledger.channels))
    assert not outcome.ledger.costs_within(half)
    assert 0.995 * 6.0 <= job.budget.epsilon.max() <= 6.0
    # Both kinds of records come to the same total in the plan.
    spent = {
        k: sum((c.sensitivity[k] ** 2).sum() for c in job.ledger.charged_channels if k in c.sensitivity)
        for k in job.context.counts
    }
    if kind == "mean_lower_bound":
        assert {c.channel for c in job.ledger.channels if c.mechanism.name == "free"} == {"y"}
        assert spent["train"] == 0.0
    else:
        assert spent["train"] == pytest.approx(spent["validation"], rel=1e-9)


@pytest.mark.parametrize("solver", SOLVING)
def test_the_cut_into_blocks_changes_nothing(solver: str) -> None:
    ends = []
    for blocks in (1, 2, 5):
        job = solved_by(solver, "hyper_cleaning", run={"blocks": blocks}, topology={"agents": 5})
        outcome, seen = performed(job.coordinator_node(), job.rounds)
        ends.append((outcome.ledger, seen[-1]))
    for ledger, last in ends[1:]:
        assert ledger.same_releases(ends[0][0])
        for channel, value in last.items():
            np.testing.assert_allclose(value, ends[0][1][channel], atol=1e-9)


def test_the_budget_is_split_in_proportion_to_what_each_channel_brings() -> None:
    """Σ c²/μ² at the shares is the least of all splits; with no constants the channels get the same."""
    job = solved_by("output_perturbation", "hyper_cleaning")
    lines = {c.channel: (c.sensitivity["train"] ** 2).sum() for c in job.ledger.charged_channels}
    shares, total = job.algorithm.shares, sum(job.algorithm.shares.values())
    for channel, part in lines.items():
        assert part / sum(lines.values()) == pytest.approx(shares[channel] / total)
    c = np.array([shares[k] for k in lines])
    least = (c**2 / (c / c.sum())).sum()
    rng = np.random.default_rng(0)
    assert all((c**2 / rng.dirichlet(np.ones(3))).sum() >= least for _ in range(200))
    even = made("hyper_cleaning")
    assert even.algorithm.shares == {}
    spent = [(c.sensitivity["train"] ** 2).sum() for c in even.ledger.charged_channels]
    assert max(spent) == pytest.approx(min(spent))
