"""Files of agents, and a run on them from the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.simulation.folder.shards import write_shards

FEW = ["topology.agents=3", "algorithm.rounds=2"]


def _run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "decentral_dp.cli.main", "run", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_written_files_run_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    write_shards("ring_breast_cancer", tmp_path / "shards", FEW)
    names = {path.name for path in (tmp_path / "shards").iterdir()}
    assert names == {"agent-0.npz", "agent-1.npz", "agent-2.npz", "manifest.toml", "scenario.toml"}
    done = _run("shards/scenario.toml", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "are left out" in done.stdout
    # From another folder, by the scenario in the run's own.
    again = _run(str(tmp_path / "run" / "scenario.toml"), "--out", "again", "--quiet", cwd=tmp_path / "shards")
    assert again.returncode == 0, again.stderr
    one, other = (folder / "state.npz" for folder in (tmp_path / "run", tmp_path / "shards" / "again"))
    assert one.read_bytes() == other.read_bytes()
    with (tmp_path / "shards" / "agent-1.npz").open("ab") as file:
        file.write(b"more")
    refused = _run("shards/scenario.toml", "--out", "other", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("Error: problem.data: agent 1: ")
    assert len(refused.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "other").exists()


def test_two_writes_have_the_same_records_and_other_secrets(tmp_path: Path) -> None:
    written = write_shards("ring_breast_cancer", tmp_path / "one", FEW)
    write_shards(load("ring_breast_cancer", FEW).model_dump(exclude_unset=True), tmp_path / "other")
    assert [path.name for path in written] == [*(f"agent-{k}.npz" for k in range(3)), "manifest.toml", "scenario.toml"]
    for path in written[:3]:
        with np.load(path) as mine, np.load(tmp_path / "other" / path.name) as theirs:
            for name in ("X", "y", "split"):
                np.testing.assert_array_equal(mine[name], theirs[name])
            assert mine["secret"].tolist() != theirs["secret"].tolist()
    with pytest.raises(InputError, match="exists already"):
        write_shards("ring_breast_cancer", tmp_path / "one")
