"""A run folder, as far as the page and the figures read it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.files.archives import DAMAGED, NoArchiveError, names_in, read_arrays
from decentral_dp.files.regular import regular


def scenario_text(folder: Path) -> str:
    path = folder / "scenario.toml"
    return regular(path, str(folder)).read_text(encoding="utf-8", errors="replace") if path.exists() else ""


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
        if "published_x" not in names_in(path, str(path)):
            return None
        return np.asarray(read_arrays(path, str(path), ["published_x"])["published_x"], dtype=np.float64)
    except InputError:
        raise
    except NoArchiveError:
        raise broken(path, ValueError("it is a single array")) from None
    except (OSError, *DAMAGED) as error:
        raise broken(path, error) from None


def broken(path: Path, error: Exception) -> InputError:
    """What is said of a file that cannot be read."""
    why = " ".join(str(error).split()).rstrip(".")
    return InputError(f"{path}: cannot be read ({why}); run the scenario again to write the folder anew.")
