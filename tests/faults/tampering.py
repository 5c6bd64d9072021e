"""Run folders that somebody has changed: `report` renders them, or says one sentence."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import os
import random
import resource
import shutil
import signal
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import tomli_w

import decentral_dp
from decentral_dp.auditing.audit import plan_audit
from decentral_dp.auditing.membership import infer_membership
from decentral_dp.cli.main import invoke_report as report
from decentral_dp.errors import InputError
from decentral_dp.simulation.result import read_result, refuse_damaged

from . import damage
from .damage import ODD, TooLongError, late, places
from .kills import SCENARIO, Tally

FILES = ("scenario.toml", "result.json", "metrics.parquet", "ledger.parquet", "state.npz")
_MEMORY = 8 * 2**30


def tamper(times: int, seed: int, place: Path) -> Tally:
    """Change random files of a complete run folder, then draw its page again, attack it and plan an audit of it.

    Args:
        times: changed folders.
        seed: of which and how.
        place: an empty folder.
    """
    given = copy.deepcopy(SCENARIO)
    given["algorithm"]["rounds"] = 6
    given["run"]["evaluate_every"] = 2
    # Only then may a run be attacked.
    given["problem"]["partition"] = "iid"
    whole = place / "run"
    decentral_dp.run(given, out=whole)
    draw, rendered, refused, wrong = random.Random(seed), 0, 0, list[str]()
    for k in range(times):
        changed = place / "changed"
        shutil.copytree(whole, changed)
        name = draw.choice(FILES)
        done = _change(changed, name, draw)
        # Who does not read a file cannot be misled by it.
        commands = [which for which, (_, files) in _COMMANDS.items() if name in files]
        said = [tried(_COMMANDS[which][0], changed) for which in commands]
        rendered, refused = rendered + (said[0] == "done"), refused + (said[0] == "refused")
        for which, one in zip(commands, said, strict=True):
            if one not in ("done", "refused"):
                wrong.append(f"{k}: {name}: {done}: {which}: {one}")
        shutil.rmtree(changed)
    return Tally(times, rendered, refused, wrong)


def _change(folder: Path, name: str, draw: random.Random) -> str:
    """Change one file. Returns what was done, in words."""
    path = folder / name
    if draw.random() < 0.35:
        action = draw.choice(list(_BYTES))
        _BYTES[action](path, draw)
        return action
    return str({".toml": _keys, ".json": _keys, ".parquet": _table, ".npz": _arrays}[path.suffix](path, draw))


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _cut(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


def _flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 3, 30])):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _replace(path: Path, draw: random.Random) -> None:
    shutil.copy(path.parent / draw.choice(FILES), path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def _pipe(path: Path, draw: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _device(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _folder(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


_BYTES: dict[str, Callable[[Path, random.Random], None]] = {
    "cut short": _cut,
    "bits turned": _flip,
    "another file of the folder": _replace,
    "noise": lambda path, draw: _write(path, draw.randbytes(300)),
    "empty": lambda path, draw: _write(path, b""),
    "gone": lambda path, draw: path.unlink(),
    "a pipe": _pipe,
    "a device": _device,
    "a folder": _folder,
}


def _keys(path: Path, draw: random.Random) -> str:
    """Take out a key of a JSON or TOML file, or give it another value."""
    text = path.read_text(encoding="utf-8")
    content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    where, key = draw.choice(list(places(content)))
    if draw.random() < 0.3:
        del where[key]
        done = f"{key} gone"
    else:
        where[key] = draw.choice([*ODD, [[1.0]], {"x": None}, {"x": {"y": "z"}}])
        done = f"{key} = {str(where[key])[:60]!r}"
    with contextlib.suppress(TypeError):
        path.write_text(json.dumps(content) if path.suffix == ".json" else tomli_w.dumps(content), encoding="utf-8")
    return done


def _table(path: Path, draw: random.Random) -> str:
    """Change a column of a table, or its rows."""
    table = pd.read_parquet(path)
    column = draw.choice(list(table.columns))
    action = draw.choice(["gone", "value", "row", "rows gone", "twice", "no columns"])
    value = draw.choice([math.nan, math.inf, -math.inf, 1e300, -1e300, -1, 2**62, "text", "\x1b[2J", None, True])
    if action == "gone":
        table = table.drop(columns=column)
    elif action == "value":
        table[column] = value
    elif action == "row":
        table[column] = [value, *table[column].astype(object)[1:]]
    elif action == "rows gone":
        table = table.head(draw.choice([0, 1, len(table) // 2]))
    elif action == "twice":
        table = pd.concat([table, table])
    else:
        table = table[[]]
    with contextlib.suppress(Exception):
        table.to_parquet(path, index=False)
    return f"{column}: {action} {value}"


def _arrays(path: Path, draw: random.Random) -> str:
    """Change an array of an archive."""
    with np.load(path) as archive:
        arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
    name = draw.choice(list(arrays))
    others = {
        "text": np.array(["a", "b"]), "none": np.zeros((0, 0)), "a number": np.array(1.0), "objects": np.array([{}]),
        "infinite": np.full((4, 4), np.inf), "cubic": np.zeros((3, 3, 3)), "not a number": np.full((4, 4), np.nan),
        "huge": np.full((4, 4), 1e308),
    }  # fmt: skip
    action = draw.choice(["gone", *others])
    if action == "gone":
        del arrays[name]
    else:
        arrays[name] = others[action]
    np.savez(path, **arrays)
    return f"{name}: {action}"


def _attack(folder: Path) -> None:
    infer_membership(folder, runs=1)


def _audit(folder: Path) -> None:
    # An audit of every change would take hours: it is planned, and its numbers go where they would.
    with refuse_damaged(folder, "audit"):
        read_result(folder)
    plan_audit(folder, 20, "everybody")


# What reads a run folder, and which of its files.
_COMMANDS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "report": (report, FILES),
    "attack": (_attack, ("scenario.toml", "result.json", "state.npz")),
    "audit": (_audit, ("scenario.toml", "result.json")),
}


def tried(command: Callable[[Path], object], folder: Path) -> str:
    """ "done", "refused", or what went wrong."""
    before, room = signal.signal(signal.SIGALRM, late), resource.getrlimit(resource.RLIMIT_AS)
    # What reads a device to its end is told at once, and not by the machine.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, room[1]))
    signal.alarm(damage.LIMIT)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            warnings.catch_warnings(),
            mpl.rc_context({"savefig.dpi": 20, "svg.fonttype": "none"}),
        ):
            warnings.simplefilter("ignore")
            command(folder)
    except InputError as error:
        return "refused" if "\n" not in str(error) else f"several lines: {error}"
    except TooLongError:
        return f"still at work after {damage.LIMIT} s"
    except Exception as error:  # noqa: BLE001 # whatever it is, it is counted as wrong
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, room)
    return "done"
