"""Run folders in an object store: what is copied, what stays, and a run that is cut off before its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.errors import InputError, Stopped
from decentral_dp.privacy.mechanisms.releasers import ScheduledReleaser
from decentral_dp.reporting import page
from decentral_dp.simulation.folder.remote import journal_folder, local_folder
from decentral_dp.simulation.result import read_result

pytest.importorskip("fsspec")
Make = Callable[..., dict[str, Any]]
URL = "memory://bucket/one"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    from fsspec.implementations.memory import MemoryFileSystem

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(page, "draw_run", lambda *_: None)
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return MemoryFileSystem()


def _given(scenario: Make) -> dict[str, Any]:
    return scenario(algorithm={"rounds": 6}, run={"evaluate_every": 2})


def _cut_off(scenario: Make, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    whole = ScheduledReleaser.release

    def release(self: ScheduledReleaser, index: int, *given: Any) -> Any:
        if index == at:
            raise KeyboardInterrupt
        return whole(self, index, *given)

    with monkeypatch.context() as patched:
        patched.setattr(ScheduledReleaser, "release", release)
        with pytest.raises((Stopped, KeyboardInterrupt)):
            decentral_dp.run(_given(scenario), out=URL)


def test_a_run_is_copied_and_read_from_elsewhere(
    scenario: Make, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = decentral_dp.run(_given(scenario), out=URL)
    assert done.folder == Path("runs/memory/bucket/one")
    here = {p.relative_to(done.folder).as_posix() for p in done.folder.rglob("*") if p.is_file()}
    assert {name.removeprefix("/bucket/one/") for name in store.find("/bucket/one")} == here
    # On another machine, or in another directory.
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert dict(read_result(local_folder(URL)).metrics) == dict(done.result.metrics)


def test_un_noised_values_stay_here(scenario: Make, store: Any, tmp_path: Path) -> None:
    done = decentral_dp.run(_given(scenario), out=URL)
    assert done.folder is not None
    assert done.state
    store.get_file("/bucket/one/state.npz", str(tmp_path / "copied.npz"))
    with np.load(done.folder / "state.npz") as kept, np.load(tmp_path / "copied.npz") as copied:
        assert set(done.state) <= set(kept.files)
        assert set(copied.files) == set(kept.files) - set(done.state)
        for name in copied.files:
            np.testing.assert_array_equal(copied[name], kept[name])


def test_the_command_says_where_the_copy_is(store: Any) -> None:
    command = ["run", "quadratic", "--set", "algorithm.rounds=3", "--out", URL]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0
    assert said.stdout.splitlines()[-2:] == [
        "Report: runs/memory/bucket/one/report.html",
        f"Copied to {URL}, but for values without noise.",
    ]
    assert "Copied" not in CliRunner().invoke(app, [*command[:-1], "here"]).stdout


def test_nothing_is_written_over(scenario: Make, store: Any) -> None:
    store.pipe_file("/bucket/one/other.txt", b"")
    with pytest.raises(InputError, match="exists already"):
        decentral_dp.run(_given(scenario), out=URL)
    assert not journal_folder(URL).exists()


def test_what_was_cut_off_goes_on_here_and_begins_nowhere_else(
    scenario: Make, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = decentral_dp.run(_given(scenario))
    _cut_off(scenario, monkeypatch, at=4)
    assert [Path(name).name for name in store.find("/bucket/one")] == ["under_way.json"]
    (tmp_path / "elsewhere").mkdir()
    with monkeypatch.context() as there:
        there.chdir(tmp_path / "elsewhere")
        with pytest.raises(InputError, match=r"a run was begun for .* whose journal is .*runs/memory/bucket/one"):
            decentral_dp.run(_given(scenario), out=URL)
    done = decentral_dp.resume(URL)
    assert isinstance(done, decentral_dp.Run)
    np.testing.assert_array_equal(done.released["x"], whole.released["x"])
    assert json.loads(store.cat_file("/bucket/one/result.json"))["status"] == "ok"
    assert not store.exists("/bucket/one/under_way.json")


def test_what_released_nothing_leaves_nothing(scenario: Make, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _cut_off(scenario, monkeypatch, at=0)
    assert not store.find("/bucket/one")
    decentral_dp.run(_given(scenario), out=URL)


def test_a_name_that_leaves_the_folder_is_refused(scenario: Make, store: Any, tmp_path: Path) -> None:
    store.pipe_file("/bucket/bad/result.json", b"{}")
    store.pipe_file("/bucket/bad/../../escaped", b"")
    with pytest.raises(InputError, match="no complete run is there"):
        local_folder("memory://bucket/bad")
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nosuch://a/b", "fsspec knows no such store"),
        ("memory://", "names no folder"),
        ("memory://a/../b", "names no folder"),
        ("memory://bucket/empty", "no complete run is there"),
    ],
)
def test_places_that_are_none(store: Any, url: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        local_folder(url)
