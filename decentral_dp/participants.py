"""Participants: agents and their records, which only clipped and bounded queries may read.

A `Batch` is the set of records over which an agent's gradients average: all records so far, or a fresh minibatch. At
public points every query returns a `Bounded` that carries its sensitivity: a mean over N (public) contributions of norm
at most C changes by at most 2C/N, times the summation slack κ, if one record is replaced. A query that reads no record
returns a plain array. At a private point (a `Bounded` argument) the sensitivity is infinite.

A `ClientBlock` answers a coordinator with clipped sums, computed in the process of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from operator import index
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from decentral_dp.bounded import (
    MIXED,
    SPLITS,
    Array,
    Bounded,
    Sensitivity,
    Split,
    memory_slack,
    shared_zeros,
)
from decentral_dp.data.dataset import public_generator
from decentral_dp.data.streams import Draw, Sampling, draw_batch
from decentral_dp.exchange import ClippedSum, Value
from decentral_dp.privacy.clipping import RECORD, Clip, Unit, clip_factors, row_norms
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.problems.protocol import (
    CHANGE,
    CLIP_OF_TERM,
    MATRICES,
    TERMS,
    Problem,
    as_stacked,
    public_part,
    regulariser_change,
    split_read,
    term_shapes,
)
from decentral_dp.problems.records import (
    concatenate,
    count_records,
    join_blocks,
    join_records,
    regulariser_matrices,
    stacked_by_count,
    take,
)
from decentral_dp.problems.statistics import statistics_width
from decentral_dp.topology.over_time import OverTime

Question = TypeVar("Question", contravariant=True)
Records = Mapping[Split, Sequence[Any]]
# Largest number of floats in the copied points at which records are evaluated together.
_NUMBERS = 2**16


class AnsweringBlock(Protocol[Question]):
    """Base class of blocks of agents that answer a coordinator's questions.

    Attributes:
        agents: indices of the agents, (b,).
    """

    agents: NDArray[np.int64]

    def sums_of_agent(self, row: int, number: int, questions: Mapping[str, Question]) -> Iterator[tuple[str, Array]]:
        """Yield the name of each question and the sum of one agent's clipped contributions, (d,), in any order."""
        ...

    def answer(self, number: int, questions: Mapping[str, Question]) -> dict[str, Array]:
        """Sum the agents' clipped contributions.

        Args:
            number: index of the `Ask` exchange in the run.
            questions: queries by name.

        Returns:
            Query → sums (b, …), in the order of the agents. A contribution that overflows counts as zero.
        """
        parts: dict[str, list[Array]] = {name: [] for name in questions}
        with np.errstate(all="ignore"):
            for row in range(self.agents.size):
                for name, total in self.sums_of_agent(row, number, questions):
                    parts[name].append(total)
        return {name: np.stack(totals) for name, totals in parts.items()}


