"""Exponential mechanisms as scenarios: what leaves, what it costs, what the papers' calibrations are worth."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

import decentral_dp
from decentral_dp import InputError
from decentral_dp.bounded import SPLITS, Split
from decentral_dp.central.pooled import Pooled
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.releasers import PlannedReleaser
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.exact_laws import rejected
from tests.support.published import as_published

Array = np.ndarray
LOW, HIGH = -2.0, 1.0
BOX = {"low": LOW, "high": HIGH}
GRID_WALK = "papers.published:PublishedGridWalk"


def content(kind: str = "exponential_mechanism", on: str = "logistic_regularisation", /, **changes: Any) -> Any:
    made: dict[str, Any] = {
        "seed": 4,
        "problem": {
            "kind": on,
            "data": "synthetic_classification",
            "synthetic": {"dimension": 3, "records": 40, "test_records": 9},
            "normalise": "l2",
        },
        "topology": {"kind": "star", "agents": 3},
        "algorithm": {"kind": kind, "rounds": 1, "domain": BOX},
        "privacy": {"epsilon": 4.0, "delta": 1e-6},
        "run": {"evaluate_every": 1},
    }
    if on == "quadratic":
        made["problem"]["ridge"] = 1.0
    if kind == GRID_WALK:
        made["privacy"]["guarantee"] = "as_published"
    for table, values in changes.items():
        made[table] = {k: v for k, v in {**made[table], **values}.items() if v is not None}
    return as_published(made)


def made(*args: Any, **changes: Any) -> Job:
    return build(load(content(*args, **changes)))


def raw(job: Job) -> list[Array]:
    """Signed features of all train, and of all validation records."""
    return [np.concatenate([r.signed for r in job.records[kind]]) for kind in SPLITS]


def value(train: Array, validation: Array, x: float) -> float:
    """Φ(x) of the regularised logistic loss, by BFGS and Newton's steps."""

    def lower(y: Array) -> float:
        return float(np.logaddexp(0.0, -train @ y).mean() + 0.5 * math.exp(x) * y @ y)

    y = minimize(lower, np.zeros(train.shape[1]), method="BFGS").x
    for _ in range(4):
        s = 1.0 / (1.0 + np.exp(train @ y))
        hessian = (train.T * (s * (1.0 - s))) @ train / len(train) + math.exp(x) * np.eye(len(y))
        y = y - np.linalg.solve(hessian, -(train.T @ s) / len(train) + math.exp(x) * y)
    return float(np.logaddexp(0.0, -validation @ y).mean())


def pool_of(job: Job) -> Pooled:
    assert job.context is not None
    return job.context.pool(list(zip(job.records["train"], job.records["validation"], strict=True)))


def published(job: Job, pool: Any, root: bytes) -> tuple[Array, PlannedReleaser]:
    """The program's one release with these random bits."""
    releaser = PlannedReleaser(job.ledger, root, job.scenario.privacy.guarantee == "as_published")
    running = job.algorithm.step(0, job.context, job.algorithm.init(job.context))
    next(running)
    request: Any = running.send(pool)
    told = releaser.release(1, request.values)
    with pytest.raises(StopIteration):
        running.send(told)
    return told.released.x[0], releaser


def printed_constants(job: Job) -> dict[str, float]:
    """Return constants of the logistic loss with a shared strength e^x on [LOW, HIGH], records of norm at most 1."""
    w, gain = math.exp(LOW), 0.278464542761
    r = min(0.5 / w, math.sqrt(gain / w))
    slope = 1.0 / (1.0 + math.exp(-r))
    return {"mu": w, "l_fy": slope, "l_gy": slope + math.exp(HIGH) * r, "b_gxy": math.exp(HIGH) * r, "n": 60.0}


# ---- the law, end to end -------------------------------------------------------------------------------------------


