"""Interrupted runs: every release is logged first, and a resumed run is equal to the bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError, Stopped, UnplannedReleaseError
from decentral_dp.exchange import Bundle
from decentral_dp.privacy.accounting.accountants import account
from decentral_dp.privacy.randomness import SecretRoot
from decentral_dp.privacy.releasers import ScheduledReleaser
from decentral_dp.simulation import run as runner
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.folder import journal as run_in_progress
from decentral_dp.simulation.folder.journal_lines import FORMAT, next_line, read_lines
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.result import is_complete, read_result
from tests.support.interruptions import interrupt, interrupt_at, save_states_often
from tests.support.pages import write_algorithm
from tests.support.run_folders import rewrite_journal

Make = Callable[..., dict[str, Any]]
FILES = ["ledger.parquet", "metrics.parquet", "plots", "report.html", "result.json", "scenario.toml", "state.npz"]
ROUNDS = 12


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save states at every evaluation."""
    save_states_often(monkeypatch)


@pytest.fixture
def small(scenario: Make) -> dict[str, Any]:
    return scenario(algorithm={"rounds": ROUNDS}, run={"evaluate_every": 2, "average": 3})


@contextmanager
def _failing_at(t: int, kind: type[BaseException]) -> Iterator[None]:
    """The release of this index fails: a callback that raises does not end a run."""
    release = ScheduledReleaser.release

    def failing(self: ScheduledReleaser, index: int, values: Any) -> Bundle:
        if index >= t:
            raise kind("interrupted here")
        return release(self, index, values)

    with pytest.MonkeyPatch.context() as here:
        here.setattr(ScheduledReleaser, "release", failing)
        yield


def _end(loaded: Any, folder: Path, t: int, kind: type[BaseException]) -> None:
    """Run until it is interrupted or fails."""
    if kind is KeyboardInterrupt:
        decentral_dp.run(loaded, out=folder, callbacks=[interrupt_at(t)])
    with _failing_at(t, kind):
        decentral_dp.run(loaded, out=folder)


@cache
def _whole(text: str) -> Any:
    return decentral_dp.run(json.loads(text))


def _uninterrupted(loaded: dict[str, Any]) -> Any:
    """Share one run between all tests of the same scenario."""
    return _whole(json.dumps(loaded))


def _assert_same(one: Any, other: Any) -> None:
    for part in ("released", "published", "state"):
        mine, expected = getattr(one, part), getattr(other, part)
        assert mine.keys() == expected.keys()
        for channel in mine:
            np.testing.assert_array_equal(mine[channel], expected[channel], strict=True)
    pd.testing.assert_frame_equal(one.metrics, other.metrics)
    pd.testing.assert_frame_equal(one.ledger, other.ledger)


@pytest.mark.parametrize(
    ("t", "kind"),
    [*((t, KeyboardInterrupt) for t in (0, 2, ROUNDS)), (0, RuntimeError), (6, OSError), (ROUNDS, RuntimeError)],
)
def test_a_resumed_run_is_equal_to_the_bit(
    small: dict[str, Any], tmp_path: Path, t: int, kind: type[BaseException]
) -> None:
    uninterrupted, folder = _uninterrupted(small), tmp_path / "run"
    with pytest.raises(BaseException, match=r"resumes it|interrupted here") as cut:
        _end(small, folder, t, kind)
    if t == 0:
        # Nothing but the data-independent start was released.
        assert not folder.exists()
        assert "interrupted here" in str(cut.value)
        return
    assert json.loads((folder / "result.json").read_text())["status"] == (
        "interrupted" if kind is KeyboardInterrupt else "failed"
    )
    _assert_same(decentral_dp.resume(folder), uninterrupted)
    assert sorted(p.name for p in folder.iterdir()) == [f for f in FILES if f not in ("plots", "report.html")]
    assert read_result(folder).status == "ok"


@pytest.mark.parametrize("name", ["dp_bilevel", "dp_sgda", "dp_sgd_dual", "dp_spider", "bsa", "vrdsbo"])
def test_other_programs_resume(name: str, tmp_path: Path) -> None:
    loaded = load(name, ["algorithm.rounds=6", "run.evaluate_every=1"])
    interrupt(loaded, tmp_path / "run", 4)
    _assert_same(decentral_dp.resume(tmp_path / "run"), decentral_dp.run(loaded))


