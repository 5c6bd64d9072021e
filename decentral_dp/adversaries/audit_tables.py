"""Audits of many scenarios: a table, and a figure of claimed, certified and shown ε."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from decentral_dp.adversaries.audits import audit
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.loading import load, scenario_names
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError, Stopped

# Papers' forms that run on bundled or made-up records in seconds.
PRINTED = ("figure_1_as_printed", "paper_boxed")
# Rounds of each, where an algorithm takes fewer than its scenario has.
_ROUNDS = 5

COLUMNS: tuple[str, ...] = (
    *("scenario", "algorithm", "guarantee", "rounds", "claimed", "certified", "shown", "delta", "confidence"),
    *("method", "vantage", "runs", "null_shown", "status"),
)


def audited_names() -> list[str]:
    """The own scenario of every registered algorithm, and some as the papers print them."""
    shipped = scenario_names()
    return [name for name in (*ALGORITHMS, *PRINTED) if name in shipped]


def audit_table(
    names: Sequence[str] | None = None,
    runs: int = 40,
    vantage: str = "everybody",
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    out: Path | None = None,
) -> pd.DataFrame:
    """Audit scenarios, each shortened to a few rounds at the same ε.

    Args:
        names: of scenarios; by default those of `audited_names`.
        runs, vantage, confidence, seed: as of `audit`.
        progress: called with scenarios done, and scenarios in all.
        out: the folder for the table and the figure of what is done where it is interrupted.

    Returns:
        One row for each, with the columns COLUMNS.

    Raises:
        InputError: one sentence about whatever does not fit.
        Stopped: interrupted; what is done is in `out`.
    """
    listed = audited_names() if names is None else list(names)
    rows: list[dict[str, Any]] = []
    for done, name in enumerate(listed):
        s = shortened(name)
        try:
            found = audit(s, runs, vantage, confidence, seed)
        except KeyboardInterrupt:
            if out is None or not rows:
                raise
            write_table(_frame(rows), out)
            message = f"Interrupted; the audits of {done} scenarios are kept in {out}."
            raise Stopped(message) from None
        content = found.to_dict()
        numbers = {n: getattr(found, n) for n in ("claimed", "certified", "shown", "null_shown")}
        rows.append(
            {
                **{n: content[n] for n in COLUMNS if n in content},
                **numbers,
                "scenario": name,
                "algorithm": s.algorithm.kind,
                "guarantee": s.privacy.guarantee,
                "rounds": s.algorithm.rounds,
            }
        )
        if progress is not None:
            progress(done + 1, len(listed))
    return _frame(rows)


def _frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"claimed": "float64", "certified": "float64", "shown": "float64"})


def shortened(name: str) -> Scenario:
    """The scenario at fewer rounds, where it has more and allows it."""
    s = load(name)
    if s.algorithm.rounds <= _ROUNDS:
        return s
    try:
        return load(name, [f"algorithm.rounds={_ROUNDS}", f"run.average={min(s.run.average, _ROUNDS)}"])
    except InputError:
        return s


def write_table(table: pd.DataFrame, folder: Path) -> list[Path]:
    """audits.parquet and audits.png."""
    # matplotlib is slow to import and only this function needs it.
    from decentral_dp.adversaries.audit_plot import write_audits

    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(folder / "audits.parquet", index=False)
    return [folder / "audits.parquet", write_audits(table, folder)]
