"""Simulate, price and audit private decentralised optimisation.

import decentral_dp
plan = decentral_dp.plan("ring_breast_cancer")      # what it would cost each agent
run = decentral_dp.run("ring_breast_cancer")
run.result.privacy.epsilon_max, run.metrics, run.ledger, run.released
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

# Public name → the module that defines it: the stub beside this file is their one table.
_HOMES = {
    alias.name: str(line.module).removeprefix(f"{__name__}.")
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(line, ast.ImportFrom)
    for alias in line.names
}
__all__ = sorted(_HOMES)  # the names are those of the stub


def __getattr__(name: str) -> Any:
    # Names are imported when they are first used, so that `import decentral_dp` and `--help` stay fast.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    # So that a shell completes names that are not imported yet, and none of this file's own.
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
