"""What the page and the figures read of a run folder."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError


def scenario_text(folder: Path) -> str:
    path = folder / "scenario.toml"
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def read_scenario(folder: Path) -> dict[str, Any]:
    """The resolved scenario; empty where there is none that can be read, for the page can do without."""
    try:
        return tomllib.loads(scenario_text(folder))
    except tomllib.TOMLDecodeError:
        return {}


def published_x(folder: Path) -> Array | None:
    """(m, p), last published; None where the folder has none. Raises InputError for a broken file."""
    path = folder / "state.npz"
    if not path.exists():
        return None
    try:
        # Opened here: numpy leaves a file open that is no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as state:
            return np.asarray(state["published_x"], dtype=np.float64) if "published_x" in state else None
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise broken(path, error) from None


def broken(path: Path, error: Exception) -> InputError:
    """What is said of a file that cannot be read."""
    why = " ".join(str(error).split()).rstrip(".")
    return InputError(f"{path}: cannot be read ({why}); run the scenario again to write the folder anew.")
