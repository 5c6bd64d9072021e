"""The agents that answer a trusted coordinator of a minimax problem.

Every record is evaluated always in the same place of a block of the same size. A product of
matrices rounds a row by its place and by how many rows there are, and a rectified unit at zero turns such a bit into a
whole gradient: one record more in a sample could then move what all others contribute, and no clip bounds that. So the
record with the number i of its agent stands in row i mod B of blocks of exactly B rows, B a public number. What it
contributes is a function of the record and of i, whoever else is drawn. Rows that nobody takes hold another record, and
count for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.exchange import ClippedQuery
from decentral_dp.participants import AnsweringBlock
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.problems.records import take
from decentral_dp.problems.saddle import Minimax

# What a block costs beside its rows: as much as this many weights of one row, and the products of a few rows.
_OVERHEAD, _LEAST = 2_500_000, 40
_SIZES = (32, 64, 128, 256, 512, 1024)


class RecordBlock(NamedTuple):
    """rows: (B,) numbers of the records that stand there. is_drawn: (B,) which of them count."""

    rows: NDArray[np.int64]
    is_drawn: NDArray[np.bool_]


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


def record_blocks(drawn: NDArray[np.bool_], size: int) -> Iterator[RecordBlock]:
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
        yield RecordBlock(rows, taken)


def sum_over_parts(
    problem: Minimax, parts: Iterable[tuple[Any, NDArray[np.bool_] | None]], queries: Sequence[ClippedQuery]
) -> list[Array]:
    """Sum over records that are evaluated apart.

    A class that overrides `sums` and inherits `sums_over` has changed its mathematics in one of two places: what it
    inherits is not used.

    Args:
        problem: of the records.
        parts: (records, which of them count) of each evaluation.
        queries: what is summed.

    Returns:
        (width,) for each query.
    """
    order = type(problem).__mro__
    single, over = (next((k for k, c in enumerate(order) if n in vars(c)), len(order)) for n in ("sums", "sums_over"))
    if over <= single and over < len(order):
        return cast(list[Array], cast(Any, problem).sums_over(parts, queries))
    totals = [np.zeros(problem.width(q.term)) for q in queries]
    for records, drawn in parts:
        for total, part_sum in zip(totals, problem.sums(records, queries, drawn), strict=True):
            total += part_sum
    return totals


@dataclass(frozen=True, eq=False)
class MinimaxClientBlock(AnsweringBlock[ClippedQuery]):
    """A block of agents of a minimax problem; how many records a sample has never leaves, sums go out also of none.

    Args:
        agents: (b,) their numbers.
        problem: whose terms are asked for.
        records: those of each agent.
        coins: for Poisson samples, keyed by agent.
    """

    agents: NDArray[np.int64]
    problem: Minimax
    records: Sequence[Any]
    coins: Streams

    def sums_of_agent(
        self, row: int, number: int, questions: Mapping[str, ClippedQuery]
    ) -> Iterator[tuple[str, Array]]:
        for rate in dict.fromkeys(q.rate for q in questions.values()):
            query = {name: q for name, q in questions.items() if q.rate == rate}
            yield from zip(query, self._sums(row, number, rate, query), strict=True)

    def _sums(self, row: int, number: int, rate: float, query: Mapping[str, ClippedQuery]) -> list[Array]:
        """Of one agent, over all its records or over a sample of them."""
        problem, records, queries = self.problem, self.records[row], list(query.values())
        if queries[0].parameters is not None:
            # The program that sends them has set them itself.
            problem = cast(Any, problem).with_parameters(queries[0].parameters)
        if rate == 1.0:
            return problem.sums(records, queries)
        n = len(records[0])
        coins = self.coins.generator(row, number, tag("train")).random(n)
        places = record_blocks(coins < rate, block_size(n, rate, problem.p + problem.q))
        return sum_over_parts(problem, ((take(records, block.rows), block.is_drawn) for block in places), queries)
