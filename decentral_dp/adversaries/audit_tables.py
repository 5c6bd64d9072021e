"""Audits of many scenarios: a table, and a figure of claimed, certified and shown ε."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from decentral_dp.adversaries.audit_storage import write_json
from decentral_dp.adversaries.audited_systems import System, scenario_of, systems
from decentral_dp.adversaries.audits import audit
from decentral_dp.engines.task_pool import check_at_hand, in_parallel
from decentral_dp.errors import InputError, Stopped
from decentral_dp.files.package_digest import package_digest

COLUMNS: tuple[str, ...] = (
    *("scenario", "algorithm", "guarantee", "rounds", "claimed", "certified", "shown", "delta", "confidence"),
    *("method", "vantage", "runs", "null_shown", "status"),
)

Row = Mapping[str, Any]
"""Column → value as JSON has it: infinite numbers are "inf"."""
# Beside the table: what is done, and with which settings.
_KEPT = "audits.json"


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
                    _keep(out, settings, rows)
                told()
    except KeyboardInterrupt:
        if out is None or not rows:
            raise
        write_table(_frame([rows[_key(s)] for s in listed if _key(s) in rows]), out)
        raise Stopped(
            f"Interrupted; the audits of {len(rows)} systems are kept in {out}, and the same command goes on from "
            "there."
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
    return not folder.exists() or (folder.is_dir() and (not any(folder.iterdir()) or (folder / _KEPT).is_file()))


def _kept(folder: Path, settings: Sequence[Any]) -> dict[str, Row]:
    """What the folder holds of the table; nothing where it holds none."""
    path = folder / _KEPT
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows, theirs = dict(content["rows"]), content["settings"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"--out: {path} cannot be read; give another folder.") from None
    if theirs != [*settings, package_digest()]:
        raise InputError(
            f"--out: {folder} holds audits with other settings, or by another state of this package; give another "
            "folder."
        )
    return rows


def _keep(folder: Path, settings: Sequence[Any], rows: Mapping[str, Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / _KEPT, {"settings": [*settings, package_digest()], "rows": rows})


def _frame(rows: Sequence[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"claimed": "float64", "certified": "float64", "shown": "float64"})


def write_table(table: pd.DataFrame, folder: Path) -> list[Path]:
    """audits.parquet and audits.png."""
    # matplotlib is slow to import and only this function needs it.
    from decentral_dp.adversaries.audit_plot import write_audits

    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(folder / "audits.parquet", index=False)
    return [folder / "audits.parquet", write_audits(table, folder)]
