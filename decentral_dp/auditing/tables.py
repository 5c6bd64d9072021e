"""Audits of many scenarios: a table, and a figure of claimed, certified and shown ε.

By default every algorithm is audited without noise, as its paper prints it, and certified.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.auditing.audit import play_game
from decentral_dp.auditing.runs import plan_audit
from decentral_dp.config.loading import find, load
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.tasks.outcomes import COMPLETE, TABLE, Request, fingerprint, keep_outcomes, read_json, refuse_foreign
from decentral_dp.tasks.parallel import HERE, Workers, in_parallel

# Rounds of each, where an algorithm takes fewer than its scenario has.
_ROUNDS = 5
GUARANTEES = ("none", "certified")


class System(NamedTuple):
    """A shipped scenario under a guarantee; None: its own."""

    scenario: str
    guarantee: str | None


def systems() -> list[System]:
    """Every registered algorithm's own scenario under every guarantee that there is of it."""
    all_systems = [System(name, guarantee) for name in ALGORITHMS for guarantee in GUARANTEES]
    return [s for s in all_systems if _exists(s)]


def _exists(system: System) -> bool:
    # What adds no noise has nothing to certify.
    return (
        system.guarantee == "none"
        or _scenario_table(system.scenario)["privacy"].get("guarantee", "certified") == "certified"
    )


def scenario_of(system: System) -> Scenario:
    """The scenario of a system, of a few rounds where it has more and allows it."""
    table = _scenario_table(system.scenario)
    if system.guarantee is not None:
        table["privacy"] = {**table["privacy"], "guarantee": system.guarantee}
    s = load(table)
    if s.algorithm.rounds <= _ROUNDS:
        return s
    try:
        return load(table, [f"algorithm.rounds={_ROUNDS}", f"run.average={min(s.tail_length, _ROUNDS)}"])
    except InputError:
        return s


def _scenario_table(name: str) -> dict[str, Any]:
    with find(name).open("rb") as file:
        return tomllib.load(file)


# Of a table, in its folder.
FILES = ("audits.parquet", "audits.png")
COLUMNS: tuple[str, ...] = (
    *("scenario", "algorithm", "guarantee", "rounds", "claimed", "certified", "shown", "delta", "confidence"),
    *("method", "vantage", "runs", "null_shown", "status"),
)

Row = dict[str, Any]
"""Column → value as JSON has it: infinite numbers are "inf"."""


def audit_table(
    names: Sequence[str | System] | None = None,
    runs: int = 40,
    vantage: str = "everybody",
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callback | None = None,
    out: Path | None = None,
    workers: Workers = HERE,
) -> pd.DataFrame:
    """Audit systems, each shortened to a few rounds.

    Args:
        names: systems, or names of scenarios, audited under their own guarantee; by default every algorithm without
            noise and certified.
        runs, vantage, confidence, seed: as of `plan_audit`.
        progress: called with a `Progress` of "audits".
        out: the folder for table and figure, which keeps every audit when it is done; one that holds some of these is
            gone on with.
        workers: who makes them; default this process.

    Returns:
        One row for each, with the columns COLUMNS, in the order of the names.

    Raises:
        InputError: one sentence about whatever does not fit.
        Stopped: interrupted; what is done is in `out`.
    """
    workers.check()
    listed = systems() if names is None else [n if isinstance(n, System) else System(n, None) for n in names]
    settings: dict[str, Any] = {"runs": runs, "vantage": vantage, "confidence": confidence, "seed": seed}
    request = {**settings, "workers": workers, "systems": None if names is None else listed}
    task = Request(
        "table of audits",
        request,
        partial(fingerprint, [], settings),
        "with other settings",
        lambda audits: f"the audits of {audits} systems are kept",
        place=out,
        is_extensible=True,
    )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    report = Reporter(progress, "audits")
    with keep_outcomes(None if out is None else out / TABLE, task, dict[str, Any]) as outcomes:
        missing = [s for s in dict.fromkeys(listed) if _key(s) not in outcomes.done]
        work, before = partial(_row, **settings), len(listed) - len(missing)
        try:
            with closing(in_parallel(work, missing, str, workers)) as rows:
                for done, (system, row) in enumerate(rows, 1):
                    if isinstance(row, str):
                        raise InputError(f"{system.scenario}: {row}")
                    outcomes.add(_key(system), row)
                    report(before + done, len(listed))
        except KeyboardInterrupt:
            if out is not None and outcomes.done:
                write_table(_frame([outcomes.done[_key(s)] for s in listed if _key(s) in outcomes.done]), out)
            raise
        table = _frame([outcomes.done[_key(s)] for s in listed])
        if out is not None:
            write_table(table, out)
            outcomes.write(COMPLETE)
    return table


def _row(system: System, runs: int, vantage: str, confidence: float, seed: int) -> Row | str:
    """The row of a system, or a sentence about why there is none."""
    try:
        s = scenario_of(system)
        result = play_game(plan_audit(s, runs, vantage, confidence, seed))
    except InputError as error:
        return str(error)
    content = result.to_dict()
    return {
        **{n: content[n] for n in COLUMNS if n in content},
        "scenario": system.scenario,
        "algorithm": s.algorithm.kind,
        "guarantee": s.privacy.guarantee,
        "rounds": s.algorithm.rounds,
    }


def _key(system: System) -> str:
    return f"{system.scenario} {system.guarantee or ''}".rstrip()


def can_resume(folder: Path) -> bool:
    """Say whether a folder is new or empty, or holds a table that was begun."""
    return not os.path.lexists(folder) or (
        folder.is_dir() and (not any(folder.iterdir()) or (folder / TABLE).is_file())
    )


def resume_table(folder: Path, progress: Callback | None = None) -> pd.DataFrame:
    """Go on with a table of audits that was cut off: audits that are done are kept, the others are made.

    Args:
        folder: of the table.
        progress: called with a `Progress` of "audits".

    Returns:
        As `audit_table`; table and figure are written.

    Raises:
        InputError: it is complete, by another state of the package, or not what was written.
        Stopped: interrupted again.
    """
    path = folder / TABLE
    content = read_json(path, "resume")
    if content.get("status") == COMPLETE:
        raise InputError(f"resume: the audits in {folder} are complete; give the folder of some that were interrupted.")
    with refuse_foreign(path, "Audit again with another --out."):
        request = dict(content["asked"])
        chosen, workers = request.pop("systems"), Workers(*request.pop("workers"))
        names = None if chosen is None else [System(*one) for one in chosen]
        settings = {name: request[name] for name in ("runs", "vantage", "confidence", "seed")}
        another = content["fingerprint"] != fingerprint([], settings, b"")
    if another:
        raise InputError(
            f"resume: decentral_dp has changed since the audits in {folder} were begun, and one table would be of two "
            "versions; audit again with another --out."
        )
    return audit_table(names, **settings, progress=progress, out=folder, workers=workers)


def _frame(rows: Sequence[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"claimed": "float64", "certified": "float64", "shown": "float64"})


def write_table(table: pd.DataFrame, folder: Path) -> list[Path]:
    """audits.parquet and audits.png."""
    # matplotlib is slow to import and only this function needs it.
    from decentral_dp.auditing.plots import write_audits

    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(folder / FILES[0], index=False)
    return [folder / FILES[0], write_audits(table, folder)]
