"""The agents that answer a trusted coordinator: clipped sums over their records, taken where the records are.

Of a minimax problem every record is evaluated always in the same place of a block of the same size. A product of
matrices rounds a row by its place and by how many rows there are, and a rectified unit at zero turns such a bit into a
whole gradient: one record more in a sample could then move what all others contribute, and no clip bounds that. So the
record with the number i of its agent stands in row i mod B of blocks of exactly B rows, B a public number. What it
contributes is a function of the record and of i, whoever else is drawn. Rows that nobody takes hold another record, and
count for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Split
from decentral_dp.exchange import ClippedQuery, ClippedSum
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.problems.minimax.protocol import Minimax, Parametrised, sum_over_parts
from decentral_dp.problems.protocol import CHANGE, MATRICES, Changed, Problem, in_closed_form, sizes, split_read
from decentral_dp.problems.records import take

Question = TypeVar("Question", contravariant=True)
Records = Mapping[Split, Sequence[Any]]
# About as many copies of numbers of a point as records are evaluated at once.
_NUMBERS = 2**16


class AnsweringBlock(Protocol[Question]):
    """A block of agents that answer a coordinator's questions. agents: (b,) their numbers."""

    agents: NDArray[np.int64]

    def sums_of_agent(self, row: int, number: int, questions: Mapping[str, Question]) -> Iterator[tuple[str, Array]]:
        """The sum (d,) of one agent's clipped contributions to each question, in any order."""
        ...

    def answer(self, number: int, questions: Mapping[str, Question]) -> dict[str, Array]:
        """Sum the agents' clipped contributions.

        Args:
            number: of this `Ask` in the run.
            questions: by name.

        Returns:
            Question → (b, …), in the order of the agents. Overflow in a record's contribution is cut to zero by the
            clip, and no warning.
        """
        parts: dict[str, list[Array]] = {name: [] for name in questions}
        with np.errstate(all="ignore"):
            for row in range(self.agents.size):
                for name, total in self.sums_of_agent(row, number, questions):
                    parts[name].append(total)
        return {name: np.stack(totals) for name, totals in parts.items()}


@dataclass(frozen=True, eq=False)
class ClientBlock(AnsweringBlock[ClippedSum]):
    """A block of agents.

    Args:
        agents: (b,) their numbers.
        problem: whose terms are asked for.
        records: kind → those of each agent.
        clip: bounds of one record's contribution.
        coins: for Poisson samples, keyed by agent.
    """

    agents: NDArray[np.int64]
    problem: Problem
    records: Records
    clip: Clip
    coins: Streams

    def hand_over(self) -> list[tuple[Any, Any]]:
        """Every agent's (train, validation) records."""
        return list(zip(self.records["train"], self.records["validation"], strict=True))

    def sums_of_agent(self, row: int, number: int, questions: Mapping[str, ClippedSum]) -> Iterator[tuple[str, Array]]:
        batches: dict[tuple[Split, float], Any] = {}
        for name, query in questions.items():
            split = split_read(query.term, self.problem.reads_records)
            if (split, query.rate) not in batches:
                batches[split, query.rate] = self._draw_sample(row, number, split, query.rate)
            yield name, self.clipped_sum(query, batches[split, query.rate])

    def _draw_sample(self, row: int, number: int, split: Split, rate: float) -> Any:
        records = self.records[split][row]
        if rate == 1.0:
            return records
        coins = self.coins.generator(row, number, tag(split)).random(len(records[0]))
        return take(records, np.flatnonzero(coins < rate))

    def clipped_sum(self, query: ClippedSum, batch: Any) -> Array:
        """Sum the clipped contributions of these records; of a sample, of each as if it were alone.

        Args:
            query: the question; a rate below 1 says that the records are a Poisson sample.
            batch: the records, of which there may be none.

        Returns:
            (d,) times · Σ_i clip(v_i, C/times), of the width of the query.
        """
        # times · v, clipped to C, is times · (v clipped to C/times).
        clip = self.clip.divide(query.times)
        if query.rate == 1.0:
            return query.times * self._contributions(query, batch, clip)
        # One by one: products of matrices round a record by its place in a batch, and where a derivative jumps such a
        # bit is a whole contribution, so that being drawn would move what all others contribute.
        total = self._contributions(query, take(batch, slice(0)), clip)
        for row in self._record_contributions(query, batch, clip):
            total = total + row
        return query.times * total

    def _record_contributions(self, query: ClippedSum, batch: Any, clip: Clip) -> Iterator[Array]:
        """What each record adds, to the bit as if it were alone."""
        at_once, n = in_closed_form(self.problem), len(batch[0])
        if at_once is None or query.term in MATRICES or query.term == CHANGE:
            yield from (self._contributions(query, take(batch, slice(k, k + 1)), clip) for k in range(n))
            return
        # As many agents with one record each.
        z = np.zeros(self.problem.q) if query.along is None else query.along
        step = max(1, _NUMBERS // max(1, query.x.size + query.y.size))
        for part in (take(batch, slice(first, first + step)) for first in range(0, n, step)):
            alone = type(part)(*(column.reshape(len(column), 1, *column.shape[1:]) for column in part))
            x, y, along = (np.tile(v, (len(part[0]), 1)) for v in (query.x, query.y, z))
            yield from getattr(at_once.stacked_terms(x, y, along, alone, clip, (query.term,)), query.term)

    def _contributions(self, query: ClippedSum, batch: Any, clip: Clip) -> Array:
        problem, n = self.problem, len(batch[0])
        if not n:
            # A sample may be empty.
            return np.zeros(sizes(problem.p, problem.q)[query.term])
        if query.term in MATRICES:
            return n * problem.matrices(query.x, query.y, query.along, batch, clip, (query.term,))[query.term]
        if query.term == CHANGE:
            if not isinstance(problem, Changed) or query.along is None:
                raise ValueError(f"{CHANGE} needs a problem that knows it, and the point to compare with")
            return n * problem.change(query.x, query.y, query.along, batch, clip)
        z = np.zeros(problem.q) if query.along is None else query.along
        none = take(batch, slice(0))
        lower = query.term.startswith("lower_")
        train, validation = (batch, none) if lower else (none, batch)
        means = problem.terms(query.x, query.y, z, train, validation, clip, (query.term,))
        mean = getattr(means, query.term)
        return np.asarray(n * mean)


# What a block costs beside its rows: as much as this many weights of one row, and the products of a few rows.
_OVERHEAD, _LEAST = 2_500_000, 40
_SIZES = (32, 64, 128, 256, 512, 1024)


class Block(NamedTuple):
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


def record_blocks(drawn: NDArray[np.bool_], size: int) -> Iterator[Block]:
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

    def _with_parameters(self, query: Mapping[str, ClippedQuery]) -> Minimax:
        """The problem, with the public parameters that come with the questions."""
        parameters = next(iter(query.values())).parameters
        if parameters is None or not isinstance(self.problem, Parametrised):
            return self.problem
        return self.problem.with_parameters(parameters)

    def _sums(self, row: int, number: int, rate: float, query: Mapping[str, ClippedQuery]) -> list[Array]:
        """Of one agent, over all its records or over a sample of them."""
        problem, records, queries = self._with_parameters(query), self.records[row], list(query.values())
        if rate == 1.0:
            return problem.sums(records, queries)
        n = len(records[0])
        coins = self.coins.generator(row, number, tag("train")).random(n)
        places = record_blocks(coins < rate, block_size(n, rate, problem.p + problem.q))
        return sum_over_parts(problem, ((take(records, block.rows), block.is_drawn) for block in places), queries)
