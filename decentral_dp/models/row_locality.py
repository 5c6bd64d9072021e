"""Whether row k of an answer is a function of record k alone, tried to the bit on made-up records.

A clip bounds what one record moves only where no other record's row moves with it. Made-up records are evaluated, one
of them is replaced by another, and all other rows have to keep every bit. Two batches are compared only where both have
the same number of records and the replaced one stands in the same place: products of matrices round a row by both.

Limits: a function is tried on a few batches. What it does on others (a branch that only some private value takes, an
array that it closes over) is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from decentral_dp.bounded import Array

# Arrays of n records → name of a term → its rows, (n, …).
Oracle = Callable[..., Mapping[str, Array]]

# Batches that are tried wherever nothing says how many records there will be.
COUNTS = (1, 2, 7)
# Farther out than whatever a tolerance or a cut could hide.
_EXTREME = 1e6


@runtime_checkable
class RowWise(Protocol):
    """What computes rows of records, and can be tried."""

    def check_rows_apart(self, counts: Collection[int]) -> None:
        """Raises InputError where a row reads another record, in batches of so many."""
        ...


class Trial(NamedTuple):
    """A batch, and the same one with another record at `place`. Each is a tuple of (n, …) arrays."""

    records: tuple[Array, ...]
    other: tuple[Array, ...]
    place: int


class RowDependence(NamedTuple):
    """The term whose row `row` of `size` changed when the record at `place` was replaced; place None: by itself."""

    term: str
    size: int
    row: int
    place: int | None

    @property
    def text(self) -> str:
        """What was found, in words that follow the name of a function."""
        if self.place is None:
            return f"gives two answers to one question ({self.term} of {self.size} made-up records)"
        return (
            f"mixes records: of {self.size} made-up ones, {self.term} of number {self.row + 1} changed when number "
            f"{self.place + 1} was replaced"
        )


def trials(counts: Collection[int], width: int, classes: int) -> Iterator[Trial]:
    """Batches of made-up, public records: features (n, width), and labels (n,).

    Args:
        counts: n of each batch; 1 is tried once, 2 and 7 at several places.
        width: columns of the features.
        classes: of the labels; 0 where labels are numbers.
    """
    generator = np.random.Generator(np.random.Philox(key=0))
    for count in sorted(set(counts), reverse=True):
        places = [count // 2] if count == 1 or count > max(COUNTS) else sorted({0, count // 2, count - 1})
        for turn, place in enumerate(places):
            # Records in [0, 1), where logarithms and roots are what they should be, and others; the first is moved far.
            mild, far = (turn + count) % 2 == 0, turn % 2 == 0 or count > max(COUNTS)
            records = _draw_rows(generator, count, width, classes, mild)
            other = tuple(a.copy() for a in records)
            fresh = _draw_rows(generator, 1, width, classes, mild)
            other[0][place] = _EXTREME * np.where(fresh[0][0] < 0.5, -1.0, 1.0) if far else fresh[0][0]
            other[1][place] = (records[1][place] + 1.0) % classes if classes else 1.0 - records[1][place]
            yield Trial(records, other, place)


def _draw_rows(generator: np.random.Generator, count: int, width: int, classes: int, mild: bool) -> tuple[Array, Array]:
    features = generator.random((count, width)) if mild else generator.normal(size=(count, width))
    if classes:
        return features, generator.integers(0, classes, count).astype(np.float64)
    return features, generator.integers(0, 2, count).astype(np.float64) if mild else generator.normal(size=count)


def row_dependence(oracle: Oracle, batches: Iterable[Trial]) -> RowDependence | None:
    """The first term with a row that reads another record, or that is no function of the batch; None where all pass.

    Args:
        oracle: gives the rows of each term; a term that it leaves out has no number in any row.
        batches: as of `trials`.
    """
    for trial in batches:
        count = len(trial.records[0])
        before = _rows(oracle, trial.records)
        if trial.place == 0 and count in (1, max(COUNTS)):
            changed = _first_change(before, _rows(oracle, trial.records), None)
            if changed is not None:
                return RowDependence(changed[0], count, changed[1], None)
        if count > 1:
            changed = _first_change(before, _rows(oracle, trial.other), trial.place)
            if changed is not None:
                return RowDependence(changed[0], count, changed[1], trial.place)
    return None


def _rows(oracle: Oracle, records: tuple[Array, ...]) -> dict[str, Array]:
    """Rows of copies, so that nothing can be kept of them by changing them."""
    with np.errstate(all="ignore"):
        return {name: np.array(rows) for name, rows in oracle(*(a.copy() for a in records)).items()}


def _first_change(before: Mapping[str, Array], after: Mapping[str, Array], place: int | None) -> tuple[str, int] | None:
    """The first term and row that differ in a bit, but for the row at `place`."""
    for term in dict.fromkeys((*before, *after)):
        here, there = before.get(term), after.get(term)
        if here is None or there is None:
            # None of the records could be evaluated.
            whole: Any = there if here is None else here
            here, there = (np.full_like(whole, np.nan) if rows is None else rows for rows in (here, there))
        differs = np.ones(len(here), dtype=np.bool_)
        if here.shape == there.shape:
            # What is no number is like any other that is none.
            one, other = (a.reshape(len(a), -1) for a in (here, there))
            differs = ((one != other) & ~(np.isnan(one) & np.isnan(other))).any(axis=1)
        if place is not None:
            differs[place] = False
        if differs.any():
            return term, int(np.argmax(differs))
    return None
