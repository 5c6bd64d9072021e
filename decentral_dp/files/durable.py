"""Durable files: atomic writes, digests, salts, locks, and portable paths.

A salt is a random key for the digests of private files. It prevents an adversary from testing guesses of the content
against the digest.
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
except ImportError:  # Windows does not have it.
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

# Permissions of noiseless values, salts and their folders, only for the owner.
OWNERS, OWNERS_FOLDER = 0o600, 0o700
# Name of the salt file.
SALT = "salt"
BYTES = 32


def write_synced(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file atomically and sync it, so that either the old or the new file survives a power failure."""
    write_whole(path, content, mode, is_synced=True)


def write_whole(path: Path, content: bytes, mode: int = 0o666, is_synced: bool = False) -> None:
    """Write a file atomically.

    An interrupt leaves the old or the new file, and possibly `.NAME.part` in the same folder. A link at this path is
    replaced, not followed.
    """
    partial_file = path.with_name(f".{path.name}.part")
    # An old partial file would keep its mode.
    partial_file.unlink(missing_ok=True)
    with open(os.open(partial_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        if is_synced:
            file.flush()
            os.fsync(file.fileno())
    partial_file.replace(path)
    if not is_synced:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def digest(content: bytes) -> str:
    """Return the BLAKE2b digest of some bytes, as 32 hexadecimal digits."""
    return blake2b(content, digest_size=16).hexdigest()


def intact(path: Path, expected: str | None) -> bytes | None:
    """Return the content of a file if it has the expected digest.

    Args:
        path: path of the file.
        expected: digest as returned by `digest`, or None.

    Returns:
        The content, or None if the digest differs or there is no regular file.
    """
    content = path.read_bytes() if path.is_file() else b""
    return content if digest(content) == expected else None


def new_salt() -> bytes:
    """Draw a new salt from the operating system's random number generator."""
    return secrets.token_bytes(BYTES)


def salt_in(folder: Path) -> bytes:
    """Return the salt of a folder, or draw one if it has none. Only the owner may read the salt file.

    Args:
        folder: existing folder, used by one process.

    Returns:
        The salt, 32 bytes.
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
    """Return a path relative to a folder or to the home folder if possible, and otherwise the absolute path.

    Args:
        path: absolute path.
        folder: folder of the file that will contain the result.

    Returns:
        The path with "/" as separator. "~" is the reader's home folder.

    Example:
        >>> portable_path(Path("/data/a/records.csv"), Path("/data/a/runs/one"))
        '../../records.csv'
        >>> portable_path(Path("/data/records.csv"), Path("/tmp/one"))
        '/data/records.csv'
    """
    path, folder, home = (Path(os.path.abspath(p)) for p in (path, folder, Path.home()))
    parent = Path(os.path.commonpath([path, folder]))
    is_in_home = path.is_relative_to(home) and home != Path(home.anchor)
    # A path relative to a parent of the home folder would contain the name of the home folder.
    if parent.is_relative_to(home) if is_in_home else parent != Path(parent.anchor):
        return Path(os.path.relpath(path, folder)).as_posix()
    return f"~/{path.relative_to(home).as_posix()}" if is_in_home else path.as_posix()


def require_locks(option: str, files: str = "run folders") -> None:
    """Raise InputError if this system has no file locks.

    Args:
        option: beginning of the error message.
        files: files that need the locks.
    """
    if not HAS_LOCKS:
        raise InputError(
            f"{option}: {files} need file locks, which this system does not have. Fix: use Linux, macOS or WSL, or run "
            "in Python without a folder or file."
        )


def lock_file(file: IO[bytes] | int) -> None:
    """Lock an open file until it is closed.

    Raises:
        BlockingIOError: another process has the lock.
        OSError: the file system has no locks.
    """
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
