"""The second-order method and the tuner: agreement with loops over records, and their privacy costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import decentral_dp
from decentral_dp import InputError
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.privacy.accounting.accountants import account
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.bilevel_steps import signed_records
from tests.support.published import as_published
from tests.support.training import changed

Make = Callable[..., dict[str, Any]]
BOX = {"low": -3.0, "high": 0.5}


@pytest.fixture
def content(scenario: Make) -> Make:
    def make(kind: str = "second_order_dp_bilevel", **changes: Any) -> dict[str, Any]:
        scenario_table = scenario(
            problem={"kind": "logistic_regularisation", "normalise": "l2", "data": "breast_cancer"}
        )
        scenario_table["algorithm"] = {"kind": kind, "rounds": 3, "domain": BOX, "init": {"x": -1.0}}
        scenario_table["privacy"] = {"epsilon": 2.0, "delta": 1e-6}
        scenario_table["run"] = {"evaluate_every": 1}
        return changed(scenario_table, **changes)

    return make


def solution(train: np.ndarray, x: float, pull: tuple[np.ndarray, float] | None = None) -> np.ndarray:
    """Minimise the regularised logistic loss by BFGS and Newton steps, independent of the package."""

    def value(y: np.ndarray) -> float:
        out = float(np.logaddexp(0.0, -train @ y).mean() + 0.5 * math.exp(x) * y @ y)
        return out if pull is None else out + float(np.logaddexp(0.0, -pull[0] @ y).mean()) / pull[1]

    def slopes(rows: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        s = 1.0 / (1.0 + np.exp(rows @ y))
        return -(rows.T @ s) / len(rows), (rows.T * (s * (1 - s))) @ rows / len(rows)

    y = minimize(value, np.zeros(train.shape[1]), method="BFGS").x
    for _ in range(4):
        g, h = slopes(train, y)
        if pull is not None:
            g2, h2 = slopes(pull[0], y)
            g, h = g + g2 / pull[1], h + h2 / pull[1]
        y = y - np.linalg.solve(h + math.exp(x) * np.eye(len(y)), g + math.exp(x) * y)
    return y


def slope(train: np.ndarray, validation: np.ndarray, x: float) -> float:
    """Compute Φ'(x) by central differences of the exact Φ."""

    def value(u: float) -> float:
        return float(np.logaddexp(0.0, -validation @ solution(train, u)).mean())

    return (value(x + 1e-4) - value(x - 1e-4)) / 2e-4


def test_agrees_with_independent_loop(content: Make) -> None:
    """Use keyed noise, scales from the ledger, and differences of the exact value as hypergradient."""
    run = decentral_dp.run(content(algorithm={"x": {"scale": 4.0}}))
    train, validation = signed_records(run.simulation())
    line = next(c for c in run.records.channels if c.channel == "gx")
    xs = [-1.0]
    for t in range(3):
        normal = float(
            Streams(run.simulation().root, "noise", [0])
            .generator(0, t + 1, tag("gx"))
            .standard_normal((1, 1, 1))[0, 0, 0]
        )
        estimate = slope(train, validation, xs[-1]) + float(line.scale[t, 0]) * normal
        xs.append(float(np.clip(xs[-1] - 4.0 * estimate, BOX["low"], BOX["high"])))
    smallest = int(np.argmin(np.abs(np.diff(xs))))
    assert run.released["x"][0, 0] == pytest.approx(xs[smallest], abs=1e-5)
    assert run.records.costs_within(run.simulation().ledger)
    assert not run.records.costs_within(build(load(content(privacy={"epsilon": 1.9}))).ledger)


def test_neighbours_stay_within_charged_sensitivity(content: Make) -> None:
    """Replace every record of a split by the worst of many candidates, in a small data set."""
    job = build(
        load(
            content(
                problem={
                    "data": "synthetic_classification",
                    "scale": "none",
                    "synthetic": {"dimension": 2, "records": 8, "test_records": 20},
                }
            )
        )
    )
    assert job.context is not None
    family, counts = job.context.family, job.context.counts
    pool = job.context.pool(list(zip(job.records["train"], job.records["validation"], strict=True)))
    x = np.array([-1.0])
    charged = pool.hypergradient(x).sensitivities
    train, validation = signed_records(job)
    exact, worst = slope(train, validation, -1.0), {"train": 0.0, "validation": 0.0}
    angles = np.linspace(0.0, 2.0 * np.pi, 25)[:-1]
    for kind, rows in (("train", train), ("validation", validation)):
        for k in range(min(len(rows), 4)):
            for angle in angles:
                other = rows.copy()
                other[k] = np.cos(angle), np.sin(angle)
                neighbour = slope(other, validation, -1.0) if kind == "train" else slope(train, other, -1.0)
                worst[kind] = max(worst[kind], abs(neighbour - exact))
    assert family is not None
    assert min(counts.values()) > 1
    for kind, sensitivity in worst.items():
        assert 0.0 < sensitivity <= float(charged[kind].sensitivity[0]), kind  # type: ignore[index] # kinds are these two


def test_published_noise_has_certified_epsilon_below_claim(content: Make) -> None:
    """σ = 32K√(T log 1/δ)/(nε) is valid but loose: ε is at most a fifth of the claim."""
    privacy = {"guarantee": "as_published", "epsilon": 1.0}
    job = build(load(as_published(content(privacy=privacy, algorithm={"rounds": 10}))))
    certified = float(account(job.ledger, 1e-6).epsilon[0])
    assert 0.0 < certified < 0.2
    run = decentral_dp.run(as_published(content(privacy=privacy)))
    assert run.records.costs_within(run.simulation().ledger)


# The tuner ----------------------------------------------------------------------------------------------------------


def test_penalty_estimate_agrees_with_independent_loop(content: Make) -> None:
    run = decentral_dp.run(
        content("regularisation_tuner", algorithm={"method": "penalty", "penalty": 20.0}, privacy={"epsilon": 50.0})
    )
    train, validation = signed_records(run.simulation())
    lines = {c.channel: c for c in run.records.channels}
    x, path, q = -1.0, [-1.0], train.shape[1]
    for t in range(3):
        released = {}
        for index, channel, pull in ((2 * t + 1, "model", None), (2 * t + 2, "pulled", (validation, 20.0))):
            s = float(lines[channel].scale[t, 0])
            normals = (
                Streams(run.simulation().root, "noise", [0])
                .generator(0, index, tag(channel))
                .standard_normal((1, 1, q))[0, 0]
            )
            released[channel] = (solution(train, x, pull) + s * normals, s)
        (plain, s1), (penalised, s2) = released["model"], released["pulled"]
        w = math.exp(x)
        v = 20.0 * w * (0.5 * (penalised @ penalised - plain @ plain) - 0.5 * q * (s2**2 - s1**2))
        tau = 20.0 * w * math.hypot(s1 * np.linalg.norm(plain), s2 * np.linalg.norm(penalised))
        x = float(np.clip(x - 0.6 * 3.5 / math.sqrt(t + 1) * v / (abs(v) + tau), BOX["low"], BOX["high"]))
        path.append(x)
    assert run.released["x"][0, 0] == pytest.approx(path[2], abs=2e-3)


def test_unbounded_domain_requires_step(content: Make) -> None:
    table = content()
    del table["algorithm"]["domain"]
    with pytest.raises(InputError, match="domain: missing"):
        build(load(table))
    table["algorithm"]["x"] = {"scale": 1.0}
    assert decentral_dp.run(table).result.status == "ok"
