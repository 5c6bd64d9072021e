"""Only regular files are read: a pipe waits for its writer for ever, and a device may have no end.

The largest size of a file, and of an archive once it is unpacked, is public and the same for all: `MOST_BYTES`, or the
value of the environment variable DECENTRAL_DP_MOST_BYTES.
"""

from __future__ import annotations

import os
import re
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.errors import InputError, quoted, quoted_path

MOST_BYTES = 2**31
RAISED_BY = "DECENTRAL_DP_MOST_BYTES"
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


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


def regular(path: Path, subject: str) -> Path:
    """The path, unless it is of something that is never read. What is missing or a folder is left to the opener.

    Args:
        path: a file, or a link to one.
        subject: begins a refusal, for example "problem.data".

    Raises:
        InputError: it is a pipe, a device or a socket, or the file is too large.

    Example:
        >>> regular(Path("/dev/zero"), "problem.data")
        Traceback (most recent call last):
            ...
        decentral_dp.errors.InputError: problem.data: "/dev/zero" is a device; give a regular file.
    """
    try:
        status = path.stat()
    except (OSError, ValueError):
        return path
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is not None:
        raise InputError(f"{subject}: {quoted_path(path)} is {kind}; give a regular file.")
    refuse_above(status.st_size, f"{subject}: {quoted_path(path)} has", stat.S_ISREG(status.st_mode))
    return path


def own(path: Path, folder: Path, subject: str) -> Path:
    """The path of a folder's own file, as `regular`.

    Args:
        path: of a file in the folder, which need not exist.
        folder: that whoever gave it has made, and perhaps links in it.
        subject: begins a refusal.

    Raises:
        InputError: a link leads out of the folder; or as of `regular`.

    Example:
        >>> own(Path("a/../b.txt"), Path("a"), "report")
        Traceback (most recent call last):
            ...
        decentral_dp.errors.InputError: report: "a/../b.txt" leads out of its folder. Fix: put the file itself there.
    """
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{subject}: {quoted_path(path)} leads out of its folder. Fix: put the file itself there.")
    return regular(path, subject)


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


# What a damaged or hostile archive makes zipfile and numpy raise, beside OSError. They raise ValueError for arrays of
# Python objects, which only unpickling could read, and RuntimeError for an archive with a password.
DAMAGED = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    EOFError,
    SyntaxError,
    OverflowError,
    MemoryError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def names_in(path: Path, subject: str) -> list[str]:
    """Return the names of the arrays. Raises as `read_arrays` does."""
    with _archive(path, subject) as archive:
        return list(archive.files)


def read_arrays(path: Path, subject: str, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays of an archive, by name, of any shape; nothing is unpickled.

    Args:
        path: of the archive.
        subject: begins a refusal.
        names: names of arrays that it has.

    Raises:
        InputError: it would unpack to too much, or is no regular file.
        OSError: it cannot be read.
        *DAMAGED: it is damaged, or no archive.
    """
    with _archive(path, subject) as archive:
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.zip.infolist()}
        refuse_above(sum(sizes[name] for name in names), f"{subject} unpacks to")
        arrays = {name: archive[name] for name in names}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("a file of the archive is no array")
    return arrays


@contextmanager
def _archive(path: Path, subject: str) -> Iterator[Any]:
    with regular(path, subject).open("rb") as file:
        archive: Any = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError(f"{path.name} is a single array")
        yield archive


def read_array(path: Path, subject: str) -> NDArray[Any]:
    """Read the single array of a `.npy` file; nothing is unpickled. Raises as `read_arrays` does."""
    with regular(path, subject).open("rb") as file:
        array: Any = np.load(file, allow_pickle=False)
        if not isinstance(array, np.ndarray) or file.read(1):
            raise ValueError(f"{path.name} is not a file of one array")
    return array


def is_url(place: str) -> bool:
    """Say whether a place is a URL instead of a path.

    Example:
        >>> is_url("https://example.org/a.csv"), is_url("C:/data.csv")
        (True, False)
    """
    # A drive such as C: has one letter.
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://|file:", place, re.IGNORECASE) is not None
