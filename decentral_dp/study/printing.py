"""What the terminal says of a study."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from decentral_dp.report.text import power_text
from decentral_dp.study.conduct import Findings
from decentral_dp.summary import console

# More lines than this are read in summary.parquet, not on a terminal.
_MOST_ROWS = 40
_MOST_COLUMNS = 3
_MOST_REASONS = 8


class Progress:
    """A bar on a terminal: cells done, failed ones, time left."""

    def __init__(self) -> None:
        shown = Console(stderr=True)
        self._bar = Bar(
            TextColumn("cell"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[failed]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=shown,
            disable=not shown.is_terminal,
        )
        self._task = self._bar.add_task("study", total=None, failed="")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int, failed: int) -> None:
        self._bar.update(self._task, completed=done, total=total, failed=f"{failed} failed" if failed else "")


def print_findings(found: Findings) -> None:
    """Counts, failures with their sentences, means where they are few, verdicts, and where everything is."""
    out = console()
    total, failed = len(found.cells), found.failed
    out.print(
        Text(found.study.title or "Study", style="bold"), f"({total} cells, {found.computed} of them computed now)"
    )
    if len(failed):
        out.print()
        _print_failed(out, failed, total)
    table = _means(found)
    if table is not None:
        out.print()
        out.print(table)
    if found.verdicts:
        out.print()
    for verdict in found.verdicts:
        word = "reproduced" if verdict.reproduced else "not reproduced"
        count = f" in {verdict.held} of {verdict.pairs}" if verdict.pairs > 1 else ""
        out.print(Text(f"{word}{count}:", style="bold"), f"{verdict.statement}")
        missing = f"; {verdict.missing} not measured" if verdict.missing and verdict.pairs > 1 else ""
        out.print(f"    {'hardest: ' if verdict.pairs > 1 else ''}{verdict.numbers}{missing}")
    out.print()
    # Not wrapped, so that it can be clicked and copied.
    out.print(f"Tables and pictures: {found.folder}", soft_wrap=True)


def _print_failed(out: Console, failed: pd.DataFrame, total: int) -> None:
    out.print(Text(f"{len(failed)} of {total} cells failed:", style="bold red"))
    sentences = [f"{status}: {reason}" for status, reason in zip(failed["status"], failed["reason"], strict=True)]
    # Sentences that differ in their numbers only are one kind; the first stands for it.
    kinds: dict[str, list[str]] = {}
    for sentence in sentences:
        kinds.setdefault(re.sub(r"\d+", "0", sentence), []).append(sentence)
    alike = sorted(kinds.values(), key=len, reverse=True)
    for same in alike[:_MOST_REASONS]:
        example = "" if len(set(same)) == 1 else " (for example)"
        out.print(f"  {len(same)} × {same[0]}{example}")
    if len(alike) > _MOST_REASONS:
        out.print(f"  … and {len(alike) - _MOST_REASONS} other sentences in cells.parquet")


def _means(found: Findings) -> Table | None:
    """Combination by combination what the study measures at the end; None where that is too much for a terminal."""
    study, names = found.study, [axis.name for axis in found.axes]
    last = found.summary[found.summary["last"]]
    columns = study.measure[:_MOST_COLUMNS]
    rows = list(dict.fromkeys(last[names].itertuples(index=False, name=None))) if names else [()]
    if not columns or last.empty or len(rows) > _MOST_ROWS:
        return None
    known = {(*[row[n] for n in names], row["name"]): row for row in last.to_dict("records")}
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    short = [name.rpartition(".")[2] for name in names]
    for name, part in zip(names, short, strict=True):
        table.add_column(part if short.count(part) == 1 else name)
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(Text(str(v)) for v in row), *(_mean(known.get((*row, c))) for c in columns))
    return table


def _mean(row: Mapping[Any, Any] | None) -> str:
    if row is None:
        return "–"
    half = (row["high"] - row["low"]) / 2
    # Less than a thousandth is not seen in the mean either.
    wide = half >= 1e-3 * abs(row["mean"])
    return power_text(row["mean"]) + (f" ± {power_text(float(f'{half:.2g}'))}" if wide else "")
