"""Symmetries of a network: permutations of agents that preserve all numbers attached to agents and edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def find_symmetries(agents: Sequence[NDArray[Any]], links: Sequence[NDArray[Any]]) -> list[NDArray[np.int64]]:
    """Find symmetries of networks whose agents are numbered regularly, as in rings, tori, hypercubes and stars.

    Candidates shift or reverse one digit of the agents' indices, or exchange two agents with successive indices. Every
    divisor pair q | Q of m gives a digit (i mod Q) div q. Each permutation is verified number by number.

    Args:
        agents: arrays of numbers attached to the agents, (m,) each.
        links: arrays of numbers attached to the edges from the second index to the first, (m, m) each.

    Returns:
        For each symmetry, the image of every agent, (m,).

    Example:
        >>> ring = np.roll(np.eye(5), 1, axis=1)
        >>> [image.tolist() for image in find_symmetries([np.ones(5)], [ring + ring.T])]
        [[1, 2, 3, 4, 0], [0, 4, 3, 2, 1]]
    """
    out = []
    for image in _candidates(len(links[0])):
        if all((numbers[image] == numbers).all() for numbers in agents) and all(
            (matrix[np.ix_(image, image)] == matrix).all() for matrix in links
        ):
            out.append(image)
    return out


def _candidates(m: int) -> Iterator[NDArray[np.int64]]:
    agent = np.arange(m)
    divisors = [q for q in range(1, m + 1) if m % q == 0]
    for size in divisors:
        for q in divisors:
            if size % q or q == size:
                continue
            digit, rest = agent % size // q, agent // size * size + agent % q
            yield rest + (digit + 1) % (size // q) * q
            if size > 2 * q:
                yield rest + -digit % (size // q) * q
    for i in range(m - 1):
        image = agent.copy()
        image[[i, i + 1]] = i + 1, i
        yield image
