"""Parts of the page and of the picture of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from decentral_dp.simulation.result import RunResult

if TYPE_CHECKING:
    import pandas as pd


class PlottedRun(NamedTuple):
    """A run beside others: its name among them, a label that says what it is, its numbers, and what it measured."""

    name: str
    label: str
    result: RunResult
    metrics: pd.DataFrame


class ComparisonTable(NamedTuple):
    """One table, with a column for each run.

    Args:
        title: of the table.
        rows: what is compared → its text in each run.
        numbers: whether texts are numbers.
        note: what has to be known of them.
        nothing: said in place of a table without rows.
        folded: whether it is on the page alone, where it is opened.
    """

    title: str
    rows: Sequence[tuple[str, Sequence[str]]]
    numbers: bool
    note: str
    nothing: str
    folded: bool = False


class ComparisonPage(NamedTuple):
    """What a page has: its runs, sentences that have to be known, and tables."""

    runs: Sequence[PlottedRun]
    remarks: Sequence[str]
    tables: Sequence[ComparisonTable]
