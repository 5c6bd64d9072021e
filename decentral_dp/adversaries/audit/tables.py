"""Audits of many scenarios: a table, and a figure of claimed, certified and shown ε.

Which systems are audited in one table: every algorithm without noise, as its paper prints it, and certified.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from decentral_dp.adversaries.audit.audit import audit
from decentral_dp.adversaries.audit.storage import write_json
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.loading import find, load
from decentral_dp.config.schema import Scenario
from decentral_dp.engines.task_pool import check_at_hand, in_parallel
from decentral_dp.errors import InputError, Stopped
from decentral_dp.files.begun_names import TABLE
from decentral_dp.files.package import package_digest
from decentral_dp.files.regular import regular

# Rounds of each, where an algorithm takes fewer than its scenario has.
_ROUNDS = 5
GUARANTEES = ("none", "as_printed", "certified")
# The papers' gossip states its noise, not a budget: Laplace, growing so, with states boxed as in `paper_boxed`.
_GROWING = {"scale": 1.0, "decay": 0.8}
_PRINTED_GOSSIP = {
    "guarantee": "as_printed",
    "box": {"x": 0.0, "y": 1.0, "z": 1.0},
    **dict.fromkeys(("x", "y", "z"), _GROWING),
}


class System(NamedTuple):
    """A shipped scenario under a guarantee; None: its own."""

    scenario: str
    guarantee: str | None


def systems() -> list[System]:
    """Every registered algorithm's own scenario under every guarantee that there is of it."""
    found = [System(name, guarantee) for name in ALGORITHMS for guarantee in GUARANTEES]
    return [s for s in found if _exists(s)]


def _exists(system: System) -> bool:
    entry = ALGORITHMS[system.scenario]
    if system.guarantee == "as_printed":
        return entry.printed is not None
    # What adds no noise has nothing to certify.
    return system.guarantee == "none" or _own(system.scenario)["privacy"].get("guarantee", "certified") == "certified"


def scenario_of(system: System) -> Scenario:
    """The scenario of a system, of a few rounds where it has more and allows it."""
    table = _own(system.scenario)
    guarantee = system.guarantee
    if guarantee == "as_printed" and ALGORITHMS[system.scenario].setting == "gossip":
        table["privacy"] = _PRINTED_GOSSIP
    elif guarantee is not None:
        table["privacy"] = {**table["privacy"], "guarantee": guarantee}
    if guarantee == "as_printed" and table["algorithm"].get("solver") == "closed_form":
        # As printed, the dual variable ascends, and its gradient is clipped.
        table["algorithm"] = {**table["algorithm"], "solver": "ascent", "y": {"scale": 0.5}}
        table["privacy"] = {**table["privacy"], "clip": {"y": 1.0, **table["privacy"].get("clip", {})}}
    s = load(table)
    if s.algorithm.rounds <= _ROUNDS:
        return s
    try:
        return load(table, [f"algorithm.rounds={_ROUNDS}", f"run.average={min(s.run.average, _ROUNDS)}"])
    except InputError:
        return s


def _own(name: str) -> dict[str, Any]:
    with find(name).open("rb") as file:
        return tomllib.load(file)


COLUMNS: tuple[str, ...] = (
    *("scenario", "algorithm", "guarantee", "rounds", "claimed", "certified", "shown", "delta", "confidence"),
    *("method", "vantage", "runs", "null_shown", "status"),
)

Row = Mapping[str, Any]
"""Column → value as JSON has it: infinite numbers are "inf"."""


class Begun(NamedTuple):
    """What a table of audits is asked: as of `audit_table`. systems: None for every algorithm."""

    runs: int
    vantage: str
    confidence: float
    seed: int
    jobs: int
    address: str | None
    systems: Sequence[System] | None


def audit_table(
    names: Sequence[str | System] | None = None,
    runs: int = 40,
    vantage: str = "everybody",
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    out: Path | None = None,
    jobs: int = 1,
    address: str | None = None,
) -> pd.DataFrame:
    """Audit systems, each shortened to a few rounds.

    Args:
        names: systems, or names of scenarios, audited under their own guarantee; by default every algorithm without
            noise, as printed and certified.
        runs, vantage, confidence, seed: as of `audit`.
        progress: called with audits done, and audits in all.
        out: the folder that keeps every audit when it is done; one that holds some of these is gone on with.
        jobs: processes; default 1, this one.
        address: of a Ray cluster that does it instead.

    Returns:
        One row for each, with the columns COLUMNS, in the order of the names.

    Raises:
        InputError: one sentence about whatever does not fit.
        Stopped: interrupted; what is done is in `out`.
    """
    check_at_hand(address)
    listed = systems() if names is None else [n if isinstance(n, System) else System(n, None) for n in names]
    settings = [runs, vantage, confidence, seed]
    rows = {} if out is None else _kept(out, settings)
    begun = Begun(runs, vantage, confidence, seed, jobs, address, None if names is None else listed)
    if out is not None:
        _keep(out, begun, rows)
    missing = [s for s in dict.fromkeys(listed) if _key(s) not in rows]

    def told() -> None:
        if progress is not None:
            progress(len(listed) - len(missing) + done, len(listed))

    done = 0
    work = partial(_row, runs=runs, vantage=vantage, confidence=confidence, seed=seed)
    try:
        with closing(in_parallel(work, missing, str, jobs, address)) as outcomes:
            for system, row in outcomes:
                if isinstance(row, str):
                    raise InputError(f"{system.scenario}: {row}")
                rows[_key(system)] = row
                done += 1
                if out is not None:
                    _keep(out, begun, rows)
                told()
    except KeyboardInterrupt:
        if out is None or not rows:
            if out is not None:
                (out / TABLE).unlink()
            raise
        write_table(_frame([rows[_key(s)] for s in listed if _key(s) in rows]), out)
        raise Stopped(
            f"Interrupted; the audits of {len(rows)} systems are kept in {out}, and "
            f'"decentral-dp resume {out}" goes on.'
        ) from None
    return _frame([rows[_key(s)] for s in listed])


