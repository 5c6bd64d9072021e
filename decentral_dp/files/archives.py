"""Arrays of an NPZ archive: read only where what they unpack to is stated beforehand, and not too much."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from decentral_dp.files.regular import refuse_above, regular

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
    zipfile.BadZipFile,
    zlib.error,
)


class NoArchiveError(Exception):
    """A file that is a single array."""


def names_in(path: Path, where: str) -> list[str]:
    """The names of the arrays. Raises as `read_arrays` does."""
    with regular(path, where).open("rb") as file:
        return list(_members(file))


def read_arrays(path: Path, where: str, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Arrays of an archive, by name; nothing is unpickled.

    Args:
        path: of the archive.
        where: begins a refusal.
        wanted: names of arrays that it has.

    Raises:
        InputError: it would unpack to too much, or is no regular file.
        NoArchiveError: it is a single array.
        OSError: it cannot be read.
        *DAMAGED: it is damaged, or no archive.
    """
    with regular(path, where).open("rb") as file:
        members = _members(file)
        chosen = [members[name] for name in wanted]
        refuse_above(sum(info.file_size for info in chosen), f"{where} unpacks to")
        with zipfile.ZipFile(file) as archive:
            return {name: _array(archive, info) for name, info in zip(wanted, chosen, strict=True)}


def _members(file: IO[bytes]) -> dict[str, zipfile.ZipInfo]:
    start = file.read(len(npy.MAGIC_PREFIX))
    file.seek(0)
    if start == npy.MAGIC_PREFIX:
        raise NoArchiveError
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
    file.seek(0)
    return {info.filename.removesuffix(".npy"): info for info in infos}


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    # numpy makes room for what the header states before it reads a number.
    with archive.open(info) as member:
        version = npy.read_magic(member)
        shape, _, dtype = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version](member)
    if math.prod(shape) * dtype.itemsize > info.file_size or min(shape, default=0) < 0:
        raise ValueError(f"the header of {info.filename} states more numbers than it holds")
    with archive.open(info) as member:
        found: NDArray[Any] = npy.read_array(member, allow_pickle=False)
    return found
