"""Ledgers: what was released, as columns, not objects.

A ledger holds, per channel, every release of every agent. Agents whose releases are alike (same schedule, same public
counts) share a column, so that 10⁴ agents × 10⁶ rounds fit and can be priced. The same type serves what is planned
from the scenario and what the mechanisms recorded; `same_releases` compares the two.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decentral_dp.bounded import MIXED, Array, Bounded, Sensitivity, Split
from decentral_dp.privacy.mechanisms import NO_MECHANISM, Mechanism, mechanism_of

IntArray = NDArray[np.int64]
# Columns of a ledger's table with few different values.
_NAMES = ("channel", "mechanism", "records")


@dataclass(frozen=True)
class ChannelLedger:
    """All releases of one channel, in R rows and g columns.

    Args:
        channel: "x", "y", "z", …
        mechanism: how it was released; a name stands for the registered mechanism.
        dimension: coordinates of one release.
        group: (m,) column of each agent.
        rounds: (R,) index of every release, ascending: its round, or with E exchanges a round, round t's
            t·E … (t+1)·E − 1. Index 0 is the data-independent start and is not listed.
        scale: (R, g) Laplace b or Gaussian standard deviation of every coordinate; for an exponential mechanism with
            probabilities ∝ exp(−score/scale), that scale.
        sensitivity: record kind → (R, g), l1 for Laplace and l2 for Gaussian, of an exponential mechanism the
            oscillation of the scores; +inf where nothing is proven.
        rate: record kind → (R, g) share of the pool drawn afresh each round; 1 without sampling. Releases of one round
            with a rate below 1 are fed by one and the same batch of that kind.
        reason: why nothing is proven, or why no record is read; "" elsewhere.
        sampling: how the batch is drawn: "fixed" (so many records of the pool) | "poisson" (every record by its own
            coin).
        distortion: by how much the log of the law of a release may be away from that of the ideal mechanism.
    """

    channel: str
    mechanism: Mechanism
    dimension: int
    group: IntArray
    rounds: IntArray
    scale: Array
    sensitivity: Mapping[Split, Array]
    rate: Mapping[Split, Array]
    reason: str = ""
    sampling: str = "fixed"
    distortion: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", mechanism_of(self.mechanism))

    def until(self, index: int) -> ChannelLedger:
        """Keep the releases with index ≤ the given one."""
        keep = self.rounds <= index
        return replace(
            self,
            rounds=self.rounds[keep],
            scale=self.scale[keep],
            sensitivity={k: s[keep] for k, s in self.sensitivity.items()},
            rate={k: r[keep] for k, r in self.rate.items()},
        )


@dataclass(frozen=True)
class Ledger:
    """The releases of all agents on all channels.

    Args:
        n_agents: m.
        channels: one entry per channel.
        releases_per_round: how many indices one round has; default 1.

    Example:
        >>> ones = np.ones((4, 1))
        >>> laplace = ChannelLedger(channel="y", mechanism="laplace", dimension=1, group=np.zeros(3, dtype=np.int64),
        ...     rounds=np.arange(1, 5), scale=2.0 * ones, sensitivity={"train": 0.5 * ones}, rate={"train": ones})
        >>> ledger = Ledger(3, (laplace,))
        >>> from decentral_dp.privacy.accounting.accountants import epsilon_of
        >>> epsilon_of(ledger, delta=0.0).round(4).tolist()
        [1.0, 1.0, 1.0]
        >>> epsilon_of(ledger.until(2), delta=0.0).round(4).tolist()
        [0.5, 0.5, 0.5]
        >>> epsilon_of(ledger.rescaled(np.array([1.0, 2.0, 4.0])), delta=0.0).round(4).tolist()
        [1.0, 0.5, 0.25]
        >>> ledger.same_releases(ledger), ledger.same_releases(ledger.rescaled(2.0))
        (True, False)
        >>> ledger.rounds, len(ledger.to_frame())
        (4, 12)
    """

    n_agents: int
    channels: tuple[ChannelLedger, ...]
    releases_per_round: int = 1

    @property
    def charged(self) -> tuple[ChannelLedger, ...]:
        """The channels that cost something."""
        return tuple(c for c in self.channels if c.mechanism.charged)

    @property
    def rounds(self) -> int:
        """The round by whose end the last release is out."""
        last = max((int(c.rounds[-1]) for c in self.channels if c.rounds.size), default=0)
        return -(-last // self.releases_per_round)

    def until(self, rounds: int) -> Ledger:
        """Keep the releases that are out after so many rounds."""
        return replace(self, channels=tuple(c.until(rounds * self.releases_per_round) for c in self.channels))

    def rescaled(self, factor: float | Array) -> Ledger:
        """Multiply all noise scales by one factor, or by one per agent, shape (m,)."""
        factors = np.asarray(factor, dtype=np.float64)
        return replace(self, channels=tuple(_rescale(c, factors) for c in self.channels))

    def same_releases(self, other: Ledger, rtol: float = 1e-12) -> bool:
        """Say whether both ledgers list the same releases at the same prices (columns may be grouped differently)."""
        mine = {c.channel: c for c in self.channels}
        theirs = {c.channel: c for c in other.channels}
        if (self.n_agents, self.releases_per_round) != (
            other.n_agents,
            other.releases_per_round,
        ) or mine.keys() != theirs.keys():
            return False
        return all(_same(mine[name], theirs[name], rtol) for name in mine)

    def costs_within(self, plan: Ledger, rtol: float = 1e-9) -> bool:
        """Say whether this lists the plan's releases, none dearer than there, where the scales were not yet known.

        Limits:
            For mechanisms with one price, sensitivity/scale, whatever the scale; one column each. See docs/proofs/12.
        """
        mine, theirs = ({c.channel: c for c in ledger.channels} for ledger in (self, plan))
        if (self.n_agents, self.releases_per_round) != (
            plan.n_agents,
            plan.releases_per_round,
        ) or mine.keys() != theirs.keys():
            return False
        return all(_within(mine[name], theirs[name], rtol) for name in mine)

    def for_all(self, n_agents: int) -> Ledger:
        """List the releases of a coordinator, which cost the records of every agent the same.

        This ledger lists one agent.
        """
        group = np.zeros(n_agents, dtype=np.int64)
        return replace(self, n_agents=n_agents, channels=tuple(replace(c, group=group) for c in self.channels))

    def only(self, agents: IntArray) -> Ledger:
        """Keep the releases of some agents, renumbered in the given order."""
        channels = tuple(replace(c, group=c.group[agents]) for c in self.channels)
        return replace(self, n_agents=len(agents), channels=channels)

    def to_frame(self) -> pd.DataFrame:
        """Convert to one row per agent, channel, release and record kind: the columns of `ledger.parquet`.

        `round` is that by whose end the release is out, `release` its index.
        """
        parts = list(self._frames(None))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def to_parquet(self, path: Path, rows: int = 2**20) -> None:
        """Write what `to_frame` converts to, without ever holding more than about so many rows of it.

        Args:
            path: of the file.
            rows: of a row group, at most; one agent's releases of a channel are never split.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.channels:
            pd.DataFrame().to_parquet(path)
            return
        tables = (
            pa.Table.from_pandas(f.astype(dict.fromkeys(_NAMES, object)), preserve_index=False)
            for f in self._frames(rows)
        )
        first = next(tables)
        with pq.ParquetWriter(path, first.schema) as writer:
            for table in itertools.chain([first], tables):
                writer.write_table(table)

    def _frames(self, rows: int | None) -> Iterator[pd.DataFrame]:
        for c in self.channels:
            step = c.group.size if rows is None else max(1, rows // max(1, c.rounds.size))
            kinds: list[Split | None] = [*c.sensitivity] or [None]
            for split in kinds:
                for first in range(0, c.group.size, max(1, step)):
                    agents = np.arange(first, min(first + step, c.group.size))
                    yield _frame(c, self.releases_per_round, split, agents)


def _rescale(c: ChannelLedger, factor: Array) -> ChannelLedger:
    if factor.ndim == 0:
        return replace(c, scale=c.scale * factor)
    pairs, group = np.unique(np.stack([c.group.astype(np.float64), factor]), axis=1, return_inverse=True)
    column = pairs[0].astype(np.int64)
    return replace(
        c,
        group=group.reshape(-1),
        scale=c.scale[:, column] * pairs[1],
        sensitivity={k: s[:, column] for k, s in c.sensitivity.items()},
        rate={k: r[:, column] for k, r in c.rate.items()},
    )


def _same(a: ChannelLedger, b: ChannelLedger, rtol: float) -> bool:
    if (a.mechanism, a.dimension, a.sampling, a.distortion) != (b.mechanism, b.dimension, b.sampling, b.distortion):
        return False
    if not a.mechanism.charged:
        # When it was sent does not matter: it costs nothing.
        return True
    if not np.array_equal(a.rounds, b.rounds):
        return False
    pairs = [(a.scale, b.scale)]
    for split in a.sensitivity.keys() | b.sensitivity.keys():
        # A kind that is not listed cannot move the release.
        pairs.append((a.sensitivity.get(split, 0.0 * a.scale), b.sensitivity.get(split, 0.0 * b.scale)))
        if split in a.rate and split in b.rate:
            # What cannot move is not sampled either.
            mine_rate, their_rate = (np.where(c.sensitivity[split] > 0.0, c.rate[split], 1.0) for c in (a, b))
            pairs.append((mine_rate, their_rate))
    mine, theirs = np.unique(np.stack([a.group, b.group]), axis=1)
    return all(np.allclose(p[:, mine], q[:, theirs], rtol=rtol, atol=0.0) for p, q in pairs)


def _within(spent: ChannelLedger, planned: ChannelLedger, rtol: float) -> bool:
    alike = ("mechanism", "dimension", "sampling", "distortion")
    if any(getattr(spent, name) != getattr(planned, name) for name in alike):
        return False
    if not spent.mechanism.charged:
        return True
    if not np.array_equal(spent.rounds, planned.rounds) or not spent.sensitivity.keys() <= planned.sensitivity.keys():
        return False
    for split, sensitivity in spent.sensitivity.items():
        with np.errstate(divide="ignore", invalid="ignore"):
            price = np.where(sensitivity == 0.0, 0.0, sensitivity / spent.scale)
            allowed = planned.sensitivity[split] / planned.scale
        # Written so that what is not a number fails, too.
        if not (price <= allowed * (1.0 + rtol)).all() or not (spent.rate[split] <= planned.rate[split]).all():
            return False
    return True


def _frame(c: ChannelLedger, releases_per_round: int, split: Split | None, agents: IntArray) -> pd.DataFrame:
    group, n = c.group[agents], agents.size
    nothing = np.zeros_like(c.scale)
    columns = {
        "agent": np.repeat(agents, c.rounds.size),
        "channel": c.channel,
        "round": np.tile(-(-c.rounds // releases_per_round), n),
        "release": np.tile(c.rounds, n),
        "mechanism": c.mechanism.name,
        "records": split or "none",
        "scale": c.scale[:, group].T.reshape(-1),
        "sensitivity": (c.sensitivity[split] if split else nothing)[:, group].T.reshape(-1),
        "sampling": (c.rate[split] if split else nothing + 1.0)[:, group].T.reshape(-1),
        "sampler": c.sampling,
        "dimension": c.dimension,
        "reason": c.reason,
    }
    return pd.DataFrame(columns).astype(dict.fromkeys(_NAMES, "category"))


@dataclass
class _Column:
    """Recorded releases of one channel of one block; a number that is the same for all agents is kept once."""

    mechanism: Mechanism
    dimension: int
    reason: str = ""
    rounds: list[int] = field(default_factory=list)
    scale: list[Array | float] = field(default_factory=list)
    sensitivity: dict[Split, list[Array | float]] = field(default_factory=dict)
    rate: dict[Split, list[Array | float]] = field(default_factory=dict)
    sampling: set[str] = field(default_factory=set)
    distortion: float = 0.0


class Recorder:
    """A record of what a block of agents releases, written as it is released.

    Args:
        agents: how many the block has.

    Example:
        >>> from decentral_dp.bounded import Sensitivity
        >>> moved = {"train": Sensitivity(np.ones(1), np.ones(1), None)}
        >>> mean = Bounded(np.zeros((1, 2)), np.ones((1, 2)), moved, "l1")
        >>> recorder = Recorder(agents=1)
        >>> recorder.charge(1, "y", "laplace", np.array([2.0]), mean)
        >>> assemble([(np.arange(1), recorder)], n_agents=1).channels[0].scale.tolist()
        [[2.0]]
    """

    def __init__(self, agents: int) -> None:
        self.agents = agents
        self.columns: dict[str, _Column] = {}
        self._amplified: dict[tuple[Split, int], int] = {}
        self._drawn: dict[tuple[Split, int], int] = {}
        self._mixed: set[Split] = set()

    def charge(
        self,
        index: int,
        channel: str,
        mechanism: Mechanism | str,
        scale: Array,
        value: Bounded,
        distortion: float = 0.0,
    ) -> None:
        """Record one release that costs something.

        Args:
            index: of the release; 0 is the data-independent start and is not listed.
            channel: its name.
            mechanism: how it was released.
            scale: of the noise, (b,) or (1,).
            value: what was released, with its sensitivity.
            distortion: of the law of the release; default 0.

        Raises:
            ValueError: the release cannot be listed as what it is.
        """
        if index == 0:
            if any((s.sensitivity > 0.0).any() for s in value.sensitivities.values()):
                raise ValueError(f"{channel} starts from data, but the release with index 0 is not charged")
            return
        mechanism, column = mechanism_of(mechanism), self.columns.get(channel)
        if column is None or not column.mechanism.charged:
            column = self.columns[channel] = _Column(mechanism, value.private.shape[1])
            column.sensitivity = {k: [] for k in value.sensitivities}
            column.rate = {k: [] for k in value.sensitivities}
        if column.mechanism != mechanism:
            raise ValueError(
                f"{channel} at index {index} is released by {mechanism.name}, before by {column.mechanism.name}"
            )
        for split in value.sensitivities.keys() - column.sensitivity.keys():
            # No record of this kind could move the earlier releases.
            column.sensitivity[split] = [0.0] * len(column.rounds)
            column.rate[split] = [1.0] * len(column.rounds)
        column.rounds.append(index)
        column.scale.append(_compact(scale))
        column.distortion = max(column.distortion, distortion)
        drawn = [s for s in value.sensitivities.values() if s.batch is not None]
        column.sampling |= {s.sampling for s in drawn if (s.rate < 1.0).any()}
        if len(column.sampling) > 1:
            raise ValueError(f"{channel} at index {index} mixes batches drawn in several ways")
        for split in column.sensitivity:
            sensitivity = value.sensitivities.get(split)
            if sensitivity is not None:
                self._check_amplification(index, channel, split, sensitivity)
            column.sensitivity[split].append(0.0 if sensitivity is None else _compact(sensitivity.sensitivity))
            column.rate[split].append(1.0 if sensitivity is None else _compact(sensitivity.rate))

    def _check_amplification(self, index: int, channel: str, split: Split, sensitivity: Sensitivity) -> None:
        """A fresh batch amplifies the releases of one index, and only if it is forgotten afterwards."""
        if sensitivity.batch is None:
            return
        if sensitivity.batch == MIXED:
            if any(amplified == split for amplified, _ in self._amplified):
                raise ValueError(
                    f"{channel} at index {index} still depends on {split} batches whose releases were charged as if "
                    "forgotten"
                )
            self._mixed.add(split)
        elif self._amplified.setdefault((split, sensitivity.batch), index) != index:
            raise ValueError(
                f"{channel} at index {index} uses the {split} batch of round {sensitivity.batch} a second time"
            )
        elif (sensitivity.rate < 1.0).any() and self._drawn.setdefault(
            (split, index), sensitivity.batch
        ) != sensitivity.batch:
            # Accountants amplify an index as one event; two independent batches are more than that.
            raise ValueError(f"{channel} at index {index} uses a second {split} batch of the same index")
        elif split in self._mixed and (sensitivity.rate < 1.0).any():
            raise ValueError(f"{channel} at index {index} amplifies a {split} batch that other channels may remember")

    def free(self, index: int, channel: str, dimension: int, reason: str) -> None:
        """Record one release that reads no record.

        Args:
            index: of the release.
            channel: its name.
            dimension: coordinates.
            reason: why it costs nothing.
        """
        if index == 0:
            return
        column = self.columns.get(channel)
        if column is None:
            column = self.columns[channel] = _Column(NO_MECHANISM, dimension, reason)
        # What a charged channel passes on as a plain array is public already: it was released, or never met a record.
        if not column.mechanism.charged:
            column.rounds.append(index)

    def lines(self, before: int | None = None) -> dict[str, Any]:
        """Return what was recorded, as plain values, which `load` reads back.

        Args:
            before: releases of lower index only; by default all.
        """
        end = math.inf if before is None else before
        columns = {name: _packed(c, end) for name, c in self.columns.items()}
        return {
            "columns": {name: c for name, c in columns.items() if len(c["rounds"])},
            "amplified": [[split, batch, index] for (split, batch), index in self._amplified.items() if index < end],
            "drawn": [[split, index, batch] for (split, index), batch in self._drawn.items() if index < end],
            "mixed": sorted(self._mixed),
        }

    def load(self, lines: Mapping[str, Any], known: Iterable[Mechanism]) -> None:
        """Put back what `lines` returned.

        Args:
            lines: plain values.
            known: mechanisms by which this block releases, for those that are not of this package.
        """
        mechanisms = {m.name: m for m in known}
        self.columns = {name: _unpacked(c, mechanisms) for name, c in lines["columns"].items()}
        self._amplified = {(split, batch): index for split, batch, index in lines["amplified"]}
        self._drawn = {(split, index): batch for split, index, batch in lines["drawn"]}
        self._mixed = set(lines["mixed"])


def _packed(c: _Column, end: float) -> dict[str, Any]:
    n = bisect_left(c.rounds, end)
    return {
        "mechanism": c.mechanism.name,
        "dimension": c.dimension,
        "reason": c.reason,
        "rounds": np.asarray(c.rounds[:n], dtype=np.int64),
        "scale": _series(c.scale[:n]),
        "sensitivity": {k: _series(v[:n]) for k, v in c.sensitivity.items()},
        "rate": {k: _series(v[:n]) for k, v in c.rate.items()},
        "sampling": sorted(c.sampling),
        "distortion": c.distortion,
    }


def _unpacked(c: Mapping[str, Any], mechanisms: Mapping[str, Mechanism]) -> _Column:
    return _Column(
        mechanism=mechanisms.get(c["mechanism"]) or mechanism_of(c["mechanism"]),
        dimension=c["dimension"],
        reason=c["reason"],
        rounds=c["rounds"].tolist(),
        scale=_numbers(c["scale"]),
        sensitivity={k: _numbers(v) for k, v in c["sensitivity"].items()},
        rate={k: _numbers(v) for k, v in c["rate"].items()},
        sampling=set(c["sampling"]),
        distortion=c["distortion"],
    )


def _series(values: Sequence[Array | float]) -> Array:
    """(n,), or (n, b) where agents differ somewhere."""
    width = max((np.size(v) for v in values), default=1)
    return np.array([np.broadcast_to(v, width) for v in values] if width > 1 else values, dtype=np.float64)


def _numbers(series: Array) -> list[Array | float]:
    return series.tolist() if series.ndim == 1 else [_compact(row) for row in series]


def _compact(values: Array) -> Array | float:
    first = values.flat[0]
    return float(first) if values.size == 1 or (values == first).all() else values


def assemble(blocks: list[tuple[IntArray, Recorder]], n_agents: int, releases_per_round: int = 1) -> Ledger:
    """Join the recorders of all blocks to the ledger of all agents.

    Args:
        blocks: (agents of the block, its recorder).
        n_agents: m.
        releases_per_round: default 1.

    Raises:
        ValueError: a channel was not released alike by all blocks.
    """
    names = list(dict.fromkeys(name for _, r in blocks for name in r.columns))
    return Ledger(n_agents, tuple(_assemble(name, blocks, n_agents) for name in names), releases_per_round)


def _assemble(name: str, blocks: list[tuple[IntArray, Recorder]], n_agents: int) -> ChannelLedger:
    columns = [(agents, r.columns[name]) for agents, r in blocks]
    first = columns[0][1]
    if len({(c.mechanism, c.dimension, tuple(c.rounds), frozenset(c.sensitivity)) for _, c in columns}) > 1:
        raise ValueError(f"{name} was not released alike by all blocks, so it cannot be listed as one channel")
    rounds = np.asarray(first.rounds, dtype=np.int64)
    group = np.arange(n_agents)
    if not first.mechanism.charged:
        group, none = np.zeros(n_agents, dtype=np.int64), np.zeros((rounds.size, 1))
        return ChannelLedger(name, NO_MECHANISM, first.dimension, group, rounds, none, {}, {}, first.reason)

    series = [first.scale, *first.sensitivity.values(), *first.rate.values()]
    if len(columns) == 1 and all(isinstance(v, float) for s in series for v in s):
        group, width = np.zeros(n_agents, dtype=np.int64), 1
    else:
        width = n_agents

    def stack(pick: Callable[[_Column], list[Array | float]]) -> Array:
        out = np.empty((rounds.size, width))
        for agents, column in columns:
            where = slice(None) if width == 1 else agents
            for t, value in enumerate(pick(column)):
                out[t, where] = value
        return out

    return ChannelLedger(
        name,
        first.mechanism,
        first.dimension,
        group,
        rounds,
        stack(lambda c: c.scale),
        {k: stack(lambda c, k=k: c.sensitivity[k]) for k in first.sensitivity},  # type: ignore[misc]
        {k: stack(lambda c, k=k: c.rate[k]) for k in first.rate},  # type: ignore[misc]
        first.reason,
        next(iter(first.sampling), "fixed"),
        first.distortion,
    )
