"""Ledgers: the releases of all agents, stored in columns.

Agents with identical releases (same schedule, same public counts) share a column, so that 10⁴ agents × 10⁶ rounds fit
into memory. Planned and recorded ledgers have the same type, and `same_releases` compares them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Split
from decentral_dp.files.exports import arrow_table
from decentral_dp.privacy.mechanisms import Mechanism, mechanism_of

if TYPE_CHECKING:
    import pandas as pd

IntArray = NDArray[np.int64]
# Columns of the table with few different values.
_NAMES = ("channel", "mechanism", "records")
# Numbers of a column that are compared at once.
_COMPARED_AT_ONCE = 2**16


@dataclass(frozen=True)
class ChannelLedger:
    """Releases of one channel, stored in R rows and g columns.

    Args:
        channel: name of the channel, such as "x", "y" or "z".
        mechanism: mechanism of the releases, or the name of a registered mechanism.
        dimension: number of coordinates of one release.
        group: index of each agent's column, (m,).
        rounds: indices of the releases, (R,), ascending. An index is the round, or with E exchanges a round, one of t·E
            … (t+1)·E − 1 in round t. Index 0 is the data-independent start and is not listed.
        scale: noise scale of every coordinate, (R, g): Laplace b, Gaussian standard deviation, or the scale of an
            exponential mechanism with probabilities ∝ exp(−score/scale). It is +inf, with sensitivity 0, if an agent
            sends nothing. This is not a release, and the table has no row for it.
        sensitivity: split → sensitivity, (R, g), in l1 for Laplace noise and l2 for Gaussian noise, or the oscillation
            of the scores for an exponential mechanism; +inf without a proof.
        rate: split → sampling rate of each round, (R, g), 1 without sampling. Releases of one round with a rate below 1
            read the same batch of that split.
        reason: reason why a proof is missing or why no record is read, or "".
        sampling: "fixed" for batches of fixed size, or "poisson" for an independent Bernoulli draw per record. For
            units other than one replaced record, see `Unit.sampling`.
        distortion: bound on the log ratio of a release's distribution to the ideal mechanism's distribution.
        shared: parts of pairwise correlated noise, whose effective scale is `scale`: name → (R, g), with the names
            "own_scale", "pair_scale" and "variates" (number per coordinate in the releases of all agents).
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
    shared: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", mechanism_of(self.mechanism))

    def truncate(self, index: int) -> ChannelLedger:
        """Return only the releases up to and including an index."""
        return self.rows(slice(int(np.searchsorted(self.rounds, index, side="right"))))

    def rows(self, selection: slice | IntArray) -> ChannelLedger:
        """Return only some of the releases. The columns of a slice are views."""
        return self._map_columns(lambda part: part[selection], rounds=self.rounds[selection])

    def columns(self, numbers: IntArray, group: IntArray) -> ChannelLedger:
        """Return only some of the columns, with another grouping of the agents.

        Args:
            numbers: indices of the columns.
            group: index of each agent's column among these, (m,).
        """
        return self._map_columns(lambda part: part[:, numbers], group=group)

    def keep_sent(self, mask: NDArray[np.bool_]) -> ChannelLedger:
        """Remove the releases that agents do not send.

        Args:
            mask: whether the agents of each column send each release, (R, g).
        """
        return replace(
            self,
            scale=np.where(mask, self.scale, np.inf),
            sensitivity={k: np.where(mask, s, 0.0) for k, s in self.sensitivity.items()},
            rate={k: np.where(mask, r, 1.0) for k, r in self.rate.items()},
        )

    def _map_columns(self, pick: Callable[[Array], Array], **changed: Any) -> ChannelLedger:
        return replace(
            self,
            scale=pick(self.scale),
            sensitivity={k: pick(s) for k, s in self.sensitivity.items()},
            rate={k: pick(r) for k, r in self.rate.items()},
            shared={k: pick(v) for k, v in self.shared.items()},
            **changed,
        )


