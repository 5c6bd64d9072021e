"""Files of a run that is not complete: their names, their lock, and how they are put in place whole."""

from __future__ import annotations

import fcntl
import os
from hashlib import blake2b
from pathlib import Path
from typing import IO

from decentral_dp.errors import InputError
from decentral_dp.files.regular import regular
from decentral_dp.simulation.result import IN_PROGRESS

JOURNAL, ROOT, LOCK, BEGUN = "journal.jsonl", "noise_root.json", "lock", "scenario.toml"
# What TensorBoard reads, in the folder of the run.
TENSORBOARD = "tensorboard"
# States hold private values without noise, and what is in a folder under way may be a state: for its owner alone.
OWNERS, OWNERS_FOLDER = 0o600, 0o700


def locked(folder: Path) -> IO[bytes]:
    path = regular(folder / IN_PROGRESS / LOCK, str(folder))
    if path.is_dir():
        raise InputError(f"{folder}: {path} is a folder; remove it, and then the same again.")
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise InputError(f"{folder}: this run is under way. Wait until it ends, or end it first.") from None
    return lock


def write_synced(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Put a file in place whole: after a power cut there is the old one or the new one."""
    beside = path.with_name(f".{path.name}.part")
    # What was left there keeps the mode that it has.
    beside.unlink(missing_ok=True)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def intact(path: Path, expected: str | None) -> bytes | None:
    """What a file holds; None where that is not what has this digest, or it is no regular file."""
    content = path.read_bytes() if path.is_file() else b""
    return content if digest(content) == expected else None
