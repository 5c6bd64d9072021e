"""The command shards, and a run on what it writes, as a user meets them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load


def _cli(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "decentral_dp.cli", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_what_it_writes_is_run_and_what_was_changed_is_refused(tmp_path: Path) -> None:
    few = ["--set", "topology.agents=3", "--set", "algorithm.rounds=2"]
    made = _cli("shards", "ring_breast_cancer", "--out", "shards", *few, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "decentral-dp run shards/scenario.toml" in made.stdout
    names = {path.name for path in (tmp_path / "shards").iterdir()}
    assert names == {"agent-0.npz", "agent-1.npz", "agent-2.npz", "manifest.toml", "scenario.toml"}
    done = _cli("run", "shards/scenario.toml", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "scores of" in done.stdout
    assert "are left out" in done.stdout
    # From another folder, by the scenario in the run's own.
    again = _cli("run", str(tmp_path / "run" / "scenario.toml"), "--out", "again", "--quiet", cwd=tmp_path / "shards")
    assert again.returncode == 0, again.stderr
    one, other = (folder / "state.npz" for folder in (tmp_path / "run", tmp_path / "shards" / "again"))
    assert one.read_bytes() == other.read_bytes()
    with (tmp_path / "shards" / "agent-1.npz").open("ab") as file:
        file.write(b"more")
    refused = _cli("run", "shards/scenario.toml", "--out", "other", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("Error: problem.data: agent 1: ")
    assert "another SHA-256" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "other").exists()


def test_python_writes_the_same(tmp_path: Path) -> None:
    few = {"topology.agents": 3, "algorithm.rounds": 2}
    written = decentral_dp.write_shards("ring_breast_cancer", str(tmp_path / "one"), set=few)
    content = load("ring_breast_cancer", ["topology.agents=3", "algorithm.rounds=2"]).model_dump(exclude_unset=True)
    decentral_dp.write_shards(content, tmp_path / "other")
    assert [path.name for path in written] == [*(f"agent-{k}.npz" for k in range(3)), "manifest.toml", "scenario.toml"]
    for path in written[:3]:
        with np.load(path) as mine, np.load(tmp_path / "other" / path.name) as theirs:
            for name in ("X", "y", "split"):
                np.testing.assert_array_equal(mine[name], theirs[name])
            # No two runs of it make the same secret.
            assert mine["secret"].tolist() != theirs["secret"].tolist()
    with pytest.raises(decentral_dp.InputError, match="exists already"):
        decentral_dp.write_shards("ring_breast_cancer", tmp_path / "one")
