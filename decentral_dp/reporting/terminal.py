"""The terminal: a console that no text can command, labelled sentences, and tables of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import IO, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from decentral_dp.errors import printable

# Blanks between the columns of a table.
GAP = 2
_BLANK_ENDS = re.compile(r"[ ]+$", re.MULTILINE)


class PlainConsole(Console):
    """A console on which no text of a scenario, a file or a file's name can command the terminal."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does; what goes to a file or a pipe has no blanks at the ends of its lines."""
        if self.is_terminal or self.is_jupyter:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(_BLANK_ENDS.sub("", captured.get()))


def console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """Prints text as it is: titles and paths may hold brackets, and numbers need no colours."""
    return PlainConsole(markup=False, highlight=False, emoji=False, file=file, width=width)


def print_items(out: Console, items: Iterable[tuple[str, str]]) -> None:
    """Labelled sentences, one below the other, with a hanging indent."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in items:
        grid.add_row(Text(label), Text(text))
    out.print(grid)


def terminal(columns: Sequence[Sequence[str]]) -> Table:
    """Draw columns, each with its head first, of which all but the first are numbers; no cell is wrapped, or cut."""
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for k, (head, *_) in enumerate(columns):
        table.add_column(head, justify="right" if k else "left", no_wrap=True)
    for cells in list(zip(*columns, strict=True))[1:]:
        table.add_row(*map(Text, cells))
    return table


def longest(texts: Iterable[str]) -> int:
    """The width of the widest text, with the gap behind it."""
    return max(cell_len(text) for text in texts) + GAP


def split_columns(columns: Sequence[Sequence[str]], width: int) -> list[list[Sequence[str]]]:
    """Split columns into as few parts as fit a width, in their order; a part has at least one column."""
    parts: list[list[Sequence[str]]] = [[]]
    left = width
    for column in columns:
        left -= longest(column)
        if left < 0 and parts[-1]:
            parts.append([])
            left = width - longest(column)
        parts[-1].append(column)
    return parts
