"""Simulate, account and audit private decentralised optimisation.

import decentral_dp
plan = decentral_dp.plan("ring_breast_cancer")      # ε of each agent
run = decentral_dp.run("ring_breast_cancer")
run.result.privacy.epsilon_max, run.metrics, run.ledger, run.released
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

# Public name → the module that defines it. The stub next to this file is their only table.
_HOMES = {
    alias.name: str(line.module).removeprefix(f"{__name__}.")
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(line, ast.ImportFrom)
    for alias in line.names
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # Import on first use keeps `import decentral_dp` and `--help` fast.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    # A module is its own home.
    if home == __name__:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    # A shell completes names before their import.
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
