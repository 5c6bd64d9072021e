"""Numbers in a row, such as a noise scale after every release: equal neighbours are kept once."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.privacy.ledger import IntArray

# One number for all agents of a block, or one for each, (b,).
Entry = Array | float


class Series:
    """A growing row of entries in little memory: 8 bytes for one that differs from those beside it, 0 for a repetition.

    A row that both varies and repeats takes 16 bytes for each change. Entries with a number for each agent are arrays.

    Args:
        entries: to begin with; default none.

    Example:
        >>> series = Series([0.5, 0.5, 0.5, 2.0])
        >>> len(series), series.dense().tolist(), series.dense(2).tolist()
        (4, [0.5, 0.5, 0.5, 2.0], [0.5, 0.5])
        >>> Series.unpacked(series.packed(3)).dense().tolist()
        [0.5, 0.5, 0.5]
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._values: array[float] | list[Entry] = array("d")
        # Where each value's repetitions end; None while no value was repeated.
        self._ends: array[int] | None = None
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        return len(self._values) if self._ends is None else (self._ends[-1] if self._ends else 0)

    @property
    def single(self) -> bool:
        """Whether every entry is one number for all agents."""
        return not isinstance(self._values, list)

    def append(self, entry: Entry) -> None:
        """Add an entry at the end."""
        if not self._values or not _same(self._values[-1], entry):
            if self._ends is not None:
                self._ends.append(len(self) + 1)
            if self.single and not isinstance(entry, float):
                self._values = list(self._values)
            self._values.append(entry)  # type: ignore[arg-type]  # a list by now where the entry is an array
            return
        if self._ends is None:
            self._ends = array("q", range(1, len(self._values) + 1))
        self._ends[-1] += 1

    def repeat(self, entry: float, times: int) -> None:
        """Add a number that many times, to a row without entries."""
        if times:
            self._values.append(entry)
            self._ends = array("q", [times])

    def dense(self, n: int | None = None) -> Array:
        """The first n entries, by default all: (n,), or (n, b) where agents differ somewhere.

        Where all are one number, it stands in memory once, and the array is not to be written to.
        """
        values, counts = self._runs(len(self) if n is None else n)
        if len(values) == 1:
            return np.broadcast_to(values[0], (int(counts[0]), *values.shape[1:]))
        return values if (counts == 1).all() else np.repeat(values, counts, axis=0)

    def packed(self, n: int) -> dict[str, Any]:
        """The first n entries as plain arrays, which `unpacked` reads back: values, and how often each is there."""
        values, counts = self._runs(n)
        return {"values": values, "counts": np.empty(0, dtype=np.int64) if (counts == 1).all() else counts}

    @classmethod
    def unpacked(cls, packed: dict[str, Any]) -> Series:
        """The row of which `packed` made plain arrays."""
        series, values = cls(), packed["values"]
        series._values = array("d", values.tolist()) if values.ndim == 1 else [_entry(row) for row in values]
        if packed["counts"].size:
            series._ends = array("q", np.cumsum(packed["counts"]).tolist())
        return series

    def _runs(self, n: int) -> tuple[Array, IntArray]:
        """Values (k,) or (k, b) of the first n entries, and how often each of them is there, (k,) whole numbers."""
        if self._ends is None:
            ends = np.arange(1, min(n, len(self._values)) + 1)
        else:
            # A copy: an array that numpy looks into could not grow.
            ends = np.array(self._ends, dtype=np.int64)
            ends = np.minimum(ends[: int(np.searchsorted(ends, n)) + 1], n) if n else ends[:0]
        values = self._values[: len(ends)]
        width = 1 if self.single else max((np.size(v) for v in values), default=1)
        rows = (
            np.array([np.broadcast_to(v, width) for v in values]) if width > 1 else np.array(values, dtype=np.float64)
        )
        return rows, np.diff(ends, prepend=0)


def _same(one: Entry, other: Entry) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        return isinstance(one, float) and isinstance(other, float) and one == other
    return one is other or np.array_equal(one, other)


def _entry(row: Array) -> Entry:
    return float(row[0]) if (row == row[0]).all() else row