def test_x_follows_the_exact_law() -> None:
    job = made(algorithm={"candidates": 6}, privacy={"epsilon": 30.0})
    pool, points = pool_of(job), np.linspace(LOW, HIGH, 6)
    exact = np.array([value(*raw(job), x) for x in points])
    scores = pool.scores(points[:, None])
    np.testing.assert_allclose(scores, exact, atol=1e-9)

    first, releaser = published(job, pool, (0).to_bytes(32, "big"))
    selection = job.algorithm.law(job.context, SimpleNamespace(scores=lambda xs: scores))  # type: ignore[union-attr]
    found = [
        PlannedReleaser(job.ledger, i.to_bytes(32, "big")).release(1, {"x": selection}).released.x[0]
        for i in range(1500)
    ]
    assert found[0] == first
    scale = float(releaser.ledger().channels[0].scale[0, 0])
    # Priced by hand: of the train kind, 2 L_fy D_gy/(μ n).
    c = printed_constants(job)
    assert scale == pytest.approx(4.0 * c["l_fy"] ** 2 / (c["mu"] * 60.0) / 30.0, rel=0.02)
    counts = np.array([sum(abs(x[0] - point) < 1e-9 for x in found) for point in points])
    assert counts.sum() == 1500
    law = np.exp(-exact / scale)
    assert not rejected(counts, law)
    assert rejected(counts, np.exp(-2.0 * exact / scale))
    assert rejected(counts, np.exp(-0.5 * exact / scale))


@pytest.mark.parametrize("kind", SPLITS)
def test_neighbours_of_a_whole_job(kind: Split) -> None:
    """One record of the job replaced by its worst opposite: the plan's scale keeps the exact log-ratio within ε."""
    epsilon, job = 4.0, made(algorithm={"candidates": 9}, privacy={"epsilon": 4.0})
    pool = pool_of(job)
    law = job.algorithm.law(job.context, pool)  # type: ignore[union-attr]
    scale = PlannedReleaser(job.ledger, bytes(32)).scale(1, "x", law.sensitivity)
    records = getattr(pool, kind)
    worst = 0.0
    for row in (records.signed[0], records.signed.mean(axis=0)):
        sides = []
        for sign in (1.0, -1.0):
            signed = records.signed.copy()
            signed[0] = sign * row / np.linalg.norm(row)
            other = records._replace(signed=signed, l2=np.linalg.norm(signed, axis=1))
            there = Pooled(pool.family, *(other if k == kind else getattr(pool, k) for k in SPLITS))
            weights = law.law(there.scores(law.points), scale)
            exponent = -float(weights.rate) * weights.gaps.astype(float)
            sides.append(exponent - logsumexp(exponent))
        worst = max(worst, float(np.abs(sides[0] - sides[1]).max()))
    assert 0.0 < worst <= epsilon * law.sensitivity[kind] / max(law.sensitivity.values())


def test_without_noise_the_best_leaves() -> None:
    run = decentral_dp.run(content(privacy={"guarantee": "none"}))
    points = np.linspace(LOW, HIGH, 65)
    exact = np.array([value(*raw(run.simulation()), x) for x in points])
    assert abs(run.released["x"][0, 0] - points[exact.argmin()]) < 1e-12
    assert not np.isfinite(run.result["privacy"]["epsilon_max"])


# ---- what it costs -------------------------------------------------------------------------------------------------


def test_warm_start_divides_its_budget_evenly() -> None:
    """ε₁²/8 = Σμ²/2 in the plan, and rounds that follow from what was released."""
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
    # Sensitivities of the steps are those of the x that was public then, which moves.
    sensitivity = {
        float(s) for s in next(c for c in run.records.channels if c.channel == "gx").sensitivity["train"][:, 0]
    }
    assert len(sensitivity) > 1
    assert run.released["x"][0, 0] <= HIGH


def test_warm_start_steps_from_where_it_was_drawn() -> None:
    job = made("warm_start", algorithm={"rounds": 4, "x": {"scale": 0.5, "decay": 0.5}, "candidates": 9})
    pool, releaser, s = pool_of(job), PlannedReleaser(job.ledger, bytes(32)), job.algorithm.init(job.context)
    xs, best = [], []
    for t in range(4):
        running = job.algorithm.step(t, job.context, s)
        next(running)
        request: Any = running.send(pool)
        told = releaser.release(t + 1, request.values)
        with pytest.raises(StopIteration) as done:
            running.send(told)
        s = done.value.value
        drawn = told.released.x0[0] if t == 0 else np.clip(xs[-1] - 0.5 / math.sqrt(t) * told.released.gx[0], LOW, HIGH)
        if t:
            best.append((float(np.linalg.norm(drawn - xs[-1])), t))
        xs.append(drawn)
        assert np.array_equal(s.x, drawn)
    least = min(best)
    assert np.array_equal(job.algorithm.published(s)["x"], xs[least[1] - 1])  # type: ignore[union-attr]
    assert releaser.ledger().costs_within(job.ledger.select(np.zeros(1, dtype=np.int64)))


