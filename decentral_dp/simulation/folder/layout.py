"""Run folders: the inputs that make a run repeatable elsewhere, and the upload of a finished folder by fsspec.

    code/…              Python files that the scenario names
    inputs/…            public ranges, and the graph's file

`scenario.toml` names them from the folder. Records stay where they are, and so does code that reads files beside it:
these are named from the folder as well, or by a path. The noise of a seeded run does not change: it is keyed by the
content of files.

The URL of an upload is given on the command line, and never by a scenario: no credential follows a name in a file.
Noiseless values stay here: a copy of `state.npz` without them is uploaded.
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
import tomli_w

from decentral_dp.config.components import Components
from decentral_dp.config.scenario_components import place_of_shards
from decentral_dp.config.schema import set_file
from decentral_dp.errors import InputError, option_error
from decentral_dp.files.durable import portable_path
from decentral_dp.files.regular import is_url, own, regular
from decentral_dp.privacy.fingerprint import imports_of_folder
from decentral_dp.simulation.result import FILES, RESULT, read_result, seal, sha256_of_file, text_of
from decentral_dp.simulation.summary import title_of
from decentral_dp.topology import Topology

# What TensorBoard reads, in the folder of the run.
TENSORBOARD = "tensorboard"


@contextlib.contextmanager
def new_folder(out: Path | None, name: str) -> Iterator[Path]:
    """Where a run goes: `out`, or a new folder runs/NAME, runs/NAME-2, …, which no other run gets.

    What stays empty is removed.
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
    """Refuse before the run what could not be written after it; leaves nothing behind."""
    problem = ""
    try:
        if is_url(str(folder).replace(":/", "://", 1)):
            problem = f"got the URL {folder}, expected a folder of this machine. Fix: give --upload the URL."
        elif os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
            problem = f"{folder} exists already, and nothing is written over. Fix: give a new or an empty folder."
        else:
            above = next(p for p in folder.absolute().parents if p.exists())
            Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=above)).rmdir()
    except OSError as error:
        problem = f"{folder} cannot be written ({error.strerror}). Fix: give another folder."
    if problem:
        raise option_error("out", f": {problem}")


def require_new(option: str, file: Path) -> None:
    """Refuse, before anything is run, a file that is there or has no folder to go to. option: begins the refusal."""
    problem = "" if file.parent.is_dir() else f"there is no folder {file.parent}"
    if os.path.lexists(file):
        problem = f"{file} exists already, and nothing is written over"
    if problem:
        raise InputError(f"{option}: {problem}. Fix: give another file.")


def resolved_toml(c: Components, topology: Topology | None = None, folder: Path | None = None) -> str:
    """The scenario with every default filled in, and the seed (never a secret root).

    Args:
        c: what the scenario names.
        topology: its graph.
        folder: of the run, which has the copies that the text names; without one paths are whole.
    """
    scenario = c.scenario
    content = scenario.model_dump(exclude_none=True)
    content.pop("objects")
    if objects := c.objects:
        content["objects"] = objects
    if "mechanism" in objects:
        # Its name is in no registry, and would be refused as a misspelled one.
        del content["privacy"]["mechanism"]
    elif c.algorithm.trusts_coordinator and "mechanism" not in scenario.privacy.model_fields_set:
        # A coordinator's algorithm has its own, and refuses any other.
        del content["privacy"]["mechanism"]
    name_inputs(content, c, folder)
    if topology is not None and folder is not None:
        # Whoever runs this again overrides nothing.
        content["title"] = title_of(scenario)
    return tomli_w.dumps(content)


CODE, INPUTS = "code", "inputs"


def name_inputs(content: dict[str, Any], c: Components, folder: Path | None) -> None:
    """Name every file of a scenario as its run folder does.

    Args:
        content: of the scenario, changed in place.
        c: what it names.
        folder: of the run; without one by whole paths.
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
    """Copy the files that a run folder holds."""
    for path, name in _copies(c, folder).items():
        target = folder / name
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)


def inputs_in(folder: Path) -> list[str]:
    """List the names of the files that `copy_inputs` has put into a folder."""
    files = [path for name in (CODE, INPUTS) for path in (folder / name).rglob("*") if path.is_file()]
    return sorted(path.relative_to(folder).as_posix() for path in files)


def remove_inputs(folder: Path) -> None:
    """Remove the files that `copy_inputs` has put into a folder."""
    for name in (CODE, INPUTS):
        shutil.rmtree(folder / name, ignore_errors=True)


def _copies(c: Components, folder: Path) -> dict[Path, str]:
    """Return the files that have a copy in the run folder: resolved path → name there."""
    copies: dict[Path, str] = {}
    home = folder.resolve()
    # Modules first, which keep their names.
    for place, named in (*c.scenario.code_files().items(), *c.files.items()):
        path = named.resolve()
        if path in copies:
            continue
        if path.is_relative_to(home):
            copies[path] = path.relative_to(home).as_posix()
        elif path.suffix.lower() == ".py":
            copies |= _code_copies(path, copies)
        elif place == ("privacy", "correlation", "in_time") or place[0] == "topology":
            name = f"{INPUTS}/{path.name}"
            copies[path] = f"{INPUTS}/{len(copies)}-{path.name}" if name in copies.values() else name
    return copies


def _code_copies(path: Path, copies: Mapping[Path, str]) -> dict[Path, str]:
    """Return the names of a Python file and of those of its folder that it imports; none if they are not copied.

    They stay where they are if one of them reads `__file__`, or another file of the run folder has its name.
    """
    names = {other: f"{CODE}/{other.name}" for other in (*imports_of_folder(path), path)}
    owners = {name: other for other, name in copies.items()}
    for other, name in names.items():
        is_taken = owners.get(name, other) != other or copies.get(other, name) != name
        if is_taken or b"__file__" in regular(other, "scenario").read_bytes():
            return {}
    return names


_STATE = "state.npz"
# Begins the names of values in it that everybody may see.
_PUBLIC_PREFIXES = ("released_", "published_")


def open_store(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and a path in it where there is nothing yet.

    Raises:
        InputError: fsspec or the store's package is missing, it cannot be reached, or something is there.
    """
    problem, system, path = "", None, ""
    try:
        system, path = importlib.import_module("fsspec").core.url_to_fs(url)
        if system.find(path):
            problem = f"{url} is not empty, and nothing is written over. Fix: give a new place."
    except ImportError as error:
        problem = f'{error}. Fix: pip install "decentral_dp[remote]" and the store\'s package.'
    except Exception as error:  # noqa: BLE001 # every store has errors of its own
        problem = f"{url} cannot be reached ({error}). Fix: give another URL."
    if problem:
        raise InputError(f"--upload: {problem}")
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
