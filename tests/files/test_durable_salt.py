"""Salted digests: guesses of a private cell cannot be verified from the files of a study."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w

import decentral_dp
from decentral_dp.config.components import inputs_digest
from decentral_dp.files.durable import BYTES, SALT, salt_in
from decentral_dp.privacy.fingerprint import digest_of_file

SHIPPED = Path(__file__).parents[2] / "scenarios"
AGES = range(40, 70)
TRUE = 57


def write_records(folder: Path, age: int) -> Path:
    """A file of records with one private cell."""
    lines = (SHIPPED / "own_records.csv").read_text().splitlines()
    column = lines[0].split(",").index("age")
    cells = lines[8].split(",")
    cells[column] = str(age)
    (folder / "own_records.csv").write_text("\n".join([*lines[:8], ",".join(cells), *lines[9:]]) + "\n")
    return folder / "own_records.csv"


def people(folder: Path) -> Path:
    """The scenario of such a file."""
    folder.mkdir(exist_ok=True)
    write_records(folder, TRUE)
    scenario = decentral_dp.load("own_csv").model_dump(exclude_unset=True)
    scenario["algorithm"]["rounds"] = 2
    scenario["problem"]["data"] = "own_records.csv"
    (folder / "scenario.toml").write_text(tomli_w.dumps(scenario))
    return folder / "scenario.toml"


def digests(path: Path, scenario: Any) -> Iterator[str]:
    """Digests that need no secret: of the file's bytes, of the project's own digest of it."""
    own = digest_of_file(path)
    for content in (path.read_bytes(), own.encode(), bytes.fromhex(own)):
        for name in ("md5", "sha1", "sha256", "sha512"):
            yield hashlib.new(name, content).hexdigest()
        for size in (8, 16, 32, 64):
            yield hashlib.blake2b(content, digest_size=size).hexdigest()
    yield inputs_digest(scenario, b"")


def text_of(kept: Path) -> str:
    """Names and contents of all files but the salt."""
    files = [kept] if kept.is_file() else [p for p in sorted(kept.rglob("*")) if p.is_file() and p.name != SALT]
    parts = [f"{path} {path.read_bytes().decode('utf-8', 'replace')}" for path in files]
    return " ".join(parts + [pd.read_parquet(p).to_csv() for p in files if p.suffix == ".parquet"])


def recognised(kept: Path, folder: Path) -> list[int]:
    """The ages that a guess of the file shows to be in it. Half a digest is proof enough."""
    text, scenario = text_of(kept), decentral_dp.load(people(folder / "guess"))
    return [age for age in AGES if any(d[:16] in text for d in digests(write_records(folder / "guess", age), scenario))]


def study(folder: Path, out: Path) -> Any:
    asked = {"scenario": str(people(folder)), "kind": "plan", "measure": ["epsilon_max"]}
    return decentral_dp.study(asked | {"grid": {"algorithm.rounds": [1, 2]}}, out=out, workers=1)


def test_no_file_of_a_study_shows_which_guess_is_true(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = study(tmp_path / "mine", out)
    salt = out / "cells" / SALT
    assert salt.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(salt.read_text())) == BYTES
    assert recognised(out, tmp_path) == []
    # The same study of the same file with another salt has other names.
    theirs = study(tmp_path / "mine", tmp_path / "theirs")
    assert set(found.results["cell"]).isdisjoint(theirs.results["cell"])
    assert salt.read_text() not in text_of(out)
    # The search finds a digest without a salt.
    (out / "leak.txt").write_text(inputs_digest(decentral_dp.load(tmp_path / "mine" / "scenario.toml"), b""))
    assert recognised(out, tmp_path) == [TRUE]


def test_a_salt_is_drawn_once_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "another").mkdir()
    first = salt_in(tmp_path)
    assert salt_in(tmp_path) == first != salt_in(tmp_path / "another")
    (tmp_path / SALT).write_text("00")
    assert salt_in(tmp_path) != bytes(1)
