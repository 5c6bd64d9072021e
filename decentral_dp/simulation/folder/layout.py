"""Run folders: where a run goes, and what is written of a finished one."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tomli_w

from decentral_dp.bounded import Array
from decentral_dp.config.components import Components
from decentral_dp.errors import InputError
from decentral_dp.files.durable import OWNERS
from decentral_dp.files.package import versions
from decentral_dp.formatting import agent_names
from decentral_dp.simulation.folder import releases
from decentral_dp.simulation.folder.inputs import name_graph, name_inputs
from decentral_dp.simulation.plan import title_here
from decentral_dp.simulation.result import IN_PROGRESS
from decentral_dp.simulation.run import Run
from decentral_dp.topology import Topology

# An array is compressed where so many of its numbers shrink to less than this part.
_SAMPLED, _WORTH = 8192, 0.9


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
    folder = next(made for k in itertools.count(1) if (made := _made(base / (name if k == 1 else f"{name}-{k}"))))
    try:
        yield folder
    finally:
        for empty in (folder, base):
            with contextlib.suppress(OSError):
                empty.rmdir()


def _made(folder: Path) -> Path | None:
    try:
        folder.mkdir()
    except FileExistsError:
        return None
    return folder


def check_writable(folder: Path) -> None:
    """Refuse before the run what could not be written after it; leaves nothing behind."""
    try:
        if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"--out: {folder} exists already, and nothing is written over. Give a new or an empty folder."
            )
        above = next(p for p in folder.absolute().parents if p.exists())
        Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=above)).rmdir()
    except OSError as error:
        raise InputError(f"--out: {folder} cannot be written ({error.strerror}). Give another folder.") from None


def write_contents(done: Run, folder: Path, parts: releases.Digests) -> None:
    """Write the files of a finished run: all of them beside their places first, result.json last, which says so.

    What is small and dear comes first, so that a full disk takes what can be computed again. parts: of what it
    released, where that is kept.
    """
    # Where it is removed with the rest if the run is killed here.
    partial = Path(tempfile.mkdtemp(prefix="finished-", dir=folder / IN_PROGRESS))
    try:
        (partial / "result.json").write_text(done.result.to_json(), encoding="utf-8")
        text = resolved_toml(done.simulation().components, done.simulation().topology, folder)
        (partial / "scenario.toml").write_text(text, encoding="utf-8")
        arrays = {**done.state}
        arrays |= {f"released_{c}": v for c, v in done.released.items()}
        arrays |= {f"published_{c}": v for c, v in done.published.items()}
        # Un-noised values are their owner's alone.
        _write_arrays(partial / "state.npz", arrays, OWNERS if done.state else 0o666)
        done.metrics.to_parquet(partial / "metrics.parquet", index=False)
        done.records.to_parquet(partial / "ledger.parquet", names=agent_names(done.simulation().topology.labels))
        names = ["scenario.toml", "state.npz", "metrics.parquet", "ledger.parquet"]
        if done.scenario.run.keep_releases:
            releases.join(folder / IN_PROGRESS, parts, partial / releases.NAME)
            names.append(releases.NAME)
        for name in [*names, "result.json"]:
            (partial / name).replace(folder / name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_arrays(path: Path, arrays: Mapping[str, Array], mode: int) -> None:
    """Write an .npz, which `numpy.load` reads; each array is compressed only where that is worth its time.

    The state is noise in its last bits: to make it 4 % smaller took two fifths of the run of ten thousand agents.
    """
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(opened, "wb") as whole, zipfile.ZipFile(whole, "w", compresslevel=1) as archive:
        for name, values in arrays.items():
            middle = values.reshape(-1)[values.size // 2 :][:_SAMPLED].tobytes()
            smaller = len(zlib.compress(middle, 1)) < _WORTH * len(middle)
            archive.compression = zipfile.ZIP_DEFLATED if smaller else zipfile.ZIP_STORED
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, values, allow_pickle=False)


def resolved_toml(c: Components, topology: Topology | None = None, folder: Path | None = None) -> str:
    """The scenario with every default filled in, the versions and the seed (never a secret root).

    Args:
        c: what the scenario names.
        topology: its graph.
        folder: of the run, which has the copies and the graph that the text names; without one paths are whole.
    """
    scenario = c.scenario
    content = scenario.model_dump(exclude_none=True)
    content["versions"] = versions()
    content.pop("objects")
    if objects := c.objects:
        content["objects"] = objects
    if "mechanism" in objects:
        # Its name is in no registry, and would be refused as a misspelled one.
        del content["privacy"]["mechanism"]
    elif c.rules.own_mechanism and "mechanism" not in scenario.privacy.model_fields_set:
        # A coordinator's algorithm has its own, and refuses any other.
        del content["privacy"]["mechanism"]
    name_inputs(content, c, folder)
    if topology is not None and folder is not None:
        # Whoever runs this again overrides nothing.
        content["title"] = title_here(scenario, topology, not c.rules.neighbours)
        name_graph(content, c, topology, folder)
    return tomli_w.dumps(content)
