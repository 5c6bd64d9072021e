"""Progress bars in notebooks. Elsewhere rich is not loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec

from decentral_dp.simulation.events import Callback, Callbacks, join_callbacks

# True while a bar is shown: runs of a study show none.
_bar_is_shown: ContextVar[bool] = ContextVar("bar_is_shown", default=False)


def in_notebook() -> bool:
    """Return whether a notebook can show a bar and TTY_INTERACTIVE is not 0."""
    if os.environ.get("TTY_INTERACTIVE") == "0" or "IPython" not in sys.modules or find_spec("ipywidgets") is None:
        return False
    from rich.console import Console

    return Console().is_jupyter


@contextmanager
def show_progress(callbacks: Sequence[Callback], unit: str) -> Iterator[Callback | None]:
    """Show a progress bar inside `with`, in a notebook without callbacks and without another bar.

    Args:
        callbacks: of the caller.
        unit: as of `Progress`.

    Yields:
        The callback for progress.
    """
    if callbacks or _bar_is_shown.get() or not in_notebook():
        yield join_callbacks(callbacks)
        return
    from rich.console import Console

    from decentral_dp.reporting.terminal import ProgressBar

    outer = _bar_is_shown.set(True)
    try:
        with ProgressBar(unit, console=Console()) as bar:
            yield Callbacks([bar])
    finally:
        _bar_is_shown.reset(outer)
