"""Where the records of a sample are evaluated: every record always in the same place of a block of the same size.

A product of matrices rounds a row by its place and by how many rows there are, and a rectified unit at zero turns such
a bit into a whole gradient: one record more in a sample could then move what all others contribute, and no clip bounds
that. So the record with the number i of its agent stands in row i mod B of blocks of exactly B rows, B a public number.
What it contributes is a function of the record and of i, whoever else is drawn. Rows that nobody takes hold another
record, and count for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# What a block costs beside its rows: as much as this many weights of one row, and the products of a few rows.
_OVERHEAD, _LEAST = 2_500_000, 40
_SIZES = (32, 64, 128, 256, 512, 1024)


class Block(NamedTuple):
    """rows: (B,) numbers of the records that stand there. drawn: (B,) which of them count."""

    rows: NDArray[np.int64]
    drawn: NDArray[np.bool_]


def block_size(records: int, rate: float, weights: int) -> int:
    """B: the cheapest of a few sizes for so many records, this rate, and a row that costs what so many weights cost.

    All records are in one block where they are few, or rows are cheap.
    """
    sizes, overhead = [*(size for size in _SIZES if size < records), records], _LEAST + _OVERHEAD / weights
    return min(sizes, key=lambda size: _blocks(records, rate, size) * (overhead + size))


def _blocks(records: int, rate: float, size: int) -> int:
    """About how many blocks a sample takes: the largest of B binomial loads."""
    load, spread = rate * records / size, math.log(size)
    return math.ceil(min(records / size, load + math.sqrt(2.0 * load * spread) + spread / 3.0))


def blocks(drawn: NDArray[np.bool_], size: int) -> Iterator[Block]:
    """The blocks that hold every drawn record once. drawn: (n,). size: B ≤ n; none where nobody was drawn."""
    numbers = np.flatnonzero(drawn)
    places = numbers % size
    # The k-th of those that share a place goes to the k-th block.
    order = np.argsort(places, kind="stable")
    starts = np.searchsorted(places[order], np.arange(size))
    turn = np.empty_like(numbers)
    turn[order] = np.arange(numbers.size) - starts[places[order]]
    for k in range(int(turn.max(initial=-1)) + 1):
        mine = turn == k
        rows, taken = np.arange(size), np.zeros(size, dtype=np.bool_)
        rows[places[mine]], taken[places[mine]] = numbers[mine], True
        yield Block(rows, taken)
