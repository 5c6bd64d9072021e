"""Problems by name: whatever a module of a folder here states as its `ENTRY`, or its `ENTRIES`.

Training at one level is solved as a bilevel problem without an upper level.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from decentral_dp.problems.entry import Entry, Facts, Solves

__all__ = ["BILEVEL", "MINIMAX", "PROBLEMS", "SOLVED", "Entry", "Facts"]


def _entries(name: str, solves: Solves) -> dict[str, Entry]:
    """Kind → entry, of the modules in a folder; a module without one is what others share."""
    folder, entries = import_module(f"{__name__}.{name}"), {}
    for place in pkgutil.iter_modules(folder.__path__):
        module = import_module(f"{folder.__name__}.{place.name}")
        for entry in getattr(module, "ENTRIES", [module.ENTRY] if hasattr(module, "ENTRY") else ()):
            entries[entry.kind] = entry._replace(solves=solves)
    return entries


BILEVEL = dict(sorted((_entries("bilevel", "bilevel") | _entries("training", "bilevel")).items()))
MINIMAX = dict(sorted(_entries("minimax", "minimax").items()))
PROBLEMS = BILEVEL | MINIMAX
# What an algorithm solves → the problems that are.
SOLVED = {"bilevel": BILEVEL, "minimax": MINIMAX}
