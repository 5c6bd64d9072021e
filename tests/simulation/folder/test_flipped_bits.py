"""Every bit of a run folder: turned, it changes nothing, or one sentence refuses the folder."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.files.durable import digest
from decentral_dp.simulation.folder import journal
from decentral_dp.simulation.result import (
    is_sealed,
    read_any_result,
    read_result,
    require_own_files,
)
from tests.support.interruptions import interrupt, save_states_often

SETTINGS = ["topology.agents=2", "algorithm.rounds=6", "run.evaluate_every=2", "run.keep_releases=true"]
COMPLETE = ("result.json", "metrics.parquet", "ledger.parquet", "state.npz", "scenario.toml", "releases.parquet")
Check = Callable[[Path], None]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    save_states_often(monkeypatch)


def _load(secret: bool) -> Any:
    return load("quadratic", [*SETTINGS, *(["seed=null", "privacy.epsilon=4.0"] if secret else [])])


def _flips(path: Path, bits: Iterable[int], check: Check) -> int:
    """Turn bits one at a time. Returns how many of them `check` refused."""
    content, refused = path.read_bytes(), 0
    with path.open("r+b", buffering=0) as file:
        for bit in bits:
            byte = bit // 8
            os.pwrite(file.fileno(), bytes([content[byte] ^ 1 << bit % 8]), byte)
            try:
                check(path)
            except InputError as error:
                refused += "\n" not in str(error)
            os.pwrite(file.fileno(), content[byte : byte + 1], byte)
    assert path.read_bytes() == content
    return refused


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def _every_bit(path: Path, draw: random.Random) -> Iterable[int]:
    """All bits of a file, or one of each byte of a saved state, which one digest covers."""
    size = path.stat().st_size
    return [8 * byte + draw.randrange(8) for byte in range(size)] if path.name.startswith("saved-") else range(8 * size)


def test_every_bit_of_a_run_under_way_is_covered(tmp_path: Path) -> None:
    """Detect changes by the reader of the file: chained lines, their digests, and the digest of a result in itself."""
    folder, draw = tmp_path / "run", random.Random(7)
    interrupt(_load(True), folder, 4)

    def check_journal(path: Path) -> None:
        with contextlib.suppress(ValueError):
            journal.read_lines(path)
            raise AssertionError(f"{path.name} was read")

    def check_result(path: Path) -> None:
        assert not is_sealed(path.read_bytes().decode(errors="replace"))

    for path in _files(folder):
        whole = digest(path.read_bytes())
        if path.name == "journal.jsonl":
            check: Check = check_journal
        elif path.name == "result.json":
            check = check_result
        else:
            check = partial(journal.read_bound, folder=folder, expected=whole)
        bits = list(_every_bit(path, draw))
        bound = path.name not in ("journal.jsonl", "result.json")
        assert _flips(path, bits, check) == (len(bits) if bound else 0), path.name


def test_every_bit_of_a_complete_run_is_covered(tmp_path: Path) -> None:
    """Detect changes by the digests in result.json, and changes of result.json by its digest."""
    folder = tmp_path / "run"
    decentral_dp.run(_load(False), out=folder)
    digests = read_result(folder).table("files")

    def check_file(path: Path) -> None:
        only: Any = SimpleNamespace(table=lambda _: {path.name: digests[path.name]})
        require_own_files(folder, only, "report")

    for name in COMPLETE:
        check = check_file if name in digests else lambda path: read_any_result(path.parent)
        check(folder / name)
        bits = range(8 * (folder / name).stat().st_size)
        assert _flips(folder / name, bits, check) == len(bits), name


@pytest.mark.parametrize("name", COMPLETE)
def test_the_error_names_a_missing_file_of_a_complete_folder(tmp_path: Path, name: str) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    decentral_dp.run(_load(False), out=folder)
    shutil.copytree(folder, other)
    (folder / name).unlink()
    for command in (["report", str(folder)], ["compare", str(folder), str(other)], ["audit", str(folder)]):
        done = CliRunner().invoke(app, command)
        assert isinstance(done.exception, InputError), command
        assert name in str(done.exception)
    with pytest.raises(InputError, match=name):
        decentral_dp.load_model(folder)


@pytest.mark.parametrize("secret", [False, True])
def test_a_run_with_a_flipped_bit_resumes_to_the_same_files_or_is_refused(tmp_path: Path, secret: bool) -> None:
    interrupt(_load(secret), tmp_path / "run", 4)
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
