"""Links as a file or a networkx graph writes them, collected to a graph."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.errors import InputError, printable
from decentral_dp.topology.graph import Graph

# A whole number as a file, or a networkx graph, may write it; of more digits it is a name like any other.
_WHOLE = re.compile(r"([0-9]{1,18})(?:\.0)?")
# So many nodes at most are listed with their numbers.
_TOLD = 4


class Link(NamedTuple):
    """One link as written, with its place in the file for messages.

    Args:
        ends: names of the two agents.
        weight: None where it is absent or not a number.
        place: file and line, or link.
    """

    ends: tuple[str, str]
    weight: float | None
    place: str


def finite(text: Any) -> float | None:
    """Read a finite number; None for anything else.

    Example:
        >>> finite("0.5"), finite("x"), finite("inf")
        (0.5, None, None)
    """
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def are_numbers(names: Sequence[str]) -> bool:
    """Whether every name is a whole number, and no two are the same one.

    Example:
        >>> are_numbers(["3", "1", "0"]), are_numbers(["a", "1"]), are_numbers(["1", "01"])
        (True, False, False)
    """
    found = [_WHOLE.fullmatch(name) for name in names]
    return None not in found and len({int(match[1]) for match in found if match}) == len(names)


def numbering(names: Sequence[str]) -> list[int]:
    """Place in `names` of agent 0, 1, …: the one rule by which nodes of every form of a graph become agents.

    Names that are whole numbers are sorted by them, so that nodes 0 … m − 1 keep their numbers in whatever order they
    were inserted or written; other names keep that order.

    Example:
        >>> numbering(["3", "1", "0", "2"]), numbering(["b", "a"])
        ([2, 1, 3, 0], [0, 1])
    """
    places = range(len(names))
    if not are_numbers(names):
        return list(places)
    return sorted(places, key=lambda k: int(names[k].removesuffix(".0")))


def numbering_note(names: Sequence[str]) -> str:
    """A sentence about which agent is which node; "" where the nodes are 0 … m − 1, so that there is nothing to say.

    Example:
        >>> numbering_note(["0", "1"]), numbering_note(["b", "a"])
        ('', "agents are numbered in the order of the graph's nodes: 0 is b, 1 is a")
    """
    if all(name in (str(k), f"{k}.0") for k, name in enumerate(names)):
        return ""
    told = [f"{k} is {name}" for k, name in enumerate(names)]
    if len(told) > _TOLD:
        told = [*told[: _TOLD - 1], "…", told[-1]]
    return f"agents are numbered in the order of the graph's nodes: {', '.join(told)}"


def collect(agents: list[str], links: list[Link]) -> Graph:
    """Make a graph of links as written: loops are refused, parallel links merged with a note.

    Args:
        agents: their names, in order.
        links: as written.

    Raises:
        InputError: a link of an agent to itself.
    """
    number = {agent: k for k, agent in enumerate(agents)}
    weights: dict[tuple[int, int], float | None] = {}
    parallel, wrong = 0, ""
    for link in links:
        a, b = sorted(number[agent] for agent in link.ends)
        if a == b:
            raise InputError(f"{link.place} links {link.ends[0]} to itself; remove it, W has its own diagonal.")
        if (a, b) in weights:
            parallel += 1
            if link.weight != weights[a, b]:
                # Which of two different weights is meant cannot be known: neither is, and "file" weights are refused.
                wrong = wrong or f"{link.place} has another weight than before"
                weights[a, b] = None
        else:
            weights[a, b] = link.weight
            if link.weight is None or link.weight <= 0.0:
                wrong = wrong or f"{link.place} has {'none' if link.weight is None else f'{link.weight:g}'}"
    pairs = sorted(weights)
    return Graph(
        len(agents),
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        labels=tuple(map(printable, agents)),
        given=None if wrong or not pairs else np.array([weights[p] for p in pairs], dtype=np.float64),
        weighted=sum(link.weight is not None for link in links),
        wrong_weight=wrong,
        notes=(f"parallel links count once: {parallel} left out",) if parallel else (),
    )
