"""Graphs for the argument `topology=`: one function per kind, such as `ring(16)` or `erdos_renyi(16, probability=0.3)`.

Each function takes the number of agents and the other keys of the [topology] table, and returns this table.
"decentral-dp list topologies" lists the kinds.

Example:
    >>> import decentral_dp
    >>> decentral_dp.graphs.torus(16, rows=4)
    {'kind': 'torus', 'agents': 16, 'rows': 4}
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from decentral_dp.errors import converting
from decentral_dp.topology import GENERATORS


def __getattr__(name: str) -> Callable[..., dict[str, Any]]:
    if name not in GENERATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def table_of_graph(agents: int, **keys: Any) -> dict[str, Any]:
        with converting(TypeError, lambda e: f"graphs.{name}: {e}. Fix: pass the number of agents, as in {name}(16)."):
            return {"kind": name, "agents": operator.index(agents), **keys}

    return table_of_graph


def __dir__() -> list[str]:
    return sorted(GENERATORS)
