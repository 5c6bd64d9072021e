"""Large networks: a fixed number of agents is scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.simulation.metrics import MOST_SCORED, scored_agents

AGENTS = 300


@pytest.fixture(scope="module")
def run() -> decentral_dp.Run:
    draw = np.random.default_rng(0)
    data = {
        "features": draw.uniform(-1.0, 1.0, (2 * AGENTS + 40, 3)),
        "labels": np.where(draw.uniform(size=2 * AGENTS + 40) < 0.5, -1, 1),
        "agent": np.concatenate([np.repeat(np.arange(AGENTS), 2), np.zeros(40, dtype=np.int64)]),
        "split": np.concatenate([np.tile(["train", "validation"], AGENTS), np.repeat("test", 40)]),
        "classes": [-1, 1],
    }
    step = {"scale": 0.1}
    content: dict[str, Any] = {
        "seed": 1,
        "problem": {"kind": "logistic_hyperparameter", "data": "breast_cancer", "classes": [-1, 1], "normalise": "l2"},
        "topology": {"kind": "ring", "agents": AGENTS},
        "algorithm": {"kind": "ldp_dsbo", "rounds": 2, "x": step, "y": step, "z": step},
        "privacy": {"guarantee": "none"},
    }
    return decentral_dp.run(content, data=data)


def test_the_scores_are_those_of_the_agents_that_are_named(run: decentral_dp.Run) -> None:
    rows = run.metrics[(run.metrics["round"] == 2) & (run.metrics["name"] == "test_loss")].set_index("agent")["value"]
    test = run.simulation().test
    alone = {
        str(agent): np.logaddexp(0.0, -test.signed @ run.published["y"][agent]).mean()
        for agent in scored_agents(AGENTS)
    }
    assert len(alone) == MOST_SCORED
    assert set(rows.index) == {"mean", *alone}
    for agent, value in alone.items():
        assert rows[agent] == pytest.approx(value, rel=1e-12)
    assert rows["mean"] == pytest.approx(np.mean(list(alone.values())), rel=1e-12)
    assert run.result.metrics["test_loss_max"] == pytest.approx(max(alone.values()), rel=1e-12)
