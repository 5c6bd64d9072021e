"""What a study that is not complete was asked: a file in its folder, from its beginning to its end.

The file has the study as it was read, with what was overridden, and a digest of all cells: of their settings and of the
files that their scenarios name. So a study goes on by its folder alone, and one whose scenario has changed is told.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from decentral_dp.errors import InputError
from decentral_dp.files.begun_names import STUDY
from decentral_dp.files.regular import regular
from decentral_dp.studies.schema import Study


class Begun(NamedTuple):
    """A study that was begun in a folder.

    Args:
        study: as it was loaded.
        cells: digest of its cells.
        jobs: processes that were asked for; None for one per core.
        address: of the Ray cluster that was asked for, or None.
    """

    study: Study
    cells: str
    jobs: int | None
    address: str | None


def digest_of_cells(keys: Sequence[str]) -> str:
    """Hash the cells of a study.

    Args:
        keys: of its cells, in order; empty for one whose scenario is refused. What each says of the package plays no
            part: cells of another state of it are computed anew.

    Returns:
        32 hexadecimal digits.

    Example:
        >>> digest_of_cells(["settings-inputs-package"]) == digest_of_cells(["settings-inputs-another"])
        True
    """
    return _digest(json.dumps([key.rpartition("-")[0] for key in keys]))


def write_begun(out: Path, begun: Begun) -> None:
    """Put on record what is asked, before any cell is computed.

    Args:
        out: the folder of the study.
        begun: what is asked.
    """
    study = begun.study.model_dump(mode="json", exclude_none=True, by_alias=True)
    for table in (study, *study["variants"]):
        name = table.get("scenario", "")
        # It may go on from another working folder.
        if not (begun.study.folder / name).is_file() and Path(name).is_file():
            table["scenario"] = str(Path(name).resolve())
    content = {
        "study": study,
        "folder": str(begun.study.folder),
        "cells": begun.cells,
        "jobs": begun.jobs,
        "address": begun.address,
    }
    text = json.dumps(content, default=str)
    partial = out / f".{STUDY}.partial"
    partial.write_text(json.dumps({"digest": _digest(text), "asked": text}) + "\n", encoding="utf-8")
    partial.replace(out / STUDY)


def read_begun(out: Path) -> Begun:
    """Read what a study that is not complete was asked.

    Args:
        out: the folder of the study.

    Raises:
        InputError: there is no such study, it is complete, or the file is not what was written.
    """
    path = out / STUDY
    if not path.is_file():
        if (out / "study.toml").is_file():
            raise InputError(f"resume: the study in {out} is complete; give the folder of one that was interrupted.")
        raise InputError(
            f"resume: {out} does not say which study was begun in it, because an earlier version of decentral_dp did "
            f"not write {STUDY}, or the file is gone. Finished cells are kept: give the same study with --out {out} "
            "again."
        )
    try:
        found = json.loads(regular(path, "resume").read_text(encoding="utf-8"))
        text = found["asked"]
        if found["digest"] != _digest(text):
            raise ValueError("its digest is another")
        asked: dict[str, Any] = json.loads(text)
        study = Study.model_validate(asked["study"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        why = str(error).partition("\n")[0]
        raise InputError(
            f"resume: {path} is not what was written ({why}). Finished cells are kept: give the same study with "
            f"--out {out} again."
        ) from None
    study._folder = Path(asked["folder"])
    return Begun(study, asked["cells"], asked["jobs"], asked["address"])


def require_unchanged(begun: Begun, keys: Sequence[str], out: Path) -> None:
    """Refuse to go on where a scenario, or a file that one names, is another than when the study was begun.

    Args:
        begun: what was asked.
        keys: of the cells as they are now.
        out: the folder of the study.

    Raises:
        InputError: some cell is another.
    """
    if digest_of_cells(keys) != begun.cells:
        raise InputError(
            f"resume: the scenario {begun.study.scenario}, another one of the study, or a file that one names has "
            f"changed since the study in {out} was begun, and some of its cells would be of the one and some of the "
            f"other. Put it back; or give the study with --out {out} again, which computes anew what has changed."
        )


def ended(out: Path) -> None:
    """Take what was asked off the record: the study is complete."""
    with suppress(FileNotFoundError):
        (out / STUDY).unlink()


@contextmanager
def alone(cells: Path) -> Iterator[None]:
    """Hold the folder of the cells inside this: two processes would put away each other's unfinished files.

    Args:
        cells: a folder.

    Raises:
        InputError: another process computes there.
    """
    place = os.open(cells, os.O_RDONLY)
    try:
        # A file system without locks is taken at its word.
        with suppress(OSError):
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"{cells.parent}: this study is under way. Wait until it ends, or end it first."
                ) from None
        yield
    finally:
        os.close(place)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
