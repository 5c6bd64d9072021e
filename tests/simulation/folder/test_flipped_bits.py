"""Every bit of a run folder: turned, it changes nothing, or one sentence refuses the folder."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import decentral_dp
from decentral_dp.config.loading import load
from decentral_dp.errors import InputError, Stopped
from decentral_dp.reporting import page
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.folder import journal
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.result import read_result, require_run_folder

SETTINGS = ["topology.agents=2", "algorithm.rounds=6", "run.evaluate_every=2", "run.keep_releases=true"]
COMPLETE = ("result.json", "metrics.parquet", "ledger.parquet", "state.npz", "scenario.toml", "releases.parquet")
Check = Callable[[Path], None]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_INTERVAL", 0.0)
    monkeypatch.setattr(journal, "_SHARE", 1e9)
    monkeypatch.setattr(page, "draw_run", lambda *_: None)


def _given(secret: bool) -> Any:
    return load("quadratic", [*SETTINGS, *(["seed=null", "privacy.epsilon=4.0"] if secret else [])])


def _cut_off(folder: Path, secret: bool) -> None:
    def progress(at: Progress) -> None:
        if at.done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(Stopped):
        decentral_dp.run(_given(secret), out=folder, callbacks=[progress])


def _reader(folder: Path) -> Check:
    """Compare what is read of a run under way with what it holds now: an earlier state leads to the same releases."""
    job = build(load(folder / "scenario.toml"))
    found, lock = journal.find(folder)
    lock.close()
    states = {}
    for n in range(len(found.states) + 1):
        saved, number, rows = journal._last_state(folder / "in_progress", list(found.states)[:n])
        states[number] = (saved, rows)

    def read(changed: Path) -> None:
        again, held = journal.find(changed)
        held.close()
        root = journal.root_of_run(again, job, changed)
        again = journal.before_damage(again, job, changed)
        assert root == found.root
        assert (again.leased_rounds, again.releases) == (found.leased_rounds, found.releases)
        assert (again.saved_state, again.rows) == states[again.state_number]
        again.state(job)

    return read


def _complete_reader(folder: Path) -> Check:
    whole = {name: (folder / name).read_bytes() for name in COMPLETE}
    result = read_result(folder).to_json()

    def read(changed: Path) -> None:
        require_run_folder(changed, "report", COMPLETE)
        assert read_result(changed).to_json() == result
        assert {name: (changed / name).read_bytes() for name in COMPLETE} == whole

    return read


def _flips(path: Path, bits: Sequence[int], read: Check, folder: Path) -> int:
    """Turn bits one at a time. Returns how many were refused."""
    content, refused = path.read_bytes(), 0
    for bit in bits:
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            read(folder)
        except InputError as error:
            refused += "\n" not in str(error)
    path.write_bytes(content)
    return refused


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def _bits(path: Path, some: bool, draw: random.Random) -> list[int]:
    """A few bits of a file; or every bit of what is text, and of other files, which one digest covers, a sample."""
    size = path.stat().st_size
    if some:
        return draw.sample(range(8 * size), 12)
    if path.suffix in (".jsonl", ".toml") or path.name == "noise_root.json":
        return list(range(8 * size))
    return [8 * byte + draw.randrange(8) for byte in range(0, size, 4 if size < 4096 else 64)]


@pytest.mark.parametrize(
    ("secret", "some"),
    [
        pytest.param(False, True, id="seeded"),
        pytest.param(True, True, id="secret"),
        pytest.param(True, False, id="all"),
    ],
)
def test_a_run_under_way_is_read_as_it_is_or_refused(tmp_path: Path, secret: bool, some: bool) -> None:
    folder = tmp_path / "run"
    _cut_off(folder, secret)
    read, draw = _reader(folder), random.Random(7)
    read(folder)
    for path in _files(folder):
        bits = _bits(path, some, draw)
        bound = path.name in ("journal.jsonl", "noise_root.json", "scenario.toml")
        assert _flips(path, bits, read, folder) == (len(bits) if bound else 0), path.name
    read(folder)


@pytest.mark.parametrize("some", [pytest.param(True, id="some"), pytest.param(False, id="all")])
def test_a_complete_run_is_read_as_it_is_or_refused(tmp_path: Path, some: bool) -> None:
    folder = tmp_path / "run"
    decentral_dp.run(_given(False), out=folder)
    read, draw = _complete_reader(folder), random.Random(7)
    read(folder)
    for name in COMPLETE:
        bits = _bits(folder / name, some, draw)
        assert _flips(folder / name, bits, read, folder) == len(bits), name
    read(folder)


@pytest.mark.parametrize("secret", [False, True])
def test_a_run_with_a_flipped_bit_resumes_to_the_same_files_or_is_refused(tmp_path: Path, secret: bool) -> None:
    _cut_off(tmp_path / "run", secret)
    shutil.copytree(tmp_path / "run", tmp_path / "whole")
    decentral_dp.resume(tmp_path / "whole")
    names = ("metrics.parquet", "ledger.parquet", "releases.parquet", "state.npz")
    draw = random.Random(11)
    for path in draw.sample(_files(tmp_path / "run"), 6):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "run", copy)
        content = bytearray(path.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        (copy / path.relative_to(tmp_path / "run")).write_bytes(content)
        try:
            decentral_dp.resume(copy)
        except InputError:
            shutil.rmtree(copy)
            continue
        for name in names:
            assert (copy / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), (path.name, name)
        shutil.rmtree(copy)
