"""What the terminal says of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from decentral_dp.reporting.report import TextTable
from decentral_dp.reporting.terminal import GAP, ProgressBar, console, longest, split_columns
from decentral_dp.studies.page import Findings
from decentral_dp.studies.schema import load_study
from decentral_dp.studies.study import conduct
from decentral_dp.studies.tables import FAILED, failures, study_table

# More lines than this are read in summary.parquet, not on a terminal.
_MOST_ROWS = 40
_MOST_REASONS = 8


def study_command(study: str, override: Sequence[str], out: Path | None, jobs: int | None, address: str | None) -> bool:
    """Carry out a study, and print it. Return whether a cell of it ended well."""
    loaded = load_study(study, override)
    folder = out if out is not None else Path("runs") / f"study-{Path(study).stem}"
    with ProgressBar("cells") as progress:
        findings = conduct(loaded, folder, jobs, address, progress)
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
        out.print(Text(f"{len(failed)} of {total} cells failed:", style="bold red"))
        kinds = failures(failed)
        for kind in kinds[:_MOST_REASONS]:
            out.print(f"  {kind.cells} × {kind.sentence}{'' if kind.is_uniform else ' (for example)'}")
        if len(kinds) > _MOST_REASONS:
            out.print(f"  … and {len(kinds) - _MOST_REASONS} other sentences in cells.parquet")
    whole = study_table(findings.measurements)
    if len(whole.rows) > _MOST_ROWS:
        out.print()
        out.print(f"{len(whole.rows)} combinations: summary.csv and the report have their means.")
    for table in draw_means(whole, out.width) if len(whole.rows) <= _MOST_ROWS else []:
        out.print()
        out.print(table)
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


def draw_means(whole: TextTable, width: int) -> list[Table]:
    """Draw a table in as many parts as fit a width, each with all columns of words; the last has the note below it."""
    # A number is one word, so that it stands in one piece; words wrap, and so does what is said below a head.
    columns = [
        [head, *(cells if not number else [text.replace(" ", "\u00a0") for text in cells])]
        for (head, _), number, *cells in zip(whole.heads, whole.numbers, *whole.rows, strict=True)
    ]
    keys = [column for column, number in zip(columns, whole.numbers, strict=True) if not number]
    room = width - sum(longest(" ".join(column).split()) for column in keys)
    below = dict(whole.heads)
    numbers = split_columns([column for column, number in zip(columns, whole.numbers, strict=True) if number], room)
    tables = []
    for part in numbers:
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, caption_justify="left")
        table.caption = whole.note if part is numbers[-1] else None
        tight = sum(longest([*column, below[column[0]]]) for column in (*keys, *part)) > width
        for column in (*keys, *part):
            head, is_key = Text("\n".join(filter(None, (column[0], below[column[0]])))), column in keys
            fixed = longest(" ".join(column).split()) - GAP if tight and not is_key else None
            table.add_column(head, justify="left" if is_key else "right", width=fixed)
        for cells in list(zip(*keys, *part, strict=True))[1:]:
            table.add_row(*(Text(text, style="red" if text == FAILED else "") for text in cells))
        tables.append(table)
    return tables
