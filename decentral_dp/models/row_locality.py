"""Bitwise tests, on synthetic records, that row k of a result is a function of record k only.

A clip bounds the influence of a record only if no other record's row changes with it. The test evaluates synthetic
records, replaces one of them, and requires that all other rows keep every bit. Two batches are compared only if they
have the same size and the same replaced index, since matrix products round a row by both.

Limits: a function is tested on a few batches. The test does not detect different behaviour on other batches, such as a
branch on a private value, or a captured array.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from decentral_dp.bounded import Array

# Arrays of n records → term → rows (n, …).
Oracle = Callable[..., Mapping[str, Array]]

# Batch sizes if the number of records is unknown.
COUNTS = (1, 2, 7)
# Beyond any tolerance or clip.
_EXTREME = 1e6


@runtime_checkable
class RowWise(Protocol):
    """Object that computes a row for each record and can be tested for dependence between rows."""

    def check_rows_apart(self, counts: Collection[int]) -> None:
        """Raise InputError if a row depends on another record, in batches of these sizes."""
        ...


class Trial(NamedTuple):
    """Batch, and the same batch with a different record at index `place`.

    Args:
        records: arrays (n, …).
        other: arrays (n, …) with the replaced record.
        place: index of the replaced record.
    """

    records: tuple[Array, ...]
    other: tuple[Array, ...]
    place: int


class RowDependence(NamedTuple):
    """Row that changed although its own record did not.

    Args:
        term: name of the term.
        size: size of the batch.
        row: index of the row.
        place: index of the replaced record, or None if nothing was replaced.
    """

    term: str
    size: int
    row: int
    place: int | None

    @property
    def text(self) -> str:
        """Description that follows the name of a function."""
        if self.place is None:
            return f"returns two results for one batch ({self.term} of {self.size} synthetic records)"
        return (
            f"mixes records: of {self.size} synthetic ones, {self.term} of number {self.row + 1} changed when number "
            f"{self.place + 1} was replaced"
        )


def trials(counts: Collection[int], width: int, classes: int) -> Iterator[Trial]:
    """Yield batches of public synthetic records: features (n, width) and labels (n,).

    Args:
        counts: batch sizes. Size 1 is tested once, sizes 2 and 7 at several indices.
        width: number of features.
        classes: number of classes, or 0 for numeric labels.
    """
    generator = np.random.Generator(np.random.Philox(key=0))
    for count in sorted(set(counts), reverse=True):
        places = [count // 2] if count == 1 or count > max(COUNTS) else sorted({0, count // 2, count - 1})
        for turn, place in enumerate(places):
            # Records in [0, 1), where logarithms and roots are valid, and others; some replacements are extreme.
            mild, far = (turn + count) % 2 == 0, turn % 2 == 0 or count > max(COUNTS)
            records = _draw_rows(generator, count, width, classes, mild)
            copies = tuple(a.copy() for a in records)
            fresh = _draw_rows(generator, 1, width, classes, mild)
            copies[0][place] = _EXTREME * np.where(fresh[0][0] < 0.5, -1.0, 1.0) if far else fresh[0][0]
            copies[1][place] = (records[1][place] + 1.0) % classes if classes else 1.0 - records[1][place]
            yield Trial(records, copies, place)


def _draw_rows(generator: np.random.Generator, count: int, width: int, classes: int, mild: bool) -> tuple[Array, Array]:
    features = generator.random((count, width)) if mild else generator.normal(size=(count, width))
    if classes:
        return features, generator.integers(0, classes, count).astype(np.float64)
    return features, generator.integers(0, 2, count).astype(np.float64) if mild else generator.normal(size=count)


def row_dependence(oracle: Oracle, batches: Iterable[Trial]) -> RowDependence | None:
    """Return the first row that depends on another record or is not a function of the batch, or None if there is none.

    Args:
        oracle: function that returns the rows of each term. A missing term counts as NaN.
        batches: batches that `trials` yields.
    """
    for trial in batches:
        count = len(trial.records[0])
        rows = _rows(oracle, trial.records)
        if trial.place == 0 and count in (1, max(COUNTS)):
            first_row = _first_change(rows, _rows(oracle, trial.records), None)
            if first_row is not None:
                return RowDependence(first_row[0], count, first_row[1], None)
        if count > 1:
            first_row = _first_change(rows, _rows(oracle, trial.other), trial.place)
            if first_row is not None:
                return RowDependence(first_row[0], count, first_row[1], trial.place)
    return None


def _rows(oracle: Oracle, records: tuple[Array, ...]) -> dict[str, Array]:
    """Evaluate copies of the records, so that the oracle cannot change them."""
    with np.errstate(all="ignore"):
        return {name: np.array(rows) for name, rows in oracle(*(a.copy() for a in records)).items()}


def _first_change(before: Mapping[str, Array], after: Mapping[str, Array], place: int | None) -> tuple[str, int] | None:
    """Return the first term and row that differ in a bit, except for the row at `place`."""
    for term in dict.fromkeys((*before, *after)):
        old, new = before.get(term), after.get(term)
        if old is None or new is None:
            # Every record raised.
            whole: Any = new if old is None else old
            old, new = (np.full_like(whole, np.nan) if rows is None else rows for rows in (old, new))
        differs = np.ones(len(old), dtype=np.bool_)
        if old.shape == new.shape:
            # All NaN are equal.
            first, second = (a.reshape(len(a), -1) for a in (old, new))
            differs = ((first != second) & ~(np.isnan(first) & np.isnan(second))).any(axis=1)
        if place is not None:
            differs[place] = False
        if differs.any():
            return term, int(np.argmax(differs))
    return None
