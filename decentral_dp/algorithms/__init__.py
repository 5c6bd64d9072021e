"""Algorithms by name: whatever a module in a folder of a setting states as its `ENTRY`, or its `ENTRIES`."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import get_args

from decentral_dp import annexes
from decentral_dp.algorithms.entry import Entry, Options, Setting

__all__ = ["ALGORITHMS", "Entry", "Options"]

_FOLDERS = {"gossip": f"{__name__}.gossip"} | dict(annexes.ALGORITHMS)


def _entries(setting: Setting) -> Iterator[Entry]:
    """The entries of the modules in a setting's folder; a module without one is what others share."""
    folder = import_module(_FOLDERS[setting])
    for module_info in pkgutil.iter_modules(folder.__path__):
        module = import_module(f"{folder.__name__}.{module_info.name}")
        for entry in getattr(module, "ENTRIES", [module.ENTRY] if hasattr(module, "ENTRY") else ()):
            yield entry._replace(setting=setting)


ALGORITHMS = annexes.Registry(
    lambda: {
        entry.kind: entry
        for setting in get_args(Setting)
        for entry in sorted(_entries(setting), key=lambda entry: entry.kind)
    }
)
