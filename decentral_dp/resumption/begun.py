"""What a folder or a file is of that somebody wants to go on with."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from decentral_dp.errors import InputError
from decentral_dp.files.begun_names import CELLS, STUDY, TABLE
from decentral_dp.files.regular import regular
from decentral_dp.simulation.result import IN_PROGRESS


class Kind(Enum):
    """What goes on; the value is how sentences call it."""

    RUN = "a run"
    STUDY = "a study"
    AUDITS = "a table of audits"
    FILE = "an audit or an attack"


class Resumable(NamedTuple):
    """What goes on, and where: for an audit of a run its file in the run's folder."""

    kind: Kind
    place: Path


def begun_in(path: Path) -> Resumable:
    """Say what was begun in a folder or a file.

    Args:
        path: a folder that a run, a study or a table of audits made; or the file of an audit or an attack.

    Returns:
        Its kind and place. Whether it is complete is found by what goes on.

    Raises:
        InputError: it is of none of these.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     (Path(folder) / "cells").mkdir()
        ...     begun_in(Path(folder)).kind.value
        'a study'
    """
    if not path.exists():
        raise InputError(
            f"resume: there is no {path}. What was interrupted before its first round, cell or run leaves nothing "
            "behind; start it again."
        )
    if not path.is_dir():
        if path.parent.name == CELLS and _is_study(path.parent.parent):
            raise _cell(path)
        return Resumable(Kind.FILE, path)
    if (path / IN_PROGRESS).is_dir():
        return Resumable(Kind.RUN, path)
    if (path / "result.json").is_file():
        audit = path / "audit.json"
        return Resumable(Kind.FILE, audit) if _is_interrupted(audit) else Resumable(Kind.RUN, path)
    if _is_study(path):
        return Resumable(Kind.STUDY, path)
    if (path / TABLE).is_file():
        return Resumable(Kind.AUDITS, path)
    if path.name == CELLS and _is_study(path.parent):
        raise _cell(path)
    raise InputError(
        f"resume: {path} is no run folder, and none of a study or of audits; give the folder of one that was "
        "interrupted, or the file of an audit or an attack."
    )


def _is_study(folder: Path) -> bool:
    return (folder / STUDY).is_file() or (folder / CELLS).is_dir()


def _cell(path: Path) -> InputError:
    folder = path.parent if path.is_dir() else path.parent.parent
    return InputError(
        f"resume: {path} has finished cells of a study, and one that is not finished is computed from its start; give "
        f"the folder of the study, {folder}."
    )


def _is_interrupted(audit: Path) -> bool:
    try:
        return bool(json.loads(regular(audit, "resume").read_text(encoding="utf-8"))["status"] == "interrupted")
    except (OSError, ValueError, KeyError, TypeError):
        return False
