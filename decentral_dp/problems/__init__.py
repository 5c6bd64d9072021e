"""Registry of problems by name: the `ENTRY` or `ENTRIES` of the modules.

Training at one level is a bilevel problem without an upper level. Other types of problems are in annexes.
"""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from typing import Any

from decentral_dp import annexes
from decentral_dp.problems.entry import ProblemEntry, ProblemFacts, ProblemType
from decentral_dp.problems.protocol import TERMS

__all__ = ["BILEVEL", "PROBLEMS", "SOLVED", "TYPES", "ProblemEntry", "ProblemFacts", "ProblemType"]


def _entries(kind: ProblemType, *places: str) -> dict[str, ProblemEntry]:
    """Return kind → entry of all modules and folders. Modules of shared parts have no entry."""
    modules = []
    for place in map(import_module, places):
        inner = pkgutil.iter_modules(place.__path__) if hasattr(place, "__path__") else ()
        modules += [place, *(import_module(f"{place.__name__}.{info.name}") for info in inner)]
    entries = [e for m in modules for e in getattr(m, "ENTRIES", [m.ENTRY] if hasattr(m, "ENTRY") else ())]
    return {
        e.kind: e._replace(solves=kind.name, description=kind.describe(e.make))
        for e in sorted(entries, key=lambda e: e.kind)
    }


def _make_custom(author: Any, facts: ProblemFacts, name: str, model: Any) -> Any:
    from decentral_dp.problems.bilevel.recordwise import recordwise

    return recordwise(author, facts.n_features, facts.n_classes, name)


_BILEVEL = ProblemType(
    "bilevel",
    methods=("lower_grad_y", "terms"),
    members=("terms", "p", "q", "reads_records", "prepare", "regulariser"),
    evaluation_members=("regulariser_value", "losses", "accuracy"),
    terms=TERMS,
    make_custom=_make_custom,
    # The docstring of a classmethod describes its arguments.
    describe=lambda make: inspect.getdoc(getattr(make, "__self__", make)) or "",
    # Only some problems have records in the gradient of the upper loss by x or in the Jacobian.
    clip_notes={"x": "  # read only by problems whose losses have records and x in one term"},
)
# Type → its facts.
TYPES: annexes.Registry[ProblemType] = annexes.Registry(
    lambda: {"bilevel": _BILEVEL} | {name: annexes.import_place(place) for name, place in annexes.PROBLEMS.items()}
)
BILEVEL = annexes.Registry(lambda: _entries(_BILEVEL, f"{__name__}.bilevel", f"{__name__}.training"))


def _registry(name: str) -> annexes.Registry[ProblemEntry]:
    return annexes.Registry(lambda: _entries(TYPES[name], annexes.PROBLEMS[name].partition(":")[0]))


# Type → registry.
SOLVED = {"bilevel": BILEVEL} | {name: _registry(name) for name in annexes.PROBLEMS}
PROBLEMS = annexes.Registry(lambda: {kind: entry for registry in SOLVED.values() for kind, entry in registry.items()})
