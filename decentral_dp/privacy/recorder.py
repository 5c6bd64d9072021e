"""Recorders of a block's releases, from which the ledger is assembled at the end.

A `Series` stores one entry per release, such as a noise scale, and keeps repeated entries once.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import MIXED, Array, Bounded, ScaledSensitivities, Sensitivity, Split
from decentral_dp.privacy.ledger import ChannelLedger, IntArray, Ledger
from decentral_dp.privacy.mechanisms import NO_MECHANISM, Mechanism, mechanism_of

# One number for all agents of a block, or (b,) one for each.
Entry = Array | float
# Numbers of a series that are compared at once.
_COMPARED_AT_ONCE = 2**15
# Scale of a release that reads no record.
_FREE_SCALE = np.zeros(1)
# Fields of a column with one series per split or name.
_PARTS = ("sensitivity", "rate", "shared")


class Series:
    """Run-length encoded series whose entries are numbers, or arrays with one number per agent.

    A changed entry takes 8 bytes, or 16 if the series has repetitions, and a repeated entry takes none. An array of
    equal numbers is stored as one number. Recent entries are stored uncompressed and compared in groups.

    Args:
        entries: initial entries.

    Example:
        >>> series = Series([0.5, 0.5, 0.5, 2.0])
        >>> len(series), series.dense().tolist(), series.dense(2).tolist()
        (4, [0.5, 0.5, 0.5, 2.0], [0.5, 0.5])
        >>> Series.from_arrays(series.to_arrays(3)).dense().tolist()
        [0.5, 0.5, 0.5]
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._values: array[float] | list[Entry] = array("d")
        # Index at which each value's repetitions end; None while no value was repeated.
        self._ends: array[int] | None = None
        # Entries that have not been compared yet, and the count of their numbers.
        self._late: list[Entry] = []
        self._late_numbers = 0
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        return self._n_compared + len(self._late)

    @property
    def _n_compared(self) -> int:
        return len(self._values) if self._ends is None else (self._ends[-1] if self._ends else 0)

    @property
    def single(self) -> bool:
        """Whether every entry is one number for all agents."""
        self._compare()
        return not isinstance(self._values, list)

    def append(self, entry: Entry) -> None:
        """Append an entry: a number, or an array (b,) or (1,), which is copied."""
        if not isinstance(entry, float):
            entry = entry.item() if entry.size == 1 else entry.copy()
        self._late.append(entry)
        self._late_numbers += 1 if isinstance(entry, float) else entry.size
        if self._late_numbers >= _COMPARED_AT_ONCE:
            self._compare()

    def extend(self, rows: Array) -> None:
        """Append k entries, (k,) or (k, b)."""
        self._compare()
        self._add(rows.reshape(len(rows), -1))

    def _compare(self) -> None:
        late, self._late, self._late_numbers = self._late, [], 0
        if late:
            self._add(_rows(late))

    def _add(self, rows: Array) -> None:
        """Append entries (k, b), run-length encoded."""
        equal = (rows == rows[:, :1]).all(axis=1)
        if equal.all():
            rows = rows[:, :1]
        n_before = self._n_compared
        ends = [*(np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1).tolist(), len(rows)]
        if len(ends) < len(rows):
            starts = [0, *ends[:-1]]
            rows, equal = rows[starts], equal[starts]
        entries: list[Entry] = rows[:, 0].tolist()
        if rows.shape[1] > 1:
            entries = [n if e else row for n, e, row in zip(entries, equal.tolist(), rows, strict=True)]
            self._values = list(self._values)
        repeats = len(self._values) > 0 and _are_same(self._values[-1], entries[0])
        if self._ends is None and (repeats or len(ends) < ends[-1]):
            self._ends = array("q", range(1, len(self._values) + 1))
        if self._ends is not None:
            if repeats:
                self._ends.pop()
            self._ends.extend(n_before + end for end in ends)
        self._values.extend(entries[repeats:])  # type: ignore[arg-type]  # a list by now where an entry is an array

    def repeat(self, entry: float, times: int) -> None:
        """Append a number several times to a series that is still empty."""
        if times:
            self._values.append(entry)
            self._ends = array("q", [times])

    def dense(self, n: int | None = None) -> Array:
        """Return the first n entries (by default all), (n,), or (n, b) if agents differ. The array may be read-only."""
        values, counts = self._runs(len(self) if n is None else n)
        if len(values) == 1:
            return np.broadcast_to(values[0], (int(counts[0]), *values.shape[1:]))
        return values if (counts == 1).all() else np.repeat(values, counts, axis=0)

    def to_arrays(self, n: int) -> dict[str, Any]:
        """Return the first n entries as arrays of values and counts, the input of `from_arrays`."""
        values, counts = self._runs(n)
        return {"values": values, "counts": np.empty(0, dtype=np.int64) if (counts == 1).all() else counts}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> Series:
        """Restore a series from the result of `to_arrays`."""
        series, values = cls(), arrays["values"]
        if len(values):
            series.extend(values)
        if arrays["counts"].size:
            series._ends = array("q", np.cumsum(arrays["counts"]).tolist())
        return series

    def _runs(self, n: int) -> tuple[Array, IntArray]:
        """Return the values, (k,) or (k, b), of the first n entries and their counts, (k,)."""
        self._compare()
        if self._ends is None:
            ends = np.arange(1, min(n, len(self._values)) + 1)
        else:
            # A copy: an array whose buffer numpy holds cannot grow.
            ends = np.array(self._ends, dtype=np.int64)
            ends = np.minimum(ends[: int(np.searchsorted(ends, n)) + 1], n) if n else ends[:0]
        values = self._values[: len(ends)]
        width = 1 if self.single else max((np.size(v) for v in values), default=1)
        rows = (
            np.array([np.broadcast_to(v, width) for v in values]) if width > 1 else np.array(values, dtype=np.float64)
        )
        return rows, np.diff(ends, prepend=0)


