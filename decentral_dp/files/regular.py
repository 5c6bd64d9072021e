"""Reading of regular files only. A pipe would block until its writer ends, and a device may have no end.

The largest size of a file, and of an unpacked archive, is public: `MOST_BYTES`, or the environment variable
DECENTRAL_DP_MOST_BYTES.
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
    """Return the maximum number of bytes that may be read from one file.

    Raises:
        InputError: the environment variable is not a positive whole number.

    Example:
        >>> most_bytes() == MOST_BYTES
        True
    """
    value = os.environ.get(RAISED_BY, "")
    if not value:
        return MOST_BYTES
    if not (value.isascii() and value.isdecimal() and int(value[:19]) > 0):
        raise InputError(f"{RAISED_BY}: got {quoted(value)}, expected a number of bytes, for example {MOST_BYTES}.")
    return int(value[:19])


def regular(path: Path, subject: str) -> Path:
    """Return a path, unless it is a pipe, a device, a socket or too large. It may be a folder, or not exist.

    Args:
        path: file, or link to a file.
        subject: beginning of error messages, for example "problem.data".

    Raises:
        InputError: the file cannot be read.

    Example:
        >>> regular(Path("/dev/zero"), "problem.data")
        Traceback (most recent call last):
            ...
        decentral_dp.errors.InputError: problem.data: "/dev/zero" is a device. Fix: use a regular file.
    """
    try:
        status = path.stat()
    except (OSError, ValueError):
        return path
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is not None:
        raise InputError(f"{subject}: {quoted_path(path)} is {kind}. Fix: use a regular file.")
    refuse_above(status.st_size, f"{subject}: {quoted_path(path)} has", stat.S_ISREG(status.st_mode))
    return path


def own(path: Path, folder: Path, subject: str) -> Path:
    """Return a path inside a folder, with the checks of `regular`.

    Args:
        path: path of a file in the folder, which need not exist.
        folder: untrusted folder, which may contain links.
        subject: beginning of error messages.

    Raises:
        InputError: a link leads out of the folder, or as in `regular`.

    Example:
        >>> own(Path("a/../b.txt"), Path("a"), "report")
        Traceback (most recent call last):
            ...
        decentral_dp.errors.InputError: report: "a/../b.txt" points outside its folder. Fix: replace links by files.
    """
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{subject}: {quoted_path(path)} points outside its folder. Fix: replace links by files.")
    return regular(path, subject)


def stems_beside(path: Path, suffix: str) -> dict[str, str]:
    """Return stem → path of the files with a suffix in a path's folder, or {} if the folder cannot be listed."""
    try:
        return {p.stem: str(p) for p in sorted(path.parent.glob(f"*{suffix}")) if p.is_file()}
    except (OSError, ValueError):
        return {}


def refuse_above(size: int, begins: str, counts: bool = True) -> None:
    """Raise InputError if the bytes exceed the limit. `begins` is the beginning of the message, up to its verb."""
    if counts and size > most_bytes():
        raise InputError(
            f"{begins} {size} bytes, more than the limit of {most_bytes()}. Fix: use a smaller file, or set "
            f"{RAISED_BY} to a larger number if this machine has the memory."
        )


# Exceptions of zipfile and numpy for damaged or hostile archives, in addition to OSError: among others ValueError for
# pickled objects, and RuntimeError for archives with a password.
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
    """Return the names of the arrays of an archive. Raises the errors of `read_arrays`."""
    with _archive(path, subject) as archive:
        return list(archive.files)


def read_arrays(path: Path, subject: str, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read the named arrays of an archive. Nothing is unpickled.

    Args:
        path: path of the archive.
        subject: beginning of error messages.
        names: names of existing arrays.

    Raises:
        InputError: the unpacked arrays are too large, or the file is not regular.
        OSError: the file cannot be read.
        *DAMAGED: the file is damaged, or is not an archive.
    """
    with _archive(path, subject) as archive:
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.zip.infolist()}
        refuse_above(sum(sizes[name] for name in names), f"{subject} unpacks to")
        arrays = {name: archive[name] for name in names}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("the archive contains a file that is not an array")
    return arrays


@contextmanager
def _archive(path: Path, subject: str) -> Iterator[Any]:
    with regular(path, subject).open("rb") as file:
        # A single array has no names, and raises AttributeError.
        yield np.load(file, allow_pickle=False)


def read_array(path: Path, subject: str) -> NDArray[Any]:
    """Read the array of a `.npy` file. Nothing is unpickled. Raises the errors of `read_arrays`."""
    with regular(path, subject).open("rb") as file:
        array: Any = np.load(file, allow_pickle=False)
        if not isinstance(array, np.ndarray) or file.read(1):
            raise ValueError(f"{path.name} is not a file of one array")
    return array


def is_url(place: str) -> bool:
    """Return whether a place is a URL instead of a path.

    Example:
        >>> is_url("https://example.org/a.csv"), is_url("C:/data.csv")
        (True, False)
    """
    # A drive such as C: has one letter.
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://|file:", place, re.IGNORECASE) is not None
