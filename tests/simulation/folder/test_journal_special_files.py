"""Folders of runs under way whose files are none, or may not be read: a sentence at once, and nothing made again."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError, Stopped
from decentral_dp.reporting import page
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.folder import journal as run_in_progress


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What waits for a pipe would wait for ever."""

    def late(number: int, frame: FrameType | None) -> None:
        pytest.fail("it waits")

    monkeypatch.setattr(run_in_progress, "_INTERVAL", 0.0)
    monkeypatch.setattr(run_in_progress, "_SHARE", 1e9)
    monkeypatch.setattr(page, "draw_run", lambda *_: None)
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _given(**more: Any) -> Any:
    asked = ["algorithm.rounds=6", "run.evaluate_every=1", "run.keep_releases=true", "seed=3"]
    return load("quadratic", asked)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    def cut(at: Progress) -> None:
        if at.done == 4:
            raise KeyboardInterrupt

    with pytest.raises(Stopped):
        decentral_dp.run(_given(), out=tmp_path / "run", callbacks=[cut])
    return tmp_path / "run"


@pytest.mark.parametrize(
    "name", ["in_progress/journal.jsonl", "in_progress/lock", "in_progress/saved-4.npz", "scenario.toml"]
)
def test_a_pipe_in_the_place_of_a_file_is_refused_and_the_lock_is_free(folder: Path, name: str) -> None:
    (folder / name).rename(folder / "kept")
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match=rf"{Path(name).name}\" is a pipe; give a regular file"):
        decentral_dp.resume(folder)
    (folder / name).unlink()
    (folder / "kept").rename(folder / name)
    assert decentral_dp.resume(folder).result.status == "ok"


def test_a_line_that_a_full_disk_holds_back_hides_no_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written is tried once more when the journal is closed."""
    write = run_in_progress.RunInProgress._write

    class Full:
        def write(self, line: bytes) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            raise OSError(28, "No space left on device")

    def full(self: run_in_progress.RunInProgress, **entry: Any) -> None:
        if entry.get("leased", 0) > 1:
            self._journal.close()
            self._journal = Full()  # type: ignore[assignment]
            raise OSError(28, "No space left on device")
        write(self, **entry)

    with monkeypatch.context() as here:
        here.setattr(run_in_progress.RunInProgress, "_write", full)
        with pytest.raises(OSError, match=r'Make room, then "decentral-dp resume .*run" goes on'):
            decentral_dp.run(_given(), out=tmp_path / "run")
    assert decentral_dp.resume(tmp_path / "run").result.status == "ok"
    shutil.rmtree(tmp_path / "run")
