"""A public domain of what is released (privacy.box): every release lies in it, and costs what it would without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.simulation.jobs.build import build_job

Make = Callable[..., dict[str, Any]]
BOX = {"x": -2.95, "y": 0.2}


def _shortened(name: str, *more: str) -> decentral_dp.Scenario:
    return load(name, ["algorithm.rounds=12", "run.evaluate_every=12", "run.keep_releases=true", *more])


@pytest.mark.parametrize("name", ["ring_breast_cancer", "ma_dsbo", "dsbo_jhip", "gbdsbo", "vrdsbo", "spdb"])
def test_every_release_lies_in_the_domain_at_the_same_price(name: str, tmp_path: Path) -> None:
    free = decentral_dp.run(_shortened(name))
    kept = decentral_dp.run(_shortened(name, *(f"privacy.box.{c}={b}" for c, b in BOX.items())), out=tmp_path / "run")
    assert kept.records.same_releases(free.records)
    assert kept.result.privacy.epsilon_max == free.result.privacy.epsilon_max < np.inf
    table = pd.read_parquet(tmp_path / "run" / "releases.parquet")
    values = {c: np.stack(table.loc[table["channel"] == c, "values"]) for c in BOX}
    assert values["x"].max() <= BOX["x"]
    assert np.abs(values["y"]).max() <= BOX["y"]
    # It binds: elsewhere than at the start there is something to project.
    assert any(np.abs(free.released[c]).max() > BOX[c] for c in ("x", "y"))


@pytest.mark.parametrize("weights", ["metropolis", "lazy_metropolis"])
def test_a_plain_loop_of_projected_gossip_gives_the_same(scenario: Make, weights: str) -> None:
    """Compute without noise: y_i ← Π(y_i) + Σ_j w_ij Π(y_j) − λ·mean of gradients at Π(y_i), |Π(y)| ≤ 0.05."""
    given = scenario(
        topology={"weights": weights},
        algorithm={"kind": "ldp_single_level", "rounds": 6, "init": {"x": -2.0, "y": 0.3}},
        problem={"sampling": "full"},
    )
    for key in ("x", "z"):
        given["algorithm"].pop(key)
    given["algorithm"]["learning_rate"] = given["algorithm"].pop("y")
    given["privacy"] = {"guarantee": "none", "box": {"y": 0.05}}
    job = build_job(given)
    done = decentral_dp.run(given)
    mixing, steps = np.eye(job.n_agents) + job.topology.mixing.toarray(), given["algorithm"]["learning_rate"]
    y = np.full(done.released["y"].shape, 0.3)
    for t in range(6):
        seen = np.clip(y, -0.05, 0.05)
        gradients = np.stack([_gradient(job, agent, seen[agent]) for agent in range(job.n_agents)])
        y = mixing @ seen - steps["scale"] * (t + 1.0) ** -steps["decay"] * gradients
    np.testing.assert_allclose(done.released["y"], np.clip(y, -0.05, 0.05), atol=1e-12, rtol=0)


def _gradient(job: Any, agent: int, y: np.ndarray) -> np.ndarray:
    """∇ of the mean logistic loss of an agent's train records, and of exp(x)/2·|y|² at x = −2."""
    signed = job.records["train"][agent].signed
    return np.asarray(-(1.0 / (1.0 + np.exp(signed @ y))) @ signed / len(signed) + np.exp(-2.0) * y)


def test_no_neighbour_shows_more_than_is_certified_in_a_domain() -> None:
    found = decentral_dp.check(_shortened("ring_breast_cancer", "privacy.box.y=0.1"))
    assert found.passed
