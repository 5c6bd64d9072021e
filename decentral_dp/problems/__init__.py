"""Problems by name: whatever a module of `bilevel/` or `minimax/` states as its `ENTRY`, or its `ENTRIES`."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from decentral_dp.problems.entry import Entry, Facts, Solves

__all__ = ["BILEVEL", "MINIMAX", "PROBLEMS", "Entry", "Facts"]


def _entries(solves: Solves) -> dict[str, Entry]:
    """Kind → entry, of the modules in a folder; a module without one is what others share."""
    folder, found = import_module(f"{__name__}.{solves}"), {}
    for place in pkgutil.iter_modules(folder.__path__):
        module = import_module(f"{folder.__name__}.{place.name}")
        for entry in getattr(module, "ENTRIES", [module.ENTRY] if hasattr(module, "ENTRY") else ()):
            found[entry.kind] = entry._replace(solves=solves)
    return dict(sorted(found.items()))


BILEVEL, MINIMAX = _entries("bilevel"), _entries("minimax")
PROBLEMS = BILEVEL | MINIMAX
