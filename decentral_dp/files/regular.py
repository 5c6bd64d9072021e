"""Only regular files are read: a pipe waits for its writer for ever, and a device may have no end.

How large a file may be, and an archive once it is unpacked, is public and the same for all: `MOST_BYTES`, or what the
environment variable DECENTRAL_DP_MOST_BYTES says. Arrays of an NPZ archive are read only where what they unpack to is
stated beforehand, and not too much.
"""

from __future__ import annotations

import math
import os
import re
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from numpy.lib import format as npy
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


@contextmanager
def refuse_unreadable(subject: str) -> Iterator[None]:
    """Say of a file that may not be read that it may not: it is whole, and nothing has to be made again.

    Args:
        subject: begins a refusal.

    Raises:
        InputError: there is no permission.
    """
    try:
        yield
    except PermissionError as error:
        path = quoted_path(error.filename)
        raise InputError(
            f"{subject}: there is no permission to read and write {path}; give it, for example by "
            f"chmod u+rwX {path} as its owner, and then the same again."
        ) from error


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


_BYTES_OF_NUMBER = 8
# What a damaged or hostile archive makes zipfile and numpy raise, beside OSError. They say ValueError for arrays of
# Python objects, too, which only unpickling could read, and RuntimeError for an archive with a password.
DAMAGED = (
    ValueError,
    EOFError,
    KeyError,
    TypeError,
    SyntaxError,
    MemoryError,
    OverflowError,
    RecursionError,
    RuntimeError,
    AttributeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


class NoArchiveError(Exception):
    """A file that is a single array."""


def names_in(path: Path, subject: str) -> list[str]:
    """The names of the arrays. Raises as `read_arrays` does."""
    with regular(path, subject).open("rb") as file:
        return list(_members(file))


def read_arrays(path: Path, subject: str, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays of an archive, by name, of whatever shape they have; nothing is unpickled.

    Args:
        path: of the archive.
        subject: begins a refusal.
        names: names of arrays that it has.

    Raises:
        InputError: it would unpack to too much, or is no regular file.
        NoArchiveError: it is a single array.
        OSError: it cannot be read.
        *DAMAGED: it is damaged, or no archive.
    """
    with regular(path, subject).open("rb") as file:
        members = _members(file)
        with zipfile.ZipFile(file) as archive:
            chosen = [(name, members[name], _header(archive, members[name])) for name in names]
            # Numbers become float64, whatever their type in the file.
            taken = (math.prod(shape) * max(_BYTES_OF_NUMBER, dtype.itemsize) for _, _, (shape, dtype) in chosen)
            refuse_above(sum(taken), f"{subject} unpacks to")
            return {name: _member(archive, info) for name, info, _ in chosen}


def _members(file: IO[bytes]) -> dict[str, zipfile.ZipInfo]:
    start = file.read(len(npy.MAGIC_PREFIX))
    file.seek(0)
    if start == npy.MAGIC_PREFIX:
        raise NoArchiveError
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
    file.seek(0)
    return {info.filename.removesuffix(".npy"): info for info in infos}


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], Any]:
    with archive.open(info) as member:
        return _read_header(member, info.file_size, info.filename)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as member:
        array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
    return array


def read_array(path: Path, subject: str) -> NDArray[Any]:
    """Read the single array of a `.npy` file; nothing is unpickled. Raises as `read_arrays` does."""
    with regular(path, subject).open("rb") as file:
        _read_header(file, path.stat().st_size, path.name)
        file.seek(0)
        array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
        if file.read(1):
            raise ValueError(f"{path.name} has more than one array")
    return array


def _read_header(file: IO[bytes], size: int, name: str) -> tuple[tuple[int, ...], Any]:
    """The shape and type of an array. Raises ValueError where they do not fit into the file."""
    # numpy makes room for what the header states before it reads a number.
    version = npy.read_magic(file)
    shape, _, dtype = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version](file)
    if math.prod(shape) * dtype.itemsize > size or min(shape, default=0) < 0:
        raise ValueError(f"the header of {name} states more numbers than it holds")
    return shape, dtype


def is_url(place: str) -> bool:
    """Say whether a place is a URL instead of a path.

    Example:
        >>> is_url("https://example.org/a.csv"), is_url("C:/data.csv")
        (True, False)
    """
    # A drive such as C: has one letter.
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://|file:", place, re.IGNORECASE) is not None
