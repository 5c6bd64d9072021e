"""Records that are with agents who answer a trusted coordinator: a driver that never opens a file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.data import agent_shards
from decentral_dp.engines.local import LocalEngine
from decentral_dp.privacy.releasers import PlannedReleaser
from decentral_dp.simulation.jobs.build import build_job
from tests.support.shards import write_shards

WHOLE = ("dp_bilevel_breast_cancer", ["algorithm.rounds=4", "topology.agents=4", "run.evaluate_every=2"])


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "shards"
    write_shards(load(*WHOLE), out)
    return out


def test_the_driver_opens_no_shard_and_scores_nothing(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = decentral_dp.run(load(shards / "scenario.toml"))
    assert set(run.metrics["name"]) == {"epsilon_spent"}
    assert run.result.baselines == {}
    notes = " ".join(run.result.problem["notes"])
    assert "scores of them are left out." in notes
    assert "run.agent_scores" not in notes
    assert run.result.privacy.queries

    def opened(*_: Any, **__: Any) -> Any:
        raise AssertionError("a shard was opened")

    monkeypatch.setattr(agent_shards, "load_dataset", opened)
    job = build_job(load(shards / "scenario.toml"))
    assert np.isfinite(job.budget.epsilon).all()
    node: Any = job
    for block in node.coordinator_node().client_blocks:
        with pytest.raises(TypeError, match="hand over none"):
            block.hand_over()
    with pytest.raises(AssertionError, match="a shard was opened"):
        job.start(LocalEngine())


def test_nothing_is_released_before_every_file_is_the_manifests(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = shutil.copytree(shards, tmp_path / "moved")
    shutil.copy(moved / "agent-1.npz", moved / "agent-3.npz")

    def released(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was released")

    monkeypatch.setattr(PlannedReleaser, "release", released)
    with pytest.raises(InputError, match=r"problem\.data: agent 3: .*the manifest"):
        decentral_dp.run(load(moved / "scenario.toml"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
