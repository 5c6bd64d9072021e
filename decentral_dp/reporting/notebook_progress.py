"""Bars that notebooks show while a run or a study goes on, by rich and ipywidgets; elsewhere there are none."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from decentral_dp.formatting import epsilon_text

# What is told of progress: a run's callback, or a study's.
T = TypeVar("T", bound=Callable[..., None])
# Whether a bar is shown already: the runs of a study have none of their own.
_inside: ContextVar[bool] = ContextVar("inside", default=False)


class RunBar:
    """Rounds, loss and ε spent of a run. bar: that shows them."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._spent = bar, "0"
        self._task = bar.add_task("round", total=None, words="")

    def __call__(self, done: int, rounds: int, loss: float, epsilon: float) -> None:
        # ε is not priced at every round; the last known one stays.
        if not math.isnan(epsilon):
            self._spent = epsilon_text(epsilon)
        words = f"loss {loss:.4f}, ε spent {self._spent}"
        self._bar.update(self._task, completed=done, total=rounds, words=words)


class StudyBar:
    """Cells of a study. bar: that shows them."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("cells", total=None, words="")

    def __call__(self, done: int, total: int, failed: int) -> None:
        self._bar.update(self._task, completed=done, total=total, words=f"{failed} failed" if failed else "")


def in_notebook() -> bool:
    """Whether a bar can be shown in a notebook that this process draws in, and nobody forbids it as rich has it."""
    allowed = os.environ.get("TTY_INTERACTIVE") != "0"
    return allowed and Console().is_jupyter and find_spec("ipywidgets") is not None


@contextmanager
def shown(progress: T | None, bar: Callable[[Progress], T]) -> Iterator[T | None]:
    """Show a bar inside `with`, in a notebook, where nobody else is told of progress and no other bar is shown.

    Args:
        progress: what is told of progress, or None.
        bar: `RunBar` or `StudyBar`.

    Yields:
        Who is told.
    """
    if progress is not None or _inside.get() or not in_notebook():
        yield progress
        return
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[words]}"))
    outer = _inside.set(True)
    try:
        with Progress(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()) as bars:
            yield bar(bars)
    finally:
        _inside.reset(outer)
