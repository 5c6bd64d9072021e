"""Progress of commands: a bar, and lines of JSON (`--log`).

A bar that counts, for commands that do one thing many times.

`--log`: one JSON object a line for every event of a run, on stderr or in a file.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from decentral_dp.errors import InputError, Stopped, quoted, quoted_path
from decentral_dp.files.regular import regular
from decentral_dp.simulation.events import RunEvent
from decentral_dp.simulation.result import plain
from decentral_dp.simulation.runner import Run


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


# What --log is given for lines on stderr; anything else is a file.
ON_STDERR = "jsonl"
_SUFFIX = ".jsonl"


class RunLog:
    """Writes events as lines, each whole and at once: who reads along sees no half of one."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __call__(self, event: RunEvent) -> None:
        """Write one evaluation."""
        self._write("progress", event._asdict())

    def ended(self, run: Run) -> None:
        """Write how a run came to its end."""
        result, folder = run.result, None if run.folder is None else str(run.folder)
        spent = {"round": result.rounds, "epsilon": result.privacy.epsilon_max, "delta": result.privacy.delta}
        self._write("end", {"status": result.status, "reason": result.reason, **spent, "folder": folder})

    def cut_off(self, error: BaseException) -> None:
        """Write that a run did not come to its end."""
        stopped = isinstance(error, KeyboardInterrupt | Stopped)
        reason = " ".join(str(error).split()) or type(error).__name__
        self._write("end", {"status": "interrupted" if stopped else "failed", "reason": reason})

    def _write(self, event: str, content: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        print(json.dumps(plain({"event": event, "time": now, **content}), allow_nan=False), file=self._file, flush=True)


@contextlib.contextmanager
def opened(log: str | None) -> Iterator[list[RunLog]]:
    """The log that is asked for, or none, for the length of a run.

    Args:
        log: "jsonl", or a file that ends in .jsonl, to which lines are added.

    Raises:
        InputError: it is neither.
    """
    if log is None:
        yield []
        return
    if log != ON_STDERR and not log.endswith(_SUFFIX):
        raise InputError(f'--log: got {quoted(log)}, wanted "jsonl" for stderr, or a file that ends in .jsonl.')
    with contextlib.ExitStack() as stack:
        if log == ON_STDERR:
            written = RunLog(sys.stderr)
        else:
            try:
                file = regular(Path(log), "--log").open("a", encoding="utf-8")
            except OSError as error:
                raise InputError(
                    f"--log: {quoted_path(log)} cannot be written ({error.strerror}). Give another file."
                ) from None
            written = RunLog(stack.enter_context(file))
        try:
            yield [written]
        except BaseException as error:
            written.cut_off(error)
            raise
