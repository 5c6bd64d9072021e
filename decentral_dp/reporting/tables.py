"""Tables of texts, which pages and the terminal show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TextTable(NamedTuple):
    """A table in words.

    Args:
        heads: name of each column, and what is said below it.
        numbers: whether a column holds numbers.
        rows: text of each cell.
        sorted_by: what a column is sorted by, row by row; the text where that is None, or by default.
        note: what the means and intervals are.
    """

    heads: Sequence[tuple[str, str]]
    numbers: Sequence[bool]
    rows: Sequence[Sequence[str]]
    sorted_by: Sequence[Sequence[float | None]] = ()
    note: str = ""


def head_of(head: tuple[str, str]) -> str:
    """Name and what is said below it in one line."""
    name, below = head
    return " ".join(filter(None, (name, below and f"({below})")))
