"""What notebooks show of a study: how many cells failed, its claims, its means, and its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from decentral_dp.reporting.page.figures import figure
from decentral_dp.reporting.page.markup import tag
from decentral_dp.studies.grid import Axis
from decentral_dp.studies.study_page import claims_section, failures_note, means_table
from decentral_dp.studies.study_runs import GOOD
from decentral_dp.studies.study_schema import Study
from decentral_dp.studies.study_text import study_table
from decentral_dp.studies.verdicts import Verdict

# More pictures are on the page of the study's folder.
_MOST_PICTURES = 2


def study_view(
    study: Study,
    axes: Sequence[Axis],
    summary: pd.DataFrame,
    cells: pd.DataFrame,
    verdicts: Sequence[Verdict],
    warnings: Sequence[str],
) -> str:
    """Markup of a study.

    Args:
        study: as it was conducted.
        axes: what varied.
        summary: means with intervals.
        cells: status of each.
        verdicts: one for each claim.
        warnings: what of the study came to nothing.
    """
    table = study_table(study, axes, summary, cells)
    ok = int(cells["status"].isin(GOOD).sum())
    parts = [
        tag("h4", study.title or "Study"),
        tag("p", f"{ok} of {len(cells)} cells ended ok; seeds: {len(study.seed_list)}."),
        *failures_note(cells),
        *(tag("p", warning) for warning in warnings),
        *claims_section(verdicts),
        means_table(table),
        tag("p", tag("small", table.note)),
    ]
    few = study.model_copy(update={"plots": study.plots[:_MOST_PICTURES], "formats": ["png"]})
    pictures = [figure(png, title, captioned=False) for title, png in _drawn(few, axes, summary, cells)]
    return tag("div", *parts, *pictures).markup


def _drawn(study: Study, axes: Sequence[Axis], summary: pd.DataFrame, cells: pd.DataFrame) -> list[tuple[str, bytes]]:
    """Title and PNG of every picture that has numbers."""
    # matplotlib is slow to import.
    from decentral_dp.studies.study_plots import write_study_plots

    titles = {plot.name: plot.title or plot.name for plot in study.plots}
    with TemporaryDirectory(prefix="decentral_dp-pictures-") as folder:
        written = write_study_plots(Path(folder), study, axes, summary, cells)
        return [(titles[path.stem], path.read_bytes()) for path in written]
