"""`resume` of an interrupted run, study or audit, with the result of an uninterrupted one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from decentral_dp.annexes import annex
from decentral_dp.errors import InputError
from decentral_dp.files.trust import foreign, trusting
from decentral_dp.simulation.result import IN_PROGRESS
from decentral_dp.simulation.run import Run
from decentral_dp.tasks.outcomes import CELLS, INTERRUPTED, STUDY, TABLE, read_json

if TYPE_CHECKING:
    import pandas as pd

    from decentral_dp.auditing.audit import AuditResult
    from decentral_dp.config.components import Objects
    from decentral_dp.simulation.events import Callback
    from decentral_dp.studies.page import Findings


class Kind(Enum):
    """What goes on; the value is how sentences call it."""

    RUN = "a run"
    STUDY = "a study"
    AUDITS = "a table of audits"
    FILE = "an audit"


class Resumable(NamedTuple):
    """What goes on, and where: for an audit of a run its file in the run's folder."""

    kind: Kind
    place: Path

    @property
    def unit(self) -> str:
        """What its progress counts, but for a run."""
        return {Kind.STUDY: "cells", Kind.AUDITS: "audits"}.get(self.kind, "runs")


def find_resumable(path: Path) -> Resumable:
    """Say what was begun in a folder or a file.

    Args:
        path: a folder that a run, a study or a table of audits made; or the file of an audit.

    Returns:
        Its kind and place. Whether it is complete is found by what goes on.

    Raises:
        InputError: it is of none of these.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     (Path(folder) / "cells").mkdir()
        ...     find_resumable(Path(folder)).kind.value
        'a study'
    """
    if not path.exists():
        raise InputError(
            f"resume: there is no {path}. What was interrupted before its first round, cell or run leaves nothing "
            "behind; start it again."
        )
    if not path.is_dir():
        return Resumable(Kind.FILE, path)
    if (path / IN_PROGRESS).is_dir():
        return Resumable(Kind.RUN, path)
    if (path / "result.json").is_file():
        audit = path / "audit.json"
        is_interrupted = read_json(audit, "resume").get("status") == INTERRUPTED
        return Resumable(Kind.FILE, audit) if is_interrupted else Resumable(Kind.RUN, path)
    if (path / STUDY).is_file() or (path / CELLS).is_dir():
        return Resumable(Kind.STUDY, path)
    if (path / TABLE).is_file():
        return Resumable(Kind.AUDITS, path)
    raise InputError(
        f"resume: {path} is no run folder, and none of a study or of audits. Fix: give the folder of one that was "
        "interrupted, or the file of an audit."
    )


def resume(
    folder: str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    trust: bool = False,
    **objects: Unpack[Objects],
) -> Run | Findings | AuditResult | pd.DataFrame:
    """Go on with a run, a study or an audit that was cut off: to the bit as without the interruption.

    A run goes on from the last state in its folder. What was released after that state is released again with the same
    draws: the same values, and no second release.

    Of a study finished cells are kept, and the others are computed. Of an audit the runs so far are kept, and the
    others are made. As many processes of this machine do so as were asked for at the beginning.

    Args:
        folder: of a run, a study or a table of audits; of a complete run whose audit was interrupted; or the JSON file
            of an audit.
        callbacks: functions that are called with a `Progress`; by default notebooks show a bar.
        trust: whether to run code that the folder or the file holds or names and that this machine has not run before.
        **objects: of a run, those that it was given in place of what its scenario names, if any.

    Returns:
        The finished run; of a study its findings, of an audit its result, of several audits their table.

    Raises:
        InputError: there is nothing to go on with, it is complete or under way, or it is told something that is for
            runs alone; the records, the scenario or the versions are others than those of the beginning; the secret
            noise of a run was not kept.
        Stopped: interrupted again.

    Example:
        >>> import decentral_dp
        >>> try:
        ...     decentral_dp.resume("scenarios")
        ... except decentral_dp.InputError as error:
        ...     print(str(error).partition(",")[0])
        resume: scenarios is no run folder
    """
    task = kind, place = find_resumable(Path(folder))
    if trust:
        with trusting():
            return resume(place, callbacks=callbacks, **objects)
    if kind is Kind.RUN:
        return Run.resume(place, callbacks=callbacks, **objects)
    refuse_for_others(kind, place, [name for name, value in objects.items() if value is not None])
    from decentral_dp.reporting.progress import show_progress

    with show_progress(callbacks, task.unit) as callback:
        return resume_other(task, callback)


def resume_other(task: Resumable, progress: Callback | None) -> Findings | AuditResult | pd.DataFrame:
    """Go on with what is no run, a study, an audit or a table of audits; it raises what `resume` raises."""
    # What was asked is read from a file, which may be from elsewhere.
    with foreign():
        if task.kind is Kind.STUDY:
            findings: Findings = annex("resume_study")(task.place, progress)
            return findings
        if task.kind is Kind.AUDITS:
            table: pd.DataFrame = annex("resume_table")(task.place, progress)
            return table
        content = read_json(task.place, "resume")
        if content.get("status") != INTERRUPTED:
            state = "is complete" if "shown" in content else "is not of an audit"
            raise InputError(
                f"resume: {task.place} {state}. Fix: give the file of an audit that was interrupted, or the folder "
                "of a run or of a study."
            )
        result: AuditResult = annex("resume_audit")(task.place, content.get("asked"), progress)
        return result


def refuse_for_others(kind: Kind, place: Path, options: list[str]) -> None:
    """Refuse what only a run can be told when it goes on.

    Args:
        kind: what goes on.
        place: where it is.
        options: names of what was given.

    Raises:
        InputError: something was, and it is no run.
    """
    if options and kind is not Kind.RUN:
        raise InputError(
            f"resume: {' and '.join(options)} is for a single run only, and {place} is of {kind.value}. Fix: leave it "
            "out."
        )
