"""Terminal output: a console that prints control characters as text, tables of numbers, and progress bars."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import IO, Any, Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Columns
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from decentral_dp.errors import printable
from decentral_dp.simulation.events import Progress

# Blanks between the columns of a table.
GAP = 2
_BLANK_ENDS = re.compile(r"[ ]+$", re.MULTILINE)
# Blanks around "=" and between a variable and its value. rich breaks lines at every blank of Unicode, but not at an
# empty Braille pattern, which the console prints as a blank.
_BLANK_BEFORE_VALUE, _NO_BREAK = re.compile(r"(?<=[xyzεδ=]) (?=[=\d∞])"), "\u2800"


class PlainConsole(Console):
    """Console that prints control characters as text."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = printable(segment.text).replace(_NO_BREAK, " ")
            yield segment if segment.control else Segment(text, segment.style)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does, without trailing blanks in a file or a pipe."""
        if self.is_terminal or self.is_jupyter:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(_BLANK_ENDS.sub("", captured.get()))


def console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """Make a console that prints text unchanged, since titles and paths may contain brackets."""
    return PlainConsole(markup=False, highlight=False, emoji=False, file=file, width=width)


def print_headline(out: Console, text: str) -> None:
    """Print the first line of a run or a plan, and its graph on a second line if this avoids a break in the method."""
    method, _, network = text.partition(" · ")
    if cell_len(text) > out.width >= cell_len(method):
        text = f"{method}\n{network}"
    out.print(Text(text, style="bold"))


def print_items(out: Console, items: Iterable[tuple[str, str]]) -> None:
    """Print labelled sentences with a hanging indent."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    # Tables below each other have one indent.
    grid.add_column(no_wrap=True, min_width=9)
    grid.add_column(overflow="fold")
    for label, text in items:
        grid.add_row(Text(label), Text(_BLANK_BEFORE_VALUE.sub(_NO_BREAK, text)))
    out.print(grid)


def terminal(columns: Sequence[Sequence[str]]) -> Table:
    """Make a table of columns that begin with their headings; all but the first are numbers, and no cell is wrapped."""
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for k, (head, *_) in enumerate(columns):
        table.add_column(head, justify="right" if k else "left", no_wrap=True)
    for cells in list(zip(*columns, strict=True))[1:]:
        table.add_row(*map(Text, cells))
    return table


def longest(texts: Iterable[str]) -> int:
    """Return the width of the widest text plus the gap after it."""
    return max(cell_len(text) for text in texts) + GAP


def split_columns(columns: Sequence[Sequence[str]], width: int) -> list[list[Sequence[str]]]:
    """Split columns into parts that fit a width; each part has at least one column."""
    parts: list[list[Sequence[str]]] = [[]]
    left = width
    for column in columns:
        left -= longest(column)
        if left < 0 and parts[-1]:
            parts.append([])
            left = width - longest(column)
        parts[-1].append(column)
    return parts


# Seconds between two lines of progress without a terminal.
_BETWEEN_LINES = 30.0


class ProgressBar:
    """Callback that shows a progress bar inside `with`.

    Args:
        unit: counted unit, such as "runs".
        lines: whether to print a line every 30 seconds if there is no terminal; default False.
        quiet: whether nothing is shown; default False.
    """

    def __init__(self, unit: str, lines: bool = False, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._is_hidden = quiet or not console.is_terminal
        self._unit = unit
        self._lines, self._last = lines and not quiet and self._is_hidden, time.monotonic()
        self._bar = Columns(
            *(TextColumn(unit), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[words]}")),
            *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()),
            console=console,
            transient=True,
            disable=self._is_hidden,
        )
        self._task = self._bar.add_task(unit, total=None, words="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Early versions of rich end a line even if there is no bar.
        if not self._is_hidden:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        self._bar.update(self._task, completed=progress.done, total=progress.total, words=progress.description)
        if self._lines and now - self._last >= _BETWEEN_LINES:
            self._last = now
            left = "" if progress.seconds_left is None else f", {progress.seconds_left:.0f} s left"
            speed = f"{progress.per_second or 0.0:.3g} {self._unit}/s"
            where = f"{self._unit.removesuffix('s')} {progress.done} of {progress.total}"
            print(f"{where}, {progress.description}, {speed}{left}", file=sys.stderr, flush=True)
