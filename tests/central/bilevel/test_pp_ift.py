"""Implicit differentiation at a released point: agreement with a loop over records, and its sensitivities."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.central.context import CoordinatorContext
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.bilevel_steps import C, clip_vector, noise, signed_records, steps_scenario
from tests.support.training import changed

Make = Callable[..., dict[str, Any]]
BOX = {"low": -3.0, "high": 0.5}
UNREAD = {"solver": "output_perturbation", "inner": None, "smoothness": None}


@pytest.fixture
def content(scenario: Make) -> Make:
    def make(**changes: Any) -> dict[str, Any]:
        keys = {"rounds": 3, "x": {"scale": 2.0}, "inner": 4, "smoothness": 2.0, "domain": BOX, "init": {"x": -1.0}}
        table = steps_scenario(scenario, "pp_ift", **keys)
        table["privacy"]["clip"]["x"] = C
        return changed(table, **changes)

    return make


def means(train: np.ndarray, validation: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute clipped means of ∇l, ∇h and ∇²l of the logistic loss, record by record."""
    s, v = 1.0 / (1.0 + np.exp(train @ y)), 1.0 / (1.0 + np.exp(validation @ y))
    lower, upper = clip_vector(-train * s[:, None]), clip_vector(-validation * v[:, None])
    curved = clip_vector((s * (1.0 - s))[:, None, None] * train[:, :, None] * train[:, None, :])
    return lower.mean(axis=0), upper.mean(axis=0), curved.mean(axis=0)


def test_agrees_with_a_loop_over_records(content: Make) -> None:
    run = decentral_dp.run(content())
    train, validation = signed_records(run.simulation())
    q, lines = train.shape[1], {c.channel: c for c in run.records.channels}
    family = run.simulation().context.family  # type: ignore[union-attr] # it has a context
    assert family is not None
    x, y = np.full(q, -1.0), np.zeros(q)
    for t in range(3):
        at, radius = x, family.constants(x, x).radius
        for k in range(4):
            step = means(train, validation, y)[0] + np.exp(x) * y
            step = step + float(lines["y"].scale[4 * t + k, 0]) * noise(run.simulation(), 5 * t + k + 1, "y", q)
            y = y - step / 2.0
            y = y * min(1.0, radius / np.linalg.norm(y))
        _, b, h = means(train, validation, y)
        gradient = -(np.exp(x) * y) * np.linalg.solve(h + np.diag(np.exp(x)), b)
        gradient = gradient + float(lines["gx"].scale[t, 0]) * noise(run.simulation(), 5 * t + 5, "gx", q)
        x = np.clip(x - 2.0 * gradient, BOX["low"], BOX["high"])
    # Up to the grid of the noise.
    assert run.released["x"][0] == pytest.approx(at, abs=1e-4)
    assert run.released["y"][0] == pytest.approx(y, abs=1e-4)
    assert run.records.costs_within(run.simulation().ledger)


def test_neighbours_stay_within_planned_cost(content: Make) -> None:
    """Try 4000 neighbours of the released point: a flipped record, or a copy of another one."""
    job = build(load(content(topology={"kind": "complete", "agents": 1})))
    context, rng = job.context, np.random.default_rng(8)
    assert isinstance(context, CoordinatorContext)
    train, validation = signed_records(job)
    x, y = np.full(train.shape[1], -1.0), rng.normal(size=train.shape[1]) * 0.3
    price = sensitivity_bounds(context, train, validation, x, y)
    exact = implicit_gradient(train, validation, x, y)
    worst = 0.0
    for _ in range(4000):
        kind = rng.integers(2)
        rows = (train, validation)[kind].copy()
        k = int(rng.integers(len(rows)))
        rows[k] = -rows[k] if rng.random() < 0.5 else rows[int(rng.integers(len(rows)))] * rng.choice([-1.0, 1.0])
        neighbour = implicit_gradient(rows, validation, x, y) if kind == 0 else implicit_gradient(train, rows, x, y)
        worst = max(worst, float(np.linalg.norm(neighbour - exact)) / price[("train", "validation")[kind]])
    assert 0.0 < worst <= 1.0


