"""Agents that answer a trusted coordinator: sums over Poisson samples, and records that agents read locally.

Every record of a minimax problem is evaluated at a fixed row of a block of fixed size. The rounding of a matrix product
depends on the position and the number of rows, and one bit can switch a ReLU at zero. One more record in a sample could
then change all other contributions, and clipping would not bound the change. Record i of an agent therefore uses row i
mod B of blocks with exactly B rows, with B public. Its contribution is a function of the record and of i, for any
sample. An unused row holds another record, with weight zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Split
from decentral_dp.central.problems.composite import Composite
from decentral_dp.central.problems.saddle import Minimax
from decentral_dp.exchange import ClippedQuery
from decentral_dp.participants import AnsweringBlock, ClientBlock
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.problems.records import take

# Fixed cost of a block, in weights of one row and in rows.
_OVERHEAD, _LEAST = 2_500_000, 40
_SIZES = (32, 64, 128, 256, 512, 1024)


def block_size(records: int, rate: float, weights: int) -> int:
    """Return the block size B with the lowest cost among a few candidates.

    Args:
        records: number of records of an agent.
        rate: sampling rate.
        weights: number of weights of the model, which determines the cost of a row.
    """

    def cost(size: int) -> float:
        # About the number of blocks of a sample: the largest of B binomial loads.
        load, spread = rate * records / size, math.log(size)
        blocks = math.ceil(min(records / size, load + math.sqrt(2.0 * load * spread) + spread / 3.0))
        return blocks * (_LEAST + _OVERHEAD / weights + size)

    return min([*(size for size in _SIZES if size < records), records], key=cost)


def record_blocks(is_sampled: NDArray[np.bool_], size: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield the blocks that contain every sampled record once.

    Args:
        is_sampled: whether a record is in the sample, (n,).
        size: B ≤ n.

    Yields:
        Indices of the records of a block, (B,), and whether each is in the sample, (B,).
    """
    numbers = np.flatnonzero(is_sampled)
    places = numbers % size
    # The k-th record of a row is in the k-th block.
    order = np.argsort(places, kind="stable")
    starts = np.searchsorted(places[order], np.arange(size))
    turn = np.empty_like(numbers)
    turn[order] = np.arange(numbers.size) - starts[places[order]]
    for k in range(int(turn.max(initial=-1)) + 1):
        in_block = turn == k
        rows, is_drawn = np.arange(size), np.zeros(size, dtype=np.bool_)
        rows[places[in_block]], is_drawn[places[in_block]] = numbers[in_block], True
        yield rows, is_drawn


def sum_over_parts(
    problem: Minimax, parts: Iterable[tuple[Any, NDArray[np.bool_] | None]], queries: Sequence[ClippedQuery]
) -> list[Array]:
    """Sum clipped contributions over records that are evaluated in parts.

    Args:
        problem: problem of the records.
        parts: records and mask of the sample of each evaluation.
        queries: queries of terms.

    Returns:
        The sum (width,) of each query.
    """
    if isinstance(problem, Composite) and type(problem).sums is Composite.sums:
        return problem.sums_over(parts, queries)
    totals = [np.zeros(problem.width(q.term)) for q in queries]
    for records, is_drawn in parts:
        for total, part_sum in zip(totals, problem.sums(records, queries, is_drawn), strict=True):
            total += part_sum
    return totals


@dataclass(frozen=True, eq=False)
class MinimaxClientBlock(AnsweringBlock[ClippedQuery]):
    """Block of agents of a minimax problem. The sample size is never sent, and sums are also sent for an empty sample.

    Args:
        agents: indices of the agents, (b,).
        problem: minimax problem.
        records: records of each agent.
        coins: Bernoulli draws of Poisson samples, keyed by agent.
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
        """Return the sums of one agent over all its records or over a sample of them."""
        problem, records, queries = self.problem, self.records[row], list(query.values())
        if queries[0].parameters is not None:
            # A program that sends parameters has verified that the problem has some.
            problem = cast(Any, problem).with_parameters(queries[0].parameters)
        if rate == 1.0:
            return problem.sums(records, queries)
        n = len(records[0])
        coins = self.coins.generator(row, number, tag("train")).random(n)
        blocks = record_blocks(coins < rate, block_size(n, rate, problem.p + problem.q))
        return sum_over_parts(problem, ((take(records, rows), is_drawn) for rows, is_drawn in blocks), queries)


@dataclass(eq=False)
class ReadingClients:
    """Block of agents that read their own records in the process of the block and never send them.

    Args:
        block: block of the agents, without records.
        read_records: function that returns the agents' records by split, without records for scores.
    """

    block: Any
    read_records: Callable[[], tuple[Mapping[Split, Any], Any]]

    @property
    def agents(self) -> NDArray[np.int64]:
        agents: NDArray[np.int64] = self.block.agents
        return agents

    @cached_property
    def _complete(self) -> Any:
        records, _ = self.read_records()
        return replace(self.block, records=records if isinstance(self.block, ClientBlock) else records["train"])

    def ready(self) -> int:
        """Read the records, and return the number of agents. Raises InputError if a file differs from the manifest."""
        return int(self._complete.agents.size)

    def answer(self, number: int, questions: Mapping[str, Any]) -> dict[str, Array]:
        """Return the agents' clipped sums, (b, …) each."""
        answers: dict[str, Array] = self._complete.answer(number, questions)
        return answers

    def hand_over(self) -> list[Any]:
        """Raise InputError, since the records stay with the agents."""
        raise TypeError("agents that read their own records hand over none")
