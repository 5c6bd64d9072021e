"""The command shards, and a run on what it writes, as a user meets them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


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
