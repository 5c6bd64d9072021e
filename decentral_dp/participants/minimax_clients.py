"""The agents that answer a trusted coordinator's questions about a minimax problem, where their records are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.exchange import ClippedQuery
from decentral_dp.participants.clients import AnsweringBlock
from decentral_dp.participants.fixed_positions import block_size, blocks
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.problems.minimax.protocol import Minimax, Parametrised, summed_over
from decentral_dp.problems.records import take


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

    def of_one(self, row: int, number: int, questions: Mapping[str, ClippedQuery]) -> Iterator[tuple[str, Array]]:
        for rate in dict.fromkeys(q.rate for q in questions.values()):
            query = {name: q for name, q in questions.items() if q.rate == rate}
            yield from zip(query, self._summed(row, number, rate, query), strict=True)

    def _of(self, query: Mapping[str, ClippedQuery]) -> Minimax:
        """The problem, with the public parameters that come with the questions."""
        given = next(iter(query.values())).given
        if given is None or not isinstance(self.problem, Parametrised):
            return self.problem
        return self.problem.given(given)

    def _summed(self, row: int, number: int, rate: float, query: Mapping[str, ClippedQuery]) -> list[Array]:
        """Of one agent, over all its records or over a sample of them."""
        problem, records, queries = self._of(query), self.records[row], list(query.values())
        if rate == 1.0:
            return problem.sums(records, queries)
        n = len(records[0])
        coins = self.coins.at(row, number, tag("train")).random(n)
        places = blocks(coins < rate, block_size(n, rate, problem.p + problem.q))
        return summed_over(problem, ((take(records, block.rows), block.drawn) for block in places), queries)
