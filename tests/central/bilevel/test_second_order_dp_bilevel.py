"""The second-order method and the tuner: loops over raw records, and their privacy costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import decentral_dp
from decentral_dp import InputError
from decentral_dp.central.pooled import PooledBounds
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.published import as_published

Make = Callable[..., dict[str, Any]]
BOX = {"low": -3.0, "high": 0.5}


@pytest.fixture
def content(scenario: Make) -> Make:
    def make(kind: str = "second_order_dp_bilevel", **changes: Any) -> dict[str, Any]:
        made = scenario(problem={"kind": "logistic_regularisation", "normalise": "l2", "data": "breast_cancer"})
        made["algorithm"] = {"kind": kind, "rounds": 3, "domain": BOX, "init": {"x": -1.0}}
        made["privacy"] = {"epsilon": 2.0, "delta": 1e-6}
        made["run"] = {"evaluate_every": 1}
        for table, values in changes.items():
            made[table] = {**made[table], **values}
        return made

    return make


def raw(job: Job) -> tuple[np.ndarray, np.ndarray]:
    """Signed features of all agents' train, and of all their validation records."""
    train, validation = (np.concatenate([r.signed for r in job.records[k]]) for k in ("train", "validation"))
    return train, validation


def solution(train: np.ndarray, x: float, pull: tuple[np.ndarray, float] | None = None) -> np.ndarray:
    """argmin of the regularised logistic loss, by BFGS and Newton steps that share no code with ours."""

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
    """Φ'(x) by central differences of the exact Φ."""

    def value(u: float) -> float:
        return float(np.logaddexp(0.0, -validation @ solution(train, u)).mean())

    return (value(x + 1e-4) - value(x - 1e-4)) / 2e-4


def test_agrees_with_a_loop_of_its_own(content: Make) -> None:
    """Noise replayed from its key, scales from the ledger; the hypergradient by differences of the exact value."""
    run = decentral_dp.run(content(algorithm={"x": {"scale": 4.0}}))
    train, validation = raw(run.simulation())
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


def test_neighbours_move_the_estimate_less_than_is_charged(content: Make) -> None:
    """Every record of one kind replaced in turn by the worst of many candidates, at a small count."""
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
    carried = pool.hypergradient(x).sensitivities
    train, validation = raw(job)
    here, worst = slope(train, validation, -1.0), {"train": 0.0, "validation": 0.0}
    angles = np.linspace(0.0, 2.0 * np.pi, 25)[:-1]
    for kind, rows in (("train", train), ("validation", validation)):
        for k in range(min(len(rows), 4)):
            for angle in angles:
                other = rows.copy()
                other[k] = np.cos(angle), np.sin(angle)
                there = slope(other, validation, -1.0) if kind == "train" else slope(train, other, -1.0)
                worst[kind] = max(worst[kind], abs(there - here))
    assert family is not None
    assert min(counts.values()) > 1
    for kind, sensitivity in worst.items():
        assert 0.0 < sensitivity <= float(carried[kind].sensitivity[0]), kind  # type: ignore[index] # kinds are these two


@pytest.mark.parametrize("planted", ["accuracy", "constants"])
def test_a_price_that_forgets_something_is_caught(content: Make, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    """A release carries its sensitivity, and a plan with a lower cost is exceeded."""
    honest = PooledBounds.hypergradient

    def cheap(self: PooledBounds, x: np.ndarray) -> dict[Any, float]:
        return {k: s * (2.0 if planted == "constants" else 1.0) for k, s in honest(self, x).items()}

    from decentral_dp.privacy.releasers import PlannedReleaser

    whole = PlannedReleaser.scale
    if planted == "accuracy":
        monkeypatch.setattr(PlannedReleaser, "scale", lambda *a: 0.5 * whole(*a))
        with pytest.raises(RuntimeError, match="planned"):
            decentral_dp.run(content())
    else:
        one = decentral_dp.run(content()).ledger["scale"].max()
        monkeypatch.setattr(PooledBounds, "hypergradient", cheap)
        assert decentral_dp.run(content()).ledger["scale"].max() > 1.5 * one


def test_as_published_is_priced_by_what_it_really_meets(content: Make) -> None:
    """σ = 32K√(T log 1/δ)/(nε) is valid, and too much noise: ε at a fifth of the claim or less."""
    privacy = {"guarantee": "as_published", "epsilon": 1.0}
    job = build(load(as_published(content(privacy=privacy, algorithm={"rounds": 10}))))
    spent = float(price(job.ledger, 1e-6).epsilon[0])
    assert 0.0 < spent < 0.2
    run = decentral_dp.run(as_published(content(privacy=privacy)))
    assert run.records.costs_within(run.simulation().ledger)


# The tuner ----------------------------------------------------------------------------------------------------------


def test_the_penalty_rule_descends_as_a_loop_of_its_own_does(content: Make) -> None:
    run = decentral_dp.run(
        content("regularisation_tuner", algorithm={"method": "penalty", "penalty": 20.0}, privacy={"epsilon": 50.0})
    )
    train, validation = raw(run.simulation())
    lines = {c.channel: c for c in run.records.channels}
    x, path, q = -1.0, [-1.0], train.shape[1]
    for t in range(3):
        told = {}
        for index, channel, pull in ((2 * t + 1, "model", None), (2 * t + 2, "pulled", (validation, 20.0))):
            s = float(lines[channel].scale[t, 0])
            normals = (
                Streams(run.simulation().root, "noise", [0])
                .generator(0, index, tag(channel))
                .standard_normal((1, 1, q))[0, 0]
            )
            told[channel] = (solution(train, x, pull) + s * normals, s)
        (plain, s1), (far, s2) = told["model"], told["pulled"]
        w = math.exp(x)
        v = 20.0 * w * (0.5 * (far @ far - plain @ plain) - 0.5 * q * (s2**2 - s1**2))
        tau = 20.0 * w * math.hypot(s1 * np.linalg.norm(plain), s2 * np.linalg.norm(far))
        x = float(np.clip(x - 0.6 * 3.5 / math.sqrt(t + 1) * v / (abs(v) + tau), BOX["low"], BOX["high"]))
        path.append(x)
    assert run.released["x"][0, 0] == pytest.approx(path[2], abs=2e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": {"method": "magic"}}, "algorithm.method"),
        ({"algorithm": {"method": "em", "rounds": 2}}, "rounds = 1"),
        ({"algorithm": {"method": "penalty", "penalty": 0.0}}, "algorithm.penalty"),
        ({"problem": {"kind": "logistic_hyperparameter"}}, "one strength"),
        ({"privacy": {"guarantee": "as_published"}}, "privacy.guarantee"),
    ],
)
def test_what_the_tuner_refuses(content: Make, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        build(load(content("regularisation_tuner", **changes)))


def test_a_free_domain_needs_a_step(content: Make) -> None:
    made = content()
    del made["algorithm"]["domain"]
    with pytest.raises(InputError, match="domain: missing"):
        build(load(made))
    made["algorithm"]["x"] = {"scale": 1.0}
    assert build(load(made)).status == "ok"
