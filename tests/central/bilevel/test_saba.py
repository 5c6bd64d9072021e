"""SABA by a coordinator: agreement with a loop over records, sensitivities, and the optimum without noise."""

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
K = 3


@pytest.fixture
def content(scenario: Make) -> Make:
    def make(**changes: Any) -> dict[str, Any]:
        table = scenario(problem={"normalise": "l2"}, topology={"kind": "star", "agents": 4})
        table["algorithm"] = {
            "kind": "saba", "rounds": 6, "blocks": K, "x": 300.0, "y": 0.5, "z": {"scale": 0.4, "decay": 0.5},
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
    blocks = {
        split: np.concatenate([np.arange(len(records.label)) % K for records in job.records[split]])
        for split in ("train", "validation")
    }
    lines = {c.channel: c for c in run.records.channels}
    x, y, z = np.full(train.shape[1], -0.6), np.zeros(train.shape[1]), np.zeros(train.shape[1])
    table: dict[str, list[Any]] = {term: [0.0 * y for _ in range(K)] for term in lines}
    for t in range(6):
        drawn = dict(zip(("train", "validation"), np.random.default_rng(t).integers(K, size=2), strict=True))
        s, v = 1.0 / (1.0 + np.exp(train @ y)), 1.0 / (1.0 + np.exp(validation @ y))
        contributions = {
            "lower_grad_y": clip_vector(-train * s[:, None]),
            "lower_hvp": clip_vector((s * (1.0 - s) * (train @ z))[:, None] * train),
            "upper_grad_y": clip_vector(-validation * v[:, None]),
        }
        means = {}
        for term, rows in contributions.items():
            split = "train" if term.startswith("lower") else "validation"
            k = drawn[split]
            new = rows[blocks[split] == k].sum(axis=0) / len(rows)
            new = new + float(lines[term].scale[t, 0]) * noise(job, t + 1, term, y.size)
            means[term] = K * (new - table[term][k]) + sum(table[term])
            table[term][k] = new
        before = x, y, z
        x = np.clip(x + 300.0 * np.exp(x) * y * z, LOW, 0.0)
        y = y - 0.5 * (means["lower_grad_y"] + np.exp(before[0]) * y)
        z = z - 0.4 / (t + 1) ** 0.5 * (means["lower_hvp"] + np.exp(before[0]) * z - means["upper_grad_y"])
    assert table.keys() == contributions.keys()
    assert_is_loop(run, x, y, 1e-3)


def test_without_noise_it_ends_at_the_optimum(content: Make) -> None:
    assert_ends_at_optimum(content(algorithm={"rounds": 3000, "x": 1.0, "y": 0.3, "z": 0.3}), "xy", 1e-6)


def test_one_block_is_soba(content: Make) -> None:
    soba = content()
    soba["algorithm"]["kind"] = "soba"
    del soba["algorithm"]["blocks"]
    one, other = (decentral_dp.run(table).released for table in (content(algorithm={"blocks": 1}), soba))
    for channel in ("x", "y"):
        np.testing.assert_allclose(one[channel], other[channel], rtol=1e-9)
