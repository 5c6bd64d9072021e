"""Algorithms by name. Each entry builds its algorithm from the scenario's [algorithm] table and the guarantee."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from decentral_dp.algorithms.decentralised.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.protocol import Algorithm, StepSize


class Options(NamedTuple):
    """What a scenario says of its algorithm: step sizes by variable, constant start, protocol."""

    steps: Mapping[str, StepSize]
    init: Mapping[str, float]
    protocol: str


class Entry(NamedTuple):
    """A registered algorithm: how to build it, one line for the list, and the module that describes it."""

    build: Callable[[Options, str], Algorithm]
    summary: str
    home: str


def _ldp_dsbo(options: Options, guarantee: str) -> Algorithm:
    x, y, z = (options.steps[c] for c in ("x", "y", "z"))
    if guarantee == "as_printed":
        return LdpDsbo(x, y, z, protocol="printed", start=options.init)
    if options.protocol == "private":
        return LdpDsbo(x, y, z, protocol="private", start=options.init)
    return LdpDsbo(x, y, z, start=options.init)


ALGORITHMS: dict[str, Entry] = {
    "ldp_dsbo": Entry(
        _ldp_dsbo,
        "single-loop bilevel gossip with noised x, y and z (Chen & Wang, ICML 2024)",
        "decentral_dp.algorithms.decentralised.ldp_dsbo",
    ),
}
