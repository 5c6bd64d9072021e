"""The experiments on published claims, in the folder papers/ of the repository; no wheel holds them."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import decentral_dp
from decentral_dp.errors import InputError


def papers() -> ModuleType | None:
    """The package `papers` beside this one in a checkout; None where this one is installed without it."""
    if "papers" in sys.modules:
        return sys.modules["papers"]
    root = Path(decentral_dp.__file__).parents[1]
    spec = spec_from_file_location("papers", root / "papers" / "__init__.py")
    # Another distribution may install a package of this name; it has no project file beside it.
    if spec is None or spec.loader is None or not (root / "pyproject.toml").is_file() or not (root / "papers").is_dir():
        return None
    sys.modules["papers"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def require_papers() -> ModuleType:
    """The package `papers`. Raises InputError where it is not here."""
    module = papers()
    if module is None:
        raise InputError(
            "experiment: the experiments on published claims are in the repository's folder papers/, and this is an "
            "installed package without it. Clone the repository, and install it with `pip install -e .`."
        )
    return module