def implicit_gradient(train: np.ndarray, validation: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    _, b, h = means(train, validation, y)
    return np.asarray(-(np.exp(x) * y) * np.linalg.solve(h + np.diag(np.exp(x)), b))


def sensitivity_bounds(
    context: CoordinatorContext, train: np.ndarray, validation: np.ndarray, x: np.ndarray, y: np.ndarray
) -> dict[str, float]:
    """Compute both sensitivities by hand, with ‖J‖ = max w_s|y_s| and w₀ = min w_s, for a public J."""
    w = np.exp(x)
    k, floor, root = float(np.abs(w * y).max()), float(w.min()), float(np.abs(np.sqrt(w) * y).max())
    through, share = min(k / floor, root / math.sqrt(floor)), C / len(train)
    turned = min(k * share / (floor * (floor + share)), through * share / floor)
    return {"train": C * turned, "validation": 2.0 * through * C / len(validation)}


def test_ledger_matches_sensitivities_by_hand(content: Make) -> None:
    run = decentral_dp.run(content(algorithm={"rounds": 1}))
    train, validation = signed_records(run.simulation())
    line = next(c for c in run.records.channels if c.channel == "gx")
    x, y = run.released["x"][0], run.released["y"][0]
    by_hand = sensitivity_bounds(run.simulation().context, train, validation, x, y)  # type: ignore[arg-type]
    for kind, sensitivity in by_hand.items():
        assert float(line.sensitivity[kind][0, 0]) == pytest.approx(sensitivity, rel=1e-3)  # type: ignore[index] # kinds are these two


def test_nonconvex_hessian_is_projected(content: Make) -> None:
    """For custom losses, the eigenvalues of H are raised to the regulariser's, at twice the sensitivity."""
    made = content(problem={"kind": "hyper_cleaning", "data": "wine", "groups": 1})
    made["algorithm"]["x"] = {"scale": 0.1}
    run = decentral_dp.run(made)
    assert run.result["status"] == "ok"
    assert run.records.costs_within(run.simulation().ledger)


@pytest.mark.parametrize("solver", ["dp_gd", "output_perturbation"])
def test_defaults_follow_from_public_constants(content: Make, solver: str) -> None:
    made = content(algorithm={"solver": solver})
    for key in ("x", "inner", "smoothness"):
        del made["algorithm"][key]
    del made["privacy"]["clip"]
    job = build(load(made))
    assert job.algorithm.x is not None  # type: ignore[union-attr] # it is PpIft
    assert np.isfinite(job.context.clip.z)  # type: ignore[union-attr] # it has a context
    assert job.budget.epsilon.max() == pytest.approx(4.0, rel=2e-3)
    assert decentral_dp.run(made).result["status"] == "ok"


@pytest.mark.parametrize("solver", ["dp_gd", "output_perturbation"])
def test_zero_step_spends_whole_budget_on_lower_level(content: Make, solver: str) -> None:
    options: dict[str, Any] = UNREAD if solver == "output_perturbation" else {}
    # The constants bound the minimiser, which is not clipped.
    privacy = {"clip": None} if options else {}
    constant = decentral_dp.run(content(algorithm={**options, "solver": solver, "x": {"scale": 0.0}}, privacy=privacy))
    updated = decentral_dp.run(content(algorithm={**options, "solver": solver}))
    assert {c.channel for c in constant.records.channels} == {"y"}
    assert {c.channel for c in updated.records.channels} == {"y", "gx"}
    for run in (constant, updated):
        assert run.result.privacy.epsilon_max == pytest.approx(4.0, rel=2e-3)
        assert run.result.privacy.epsilon_max <= 4.0
    np.testing.assert_array_equal(constant.released["x"][0], -1.0)
    small, large = (next(c for c in run.records.channels if c.channel == "y") for run in (constant, updated))
    # The hypergradient had half of the μ² of train records.
    assert large.scale[0, 0] / small.scale[0, 0] == pytest.approx(math.sqrt(2.0), rel=1e-3)
