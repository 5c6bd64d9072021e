"""Paths as a file names them that may be sent to others: with no name of a home folder in them where that can be."""

from __future__ import annotations

import os
from pathlib import Path


def portable_path(path: Path, folder: Path) -> str:
    """Name a file from a folder: relative where they share more than a root, else from the home folder, else whole.

    Args:
        path: absolute.
        folder: of the file that is to name it.

    Returns:
        With "/" between its parts. "~" stands for the home folder of whoever reads it.

    Example:
        >>> portable_path(Path("/data/a/records.csv"), Path("/data/a/runs/one"))
        '../../records.csv'
        >>> portable_path(Path("/data/records.csv"), Path("/tmp/one"))
        '/data/records.csv'
    """
    path, folder, home = (Path(os.path.abspath(p)) for p in (path, folder, Path.home()))
    shared = Path(os.path.commonpath([path, folder]))
    inside = path.is_relative_to(home) and home != Path(home.anchor)
    # From above a home folder its name would be in the path.
    if shared.is_relative_to(home) if inside else shared != Path(shared.anchor):
        return Path(os.path.relpath(path, folder)).as_posix()
    return f"~/{path.relative_to(home).as_posix()}" if inside else path.as_posix()
