"""What the command line prints of a run: the progress bar, and the end."""

from __future__ import annotations

import sys
import time

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from decentral_dp.bounded import Array
from decentral_dp.cli.progress import LiveBar
from decentral_dp.cli.summary_scores import print_scores, print_values
from decentral_dp.formatting import epsilon_text
from decentral_dp.simulation.events import RunEvent
from decentral_dp.simulation.plan import console, guarantee, print_items, rounds_text, sentence
from decentral_dp.simulation.runner import Run

# Beyond so many coordinates x is not printed.
_MOST_COORDINATES = 4
# Seconds between two lines of progress where there is no terminal for a bar.
_BETWEEN_LINES = 30.0


class Progress(LiveBar):
    """A bar with round, loss and ε spent on a terminal; where there is none a line every 30 seconds, as in a log."""

    def __init__(self, quiet: bool) -> None:
        console = Console(stderr=True)
        self._lines = not quiet and not console.is_terminal
        self._last = time.monotonic()
        bar = Bar(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("ε spent {task.fields[epsilon]}"),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        super().__init__(bar)
        self._task = self._bar.add_task("run", total=None, loss="…", epsilon="0")

    def __call__(self, event: RunEvent) -> None:
        loss, spent = f"{event.loss:.4f}", epsilon_text(event.epsilon)
        self._bar.update(self._task, completed=event.round, total=event.rounds, loss=loss, epsilon=spent)
        now = time.monotonic()
        if self._lines and now - self._last >= _BETWEEN_LINES:
            self._last = now
            speed = f"{event.rounds_per_second or 0.0:.3g} rounds/s"
            left = "" if event.seconds_left is None else f", {event.seconds_left:.0f} s left"
            line = f"round {event.round} of {event.rounds}, loss {loss}, ε spent {spent}, {speed}{left}"
            print(line, file=sys.stderr, flush=True)


def print_run(run: Run) -> None:
    """The end of a run, in a few lines."""
    out, result = console(), run.result
    privacy = result.privacy
    out.print()
    head = Text(result.title or "Run", style="bold")
    out.print(head, f"({rounds_text(result.rounds)}, {result.engine} engine, {result.seconds:.1f} s)")
    if result.status != "ok":
        out.print(Text(result.status.replace("_", " "), style="bold red"), sentence(result.reason or ""), sep=": ")
    facts = [("Data", note) for note in result.problem["notes"]] + guarantee(privacy)
    facts += [("Note", note) for note in privacy.cautions]
    if privacy.is_trusted:
        print_items(out, [*facts, ("Seen", privacy.seen_briefly), *_published(run.published["x"])])
        print_values(out, result)
    else:
        print_items(out, facts)
        print_scores(out, result)
    if run.folder is not None:
        out.print()
        # Not wrapped, so that it can be clicked and copied.
        out.print(f"Report: {run.folder / 'report.html'}", soft_wrap=True)


def _published(x: Array) -> list[tuple[str, str]]:
    """The x that was published, where it is short; (1, p)."""
    if not 0 < x.size <= _MOST_COORDINATES or not np.isfinite(x).all():
        return []
    values = ", ".join(f"{v:.4g}".replace("-", "−") for v in x.reshape(-1))
    return [("Result", f"x = {values}" if x.size == 1 else f"x = ({values})")]
