"""What the terminal says of a study."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from decentral_dp.cli.progress import LiveBar
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.reporting.text import power_text
from decentral_dp.simulation.plan_text import console
from decentral_dp.studies.conduct import Findings
from decentral_dp.studies.epsilons import BUDGETS, deltas, described, guarantees

# More lines than this are read in summary.parquet, not on a terminal.
_MOST_ROWS = 40
_MOST_COLUMNS = 3
_MOST_REASONS = 8


class Progress(LiveBar):
    """A bar on a terminal: cells done, failed ones, time left."""

    def __init__(self) -> None:
        shown = Console(stderr=True)
        bar = Bar(
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
        super().__init__(bar)
        self._task = self._bar.add_task("study", total=None, failed="")

    def __call__(self, done: int, total: int, failed: int) -> None:
        self._bar.update(self._task, completed=done, total=total, failed=f"{failed} failed" if failed else "")

    def say(self, sentence: str) -> None:
        """Print above the bar, also where there is no terminal and therefore no bar."""
        self._bar.console.print(sentence, markup=False, highlight=False, soft_wrap=True)


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
        out.print(Text(f"{verdict.words}:", style="bold"), f"{verdict.statement}")
        known = verdict.pairs - verdict.missing
        which = "" if known < 2 else "hardest: " if verdict.held == known else "worst: "
        out.print(f"    {which}{verdict.numbers}")
    out.print()
    for warning in found.warnings:
        out.print(Text("Warning:", style="bold"), warning)
    if found.warnings:
        out.print()
    # Not wrapped, so that it can be clicked and copied.
    left = "Tables and pictures" if found.study.plots else "Tables"
    out.print(f"{left}: {found.folder}", soft_wrap=True)


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
        table.add_column(_head(part if short.count(part) == 1 else name, described(name, found.cells)))
    stated = _stated(found, names, columns)
    for name in stated:
        table.add_column(name)
    for name in columns:
        table.add_column(_head(name, described(name, found.cells)), justify="right")
    for row in rows:
        labels = [*row, *(stated[name][row] for name in stated)]
        table.add_row(*(Text(str(v)) for v in labels), *(_mean(known.get((*row, c)), c) for c in columns))
    return table


def _head(name: str, below: str) -> Text:
    return Text(f"{name}\n{below}" if below else name)


def _stated(found: Findings, names: Sequence[str], columns: Sequence[str]) -> dict[str, dict[tuple[Any, ...], str]]:
    """What an ε is where the combinations differ in that: column → combination → words."""
    cells = found.cells
    alike = {row[:-1]: row[-1] for row in zip(*(cells[n] for n in names), cells.index, strict=True)}
    stated = {}
    if any(name in BUDGETS for name in columns) and len(guarantees(cells)) > 1:
        stated["guarantee"] = {row: "".join(guarantees(cells.loc[[k]])) for row, k in alike.items()}
    at = next((name for name in columns if len(deltas(name, cells)) > 1), None)
    if at is not None and "privacy.delta" not in names:
        stated["δ"] = {row: delta_text(next(iter(deltas(at, cells.loc[[k]])), None)) for row, k in alike.items()}
    return stated


def _mean(row: Mapping[Any, Any] | None, name: str) -> str:
    if row is None:
        return "–"
    half = (row["high"] - row["low"]) / 2
    # Less than a thousandth is not seen in the mean either.
    wide = half >= 1e-3 * abs(row["mean"])
    mean = epsilon_text(row["mean"]) if name in BUDGETS else power_text(row["mean"])
    return mean + (f" ± {power_text(float(f'{half:.2g}'))}" if wide else "")
