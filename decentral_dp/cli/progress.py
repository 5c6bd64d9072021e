"""A bar that counts, for commands that do one thing many times."""

from __future__ import annotations

import time
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


# Seconds that are measured before the rest is told, and seconds below which nobody needs to be told.
_MEASURED, _LONG = 1.0, 20.0


class ProgressBar(LiveBar):
    """How many are done, on a terminal; nothing where there is none, and nothing stays behind.

    Args:
        what: is counted, as "runs".
        told: whether the first ones are measured, and a line says how long the rest will take; default no.
    """

    def __init__(self, what: str, told: bool = False) -> None:
        shown = Console(stderr=True)
        self._what, self._untold = what, told
        self._first: tuple[int, float] | None = None
        columns = (BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        quiet = not shown.is_terminal
        bar = Progress(TextColumn(what), MofNCompleteColumn(), *columns, console=shown, transient=True, disable=quiet)
        super().__init__(bar)
        self._task = self._bar.add_task(what, total=None)

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = done, now
        counted, passed = done - self._first[0], now - self._first[1]
        if self._untold and counted and passed >= _MEASURED:
            self._untold = False
            left = passed / counted * (total - done)
            if left >= _LONG:
                took = f"{passed / counted:.1f} s each by the first {done}"
                self._bar.console.print(f"About {_duration(left)} for {total - done} more {self._what}: {took}.")
        self._bar.update(self._task, completed=done, total=total)


def _duration(seconds: float) -> str:
    """ "40 s", "7 min", "2.5 h"."""
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 5400.0 else f"{seconds / 3600.0:.1f} h"
