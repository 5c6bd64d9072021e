"""Outcomes of keyed tasks on disk, a file each (`write` and `read_outcome`). Tasks are the cells of a study."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from decentral_dp.errors import InputError
from decentral_dp.files.durable import HAS_LOCKS, digest, lock_file, write_whole
from decentral_dp.files.regular import regular
from decentral_dp.simulation.result import plain

# A folder that has it is of a study.
CELLS = "cells"


def number(stored: Any) -> float:
    """Return a number as `plain` wrote it: infinities are words, what is missing is NaN.

    Example:
        >>> number("inf"), number(None)
        (inf, nan)
    """
    return math.nan if stored is None else float(stored)


def write_json(out: Path, content: Mapping[str, Any], mode: int = 0o666) -> None:
    """Write JSON values in place whole. mode: of a new file, less the umask."""
    write_whole(out, (json.dumps(plain(content), indent=2, allow_nan=False) + "\n").encode(), mode)


def write(folder: Path, key: str, record: Any) -> None:
    """Write the outcome of a task, with the digest of its text: what was damaged is computed again.

    Args:
        folder: of the outcomes.
        key: of the task, the stem of its file.
        record: JSON values; others are written as their text.

    Raises:
        OSError: it cannot be written.
        ValueError: a number in it is not finite.
    """
    text = json.dumps(record, allow_nan=False, default=str)
    write_whole(folder / f"{key}.json", f"{digest(text.encode())}\n{text}\n".encode())


def read_outcome(folder: Path, key: str) -> Any:
    """Read the outcome that was kept under the key; None where there is none that is whole.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write(Path(folder), "key", {"status": "ok"})
        ...     read_outcome(Path(folder), "key"), read_outcome(Path(folder), "another")
        ({'status': 'ok'}, None)
    """
    try:
        head, _, rest = regular(folder / f"{key}.json", "study").read_text(encoding="utf-8").partition("\n")
    except (OSError, ValueError):
        return None
    text = rest.removesuffix("\n")
    return json.loads(text) if head == digest(text.encode()) else None


@contextmanager
def hold_folder(folder: Path, under_way: str) -> Iterator[None]:
    """Hold a folder of outcomes inside this, and remove what others left unfinished.

    Args:
        folder: that exists.
        under_way: a sentence.

    Raises:
        InputError: another process computes there; the sentence.
    """
    place = os.open(folder, os.O_RDONLY) if HAS_LOCKS else None
    try:
        # A file system without locks is taken at its word.
        with suppress(OSError):
            try:
                if place is not None:
                    lock_file(place)
            except BlockingIOError:
                raise InputError(under_way) from None
        for unfinished in folder.glob(".*.part"):
            unfinished.unlink()
        yield
    finally:
        if place is not None:
            os.close(place)
