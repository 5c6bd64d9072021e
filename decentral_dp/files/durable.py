"""Files that are written: whole or not at all, with digests, salts and locks, and names that may be sent to others.

A salt is random bytes that key the digests of private files: without them nobody can try guesses of a file against its
digest.
"""

from __future__ import annotations

import os
import secrets
from hashlib import blake2b
from pathlib import Path
from typing import IO

from decentral_dp.errors import InputError

try:
    import fcntl
except ImportError:  # Windows has none.
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

# For their owner alone: values without noise, salts, and folders that hold such.
OWNERS, OWNERS_FOLDER = 0o600, 0o700
# Of a folder's own file.
SALT = "salt"
BYTES = 32


def write_synced(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Put a file in place whole, so that after a power cut there is the old one or the new one, too."""
    write_whole(path, content, mode, synced=True)


def write_whole(path: Path, content: bytes, mode: int = 0o666, synced: bool = False) -> None:
    """Put a file in place whole: an interrupt leaves the old one or the new one, and perhaps `.NAME.part` beside it.

    A link in its place is replaced, and not followed.
    """
    partial_file = path.with_name(f".{path.name}.part")
    # What was left there keeps the mode that it has.
    partial_file.unlink(missing_ok=True)
    with open(os.open(partial_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    partial_file.replace(path)
    if not synced:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def digest(content: bytes) -> str:
    """Hash some bytes: 32 hexadecimal digits."""
    return blake2b(content, digest_size=16).hexdigest()


def intact(path: Path, expected: str | None) -> bytes | None:
    """What a file holds, if it is what was written.

    Args:
        path: of the file.
        expected: its digest, as of `digest`; None where none is known.

    Returns:
        Its bytes; None where they have another digest, or there is no regular file.
    """
    content = path.read_bytes() if path.is_file() else b""
    return content if digest(content) == expected else None


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
    path = folder / SALT
    try:
        salt = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        salt = b""
    if len(salt) != BYTES:
        salt = new_salt()
        write_whole(path, f"{salt.hex()}\n".encode("ascii"), OWNERS)
    return salt


def portable_path(path: Path, folder: Path) -> str:
    """Name a file from a folder: relative where they share more than a root, else from the home folder, else whole.

    Args:
        path: absolute.
        folder: of the file that is to name it.

    Returns:
        With "/" between its parts. "~" stands for the home folder of whoever reads it.

    Example:
        >>> portable_path(Path("/data/a/records.csv"), Path("/data/a/runs/one"))
        '../../records.csv'
        >>> portable_path(Path("/data/records.csv"), Path("/tmp/one"))
        '/data/records.csv'
    """
    path, folder, home = (Path(os.path.abspath(p)) for p in (path, folder, Path.home()))
    shared = Path(os.path.commonpath([path, folder]))
    inside = path.is_relative_to(home) and home != Path(home.anchor)
    # From above a home folder its name would be in the path.
    if shared.is_relative_to(home) if inside else shared != Path(shared.anchor):
        return Path(os.path.relpath(path, folder)).as_posix()
    return f"~/{path.relative_to(home).as_posix()}" if inside else path.as_posix()


def require_locks(option: str) -> None:
    """Refuse run folders where two processes could write one. option: begins the refusal.

    Raises:
        InputError: this system has no locks.
    """
    if not HAS_LOCKS:
        raise InputError(
            f"{option}: run folders need file locks, which this system does not have. Fix: use Linux, macOS or WSL, or "
            "run in Python without a folder."
        )


def lock_file(file: IO[bytes] | int) -> None:
    """Lock an open file until it is closed.

    Raises:
        BlockingIOError: another process holds it.
        OSError: its file system has no locks.
    """
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
