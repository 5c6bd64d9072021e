"""Lines of a journal: a changed, missing, moved or foreign line is refused; a last one without its end is dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decentral_dp.errors import InputError
from decentral_dp.simulation.folder.journal_lines import FORMAT, next_line, read_lines

BEGUN = {"format": FORMAT, "scenario": "a", "noise_key": "b"}


def _lines(*entries: dict[str, Any]) -> list[bytes]:
    chain, lines = "", []
    for entry in entries:
        line, chain = next_line(chain, entry)
        lines.append(line)
    return lines


def _written(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"".join(lines))
    return path


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    entries = [BEGUN, {"leased": 3}, {"leased": 9}, {"unkept": "no state"}]
    lines = _lines(*entries)
    read = read_lines(_written(tmp_path / "journal", lines))
    assert read.entries == entries
    assert read.size == sum(map(len, lines))
    _, chain = next_line(read.chain, {"leased": 10})
    assert chain == next_line(read_lines(tmp_path / "journal").chain, {"leased": 10})[1] != read.chain


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_last_line_that_was_cut_off_is_dropped(tmp_path: Path, cut: int) -> None:
    *whole, last = _lines(BEGUN, {"leased": 3}, {"leased": 9})
    read = read_lines(_written(tmp_path / "journal", [*whole, last[:-cut]]))
    assert read.entries == [BEGUN, {"leased": 3}]
    assert read.size == sum(map(len, whole))


@pytest.mark.parametrize("change", ["missing", "moved", "foreign", "spaced", "without its end", "twice"])
def test_other_lines_than_those_that_were_written_are_refused(tmp_path: Path, change: str) -> None:
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
    with pytest.raises(ValueError, match="is not what was written"):
        read_lines(_written(tmp_path / "journal", changed))


def test_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another version of decentral_dp"):
        read_lines(_written(tmp_path / "journal", _lines({**BEGUN, "format": 0}, {"leased": 1})))