@dataclass(frozen=True)
class Ledger:
    """Releases of all agents on all channels.

    Args:
        n_agents: number of agents m.
        channels: one entry per channel.
        releases_per_round: number of release indices per round.

    Example:
        >>> ones = np.ones((4, 1))
        >>> laplace = ChannelLedger(channel="y", mechanism="laplace", dimension=1, group=np.zeros(3, dtype=np.int64),
        ...     rounds=np.arange(1, 5), scale=2.0 * ones, sensitivity={"train": 0.5 * ones}, rate={"train": ones})
        >>> ledger = Ledger(3, (laplace,))
        >>> ledger
        <Ledger: 3 agents; y × 4>
        >>> from decentral_dp.privacy.accounting.accountants import epsilon_of
        >>> epsilon_of(ledger, delta=0.0).round(4).tolist()
        [1.0, 1.0, 1.0]
        >>> epsilon_of(ledger.truncate(2), delta=0.0).round(4).tolist()
        [0.5, 0.5, 0.5]
        >>> epsilon_of(ledger.rescale(np.array([1.0, 2.0, 4.0])), delta=0.0).round(4).tolist()
        [1.0, 0.5, 0.25]
        >>> ledger.same_releases(ledger), ledger.same_releases(ledger.rescale(2.0))
        (True, False)
        >>> ledger.rounds, len(ledger.to_frame())
        (4, 12)
    """

    n_agents: int
    channels: tuple[ChannelLedger, ...]
    releases_per_round: int = 1

    @property
    def charged_channels(self) -> tuple[ChannelLedger, ...]:
        """Channels whose releases read records."""
        return tuple(c for c in self.channels if c.mechanism.charged)

    @property
    def rounds(self) -> int:
        """Round of the last release."""
        last = max((int(c.rounds[-1]) for c in self.channels if c.rounds.size), default=0)
        return -(-last // self.releases_per_round)

    def truncate(self, rounds: int) -> Ledger:
        """Return only the releases of the first rounds."""
        return replace(self, channels=tuple(c.truncate(rounds * self.releases_per_round) for c in self.channels))

    def rescale(self, factor: float | Array) -> Ledger:
        """Multiply all noise scales by one factor, or by one factor per agent, (m,)."""
        factors = np.asarray(factor, dtype=np.float64)
        channels = []
        for c in self.channels:
            column_factors = factors
            if factors.ndim:
                pairs, group = np.unique(np.stack([c.group.astype(np.float64), factors]), axis=1, return_inverse=True)
                c, column_factors = c.columns(pairs[0].astype(np.int64), group.reshape(-1)), pairs[1]
            shared = {name: v if name == "variates" else v * column_factors for name, v in c.shared.items()}
            channels.append(replace(c, scale=c.scale * column_factors, shared=shared))
        return replace(self, channels=tuple(channels))

    def same_releases(self, other: Ledger) -> bool:
        """Return whether both ledgers list the same releases at the same cost. The grouping in columns may differ."""
        return self._compare_channels(other, _are_same)

    def costs_within(self, plan: Ledger) -> bool:
        """Return whether this ledger lists the releases of a plan, and none of them at a higher cost.

        Limits:
            The cost of each mechanism must be sensitivity/scale, and each channel must have a single column. See
            docs/proofs/12.
        """
        return self._compare_channels(plan, _costs_within)

    def _compare_channels(self, other: Ledger, is_equal: Callable[[ChannelLedger, ChannelLedger], bool]) -> bool:
        """Return whether both ledgers list the same channels, agents and releases per round, and each pair is equal.

        A channel without releases may be missing, such as one that is sent at the end of an interrupted run.
        """
        first, second = ({c.channel: c for c in ledger.channels} for ledger in (self, other))
        shape = (self.n_agents, self.releases_per_round) == (other.n_agents, other.releases_per_round)
        unmatched = [c for c in (*self.channels, *other.channels) if (c.channel in first) != (c.channel in second)]
        both = first.keys() & second.keys()
        return shape and not any(c.rounds.size for c in unmatched) and all(is_equal(first[n], second[n]) for n in both)

    def repeat(self, n_agents: int) -> Ledger:
        """Return a ledger of n agents that all have the releases of the single agent in this ledger."""
        group = np.zeros(n_agents, dtype=np.int64)
        return replace(self, n_agents=n_agents, channels=tuple(replace(c, group=group) for c in self.channels))

    def select(self, agents: IntArray) -> Ledger:
        """Return only the releases of some agents, (k,), which are renumbered from 0 in the given order."""
        channels = tuple(replace(c, group=c.group[agents]) for c in self.channels)
        return replace(self, n_agents=len(agents), channels=channels)

    def __repr__(self) -> str:
        agents = "1 agent" if self.n_agents == 1 else f"{self.n_agents} agents"
        return f"<Ledger: {agents}; {', '.join(f'{c.channel} × {c.rounds.size}' for c in self.channels)}>"

    def to_frame(self, names: Sequence[str] = ()) -> pd.DataFrame:
        """Convert to a table with the columns of `ledger.parquet`, one row per agent, channel, release and split.

        Args:
            names: names of the agents for the column `agent_name`. Without names (the default), the column is omitted.
        """
        import pandas as pd

        text = dict.fromkeys(_NAMES, "category")
        parts = [pd.DataFrame(columns).astype(text) for columns in self._parts(None, names)]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def to_parquet(self, path: Path, rows: int = 2**17, names: Sequence[str] = ()) -> None:
        """Write the table of `to_frame` to a Parquet file, one part at a time.

        Args:
            path: path of the file.
            rows: maximum number of rows in a part.
            names: names of the agents, as in `to_frame`.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.channels:
            pq.write_table(arrow_table({}, 0), path)
            return
        # As in pandas: columns with a single value are categories, the others strings.
        splits = {split for c in self.channels for split in (c.sensitivity or ("none",))}
        values = ({c.channel for c in self.channels}, {c.mechanism.name for c in self.channels}, splits)
        categories = [name for name, different in zip(_NAMES, values, strict=True) if len(different) == 1]
        tables = (arrow_table(part, part["agent"].size, categories) for part in self._parts(rows, names))
        first = next(tables)
        # Delta and byte-stream encodings take a fifth of the space.
        encodings = {
            field.name: "DELTA_BINARY_PACKED" if pa.types.is_integer(field.type) else "BYTE_STREAM_SPLIT"
            for field in first.schema
            if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        }
        words = [name for name in first.schema.names if name not in encodings]
        options = {"compression": "zstd", "use_dictionary": words, "column_encoding": encodings}
        with pq.ParquetWriter(path, first.schema, **options) as writer:
            for table in itertools.chain([first], tables):
                writer.write_table(table)

    def _parts(self, rows: int | None, names: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        """Yield columns, (n,) or one string for all n rows."""
        shares = any(c.shared for c in self.channels)
        for c in self.channels:
            # All releases of several agents, or a part of those of one.
            height = max(1, c.rounds.size if rows is None else min(rows, c.rounds.size))
            step = max(1, c.group.size if rows is None else rows // height)
            kinds: list[Split | None] = [*c.sensitivity] or [None]
            for split in kinds:
                for first in range(0, c.group.size, step):
                    agents = np.arange(first, min(first + step, c.group.size))
                    for start in range(0, max(1, c.rounds.size), height):
                        part = slice(start, start + height)
                        columns = _columns(c, self.releases_per_round, split, agents, part, shares)
                        if names:
                            columns["agent_name"] = np.array([names[agent] for agent in columns["agent"]], dtype=str)
                        yield columns


def _are_same(a: ChannelLedger, b: ChannelLedger) -> bool:
    if (a.mechanism, a.dimension, a.sampling, a.distortion) != (b.mechanism, b.dimension, b.sampling, b.distortion):
        return False
    if a.shared.keys() != b.shared.keys():
        return False
    if not a.mechanism.charged:
        # Rounds of releases without a cost may differ.
        return True
    if not np.array_equal(a.rounds, b.rounds):
        return False
    columns_a, columns_b = np.unique(np.stack([a.group, b.group]), axis=1)
    pairs = [(a.scale, b.scale), *((scales, b.shared[name]) for name, scales in a.shared.items())]
    for split in a.sensitivity.keys() | b.sensitivity.keys():
        # A split that is not listed has sensitivity 0.
        zeros = np.zeros_like(a.scale), np.zeros_like(b.scale)
        pairs.append((a.sensitivity.get(split, zeros[0]), b.sensitivity.get(split, zeros[1])))
        if split in a.rate and split in b.rate:
            # The rate does not matter at sensitivity 0.
            mine_rate, their_rate = (np.where(c.sensitivity[split] > 0.0, c.rate[split], 1.0) for c in (a, b))
            pairs.append((mine_rate, their_rate))
    # In parts, which bounds the memory of intermediate arrays.
    height = max(1, _COMPARED_AT_ONCE // columns_a.size)
    parts = [slice(start, start + height) for start in range(0, a.rounds.size, height)]
    return all(
        np.allclose(p[part][:, columns_a], q[part][:, columns_b], rtol=1e-12, atol=0.0)
        for p, q in pairs
        for part in parts
    )


def _costs_within(spent: ChannelLedger, planned: ChannelLedger) -> bool:
    attributes = ("mechanism", "dimension", "sampling", "distortion")
    if any(getattr(spent, name) != getattr(planned, name) for name in attributes):
        return False
    if not spent.mechanism.charged:
        return True
    if not np.array_equal(spent.rounds, planned.rounds) or not spent.sensitivity.keys() <= planned.sensitivity.keys():
        return False
    for split, sensitivity in spent.sensitivity.items():
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = np.where(sensitivity == 0.0, 0.0, sensitivity / spent.scale)
            allowed = planned.sensitivity[split] / planned.scale
        # NaN fails this comparison, too.
        if not (cost <= allowed * (1.0 + 1e-9)).all() or not (spent.rate[split] <= planned.rate[split]).all():
            return False
    return True


def _columns(
    c: ChannelLedger, releases_per_round: int, split: Split | None, agents: IntArray, releases: slice, shares: bool
) -> dict[str, Any]:
    group, n, rounds = c.group[agents], agents.size, c.rounds[releases]
    zeros = np.zeros_like(c.scale[releases])
    columns: dict[str, Any] = {
        "agent": np.repeat(agents, rounds.size),
        "channel": c.channel,
        "round": np.tile(-(-rounds // releases_per_round), n),
        "release": np.tile(rounds, n),
        "mechanism": c.mechanism.name,
        "records": split or "none",
        "scale": c.scale[releases][:, group].T.reshape(-1),
        "sensitivity": (c.sensitivity[split][releases] if split else zeros)[:, group].T.reshape(-1),
        "sampling": (c.rate[split][releases] if split else zeros + 1.0)[:, group].T.reshape(-1),
        "sampler": c.sampling,
        "dimension": np.full(n * rounds.size, c.dimension),
        "reason": c.reason,
    }
    if shares:
        for name, otherwise in (("own_scale", c.scale), ("pair_scale", np.zeros_like(c.scale))):
            columns[name] = c.shared.get(name, otherwise)[releases][:, group].T.reshape(-1)
    sent = np.isfinite(columns["scale"])
    # Releases that an agent does not send are no rows.
    return columns if sent.all() else {name: v if isinstance(v, str) else v[sent] for name, v in columns.items()}
