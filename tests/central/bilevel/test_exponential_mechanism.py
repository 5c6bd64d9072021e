"""Exponential mechanisms as scenarios: the distribution of x, its privacy cost, and the published calibrations."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import decentral_dp
from decentral_dp import InputError
from decentral_dp.bounded import SPLITS
from decentral_dp.central.pooled import Pooled
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.releasers import PlannedReleaser
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.exact_laws import rejected
from tests.support.published import as_published
from tests.support.training import changed

Array = np.ndarray
LOW, HIGH = -2.0, 1.0
BOX = {"low": LOW, "high": HIGH}
GRID_WALK = "papers.published:PublishedGridWalk"


def content(
    kind: str = "exponential_mechanism", problem_kind: str = "logistic_regularisation", /, **changes: Any
) -> Any:
    scenario: dict[str, Any] = {
        "seed": 4,
        "problem": {
            "kind": problem_kind,
            "data": "synthetic_classification",
            "synthetic": {"dimension": 3, "records": 40, "test_records": 9},
            "normalise": "l2",
        },
        "topology": {"kind": "star", "agents": 3},
        "algorithm": {"kind": kind, "rounds": 1, "domain": BOX},
        "privacy": {"epsilon": 4.0, "delta": 1e-6},
        "run": {"evaluate_every": 1},
    }
    if problem_kind == "quadratic":
        scenario["problem"]["ridge"] = 1.0
    if kind == GRID_WALK:
        scenario["privacy"]["guarantee"] = "as_published"
    return as_published(changed(scenario, **changes))


def make_job(*args: Any, **changes: Any) -> Job:
    return build(load(content(*args, **changes)))


def signed_records(job: Job) -> list[Array]:
    """Return the signed features of all train and of all validation records."""
    return [np.concatenate([r.signed for r in job.records[kind]]) for kind in SPLITS]


def value(train: Array, validation: Array, x: float) -> float:
    """Compute Φ(x) of the regularised logistic loss with BFGS and Newton's method."""

    def lower(y: Array) -> float:
        return float(np.logaddexp(0.0, -train @ y).mean() + 0.5 * math.exp(x) * y @ y)

    y = minimize(lower, np.zeros(train.shape[1]), method="BFGS").x
    for _ in range(4):
        s = 1.0 / (1.0 + np.exp(train @ y))
        hessian = (train.T * (s * (1.0 - s))) @ train / len(train) + math.exp(x) * np.eye(len(y))
        y = y - np.linalg.solve(hessian, -(train.T @ s) / len(train) + math.exp(x) * y)
    return float(np.logaddexp(0.0, -validation @ y).mean())


def make_pool(job: Job) -> Pooled:
    assert job.context is not None
    return job.context.pool(list(zip(job.records["train"], job.records["validation"], strict=True)))


def release_once(job: Job, pool: Any, root: bytes) -> tuple[Array, PlannedReleaser]:
    """Run the program's only release with these random bits."""
    releaser = PlannedReleaser(job.ledger, root, job.scenario.privacy.guarantee == "as_published")
    running = job.algorithm.step(0, job.context, job.algorithm.init(job.context))
    next(running)
    request: Any = running.send(pool)
    response = releaser.release(1, request.values)
    with pytest.raises(StopIteration):
        running.send(response)
    return response.released.x[0], releaser


def published_constants(job: Job) -> dict[str, float]:
    """Return constants of the logistic loss with a shared strength e^x on [LOW, HIGH], records of norm at most 1."""
    w, gain = math.exp(LOW), 0.278464542761
    r = min(0.5 / w, math.sqrt(gain / w))
    slope = 1.0 / (1.0 + math.exp(-r))
    return {"mu": w, "l_fy": slope, "l_gy": slope + math.exp(HIGH) * r, "b_gxy": math.exp(HIGH) * r, "n": 60.0}


# ---- the law, end to end -------------------------------------------------------------------------------------------


