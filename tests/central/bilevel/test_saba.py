"""SABA and SOBA by a coordinator: agreement with a loop over records, sensitivities, and the optimum without noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import decentral_dp
from tests.support.bilevel_steps import (
    LOW,
    assert_ends_at_optimum,
    assert_is_loop,
    clip_vector,
    noise,
    signed_records,
    steps_scenario,
)

Make = Callable[..., dict[str, Any]]
# SOBA is SABA with one block.
KEYS: dict[str, dict[str, Any]] = {"saba": {"blocks": 3}, "soba": {}}


def content_of(scenario: Make, kind: str, **changes: Any) -> dict[str, Any]:
    keys = {"rounds": 6, "y": 0.5, "z": {"scale": 0.4, "decay": 0.5}, **KEYS[kind], **changes}
    return steps_scenario(scenario, kind, **keys)


@pytest.mark.parametrize("kind", KEYS)
def test_agrees_with_a_loop_over_records(scenario: Make, kind: str) -> None:
    run = decentral_dp.run(content_of(scenario, kind))
    job, count = run.simulation(), KEYS[kind].get("blocks", 1)
    train, validation = signed_records(job)
    blocks = {
        split: np.concatenate([np.arange(len(records.label)) % count for records in job.records[split]])
        for split in ("train", "validation")
    }
    lines = {c.channel: c for c in run.records.channels}
    x, y, z = np.full(train.shape[1], -0.6), np.zeros(train.shape[1]), np.zeros(train.shape[1])
    table: dict[str, list[Any]] = {term: [0.0 * y for _ in range(count)] for term in lines}
    for t in range(6):
        drawn = dict(zip(("train", "validation"), np.random.default_rng(t).integers(count, size=2), strict=True))
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
            means[term] = count * (new - table[term][k]) + sum(table[term])
            table[term][k] = new
        before = x, y, z
        x = np.clip(x + 300.0 * np.exp(x) * y * z, LOW, 0.0)
        y = y - 0.5 * (means["lower_grad_y"] + np.exp(before[0]) * y)
        z = z - 0.4 / (t + 1) ** 0.5 * (means["lower_hvp"] + np.exp(before[0]) * z - means["upper_grad_y"])
    assert table.keys() == contributions.keys()
    assert_is_loop(run, x, y, 1e-3)


@pytest.mark.parametrize("kind", KEYS)
def test_without_noise_it_ends_at_the_optimum(scenario: Make, kind: str) -> None:
    assert_ends_at_optimum(content_of(scenario, kind, rounds=3000, x=1.0, y=0.3, z=0.3), "xy", 1e-6)


def test_one_block_is_soba(scenario: Make) -> None:
    one = decentral_dp.run(content_of(scenario, "saba", blocks=1)).released
    other = decentral_dp.run(content_of(scenario, "soba")).released
    for channel in ("x", "y"):
        np.testing.assert_allclose(one[channel], other[channel], rtol=1e-9)
