"""Links as a file or a networkx graph writes them, collected to a graph."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.errors import InputError, printable
from decentral_dp.topology.graph import Graph


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
