"""The table `printed_epsilon`: published ε with certified ε and empirical lower bounds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.text import Text

from decentral_dp.reporting.report import TextTable
from decentral_dp.reporting.terminal import console, terminal
from decentral_dp.simulation.folder.layout import check_writable
from papers.findings import short
from papers.printed_epsilon import DELTA, Line, lines

TITLE = "Published, certified and empirical ε"
_ON_TERMINAL = ("setting", "claimed", "certified", "shown ε", "claim")
FILE = "printed_epsilon.parquet"


def in_words(frame: pd.DataFrame) -> TextTable:
    """Make the table of all lines, in words.

    Args:
        frame: table with a row for each claim, see `printed_epsilon`.
    """
    heads = [("paper", ""), ("setting", ""), ("unit", ""), ("against", "")]
    heads += [("claimed", "ε"), ("certified", "ε at most"), ("shown", "ε at least"), ("claim", "")]
    numbers = [False] * 4 + [True] * 3 + [False]
    rows: list[list[str]] = []
    keys: list[list[float | None]] = []
    for line in map(Line._make, frame.itertuples(index=False)):
        verdict = "too low" if line.shown > line.claimed else "holds" if line.certified <= line.claimed else "open"
        figures = [line.claimed, line.certified, line.shown]
        rows.append([*line[:4], *map(short, figures), verdict])
        keys.append([None] * 4 + figures + [None])
    return TextTable(heads, numbers, rows, keys, f"Adjacency: replaced by others, at δ = {short(DELTA)}.")


def conduct(folder: Path) -> None:
    """Account every line, print the table, and write it into a folder.

    Raises:
        InputError: a folder that holds something else.
    """
    if not (folder / FILE).exists():
        check_writable(folder)
    frame = pd.DataFrame(list(lines()), columns=list(Line._fields))
    out = console()
    out.print(Text(TITLE, style="bold"))
    for (paper, unit, observer), inside in frame.groupby(["paper", "protects", "observer"], sort=False):
        out.print()
        out.print(Text(f"{paper}: of one {unit}, against {observer}"))
        words = in_words(inside)
        kept = [column for k, column in enumerate(zip(*words.rows, strict=True)) if k not in (0, 2, 3)]
        out.print(terminal([(head, *column) for head, column in zip(_ON_TERMINAL, kept, strict=True)]))
    out.print()
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / FILE, index=False)
    out.print(Text(str(folder / FILE)), soft_wrap=True)
