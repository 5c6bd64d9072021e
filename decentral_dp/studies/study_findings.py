"""What a study comes to: tables of all cells and of means, verdicts, and gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from decentral_dp.studies.gains import gain_words
from decentral_dp.studies.grid import Axis
from decentral_dp.studies.study_runs import GOOD
from decentral_dp.studies.study_schema import Study
from decentral_dp.studies.study_text import StudyTable, columns_of, latex, markdown, pivoted, study_table
from decentral_dp.studies.verdicts import Verdict


@dataclass(frozen=True, repr=False)
class Findings:
    """A finished study.

    Args:
        study: as it was conducted.
        axes: what varied.
        results: cell, seed, one column per axis, round, last, name, value.
        summary: n, mean, low, high per combination.
        cells: guarantee, δ, status and reason of each.
        verdicts: one for each claim.
        computed: how many cells were not there before.
        warnings: what of the study came to nothing, one sentence each.
        folder: where tables and pictures are, None where nothing was kept.
        gains: paired differences of variants, a row for every pair and level, with a verdict.
        removed: pictures of the study that was in the folder before, which this one does not draw.
    """

    study: Study
    axes: Sequence[Axis]
    results: pd.DataFrame
    summary: pd.DataFrame
    cells: pd.DataFrame
    verdicts: Sequence[Verdict]
    computed: int
    warnings: Sequence[str]
    folder: Path | None
    gains: pd.DataFrame
    removed: Sequence[str] = ()

    @property
    def gain_sentences(self) -> list[tuple[str, list[str]]]:
        """Of every gain its title, and for each of its pairs where it begins to pay, or that it does nowhere here."""
        return [(gain.title or gain.name, gain_words(gain, self.gains)) for gain in self.study.gains]

    @property
    def failed(self) -> pd.DataFrame:
        """The cells that were refused, that diverged, or that broke down, each with its sentence."""
        return self.cells[~self.cells["status"].isin(GOOD)]

    def __repr__(self) -> str:
        ended = len(self.cells) - len(self.failed)
        return f"<Findings {self.study.title!r}: {ended} of {len(self.cells)} cells ended ok>"

    def _repr_html_(self) -> str:
        from decentral_dp.studies.study_notebook import study_view

        return study_view(self.study, self.axes, self.summary, self.cells, self.verdicts, self.warnings)

    def to_markdown(self) -> str:
        """The means at the end as a table in Markdown, with what they are over; also in the folder, as `table.md`."""
        return markdown(self._laid_out(worded=False))

    def to_latex(self) -> str:
        """The same in LaTeX, with words for names, for the package booktabs; also in the folder, as `table.tex`."""
        return latex(self._laid_out(worded=True))

    def _laid_out(self, worded: bool) -> StudyTable:
        layout = self.study.table
        columns = [name for name in columns_of(self.study, self.summary) if name in layout.columns]
        columns = sorted(columns, key=layout.columns.index) if columns else columns_of(self.study, self.summary)
        table = study_table(self.study, self.axes, self.summary, self.cells, columns, worded)
        return table if layout.pivot is None else pivoted(table, self.axes, layout.pivot)
