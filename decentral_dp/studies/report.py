"""Page of a finished study, a single self-contained file, and its text on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.table import Table
from rich.text import Text

from decentral_dp.reporting.page import render
from decentral_dp.reporting.privacy import unverified_texts
from decentral_dp.reporting.report import TextTable
from decentral_dp.reporting.terminal import GAP, console, longest, split_columns
from decentral_dp.studies.comparisons import ClaimVerdict, gain_words
from decentral_dp.studies.measures import GUARANTEES, LINEAR
from decentral_dp.studies.runs import GOOD
from decentral_dp.studies.schema import Axis, Study, to_toml
from decentral_dp.studies.tables import (
    FAILED,
    Measured,
    different_threat_models,
    failures,
    failures_text,
    study_table,
)


@dataclass(frozen=True, repr=False)
class Findings:
    """Results of a finished study.

    Args:
        study: loaded study.
        axes: axes of the study.
        results: table of values: cell, seed, one column per axis, round, last, name, value.
        summary: table of means: n, mean, low, high per combination.
        cells: guarantee, δ, status and reason of each cell.
        verdicts: one verdict for each claim.
        computed: number of cells that had to be computed because they were not in the folder.
        warnings: measures and plots for which there are no values.
        folder: folder of tables and figures; None if nothing is kept.
        gains: table of paired differences of variants, with a row and a verdict for every pair and level.

    Example:
        >>> import decentral_dp
        >>> grid = {"algorithm.rounds": [1, 2]}
        >>> grid = {"scenario": "quadratic", "kind": "plan", "measure": ["rounds"], "grid": grid}
        >>> decentral_dp.study(grid, workers=1)
        <Findings '': 2 of 2 cells ended ok>
    """

    study: Study
    axes: Sequence[Axis]
    results: pd.DataFrame
    summary: pd.DataFrame
    cells: pd.DataFrame
    verdicts: Sequence[ClaimVerdict]
    computed: int
    warnings: Sequence[str]
    folder: Path | None
    gains: pd.DataFrame

    @property
    def measurements(self) -> Measured:
        """Numbers of the tables and figures."""
        return Measured(self.study, self.axes, self.summary, self.cells)

    @property
    def gain_sentences(self) -> list[tuple[str, list[str]]]:
        """Titles of the gains, each with a sentence for each of its pairs."""
        return [(gain.title or gain.name, gain_words(gain, self.gains)) for gain in self.study.gains]

    @property
    def failed(self) -> pd.DataFrame:
        """Cells that were refused, diverged or failed, each with its reason."""
        return self.cells[~self.cells["status"].isin(GOOD)]

    def __repr__(self) -> str:
        return f"<Findings {self.study.title!r}: {self.ended_ok} of {len(self.cells)} cells ended ok>"

    @property
    def ended_ok(self) -> int:
        """Number of cells that ended ok."""
        return len(self.cells) - len(self.failed)


def study_page(
    findings: Findings,
    plots: Path,
    captions: Mapping[str, str],
    narrow: Mapping[str, bytes],
    unverified: Sequence[Mapping[str, str]],
    files: Sequence[str],
) -> str:
    """Return the HTML page of a study.

    Args:
        findings: finished study.
        plots: folder of its figures.
        captions: name of a figure → caption.
        narrow: name of a figure → SVG file for narrow screens.
        unverified: custom components of each cell, see `PrivacyStatement`.
        files: names of the files in the folder.
    """
    study, cells = findings.study, findings.cells
    # Absolute paths would identify the author.
    names = [{k: name.replace(f"{study.folder}/", "") for k, name in parts.items()} for parts in unverified]
    named = [(gain.name, gain.title) for gain in study.gains] + [(plot.name, plot.title) for plot in study.plots]
    pictures = [
        (name, (plots / f"{name}.svg").read_bytes(), narrow[name], captions[name], title or name)
        for name, title in named
        if name in captions
    ]
    counts = [(words, int((cells["guarantee"] == name).sum())) for name, words in GUARANTEES.items()]
    models = {
        column: "; ".join(f"{text}: {int((cells[column] == text).sum())} cells" for text in texts)
        for column, texts in different_threat_models(cells).items()
    }
    return render(
        "study",
        title=study.title or "Study",
        findings=findings,
        table=study_table(findings.measurements),
        failures=failures(cells),
        failures_text=failures_text(cells),
        guarantees="; ".join(f"{words}: {n} {'cell' if n == 1 else 'cells'}" for words, n in counts if n),
        linear=any(measure.startswith(LINEAR) for measure in study.measure),
        models=models,
        simulated=study.kind == "run" and cells["guarantee"].isin(["certified", "as_published"]).any(),
        notes=list(dict.fromkeys(text for parts in names for text in unverified_texts(parts))),
        pictures=pictures,
        toml=to_toml(study),
        files=files,
    )


# Largest number of rows of a table on a terminal; summary.parquet contains longer tables.
_MOST_ROWS = 40
_MOST_REASONS = 8


def print_findings(findings: Findings) -> None:
    """Print counts, failures, means if there are few, verdicts, and the path of the folder."""
    out = console()
    total, failed = len(findings.cells), findings.failed
    counts = f"({total} cells, {findings.computed} of them computed now)"
    out.print(Text(findings.study.title or "Study", style="bold"), counts)
    if len(failed):
        out.print()
        out.print(Text(f"{len(failed)} of {total} cells failed:", style="bold red"))
        kinds = failures(failed)
        for number, reason in kinds[:_MOST_REASONS]:
            out.print(f"  {number} × {reason}")
        if len(kinds) > _MOST_REASONS:
            out.print(f"  … and {len(kinds) - _MOST_REASONS} other reasons in cells.parquet")
    whole = study_table(findings.measurements)
    if len(whole.rows) > _MOST_ROWS:
        out.print()
        out.print(f"{len(whole.rows)} combinations: summary.csv and the report have their means.")
    else:
        for table in draw_means(whole, out.width):
            out.print()
            out.print(table)
        if whole.note:
            out.print(Text(whole.note, style="dim"))
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
        label = "Tables and figures" if findings.study.plots or findings.study.gains else "Tables"
        out.print(f"{label}: {findings.folder}", soft_wrap=True)
        out.print(f"Report: {findings.folder / 'report.html'}", soft_wrap=True)


def draw_means(whole: TextTable, width: int) -> list[Table]:
    """Split a table into parts that fit a width, each with all text columns."""
    # Numbers do not wrap; text and subheads do.
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
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
        tight = sum(longest([*column, below[column[0]]]) for column in (*keys, *part)) > width
        for column in (*keys, *part):
            head, is_key = Text("\n".join(filter(None, (column[0], below[column[0]])))), column in keys
            fixed = longest(" ".join(column).split()) - GAP if tight and not is_key else None
            table.add_column(head, justify="left" if is_key else "right", width=fixed)
        for cells in list(zip(*keys, *part, strict=True))[1:]:
            table.add_row(*(Text(text, style="red" if text == FAILED else "") for text in cells))
        tables.append(table)
    return tables
