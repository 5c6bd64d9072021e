"""The bar that notebooks show while something long goes on, by rich and ipywidgets; elsewhere there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Columns

from decentral_dp.simulation.events import Callback, Callbacks, Progress, join_callbacks

# Whether a bar is shown already: the runs of a study have none of their own.
_bar_is_shown: ContextVar[bool] = ContextVar("inside", default=False)


class Bar:
    """Rounds with loss and ε spent, cells with failed ones, or whatever else is counted. bar: that shows it."""

    def __init__(self, bar: Columns) -> None:
        self._bar, self._task = bar, bar.add_task("", total=None, words="")

    def __call__(self, progress: Progress) -> None:
        self._bar.update(
            self._task,
            description=progress.unit,
            completed=progress.done,
            total=progress.total,
            words=progress.description,
        )


def in_notebook() -> bool:
    """Whether a bar can be shown in a notebook that this process draws in, and nobody forbids it as rich has it."""
    allowed = os.environ.get("TTY_INTERACTIVE") != "0"
    return allowed and Console().is_jupyter and find_spec("ipywidgets") is not None


@contextmanager
def show_progress(callbacks: Sequence[Callback], unit: str) -> Iterator[Callback | None]:
    """Show a bar inside `with`, in a notebook, where nobody else is told of progress and no other bar is shown.

    Args:
        callbacks: that somebody gave.
        unit: of what is counted.

    Yields:
        What is to be called.
    """
    if callbacks or _bar_is_shown.get() or not in_notebook():
        yield join_callbacks(callbacks)
        return
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[words]}"))
    outer = _bar_is_shown.set(True)
    try:
        with Columns(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()) as bars:
            yield Callbacks([Bar(bars)])
    finally:
        _bar_is_shown.reset(outer)
