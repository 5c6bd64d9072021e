"""Registry of problems by name: the `ENTRY` or `ENTRIES` of the modules.

Training at one level is a bilevel problem without an upper level. Minimax problems are in an annex.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from decentral_dp import annexes
from decentral_dp.problems.entry import ProblemEntry, ProblemFacts, Solves

__all__ = ["BILEVEL", "MINIMAX", "PROBLEMS", "SOLVED", "ProblemEntry", "ProblemFacts"]


def _entries(solves: Solves, *places: str) -> dict[str, ProblemEntry]:
    """Return kind → entry of modules and of the modules in folders; modules of shared parts have none."""
    modules = []
    for place in map(import_module, places):
        inner = pkgutil.iter_modules(place.__path__) if hasattr(place, "__path__") else ()
        modules += [place, *(import_module(f"{place.__name__}.{info.name}") for info in inner)]
    entries = [e for m in modules for e in getattr(m, "ENTRIES", [m.ENTRY] if hasattr(m, "ENTRY") else ())]
    return {e.kind: e._replace(solves=solves) for e in sorted(entries, key=lambda e: e.kind)}


BILEVEL = annexes.Registry(lambda: _entries("bilevel", f"{__name__}.bilevel", f"{__name__}.training"))
MINIMAX = annexes.Registry(lambda: _entries("minimax", annexes.PROBLEMS["minimax"]))
PROBLEMS = annexes.Registry(lambda: {**BILEVEL, **MINIMAX})
# Kind of problem → registry.
SOLVED = {"bilevel": BILEVEL, "minimax": MINIMAX}
