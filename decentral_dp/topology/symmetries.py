"""Symmetries of a network: permutations of agents that preserve all numbers of agents and edges.

Colour refinement (Weisfeiler & Leman 1968) gives agents a colour by their numbers, then by the colours of their
neighbours, until no colour splits. If several agents share a colour, one of them is marked, and each candidate image in
turn. Every permutation is verified number by number. A search that fails within a few tries returns none. Many agents
have only the symmetries of `index_symmetries`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array

Colours = NDArray[np.int64]


class Coloured(NamedTuple):
    """Colours of agents and edges; equal values have equal colours.

    Args:
        agents: colours of agents, (m,).
        links: colours of edges in both directions, (m, m).
    """

    agents: Colours
    links: Colours


def colour(agents: Sequence[Array], links: Sequence[Array]) -> Coloured:
    """Assign colours to agents and edges, equal if all their values are equal.

    Args:
        agents: arrays (m,).
        links: arrays (m, m), from the second index to the first.
    """
    m = len(links[0])
    # Many rounds have equal matrices.
    distinct = list({matrix.tobytes(): matrix for matrix in links}.values())
    pairs = np.stack([*distinct, *(matrix.T for matrix in distinct)], axis=2)
    return Coloured(_row_numbers(np.stack(agents, axis=1)), _row_numbers(pairs.reshape(m * m, -1)).reshape(m, m))


def stable_colours(graph: Coloured, marks: Colours) -> Colours:
    """Refine colours of agents until none splits. Only agents of one colour can be exchanged.

    Args:
        graph: colours of agents and edges.
        marks: (m,) or (k, m) initial colours; k rows are refined jointly.

    Returns:
        Colours from 0, with the shape of `marks`.

    Example:
        >>> path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
        >>> stable_colours(Coloured(np.zeros(3, dtype=np.int64), path), np.array([0, 0, 0])).tolist()
        [0, 1, 0]
    """
    shape, m = marks.shape, len(graph.agents)
    sides = np.broadcast_to(graph.agents, shape).ravel()
    colours = _row_numbers(np.stack([sides, marks.ravel()], axis=1))
    while True:
        count = int(colours.max()) + 1
        neighbour_colours = np.sort(graph.links * count + colours.reshape(-1, 1, m), axis=2).reshape(-1, m)
        finer = _row_numbers(np.concatenate([colours[:, None], neighbour_colours], axis=1))
        if finer.max() + 1 == count:
            return colours.reshape(shape)
        colours = finer


def symmetry(graph: Coloured, marks: Colours, other_marks: Colours) -> Colours | None:
    """Find a symmetry that maps marks to marks.

    Args:
        graph: colours of agents and edges.
        marks: marks of the agents, (m,).
        other_marks: marks of their images, (m,).

    Returns:
        (m,) image of each agent, or None if none was found.

    Example:
        >>> ring = np.roll(np.eye(5, dtype=np.int64), 1, axis=1)
        >>> graph = Coloured(np.zeros(5, dtype=np.int64), ring + ring.T)
        >>> symmetry(graph, np.array([1, 0, 0, 0, 0]), np.array([0, 1, 0, 0, 0]))[0].item()
        1
    """
    differ = np.flatnonzero(marks != other_marks)
    if differ.size == 2:
        # Two agents with equal neighbours can be exchanged.
        image = np.arange(marks.size)
        image[differ] = differ[::-1]
        if (other_marks[image] == marks).all() and _is_symmetry(graph, image):
            return image
    return _search(graph, np.stack([marks, other_marks]), iter(range(2 * marks.size)))


def index_symmetries(graph: Coloured) -> list[Colours]:
    """Find the symmetries that shift or reverse one digit of the agents' indices, as on rings, tori and hypercubes.

    Every divisor pair q | Q of m gives a digit (i mod Q) div q. Each permutation is verified number by number.

    Returns:
        (m,) image of each agent, for each symmetry.

    Example:
        >>> ring = np.roll(np.eye(5, dtype=np.int64), 1, axis=1)
        >>> [image.tolist() for image in index_symmetries(Coloured(np.zeros(5, dtype=np.int64), ring + ring.T))]
        [[1, 2, 3, 4, 0], [0, 4, 3, 2, 1]]
    """
    agent = np.arange(len(graph.agents))
    divisors = [q for q in range(1, agent.size + 1) if agent.size % q == 0]
    out = []
    for size in divisors:
        for q in divisors:
            if size % q or q == size:
                continue
            digit, rest = agent % size // q, agent // size * size + agent % q
            for turned in (digit + 1, -digit):
                image = rest + turned % (size // q) * q
                if (image != agent).any() and _is_symmetry(graph, image):
                    out.append(image)
    return out


def _is_symmetry(graph: Coloured, image: Colours) -> bool:
    agents, links = graph.agents[image], graph.links[image][:, image]
    return bool((agents == graph.agents).all() and (links == graph.links).all())


def _search(graph: Coloured, marks: Colours, tries: Iterator[int]) -> Colours | None:
    here, there = colours = stable_colours(graph, marks)
    sizes = np.bincount(here)
    if next(tries, None) is None or (np.sort(here) != np.sort(there)).any():
        return None
    if sizes.max() == 1:
        image = np.argsort(there)[here]
        return image if _is_symmetry(graph, image) else None
    several = int(np.flatnonzero(sizes > 1)[0])
    for candidate in np.flatnonzero(there == several):
        split = colours.copy()
        split[0, np.flatnonzero(here == several)[0]] = split[1, candidate] = sizes.size
        permutation = _search(graph, split, tries)
        if permutation is not None:
            return permutation
    return None


def _row_numbers(rows: Array | Colours) -> Colours:
    """Number rows, (n,), equal for equal rows."""
    number: dict[bytes, int] = {}
    return np.array([number.setdefault(row.tobytes(), len(number)) for row in rows])