def _are_same(a: Entry, b: Entry) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        return isinstance(a, float) and isinstance(b, float) and a == b
    return a is b or np.array_equal(a, b)


def _rows(entries: Sequence[Entry]) -> Array:
    """Stack k entries as (k, b)."""
    sizes = {1 if isinstance(entry, float) else entry.size for entry in entries}
    if len(sizes) == 1 and not isinstance(entries[0], float):
        return np.concatenate(entries).reshape(len(entries), -1)
    rows = np.empty((len(entries), max(sizes)))
    for k, entry in enumerate(entries):
        rows[k] = entry
    return rows


def _multiply_rows(entries: Sequence[Array], factors: Array) -> Array:
    """Stack k arrays (b,), each times its factor of (k,), as (k, b)."""
    first = entries[0]
    if len(set(map(id, entries))) > 1:
        return _rows(entries) * factors[:, None]
    return (first[:1] if (first == first[0]).all() else first) * factors[:, None]


@dataclass
class _ChannelColumn:
    """Recorded releases of one channel of one block.

    Attributes:
        gaps: distance of each index from the previous index.
        late: releases that are not in the series yet, since releases are appended in groups.
    """

    mechanism: Mechanism
    dimension: int
    reason: str = ""
    gaps: Series = field(default_factory=Series)
    last_index: int = 0
    scale: Series = field(default_factory=Series)
    sensitivity: dict[Split, Series] = field(default_factory=dict)
    rate: dict[Split, Series] = field(default_factory=dict)
    shared: dict[str, Series] = field(default_factory=dict)
    sampling: set[str] = field(default_factory=set)
    distortion: float = 0.0
    late: list[tuple[int, Array, Mapping[Split, Sensitivity], float]] = field(default_factory=list)

    def repeats(
        self, mechanism: Mechanism | str, sensitivities: Mapping[Split, Sensitivity], distortion: float
    ) -> bool:
        """Return whether a release differs from earlier releases only in numbers, so that no check is left."""
        for sensitivity in sensitivities.values():
            if sensitivity.batch is not None:
                return False
        is_same = self.mechanism is mechanism and sensitivities.keys() == self.sensitivity.keys()
        return is_same and distortion <= self.distortion and not self.shared

    def settle(self) -> None:
        """Append late releases to the series."""
        if not self.late:
            return
        (indices, scales, sensitivities, factors), self.late = zip(*self.late, strict=True), []
        self.gaps.extend(np.diff(indices, prepend=self.last_index).astype(np.float64))
        self.last_index = indices[-1]
        if self.mechanism.charged:
            self.scale.extend(_rows(scales))
        times, once = np.abs(factors), np.ones(len(factors))
        # Usually all have the same sensitivities.
        distinct = sensitivities[:1] if len(set(map(id, sensitivities))) == 1 else sensitivities
        for split in self.sensitivity:
            self.sensitivity[split].extend(_multiply_rows([m[split].sensitivity for m in distinct], times))
            self.rate[split].extend(_multiply_rows([m[split].rate for m in distinct], once))

    def indices(self) -> IntArray:
        """Return the indices in ascending order, (n,)."""
        return np.cumsum(self.gaps.dense(), dtype=np.float64).astype(np.int64)

    def to_lines(self, end: float) -> dict[str, Any]:
        """Return the releases with index below `end` as plain values, which `from_lines` reads back."""
        n = int(np.searchsorted(self.indices(), end)) if self.last_index >= end else len(self.gaps)
        return {
            "mechanism": self.mechanism.name,
            "dimension": self.dimension,
            "reason": self.reason,
            "gaps": self.gaps.to_arrays(n),
            "scale": self.scale.to_arrays(n),
            **{part: {k: v.to_arrays(n) for k, v in getattr(self, part).items()} for part in _PARTS},
            "sampling": sorted(self.sampling),
            "distortion": self.distortion,
        }

    @classmethod
    def from_lines(cls, lines: Mapping[str, Any], mechanisms: Mapping[str, Mechanism]) -> _ChannelColumn:
        """Return the column that `to_lines` converted."""
        gaps = Series.from_arrays(lines["gaps"])
        parts: dict[str, Any] = {part: {k: Series.from_arrays(v) for k, v in lines[part].items()} for part in _PARTS}
        return cls(
            mechanism=mechanisms.get(lines["mechanism"]) or mechanism_of(lines["mechanism"]),
            dimension=lines["dimension"],
            reason=lines["reason"],
            gaps=gaps,
            last_index=int(gaps.dense().sum()),
            scale=Series.from_arrays(lines["scale"]),
            **parts,
            sampling=set(lines["sampling"]),
            distortion=lines["distortion"],
        )


