"""The penalty method: agreement with a loop over records and with closed forms; its plan."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.central.context import CoordinatorContext, Domain
from decentral_dp.central.sensitivities import penalty_smoothness
from decentral_dp.exchange import Ask, ClippedSum
from decentral_dp.privacy.accounting.accountants import epsilon_at, gaussian_epsilon
from decentral_dp.privacy.accounting.loss_distributions import Releases
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.hyper_cleaning import NO_GROUP, HyperCleaning
from decentral_dp.problems.protocol import CHANGE
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from papers.published.bilevel import PublishedDpBilevel
from papers.published.calibration import budget_per_release, gaussian_scale
from tests.support.coordinator_replay import Listening, Scripted, keyed, performed, scripted, with_noise
from tests.support.penalty_jobs import (
    SOLVING,
    SPLITS,
    UNKNOWN,
    agree,
    client_blocks,
    content,
    groups,
    made,
    solved_by,
)
from tests.support.penalty_loop import Naive, cut

# The loop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPLITS)
def test_agrees_with_loop_over_records(kind: str) -> None:
    job = made(kind)
    assert (job.context.family is None) == (kind in UNKNOWN)
    agree(job, Naive(job, with_noise, groups(kind)))


@pytest.mark.parametrize("rate", [0.5, 0.03])
@pytest.mark.parametrize("kind", ["logistic_hyperparameter", "hyper_cleaning"])
def test_samples_follow_the_keyed_coins(kind: str, rate: float) -> None:
    job = made(kind, algorithm={"rate": rate})
    agree(job, Naive(job, with_noise, groups(kind)))
    for line in job.ledger.charged_channels:
        assert line.sampling == "poisson"
        assert all((r == rate).all() for r in line.rate.values())


@pytest.mark.parametrize("kind", ["logistic_regularisation", "hyper_cleaning"])
def test_noise_follows_the_keyed_streams(kind: str) -> None:
    """The scale is the larger sensitivity of both splits over the planned privacy cost."""
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


def test_output_has_the_smallest_gradient_mapping() -> None:
    """With a decaying step size this is not the round of the smallest step."""
    job = made(algorithm={"rounds": 8, "x": {"scale": 0.5, "decay": 2.0}})
    path, loop = scripted(job, Scripted()), Naive(job, with_noise)
    loop.run()
    moves = np.linalg.norm(np.diff(loop.path, axis=0), axis=1)
    sizes = moves * np.arange(1.0, 9.0) ** 2 / 0.5
    best = [int(np.argmin(sizes[: t + 1])) for t in range(8)]
    assert best != [int(np.argmin(moves[: t + 1])) for t in range(8)]
    for t, step in enumerate(best):
        np.testing.assert_allclose(path[t + 1]["x"][0], loop.path[step], atol=1e-12)


# Optima ----------------------------------------------------------------------------------------------------------


def run_exactly(kind: str = "mean_estimation", seed: int = 4, records: int = 10, **algorithm: Any) -> Job:
    """Run a job without noise, at exact lower solutions by default."""
    table = {"solver": "output_perturbation", **algorithm}
    drop = [key for key in ("inner", "smoothness", "domain") if key not in table]
    synthetic = {"dimension": 8, "records": records, "test_records": 5, "separation": 1.0}
    out = content(kind, ("privacy.clip",), algorithm=table, privacy={"guarantee": "none"})
    out["problem"]["synthetic"], out["seed"] = synthetic, seed
    for key in drop:
        out["algorithm"].pop(key)
    return build(decentral_dp.load(out))


@pytest.mark.parametrize("solver", ["output_perturbation", "dp_gd"])
def test_reaches_closed_form_optimum_without_noise(solver: str) -> None:
    """At the optimum both lower solutions are equal, so the penalty has no bias. All records have the same weight."""
    steps = {} if solver == "output_perturbation" else {"inner": 8, "smoothness": 2.0}
    job = run_exactly(solver=solver, rounds=60, x={"scale": 6.0}, penalty=5.0, **steps)
    assert len({len(s) for s in job.shards.train}) > 1
    parts = (job.shards.train, job.shards.validation)
    c, c_v = (job.shards.features[np.concatenate(part)].mean(axis=0) for part in parts)
    last = performed(job.coordinator_node(), job.rounds)[1][-1]
    np.testing.assert_allclose(last["x"][0], (1.5 * c_v - c) / 0.5, atol=1e-8)
    np.testing.assert_allclose(last["y"][0], c_v, atol=1e-8)


# The ledger -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["logistic_hyperparameter", "hyper_cleaning", "mean_lower_bound"])
@pytest.mark.parametrize("solver", SOLVING)
def test_every_release_costs_at_most_its_plan(solver: str, kind: str) -> None:
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
    # Both splits have the same total cost in the plan.
    spent = {
        k: sum((c.sensitivity[k] ** 2).sum() for c in job.ledger.charged_channels if k in c.sensitivity)
        for k in job.context.counts
    }
    if kind == "mean_lower_bound":
        assert {c.channel for c in job.ledger.channels if c.mechanism.name == "free"} == {"y"}
        assert spent["train"] == 0.0
    else:
        assert spent["train"] == pytest.approx(spent["validation"], rel=1e-9)


def test_budget_shares_minimise_the_error_bound() -> None:
    """The shares minimise Σ c²/μ²; without constants they are equal."""
    job = solved_by("output_perturbation", "hyper_cleaning")
    lines = {c.channel: (c.sensitivity["train"] ** 2).sum() for c in job.ledger.charged_channels}
    shares, total = job.algorithm.shares, sum(job.algorithm.shares.values())
    for channel, part in lines.items():
        assert part / sum(lines.values()) == pytest.approx(shares[channel] / total)
    c = np.array([shares[k] for k in lines])
    error = (c**2 / (c / c.sum())).sum()
    rng = np.random.default_rng(0)
    assert all((c**2 / rng.dirichlet(np.ones(3))).sum() >= error for _ in range(200))
    even = made("hyper_cleaning")
    assert even.algorithm.shares == {}
    spent = [(c.sensitivity["train"] ** 2).sum() for c in even.ledger.charged_channels]
    assert max(spent) == pytest.approx(min(spent))


# The change of ∇_x l between two public points, as agents answer it: against losses, and clipped with its factor


@pytest.mark.parametrize("bound", [math.inf, 0.05])
def test_change_of_hyper_cleaning_matches_differences(bound: float) -> None:
    """Compare with differences in x of the losses of each record; a record without a group adds 0."""
    problem = HyperCleaning(3, (0.0, 1.0, 2.0), 2, groups=2)
    assert hasattr(problem, "change")
    rng = np.random.default_rng(6)
    records = problem.place_records(
        problem.prepare(3.0 * rng.normal(size=(7, 3)), rng.integers(3, size=7) * 1.0, "l2"), 1
    )
    x, y, other = rng.normal(size=4), rng.normal(size=9), rng.normal(size=9)
    got = problem.change(x, y, other, records, Clip("l2", x=bound))
    expected, h = np.zeros(4), 1e-5
    for k in range(7):
        record = type(records)(*(a[k : k + 1] for a in records))
        slopes = []
        for point in (y, other):
            steps = x + h * np.concatenate([np.eye(4), -np.eye(4)])
            values = problem.losses(steps, np.tile(point, (8, 1)), record, np.ones(1))[0]
            slopes.append((values[:4] - values[4:]) / (2.0 * h))
        expected += cut(slopes[0] - slopes[1], bound) / 7
    np.testing.assert_allclose(got, expected, atol=1e-8)
    assert (got[:2] == 0.0).all()
    assert (np.abs(got[2:]) > 1e-3).any()
    free = records._replace(group=np.full(7, NO_GROUP))
    assert (problem.change(x, y, other, free, Clip("l2")) == 0.0).all()
    broken = records._replace(features=np.where(np.arange(7)[:, None] == 2, np.nan, records.features))
    assert np.isfinite(problem.change(x, y, other, broken, Clip("l2", x=bound))).all()


def test_factor_is_applied_before_clipping() -> None:
    """times·v is clipped to C for terms of every shape; a factor that clipping cannot bound is refused."""
    job = made("hyper_cleaning")
    (client_block,) = client_blocks(job, {k: list(r) for k, r in job.records.items()})
    (wide,) = client_blocks(job, {k: list(r) for k, r in job.records.items()}, Clip("l2"))
    x, y, other = np.zeros(6), np.full(6, 0.5), np.full(6, -0.5)
    for term, along in ((CHANGE, other), ("lower_grad_y", None), ("lower_jacobian", None)):
        clipped = client_block.answer(1, {"a": ClippedSum(term, x, y, along, times=1e6)})["a"]
        bound = {CHANGE: 0.03, "lower_grad_y": 0.4, "lower_jacobian": 0.03}[term]
        for agent, total in enumerate(clipped):
            assert np.linalg.norm(total) <= bound * len(job.shards.train[agent]) * (1.0 + 1e-12)
        # Without clipping the factor scales the sum.
        single, double = (wide.answer(1, {"a": ClippedSum(term, x, y, along, times=t)})["a"] for t in (1.0, 2.0))
        np.testing.assert_allclose(double, 2.0 * single)
    for times in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="has times ="):
            Ask(a=ClippedSum(CHANGE, x, y, other, times=times))


# The penalty method against formulas: its defaults, what it refuses, its noise as published

# Defaults ----------------------------------------------------------------------------------------------------------


def test_defaults_match_their_formulas() -> None:
    """Mean estimation in a box has constants by hand: k = ½, ‖a‖ ≤ 1, |x_s| ≤ 2."""
    drop = tuple(f"algorithm.{key}" for key in ("x", "penalty", "inner", "smoothness"))
    job = made("mean_estimation", (*drop, "privacy.clip"), algorithm={"domain": {"low": -2.0, "high": 1.0}})
    a, n, rounds = job.algorithm, job.context.counts, 4
    out, total = 0.5 / 1.5 * 2.0 * math.sqrt(3.0), job.context.budget
    assert float(gaussian_epsilon(total, 1e-5)) == pytest.approx(6.0, rel=1e-6)
    price = total / math.sqrt(2 * rounds)

    def steepest(record_mass: float) -> float:
        return out + (record_mass + (record_mass - 1.0) * out) / (0.5 + record_mass) + 1.0

    bias = steepest(2.0) / 1.5 * (1.0 / 3.0)
    noise = 2.0 * 0.5 * (2.0 / (1.5 * n["train"]) / price * math.sqrt(3.0))
    assert a.penalty == pytest.approx(max(1.0, math.sqrt(bias / noise)), rel=1e-9)
    record_mass, modulus = 1.0 + 1.0 / a.penalty, 1.5
    smooth = 0.5 / modulus * (1.0 / 3.0)
    assert a.x.scale == pytest.approx(0.5 / smooth, rel=1e-9)
    assert a.x.decay == 0.0
    # At the centre of the box, |x_s| = ½: bias and noise of K steps that share a budget.
    radius = (record_mass + (record_mass - 1.0) * out / 4.0) / (0.5 + record_mass)
    b = 1.5 + 1.0 / a.penalty
    contraction, sensitivity = 1.0 - modulus / b, 2.0 / (n["train"] * price)

    def error(steps: int) -> float:
        variance = sum(contraction ** (2 * k) for k in range(steps)) / b**2
        return (2.0 * radius * contraction**steps) ** 2 + 3 * sensitivity**2 * steps * variance

    assert error(a.inner) <= 1.01 * min(error(k) for k in range(1, 40))
    assert job.context.clip.y == pytest.approx(1.0)
    assert job.context.clip.z == pytest.approx(steepest(record_mass))
    c = job.context.family.constants(np.full(3, -2.0), np.full(3, 1.0), record_mass)
    assert a.x.scale == pytest.approx(0.5 / penalty_smoothness(c, a.penalty))


# As printed -------------------------------------------------------------------------------------------------------


def test_published_noise_is_loose_for_gaussians() -> None:
    """Hyper-cleaning, where all three releases of a round read train records: ε is .23 to .36 for a claim of 1."""
    for rounds, delta in ((10, 1e-5), (100, 1e-5), (100, 1e-6)):
        job = made(
            "hyper_cleaning",
            algorithm={"rounds": rounds, "inner": 1},
            privacy={"guarantee": "as_published", "epsilon": 1.0, "delta": delta},
        )
        certified = float(job.budget.epsilon.max())
        assert 0.22 < certified < 0.37
        epsilon_0 = 1.0 / math.sqrt(18.0 * rounds)
        mu = epsilon_0 / math.sqrt(2.0 * math.log(1.25 * 3.0 * (rounds + 1.0) / delta))
        assert certified == pytest.approx(float(gaussian_epsilon(mu * math.sqrt(3.0 * rounds), delta)), rel=0.02)
        assert performed(job.coordinator_node(), rounds)[0].ledger.costs_within(job.ledger)


def test_inner_steps_compose_by_the_published_lemma() -> None:
    for k in (1, 2, 7, 400):
        epsilon_0, delta_0 = budget_per_release(0.3, 1e-6, k)
        composed = math.sqrt(2.0 * k * math.log(1.0 / delta_0)) * epsilon_0 + 2.0 * k * epsilon_0**2
        assert (epsilon_0, delta_0) == (0.3, 1e-6) if k == 1 else composed == pytest.approx(0.3)
        assert delta_0 * (k + 1 if k > 1 else 1) == pytest.approx(1e-6)
    assert gaussian_scale(2.0, 0.5, 1e-5) == pytest.approx(4.0 * math.sqrt(2.0 * math.log(125000.0)))


def test_published_noise_is_too_small_for_small_samples() -> None:
    """Theorem 11 has the noise of full batches for every batch size, too little for one record of 10⁴ in a step."""
    problem = HyperCleaning(2, (0.0, 1.0), 2)
    context = CoordinatorContext(
        problem, {"train": 10**4, "validation": 10**4}, 2, Clip("l2", 1.0, 1.0, 1.0), Domain(-1.0, 1.0)
    )
    rounds, delta = 100, 1e-6
    for rate, lower, upper in ((1e-4, 5.0, math.inf), (1.0, 0.0, 0.4)):
        a = PublishedDpBilevel(None, 5.0, 1, 1.0, rate, shares={})
        calibration = a.calibration(context, rounds, 1.0, delta)["gx"]
        mu = float(calibration.sensitivity["train"][0] / calibration.scale[0])
        poisson = np.tile([[mu], [rate]], rounds)
        releases = Releases(poisson=poisson) if rate < 1.0 else Releases(mu=mu * math.sqrt(rounds))
        assert lower <= epsilon_at(releases, delta) <= upper
