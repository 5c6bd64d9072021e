"""`resume` of an interrupted run or study, with the result of an uninterrupted one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from decentral_dp.annexes import annex
from decentral_dp.errors import InputError
from decentral_dp.files.trust import foreign, trusting
from decentral_dp.simulation.result import IN_PROGRESS
from decentral_dp.simulation.run import Run
from decentral_dp.tasks.outcomes import CELLS, STUDY

if TYPE_CHECKING:
    from decentral_dp.config.components import Objects
    from decentral_dp.simulation.events import Callback
    from decentral_dp.studies.page import Findings


def is_study(folder: Path) -> bool:
    """Say whether a folder is of a study; else it is of a run.

    Whether either is complete is found when it resumes.

    Raises:
        InputError: it is of neither.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     (Path(folder) / "cells").mkdir()
        ...     is_study(Path(folder))
        True
    """
    if (folder / IN_PROGRESS).is_dir() or (folder / "result.json").is_file():
        return False
    if (folder / STUDY).is_file() or (folder / CELLS).is_dir():
        return True
    # A run or study that is interrupted before its first round or cell leaves nothing.
    problem = f"{folder} is no run folder, and none of a study" if folder.exists() else f"there is no {folder}"
    raise InputError(f"resume: {problem}. Fix: give the folder of an interrupted run or study, or start it again.")


def resume(
    folder: str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    trust: bool = False,
    **objects: Unpack[Objects],
) -> Run | Findings:
    """Resume an interrupted run or study, to the bit as without the interruption.

    A run resumes from the last state in its folder. What was released after that state is released again with the same
    draws: the same values, and no second release.

    Of a study finished cells are kept, and the others are computed, by as many processes of this machine as were asked
    for at the beginning.

    Args:
        folder: of a run or a study.
        callbacks: functions that are called with a `Progress`; by default notebooks show a bar.
        trust: whether to run code that the folder holds or names and that this machine has not run before.
        **objects: of a run, those that it was given in place of what its scenario names, if any.

    Returns:
        The finished run, or the findings of a study.

    Raises:
        InputError: there is nothing to resume, it is complete or under way, or it is told something that is for runs
            only; the records, the scenario or the versions are others than those of the beginning.
        Stopped: interrupted again.

    Example:
        >>> import decentral_dp
        >>> try:
        ...     decentral_dp.resume("scenarios")
        ... except decentral_dp.InputError as error:
        ...     print(str(error).partition(",")[0])
        resume: scenarios is no run folder
    """
    place = Path(folder)
    if trust:
        with trusting():
            return resume(place, callbacks=callbacks, **objects)
    if not is_study(place):
        return Run.resume(place, callbacks=callbacks, **objects)
    refuse_for_study(place, [name for name, value in objects.items() if value is not None])
    from decentral_dp.reporting.progress import show_progress

    with show_progress(callbacks, "cells") as callback:
        return continue_study(place, callback)


def continue_study(folder: Path, progress: Callback | None) -> Findings:
    """Resume a study; it raises what `resume` raises."""
    # What was asked is read from a file, which may be from elsewhere.
    with foreign():
        findings: Findings = annex("resume_study")(folder, progress)
        return findings


def refuse_for_study(folder: Path, options: list[str]) -> None:
    """Refuse what only a run can be told when it resumes.

    Args:
        folder: of a study.
        options: names of what was given.

    Raises:
        InputError: something was.
    """
    if options:
        raise InputError(
            f"resume: {' and '.join(options)} {'is' if len(options) == 1 else 'are'} for a single run, and {folder} is "
            f"of a study, which resumes as it was begun. Leave {'it' if len(options) == 1 else 'them'} out."
        )
