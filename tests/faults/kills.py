"""Runs that are killed at random moments, again and again until they are complete."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.privacy.releasers import ScheduledReleaser
from decentral_dp.reporting import page
from decentral_dp.simulation.folder import journal as run_in_progress
from decentral_dp.simulation.result import is_complete
from tests.conftest import BASE

# The small scenario that many tests share, longer and with steps that stay small.
SCENARIO: dict[str, Any] = {
    **BASE,
    "algorithm": {
        **BASE["algorithm"],
        "rounds": 120,
        "x": {"scale": 0.02},
        "y": {"scale": 0.1},
        "z": {"scale": 0.05},
    },
    "privacy": {**BASE["privacy"], "epsilon": 40.0},
    "run": {"evaluate_every": 10},
}


class Tally(NamedTuple):
    """The numbers of injected faults and of complete runs, and the errors of these runs."""

    faults: int
    runs: int
    wrong: list[str]


def kill_local(times: int, seed: int, place: Path) -> Tally:
    """Kill the process of a local run at random moments.

    Every release of every process is logged next to the run, where two draws of one release would be found.

    Args:
        times: kills in all.
        seed: of the moments.
        place: an empty folder.
    """
    draw, kills, wrong = random.Random(seed), 0, list[str]()
    started = time.monotonic()
    _in_child(place / "whole", place / "whole.log", None)
    length = time.monotonic() - started
    number = 0
    while kills < times:
        folder, log = place / f"run-{number}", place / f"run-{number}.log"
        number += 1
        while True:
            if not _in_child(folder, log, draw.uniform(0.0, length) if kills < times else None):
                kills += 1
                continue
            break
        wrong += [f"run {number - 1}: {difference}" for difference in _differences(folder, log, place / "whole")]
    return Tally(kills, number, wrong)


def _in_child(folder: Path, log: Path, kill_after: float | None) -> bool:
    """Begin or resume a run in a child process, and return whether it was completed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _watched(folder, log)
            code = 0
        except Exception:  # noqa: BLE001 # any error is printed, and the process ends
            traceback.print_exc()
        finally:
            os._exit(code)
    if kill_after is not None:
        time.sleep(kill_after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"the run in {folder} failed by itself")
    return os.WIFEXITED(status)


def _watched(folder: Path, log: Path) -> None:
    run_in_progress._INTERVAL, run_in_progress._SHARE, run_in_progress._LEASE = 0.02, 1e9, 0.02
    # Pages are not tested here, and take longer than the run.
    page.draw_run = lambda *_: None
    release = ScheduledReleaser.release
    out = log.open("ab", buffering=0)

    def logged(self: ScheduledReleaser, index: int, values: Any) -> Any:
        journal = (folder / "in_progress" / "journal.jsonl").read_bytes().splitlines()
        leased = max((json.loads(line).get("leased", 0) for line in journal), default=0)
        released = release(self, index, values)
        digest = hashlib.blake2b(b"".join(v.tobytes() for v in released.values()), digest_size=12).hexdigest()
        out.write(f"{index} {digest} {int(index <= leased)}\n".encode())
        return released

    ScheduledReleaser.release = logged  # type: ignore[method-assign] # in this process only
    if not folder.exists() or not any(folder.iterdir()):
        decentral_dp.run(SCENARIO, out=folder)
    elif (folder / "in_progress").is_dir():
        has_scenario = (folder / "scenario.toml").is_file()
        if has_scenario:
            with contextlib.suppress(InputError) if is_complete(folder) else contextlib.nullcontext():
                # Killed after its result was written: what is left is tidied up.
                decentral_dp.resume(folder)
        else:
            # Killed while the folder was being made: nothing was released.
            folder.rename(folder.with_name(f"{folder.name}-never-begun-{time.monotonic_ns()}"))
            decentral_dp.run(SCENARIO, out=folder)


def unequal(folder: Path, whole: Path) -> list[str]:
    """The files and arrays of a run folder that are not those of a whole run, and what is left behind."""
    differences = []
    for name in ("metrics.parquet", "ledger.parquet"):
        if not pd.read_parquet(folder / name).equals(pd.read_parquet(whole / name)):
            differences.append(f"{name} differs")
    if (whole / "releases.parquet").is_file():
        mine, theirs = ((place / "releases.parquet").read_bytes() for place in (folder, whole))
        differences += ["releases.parquet differs"] * (mine != theirs)
    with np.load(folder / "state.npz") as mine, np.load(whole / "state.npz") as theirs:
        differences += [f"{key} differs" for key in theirs.files if not np.array_equal(mine[key], theirs[key])]
    if remains := [p.name for p in folder.iterdir() if p.name.startswith(".") or p.name == "in_progress"]:
        differences.append(f"{remains} are left behind")
    return differences


def _differences(folder: Path, log: Path, whole: Path) -> list[str]:
    differences = unequal(folder, whole)
    draws = defaultdict(set)
    for line in log.read_text().splitlines():
        index, digest, recorded = line.split()
        draws[int(index)].add(digest)
        if not int(recorded):
            differences.append(f"release {index} was not on record")
    differences += [f"release {index} has {len(d)} draws" for index, d in draws.items() if len(d) > 1]
    if sorted(draws) != list(range(SCENARIO["algorithm"]["rounds"] + 1)):
        differences.append("releases are missing")
    return differences


if sys.platform == "win32":
    raise ImportError("kills are sent to processes of POSIX systems")
