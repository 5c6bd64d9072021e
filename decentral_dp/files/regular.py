"""Only regular files are read: a pipe waits for its writer for ever, and a device may have no end.

How large a file may be, and an archive once it is unpacked, is public and the same for all: `MOST_BYTES`, or what the
environment variable DECENTRAL_DP_MOST_BYTES says.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from decentral_dp.errors import InputError, quoted, quoted_path

MOST_BYTES = 2**31
RAISED_BY = "DECENTRAL_DP_MOST_BYTES"
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def most_bytes() -> int:
    """How many bytes are read of one file at most.

    Raises:
        InputError: the environment variable is no whole number above 0.

    Example:
        >>> most_bytes() == MOST_BYTES
        True
    """
    given = os.environ.get(RAISED_BY, "")
    if not given:
        return MOST_BYTES
    if not (given.isascii() and given.isdecimal() and int(given[:19]) > 0):
        raise InputError(f"{RAISED_BY}: got {quoted(given)}, wanted a number of bytes, for example {MOST_BYTES}.")
    return int(given[:19])


def regular(path: Path, where: str) -> Path:
    """The path, unless it is of something that is never read. What is missing or a folder is left to the opener.

    Args:
        path: a file, or a link to one.
        where: begins a refusal, for example "problem.data".

    Raises:
        InputError: it is a pipe, a device or a socket, or the file is too large.

    Example:
        >>> regular(Path("/dev/zero"), "problem.data")
        Traceback (most recent call last):
            ...
        decentral_dp.errors.InputError: problem.data: "/dev/zero" is a device; give a regular file.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        return path
    kind = _KINDS.get(stat.S_IFMT(found.st_mode))
    if kind is not None:
        raise InputError(f"{where}: {quoted_path(path)} is {kind}; give a regular file.")
    refuse_above(found.st_size, f"{where}: {quoted_path(path)} has", stat.S_ISREG(found.st_mode))
    return path


@contextmanager
def permitted(where: str) -> Iterator[None]:
    """Say of a file that may not be read that it may not: it is whole, and nothing has to be made again.

    Args:
        where: begins a refusal.

    Raises:
        InputError: there is no permission.
    """
    try:
        yield
    except PermissionError as error:
        path = quoted_path(error.filename)
        raise InputError(
            f"{where}: there is no permission to read and write {path}; give it, for example by "
            f"chmod u+rwX {path} as its owner, and then the same again."
        ) from error


def is_there(path: Path) -> bool:
    """Whether there is something of this name, which may be too long for a file system."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Whether there is a regular file of this name, which may be too long for a file system."""
    return is_there(path) and path.is_file()


def stems_beside(path: Path, suffix: str) -> dict[str, str]:
    """Files of this suffix in the folder of a path: name without suffix → path; none where it cannot be listed."""
    try:
        return {p.stem: str(p) for p in sorted(path.parent.glob(f"*{suffix}")) if p.is_file()}
    except (OSError, ValueError):
        return {}


def refuse_above(size: int, begins: str, counts: bool = True) -> None:
    """Raise InputError for more bytes than are read at most. begins: the refusal, up to its verb."""
    if counts and size > most_bytes():
        raise InputError(
            f"{begins} {size} bytes, and at most {most_bytes()} are read; give a smaller file, or set "
            f"{RAISED_BY} to a larger number if this machine has the memory."
        )