def _page_algorithm(name: str, folder: Path, *changes: tuple[str, str]) -> Path:
    """Write an algorithm of docs/add_an_algorithm.md, which saves a state every round."""
    path = write_algorithm(folder, name, *changes)
    path.write_text(path.read_text(encoding="utf-8") + "\n[run]\nevaluate_every = 1\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Gossip(y=s.y)", "Gossip(y=s.y, v=s.last)", "got v without noise, 30 numbers"),
        (
            "moved - self.learning_rate(t) * gradient",
            "moved - self.learning_rate(t) * gradient.private",
            "got y without noise",
        ),
    ],
)
def test_a_run_with_an_unplanned_release_has_no_epsilon(old: str, new: str, said: str, tmp_path: Path) -> None:
    loaded = _page_algorithm("momentum", tmp_path, (old, new))
    with pytest.raises(UnplannedReleaseError, match=said):
        decentral_dp.run(loaded, out=tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    assert result["status"] == "failed"
    assert result["privacy"]["epsilon_max"] == "inf"
    assert {agent["epsilon"] for agent in result["privacy"]["agents"]} == {"inf"}


@pytest.mark.parametrize("name", ["momentum", "averaged"])
def test_an_algorithm_in_a_file_resumes_from_a_saved_state(name: str, tmp_path: Path) -> None:
    loaded = _page_algorithm(name, tmp_path)
    interrupt(loaded, tmp_path / "run", 4)
    assert list((tmp_path / "run" / "in_progress").glob("saved-*.npz"))
    _assert_same(decentral_dp.resume(tmp_path / "run"), decentral_dp.run(loaded))


def test_a_run_whose_state_cannot_be_saved_resumes_from_its_start(tmp_path: Path) -> None:
    loaded = _page_algorithm("momentum", tmp_path, ("return State(x, y, y)", "return _hidden()(x, y, y)"))
    code = loaded.with_suffix(".py")
    code.write_text(
        code.read_text() + "\n\ndef _hidden():\n    class State(NamedTuple):\n        x: Any\n        y: Any\n"
        "        last: Any\n\n    return State\n"
    )
    interrupt(loaded, tmp_path / "run", 4)
    journal = (tmp_path / "run" / "in_progress" / "journal.jsonl").read_text()
    assert "define it at the top level of the algorithm's file" in journal
    _assert_same(decentral_dp.resume(tmp_path / "run"), decentral_dp.run(loaded))


def test_the_result_of_an_interrupted_run_has_the_epsilon_of_its_releases(
    small: dict[str, Any], tmp_path: Path
) -> None:
    interrupt(small, tmp_path / "run", 6)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert 6 <= result["rounds"] <= 7
    job = build_job(small)
    spent = account(job.ledger.truncate(result["rounds"]), job.scenario.privacy.delta)
    assert result["privacy"]["epsilon_max"] == pytest.approx(float(spent.epsilon.max()), rel=1e-12)
    assert result["privacy"]["epsilon_max"] < 4.0 - 1e-6


def test_every_release_is_leased_first(small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, indices = tmp_path / "run", []
    release = ScheduledReleaser.release

    def watched(self: ScheduledReleaser, index: int, values: Any) -> Bundle:
        lines = (folder / "in_progress" / "journal.jsonl").read_text().splitlines()
        indices.append((index, max((json.loads(line).get("leased", 0) for line in lines), default=0)))
        return release(self, index, values)

    monkeypatch.setattr(ScheduledReleaser, "release", watched)
    decentral_dp.run(small, out=folder)
    assert [index for index, _ in indices] == list(range(ROUNDS + 1))
    assert all(index <= leased for index, leased in indices)


@pytest.mark.parametrize("umask", [0o022, 0o000])
@pytest.mark.usefixtures("undrawn")
def test_noiseless_files_are_readable_by_their_owner_only(small: dict[str, Any], tmp_path: Path, umask: int) -> None:
    small["run"]["keep_releases"] = True
    folder, before = tmp_path / "run", os.umask(umask)
    try:
        interrupt(small, folder, 6)
        place = folder / "in_progress"
        modes = {path.name.partition("-")[0]: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
        assert {name: modes[name] for name in ("saved", "metrics", "releases", "journal.jsonl", "noise_root.json")} == (
            dict.fromkeys(("saved", "metrics", "releases", "journal.jsonl", "noise_root.json"), 0o600)
        )
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        decentral_dp.resume(folder)
    finally:
        os.umask(before)
    finished = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.is_file()}
    assert finished["state.npz"] == 0o600
    assert finished["scenario.toml"] == finished["releases.parquet"] == 0o666 & ~umask


# --- secret noise -----------------------------------------------------------------------------------------------------


def test_secret_noise_is_drawn_once(small: dict[str, Any], tmp_path: Path) -> None:
    del small["seed"]
    folder = tmp_path / "run"
    interrupt(small, folder, 6)
    contents = folder / "in_progress" / "noise_root.json"
    assert stat.S_IMODE(contents.stat().st_mode) == 0o600
    key_file = json.loads(contents.read_text())
    root = SecretRoot(bytes.fromhex(key_file["root"]))
    assert key_file["generator"] == "aes-256-ctr"
    resumed = decentral_dp.resume(folder)
    # The same root all the way: what one draw throughout gives.
    assert resumed.simulation().root == root
    again = build_job(small).with_root(root)
    rows, outcome = runner._perform(again, None)
    for channel, value in outcome.last_snapshot.released.items():
        np.testing.assert_array_equal(resumed.released[channel], value)
    assert len(rows) == len(resumed.metrics)
    assert not any(root.key.hex() in p.read_bytes().decode("latin-1") for p in folder.rglob("*") if p.is_file())
    assert not (folder / "in_progress").exists()


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_run_killed_during_cleanup_is_complete(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"

    def killed(self: Any) -> None:
        self.close()
        (folder / "in_progress" / "noise_root.json").unlink()

    monkeypatch.setattr(run_in_progress.RunInProgress, "complete", killed)
    decentral_dp.run(small, out=folder)
    assert read_result(folder).status == "ok"
    assert decentral_dp.resume(folder).result.status == "ok"
    assert not (folder / "in_progress").exists()


def test_only_an_interrupted_run_is_resumed(small: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def meanwhile(progress: Progress) -> None:
        if progress.done == 2:
            with pytest.raises(InputError, match="under way"):
                decentral_dp.resume(folder)
            with pytest.raises(InputError, match="not complete"):
                read_result(folder)
            with pytest.raises(InputError, match="already exists"):
                decentral_dp.run(small, out=folder)

    run = decentral_dp.run(small, out=folder, callbacks=[meanwhile])
    assert decentral_dp.resume(folder).result.to_json() == run.result.to_json()
    with pytest.raises(InputError, match="is not a run folder"):
        decentral_dp.resume(tmp_path / "none")


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_scenario_that_has_changed_is_refused(small: dict[str, Any], tmp_path: Path) -> None:
    interrupt(small, tmp_path / "run", 6)
    path = tmp_path / "run" / "scenario.toml"
    text = path.read_text()
    for changed in (text[: text.index("[run]")], text.replace("evaluate_every = 2\n", "evaluate_every = 3\n")):
        assert changed != text
        path.write_text(changed)
        with pytest.raises(InputError, match=r"scenario\.toml\" was changed after the run wrote it"):
            decentral_dp.resume(tmp_path / "run")
    path.write_text(text.replace("[run]\n", "[run]\nblocks = 2\n"))
    rewrite_journal(tmp_path / "run")
    with pytest.raises(InputError, match=r"number of blocks of agents changed"):
        decentral_dp.resume(tmp_path / "run")
    path.write_text(text)
    rewrite_journal(tmp_path / "run")
    _assert_same(decentral_dp.resume(tmp_path / "run"), _uninterrupted(small))


def test_an_incomplete_line_does_not_precede_the_next(small: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    interrupt(small, folder, 4)
    with (folder / "in_progress" / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"leased": 1')
    with pytest.raises(Stopped):
        decentral_dp.resume(folder, callbacks=[interrupt_at(8)])
    _assert_same(decentral_dp.resume(folder), _uninterrupted(small))


@pytest.mark.parametrize("failing", [0, 2, 5, 9, 16])
def test_a_full_disk_at_any_write_loses_no_release(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    uninterrupted, folder, count = _uninterrupted(small), tmp_path / "run", [0]
    sync = run_in_progress.os.fsync

    def full(number: int) -> None:
        count[0] += 1
        if count[0] > failing:
            raise OSError(28, "No space left on device")
        sync(number)

    with monkeypatch.context() as patch:
        patch.setattr(run_in_progress.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            decentral_dp.run(small, out=folder)
    if (folder / "in_progress").exists():
        _assert_same(decentral_dp.resume(folder), uninterrupted)
    else:
        assert not folder.exists()


def test_a_run_without_memory_at_the_end_resumes(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "collect_result", failing)
        with pytest.raises(MemoryError, match=r"MemoryError: .*resume .*resumes it"):
            decentral_dp.run(small, out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "failed"
    _assert_same(decentral_dp.resume(tmp_path / "run"), _uninterrupted(small))


def test_a_noise_key_of_another_run_is_refused(small: dict[str, Any], tmp_path: Path) -> None:
    del small["seed"]
    for name in ("run", "other"):
        interrupt(small, tmp_path / name, 6)
    shutil.copy(tmp_path / "other" / "in_progress" / "noise_root.json", tmp_path / "run" / "in_progress")
    with pytest.raises(InputError, match="was changed after the run wrote it"):
        decentral_dp.resume(tmp_path / "run")


def test_the_result_of_another_run_ends_no_run(small: dict[str, Any], tmp_path: Path) -> None:
    """Both are of one scenario; their secret noise differs, and the noise key and the journal stay."""
    del small["seed"]
    folder, place = tmp_path / "run", tmp_path / "run" / "in_progress"
    interrupt(small, folder, 6)
    contents = {path: path.read_bytes() for path in place.iterdir()}
    decentral_dp.run(small, out=tmp_path / "other")
    shutil.copy(tmp_path / "other" / "result.json", folder)
    assert not is_complete(folder)
    assert run_in_progress.progress_in(folder) == "under way"
    with pytest.raises(InputError, match="is the result of another run"):
        decentral_dp.resume(folder)
    assert {path: path.read_bytes() for path in place.iterdir()} == contents
    (folder / "result.json").unlink()
    assert decentral_dp.resume(folder).result.status == "ok"


def test_a_damaged_status_is_no_complete_run(small: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    interrupt(small, folder, 6)
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"interrupted"', '"interruqted"'))
    assert not is_complete(folder)
    with pytest.raises(InputError, match=r"result\.json"):
        decentral_dp.resume(folder)
    path.unlink()
    _assert_same(decentral_dp.resume(folder), _uninterrupted(small))


@pytest.fixture
def time_limit() -> Iterator[None]:
    """A read of a pipe would block forever."""

    def late(number: int, frame: FrameType | None) -> None:
        pytest.fail("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _load() -> Any:
    overrides = ["algorithm.rounds=6", "run.evaluate_every=1", "run.keep_releases=true", "seed=3"]
    return load("quadratic", overrides)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    interrupt(_load(), tmp_path / "run", 4)
    return tmp_path / "run"


@pytest.mark.usefixtures("time_limit")
@pytest.mark.parametrize(
    "name", ["in_progress/journal.jsonl", "in_progress/lock", "in_progress/saved-4.npz", "scenario.toml"]
)
def test_a_pipe_instead_of_a_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).rename(folder / "kept")
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match=rf"{Path(name).name}\" is a pipe. Fix: use a regular file"):
        decentral_dp.resume(folder)
    (folder / name).unlink()
    (folder / "kept").rename(folder / name)
    assert decentral_dp.resume(folder).result.status == "ok"


def test_a_full_disk_at_close_does_not_hide_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the journal writes a failed line again."""
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
        with pytest.raises(OSError, match=r'Fix: free some disk space, then "decentral-dp resume .*run" resumes it'):
            decentral_dp.run(_load(), out=tmp_path / "run")
    assert decentral_dp.resume(tmp_path / "run").result.status == "ok"
    shutil.rmtree(tmp_path / "run")


BEGUN = {"format": FORMAT, "scenario": "a", "noise_key": "b"}


def _lines(*entries: dict[str, Any]) -> list[bytes]:
    chain, lines = "", []
    for entry in entries:
        line, chain = next_line(chain, entry)
        lines.append(line)
    return lines


def _written_lines(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"".join(lines))
    return path


def test_a_journal_is_read_as_written(tmp_path: Path) -> None:
    entries = [BEGUN, {"leased": 3}, {"leased": 9}, {"unkept": "no state"}]
    lines = _lines(*entries)
    read = read_lines(_written_lines(tmp_path / "journal", lines))
    assert read.entries == entries
    assert read.size == sum(map(len, lines))
    _, chain = next_line(read.chain, {"leased": 10})
    assert chain == next_line(read_lines(tmp_path / "journal").chain, {"leased": 10})[1] != read.chain


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_an_incomplete_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    *uninterrupted, last = _lines(BEGUN, {"leased": 3}, {"leased": 9})
    read = read_lines(_written_lines(tmp_path / "journal", [*uninterrupted, last[:-cut]]))
    assert read.entries == [BEGUN, {"leased": 3}]
    assert read.size == sum(map(len, uninterrupted))


@pytest.mark.parametrize("change", ["missing", "moved", "foreign", "spaced", "without its end", "twice"])
def test_changed_lines_are_refused(tmp_path: Path, change: str) -> None:
    first, second, third = _lines(BEGUN, {"leased": 3}, {"leased": 9})
    foreign = _lines({**BEGUN, "noise_key": "c"}, {"leased": 3}, {"leased": 9})
    changed = {
        "missing": [first, third],
        "moved": [first, third, second],
        "foreign": [first, second, foreign[2]],
        "spaced": [first, second.replace(b": 3", b":  3"), third],
        "without its end": [first, second, third[:-1] + b"\x0b"],
        "twice": [first, second, second],
    }[change]
    with pytest.raises(ValueError, match="was changed after it was written"):
        read_lines(_written_lines(tmp_path / "journal", changed))


def test_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another version of decentral_dp"):
        read_lines(_written_lines(tmp_path / "journal", _lines({**BEGUN, "format": 0}, {"leased": 1})))
