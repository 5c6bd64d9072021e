"""A bar that counts, for commands that do one thing many times."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class LiveBar:
    """A bar that is on the terminal inside `with`."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Early versions of rich end a line even where there is no bar.
        if not self._bar.disable:
            self._bar.stop()


class ProgressBar(LiveBar):
    """How many are done, on a terminal; nothing where there is none, and nothing stays behind. what: "runs"."""

    def __init__(self, what: str) -> None:
        shown = Console(stderr=True)
        columns = (BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        quiet = not shown.is_terminal
        bar = Progress(TextColumn(what), MofNCompleteColumn(), *columns, console=shown, transient=True, disable=quiet)
        super().__init__(bar)
        self._task = self._bar.add_task(what, total=None)

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)
