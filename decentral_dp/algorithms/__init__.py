"""Registry of algorithms by name: the `ENTRY` or `ENTRIES` of the modules in the folders of all settings.

The classes of the algorithms are attributes of this module.

Example:
    >>> from decentral_dp.algorithms import DpDsgd
    >>> DpDsgd(learning_rate=0.5).momentum
    0.0
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from decentral_dp import annexes
from decentral_dp.algorithms.entry import Entry

__all__ = ["ALGORITHMS", "Entry"]

_FOLDERS = {"gossip": f"{__name__}.gossip"} | dict(annexes.ALGORITHMS)


def _entries(setting: str) -> Iterator[Entry]:
    """Yield the entries of the modules in a setting's folder. Modules of shared parts have none."""
    folder = import_module(_FOLDERS[setting])
    for module_info in pkgutil.iter_modules(folder.__path__):
        module = import_module(f"{folder.__name__}.{module_info.name}")
        for entry in getattr(module, "ENTRIES", [module.ENTRY] if hasattr(module, "ENTRY") else ()):
            text = inspect.getdoc(import_module(entry.algorithm.__module__)) or ""
            yield entry._replace(setting=setting, description=text)


ALGORITHMS = annexes.Registry(
    lambda: {
        entry.kind: entry for setting in _FOLDERS for entry in sorted(_entries(setting), key=lambda entry: entry.kind)
    }
)


def __getattr__(name: str) -> Any:
    # Imports look up other names, before the registry can be read.
    if name[:1].isupper():
        for entry in ALGORITHMS.values():
            if entry.algorithm.__name__ == name:
                return entry.algorithm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
