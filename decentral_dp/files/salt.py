"""Random bytes that key digests of private files: without them nobody can try guesses of a file against its digest."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

# Of a folder's own file.
NAME = "salt"
BYTES = 32


def new_salt() -> bytes:
    """Draw a salt from the operating system."""
    return secrets.token_bytes(BYTES)


def salt_in(folder: Path) -> bytes:
    """Read the salt of a folder; where it has none, draw one, in a file that only its owner may read.

    Args:
        folder: that exists, held by one process.

    Returns:
        32 bytes.
    """
    path = folder / NAME
    try:
        kept = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        kept = b""
    if len(kept) == BYTES:
        return kept
    drawn, beside = new_salt(), folder / f"{NAME}.partial"
    beside.unlink(missing_ok=True)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(f"{drawn.hex()}\n")
    beside.replace(path)
    return drawn


def has_salt(folder: Path) -> bool:
    """Whether a folder has its salt."""
    return (folder / NAME).is_file()
