"""Run folders: the inputs that make a run repeatable on another machine, and the upload of a finished folder by fsspec.

    code/…              Python files that the scenario names
    inputs/…            public ranges, and the graph's file

`scenario.toml` names them relative to the folder. Records are not copied, and neither is code that reads neighbouring
files; both are named by a path. Copies do not change the noise of a seeded run, which is keyed by the content of files.

The URL of an upload is given on the command line and never by a scenario, so that no credential is sent to a name in a
file. Noiseless values are not uploaded: the copy of `state.npz` omits them.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.config.components import Components
from decentral_dp.config.scenario_components import place_of_shards
from decentral_dp.config.schema import set_file
from decentral_dp.errors import InputError, option_error
from decentral_dp.files.durable import portable_path
from decentral_dp.files.regular import is_url, own, regular
from decentral_dp.privacy.fingerprint import imports_of_folder
from decentral_dp.simulation.result import (
    BASELINES_FOLDER,
    FILES,
    RESULT,
    SEEDS_FOLDER,
    read_result,
    seal,
    sha256_of_file,
    text_of,
)
from decentral_dp.simulation.summary import title_of
from decentral_dp.topology import Topology

# Folder of TensorBoard's files in a run folder.
TENSORBOARD = "tensorboard"


@contextlib.contextmanager
def new_folder(out: Path | None, name: str) -> Iterator[Path]:
    """Yield the folder of a run: `out`, or a new folder runs/NAME, runs/NAME-2, ….

    New folders that stay empty are removed.
    """
    if out is not None:
        yield out
        return
    base = Path("runs")
    base.mkdir(exist_ok=True)
    for k in itertools.count(1):
        folder = base / (name if k == 1 else f"{name}-{k}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            break
    try:
        yield folder
    finally:
        for empty in (folder, base):
            with contextlib.suppress(OSError):
                empty.rmdir()


def check_writable(folder: Path) -> None:
    """Check before a run that its folder can be written, without leaving a file there. Raises InputError if not."""
    problem = ""
    try:
        if is_url(str(folder).replace(":/", "://", 1)):
            problem = f"not a local folder (got the URL {folder}). Fix: pass the URL to --upload."
        elif os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
            problem = f"{folder} already exists, and files are never overwritten. Fix: use a new or empty folder."
        else:
            above = next(p for p in folder.absolute().parents if p.exists())
            Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=above)).rmdir()
    except OSError as error:
        problem = f"{folder} cannot be written ({error.strerror}). Fix: use another folder."
    if problem:
        raise option_error("out", f": {problem}")


def require_new(option: str, file: Path) -> None:
    """Check before a run that a file to be written does not exist, and that its folder does.

    Args:
        option: name of the option.
        file: file to write.

    Raises:
        InputError: the file cannot be written.
    """
    problem = "" if file.parent.is_dir() else f"there is no folder {file.parent}"
    if os.path.lexists(file):
        problem = f"{file} already exists, and files are never overwritten"
    if problem:
        raise InputError(f"{option}: {problem}. Fix: use another file.")


def resolved_toml(c: Components, topology: Topology | None = None, folder: Path | None = None) -> str:
    """Return the text of a scenario with all defaults and the seed, never with a secret noise key.

    Args:
        c: components of the scenario.
        topology: graph of the run, default None.
        folder: run folder with copies of files; None (the default) means absolute paths.
    """
    scenario = c.scenario
    content = scenario.model_dump(exclude_none=True)
    content.pop("objects")
    if objects := c.objects:
        content["objects"] = objects
    if "mechanism" in objects:
        # The name of an object is in no registry, and would be refused as misspelled.
        del content["privacy"]["mechanism"]
    elif c.algorithm.trusts_coordinator and "mechanism" not in scenario.privacy.model_fields_set:
        # A coordinator's algorithm has a fixed mechanism, and refuses the key.
        del content["privacy"]["mechanism"]
    name_inputs(content, c, folder)
    if topology is not None and folder is not None:
        # Overrides are part of the text.
        content["title"] = title_of(scenario)
    import tomli_w

    return tomli_w.dumps(content)


CODE, INPUTS = "code", "inputs"


def name_inputs(content: dict[str, Any], c: Components, folder: Path | None) -> None:
    """Name every file of a scenario relative to its run folder.

    Args:
        content: content of the scenario, changed in place.
        c: components of the scenario.
        folder: run folder; None means absolute paths.
    """
    scenario, copies = c.scenario, {} if folder is None else _copies(c, folder)

    def name(path: Path) -> str:
        return str(path) if folder is None else portable_path(path, folder)

    for place, path in c.files.items():
        set_file(content, place, copies.get(path.resolve()) or name(path))
    code = scenario.code_files().values()
    folders = [CODE if copies.get(path.resolve()) == f"{CODE}/{path.name}" else name(path.parent) for path in code]
    content.pop("code_folders", None)
    if folders:
        content["code_folders"] = list(dict.fromkeys(folders))
    if scenario.problem.manifest is not None:
        content["problem"]["data"] = name(Path(place_of_shards(scenario)))


def copy_inputs(c: Components, folder: Path) -> None:
    """Copy the files that belong in a run folder."""
    for path, name in _copies(c, folder).items():
        target = folder / name
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)


def inputs_in(folder: Path) -> list[str]:
    """List the files in a folder that `copy_inputs` has written."""
    files = [path for name in (CODE, INPUTS) for path in (folder / name).rglob("*") if path.is_file()]
    return sorted(path.relative_to(folder).as_posix() for path in files)


def _copies(c: Components, folder: Path) -> dict[Path, str]:
    """Return the files with a copy in the run folder, as resolved path → name in the folder."""
    copies: dict[Path, str] = {}
    home = folder.resolve()
    # Modules first, which keep their names.
    for place, file in (*c.scenario.code_files().items(), *c.files.items()):
        path = file.resolve()
        if path in copies:
            continue
        if path.is_relative_to(home):
            copies[path] = path.relative_to(home).as_posix()
        elif path.suffix.lower() == ".py":
            copies |= _code_copies(path, copies)
        elif place == ("privacy", "correlation", "over_rounds") or place[0] == "topology":
            name = f"{INPUTS}/{path.name}"
            copies[path] = f"{INPUTS}/{len(copies)}-{path.name}" if name in copies.values() else name
    return copies


def _code_copies(path: Path, copies: Mapping[Path, str]) -> dict[Path, str]:
    """Return the names of a Python file and of the files in its folder that it imports.

    The result is empty, and nothing is copied, if one of them reads `__file__` or a name is taken.
    """
    names = {file: f"{CODE}/{file.name}" for file in (*imports_of_folder(path), path)}
    owners = {name: file for file, name in copies.items()}
    for file, name in names.items():
        is_taken = owners.get(name, file) != file or copies.get(file, name) != name
        if is_taken or b"__file__" in regular(file, "scenario").read_bytes():
            return {}
    return names


_STATE = "state.npz"
# Prefixes of public values in it.
_PUBLIC_PREFIXES = ("released_", "published_")


def open_store(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and an empty path in it.

    Raises:
        InputError: fsspec or the store's package is missing, the store cannot be reached, or the path is not empty.
    """
    problem, system, path = "", None, ""
    try:
        system, path = importlib.import_module("fsspec").core.url_to_fs(url)
        if system.find(path):
            problem = f"{url} is not empty, and files are never overwritten. Fix: use a new URL."
    except ImportError as error:
        problem = f'{error}. Fix: run pip install "decentral_dp[remote]", and install the package of the store.'
    except Exception as error:  # noqa: BLE001 # each store has its error types
        problem = f"{url} cannot be reached ({error}). Fix: use another URL."
    if problem:
        raise InputError(f"--upload: {problem}")
    return system, str(path).rstrip("/")


