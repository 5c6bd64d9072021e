"""The table of published ε with certified ε and empirical lower bounds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.text import Text

from decentral_dp.reporting.terminal import console, terminal
from decentral_dp.simulation.folder.layout import check_writable
from papers.findings import short
from papers.published_epsilon import DELTA, Line, lines

TITLE = f"Published, certified and empirical ε at δ = {short(DELTA)}, replace-one adjacency"
_HEADS = ("setting", "claimed", "certified", "empirical", "claim")
FILE = "published_epsilon.parquet"


def _cells(line: Line) -> tuple[str, ...]:
    """Format one line. A claim below the lower bound is refuted, and a claim of at least the certified ε holds."""
    verdict = "refuted" if line.empirical > line.claimed else "holds" if line.certified <= line.claimed else "open"
    return line.setting, short(line.claimed), short(line.certified), short(line.empirical), verdict


def write_report(folder: Path) -> None:
    """Account for every published ε, print the table, and write it into a folder.

    Args:
        folder: output folder.

    Raises:
        InputError: the folder contains other files.
    """
    if not (folder / FILE).exists():
        check_writable(folder)
    frame = pd.DataFrame(list(lines()), columns=list(Line._fields))
    out = console()
    out.print(Text(TITLE, style="bold"))
    for (paper, unit, adversary), group in frame.groupby(["paper", "unit", "adversary"], sort=False):
        out.print()
        out.print(Text(f"{paper}: unit {unit}, adversary observes {adversary}"))
        rows = [_HEADS, *(_cells(line) for line in map(Line._make, group.itertuples(index=False)))]
        out.print(terminal(list(zip(*rows, strict=True))))
    out.print()
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / FILE, index=False)
    out.print(Text(str(folder / FILE)), soft_wrap=True)