@dataclass(frozen=True, eq=False)
class ClientBlock(AnsweringBlock[ClippedSum]):
    """Block of agents that answer with clipped sums.

    Args:
        agents: indices of the agents, (b,).
        problem: problem that evaluates the terms.
        records: split → records of each agent.
        clip: clipping norms.
        coins: keyed Bernoulli draws for Poisson samples.
    """

    agents: NDArray[np.int64]
    problem: Problem
    records: Records
    clip: Clip
    coins: Streams

    def hand_over(self) -> list[tuple[Any, Any]]:
        """Return every agent's (train, validation) records."""
        return list(zip(self.records["train"], self.records["validation"], strict=True))

    def sums_of_agent(self, row: int, number: int, questions: Mapping[str, ClippedSum]) -> Iterator[tuple[str, Array]]:
        """Yield each question's name and clipped sum, with one Poisson sample per split, rate and block."""
        batches: dict[tuple[Split, float, tuple[int, int] | None], Any] = {}
        for name, query in questions.items():
            split = split_read(query.term, self.problem.reads_records)
            key = (split, query.rate, query.block)
            if key not in batches:
                records = self.records[split][row]
                if query.block is not None:
                    records = take(records, slice(query.block[0], None, query.block[1]))
                if query.rate < 1.0:
                    coins = self.coins.generator(row, number, tag(split)).random(len(records[0]))
                    records = take(records, np.flatnonzero(coins < query.rate))
                batches[key] = records
            yield name, self.clipped_sum(query, batches[key])

    def clipped_sum(self, query: ClippedSum, batch: Any) -> Array:
        """Sum the clipped contributions of these records. The records of a Poisson sample are evaluated one by one.

        Args:
            query: query. A rate below 1 indicates a Poisson sample.
            batch: records, of which there may be none.

        Returns:
            times · Σ_i clip(v_i, C/times), (d,).
        """
        # times · v, clipped to C, is times · (v clipped to C/times).
        clip = self.clip.divide(query.times)
        if query.rate == 1.0:
            return query.times * self._contributions(query, batch, clip)
        # Record by record, since the rounding of matrix products depends on the index in the batch. At a jump of a
        # derivative, one such bit changes a whole contribution, so a drawn record would change those of others.
        total = self._contributions(query, take(batch, slice(0)), clip)
        for row in self._record_contributions(query, batch, clip):
            total = total + row
        return query.times * total

    def _record_contributions(self, query: ClippedSum, batch: Any, clip: Clip) -> Iterator[Array]:
        """Yield the contribution of each record, bitwise as in a batch of one."""
        at_once, n = as_stacked(self.problem), len(batch[0])
        if at_once is None or query.term in MATRICES or query.term == CHANGE:
            yield from (self._contributions(query, take(batch, slice(k, k + 1)), clip) for k in range(n))
            return
        # Treat every record as the only one of an agent.
        z = np.zeros(self.problem.q) if query.along is None else query.along
        step = max(1, _NUMBERS // max(1, query.x.size + query.y.size))
        for part in (take(batch, slice(first, first + step)) for first in range(0, n, step)):
            single = type(part)(*(column.reshape(len(column), 1, *column.shape[1:]) for column in part))
            x, y, along = (np.tile(v, (len(part[0]), 1)) for v in (query.x, query.y, z))
            yield from getattr(at_once.stacked_terms(x, y, along, single, clip, (query.term,)), query.term)

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


# Largest number of draws in one round with separate keys.
_DRAWS = 2**16
# Split, size of the pool, size of the batch, keyed generator → a minibatch.
DrawBatch = Callable[[Split, int, int, np.random.Generator], Draw]


def record_weights(counts: Mapping[Split, NDArray[np.int64]]) -> dict[Split, Array]:
    """Return weights w_i = m·N_i/N, for which the mean of w_i times agent i's mean is the mean over all records.

    Args:
        counts: split → public numbers of records N_i, (m,).

    Returns:
        Split → w, (m,), of the splits with records.

    Sensitivity:
        w_i·2C/N_i = 2C·m/N for every agent, as for an even partition of the N records of the split.

    Example:
        >>> {k: w.tolist() for k, w in record_weights({"train": np.array([10, 20, 30])}).items()}
        {'train': [0.5, 1.0, 1.5]}
    """
    return {k: np.asarray(n * (n.size / n.sum())) for k, n in counts.items() if n.any()}


def other_weight(weights: Mapping[Split, Array], split: Split) -> Array | float:
    """Return the weight of the other split in units of the weight of this one, (b,); 0 without such weights.

    A noiseless state that sums means of both splits is larger, and rounded more, by this ratio (docs/proofs/02).
    """
    others = [w / weights[split] for k, w in weights.items() if k != split and split in weights]
    return others[0] if others else 0.0


class Network(NamedTuple):
    """Public facts about the network: its mixing weights and its public randomness.

    Args:
        mixing: mixing matrix W, (m, m). Its rows, or for a directed graph its columns, sum to one. For a time-varying
            network, it contains the edges of all rounds.
        seed: seed of public randomness: the scenario's seed, or 0 if the noise is secret.
        over_time: changes of the network by round, or None for a fixed network.

    Example:
        >>> path = sp.csr_array(np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]]))
        >>> network = Network(path, seed=1)
        >>> network.n_agents, network.neighbours(1).tolist(), network.neighbours(2).tolist()
        (3, [0, 2], [1])
        >>> bool(network.public_rng(0).random() == network.public_rng(0).random())
        True
        >>> bool(network.public_rng(0, agent=0).random() == network.public_rng(0, agent=1).random())
        False
    """

    mixing: sp.csr_array
    seed: int = 0
    over_time: OverTime | None = None

    @property
    def n_agents(self) -> int:
        """Number of agents m."""
        return int(self.mixing.shape[0])

    def links(self, t: int | None = None) -> NDArray[np.int64]:
        """Return the pairs i < j between which messages are sent, (E, 2), in ascending order.

        Args:
            t: round; None (the default) means any round.
        """
        weights = self.mixing if self.over_time is None or t is None else self.over_time.sent_weights(t)
        ends = np.sort(np.stack(weights.nonzero(), axis=1), axis=1).astype(np.int64)
        return np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)

    def online(self, t: int) -> NDArray[np.bool_] | None:
        """Return whether each agent is online in round t, (m,), or None if all agents are always online."""
        return None if self.over_time is None else self.over_time.online(t)

    def neighbours(self, agent: int) -> NDArray[np.int64]:
        """Return the indices of an agent's neighbours, (k,), in ascending order.

        Args:
            agent: index of the agent.
        """
        return self.neighbours_of(np.array([agent]))

    def neighbours_of(self, agents: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the neighbours of several agents as one array (k,), in ascending order for each agent.

        Args:
            agents: indices of the agents, (n,).
        """
        rows = self.mixing[agents].tocoo()
        real = (rows.data != 0.0) & (rows.col != agents[rows.row])
        order = np.lexsort((rows.col[real], rows.row[real]))
        return np.asarray(rows.col[real][order], dtype=np.int64)

    def public_rng(self, t: int, agent: int | None = None) -> np.random.Generator:
        """Return the public randomness of round t, which is the same for every agent, block and engine.

        The scenario's public seed (0 with secret noise) determines it, and it provides no privacy. It may be used to
        select active agents or coordinates, or to round values.

        Args:
            t: round.
            agent: index of an agent that needs separate public randomness. None (the default) means that all agents
                share it.
        """
        if agent is None:
            return public_generator(self.seed, "algorithm", t)
        return public_generator(self.seed, "algorithm of an agent", t, agent)


class Directions(NamedTuple):
    """Means over the records of each row, with q, q, p, q and p columns. Lower terms include the regulariser."""

    lower_grad_y: Value
    lower_hvp: Value
    lower_jvp: Value
    upper_grad_y: Value
    upper_grad_x: Value


class LocalDataset:
    """Block of b agents with their records and the public facts about them.

    Attributes:
        agents: indices of the agents, (b,).
        network: public facts of all agents.
        neighbour_weight: total weight |w_ii| of the neighbours, (b, 1).
        kept_weight: share of an agent's value that the agent keeps, (b, 1).
        counts: split → public numbers of records, (b,).
        p: number of coordinates of x.
        q: number of coordinates of y and z.
        weights: split → public factors of the means over records, (b,). It is empty if all agents have equal weight.
    """

    def __init__(
        self,
        agents: NDArray[np.int64],
        problem: Problem,
        records: Mapping[Split, Sequence[Any]],
        neighbour_weight: Array,
        sampling: Sampling,
        clip: Clip,
        batches: Streams,
        network: Network | None = None,
        unit: Unit = RECORD,
        kept_weight: Array | None = None,
        weights: Mapping[Split, Array] = MappingProxyType({}),
    ) -> None:
        self.agents = agents
        # Without a network agents have no neighbours.
        self.network = network or Network(sp.csr_array((int(agents.max()) + 1,) * 2))
        self.p, self.q = problem.p, problem.q
        self.neighbour_weight = neighbour_weight[:, None]
        self.kept_weight = (1.0 - neighbour_weight if kept_weight is None else kept_weight)[:, None]
        self.counts = {k: count_records(records[k]) for k in SPLITS}
        self.weights = dict(weights)
        self._problem = problem
        self._records = records
        self._stream, self._picks = sampling, sampling.picks
        self._clip = clip
        self._batches = batches
        self._unit = unit
        self._draw: DrawBatch | None = None
        # Cached, since a protocol check takes as long as a small round.
        self._stackable = as_stacked(problem)
        self._steepening = problem if hasattr(problem, "largest_x") else None
        self._joins: bool = getattr(problem, "joins_agents", False)
        self._reads = dict(problem.reads_records)
        self._stacks: dict[Split, list[tuple[NDArray[np.int64] | slice, Any]]] = {}
        # Caches that are valid as long as the numbers of averaged records stay the same.
        self._averaged_at = -1
        self._averaged: dict[Split, NDArray[np.int64]] = {}
        self._groups_of: dict[Split, tuple[NDArray[np.int64], list[Group]]] = {}
        self._sensitivities: dict[str, Sensitivity] = {}
        self._full_batch: Batch | None = None
        # Cyclic batches: agent and split → public order of the records.
        self._orders: dict[tuple[int, Split], NDArray[np.int64]] = {}

    @classmethod
    def join(cls, parts: Sequence[LocalDataset], agents: NDArray[np.int64], network: Network) -> LocalDataset:
        """Join blocks with the same problem, sampling and clipping norms into one block of another network."""
        first = parts[0]
        return cls(
            agents,
            first._problem,
            {k: join_blocks([part._records[k] for part in parts]) for k in SPLITS},
            np.concatenate([part.neighbour_weight for part in parts])[:, 0],
            first._stream,
            first._clip,
            Streams.join([part._batches for part in parts]),
            network,
            first._unit,
            np.concatenate([part.kept_weight for part in parts])[:, 0],
            {k: np.concatenate([part.weights[k] for part in parts]) for k in first.weights},
        )

    def public_rng(self, t: int, agent: int | None = None) -> np.random.Generator:
        """Return public randomness of round t (see `Network.public_rng`)."""
        return self.network.public_rng(t, agent)

    def public(self, value: float, dimension: int) -> Array:
        """Return a start in which every coordinate has the same value.

        Args:
            value: value of every coordinate.
            dimension: dimension of the variable.

        Returns:
            The start, (b, dimension).
        """
        return np.full((self.agents.size, dimension), float(value))

    def start(self, channel: str, constants: Mapping[str, float]) -> Array:
        """Return the start of all agents: a constant plus the problem's public start.

        Args:
            channel: name of the variable, "x", "y" or "z".
            constants: channel → constant of its start. The default is 0.

        Returns:
            The start, (b, p) for x and (b, q) otherwise.
        """
        start = self.public(constants.get(channel, 0.0), self.p if channel == "x" else self.q)
        weights: Array | None = self._problem.start.get(channel) if hasattr(self._problem, "start") else None
        return start if weights is None else start + weights

    def within_steps(self, x: Value, step: float) -> Value:
        """Clip a public x to the range in which step·‖∇²_yy R‖ ≤ 1, so that steps of this size are stable.

        This is post-processing. An x that depends on records is returned unchanged.
        """
        if self._steepening is None or isinstance(x, Bounded) or step <= 0.0:
            return x
        largest: float = self._steepening.largest_x(1.0 / step)
        return np.minimum(x, largest)

    def project(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Project each row of x and y onto the sets of the problem. They are returned unchanged if there are no sets.

        Args:
            x: public upper variables, (b, p).
            y: public lower variables, (b, q).
        """
        return self._problem.project(x, y) if hasattr(self._problem, "project") else (x, y)

    def reads_records(self, channel: str) -> bool:
        """Return whether any term of this channel reads records."""
        return any(CLIP_OF_TERM[term] == channel for term in self._reads)

    def constant_state(self, value: Array) -> Bounded:
        """Return a private state (b, …) that has not read any record yet, with sensitivity 0."""
        zero = Sensitivity(np.zeros(self.agents.size), np.ones(self.agents.size), None)
        return Bounded(value, np.zeros_like(value), dict.fromkeys(SPLITS, zero), self._clip.norm)

    def remembered_state(self, t: int, value: Value) -> Value:
        """Return a noiseless state with the sensitivity that float64 rounding adds in each round.

        Args:
            t: round.
            value: state, (b, …). A plain array is returned unchanged.
        """
        if not isinstance(value, Bounded):
            return value
        sensitivities = {}
        for k, s in value.sensitivities.items():
            counts = self._stream.averaged_counts(t, self.counts[k])
            slack = memory_slack(counts * np.maximum(1.0, other_weight(self.weights, k)))
            sensitivities[k] = s._replace(sensitivity=s.sensitivity * slack)
        return replace(value, sensitivities=sensitivities)

    def local_steps(self, t: int, x: Value, y: Value, number: int, step: float) -> Value:
        """Take local noiseless steps from a public point, and return each agent's total change clipped as one vector.

        The steps are y_0 = y, y_{j+1} = y_j − step·∇_y g(x, y_j), over the records of round t or over a fresh minibatch
        in each step. The result is y_number − y, clipped to clip.y. Gradients of individual records are not clipped.

        Args:
            t: round.
            x: public upper variables, (b, p).
            y: public lower variables, (b, q).
            number: number of steps.
            step: learning rate.

        Sensitivity:
            2Cκ to all records of an agent, or C(2κ − 1) for zero-out, without amplification. It is infinite to a record
            or a group of records (docs/proofs/36).

        Limits:
            A difference that is not finite counts as 0.
        """
        if isinstance(x, Bounded) or isinstance(y, Bounded):
            raise TypeError("local_steps: the initial point depends on records. Fix: release it first.")
        split, norm = self._reads.get("lower_grad_y"), self._clip.norm
        point = y
        with np.errstate(all="ignore"):
            for k in range(number):
                point = point - step * _plain_value(self._batch_of(t, k, False, Clip(norm)).lower_grad_y(x, point))
            change = point - y
            if split is None:
                return change
            norms = row_norms(change, norm)
            change = np.where(np.isfinite(norms)[:, None], change, 0.0)
        clip = self._clip.at(t).bound("y")
        change = clip_factors(norms, clip)[:, None] * change
        bound = np.full(self.agents.size, self._unit.block_sensitivity(clip, self.q))
        sensitivities = {split: Sensitivity(bound, np.ones(self.agents.size), None)}
        return Bounded(np.zeros_like(change), change, sensitivities, norm)

    def batch(self, t: int, draw: int = 0, kept: bool = False) -> Batch:
        """Return the records of round t, or a fresh minibatch for every value of `draw`.

        Args:
            t: round.
            draw: number of the draw in this round.
            kept: whether a state retains results beyond the first release, so that sampling does not amplify privacy.

        Raises:
            TypeError: t or draw is not an integer.
            ValueError: t or draw is out of range.
        """
        # Keyed draws truncate: t = 0.5 would read the minibatch of round 0 under another number.
        t, draw = index(t), index(draw)
        if t < 0 or not 0 <= draw < _DRAWS:
            raise ValueError(
                f"batch: out of range (got t = {t} and draw = {draw}, expected t ≥ 0 and 0 ≤ draw < {_DRAWS}). Fix: "
                "number rounds and draws from 0."
            )
        return self._batch_of(t, draw, kept, self._clip.at(t))

    def _batch_of(self, t: int, draw: int, kept: bool, clip: Clip) -> Batch:
        counts = self.averaged_counts(t)
        # Records and sensitivities do not change between rounds as long as the clip and the counts do not.
        repeats = self._stream.kind == "full" and clip is self._clip
        if repeats and self._full_batch is not None:
            return self._full_batch

        def records_of(split: Split, row: int) -> tuple[Any, float]:
            records, n = self._records[split][row], int(counts[split][row])
            if self._picks:
                minibatch = self._minibatch(t, row, split, n, draw)
                return take(records, minibatch.index), minibatch.rate
            if coins:
                # Keyed, so that a second query reads the same sample.
                tosses = self._batches.generator(row, t, tag(f"{split}/poisson/{draw}")).random(n)
                rate = float(self._stream.rate(t, n))
                return take(records, np.flatnonzero(tosses < rate)), rate
            return take(records, slice(0, n)), 1.0

        fresh, coins = self._stream.kind in ("fixed_batch", "poisson"), self._stream.kind == "poisson"
        draw_number = (MIXED if kept else t * _DRAWS + draw) if fresh else None
        groups = partial(self._groups, t, draw=draw) if self._stackable is not None and not coins else None
        block = ClientBlock(self.agents, self._problem, self._records, clip, self._batches) if coins else None
        sensitivities = {} if fresh or clip is not self._clip else self._sensitivities
        facts = (counts, draw_number, groups, self._unit, block, sensitivities, self.weights)
        batch = Batch(self._problem, clip, records_of, *facts)
        self._full_batch = batch if repeats else None
        return batch

    def feature_mean(self) -> Bounded:
        """Compute the mean of the features over all train records, (b, p), for problems that use this mean.

        Sensitivity:
            2Cκ/N times the weight of the agent, without amplification, where N is the number of records.
        """
        problem: Any = self._problem
        return self._mean_of_all("x", self.p, lambda rows, records, clip: problem.feature_mean(records, clip))

    def statistics(self, centre: Array | None = None) -> Bounded:
        """Compute the mean sufficient statistics of all train records (`problems.statistics`), for least squares.

        Args:
            centre: public number subtracted from the labels, (b, 1). With None (the default), only the mean label is
                computed.

        Returns:
            Mean statistics, (b, width).

        Sensitivity:
            As for `feature_mean`, with the clipping norm clip.y.

        Raises:
            TypeError: the centre depends on records.
        """
        if isinstance(centre, Bounded):
            raise TypeError("statistics: the centre depends on records. Fix: release it first.")
        problem: Any = self._problem

        def mean(rows: Any, records: Any, clip: Clip) -> Array:
            return np.asarray(problem.statistics(records, clip, None if centre is None else centre[rows]))

        return self._mean_of_all("y", statistics_width(self.q), mean)

    def _mean_of_all(self, family: str, width: int, of_stack: Callable[[Any, Any, Clip], Array]) -> Bounded:
        """Average a vector over all train records, (b, width), by stacks of agents with equal counts."""
        mean = np.zeros((self.agents.size, width))
        stacks = self._stacks.get("train") or stacked_by_count(self._records["train"], self.counts["train"])
        clip = self._clip.at(0)
        for rows, records in stacks:
            mean[rows] = of_stack(rows, records, clip)
        rates, clip_bound = np.ones(self.agents.size), clip.bound(family)
        sensitivity = mean_sensitivity(clip_bound, self.counts["train"], width, rates, None, self._unit)
        value = Bounded(np.zeros_like(mean), mean, {"train": sensitivity}, self._clip.norm)
        return self.weights["train"][:, None] * value if self.weights else value

    def oracle(self, t: int, x: Value, y: Value, z: Value) -> Directions:
        """Evaluate all directions at (x, y, z) over the records that are available in round t.

        Args:
            t: round.
            x: upper variables, (b, p).
            y: lower variables, (b, q).
            z: vectors of the products, (b, q).

        Sensitivity:
            At public points it is 2Cκ/N per term. A term at a private point is private as a whole. Its sensitivity is
            infinite unless the point does not depend on any record yet. Sampling does not amplify its privacy, and its
            minibatch cannot amplify another release.
        """
        private = [v for v in (x, y, z) if isinstance(v, Bounded)]
        batch = self.batch(t, kept=bool(private))
        directions = batch.directions(x, y, z)
        if not private:
            return directions
        is_insensitive = {k: np.all([v.sensitivities[k].sensitivity == 0.0 for v in private], axis=0) for k in SPLITS}
        unread = Sensitivity(np.zeros(self.agents.size), np.ones(self.agents.size), batch._draw_number)
        out: list[Value] = []
        for term, direction in zip(TERMS, cast(tuple[Bounded, ...], directions), strict=True):
            sensitivities: dict[Split, Sensitivity] = {}
            for split in SPLITS:
                is_read = self._reads.get(term) == split
                read = batch._sensitivity(term, split, direction.private.shape[1]) if is_read else unread
                bound = np.where(is_insensitive[split], read.sensitivity, np.inf)
                sensitivities[split] = read._replace(sensitivity=bound)
            out.append(replace(direction, sensitivities=sensitivities))
        return Directions(*out)

    def _groups(self, t: int, split: Split, draw: int = 0) -> list[Group]:
        """Return the records of this round, in groups of agents with equal numbers of records, or joined."""
        counts = self.averaged_counts(t)[split]
        cached_counts, groups = self._groups_of.get(split, (None, []))
        if cached_counts is counts and not self._picks:
            return groups
        if self._joins and not self._picks and (counts != counts[:1]).any():
            self._groups_of[split] = counts, [self._join(split, counts)]
            return self._groups_of[split][1]
        if split not in self._stacks:
            self._stacks[split] = stacked_by_count(self._records[split], self.counts[split])
        groups = []
        for rows, records in self._stacks[split]:
            members, n = np.arange(self.agents.size)[rows], int(counts[rows][0])
            if not self._picks:
                groups.append(Group(rows, type(records)(*(a[:, :n] for a in records)), np.ones(members.size)))
                continue
            draws = [self._minibatch(t, int(row), split, n, draw) for row in members]
            chosen, member_index = np.stack([draw.index for draw in draws]), np.arange(members.size)[:, None]
            stack = type(records)(*(a[member_index, chosen] for a in records))
            groups.append(Group(rows, stack, np.array([draw.rate for draw in draws])))
        self._groups_of[split] = counts, groups
        return groups

    def _join(self, split: Split, counts: NDArray[np.int64]) -> Group:
        """Join the first records of all agents."""
        records, n = concatenate(self._records[split]), self.counts[split]
        if (counts < n).any():
            index = np.arange(n.sum()) - (np.cumsum(n) - n).repeat(n)
            records = take(records, np.flatnonzero(index < counts.repeat(n)))
        return Group(slice(None), join_records(records, counts), np.ones(counts.size))

    def averaged_counts(self, t: int) -> dict[Split, NDArray[np.int64]]:
        """Return split → number of records in each agent's average in round t, (b,). Unchanged arrays are reused."""
        if t != self._averaged_at and not (self._averaged and self._stream.kind != "streaming"):
            # Problems with one level have no validation records.
            counts_by_split = {k: self._stream.averaged_counts(t, n) for k, n in self.counts.items() if n.any()}
            cached_counts = self._averaged
            if not cached_counts or not all(np.array_equal(cached_counts[k], n) for k, n in counts_by_split.items()):
                self._averaged, self._sensitivities = counts_by_split, {}
                for counts in counts_by_split.values():
                    # Returned more than once.
                    counts.flags.writeable = False
        self._averaged_at = t
        return self._averaged

    def _minibatch(self, t: int, row: int, split: Split, n: int, draw_number: int) -> Draw:
        """Draw the records of a row at round t, with a key, so that a second query reads the same records.

        They are evaluated in the order of the draw, as accounting assumes (docs/proofs/10). Cyclic batches follow a
        public order.
        """
        if self._stream.kind == "cyclic":
            size, key = int(self.counts[split][row]), (int(self.agents[row]), split)
            if key not in self._orders:
                generator = public_generator(self.network.seed, f"turns/{split}", key[0])
                self._orders[key] = generator.permutation(size)
            return Draw(self._orders[key][(t * n + np.arange(n)) % size], 1.0)
        generator = self._batches.generator(row, t, tag(f"{split}/{draw_number}" if draw_number else split))
        if self._draw is None:
            return draw_batch(int(self.counts[split][row]), n, generator)
        return self._draw(split, int(self.counts[split][row]), n, generator)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_full_batch": None}

    def with_sampler(self, draw: DrawBatch) -> LocalDataset:
        """Return the same block with another minibatch sampler, for audits."""
        dataset = copy(self)
        dataset._draw = draw
        return dataset


class Group(NamedTuple):
    """Agents with equal numbers of records, or agents whose records are joined.

    Attributes:
        rows: rows of the block.
        records: arrays (g, n, …), or arrays joined by `join_records`.
        rates: sampling rates as stated by the sampler, (g,).
    """

    rows: NDArray[np.int64] | slice
    records: Any
    rates: Array


@dataclass(eq=False, repr=False)
class Batch:
    """Records of each agent and split, with one query for each clipped mean.

    Every query takes x (b, p), y (b, q) and, for some terms, one more array. Each may be a `Bounded`, but
    then no finite sensitivity is proven. A query that reads records returns a `Bounded` with the norm `clip.norm`. Any
    other query returns a plain array.

    Args:
        _problem: problem that evaluates the terms.
        _clip: clipping norms of the round.
        _draw: function (split, row) → records, and the sampling rate as the sampler states it.
        _counts: split → number of averaged records, (b,).
        _draw_number: identifier of a fresh batch; None without sampling, MIXED if a state keeps it, without
            amplification.
        _make_groups: function split → all rows, in groups of equally many records, for a `Stacked` problem.
        _unit: unit of privacy.
        _client_block: block that evaluates the records of a Poisson sample one by one. Then `_counts` is the pool, and
            a mean is a sum over the sample divided by qN.
        _sensitivities: term → sensitivity, for the terms computed so far.
        _weights: split → public factors of the means, (b,). It is empty if all agents have equal weight.
    """

    _problem: Problem
    _clip: Clip
    _draw: Callable[[Split, int], tuple[Any, float]]
    _counts: Mapping[Split, NDArray[np.int64]]
    _draw_number: int | None
    _make_groups: Callable[[Split], list[Group]] | None
    _unit: Unit
    _client_block: ClientBlock | None
    _sensitivities: dict[str, Sensitivity]
    _weights: Mapping[Split, Array] = field(default_factory=dict)
    _records_by_split: dict[Split, list[tuple[Any, float]]] = field(default_factory=dict, init=False)
    _stacks: dict[Split, list[Group]] = field(default_factory=dict, init=False)

    @property
    def _rows(self) -> int:
        return len(self._counts["train"])

    def lower_grad_y(self, x: Value, y: Value) -> Value:
        """Compute ∇_y g, (b, q)."""
        return self._term("lower_grad_y", x, y, None)

    def lower_hvp(self, x: Value, y: Value, along: Value) -> Value:
        """Compute ∇²_yy g · along, (b, q)."""
        return self._term("lower_hvp", x, y, along)

    def lower_jvp(self, x: Value, y: Value, along: Value) -> Value:
        """Compute ∇²_xy g · along, (b, p)."""
        return self._term("lower_jvp", x, y, along)

    def lower_grad_x_change(self, x: Value, y: Value, other: Value, times: float = 1.0) -> Value:
        """Compute times · (∇_x g(x, y) − ∇_x g(x, other)), (b, p). Each record's term, with `times`, is clipped."""
        if self._client_block is not None:
            raise ValueError("differences of gradients are not supported for Poisson samples")
        problem: Any = self._problem
        points = [_plain_value(v) for v in (x, y, other)]
        mean = None
        if "lower_jvp" in problem.reads_records:
            clip, records = self._clip.divide(times), self._records(split_read(CHANGE, problem.reads_records))
            rows = zip(*points, records, strict=True)
            mean = np.stack([times * problem.change(a, b, c, train, clip) for a, b, c, (train, _) in rows])
        public = times * regulariser_change(problem, *points)
        return self._bound_mean(CHANGE, public, mean, any(isinstance(v, Bounded) for v in (x, y, other)), points)

    def upper_grad_y(self, x: Value, y: Value) -> Value:
        """Compute ∇_y f, (b, q)."""
        return self._term("upper_grad_y", x, y, None)

    def upper_grad_x(self, x: Value, y: Value) -> Value:
        """Compute ∇_x f, (b, p)."""
        return self._term("upper_grad_x", x, y, None)

    def lower_hessian(self, x: Value, y: Value) -> Value:
        """Compute ∇²_yy g, (b, q·q), row by row."""
        return self._matrix("lower_hessian", x, y, None)

    def lower_jacobian(self, x: Value, y: Value) -> Value:
        """Compute ∇²_xy g, (b, p·q), row by row."""
        return self._matrix("lower_jacobian", x, y, None)

    def lower_hessian_product(self, x: Value, y: Value, matrix: Value) -> Value:
        """Compute ∇²_yy g · Z, row by row, for Z of shape (b, q·p)."""
        return self._matrix("lower_hessian_product", x, y, matrix)

    def directions(self, x: Value, y: Value, z: Value) -> Directions:
        """Compute all five terms at (x, y, z)."""
        private = any(isinstance(v, Bounded) for v in (x, y, z))
        points = [_plain_value(v) for v in (x, y, z)]
        public = (*self._problem.regulariser(*points), None, public_part(self._problem, "upper_grad_x", *points))
        means = self._means(TERMS, *points)
        return Directions(
            *(self._bound_mean(t, base, means.get(t), private, points) for t, base in zip(TERMS, public, strict=True))
        )

    def _term(self, term: str, x: Value, y: Value, along: Value | None) -> Value:
        private = any(isinstance(v, Bounded) for v in (x, y, along))
        # Without a direction, the third vector is unused.
        points = [_plain_value(v) for v in (x, y, y if along is None else along)]
        public = public_part(self._problem, term, *points)
        return self._bound_mean(term, public, self._means((term,), *points).get(term), private, points)

    def _means(self, terms: tuple[str, ...], x: Array, y: Array, z: Array) -> dict[str, Array]:
        """Return term → clipped mean over records, (b, ·), for terms that read records."""
        problem: Any = self._problem
        means: dict[str, Array] = {}
        for split in SPLITS:
            split_terms = tuple(term for term in terms if problem.reads_records.get(term) == split)
            if not split_terms:
                continue
            groups = [] if self._make_groups is None else self._groups(split)
            if len(groups) == 1 and isinstance(groups[0].rows, slice):
                # For large models even zeros are slow.
                means_of_terms = problem.stacked_terms(x, y, z, groups[0].records, self._clip, split_terms)
                means |= {term: getattr(means_of_terms, term) for term in split_terms}
                continue
            means |= {term: np.zeros((x if CLIP_OF_TERM[term] == "x" else y).shape) for term in split_terms}
            for rows, stack, _ in groups:
                group_terms = problem.stacked_terms(x[rows], y[rows], z[rows], stack, self._clip, split_terms)
                for term in split_terms:
                    means[term][rows] = getattr(group_terms, term)
            for row, (records, rate) in enumerate([] if groups else self._records(split)):
                for term, mean in self._row_means(split_terms, (x[row], y[row], z[row]), records, rate, row):
                    means[term][row] = mean
        return means

    def _row_means(
        self, terms: tuple[str, ...], point: tuple[Array, Array, Array], records: Any, rate: float, row: int
    ) -> Iterator[tuple[str, Array]]:
        if self._client_block is None:
            # No term of the other split is evaluated.
            terms_of_all = self._problem.terms(*point, records, records, self._clip, terms)
            yield from ((term, getattr(terms_of_all, term)) for term in terms)
            return
        for term in terms:
            # The contribution of a record must not depend on the other drawn records (docs/proofs/27).
            total = self._client_block.clipped_sum(ClippedSum(term, *point, rate), records)
            yield term, total / (rate * self._counts[self._problem.reads_records[term]][row])

    def _matrix(self, name: str, x: Value, y: Value, matrix: Value | None) -> Value:
        if self._client_block is not None:
            raise ValueError("matrices are not supported for Poisson samples")
        problem, split = self._problem, self._problem.reads_records.get(MATRICES[name])
        private = any(isinstance(v, Bounded) for v in (x, y, matrix))
        points = [_plain_value(v) for v in (x, y)]
        z = None if matrix is None else _plain_value(matrix).reshape(self._rows, problem.q, problem.p)
        exact = getattr(
            regulariser_matrices(problem, points[0], points[1], z),
            name.removeprefix("lower_hessian_").removeprefix("lower_"),
        )
        mean = None if split is None else np.zeros_like(exact).reshape(self._rows, -1)
        if split is not None and mean is not None:
            for row, (records, _) in enumerate(self._records(split)):
                along = None if z is None else z[row]
                matrices = problem.matrices(points[0][row], points[1][row], along, records, self._clip, (name,))
                mean[row] = matrices[name].reshape(-1)
        return self._bound_mean(name, exact.reshape(self._rows, -1), mean, private, points)

    def _bound_mean(
        self, term: str, public: Array | None, mean: Array | None, private: bool, points: Sequence[Array]
    ) -> Value:
        """Return a public part plus a mean over records, with the sensitivity of the mean."""
        if public is None:
            public = shared_zeros(points[0 if CLIP_OF_TERM[term] == "x" else 1].shape)
        if mean is not None and self._weights:
            mean = self._weights[split_read(term, self._problem.reads_records)][:, None] * mean
        if private:
            no_bound = Sensitivity(np.full(self._rows, np.inf), np.ones(self._rows), None)
            value = public if mean is None else public + mean
            return Bounded(np.zeros_like(value), value, dict.fromkeys(SPLITS, no_bound), self._clip.norm)
        if mean is None:
            return public
        split = split_read(term, self._problem.reads_records)
        if term not in self._sensitivities:
            self._sensitivities[term] = self._sensitivity(term, split, mean.shape[1])
        return Bounded(public, mean, {split: self._sensitivities[term]}, self._clip.norm)

    def _sensitivity(self, term: str, split: Split, width: int) -> Sensitivity:
        clip: float | Array = self._clip.bound(CLIP_OF_TERM[term])
        counts = self._counts[split]
        rates = np.ones(self._rows)
        if self._weights:
            clip = clip * self._weights[split]
        if self._draw_number is not None and self._make_groups is not None:
            # Stated sampling rates.
            for group in self._groups(split):
                rates[group.rows] = group.rates
        elif self._draw_number is not None:
            rates = np.array([rate for _, rate in self._records(split)])
        amplification = np.ones(self._rows) if self._draw_number == MIXED else rates
        if self._client_block is not None:
            sensitivity = self._unit.sampled_sensitivity(clip, counts, width, rates)
            return Sensitivity(sensitivity, amplification, self._draw_number, self._unit.sampling, clip / rates)
        return mean_sensitivity(clip, counts, width, amplification, self._draw_number, self._unit)

    def _groups(self, split: Split) -> list[Group]:
        """Return all rows in groups, drawn once."""
        if split not in self._stacks and self._make_groups is not None:
            self._stacks[split] = self._make_groups(split)
        return self._stacks[split]

    def _records(self, split: Split) -> list[tuple[Any, float]]:
        """Return records and rate of each row, drawn once."""
        if split not in self._records_by_split:
            self._records_by_split[split] = [self._draw(split, row) for row in range(self._rows)]
        return self._records_by_split[split]


def mean_sensitivity(
    bound: float | Array,
    counts: NDArray[np.int64],
    width: int,
    rates: Array,
    n_drawn: int | None,
    unit: Unit = RECORD,
) -> Sensitivity:
    """Bound the sensitivity of a mean of clipped contributions: 2Cκ/N for one replaced record.

    Args:
        bound: clipping norm C of a contribution, times the public factor of the mean, (b,) or a number.
        counts: number of averaged records N, (b,).
        width: number of coordinates of the mean.
        rates: sampling rates, (b,).
        n_drawn: number of the batch, `MIXED`, or None if there is no sampling.
        unit: unit of privacy. The default is one replaced record.
    """
    return Sensitivity(unit.sensitivity(bound, counts, width), unit.rate(rates), n_drawn, largest=bound)


def _plain_value(value: Value) -> Array:
    return value.value if isinstance(value, Bounded) else value
