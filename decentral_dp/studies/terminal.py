"""What the terminal says of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from decentral_dp.reporting.progress import ProgressBar
from decentral_dp.reporting.tables import TextTable
from decentral_dp.simulation.plan import console
from decentral_dp.studies.page import Findings
from decentral_dp.studies.schema import load_study
from decentral_dp.studies.study import conduct
from decentral_dp.studies.tables import FAILED, failures, study_table

# More lines than this are read in summary.parquet, not on a terminal.
_MOST_ROWS = 40
_GAP = 2
_MOST_REASONS = 8


def study_command(study: str, override: Sequence[str], out: Path | None, jobs: int | None, address: str | None) -> bool:
    """Carry out a study, and print it. Return whether a cell of it ended well."""
    loaded = load_study(study, override)
    folder = out if out is not None else Path("runs") / f"study-{Path(study).stem}"
    with ProgressBar("cells") as progress:
        findings = conduct(loaded, folder, jobs, address, progress)
    return print_ended(findings)


def print_ended(findings: Findings, quiet: bool = False) -> bool:
    """Print a study, unless quiet. Gives whether a cell of it ended well."""
    if not quiet:
        print_findings(findings)
    return len(findings.failed) < len(findings.cells)


def print_findings(findings: Findings) -> None:
    """Counts, failures with their sentences, means where they are few, verdicts, and where everything is."""
    out = console()
    total, failed = len(findings.cells), findings.failed
    counts = f"({total} cells, {findings.computed} of them computed now)"
    out.print(Text(findings.study.title or "Study", style="bold"), counts)
    if len(failed):
        out.print()
        _print_failed(out, failed, total)
    _print_means(out, findings)
    for title, sentences in findings.gain_sentences:
        out.print()
        out.print(Text(title, style="bold"))
        for sentence in sentences:
            out.print(Text(f"– {sentence}"))
    if findings.verdicts:
        out.print()
    for verdict in findings.verdicts:
        out.print(Text(f"{verdict.description}:", style="bold"), f"{verdict.statement}")
        out.print(f"    {'least certain: ' if verdict.pairs > 1 else ''}{verdict.numbers}")
    out.print()
    for warning in findings.warnings:
        out.print(Text("Warning:", style="bold"), warning)
    if findings.warnings:
        out.print()
    # Not wrapped, so that it can be clicked and copied.
    if findings.folder is not None:
        left = "Tables and pictures" if findings.study.plots or findings.study.gains else "Tables"
        out.print(f"{left}: {findings.folder}", soft_wrap=True)
        out.print(f"Report: {findings.folder / 'report.html'}", soft_wrap=True)


def _print_failed(out: Console, failed: pd.DataFrame, total: int) -> None:
    out.print(Text(f"{len(failed)} of {total} cells failed:", style="bold red"))
    kinds = failures(failed)
    for kind in kinds[:_MOST_REASONS]:
        out.print(f"  {kind.cells} × {kind.sentence}{'' if kind.is_uniform else ' (for example)'}")
    if len(kinds) > _MOST_REASONS:
        out.print(f"  … and {len(kinds) - _MOST_REASONS} other sentences in cells.parquet")


def _print_means(out: Console, findings: Findings) -> None:
    """Combination by combination what the study measures at the end, in as many tables as the width asks for."""
    whole = study_table(findings.measurements)
    if len(whole.rows) > _MOST_ROWS:
        out.print()
        out.print(f"{len(whole.rows)} combinations: summary.csv and the report have their means.")
        return
    keys = [k for k, number in enumerate(whole.numbers) if not number]
    left = [k for k, number in enumerate(whole.numbers) if number]
    while left:
        fitting = [
            n
            for n in range(1, len(left) + 1)
            if sum(_column_widths(_select_columns(whole, keys + left[:n]))) <= out.width
        ]
        most = max(fitting, default=1)
        out.print()
        out.print(_draw_table(_select_columns(whole, keys + left[:most]), out.width, has_note=most == len(left)))
        left = left[most:]


def _select_columns(words: TextTable, columns: Sequence[int]) -> TextTable:
    """Some columns of a table."""
    rows = [[row[k] for k in columns] for row in words.rows]
    numbers = [words.numbers[k] for k in columns]
    return words._replace(heads=[words.heads[k] for k in columns], numbers=numbers, rows=rows)


def _column_widths(words: TextTable) -> list[int]:
    """Letters that each column takes at least, with the gap behind it: a number stands in one piece, words wrap."""
    columns = zip(*([name for name, _ in words.heads], *words.rows), strict=True)
    return [
        max(len(part) for text in column for part in ([text] if number else text.split() or [""])) + _GAP
        for column, number in zip(columns, words.numbers, strict=True)
    ]


def _draw_table(words: TextTable, width: int, has_note: bool) -> Table:
    """A table for the terminal; has_note: whether what means and intervals are is below it."""
    columns = list(zip(*([name for name, _ in words.heads], *words.rows), strict=True))
    whole = [max(*(len(text) for text in (*head, *column))) for head, column in zip(words.heads, columns, strict=True)]
    least = [wide - _GAP for wide in _column_widths(words)]
    room = width - sum(least) - _GAP * (len(least) - 1)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, caption=words.note if has_note else None)
    table.caption_justify = "left"
    tight = sum(whole) + _GAP * len(whole) > width
    for (name, below), number, short, long in zip(words.heads, words.numbers, least, whole, strict=True):
        # Where there is no room to spare, words are wrapped, and what is said below a name; numbers are not.
        more = 0 if number else max(0, min(long - short, room))
        room -= more
        head, wide = Text(f"{name}\n{below}" if below else name), short + more if tight else None
        table.add_column(head, justify="right" if number else "left", width=wide)
    for row in words.rows:
        # An interval stays in one piece.
        cells = [text.replace(", ", ",\u00a0").replace("± ", "±\u00a0") for text in row]
        table.add_row(*(Text(text, style="red" if text == FAILED else "") for text in cells))
    return table
