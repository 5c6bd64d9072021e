"""Ledgers: all releases of all agents, stored as columns.

A ledger holds, per channel, every release of every agent. Agents with identical releases (same schedule, same public
counts) share a column, so that 10⁴ agents × 10⁶ rounds fit into memory. Plans and records have the same type;
`same_releases` compares the two.
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
# Columns of a ledger's table with few different values.
_NAMES = ("channel", "mechanism", "records")
# So many numbers of a column are compared at once.
_COMPARED_AT_ONCE = 2**16


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
            probabilities ∝ exp(−score/scale), that scale. +inf, with sensitivities of 0, where an agent sends nothing:
            that is no release, and its table has no line of it.
        sensitivity: record kind → (R, g), l1 for Laplace and l2 for Gaussian, of an exponential mechanism the
            oscillation of the scores; +inf where nothing is proven.
        rate: record kind → (R, g) share of the pool drawn afresh each round; 1 without sampling. Releases of one round
            with a rate below 1 are fed by one and the same batch of that kind.
        reason: why nothing is proven, or why no record is read; "" elsewhere.
        sampling: how batches are drawn: "fixed", so many records of the pool, or "poisson", each record by its own
            Bernoulli draw; of other units than one replaced record as `Unit.sampling` names it.
        distortion: by how much the log of the law of a release may be away from that of the ideal mechanism.
        shared: of noise that neighbours share, what was drawn, whose effective scale is `scale`: name → (R, g)
            "own_scale" and "pair_scale", and "variates", how many a coordinate of the releases of all agents takes.
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
        """Keep the releases with index ≤ the given one."""
        return self.rows(slice(int(np.searchsorted(self.rounds, index, side="right"))))

    def rows(self, selection: slice | IntArray) -> ChannelLedger:
        """Keep some of the releases; the columns of a slice are views."""
        return self._map_columns(lambda part: part[selection], rounds=self.rounds[selection])

    def columns(self, numbers: IntArray, group: IntArray) -> ChannelLedger:
        """Keep some of the columns, for agents that are grouped anew.

        Args:
            numbers: numbers of columns.
            group: (m,) column of each agent among these.
        """
        return self._map_columns(lambda part: part[:, numbers], group=group)

    def keep_sent(self, mask: NDArray[np.bool_]) -> ChannelLedger:
        """Leave out what agents do not send.

        Args:
            mask: (R, g) whether the agents of a column send the release.
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
        """The channels that cost something."""
        return tuple(c for c in self.channels if c.mechanism.charged)

    @property
    def rounds(self) -> int:
        """The round by whose end the last release is out."""
        last = max((int(c.rounds[-1]) for c in self.channels if c.rounds.size), default=0)
        return -(-last // self.releases_per_round)

    def truncate(self, rounds: int) -> Ledger:
        """Keep the releases that are out after so many rounds."""
        return replace(self, channels=tuple(c.truncate(rounds * self.releases_per_round) for c in self.channels))

    def rescale(self, factor: float | Array) -> Ledger:
        """Multiply all noise scales by one factor, or by one per agent, shape (m,)."""
        factors = np.asarray(factor, dtype=np.float64)
        channels = []
        for c in self.channels:
            each = factors
            if factors.ndim:
                pairs, group = np.unique(np.stack([c.group.astype(np.float64), factors]), axis=1, return_inverse=True)
                c, each = c.columns(pairs[0].astype(np.int64), group.reshape(-1)), pairs[1]
            shared = {name: v if name == "variates" else v * each for name, v in c.shared.items()}
            channels.append(replace(c, scale=c.scale * each, shared=shared))
        return replace(self, channels=tuple(channels))

    def same_releases(self, other: Ledger, rtol: float = 1e-12) -> bool:
        """Say whether both ledgers list the same releases at the same prices (columns may be grouped differently)."""
        return self._compare_channels(other, lambda mine, theirs: _are_same(mine, theirs, rtol))

    def costs_within(self, plan: Ledger, rtol: float = 1e-9) -> bool:
        """Say whether this lists the plan's releases, none dearer than there, where the scales were not yet known.

        Limits:
            For mechanisms with one price, sensitivity/scale, whatever the scale; one column each. See docs/proofs/12.
        """
        return self._compare_channels(plan, lambda spent, planned: _costs_within(spent, planned, rtol))

    def _compare_channels(self, other: Ledger, is_equal: Callable[[ChannelLedger, ChannelLedger], bool]) -> bool:
        """Whether both list the same channels of as many agents and releases a round, and it holds of each pair.

        A channel that lists nothing need not be there: one that is sent at the end alone is not in a run cut short.
        """
        mine, theirs = ({c.channel: c for c in ledger.channels} for ledger in (self, other))
        shape = (self.n_agents, self.releases_per_round) == (other.n_agents, other.releases_per_round)
        alone = [c for c in (*self.channels, *other.channels) if (c.channel in mine) != (c.channel in theirs)]
        both = mine.keys() & theirs.keys()
        return shape and not any(c.rounds.size for c in alone) and all(is_equal(mine[n], theirs[n]) for n in both)

    def repeat(self, n_agents: int) -> Ledger:
        """List the releases of a coordinator, which cost the records of every agent the same.

        This ledger lists one agent.
        """
        group = np.zeros(n_agents, dtype=np.int64)
        return replace(self, n_agents=n_agents, channels=tuple(replace(c, group=group) for c in self.channels))

    def select(self, agents: IntArray) -> Ledger:
        """Keep the releases of some agents (k,), renumbered from 0 in the given order."""
        channels = tuple(replace(c, group=c.group[agents]) for c in self.channels)
        return replace(self, n_agents=len(agents), channels=channels)

    def __repr__(self) -> str:
        agents = "1 agent" if self.n_agents == 1 else f"{self.n_agents} agents"
        return f"<Ledger: {agents}; {', '.join(f'{c.channel} × {c.rounds.size}' for c in self.channels)}>"

    def to_frame(self, names: Sequence[str] = ()) -> pd.DataFrame:
        """Convert to one row per agent, channel, release and record kind: the columns of `ledger.parquet`.

        `round` is that by whose end the release is out, `release` its index. names: of the agents, for a column
        `agent_name`, where they have others than their numbers.
        """
        import pandas as pd

        text = dict.fromkeys(_NAMES, "category")
        parts = [pd.DataFrame(columns).astype(text) for columns in self._parts(None, names)]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def columns_at(self, rounds: Array) -> dict[str, NDArray[Any]]:
        """The columns of `to_frame` at some rounds (k,), without pandas; no column where nothing is released."""
        places = [np.flatnonzero(np.isin(-(-c.rounds // self.releases_per_round), rounds)) for c in self.channels]
        chosen = replace(self, channels=tuple(c.rows(at) for c, at in zip(self.channels, places, strict=True)))
        parts = [*chosen._parts(None)]
        return {
            name: np.concatenate([np.broadcast_to(part[name], part["agent"].shape) for part in parts])
            for name in (parts[0] if parts else ())
        }

    def to_parquet(self, path: Path, rows: int = 2**17, names: Sequence[str] = ()) -> None:
        """Write what `to_frame` converts to, without ever holding more than about so many rows of it.

        Args:
            path: of the file.
            rows: of a row group, at most.
            names: as of `to_frame`.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.channels:
            pq.write_table(arrow_table({}, 0), path)
            return
        # As where frames are put together: what has one value throughout stays a category, the rest are strings.
        splits = {split for c in self.channels for split in (c.sensitivity or ("none",))}
        values = ({c.channel for c in self.channels}, {c.mechanism.name for c in self.channels}, splits)
        categories = [name for name, different in zip(_NAMES, values, strict=True) if len(different) == 1]
        tables = (arrow_table(part, part["agent"].size, categories) for part in self._parts(rows, names))
        first = next(tables)
        # Rounds count up and agents repeat: differences and planes of bytes take a fifth of the room.
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
        """Columns, (n,) or one text for all n rows."""
        shares = any(c.shared for c in self.channels)
        for c in self.channels:
            # Of few agents whole, or parts of one.
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


def _are_same(a: ChannelLedger, b: ChannelLedger, rtol: float) -> bool:
    if (a.mechanism, a.dimension, a.sampling, a.distortion) != (b.mechanism, b.dimension, b.sampling, b.distortion):
        return False
    if a.shared.keys() != b.shared.keys():
        return False
    if not a.mechanism.charged:
        # When it was sent does not matter: it costs nothing.
        return True
    if not np.array_equal(a.rounds, b.rounds):
        return False
    mine, theirs = np.unique(np.stack([a.group, b.group]), axis=1)
    pairs = [(a.scale, b.scale), *((drawn, b.shared[name]) for name, drawn in a.shared.items())]
    for split in a.sensitivity.keys() | b.sensitivity.keys():
        # A kind that is not listed cannot move the release.
        still = np.zeros_like(a.scale), np.zeros_like(b.scale)
        pairs.append((a.sensitivity.get(split, still[0]), b.sensitivity.get(split, still[1])))
        if split in a.rate and split in b.rate:
            # What cannot move is not sampled either.
            mine_rate, their_rate = (np.where(c.sensitivity[split] > 0.0, c.rate[split], 1.0) for c in (a, b))
            pairs.append((mine_rate, their_rate))
    # Part by part: what arises on the way is otherwise several times what the columns take.
    height = max(1, _COMPARED_AT_ONCE // mine.size)
    parts = [slice(start, start + height) for start in range(0, a.rounds.size, height)]
    return all(
        np.allclose(p[part][:, mine], q[part][:, theirs], rtol=rtol, atol=0.0) for p, q in pairs for part in parts
    )


def _costs_within(spent: ChannelLedger, planned: ChannelLedger, rtol: float) -> bool:
    attributes = ("mechanism", "dimension", "sampling", "distortion")
    if any(getattr(spent, name) != getattr(planned, name) for name in attributes):
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


def _columns(
    c: ChannelLedger, releases_per_round: int, split: Split | None, agents: IntArray, releases: slice, shares: bool
) -> dict[str, Any]:
    group, n, rounds = c.group[agents], agents.size, c.rounds[releases]
    nothing = np.zeros_like(c.scale[releases])
    columns: dict[str, Any] = {
        "agent": np.repeat(agents, rounds.size),
        "channel": c.channel,
        "round": np.tile(-(-rounds // releases_per_round), n),
        "release": np.tile(rounds, n),
        "mechanism": c.mechanism.name,
        "records": split or "none",
        "scale": c.scale[releases][:, group].T.reshape(-1),
        "sensitivity": (c.sensitivity[split][releases] if split else nothing)[:, group].T.reshape(-1),
        "sampling": (c.rate[split][releases] if split else nothing + 1.0)[:, group].T.reshape(-1),
        "sampler": c.sampling,
        "dimension": np.full(n * rounds.size, c.dimension),
        "reason": c.reason,
    }
    if shares:
        for name, otherwise in (("own_scale", c.scale), ("pair_scale", np.zeros_like(c.scale))):
            columns[name] = c.shared.get(name, otherwise)[releases][:, group].T.reshape(-1)
    sent = np.isfinite(columns["scale"])
    # What an agent does not send is no release.
    return columns if sent.all() else {name: v if isinstance(v, str) else v[sent] for name, v in columns.items()}