def _row(system: System, runs: int, vantage: str, confidence: float, seed: int) -> Row | str:
    """The row of a system, or a sentence about why there is none."""
    try:
        s = scenario_of(system)
        found = audit(s, runs, vantage, confidence, seed)
    except InputError as error:
        return str(error)
    content = found.to_dict()
    return {
        **{n: content[n] for n in COLUMNS if n in content},
        "scenario": system.scenario,
        "algorithm": s.algorithm.kind,
        "guarantee": s.privacy.guarantee,
        "rounds": s.algorithm.rounds,
    }


def _key(system: System) -> str:
    return f"{system.scenario} {system.guarantee or ''}".rstrip()


def can_go_on(folder: Path) -> bool:
    """Say whether a folder is new or empty, or holds a table that was begun."""
    return not os.path.lexists(folder) or (
        folder.is_dir() and (not any(folder.iterdir()) or (folder / TABLE).is_file())
    )


def _kept(folder: Path, settings: Sequence[Any]) -> dict[str, Row]:
    """What the folder holds of the table; nothing where it holds none."""
    path = folder / TABLE
    if not path.is_file():
        return {}
    try:
        content = json.loads(regular(path, "--out").read_text(encoding="utf-8"))
        rows, theirs = dict(content["rows"]), content["settings"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"--out: {path} cannot be read; give another folder.") from None
    if theirs != [*settings, package_digest()]:
        raise InputError(
            f"--out: {folder} holds audits with other settings, or by another state of this package; give another "
            "folder."
        )
    return rows


def _keep(folder: Path, begun: Begun, rows: Mapping[str, Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    settings = [begun.runs, begun.vantage, begun.confidence, begun.seed, package_digest()]
    asked = {"jobs": begun.jobs, "address": begun.address, "systems": begun.systems}
    write_json(folder / TABLE, {"settings": settings, "rows": rows, "asked": asked})


def read_table(folder: Path) -> Begun:
    """Read what a table of audits that is not complete was asked.

    Args:
        folder: of the table.

    Raises:
        InputError: it is complete, by another state of the package, or not what was written.
    """
    path = folder / TABLE
    try:
        content = json.loads(regular(path, "resume").read_text(encoding="utf-8"))
        runs, vantage, confidence, seed, package = content["settings"]
        asked, rows = content["asked"], dict(content["rows"])
        chosen = None if asked["systems"] is None else [System(*one) for one in asked["systems"]]
        begun = Begun(int(runs), vantage, confidence, int(seed), asked["jobs"], asked["address"], chosen)
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"resume: {path} is not what audits leave, or what an earlier version of decentral_dp left; audit again "
            "with another --out."
        ) from None
    if package != package_digest():
        raise InputError(
            f"resume: decentral_dp has changed since the audits in {folder} were begun, and one table would be of two "
            "versions; audit again with another --out."
        )
    listed = systems() if begun.systems is None else begun.systems
    if all(_key(system) in rows for system in listed) and _rows_of(folder / "audits.parquet") == len(listed):
        raise InputError(f"resume: the audits in {folder} are complete; give the folder of some that were interrupted.")
    return begun


def _rows_of(path: Path) -> int:
    """Of a table that was written; 0 where there is none."""
    try:
        return len(pd.read_parquet(path))
    except (OSError, ValueError):
        return 0


def _frame(rows: Sequence[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"claimed": "float64", "certified": "float64", "shown": "float64"})


def write_table(table: pd.DataFrame, folder: Path) -> list[Path]:
    """audits.parquet and audits.png."""
    # matplotlib is slow to import and only this function needs it.
    from decentral_dp.adversaries.audit.plot import write_audits

    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(folder / "audits.parquet", index=False)
    return [folder / "audits.parquet", write_audits(table, folder)]