# ---- as published ----------------------------------------------------------------------------------------------------


def test_equation_4_as_published_is_private_and_flat() -> None:
    """2s/ε with a term in s that does not fall with n: worth next to nothing of what it claims."""
    job = made(privacy={"guarantee": "as_published", "epsilon": 1.0})
    c, line = printed_constants(job), job.ledger.channels[0]
    oscillation = c["l_gy"] / c["mu"]
    s = 2.0 / c["n"] * c["l_fy"] * oscillation + 4.0 * c["l_fy"] * oscillation
    assert float(line.scale[0, 0]) == pytest.approx(2.0 * s, rel=1e-6)
    assert float(job.budget.epsilon[0]) < 0.05


def test_appendix_c3_as_published_lacks_n() -> None:
    job = made("gradient_norm_exponential_mechanism", privacy={"guarantee": "as_published", "epsilon": 1.0})
    c, line = printed_constants(job), job.ledger.channels[0]
    assert float(line.scale[0, 0]) == pytest.approx(2.0 * c["l_fy"] * c["b_gxy"] / c["mu"], rel=1e-6)
    proper = made("gradient_norm_exponential_mechanism", privacy={"epsilon": 1.0}).ledger.channels[0]
    assert set(proper.sensitivity) == {"train", "validation"}


def test_equation_5_as_published_costs_more_than_it_claims() -> None:
    """Least squares, pulled: 2G/n = 2L_fy/n, and the sensitivity that holds is larger."""
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
    found = run.result["privacy"]["epsilon_max"]
    assert found == pytest.approx(float(gaussian_epsilon(true / float(line.scale[0, 0]), 1e-6)), rel=1e-2)
    assert found > 5.0


def test_the_grid_walk_is_never_certified() -> None:
    run = decentral_dp.run(content(GRID_WALK, algorithm={"inner": 50}))
    assert run.result["privacy"]["epsilon_max"] == math.inf
    assert run.records.costs_within(run.simulation().ledger)
    assert LOW <= run.released["x"][0, 0] <= HIGH


def test_algorithm_2_as_published() -> None:
    """(ε/2, δ/2) each: twice the scale of Equation 4, and the σ of Algorithm 1 at half the target."""
    job = made("warm_start", algorithm={"rounds": 4}, privacy={"guarantee": "as_published", "epsilon": 1.0})
    start, steps = job.ledger.channels
    single = made(privacy={"guarantee": "as_published", "epsilon": 1.0}).ledger.channels[0]
    assert float(start.scale[0, 0]) == pytest.approx(2.0 * float(single.scale[0, 0]))
    half = {"guarantee": "as_published", "epsilon": 0.5, "delta": 0.5e-6}
    plain = made("second_order_dp_bilevel", algorithm={"rounds": 3}, privacy=half).ledger.channels[0]
    np.testing.assert_allclose(steps.scale, plain.scale)
    run = decentral_dp.run(content("warm_start", algorithm={"rounds": 4}, privacy={"guarantee": "as_published"}))
    assert run.records.costs_within(run.simulation().ledger)


# ---- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "changes", "says"),
    [
        (("exponential_mechanism", "logistic_hyperparameter"), {"problem": {"intercept": True}}, "too many points"),
        (("exponential_mechanism",), {"algorithm": {"rounds": 2}}, "algorithm.rounds"),
        (("exponential_mechanism",), {"algorithm": {"domain": None}}, "algorithm.domain: missing"),
        (("regularised_exponential_mechanism",), {}, "convex for every data set"),
        (("regularised_exponential_mechanism",), {"privacy": {"delta": 0.0}}, "no pure guarantee"),
        ((GRID_WALK,), {"privacy": {"guarantee": "certified"}}, "privacy.guarantee"),
        ((GRID_WALK,), {"algorithm": {"inner": 10**9}}, "no more than"),
        (("warm_start",), {"algorithm": {"rounds": 1}}, "round 0 is the start"),
        (("warm_start",), {"algorithm": {"rounds": 3}, "privacy": {"delta": 0.0}}, "no pure guarantee"),
        (("exponential_mechanism",), {"problem": {"normalise": "none"}}, "bounded length"),
    ],
)
def test_what_cannot_be_run_is_refused(args: tuple[str, ...], changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        made(*args, **changes)
