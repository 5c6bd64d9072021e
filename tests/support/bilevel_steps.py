"""Clipped terms, records and noise of a coordinator's bilevel algorithm, for loops over records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.closed_forms import optimum_of

# Clip of all terms, and lower end of the domain of x.
C, LOW = 0.3, -1.0


def steps_scenario(scenario: Callable[..., dict[str, Any]], kind: str, **keys: Any) -> dict[str, Any]:
    """Return a scenario of four agents whose x reaches the lower end of its domain; keys are those of the algorithm."""
    table = scenario(problem={"normalise": "l2"}, topology={"kind": "star", "agents": 4})
    own = {"kind": kind, "x": 300.0, "domain": {"low": LOW, "high": 0.0}, "init": {"x": -0.6}}
    privacy = {"epsilon": 4.0, "delta": 1e-5, "clip": {"y": C, "z": C}}
    return table | {"algorithm": own | keys, "privacy": privacy}


def clip_vector(rows: np.ndarray) -> np.ndarray:
    sizes = np.sqrt((rows.reshape(len(rows), -1) ** 2).sum(axis=1))
    factor = np.minimum(1.0, C / np.maximum(sizes, 1e-300))
    return rows * factor.reshape(-1, *([1] * (rows.ndim - 1)))


def signed_records(job: Job) -> tuple[np.ndarray, np.ndarray]:
    train, validation = (np.concatenate([r.signed for r in job.records[k]]) for k in ("train", "validation"))
    return train, validation


def noise(job: Job, index: int, channel: str, d: int) -> np.ndarray:
    drawn = Streams(job.root, "noise", [0]).generator(0, index, tag(channel)).standard_normal((1, 1, d))
    return np.asarray(drawn[0, 0])


def assert_is_loop(run: decentral_dp.Run, x: np.ndarray, y: np.ndarray, atol: float) -> None:
    """Compare a run with the end of its loop over records, its costs with the plan, and its sensitivities with 2C/n."""
    job = run.simulation()
    # Up to the grid of the noise.
    np.testing.assert_allclose(run.released["x"][0], x, atol=atol)
    np.testing.assert_allclose(run.released["y"][0], y, atol=1e-4)
    assert (x == LOW).any()
    assert run.records.costs_within(job.ledger)
    n = {"train": len(signed_records(job)[0]), "validation": len(signed_records(job)[1])}
    lines = {c.channel: c for c in run.records.channels}
    assert {"lower_grad_y", "lower_hvp", "upper_grad_y"} <= set(lines)
    for term, split in (("lower_grad_y", "train"), ("lower_hvp", "train"), ("upper_grad_y", "validation")):
        np.testing.assert_allclose(lines[term].sensitivity[split], 2.0 * C / n[split], rtol=1e-9)


def assert_ends_at_optimum(table: dict[str, Any], channels: str, atol: float) -> None:
    """Run a scenario without noise on a quadratic problem, to the optimum in closed form."""
    del table["algorithm"]["domain"], table["problem"]["test"]
    table["privacy"] = {"guarantee": "none"}
    table["problem"] |= {"kind": "quadratic", "ridge": 0.5, "data": "synthetic_classification", "scale": "none",
                         "synthetic": {"dimension": 2, "records": 12, "test_records": 8}}  # fmt: skip
    job = build(load(table))
    best = optimum_of(job)
    end = decentral_dp.run(table).released
    for channel in channels:
        np.testing.assert_allclose(end[channel][0], getattr(best, channel), rtol=0, atol=atol)
