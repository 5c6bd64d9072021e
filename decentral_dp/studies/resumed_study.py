"""Going on with a study by its folder."""

from __future__ import annotations

from pathlib import Path

from decentral_dp.reporting.notebook_progress import StudyBar, shown
from decentral_dp.studies.conduct import ProgressCallback, conduct
from decentral_dp.studies.study_begun import read_begun
from decentral_dp.studies.study_findings import Findings


def resume_study(folder: Path, progress: ProgressCallback | None = None) -> Findings:
    """Go on with a study that was interrupted: finished cells are kept, the others are computed.

    Args:
        folder: of the study.
        progress: called with cells done, cells in all, and cells that failed; by default notebooks show a bar.

    Returns:
        As without the interruption.

    Raises:
        InputError: the folder holds no such study, it is complete or under way, or one of its scenarios has changed.
        Stopped: interrupted again.
    """
    begun = read_begun(folder)
    with shown(progress, StudyBar) as told:
        return conduct(begun.study, folder, begun.jobs, begun.address, told, begun)