def test_x_follows_the_exact_law() -> None:
    job = make_job(algorithm={"candidates": 6}, privacy={"epsilon": 30.0})
    pool, points = make_pool(job), np.linspace(LOW, HIGH, 6)
    exact = np.array([value(*signed_records(job), x) for x in points])
    scores = pool.scores(points[:, None])
    np.testing.assert_allclose(scores, exact, atol=1e-9)

    first, releaser = release_once(job, pool, (0).to_bytes(32, "big"))
    selection = job.algorithm.law(job.context, SimpleNamespace(scores=lambda xs: scores))  # type: ignore[union-attr]
    draws = [
        PlannedReleaser(job.ledger, i.to_bytes(32, "big")).release(1, {"x": selection}).released.x[0]
        for i in range(1500)
    ]
    assert draws[0] == first
    scale = float(releaser.ledger().channels[0].scale[0, 0])
    # The sensitivity to train records by hand: 2 L_fy D_gy/(μ n).
    c = published_constants(job)
    assert scale == pytest.approx(4.0 * c["l_fy"] ** 2 / (c["mu"] * 60.0) / 30.0, rel=0.02)
    counts = np.array([sum(abs(x[0] - point) < 1e-9 for x in draws) for point in points])
    assert counts.sum() == 1500
    law = np.exp(-exact / scale)
    assert not rejected(counts, law)
    assert rejected(counts, np.exp(-2.0 * exact / scale))
    assert rejected(counts, np.exp(-0.5 * exact / scale))


def test_returns_the_minimiser_without_noise() -> None:
    run = decentral_dp.run(content(privacy={"guarantee": "none"}))
    points = np.linspace(LOW, HIGH, 65)
    exact = np.array([value(*signed_records(run.simulation()), x) for x in points])
    assert abs(run.released["x"][0, 0] - points[exact.argmin()]) < 1e-12
    assert not np.isfinite(run.result["privacy"]["epsilon_max"])


# ---- what it costs -------------------------------------------------------------------------------------------------


def test_warm_start_halves_its_budget() -> None:
    """The plan has ε₁²/8 = Σμ²/2, and the steps start at the released point."""
    run = decentral_dp.run(content("warm_start", algorithm={"rounds": 5, "x": {"scale": 0.5}, "candidates": 9}))
    lines = {c.channel: c for c in run.simulation().ledger.channels}
    start, steps = lines["x0"], lines["gx"]
    assert list(start.rounds) == [1]
    assert list(steps.rounds) == [2, 3, 4, 5]
    for kind in SPLITS:
        pure = float((start.sensitivity[kind] / start.scale)[0, 0])
        squares = float(((steps.sensitivity[kind] / steps.scale) ** 2).sum())
        assert pure**2 / 8.0 == pytest.approx(squares / 2.0)
    rho = pure**2 / 8.0 + squares / 2.0
    assert run.simulation().budget.epsilon[0] <= rho + 2.0 * math.sqrt(rho * math.log(1e6)) * (1.0 + 1e-3)
    assert run.simulation().budget.epsilon[0] <= 4.0
    # The sensitivity of a step is that at its x, which changes.
    sensitivity = {
        float(s) for s in next(c for c in run.records.channels if c.channel == "gx").sensitivity["train"][:, 0]
    }
    assert len(sensitivity) > 1
    assert run.released["x"][0, 0] <= HIGH


def test_descent_starts_at_the_released_point() -> None:
    job = make_job("warm_start", algorithm={"rounds": 4, "x": {"scale": 0.5, "decay": 0.5}, "candidates": 9})
    pool, releaser, s = make_pool(job), PlannedReleaser(job.ledger, bytes(32)), job.algorithm.init(job.context)
    xs, best = [], []
    for t in range(4):
        running = job.algorithm.step(t, job.context, s)
        next(running)
        request: Any = running.send(pool)
        response = releaser.release(t + 1, request.values)
        with pytest.raises(StopIteration) as stopped:
            running.send(response)
        s = stopped.value.value
        x = (
            response.released.x0[0]
            if t == 0
            else np.clip(xs[-1] - 0.5 / math.sqrt(t) * response.released.gx[0], LOW, HIGH)
        )
        if t:
            best.append((float(np.linalg.norm(x - xs[-1])), t))
        xs.append(x)
        assert np.array_equal(s.x, x)
    smallest = min(best)
    assert np.array_equal(job.algorithm.published(s)["x"], xs[smallest[1] - 1])  # type: ignore[union-attr]
    assert releaser.ledger().costs_within(job.ledger.select(np.zeros(1, dtype=np.int64)))


# ---- as published ----------------------------------------------------------------------------------------------------


