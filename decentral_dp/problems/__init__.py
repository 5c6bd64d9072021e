"""Problems by name: whatever a module of a folder here states as its `ENTRY`, or its `ENTRIES`.

Training at one level is solved as a bilevel problem without an upper level. Minimax problems are those of an annex.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from decentral_dp import annexes
from decentral_dp.problems.entry import ProblemEntry, ProblemFacts, Solves

__all__ = ["BILEVEL", "MINIMAX", "PROBLEMS", "SOLVED", "ProblemEntry", "ProblemFacts"]


def _entries(solves: Solves, *folders: str) -> dict[str, ProblemEntry]:
    """Kind → entry, of the modules in folders; a module without one is what others share."""
    entries = {}
    for folder in map(import_module, folders):
        for place in pkgutil.iter_modules(folder.__path__):
            module = import_module(f"{folder.__name__}.{place.name}")
            for entry in getattr(module, "ENTRIES", [module.ENTRY] if hasattr(module, "ENTRY") else ()):
                entries[entry.kind] = entry._replace(solves=solves)
    return dict(sorted(entries.items()))


BILEVEL = annexes.Registry(lambda: _entries("bilevel", f"{__name__}.bilevel", f"{__name__}.training"))
MINIMAX = annexes.Registry(lambda: _entries("minimax", annexes.PROBLEMS["minimax"]))
PROBLEMS = annexes.Registry(lambda: {**BILEVEL, **MINIMAX})
# What an algorithm solves → the problems that are.
SOLVED = {"bilevel": BILEVEL, "minimax": MINIMAX}
