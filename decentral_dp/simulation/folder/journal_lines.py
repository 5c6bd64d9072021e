"""Lines of a journal: JSON objects, each with a digest of its content and of all previous lines.

A changed, missing, moved or foreign line breaks the chain of digests, as in SQLite's write-ahead log. The first line
binds the scenario and the noise key by their digests. A process that is killed during a write leaves an incomplete last
line. Nothing was released for it yet, so the line is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from decentral_dp.errors import InputError, quoted_path
from decentral_dp.files.durable import digest, intact
from decentral_dp.files.regular import own, regular

JOURNAL = "journal.jsonl"
FORMAT = 1
_CHAIN = "chain"


class Lines(NamedTuple):
    """Complete lines of a journal.

    Args:
        entries: entries of the lines, without their digests.
        chain: digest of the last line, which the next line continues.
        size: size of all lines in bytes.
    """

    entries: list[dict[str, Any]]
    chain: str
    size: int


def next_line(chain: str, entry: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return the bytes of the next line, and its digest.

    Args:
        chain: digest of the previous line; "" for the first line.
        entry: JSON values of the line by key.

    Example:
        >>> first, chain = next_line("", {"format": FORMAT, "scenario": "a", "noise_key": "b"})
        >>> second, _ = next_line(chain, {"leased": 3})
        >>> again, _ = next_line("", {"leased": 3})
        >>> second == again
        False
    """
    chain_digest = digest(chain.encode() + json.dumps(entry).encode())
    return json.dumps({**entry, _CHAIN: chain_digest}).encode() + b"\n", chain_digest


def read_lines(path: Path) -> Lines:
    """Read a journal.

    Raises:
        InputError: a different version of the package wrote the journal.
        ValueError: a line was changed.
        OSError: the file cannot be read.
    """
    *lines, remainder = regular(path, "resume").read_bytes().split(b"\n")
    entries: list[dict[str, Any]] = []
    chain, size = "", 0
    for number, line in enumerate(lines, 1):
        entry, chain = _read_line(chain, line, f"line {number} of {path.name}")
        entries.append(entry)
        size += len(line) + 1
    if remainder:
        # A last line whose end was changed is not incomplete.
        try:
            _read_line(chain, remainder[:-1], "")
        except ValueError:
            pass
        else:
            raise ValueError(f"line {len(lines) + 1} of {path.name} was changed after it was written")
    if entries and entries[0].get("format") != FORMAT:
        raise InputError(
            f"resume: {path} was written by another version of decentral_dp. Fix: resume with the version "
            "that started the run."
        )
    return Lines(entries, chain, size)


def _read_line(chain: str, line: bytes, name: str) -> tuple[dict[str, Any], str]:
    try:
        entry = json.loads(line)
        chain_digest = entry.pop(_CHAIN)
        # Compares bytes: two texts of one value differ.
        is_intact = bool(entry) and next_line(chain, entry) == (line + b"\n", chain_digest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_intact = False
    if not is_intact:
        raise ValueError(f"{name} was changed after it was written")
    return entry, chain_digest


def first_digest(path: Path) -> str | None:
    """Return the digest of a journal's first line, which identifies the run by its scenario and noise key.

    Args:
        path: path of the journal.

    Returns:
        The digest; None if there is no journal.

    Raises:
        ValueError: the line was changed, or the path is not a regular file.
    """
    try:
        with regular(path, "resume").open("rb") as journal:
            return _read_line("", journal.readline().removesuffix(b"\n"), f"line 1 of {path.name}")[1]
    except FileNotFoundError:
        return None


def read_bound(path: Path, folder: Path, expected: str) -> bytes:
    """Read a file and verify its digest in the journal.

    Args:
        path: path of the file.
        folder: run folder.
        expected: digest in the journal.

    Raises:
        InputError: the file is missing or has a different digest.
    """
    content = intact(own(path, folder, "resume"), expected)
    if content is None:
        raise InputError(
            f"resume: {quoted_path(path)} was changed after the run wrote it. Fix: restore it, or run the "
            "scenario again in another folder. The budgets of both runs add up."
        )
    return content