def test_published_equation_4_is_private_and_nearly_uniform() -> None:
    """The scale is 2s/ε, and s has a term that does not fall with n: ε is far below the claim."""
    job = make_job(privacy={"guarantee": "as_published", "epsilon": 1.0})
    c, line = published_constants(job), job.ledger.channels[0]
    oscillation = c["l_gy"] / c["mu"]
    s = 2.0 / c["n"] * c["l_fy"] * oscillation + 4.0 * c["l_fy"] * oscillation
    assert float(line.scale[0, 0]) == pytest.approx(2.0 * s, rel=1e-6)
    assert float(job.budget.epsilon[0]) < 0.05


def test_published_appendix_c3_lacks_n() -> None:
    job = make_job("gradient_norm_exponential_mechanism", privacy={"guarantee": "as_published", "epsilon": 1.0})
    c, line = published_constants(job), job.ledger.channels[0]
    assert float(line.scale[0, 0]) == pytest.approx(2.0 * c["l_fy"] * c["b_gxy"] / c["mu"], rel=1e-6)
    proper = make_job("gradient_norm_exponential_mechanism", privacy={"epsilon": 1.0}).ledger.channels[0]
    assert set(proper.sensitivity) == {"train", "validation"}


def test_published_equation_5_exceeds_its_claim() -> None:
    """Biased least squares: the published 2G/n = 2L_fy/n is less than the true sensitivity."""
    run = decentral_dp.run(
        content("regularised_exponential_mechanism", "quadratic", privacy={"guarantee": "as_published"})
    )
    line, x = run.records.channels[0], max(abs(LOW), abs(HIGH)) * math.sqrt(3.0)
    # ‖y‖ ≤ x + (1 + x)/2 for ridge 1 and records of length 1, and |b| ≤ 1.
    slope = x + 0.5 * (1.0 + x) + 1.0
    claimed = 2.0 * slope / 60.0
    mu = claimed / float(line.scale[0, 0])
    assert float(gaussian_epsilon(mu, 1e-6)) == pytest.approx(4.0, rel=1e-3)
    true = max(float(s[0, 0]) for s in line.sensitivity.values())
    assert true > 1.3 * claimed
    certified = run.result["privacy"]["epsilon_max"]
    assert certified == pytest.approx(float(gaussian_epsilon(true / float(line.scale[0, 0]), 1e-6)), rel=1e-2)
    assert certified > 5.0


def test_grid_walk_is_never_certified() -> None:
    run = decentral_dp.run(content(GRID_WALK, algorithm={"inner": 50}))
    assert run.result["privacy"]["epsilon_max"] == math.inf
    assert run.records.costs_within(run.simulation().ledger)
    assert LOW <= run.released["x"][0, 0] <= HIGH


def test_published_algorithm_2() -> None:
    """Each part has (ε/2, δ/2): twice the scale of Equation 4, and the σ of Algorithm 1 at half the target."""
    job = make_job("warm_start", algorithm={"rounds": 4}, privacy={"guarantee": "as_published", "epsilon": 1.0})
    start, steps = job.ledger.channels
    single = make_job(privacy={"guarantee": "as_published", "epsilon": 1.0}).ledger.channels[0]
    assert float(start.scale[0, 0]) == pytest.approx(2.0 * float(single.scale[0, 0]))
    half = {"guarantee": "as_published", "epsilon": 0.5, "delta": 0.5e-6}
    plain = make_job("second_order_dp_bilevel", algorithm={"rounds": 3}, privacy=half).ledger.channels[0]
    np.testing.assert_allclose(steps.scale, plain.scale)
    run = decentral_dp.run(content("warm_start", algorithm={"rounds": 4}, privacy={"guarantee": "as_published"}))
    assert run.records.costs_within(run.simulation().ledger)


# ---- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "changes", "says"),
    [
        (("exponential_mechanism",), {"algorithm": {"rounds": 2}}, "algorithm.rounds"),
        ((GRID_WALK,), {"privacy": {"guarantee": "certified"}}, "privacy.guarantee"),
        ((GRID_WALK,), {"algorithm": {"inner": 10**9}}, "not a feasible walk"),
        (("warm_start",), {"algorithm": {"rounds": 1}}, "round 0 draws the start"),
    ],
)
def test_refusals(args: tuple[str, ...], changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_job(*args, **changes)
