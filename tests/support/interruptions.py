"""Interrupted runs, with a state saved at every evaluation and no page drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import decentral_dp
from decentral_dp.errors import Stopped
from decentral_dp.reporting import page
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.folder import journal


def save_states_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save a state at every evaluation, and draw no page."""
    monkeypatch.setattr(journal, "_INTERVAL", 0.0)
    monkeypatch.setattr(journal, "_SHARE", 1e9)
    monkeypatch.setattr(page, "draw_run", lambda *_: None)


def interrupt_at(t: int) -> Callable[[Progress], None]:
    """Return a callback that interrupts a run after round t."""

    def callback(progress: Progress) -> None:
        if progress.done >= t:
            raise KeyboardInterrupt("interrupted here")

    return callback


def interrupt(given: Any, folder: Path, t: int, start: Callable[..., Any] = decentral_dp.run, **options: Any) -> None:
    """Run a scenario into a folder until it is interrupted after round t."""
    with pytest.raises(Stopped):
        start(given, out=folder, callbacks=[interrupt_at(t)], **options)
