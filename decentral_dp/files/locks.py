"""Locks of open files against other processes, on systems that have `fcntl`: Linux and macOS."""

from __future__ import annotations

from typing import IO

from decentral_dp.errors import InputError

try:
    import fcntl
except ImportError:  # Windows has none.
    HAS_LOCKS = False
else:
    HAS_LOCKS = True


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
