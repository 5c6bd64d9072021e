"""A bar that counts, for commands that do one thing many times."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class ProgressBar:
    """How many are done, on a terminal; nothing where there is none, and nothing stays behind. what: "runs"."""

    def __init__(self, what: str) -> None:
        shown = Console(stderr=True)
        columns = (BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        self._bar = Progress(
            TextColumn(what), MofNCompleteColumn(), *columns, console=shown, transient=True,
            disable=not shown.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task(what, total=None)

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)
