"""SOBA by a coordinator: agreement with a loop over records, sensitivities, and the optimum without noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import decentral_dp
from tests.support.bilevel_steps import (
    LOW,
    C,
    assert_ends_at_optimum,
    assert_is_loop,
    clip_vector,
    noise,
    signed_records,
)

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def content(scenario: Make) -> Make:
    def make(**changes: Any) -> dict[str, Any]:
        table = scenario(problem={"normalise": "l2"}, topology={"kind": "star", "agents": 4})
        table["algorithm"] = {
            "kind": "soba", "rounds": 4, "x": 300.0, "y": 0.5, "z": {"scale": 0.4, "decay": 0.5},
            "domain": {"low": LOW, "high": 0.0}, "init": {"x": -0.6},
        }  # fmt: skip
        table["privacy"] = {"epsilon": 4.0, "delta": 1e-5, "clip": {"y": C, "z": C}}
        for name, values in changes.items():
            table[name] = table[name] | values
        return table

    return make


def test_agrees_with_a_loop_over_records(content: Make) -> None:
    run = decentral_dp.run(content())
    job = run.simulation()
    train, validation = signed_records(job)
    lines = {c.channel: c for c in run.records.channels}
    x, y, z = np.full(train.shape[1], -0.6), np.zeros(train.shape[1]), np.zeros(train.shape[1])
    for t in range(4):
        s, v = 1.0 / (1.0 + np.exp(train @ y)), 1.0 / (1.0 + np.exp(validation @ y))
        means = {
            "lower_grad_y": clip_vector(-train * s[:, None]).mean(axis=0),
            "lower_hvp": clip_vector((s * (1.0 - s) * (train @ z))[:, None] * train).mean(axis=0),
            "upper_grad_y": clip_vector(-validation * v[:, None]).mean(axis=0),
        }
        for term in means:
            means[term] = means[term] + float(lines[term].scale[t, 0]) * noise(job, t + 1, term, y.size)
        before = x, y, z
        x = np.clip(x + 300.0 * np.exp(x) * y * z, LOW, 0.0)
        y = y - 0.5 * (means["lower_grad_y"] + np.exp(before[0]) * y)
        z = z - 0.4 / (t + 1) ** 0.5 * (means["lower_hvp"] + np.exp(before[0]) * z - means["upper_grad_y"])
    assert_is_loop(run, x, y, 1e-4)


def test_without_noise_it_ends_at_the_optimum(content: Make) -> None:
    assert_ends_at_optimum(content(algorithm={"rounds": 2000, "x": 1.0, "y": 0.3, "z": 0.3}), "xy", 1e-6)
