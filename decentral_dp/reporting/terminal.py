"""Terminal output: a console that prints control characters as text, tables of numbers, and progress bars."""

from __future__ import annotations

import re
import sys
import textwrap
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
# Blanks around "=", between a variable and its value, and between groups of digits.
_BLANK_INSIDE = re.compile(r"(?<=[xyzεδ=]) (?=[=\d∞])|(?<=\d) (?=\d{3}\b)")
_NO_BREAK = "\N{NO-BREAK SPACE}"
_LABEL_WIDTH, _LEAST_TEXT_WIDTH = 9, 10


class PlainConsole(Console):
    """Console that prints control characters as text."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

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


def wrap_text(text: str, width: int) -> str:
    r"""Break a text into lines, but not inside "y 1", "ε = 4" and "10 000". rich would break at every blank.

    Example:
        >>> wrap_text("clipping norm y 1", 16)
        'clipping norm\ny 1'
    """
    lines = textwrap.wrap(_BLANK_INSIDE.sub(_NO_BREAK, text), width, break_on_hyphens=False)
    return "\n".join(lines).replace(_NO_BREAK, " ")


def print_items(out: Console, items: Sequence[tuple[str, str]]) -> None:
    """Print labelled sentences with a hanging indent."""
    # Tables below each other have one indent.
    indent = max([_LABEL_WIDTH, *(cell_len(label) for label, _ in items)])
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True, min_width=indent)
    grid.add_column(overflow="fold")
    for label, text in items:
        grid.add_row(Text(label), Text(wrap_text(text, max(_LEAST_TEXT_WIDTH, out.width - indent - GAP))))
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
