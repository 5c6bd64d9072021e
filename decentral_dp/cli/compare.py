"""Runs side by side on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from decentral_dp.errors import printable
from decentral_dp.reporting.comparison import Comparison, compare, comparison_tables
from decentral_dp.simulation.folder.layout import check_writable, new_folder
from decentral_dp.simulation.plan import console

# Columns of a terminal that the names of keys and metrics get, however many runs there are.
_KEY_WIDTH = 26
_LEAST_WIDTH = 6


def carry_out(folders: Sequence[Path], out: Path | None, formats: Sequence[str]) -> None:
    """Compare, print, and write the page; a folder that is given is new or empty."""
    comparison = compare(*folders)
    if out is not None:
        check_writable(out)
    with new_folder(out, "compare") as folder:
        page = comparison.write(folder, formats)
    print_comparison(comparison)
    typer.echo(printable(f"Page: {page}"))


def print_comparison(comparison: Comparison) -> None:
    """Tables with a column for each run, then what has to be known beside them."""
    out = console()
    for words in comparison_tables(comparison):
        if words.folded:
            continue
        out.print(Text(words.title, style="bold"))
        if not words.rows:
            out.print(words.nothing)
        else:
            table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
            longest = max(len(name) for name, _ in words.rows)
            keys = min(longest, _KEY_WIDTH)
            # Without a bound of their own the last columns would be cut at the rim, since that of keys is not narrowed.
            most = max(_LEAST_WIDTH, (out.width - keys) // len(comparison.runs) - 2)
            table.add_column("", overflow="fold", min_width=keys, max_width=keys)
            for run in comparison.runs:
                table.add_column(Text(run.name, overflow="fold"), justify="right", overflow="fold", max_width=most)
            for name, texts in words.rows:
                table.add_row(Text(name), *(Text(text) for text in texts))
            out.print(table)
            if words.note:
                out.print(Text(words.note, style="dim"))
        out.print()
    for remark in comparison.remarks:
        out.print(Text("Note:", style="bold"), Text(remark))
    if comparison.remarks:
        out.print()