class Recorder:
    """Recorder of the releases of a block of agents.

    Args:
        agents: number of agents in the block.

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
        self._columns: dict[str, _ChannelColumn] = {}
        # Releases that are appended at a time.
        self._most_late = max(1, _COMPARED_AT_ONCE // agents)
        self._amplified: dict[tuple[Split, int], int] = {}
        self._drawn: dict[tuple[Split, int], int] = {}
        self._mixed: set[Split] = set()

    @property
    def columns(self) -> dict[str, _ChannelColumn]:
        """Channel → column of its releases."""
        for column in self._columns.values():
            column.settle()
        return self._columns

    def charge(
        self,
        index: int,
        channel: str,
        mechanism: Mechanism | str,
        scale: Array,
        value: Bounded,
        distortion: float = 0.0,
        sends: NDArray[np.bool_] | None = None,
        shared: Mapping[str, Array] = MappingProxyType({}),
    ) -> None:
        """Record one release that reads records.

        Args:
            index: index of the release; 0 is the data-independent start and is not listed.
            channel: name of the channel.
            mechanism: mechanism of the release.
            scale: scale of the noise, (b,) or (1,).
            value: value with its sensitivity.
            distortion: bound on the distortion, as in `ChannelLedger`.
            sends: whether each agent sends, (b,). By default all agents send. `ChannelLedger.keep_sent` describes the
                entries of the others.
            shared: parts of pairwise correlated noise, name → (b,), as in `ChannelLedger`.

        Raises:
            ValueError: the recorded cost would be below the actual cost.
        """
        if index == 0:
            if any((s.sensitivity > 0.0).any() for s in value.sensitivities.values()):
                raise ValueError(f"{channel}: release 0 reads records but is not in the ledger")
            return
        column = self._columns.get(channel)
        if column is not None:
            bounds = value.sensitivities
            bounds, factor = (bounds.base, bounds.factor) if isinstance(bounds, ScaledSensitivities) else (bounds, 1.0)
            if sends is None and not shared and column.repeats(mechanism, bounds, distortion):
                column.late.append((index, scale, bounds, factor))
                if len(column.late) >= self._most_late:
                    column.settle()
                return
            column.settle()
        mechanism = mechanism_of(mechanism)
        if column is None or not column.mechanism.charged:
            column = self._columns[channel] = _ChannelColumn(mechanism, value.private.shape[1])
            column.sensitivity = {k: Series() for k in value.sensitivities}
            column.rate = {k: Series() for k in value.sensitivities}
        if column.mechanism != mechanism:
            raise ValueError(
                f"{channel}: release {index} has mechanism {mechanism.name}, earlier ones {column.mechanism.name}"
            )
        for split in value.sensitivities.keys() - column.sensitivity.keys():
            # Earlier releases have sensitivity 0 to this split.
            column.sensitivity[split], column.rate[split] = Series(), Series()
            column.sensitivity[split].repeat(0.0, len(column.gaps))
            column.rate[split].repeat(1.0, len(column.gaps))
        column.gaps.append(float(index - column.last_index))
        column.last_index = index
        column.scale.append(_mask_unsent(scale, sends, np.inf))
        for name, scales in shared.items():
            column.shared.setdefault(name, Series()).append(scales)
        column.distortion = max(column.distortion, distortion)
        if samples := [s for s in value.sensitivities.values() if s.batch is not None]:
            column.sampling |= {s.sampling for s in samples if (s.rate < 1.0).any()}
            if len(column.sampling) > 1:
                raise ValueError(f"{channel}: release {index} mixes batches of different sampling schemes")
        for split in column.sensitivity:
            sensitivity = value.sensitivities.get(split)
            if sensitivity is not None and (fault := self._amplify(index, split, sensitivity)):
                raise ValueError(f"{channel}: release {index} {fault}")
            mask = 0.0 if sensitivity is None else _mask_unsent(sensitivity.sensitivity, sends, 0.0)
            column.sensitivity[split].append(mask)
            column.rate[split].append(1.0 if sensitivity is None else _mask_unsent(sensitivity.rate, sends, 1.0))

    def _amplify(self, index: int, split: Split, sensitivity: Sensitivity) -> str:
        """Record the batch of a release. Return the reason if sampling cannot amplify as planned, or "".

        A fresh batch amplifies the releases of one index, and only if no state keeps it.
        """
        batch = sensitivity.batch
        if batch is None:
            return ""
        if batch == MIXED:
            if any(amplified_split == split for amplified_split, _ in self._amplified):
                return (
                    f"still depends on {split} batches that were accounted as forgotten; use full batches "
                    '(problem.sampling = "full"), or set keeps_batches = True and use batch(t, kept=True)'
                )
            self._mixed.add(split)
            return ""
        if self._amplified.setdefault((split, batch), index) != index:
            return f"uses the {split} batch of round {batch} a second time"
        if not (sensitivity.rate < 1.0).any():
            return ""
        if self._drawn.setdefault((split, index), batch) != batch:
            # Accountants amplify one batch per index.
            return f"uses a second {split} batch of the same index"
        return f"amplifies a {split} batch that other channels may remember" if split in self._mixed else ""

    def free(self, index: int, channel: str, dimension: int, reason: str) -> None:
        """Record one release that reads no record.

        Args:
            index: index of the release.
            channel: name of the channel.
            dimension: number of coordinates.
            reason: reason why the release has no privacy cost.
        """
        if index == 0:
            return
        column = self._columns.get(channel)
        if column is None:
            column = self._columns[channel] = _ChannelColumn(NO_MECHANISM, dimension, reason)
        # A plain array on an accounted channel is already public.
        if not column.mechanism.charged:
            column.late.append((index, _FREE_SCALE, {}, 1.0))
            if len(column.late) >= self._most_late:
                column.settle()

    def lines(self, before: int | None = None) -> dict[str, Any]:
        """Return the recorded releases as plain values, the input of `load`.

        Args:
            before: exclusive upper limit of the index. There is no limit by default.
        """
        end = math.inf if before is None else before
        columns = {name: c.to_lines(end) for name, c in self.columns.items()}
        return {
            "columns": {name: c for name, c in columns.items() if len(c["gaps"]["values"])},
            "amplified": [[split, batch, index] for (split, batch), index in self._amplified.items() if index < end],
            "drawn": [[split, index, batch] for (split, index), batch in self._drawn.items() if index < end],
            "mixed": sorted(self._mixed),
        }

    def load(self, lines: Mapping[str, Any], mechanism_list: Iterable[Mechanism]) -> None:
        """Restore releases from the result of `lines`.

        Args:
            lines: plain values.
            mechanism_list: mechanisms of this block, in which custom mechanisms are looked up.
        """
        mechanisms = {m.name: m for m in mechanism_list}
        self._columns = {name: _ChannelColumn.from_lines(c, mechanisms) for name, c in lines["columns"].items()}
        self._amplified = {(split, batch): index for split, batch, index in lines["amplified"]}
        self._drawn = {(split, index): batch for split, index, batch in lines["drawn"]}
        self._mixed = set(lines["mixed"])


def _mask_unsent(values: Array, sends: NDArray[np.bool_] | None, fill: float) -> Array:
    return values if sends is None else np.where(sends, values, fill)


def assemble(blocks: list[tuple[IntArray, Recorder]], n_agents: int, releases_per_round: int = 1) -> Ledger:
    """Assemble the ledger of all agents from the recorders of all blocks.

    Args:
        blocks: pairs (agents of the block, recorder of the block).
        n_agents: number of agents m.
        releases_per_round: number of releases per round.

    Raises:
        ValueError: the releases of a channel differ between blocks.
    """
    names = list(dict.fromkeys(name for _, r in blocks for name in r.columns))
    return Ledger(n_agents, tuple(_assemble(name, blocks, n_agents) for name in names), releases_per_round)


def _assemble(name: str, blocks: list[tuple[IntArray, Recorder]], n_agents: int) -> ChannelLedger:
    columns = [(agents, r.columns[name]) for agents, r in blocks]
    first = columns[0][1]
    kinds = {(c.mechanism, c.dimension, frozenset(c.sensitivity), frozenset(c.shared)) for _, c in columns}
    rounds = first.indices()
    if len(kinds) > 1 or not all(np.array_equal(rounds, c.indices()) for _, c in columns[1:]):
        raise ValueError(f"{name}: its releases differ between blocks, so it cannot be one channel")
    group = np.arange(n_agents)
    if not first.mechanism.charged:
        group, none = np.zeros(n_agents, dtype=np.int64), np.broadcast_to(0.0, (rounds.size, 1))
        return ChannelLedger(name, NO_MECHANISM, first.dimension, group, rounds, none, {}, {}, first.reason)

    series = [first.scale, *first.sensitivity.values(), *first.rate.values(), *first.shared.values()]
    is_uniform = len(columns) == 1 and all(s.single for s in series)
    if is_uniform:
        group = np.zeros(n_agents, dtype=np.int64)

    def stack(field_name: str, key: str = "") -> Array:
        series_list = [getattr(column, field_name) for _, column in columns]
        rows: list[Array] = [(part[key] if key else part).dense() for part in series_list]
        if is_uniform:
            return rows[0][:, None]
        out = np.empty((rounds.size, n_agents))
        for (agents, _), values in zip(columns, rows, strict=True):
            out[:, agents] = values if values.ndim > 1 else values[:, None]
        return out

    return ChannelLedger(
        name,
        first.mechanism,
        first.dimension,
        group,
        rounds,
        stack("scale"),
        {k: stack("sensitivity", k) for k in first.sensitivity},
        {k: stack("rate", k) for k in first.rate},
        first.reason,
        next(iter(first.sampling), "fixed"),
        first.distortion,
        {k: stack("shared", k) for k in first.shared},
    )
