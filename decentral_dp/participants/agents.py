"""The records of a block of agents, which only bounded queries read.

`LocalDataset.oracle` evaluates the five directions at given points. Every term that reads records comes back as a
`Bounded` that carries its own sensitivity: a mean over N records of contributions of norm at most C moves by at most
2C/N when one record is replaced (N public), times the summation slack κ. A term that reads none comes back as a plain
array.

A `Batch` is the set of records that gradients of an agent average over: all records so far, or a fresh minibatch. At
public points every query comes back as a `Bounded` whose sensitivity is 2Cκ/N, or as a plain array where it reads no
record. At a private point (a `Bounded` argument) nothing is proven: its sensitivity is infinite.

With `times`, a public number or one for each agent, (b, 1), a query is that of the problem times this: every record's
contribution is multiplied before it is clipped to C, so that it moves by 2Cκ/N as without. κ has room for two more
roundings of a contribution, those of C/times and of the product. To clip gradients to a size that follows what was
released, ask for `times = C/size`, and multiply what was released by size/C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

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
from decentral_dp.data.streams import Draw, Stream, draw_batch
from decentral_dp.exchange import ClippedSum, Value
from decentral_dp.participants.clients import ClientBlock
from decentral_dp.privacy.clipping import Clip, clip_factors, row_norms
from decentral_dp.privacy.randomness import Streams, tag
from decentral_dp.privacy.unit import RECORD, Unit
from decentral_dp.problems.protocol import CLIP_OF_TERM, MATRICES, TERMS, Problem, as_stacked, public_part
from decentral_dp.problems.records import count_records, regulariser_matrices, stacked_by_count, take
from decentral_dp.topology.over_time import OverTime

# Most draws of one round that have keys of their own.
_DRAWS = 2**16
# Kind, records of the pool, size, keyed generator → a minibatch.
DrawBatch = Callable[[Split, int, int, np.random.Generator], Draw]


class Network(NamedTuple):
    """What everybody knows of the network: who hears whom, with which weight, and public coins.

    Args:
        mixing: W, (m, m), its rows sum to one, of a directed graph its columns; where it changes, with every link that
            there may be.
        seed: of public coins: the scenario's, 0 where noise is secret.
        over_time: of what changes by round; default None.

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
        return int(self.mixing.shape[0])

    def links(self, t: int | None = None) -> NDArray[np.int64]:
        """Return (E, 2) the pairs i < j, ascending, between which a message is sent.

        Args:
            t: in which round; default None, in any.
        """
        weights = self.mixing if self.over_time is None or t is None else self.over_time.sent_weights(t)
        ends = np.sort(np.stack(weights.nonzero(), axis=1), axis=1).astype(np.int64)
        return np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)

    def online(self, t: int) -> NDArray[np.bool_] | None:
        """Return (m,) who is there in round t; None where everybody always is."""
        return None if self.over_time is None else self.over_time.online(t)

    def neighbours(self, agent: int) -> NDArray[np.int64]:
        """Return (k,) the numbers of an agent's neighbours, ascending.

        Args:
            agent: its number.
        """
        return self.neighbours_of(np.array([agent]))

    def neighbours_of(self, agents: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the neighbours of the first agent, ascending, then those of the second, and so on, in one (k,).

        Args:
            agents: (n,) their numbers.
        """
        rows = self.mixing[agents].tocoo()
        real = (rows.data != 0.0) & (rows.col != agents[rows.row])
        order = np.lexsort((rows.col[real], rows.row[real]))
        return np.asarray(rows.col[real][order], dtype=np.int64)

    def public_rng(self, t: int, agent: int | None = None) -> np.random.Generator:
        """Return public coins of round t: the same at every agent, in every block and on every engine.

        They follow from the scenario's seed, which is public (0 where noise is secret), and everybody knows them: they
        may decide who acts, which coordinates move or how a value is rounded, and hide nothing.

        Args:
            t: round.
            agent: whose coins, where every agent throws its own, which everybody knows as well; by default all share
                those of the round.
        """
        if agent is None:
            return public_generator(self.seed, "algorithm", t)
        return public_generator(self.seed, "algorithm of an agent", t, agent)


class Directions(NamedTuple):
    """Means over the records seen, row-wise: q, q, p, q and p columns. The lower terms include the regulariser's."""

    lower_grad_y: Value
    lower_hvp: Value
    lower_jvp: Value
    upper_grad_y: Value
    upper_grad_x: Value


class LocalDataset:
    """A block of b agents: their records, and what is public about them.

    agents: (b,) numbers. network: what is public of all agents. neighbour_weight: (b, 1) |w_ii|. kept_weight: (b, 1)
    share of what an agent has that it keeps, for no other hears it. counts: kind → (b,) public numbers of records.
    """

    def __init__(
        self,
        agents: NDArray[np.int64],
        problem: Problem,
        records: Mapping[Split, Sequence[Any]],
        neighbour_weight: Array,
        stream: Stream,
        clip: Clip,
        batches: Streams,
        network: Network | None = None,
        unit: Unit = RECORD,
        kept_weight: Array | None = None,
    ) -> None:
        self.agents = agents
        # Of agents that stand alone: nobody is their neighbour.
        self.network = network or Network(sp.csr_array((int(agents.max()) + 1,) * 2))
        self.p, self.q = problem.p, problem.q
        self.neighbour_weight = neighbour_weight[:, None]
        self.kept_weight = (1.0 - neighbour_weight if kept_weight is None else kept_weight)[:, None]
        self.counts = {k: count_records(records[k]) for k in SPLITS}
        self._problem = problem
        self._records = records
        self._stream, self._picks = stream, stream.picks
        self._clip = clip
        self._batches = batches
        self._unit = unit
        self._draw: DrawBatch = _drawn_afresh
        # Asked once: checking a protocol at run time costs as much as a small round.
        self._stackable = as_stacked(problem)
        self._public_grad_x = getattr(problem, "public_grad_x", None)
        self._steepening = problem if hasattr(problem, "largest_x") else None
        self._reads = dict(problem.reads_records)
        reading: dict[Split, list[str]] = {k: [t for t in TERMS if self._reads.get(t) == k] for k in SPLITS}
        self._terms_of = {k: terms for k, terms in reading.items() if terms}
        self._stacks: dict[Split, list[tuple[NDArray[np.int64] | slice, Any]]] = {}
        # What follows from how many records are averaged, kept for as long as that stays: beside its numbers.
        self._averaged_at = -1
        self._averaged: dict[Split, NDArray[np.int64]] = {}
        self._groups_of: dict[Split, tuple[NDArray[np.int64], list[Group]]] = {}
        self._spreads: tuple[Any, dict[str, dict[Split, Sensitivity]]] = None, {}
        self._all_of_pool = dict.fromkeys(SPLITS, _frozen(np.ones(agents.size)))
        # Of turns: agent and kind → the public order of its records.
        self._orders: dict[tuple[int, Split], NDArray[np.int64]] = {}

    def public_rng(self, t: int, agent: int | None = None) -> np.random.Generator:
        """Public coins of round t: the same at every agent, in every block and on every engine; see `Network`."""
        return self.network.public_rng(t, agent)

    def public(self, value: float, dimension: int) -> Array:
        """A constant start.

        Args:
            value: of every coordinate.
            dimension: of the variable.

        Returns:
            (b, dimension).
        """
        return np.full((self.agents.size, dimension), float(value))

    def start(self, channel: str, constants: Mapping[str, float]) -> Array:
        """Where all agents start: a constant, plus the problem's own public start.

        Args:
            channel: "x", "y" or "z".
            constants: channel → number; 0 where it is absent.

        Returns:
            (b, p) of x, else (b, q).
        """
        start = self.public(constants.get(channel, 0.0), self.p if channel == "x" else self.q)
        weights: Array | None = self._problem.start.get(channel) if hasattr(self._problem, "start") else None
        return start if weights is None else start + weights

    def within_steps(self, x: Value, step: float) -> Value:
        """Keep a free x where steps of this size are stable: step·‖∇²_yy R‖ ≤ 1, coordinate by coordinate.

        The bound is public, and so is x: cutting it is post-processing. An x that reads records is left as it is.
        """
        if self._steepening is None or isinstance(x, Bounded) or step <= 0.0:
            return x
        largest: float = self._steepening.largest_x(1.0 / step)
        return np.minimum(x, largest)

    def project(self, x: Array, y: Array) -> tuple[Array, Array]:
        """The nearest points of the problem's own sets, row by row; as they are where it has none.

        Args:
            x: (b, p), public.
            y: (b, q), public.
        """
        if isinstance(x, Bounded) or isinstance(y, Bounded):
            raise TypeError("what depends on records is not projected; release it first")
        return self._problem.project(x, y) if hasattr(self._problem, "project") else (x, y)

    def reads_records(self, channel: str) -> bool:
        """Whether any term that feeds this channel reads records."""
        return any(CLIP_OF_TERM[term] == channel for term in self._reads)

    def constant_state(self, value: Array) -> Bounded:
        """A private state (b, …) that has met no record yet: its sensitivity is 0."""
        zero = Sensitivity(np.zeros(self.agents.size), np.ones(self.agents.size), None)
        return Bounded(value, np.zeros_like(value), dict.fromkeys(SPLITS, zero), self._clip.norm)

    def remembered_state(self, t: int, value: Value) -> Value:
        """A state that a round keeps un-noised, with what float64 adds to its sensitivity each time.

        Args:
            t: round.
            value: (b, ·); a plain array, which reads no record, comes back as it is.
        """
        if not isinstance(value, Bounded):
            return value
        sensitivities = {
            k: s._replace(sensitivity=s.sensitivity * memory_slack(self._stream.averaged_counts(t, self.counts[k])))
            for k, s in value.sensitivities.items()
        }
        return replace(value, sensitivities=sensitivities)

    def local_steps(self, t: int, x: Value, y: Value, number: int, step: float) -> Value:
        """Clip how far local steps without noise lead from a public point, as one vector for each agent.

        y_0 = y, y_{j+1} = y_j − step·∇_y g(x, y_j) over the records seen at round t, or over a fresh minibatch each;
        what comes is y_number − y, clipped to clip.y. No record's part is clipped by itself.

        Args:
            t: round.
            x: (b, p), public.
            y: (b, q), public.
            number: of steps.
            step: their size.

        Sensitivity:
            2Cκ to all that an agent holds, C(2κ − 1) if that contributes nothing, without amplification; infinite to a
            record or a group (docs/proofs/36).

        Limits:
            What is not finite counts as 0.
        """
        if isinstance(x, Bounded) or isinstance(y, Bounded):
            raise TypeError("local steps begin at a point that depends on records; release it first")
        split, norm = self._reads.get("lower_grad_y"), self._clip.norm
        at = y
        with np.errstate(all="ignore"):
            for k in range(number):
                at = at - step * _plain_value(self._batch_of(t, k, False, Clip(norm)).lower_grad_y(x, at))
            change = at - y
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
        """What the means of one moment are over: the records seen at round t, or a fresh minibatch for each draw.

        kept: whether what is computed from it outlives its first release, so that sampling amplifies nothing.
        """
        return self._batch_of(t, draw, kept, self._clip.at(t))

    def _batch_of(self, t: int, draw: int, kept: bool, clip: Clip) -> Batch:
        used = self.averaged_counts(t)

        def records_of(split: Split, row: int) -> tuple[Any, float]:
            return self._records_of_round(t, row, split, int(used[split][row]), draw)

        fresh, coins = self._stream.kind in ("minibatch", "poisson"), self._stream.kind == "poisson"
        drawn = (MIXED if kept else t * _DRAWS + draw) if fresh else None
        groups = partial(self._groups, t, draw=draw) if self._stackable is not None and not coins else None
        alone = ClientBlock(self.agents, self._problem, self._records, clip, self._batches) if coins else None
        return Batch(self._problem, clip, records_of, used, drawn, groups, self._unit, alone)

    def feature_mean(self) -> Bounded:
        """The mean of the features, (b, p), of a problem that has one: of all train records, not of a round's.

        Sensitivity:
            2Cκ/N, without amplification, with N the number of records.
        """
        problem: Any = self._problem
        mean = np.zeros((self.agents.size, self.p))
        stacks = self._stacks.get("train") or stacked_by_count(self._records["train"], self.counts["train"])
        clip = self._clip.at(0)
        for rows, records in stacks:
            mean[rows] = problem.feature_mean(records, clip)
        ones, bound = np.ones(self.agents.size), clip.bound("x")
        moved = mean_sensitivity(bound, self.counts["train"], self.p, ones, None, self._unit)
        return Bounded(np.zeros_like(mean), mean, {"train": moved}, self._clip.norm)

    def oracle(self, t: int, x: Value, y: Value, z: Value) -> Directions:
        """Evaluate all directions at (x, y, z) over the records seen at round t.

        Args:
            t: round.
            x: (b, p).
            y: (b, q).
            z: (b, q).

        Sensitivity:
            Released points give 2Cκ/N per term. At a private point the whole term counts as private, and nothing bounds
            its sensitivity once the point has met a record.
        """
        if self._stream.kind == "poisson":
            raise ValueError("a Poisson sample is asked by batch(t), one mean at a time")
        points = (x, y, z)
        hidden = [v for v in points if isinstance(v, Bounded)]
        at: Sequence[Any] = [_plain_value(v) for v in points] if hidden else points
        # As in `TERMS`: of the lower level, then of the upper one.
        public_grad_x = None if self._public_grad_x is None else self._public_grad_x(*at[:2])
        regulariser = (*self._problem.regulariser(*at), None, public_grad_x)
        means, used, rates = self._means(t, *at)
        sensitivities = {} if hidden else self._sensitivities(t, used, rates)
        out: list[Value] = []
        for term, public in zip(TERMS, regulariser, strict=True):
            mean = means.get(term)
            if hidden:
                out.append(self._at_private(t, term, mean, public, used, hidden))
                continue
            if public is None:
                public = shared_zeros((self.agents.size, self._width(term)))
            out.append(public if mean is None else Bounded(public, mean, sensitivities[term], self._clip.norm))
        return Directions(*out)

    def _width(self, term: str) -> int:
        """Coordinates of a term."""
        return self.p if CLIP_OF_TERM[term] == "x" else self.q

    def _means(
        self, t: int, x: Array, y: Array, z: Array
    ) -> tuple[dict[str, Array], dict[Split, NDArray[np.int64]], dict[Split, Array]]:
        """Clipped means per term, (b, ·); how many records each agent averaged; which share of its pool they were."""
        means: dict[str, Array] = {}
        used, fresh, clip = self.averaged_counts(t), self._stream.kind == "minibatch", self._clip.at(t)
        rates = {k: np.ones(self.agents.size) for k in SPLITS} if fresh else self._all_of_pool
        if self._stackable is not None:
            for split, wanted in self._terms_of.items():
                groups = self._groups(t, split)
                if fresh:
                    for rows, _, some in groups:
                        rates[split][rows] = some
                if len(groups) == 1:
                    by_term = self._stackable.stacked_terms(x, y, z, groups[0].records, clip, wanted)
                    for term in wanted:
                        means[term] = getattr(by_term, term)
                    continue
                means |= {term: np.empty((self.agents.size, self._width(term))) for term in wanted}
                for rows, stack, _ in groups:
                    by_term = self._stackable.stacked_terms(x[rows], y[rows], z[rows], stack, clip, wanted)
                    for term in wanted:
                        means[term][rows] = getattr(by_term, term)
            return means, used, rates
        means = {term: np.empty((self.agents.size, self._width(term))) for term in TERMS if term in self._reads}
        for row in range(self.agents.size):
            records = {}
            for split in SPLITS:
                records[split], rate = self._records_of_round(t, row, split, int(used[split][row]))
                if fresh:
                    rates[split][row] = rate
            terms = self._problem.terms(x[row], y[row], z[row], records["train"], records["validation"], clip)
            for term, out in means.items():
                out[row] = getattr(terms, term)
        return means, used, rates

    def _groups(self, t: int, split: Split, draw: int = 0) -> list[Group]:
        """The records of this round, agents with equally many of them together."""
        used = self.averaged_counts(t)[split]
        known, groups = self._groups_of.get(split, (None, []))
        if known is used and not self._picks:
            return groups
        if split not in self._stacks:
            self._stacks[split] = stacked_by_count(self._records[split], self.counts[split])
        groups = [
            Group(rows, *self._of_stack(t, rows, split, records, int(used[rows][0]), draw))
            for rows, records in self._stacks[split]
        ]
        self._groups_of[split] = used, groups
        return groups

    def averaged_counts(self, t: int) -> dict[Split, NDArray[np.int64]]:
        """Return kind → (b,) how many records each agent averages at round t; the same arrays where nothing changed."""
        if t != self._averaged_at and not (self._averaged and self._stream.kind != "accumulate"):
            # Of a problem of one level nobody has validation records.
            counted = {k: self._stream.averaged_counts(t, n) for k, n in self.counts.items() if n.any()}
            before = self._averaged
            if not before or not all(np.array_equal(before[k], n) for k, n in counted.items()):
                self._averaged = {k: _frozen(n) for k, n in counted.items()}
        self._averaged_at = t
        return self._averaged

    def _of_stack(
        self, t: int, rows: NDArray[np.int64] | slice, split: Split, records: Any, n: int, draw_number: int
    ) -> tuple[Any, Array]:
        """The records of a group that this round reads, (g, n, …), and the rates that what drew them states."""
        members = np.arange(self.agents.size)[rows]
        if not self._picks:
            return type(records)(*(a[:, :n] for a in records)), np.ones(members.size)
        draws = [self._minibatch(t, int(row), split, n, draw_number) for row in members]
        chosen = np.stack([draw.index for draw in draws])
        each = np.arange(members.size)[:, None]
        return type(records)(*(a[each, chosen] for a in records)), np.array([draw.rate for draw in draws])

    def _records_of_round(self, t: int, row: int, split: Split, n: int, draw_number: int = 0) -> tuple[Any, float]:
        """The records of this round, and the rate that what drew them states."""
        records = self._records[split][row]
        if self._picks:
            draw = self._minibatch(t, row, split, n, draw_number)
            return take(records, draw.index), draw.rate
        if self._stream.kind == "poisson":
            # Drawn by a key of its own, so that asking again gives the same.
            coins = self._batches.generator(row, t, tag(f"{split}/poisson/{draw_number}")).random(n)
            rate = float(self._stream.rate(t, n))
            return take(records, np.flatnonzero(coins < rate)), rate
        return take(records, slice(0, n)), 1.0

    def _minibatch(self, t: int, row: int, split: Split, n: int, draw_number: int) -> Draw:
        """Which records a row draws at round t: of a key of their own, so that asking again gives the same.

        They are evaluated in the order in which they are drawn, for the price rests on it (docs/proofs/10). Turns go by
        a public order: what is drawn is what everybody knows, whatever is drawn besides in the round.
        """
        if self._stream.kind == "turns":
            size, key = int(self.counts[split][row]), (int(self.agents[row]), split)
            if key not in self._orders:
                generator = public_generator(self.network.seed, f"turns/{split}", key[0])
                self._orders[key] = generator.permutation(size)
            return Draw(self._orders[key][(t * n + np.arange(n)) % size], 1.0)
        generator = self._batches.generator(row, t, tag(f"{split}/{draw_number}" if draw_number else split))
        return self._draw(split, int(self.counts[split][row]), n, generator)

    def with_sampler(self, draw: DrawBatch) -> LocalDataset:
        """The same records, with minibatches drawn by this function: for those who try what a draw reveals."""
        other = copy(self)
        other._draw = draw
        return other

    def _sensitivities(
        self, t: int, used: Mapping[Split, NDArray[np.int64]], rates: Mapping[Split, Array]
    ) -> dict[str, dict[Split, Sensitivity]]:
        """Term → what one record does to its mean; the same as of the round before where nothing changed."""
        fresh, (known, moved) = self._stream.kind == "minibatch", self._spreads
        if fresh or self._clip.shares or known is not used:
            drawn = t * _DRAWS if fresh else None
            moved = {}
            for term, split in ((term, self._reads[term]) for term in TERMS if term in self._reads):
                clip = self._clip.at(t).bound(CLIP_OF_TERM[term])
                spread = mean_sensitivity(clip, used[split], self._width(term), rates[split], drawn, self._unit)
                moved[term] = {split: spread._replace(sensitivity=_frozen(spread.sensitivity))}
            self._spreads = used, moved
        return moved

    def _at_private(
        self,
        t: int,
        term: str,
        mean: Array | None,
        public: Array | None,
        used: Mapping[Split, NDArray[np.int64]],
        hidden: Sequence[Bounded],
    ) -> Bounded:
        """A term at points of which some are private: infinite, unless no record has moved them yet."""
        private = np.zeros((self.agents.size, self._width(term)))
        for part in (mean, public):
            if part is not None:
                private = private + part
        sensitivities: dict[Split, Sensitivity] = {}
        for split in SPLITS:
            still = np.all([v.sensitivities[split].sensitivity == 0.0 for v in hidden], axis=0)
            clip = self._clip.at(t).bound(CLIP_OF_TERM[term]) if self._reads.get(term) == split else 0.0
            bound = np.where(still, 2.0 * clip / used[split], np.inf)
            sensitivities[split] = Sensitivity(bound, np.ones(self.agents.size), None)
        return Bounded(np.zeros_like(private), private, sensitivities, self._clip.norm)


def _frozen(array: Any) -> Any:
    """The array, which nobody may change from now on, for it is handed out more than once."""
    array.flags.writeable = False
    return array


def _drawn_afresh(split: Split, n: int, batch: int, generator: np.random.Generator) -> Draw:
    return draw_batch(n, batch, generator)


class Group(NamedTuple):
    """Agents with equally many records. rows: which of the block. records: arrays (g, n, …). rates: (g,), as drawn."""

    rows: NDArray[np.int64] | slice
    records: Any
    rates: Array


@dataclass(eq=False, repr=False)
class Batch:
    """Records per row and kind, and what drew them: answers for one clipped mean at a time.

    Every query takes x (b, p), y (b, q) and, where it is directed, one more; each may be a `Bounded`, at which nothing
    is proven. `times`, a number or (b, 1), multiplies every contribution before it is clipped, as the module says. What
    comes back is a `Bounded` of norm `clip.norm` where records are read, and else a plain array.

    draw: (kind, row) → records and the share of the pool that was drawn afresh for them, as the sampler states it.
    used: kind → (b,) how many are averaged. drawn: what identifies a fresh batch, None without sampling, MIXED if it
    lives on in a state, where sampling amplifies nothing. groups: kind → all rows, in groups of equally many records,
    for a problem that is `Stacked`. alone: evaluates the records of a Poisson sample one by one; then `used` is the
    pool, and a mean is a sum over the sample divided by qN.
    """

    _problem: Problem
    _clip: Clip
    _draw: Callable[[Split, int], tuple[Any, float]]
    _counts: Mapping[Split, NDArray[np.int64]]
    _draw_number: int | None
    _make_groups: Callable[[Split], list[Group]] | None
    _unit: Unit
    _client_block: ClientBlock | None
    _records_by_split: dict[Split, list[tuple[Any, float]]] = field(default_factory=dict, init=False)
    _stacks: dict[Split, list[Group]] = field(default_factory=dict, init=False)

    @property
    def _rows(self) -> int:
        return len(self._counts["train"])

    def lower_grad_y(self, x: Value, y: Value, times: float | Array = 1.0) -> Value:
        """∇_y g, (b, q)."""
        return self._term("lower_grad_y", x, y, None, times)

    def lower_hvp(self, x: Value, y: Value, along: Value, times: float | Array = 1.0) -> Value:
        """∇²_yy g · along, (b, q)."""
        return self._term("lower_hvp", x, y, along, times)

    def lower_jvp(self, x: Value, y: Value, along: Value, times: float | Array = 1.0) -> Value:
        """∇²_xy g · along, (b, p)."""
        return self._term("lower_jvp", x, y, along, times)

    def upper_grad_y(self, x: Value, y: Value, times: float | Array = 1.0) -> Value:
        """∇_y f, (b, q)."""
        return self._term("upper_grad_y", x, y, None, times)

    def upper_grad_x(self, x: Value, y: Value, times: float | Array = 1.0) -> Value:
        """∇_x f, (b, p)."""
        return self._term("upper_grad_x", x, y, None, times)

    def lower_hessian(self, x: Value, y: Value, times: float | Array = 1.0) -> Value:
        """∇²_yy g, (b, q·q), row by row."""
        return self._matrix("lower_hessian", x, y, None, times)

    def lower_jacobian(self, x: Value, y: Value, times: float | Array = 1.0) -> Value:
        """∇²_xy g, (b, p·q), row by row."""
        return self._matrix("lower_jacobian", x, y, None, times)

    def lower_hessian_product(self, x: Value, y: Value, matrix: Value, times: float | Array = 1.0) -> Value:
        """∇²_yy g · Z for Z of shape (b, q·p), row by row."""
        return self._matrix("lower_hessian_product", x, y, matrix, times)

    def _term(self, term: str, x: Value, y: Value, along: Value | None, times: float | Array) -> Value:
        problem: Any = self._problem
        if not isinstance(times, float):
            self._check_times(times)
        split: Split | None = problem.reads_records.get(term)
        hidden = any(isinstance(v, Bounded) for v in (x, y, along))
        at = [_plain_value(v) for v in (x, y)]
        # Any vector will do where no product with one is wanted.
        z = at[1] if along is None else _plain_value(along)
        public = public_part(problem, term, at[0], at[1], z)
        base = np.zeros((at[0] if CLIP_OF_TERM[term] == "x" else at[1]).shape) if public is None else public
        groups = self._equally_clipped(split, times) if split is not None and self._make_groups is not None else []
        # Of large weights even zeros take long.
        single = len(groups) == 1 and isinstance(groups[0][0], slice)
        mean = np.empty(base.shape) if single else np.zeros(base.shape)
        if split is not None and self._client_block is not None:
            for row, (records, rate) in enumerate(self._records(split)):
                # What one record contributes must not depend on who else is drawn (docs/proofs/27).
                block = replace(self._client_block, clip=self._clip.divide(_of_row(times, row)))
                question = ClippedSum(term, at[0][row], at[1][row], z[row], rate)
                mean[row] = block.clipped_sum(question, records) / (rate * self._counts[split][row])
        elif groups:
            for rows, stack, clip in groups:
                some = problem.stacked_terms(at[0][rows], at[1][rows], z[rows], stack, clip, (term,))
                if single:
                    mean = getattr(some, term)
                else:
                    mean[rows] = getattr(some, term)
        elif split is not None:
            for row, (records, _) in enumerate(self._records(split)):
                # In the place of the other kind, of which nothing is wanted, the same.
                clip = self._clip.divide(_of_row(times, row))
                terms = problem.terms(at[0][row], at[1][row], z[row], records, records, clip, (term,))
                mean[row] = getattr(terms, term)
        return self._bounded(term, split, base, mean, hidden, times)

    def _equally_clipped(self, split: Split, times: float | Array) -> list[tuple[NDArray[np.int64] | slice, Any, Clip]]:
        """Groups of agents with equally many records, and with one factor: rows, records and their clip."""
        if isinstance(times, float):
            clip = self._clip if times == 1.0 else self._clip.divide(times)
            return [(rows, stack, clip) for rows, stack, _ in self._groups(split)]
        out: list[tuple[NDArray[np.int64] | slice, Any, Clip]] = []
        for rows, stack, _ in self._groups(split):
            each = np.broadcast_to(np.asarray(times, dtype=np.float64).reshape(-1), (self._rows,))[rows]
            numbers = np.arange(self._rows)[rows]
            for factor in np.unique(each):
                chosen = np.flatnonzero(each == factor)
                some = type(stack)(*(column[chosen] for column in stack))
                out.append((numbers[chosen], some, self._clip.divide(float(factor))))
        return out

    def _matrix(self, name: str, x: Value, y: Value, matrix: Value | None, times: float | Array) -> Value:
        if not isinstance(times, float):
            self._check_times(times)
        if self._client_block is not None:
            raise ValueError("no matrix is taken over a Poisson sample")
        problem, split = self._problem, self._problem.reads_records.get(MATRICES[name])
        hidden = any(isinstance(v, Bounded) for v in (x, y, matrix))
        at = [_plain_value(v) for v in (x, y)]
        z = None if matrix is None else _plain_value(matrix).reshape(self._rows, problem.q, problem.p)
        exact = getattr(
            regulariser_matrices(problem, at[0], at[1], z), name.removeprefix("lower_hessian_").removeprefix("lower_")
        )
        mean = np.zeros_like(exact)
        if split is not None:
            for row, (records, _) in enumerate(self._records(split)):
                along = None if z is None else z[row]
                clip = self._clip.divide(_of_row(times, row))
                mean[row] = problem.matrices(at[0][row], at[1][row], along, records, clip, (name,))[name]
        flat = (self._rows, -1)
        return self._bounded(name, split, exact.reshape(flat), mean.reshape(flat), hidden, times)

    def _bounded(
        self, term: str, split: Split | None, base: Array, mean: Array, hidden: bool, times: float | Array
    ) -> Value:
        if not isinstance(times, float) or times != 1.0:
            base, mean = times * base, times * mean
        if hidden:
            nothing_proven = Sensitivity(np.full(self._rows, np.inf), np.ones(self._rows), None)
            private = base + mean
            return Bounded(np.zeros_like(private), private, dict.fromkeys(SPLITS, nothing_proven), self._clip.norm)
        if split is None:
            return base
        rates = np.ones(self._rows)
        if self._draw_number is not None and self._draw_number != MIXED:
            # As the sampler of the records states them.
            if self._make_groups is None:
                rates = np.array([rate for _, rate in self._records(split)])
            else:
                for rows, _, some in self._groups(split):
                    rates[rows] = some
        clip = self._clip.bound(CLIP_OF_TERM[term])
        if self._client_block is not None:
            drawing = np.array([rate for _, rate in self._records(split)])
            moved = self._unit.sampled_sensitivity(clip, self._counts[split], base.shape[1], drawing)
            sampled = Sensitivity(moved, rates, self._draw_number, self._unit.sampling)
            return Bounded(base, mean, {split: sampled}, self._clip.norm)
        sensitivity = mean_sensitivity(clip, self._counts[split], base.shape[1], rates, self._draw_number, self._unit)
        return Bounded(base, mean, {split: sensitivity}, self._clip.norm)

    def _check_times(self, times: Any) -> None:
        """Refuse a factor that is not public, or not one for each agent."""
        if isinstance(times, Bounded):
            raise TypeError("times depends on records; a factor of every contribution is public")
        if np.shape(times) not in ((), (self._rows, 1)):
            raise ValueError(f"times has the shape {np.shape(times)}, wanted one number or one each, ({self._rows}, 1)")

    def _groups(self, split: Split) -> list[Group]:
        """All rows, drawn once."""
        if split not in self._stacks and self._make_groups is not None:
            self._stacks[split] = self._make_groups(split)
        return self._stacks[split]

    def _records(self, split: Split) -> list[tuple[Any, float]]:
        """Per row, drawn once."""
        if split not in self._records_by_split:
            self._records_by_split[split] = [self._draw(split, row) for row in range(self._rows)]
        return self._records_by_split[split]


def mean_sensitivity(
    bound: float, used: NDArray[np.int64], width: int, rates: Array, drawn: int | None, unit: Unit = RECORD
) -> Sensitivity:
    """Bound what a unit does to a mean of clipped contributions: 2Cκ/N of one replaced record.

    Args:
        bound: C, the clip of a contribution.
        used: (b,) N, records averaged.
        width: coordinates of the mean.
        rates: (b,) sampling rates.
        drawn: number of the batch, or `MIXED`; None where no minibatch is drawn.
        unit: what two data sets differ in.
    """
    return Sensitivity(unit.sensitivity(bound, used, width), unit.rate(rates), drawn)


def _of_row(times: float | Array, row: int) -> float:
    return times if isinstance(times, float) else float(np.asarray(times).reshape(-1)[row if np.size(times) > 1 else 0])


def _plain_value(value: Value) -> Array:
    return value.value if isinstance(value, Bounded) else value
