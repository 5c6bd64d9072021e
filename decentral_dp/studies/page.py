"""A finished study, and its page: one file with its tables, which can be sorted, its pictures, and its claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from decentral_dp.reporting.page import render
from decentral_dp.studies.comparisons import ClaimVerdict, gain_words
from decentral_dp.studies.measures import GUARANTEES, LINEAR
from decentral_dp.studies.runs import GOOD
from decentral_dp.studies.schema import Axis, Study, to_toml
from decentral_dp.studies.tables import (
    Measured,
    different_threat_models,
    failures,
    failures_text,
    study_table,
)


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
        """What tables and pictures are of."""
        return Measured(self.study, self.axes, self.summary, self.cells)

    @property
    def gain_sentences(self) -> list[tuple[str, list[str]]]:
        """Of every gain its title, and for each of its pairs where it begins to pay, or that it does nowhere here."""
        return [(gain.title or gain.name, gain_words(gain, self.gains)) for gain in self.study.gains]

    @property
    def failed(self) -> pd.DataFrame:
        """The cells that were refused, that diverged, or that broke down, each with its sentence."""
        return self.cells[~self.cells["status"].isin(GOOD)]

    def __repr__(self) -> str:
        return f"<Findings {self.study.title!r}: {self.ended_ok} of {len(self.cells)} cells ended ok>"

    @property
    def ended_ok(self) -> int:
        """How many cells ended ok."""
        return len(self.cells) - len(self.failed)


# A picture so much wider than high has panels side by side, and the whole width of the page.
_WIDE_RATIO = 1.6


def study_page(
    findings: Findings,
    plots: Path,
    notes: Sequence[str],
) -> str:
    """Write the page of a study; it loads nothing from anywhere.

    Args:
        findings: the finished study.
        plots: folder of its pictures.
        notes: what is taken unverified, cell after cell.
    """
    study, cells = findings.study, findings.cells
    named = [(gain.name, gain.title) for gain in study.gains] + [(plot.name, plot.title) for plot in study.plots]
    pictures = []
    for name, title in named:
        if (path := plots / f"{name}.png").exists():
            png = path.read_bytes()
            wide, high = (int.from_bytes(png[k : k + 4]) for k in (16, 20))  # as a PNG begins
            pictures.append((png, title or name, wide > _WIDE_RATIO * high))
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
        # As the study names its files, and not where its author keeps them.
        notes=list(dict.fromkeys(note.replace(f"{study.folder}/", "") for note in notes)),
        pictures=pictures,
        toml=to_toml(study),
    )
