"""Run folders in an object store, such as s3://bucket/name, by fsspec.

What may have been released is on record before it is, and a store does not promise that a write is there when it
returns, or that two drivers do not write one object. So a run keeps its journal on this machine, in `runs/SCHEME/…`
below the working directory, and goes on from there; its finished files are copied to the store, `result.json` last.
Until then the store holds a note of where the journal is: a run that is lost with its machine is not begun again
unseen, which would be a second release. Un-noised values are their owner's alone, and stay here.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.errors import InputError, option_error
from decentral_dp.files.regular import is_url

# The last file that is copied: who finds it finds the others.
_LAST_FILE = "result.json"
# Says where the journal of a run is that is not complete.
_NOTE = "under_way.json"
# Begins the names of values in state.npz that everybody may see.
_PUBLIC_PREFIXES = ("released_", "published_")


def is_remote(place: object) -> bool:
    """Whether a place is a URL, and not a path of this machine.

    Args:
        place: a URL or a path; anything else is no URL.

    Example:
        >>> is_remote("s3://bucket/one"), is_remote("runs/one")
        (True, False)
    """
    return isinstance(place, str) and is_url(place)


def journal_folder(place: str | Path) -> Path:
    """The folder of this machine where a run of a URL keeps its journal; a path is its own.

    Args:
        place: "SCHEME://BUCKET/NAME", or a path.

    Returns:
        runs/SCHEME/BUCKET/NAME, below the working directory.

    Raises:
        InputError: the URL names no folder.

    Example:
        >>> journal_folder("s3://bucket/rings/one").as_posix(), journal_folder("runs/one").as_posix()
        ('runs/s3/bucket/rings/one', 'runs/one')
    """
    if not is_remote(place):
        return Path(place)
    scheme, _, rest = str(place).partition("://")
    parts = [part for part in rest.split("/") if part]
    if not parts or not scheme.isalnum() or any(part in (".", "..") for part in parts):
        raise option_error("out", f": {place} names no folder of a store. Give one such as s3://bucket/name.")
    return Path("runs", scheme, *parts)


@contextlib.contextmanager
def run_folder(url: str) -> Iterator[Path]:
    """The folder of this machine for a run whose files are copied to `url` at the end of the block.

    Args:
        url: of a place in a store where there is nothing yet.

    Yields:
        The folder, which may not exist.

    Raises:
        InputError: there is something at the URL, or it cannot be reached.
        OSError: a file could not be written there; the run is complete, and in its folder.
    """
    folder, (system, far) = journal_folder(url), _open_store(url)
    note = f"{far}/{_NOTE}"
    with _refusals_of_store(url):
        if system.exists(note):
            where = json.loads(system.cat_file(note)).get("journal")
            raise option_error(
                "out",
                f": a run was begun for {url} whose journal is {where}, and what it released is on record there. "
                f'"decentral-dp resume {url}" goes on, in the same directory of that machine.',
            )
        if system.exists(far) and (system.isfile(far) or system.find(far)):
            raise option_error("out", f": {url} exists already, and nothing is written over. Give a new place.")
        system.makedirs(far, exist_ok=True)
        # Of two that begin at once one is refused, by stores that put on a condition.
        where = f"{socket.gethostname()}:{folder.absolute()}"
        system.pipe_file(note, json.dumps({"journal": where}).encode(), mode="create")
    try:
        yield folder
    except BaseException:
        if not folder.exists():
            # Nothing was released.
            system.rm_file(note)
        raise
    upload(folder, url)


def upload(folder: Path, to: str | Path) -> None:
    """Copy the files of a complete run to a store, `result.json` last; un-noised values are left out.

    Args:
        folder: of the run, on this machine.
        to: the URL; nothing is copied to a path.

    Raises:
        InputError: no package is installed that reads such a URL, or fsspec knows no such store.
        OSError: a file could not be written there.
    """
    if not is_remote(to):
        return
    url = str(to)
    system, far = _open_store(url)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with tempfile.TemporaryDirectory() as place:
        for path in sorted(files, key=lambda path: path.name == _LAST_FILE):
            name = path.relative_to(folder).as_posix()
            try:
                system.makedirs(f"{far}/{name}".rpartition("/")[0], exist_ok=True)
                system.put_file(str(_public_copy(path, Path(place))), f"{far}/{name}")
            except Exception as error:
                raise OSError(
                    f"{url}/{name} could not be written ({error}). The run is complete and in {folder}; the same "
                    "command with --or-resume copies it."
                ) from error
    if system.exists(f"{far}/{_NOTE}"):
        system.rm_file(f"{far}/{_NOTE}")


def local_folder(place: str) -> Path:
    """The folder of a run; from a store it is copied to where it belongs on this machine, unless it is there.

    Args:
        place: a URL or a path.

    Returns:
        Of a URL the folder that `local` names, whole or not there at all; of a path the path itself.

    Raises:
        InputError: there is no run at the URL, or it cannot be read.
    """
    folder = journal_folder(place)
    if folder.is_dir() or not is_remote(place):
        return folder
    system, far = _open_store(place)
    with _refusals_of_store(place):
        names = [name.removeprefix(far).lstrip("/") for name in system.find(far)]
        if _LAST_FILE not in names or any(".." in Path(name).parts for name in names):
            raise InputError(f"{place}: no complete run is there. Give the URL that a run was written to.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
            for name in names:
                to = Path(beside, "run", name)
                to.parent.mkdir(parents=True, exist_ok=True)
                system.get_file(f"{far}/{name}", str(to))
            Path(beside, "run").rename(folder)
    return folder


@contextlib.contextmanager
def _refusals_of_store(url: str) -> Iterator[None]:
    """Turn the errors of a store into a sentence; every store has its own."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{url}: it cannot be reached ({error}). Mend that, or give a folder of this machine."
        ) from error


def _open_store(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        system, far = importlib.import_module("fsspec").core.url_to_fs(url)
    except ImportError as error:
        raise InputError(
            f'{url}: a package is not installed ({error}). pip install "decentral_dp[remote]" brings fsspec; s3fs, '
            "gcsfs and others bring its stores. Or give a folder of this machine."
        ) from None
    except ValueError as error:
        raise InputError(f"{url}: fsspec knows no such store ({error}). Give another place.") from None
    return system, str(far).rstrip("/")


def _public_copy(path: Path, place: Path) -> Path:
    """The file itself; of state.npz a copy with what everybody may see."""
    if path.name != "state.npz":
        return path
    with np.load(path) as arrays:
        public = {name: arrays[name] for name in arrays.files if name.startswith(_PUBLIC_PREFIXES)}
    np.savez(place / path.name, **public)
    return place / path.name
