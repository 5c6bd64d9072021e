"""Which systems are audited in one table: every algorithm without noise, as its paper prints it, and certified."""

from __future__ import annotations

import tomllib
from typing import Any, NamedTuple

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.loading import find, load
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError

# Rounds of each, where an algorithm takes fewer than its scenario has.
_ROUNDS = 5
GUARANTEES = ("none", "as_printed", "certified")
# The papers' gossip states its noise, not a budget: Laplace, growing so, with states boxed as in `paper_boxed`.
_GROWING = {"scale": 1.0, "decay": 0.8}
_PRINTED_GOSSIP = {
    "guarantee": "as_printed",
    "box": {"x": 0.0, "y": 1.0, "z": 1.0},
    **dict.fromkeys(("x", "y", "z"), _GROWING),
}


class System(NamedTuple):
    """A shipped scenario under a guarantee; None: its own."""

    scenario: str
    guarantee: str | None


def systems() -> list[System]:
    """Every registered algorithm's own scenario under every guarantee that there is of it."""
    found = [System(name, guarantee) for name in ALGORITHMS for guarantee in GUARANTEES]
    return [s for s in found if _exists(s)]


def _exists(system: System) -> bool:
    entry = ALGORITHMS[system.scenario]
    if system.guarantee == "as_printed":
        return entry.printed is not None
    # What adds no noise has nothing to certify.
    return system.guarantee == "none" or _own(system.scenario)["privacy"].get("guarantee", "certified") == "certified"


def scenario_of(system: System) -> Scenario:
    """The scenario of a system, of a few rounds where it has more and allows it."""
    table = _own(system.scenario)
    guarantee = system.guarantee
    if guarantee == "as_printed" and ALGORITHMS[system.scenario].setting == "gossip":
        table["privacy"] = _PRINTED_GOSSIP
    elif guarantee is not None:
        table["privacy"] = {**table["privacy"], "guarantee": guarantee}
    if guarantee == "as_printed" and table["algorithm"].get("solver") == "closed_form":
        # As printed, the dual variable ascends, and its gradient is clipped.
        table["algorithm"] = {**table["algorithm"], "solver": "ascent", "y": {"scale": 0.5}}
        table["privacy"] = {**table["privacy"], "clip": {"y": 1.0, **table["privacy"].get("clip", {})}}
    s = load(table)
    if s.algorithm.rounds <= _ROUNDS:
        return s
    try:
        return load(table, [f"algorithm.rounds={_ROUNDS}", f"run.average={min(s.run.average, _ROUNDS)}"])
    except InputError:
        return s


def _own(name: str) -> dict[str, Any]:
    with find(name).open("rb") as file:
        return tomllib.load(file)
