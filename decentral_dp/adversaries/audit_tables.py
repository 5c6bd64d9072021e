"""Audits of many scenarios: a table, and a figure of claimed, certified and shown ε."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from decentral_dp.adversaries.audited_systems import System, scenario_of, systems
from decentral_dp.adversaries.audits import audit
from decentral_dp.errors import InputError, Stopped

COLUMNS: tuple[str, ...] = (
    *("scenario", "algorithm", "guarantee", "rounds", "claimed", "certified", "shown", "delta", "confidence"),
    *("method", "vantage", "runs", "null_shown", "status"),
)


def audit_table(
    names: Sequence[str | System] | None = None,
    runs: int = 40,
    vantage: str = "everybody",
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    out: Path | None = None,
    jobs: int = 1,
) -> pd.DataFrame:
    """Audit systems, each shortened to a few rounds.

    Args:
        names: systems, or names of scenarios, audited under their own guarantee; by default every algorithm without
            noise, as printed and certified.
        runs, vantage, confidence, seed: as of `audit`.
        progress: called with audits done, and audits in all.
        out: the folder for the table and the figure of what is done where it is interrupted.
        jobs: processes; default 1, this one.

    Returns:
        One row for each, with the columns COLUMNS, in the order of the names.

    Raises:
        InputError: one sentence about whatever does not fit.
        Stopped: interrupted; what is done is in `out`.
    """
    listed = systems() if names is None else [n if isinstance(n, System) else System(n, None) for n in names]
    rows: dict[int, Mapping[str, Any]] = {}
    work = partial(_row, runs=runs, vantage=vantage, confidence=confidence, seed=seed)
    try:
        for number, row in _in_this_process(work, listed) if jobs == 1 else _in_processes(work, listed, jobs):
            rows[number] = row
            if progress is not None:
                progress(len(rows), len(listed))
    except KeyboardInterrupt:
        if out is None or not rows:
            raise
        write_table(_frame([rows[k] for k in sorted(rows)]), out)
        raise Stopped(f"Interrupted; the audits of {len(rows)} systems are kept in {out}.") from None
    return _frame([rows[k] for k in sorted(rows)])


def _row(system: System, runs: int, vantage: str, confidence: float, seed: int) -> Mapping[str, Any]:
    s = scenario_of(system)
    try:
        found = audit(s, runs, vantage, confidence, seed)
    except InputError as error:
        raise InputError(f"{system.scenario} ({s.privacy.guarantee}): {error}") from None
    content = found.to_dict()
    return {
        **{n: content[n] for n in COLUMNS if n in content},
        **{n: getattr(found, n) for n in ("claimed", "certified", "shown", "null_shown")},
        "scenario": system.scenario,
        "algorithm": s.algorithm.kind,
        "guarantee": s.privacy.guarantee,
        "rounds": s.algorithm.rounds,
    }


_Rows = Iterator[tuple[int, Mapping[str, Any]]]


def _in_this_process(work: Callable[[System], Mapping[str, Any]], listed: Sequence[System]) -> _Rows:
    for number, system in enumerate(listed):
        yield number, work(system)


def _in_processes(work: Callable[[System], Mapping[str, Any]], listed: Sequence[System], jobs: int) -> _Rows:
    """As they are done. Started afresh: what threads of this process hold must not be copied."""
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        numbers = {pool.submit(work, system): number for number, system in enumerate(listed)}
        for done in as_completed(numbers):
            yield numbers[done], done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"claimed": "float64", "certified": "float64", "shown": "float64"})


def write_table(table: pd.DataFrame, folder: Path) -> list[Path]:
    """audits.parquet and audits.png."""
    # matplotlib is slow to import and only this function needs it.
    from decentral_dp.adversaries.audit_plot import write_audits

    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(folder / "audits.parquet", index=False)
    return [folder / "audits.parquet", write_audits(table, folder)]
