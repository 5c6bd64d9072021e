"""stocBiO and AmIGO: agreement with a loop over records, sensitivities, and the optimum without noise."""

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
K, B, L = 2, 3, 4.0
KEYS: dict[str, dict[str, Any]] = {"stocbio": {"smoothness": L}, "amigo": {"z": {"scale": 0.3, "decay": 0.5}}}


def content_of(scenario: Make, kind: str, **changes: Any) -> dict[str, Any]:
    keys = {"rounds": 3, "y": {"scale": 0.5, "decay": 0.5}, "inner": K, "inverse": B, **KEYS[kind], **changes}
    return steps_scenario(scenario, kind, **keys)


@pytest.mark.parametrize("kind", KEYS)
def test_agrees_with_a_loop_over_records(scenario: Make, kind: str) -> None:
    run = decentral_dp.run(content_of(scenario, kind))
    job, per_round = run.simulation(), K + B + 2
    train, validation = signed_records(job)
    lines = {c.channel: c for c in run.records.channels}
    sizes = {"lower_grad_y": 3 * K, "upper_grad_y": 3, "lower_hvp": 3 * B}
    assert {term: line.rounds.size for term, line in lines.items()} == sizes
    used = dict.fromkeys(sizes, 0)

    def perturbed(term: str, position: int, mean: np.ndarray) -> np.ndarray:
        line, used[term] = lines[term], used[term] + 1
        scale = float(line.scale[used[term] - 1, 0])
        return np.asarray(mean + scale * noise(job, t * per_round + position + 1, term, mean.size))

    x, y, z = np.full(train.shape[1], -0.6), np.zeros(train.shape[1]), np.zeros(train.shape[1])
    for t in range(3):
        for k in range(K):
            mean = clip_vector(-train / (1.0 + np.exp(train @ y))[:, None]).mean(axis=0)
            y = y - 0.5 / (t + 1) ** 0.5 * (perturbed("lower_grad_y", k, mean) + np.exp(x) * y)
        mean = clip_vector(-validation / (1.0 + np.exp(validation @ y))[:, None]).mean(axis=0)
        target = perturbed("upper_grad_y", K, mean)
        v, terms = (target, [target]) if kind == "stocbio" else (z, [])
        for j in range(B):
            s = 1.0 / (1.0 + np.exp(train @ y))
            mean = clip_vector((s * (1.0 - s) * (train @ v))[:, None] * train).mean(axis=0)
            product = perturbed("lower_hvp", K + 1 + j, mean) + np.exp(x) * v
            v = v - product / L if kind == "stocbio" else v - 0.3 / (t + 1) ** 0.5 * (product - target)
            terms.append(v)
        z = sum(terms) / L if kind == "stocbio" else v
        x = np.clip(x + 300.0 * np.exp(x) * y * z, LOW, 0.0)
    assert_is_loop(run, x, y, 1e-3)


@pytest.mark.parametrize("kind", KEYS)
def test_without_noise_it_ends_at_the_optimum(scenario: Make, kind: str) -> None:
    table = content_of(scenario, kind, rounds=200, x=1.0, y=0.3, inner=5, inverse=5)
    assert_ends_at_optimum(table, "x", 1e-5)
