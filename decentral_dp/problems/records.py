"""Choosing and joining prepared records: NamedTuples of arrays whose first axis is the records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def select_split(wanted: Collection[str], train: Any, validation: Any) -> tuple[Any, Any]:
    """The records of both kinds, none of a kind that no wanted term reads."""
    lower = any(term.startswith("lower_") for term in wanted)
    upper = any(term.startswith("upper_") for term in wanted)
    return (train if lower else take(train, slice(0))), (validation if upper else take(validation, slice(0)))


def take(records: Any, index: slice | NDArray[np.int64]) -> Any:
    """The chosen records of a NamedTuple of arrays. A slice costs no copy."""
    return type(records)(*(a[index] for a in records))


def concatenated(parts: Sequence[Any]) -> Any:
    """Join the records of several parts, one part after the other.

    Args:
        parts: NamedTuples of arrays, at least one and all of one class.

    Returns:
        One such NamedTuple.

    Example:
        >>> from decentral_dp.problems.bilevel.mean_records import MeanRecords
        >>> part = MeanRecords(np.ones((1, 2)), np.ones(1), np.ones(1))
        >>> concatenated([part, part])[0].shape
        (2, 2)
    """
    return type(parts[0])(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def stacked_by_count(records: Sequence[Any], counts: NDArray[np.int64]) -> list[tuple[NDArray[np.int64] | slice, Any]]:
    """Rows and their stacked records, one pair for each number of records that agents have."""
    out: list[tuple[NDArray[np.int64] | slice, Any]] = []
    for count in np.unique(counts):
        members = np.flatnonzero(counts == count)
        some = [records[int(row)] for row in members]
        stack = type(some[0])(*(np.stack(arrays) for arrays in zip(*some, strict=True)))
        out.append((slice(None) if members.size == counts.size else members, stack))
    return out
