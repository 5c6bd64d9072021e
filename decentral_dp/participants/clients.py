"""Clipped sums over records, taken where the records are: what agents answer who are asked for sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Split
from decentral_dp.exchange import ClippedSum
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.problems.protocol import CHANGE, MATRICES, Problem, as_stacked, split_read, term_shapes
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
                records = self.records[split][row]
                if query.rate < 1.0:
                    coins = self.coins.generator(row, number, tag(split)).random(len(records[0]))
                    records = take(records, np.flatnonzero(coins < query.rate))
                batches[split, query.rate] = records
            yield name, self.clipped_sum(query, batches[split, query.rate])

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
        at_once, n = as_stacked(self.problem), len(batch[0])
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
            return np.zeros(term_shapes(problem.p, problem.q)[query.term])
        if query.term in MATRICES:
            return n * problem.matrices(query.x, query.y, query.along, batch, clip, (query.term,))[query.term]
        if query.term == CHANGE:
            total: Array = n * cast(Any, problem).change(query.x, query.y, query.along, batch, clip)
            return total
        z = np.zeros(problem.q) if query.along is None else query.along
        none = take(batch, slice(0))
        lower = query.term.startswith("lower_")
        train, validation = (batch, none) if lower else (none, batch)
        means = problem.terms(query.x, query.y, z, train, validation, clip, (query.term,))
        mean = getattr(means, query.term)
        return np.asarray(n * mean)
