"""Kept cells of an earlier state of the package, or of the files that the scenarios name.

They are known by their names (see `cells`): the settings are those of a cell of the study, the rest is not. Such a file
is removed once the cell that takes its place is kept. Cells of other settings stay: a study that is changed back finds
them again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

Stale = Mapping[str, Sequence[Path]]
"""Key of a cell of the study → the files that it replaces."""


def find_stale(folder: Path, keys: Collection[str]) -> Stale:
    """Find what in the folder has the settings of one of these keys, and no other key of them."""
    by_settings = {settings_of(key): key for key in keys}
    found: dict[str, list[Path]] = {}
    for path in folder.glob("*.json"):
        if path.stem not in keys and (key := by_settings.get(settings_of(path.stem))) is not None:
            found.setdefault(key, []).append(path)
    return found


def settings_of(key: str) -> str:
    """Return the part of a cell's name that stands for its settings.

    Example:
        >>> settings_of("settings-inputs-package")
        'settings'
    """
    return key.partition("-")[0]


def why(stale: Stale, missing: Collection[str], knew: bool = True) -> str | None:
    """Write one sentence on those kept cells that are computed anew; None where there are none.

    Args:
        stale: of `find_stale`.
        missing: keys of cells that are computed.
        knew: whether the folder had its salt, by which it knows files.
    """
    again = {key: files for key, files in stale.items() if key in missing}
    if not again:
        return None
    # What was kept by this very package is there anew because of what it read.
    by_inputs = sum(any(_package(p.stem) == _package(key) for p in files) for key, files in again.items())
    if not knew:
        changed = "The salt, by which this folder knows the files that scenarios name, is new, or decentral_dp has"
    elif by_inputs == 0:
        changed = "decentral_dp has"
    else:
        changed = (
            "A file that the scenarios name has" if by_inputs == len(again) else "decentral_dp and its inputs have"
        )
    return f"{changed} changed since; {len(again)} kept {'cell is' if len(again) == 1 else 'cells are'} computed anew."


def _package(key: str) -> str:
    return key.rpartition("-")[2]


def discard(folder: Path, stale: Stale) -> None:
    """Remove the files whose successor is kept."""
    for key, files in stale.items():
        if (folder / f"{key}.json").is_file():
            for path in files:
                path.unlink(missing_ok=True)
