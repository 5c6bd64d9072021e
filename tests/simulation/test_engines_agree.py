"""Changing networks, compressed messages and correlated noise: resumed runs and Ray release equal bits."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from tests.support.interruptions import interrupt, save_states_often

PAIRWISE = {"between_agents": "pairwise", "ratio": 4.0}
CYCLIC = {"problem.sampling": {"kind": "cyclic", "batch_size": 10}, "algorithm.momentum": 0.0}
CASES: dict[str, dict[str, Any]] = {
    "lossy": {"topology.over_time": "matching", "topology.drop": 0.2, "topology.offline": 0.2, "topology.delay": 1},
    "delay": {"topology.delay": 2},
    "top_k": {"topology.compression": {"kind": "top_k", "share": 0.2}},
    "random_k": {"topology.compression": {"kind": "random_k", "share": 0.5}},
    "pairwise": {"privacy.correlation": PAIRWISE},
    "zero_sum": {"privacy.correlation": PAIRWISE | {"between_agents": "zero_sum"}},
    "optimised": {"topology.kind": "path", "privacy.correlation": {"between_agents": "optimised"}},
    "over_rounds": CYCLIC | {"privacy.correlation": {"over_rounds": 4}},
    "factor": CYCLIC | {"privacy.correlation": {"over_rounds": np.eye(12) - 0.4 * np.eye(12, k=-1)}},
    "both": CYCLIC | {"privacy.correlation": PAIRWISE | {"over_rounds": 3}, "privacy.colluders": 1},
}


def job_of(case: str, **run: Any) -> decentral_dp.Job:
    settings = {"topology.kind": "ring", "topology.agents": 6, "algorithm.rounds": 12, "run.evaluate_every": 2}
    settings |= {"algorithm.learning_rate": {"scale": 0.5}, "privacy.clip": 0.1, "run.average": 1}
    return decentral_dp.build(
        "classification", set=settings | CASES[case] | {f"run.{key}": value for key, value in run.items()}
    )


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_releases_equal_bits(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_states_often(monkeypatch)
    scenario, whole = job_of(case).simulation().scenario, job_of(case).run()
    interrupt(scenario, tmp_path / "run", 6)
    again = decentral_dp.resume(tmp_path / "run")
    np.testing.assert_array_equal(again.released["y"], whole.released["y"])
    assert again.ledger.equals(whole.ledger)


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is an extra")
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("case", ["lossy", "top_k", "optimised", "both"])
def test_actors_release_equal_bits(case: str) -> None:
    remote = job_of(case, engine="ray", agents_per_actor=2).run()
    np.testing.assert_array_equal(job_of(case).run().released["y"], remote.released["y"])
