"""Which records a clip cuts, against their gradients by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.simulation.advice import clipped_shares
from decentral_dp.simulation.jobs.build import build_job


@pytest.mark.parametrize("norm", ["laplace", "gaussian"])
def test_shares_are_those_of_the_gradients(scenario: Callable[..., dict[str, Any]], norm: str) -> None:
    """∇_y l = −σ(−bᵀy)·b and ∇²_yy l z = σ(1 − σ)(bᵀz)·b of signed features b; all records of three agents."""
    changes = {"mechanism": norm, "clip": {"x": 1.0, "y": 0.4, "z": 0.3}}
    unit = {"normalise": "l1" if norm == "laplace" else "l2"}
    content = scenario(privacy=changes, problem=unit, topology={"agents": 40, "kind": "ring"}, algorithm={"rounds": 1})
    job = build_job(content)
    draw = np.random.default_rng(3)
    values = {c: draw.normal(scale=6.0, size=(40, 30)) for c in "xyz"}
    found = clipped_shares(job.problem, job.records, values, job.clip)
    length = (lambda v: np.abs(v).sum()) if norm == "laplace" else np.linalg.norm
    cut: dict[str, list[bool]] = {"y": [], "z": []}
    for agent in np.linspace(0, 39, 8).round().astype(int):
        y, z = values["y"][agent], values["z"][agent]
        for split in ("train", "validation"):
            rows = job.records[split][agent].signed
            for b in rows[np.linspace(0, len(rows) - 1, min(len(rows), 4)).round().astype(int)]:
                slope = 1.0 / (1.0 + np.exp(b @ y))
                if split == "train":
                    cut["y"].append(slope * length(b) > 0.4)
                    cut["z"].append(slope * (1.0 - slope) * abs(b @ z) * length(b) > 0.3)
                else:
                    cut["z"].append(slope * length(b) > 0.3)
    assert {c: np.mean(v) for c, v in cut.items()} == pytest.approx(found)
    assert 0.0 < found["y"] < 1.0
    assert 0.0 < found["z"] < 1.0


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_record_is_cut_where_its_intercept_is_or_its_features_are(mechanism: str) -> None:
    """δ (a − x) against √(1 − s²) C and δ γ against s C in ℓ2, (1 − s) C and s C in ℓ1; s = 0.37, γ = 0.2."""
    bound, spread = (0.1, 30.0) if mechanism == "laplace" else (0.2, 3.0)
    clip = {"x": 1.0, "y": bound}
    changes = {
        "algorithm.rounds": 20,
        "algorithm.learning_rate": {"scale": 0.5},
        "topology.agents": 4,
        "privacy.clip": clip,
    }
    content = {"privacy.mechanism": mechanism, "privacy.delta": 0.0 if mechanism == "laplace" else 1e-5}
    if mechanism == "laplace":
        content["problem.normalise"] = "l1"
    job = decentral_dp.build("classification", set=changes | content).simulation()
    draw, features = np.random.default_rng(8), job.problem.n_features
    middle = np.array([mine.features.mean(axis=0) for mine in job.records["train"]])
    values = {"x": middle, "y": spread * draw.normal(size=(4, features + 1))}
    found = clipped_shares(job.problem, job.records, values, job.clip)["y"]
    rest, length = (0.63, 1) if mechanism == "laplace" else ((1.0 - 0.37**2) ** 0.5, 2)
    cut: dict[str, list[bool]] = {"features": [], "intercept": []}
    for agent in range(4):
        mine, x, y = job.records["train"][agent], values["x"][agent], values["y"][agent]
        for k in np.linspace(0, len(mine.label) - 1, 8).round().astype(int):
            away = mine.features[k] - x
            slope = abs(1.0 / (1.0 + np.exp(-(away @ y[:-1] + 0.2 * y[-1]))) - mine.label[k])
            cut["features"].append(slope * np.linalg.norm(away, length) > rest * bound)
            cut["intercept"].append(slope * 0.2 > 0.37 * bound)
    either = np.logical_or(*cut.values())
    assert found == pytest.approx(either.mean())
    assert 0.0 < np.mean(cut["features"]) < either.mean() < 1.0
