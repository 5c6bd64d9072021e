"""The command line prints the recorded texts, and runs leave the recorded files."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import measure, record
from .compare import differences


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    return measure.texts()


def test_every_text_is_recorded(printed: dict[str, str]) -> None:
    there = {path.name for path in record.TEXTS.glob("*")}
    assert sorted(printed) == sorted(there), f"record them with {record.command('texts')} and look at them"


@pytest.mark.parametrize("file", sorted(path.name for path in record.TEXTS.glob("*")))
def test_text(file: str, printed: dict[str, str]) -> None:
    assert printed[file] == (record.TEXTS / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", measure.FOLDERS)
def test_run_folder(kind: str, tmp_path: Path) -> None:
    found = measure.folder(measure.FOLDERS[kind], tmp_path)
    assert not differences(found, record.load(record.FOLDERS, kind))