def upload(folder: Path, store: tuple[Any, str]) -> None:
    """Copy a finished run folder to a store, with result.json last.

    Args:
        folder: folder of a complete run.
        store: store that `open_store` returned.

    Raises:
        OSError: a file could not be written to the store.
    """
    system, path = store
    result = read_result(folder)
    with tempfile.TemporaryDirectory() as place, np.load(folder / _STATE) as arrays:
        public, result_file = Path(place, _STATE), Path(place, RESULT)
        np.savez(public, **{name: arrays[name] for name in arrays.files if name.startswith(_PUBLIC_PREFIXES)})
        digests = {**result.table(FILES), _STATE: sha256_of_file(public)}
        result_file.write_text(text_of(seal({**result.content, FILES: digests})), encoding="utf-8")
        # Links are refused: they could upload a file of another folder.
        # Baselines have a run without noise, and noiseless states.
        beside = [folder / name for name in (BASELINES_FOLDER, SEEDS_FOLDER)]
        paths = sorted(f for f in folder.rglob("*") if f.is_file() and not any(map(f.is_relative_to, beside)))
        files = {file.relative_to(folder).as_posix(): own(file, folder, "--upload") for file in paths}
        del files[RESULT]
        # Last: an upload with a result is complete.
        for name, file in {**files, _STATE: public, RESULT: result_file}.items():
            to = f"{path}/{name}"
            try:
                system.makedirs(to.rpartition("/")[0], exist_ok=True)
                system.put_file(str(file), to)
            except Exception as error:  # each store has its error types
                raise OSError(f"{to} could not be written ({error}). The run is complete and in {folder}.") from error
