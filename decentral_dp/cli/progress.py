"""Progress of commands: a bar, and lines of JSON (`--log`) for every evaluation of a run, on stderr or in a file."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Columns

from decentral_dp.callbacks import MLflow, TensorBoard
from decentral_dp.errors import InputError, Stopped, quoted, quoted_path
from decentral_dp.files.durable import OWNERS
from decentral_dp.files.regular import regular
from decentral_dp.formatting import duration_text
from decentral_dp.simulation.events import Callback, Progress
from decentral_dp.simulation.folder.layout import TENSORBOARD
from decentral_dp.simulation.result import plain
from decentral_dp.simulation.run import Run

# Seconds that are measured before the rest is told, and seconds below which nobody needs to be told.
_MEASURED, _LONG = 1.0, 20.0
# Seconds between two lines of progress where there is no terminal for a bar.
_BETWEEN_LINES = 30.0


class ProgressBar:
    """A bar that is on the terminal inside `with`, and gone after it; nothing where there is no terminal.

    Args:
        unit: that is counted, as "runs".
        estimate: whether the first ones are measured, and a line says how long the rest will take; default no.
        lines: whether there is a line every 30 seconds where there is no terminal; default no.
        quiet: whether nothing is shown at all; default no.
    """

    def __init__(self, unit: str, estimate: bool = False, lines: bool = False, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._unit, self._to_estimate = unit, estimate
        self._lines, self._last = lines and not quiet and not console.is_terminal, time.monotonic()
        self._first: tuple[int, float] | None = None
        words = TextColumn("{task.fields[words]}")
        times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        hidden = quiet or not console.is_terminal
        columns = (TextColumn(unit), MofNCompleteColumn(), BarColumn(), words, *times)
        self._bar = Columns(*columns, console=console, transient=True, disable=hidden)
        self._task = self._bar.add_task(unit, total=None, words="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Early versions of rich end a line even where there is no bar.
        if not self._bar.disable:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.note:
            self._bar.console.print(progress.note, markup=False, highlight=False, soft_wrap=True)
        if self._to_estimate:
            self._estimate(progress, now)
        self._bar.update(self._task, completed=progress.done, total=progress.total, words=progress.description)
        if self._lines and now - self._last >= _BETWEEN_LINES:
            self._last = now
            left = "" if progress.seconds_left is None else f", {progress.seconds_left:.0f} s left"
            speed = f"{progress.per_second or 0.0:.3g} {self._unit}/s"
            where = f"{self._unit.removesuffix('s')} {progress.done} of {progress.total}"
            print(f"{where}, {progress.description}, {speed}{left}", file=sys.stderr, flush=True)

    def _estimate(self, progress: Progress, now: float) -> None:
        """Say once how long the rest will take."""
        self._first = self._first or (progress.done, now)
        counted, passed = progress.done - self._first[0], now - self._first[1]
        if not counted or passed < _MEASURED:
            return
        self._to_estimate, rest = False, progress.total - progress.done
        left = passed / counted * rest
        if left >= _LONG:
            took = f"{passed / counted:.1f} s each by the first {progress.done}"
            self._bar.console.print(f"About {duration_text(left)} for {rest} more {self._unit}: {took}.")


# What --log is given for lines on stderr; anything else is a file.
ON_STDERR = "jsonl"
_SUFFIX = ".jsonl"


class RunLog:
    """Writes a run as lines, each whole and at once: who reads along sees no half of one."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __call__(self, progress: Progress) -> None:
        """Write one evaluation."""
        values = {"round": progress.done, "rounds": progress.total, "loss": progress.loss, "epsilon": progress.epsilon}
        speed = {"rounds_per_second": progress.per_second, "seconds_left": progress.seconds_left}
        self._write("progress", values | speed)

    def write_end(self, run: Run) -> None:
        """Write how a run came to its end."""
        result, folder = run.result, None if run.folder is None else str(run.folder)
        privacy = result.privacy
        spent = {"round": result.rounds, "epsilon": privacy.epsilon_max, "delta": privacy.delta}
        stated = {"privacy": privacy.summary, "folder": folder}
        self._write("end", {"status": result.status, "reason": result.reason, **spent, **stated})

    def cut_off(self, error: BaseException) -> None:
        """Write that a run did not come to its end."""
        stopped = isinstance(error, KeyboardInterrupt | Stopped)
        reason = " ".join(str(error).split()) or type(error).__name__
        self._write("end", {"status": "interrupted" if stopped else "failed", "reason": reason})

    def _write(self, event: str, content: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        print(json.dumps(plain({"event": event, "time": now, **content}), allow_nan=False), file=self._file, flush=True)


@contextlib.contextmanager
def open_log(log: str | None) -> Iterator[list[RunLog]]:
    """The log that is asked for, or none, for the length of a run.

    Args:
        log: "jsonl", or a file that ends in .jsonl, to which lines are added; a new one is for its owner only.

    Raises:
        InputError: it is neither.
    """
    if log is None:
        yield []
        return
    if log != ON_STDERR and not log.endswith(_SUFFIX):
        raise InputError(
            f'--log: got {quoted(log)}, wanted "jsonl" for stderr, a file that ends in .jsonl, "tensorboard" or '
            '"mlflow".'
        )
    with contextlib.ExitStack() as stack:
        if log == ON_STDERR:
            written = RunLog(sys.stderr)
        else:
            try:
                # It has losses, which a run with secret noise keeps for its owner.
                path = regular(Path(log), "--log")
                path.touch(OWNERS)
                file = path.open("a", encoding="utf-8")
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


def run_with_progress(
    make: Callable[[Sequence[Callback]], Run], log: str | None, quiet: bool, folder: str | Path
) -> Run:
    """Make a run beside its bar and its log.

    Args:
        make: makes the run, with callbacks.
        log: where progress is written, or None: as `open_log`, "tensorboard" or "mlflow".
        quiet: whether no bar is shown.
        folder: of the run.
    """
    bar = ProgressBar("rounds", lines=True, quiet=quiet or log == ON_STDERR)
    if log == "tensorboard":
        board = TensorBoard(Path(folder) / TENSORBOARD)
        with bar:
            return make([bar, board])
    if log == "mlflow":
        return _run_with_mlflow(make, bar, Path(folder))
    with open_log(log) as logs, bar:
        finished = make([bar, *logs])
        for one in logs:
            one.write_end(finished)
    return finished


def _run_with_mlflow(make: Callable[[Sequence[Callback]], Run], bar: ProgressBar, folder: Path) -> Run:
    try:
        flow = MLflow(folder.name, {"folder": str(folder)})
    except (InputError, KeyboardInterrupt):
        raise
    except Exception as error:  # of any kind, and nothing is released yet
        raise InputError(f"--log: mlflow cannot be reached ({error}). Fix: leave it out.") from error
    with bar, flow:
        return make([bar, flow])
