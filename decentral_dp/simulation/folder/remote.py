"""Upload of a finished run folder to an object store, such as s3://bucket/name, by fsspec.

The URL is given on the command line, and never by a scenario: no credential follows a name in a file. Un-noised values
stay here: of `state.npz` a copy without them is uploaded.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.files.regular import own
from decentral_dp.simulation.result import FILES, RESULT, read_result, seal, sha256_of_file, text_of

_STATE = "state.npz"
# Begins the names of values in it that everybody may see.
_PUBLIC_PREFIXES = ("released_", "published_")


def open_store(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and a path in it where there is nothing yet.

    Raises:
        InputError: fsspec or the store's package is missing, it cannot be reached, or something is there.
    """
    try:
        system, path = importlib.import_module("fsspec").core.url_to_fs(url)
        taken = bool(system.find(path))
    except ImportError as error:
        raise InputError(
            f'--upload: {error}. Fix: pip install "decentral_dp[remote]" and the store\'s package.'
        ) from None
    except Exception as error:  # every store has errors of its own
        raise InputError(f"--upload: {url} cannot be reached ({error}). Fix: give another URL.") from error
    if taken:
        raise InputError(f"--upload: {url} is not empty, and nothing is written over. Fix: give a new place.")
    return system, str(path).rstrip("/")


def upload(folder: Path, store: tuple[Any, str]) -> None:
    """Copy a finished run folder, result.json last.

    Args:
        folder: of a complete run.
        store: of `open_store`.

    Raises:
        OSError: a file could not be written there.
    """
    system, path = store
    result = read_result(folder)
    with tempfile.TemporaryDirectory() as place, np.load(folder / _STATE) as arrays:
        public, sealed = Path(place, _STATE), Path(place, RESULT)
        np.savez(public, **{name: arrays[name] for name in arrays.files if name.startswith(_PUBLIC_PREFIXES)})
        digests = {**result.table(FILES), _STATE: sha256_of_file(public)}
        sealed.write_text(text_of(seal({**result.content, FILES: digests})), encoding="utf-8")
        # Every one is the folder's own: a link would send a file from elsewhere.
        found = sorted(file for file in folder.rglob("*") if file.is_file())
        files = {file.relative_to(folder).as_posix(): own(file, folder, "--upload") for file in found}
        del files[RESULT]
        # Whoever finds the last one finds the others.
        for name, file in {**files, _STATE: public, RESULT: sealed}.items():
            to = f"{path}/{name}"
            try:
                system.makedirs(to.rpartition("/")[0], exist_ok=True)
                system.put_file(str(file), to)
            except Exception as error:  # every store has errors of its own
                raise OSError(f"{to} could not be written ({error}). The run is complete and in {folder}.") from error
