"""The log of a run (`--log`): JSON lines for every evaluation on stderr or in a file, TensorBoard or MLflow."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from decentral_dp.callbacks import MLflow, TensorBoard
from decentral_dp.errors import InputError, Stopped, quoted, quoted_path
from decentral_dp.files.durable import OWNERS
from decentral_dp.files.regular import regular
from decentral_dp.reporting.terminal import ProgressBar
from decentral_dp.simulation.events import Callback, Progress
from decentral_dp.simulation.folder.layout import TENSORBOARD
from decentral_dp.simulation.result import plain
from decentral_dp.simulation.run import Run


class RunLog:
    """A callback that writes JSON lines, each flushed at once, so that no reader sees a half of one."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __call__(self, progress: Progress) -> None:
        """Write one evaluation."""
        values = {"round": progress.done, "rounds": progress.total, "loss": progress.loss, "epsilon": progress.epsilon}
        speed = {"rounds_per_second": progress.per_second, "seconds_left": progress.seconds_left}
        self._write("progress", values | speed)

    def write_end(self, run: Run) -> None:
        """Write the end of a run."""
        result, folder = run.result, None if run.folder is None else str(run.folder)
        privacy = result.privacy
        spent = {"round": result.rounds, "epsilon": privacy.epsilon_max, "delta": privacy.delta}
        stated = {"privacy": privacy.summary, "folder": folder}
        self._write("end", {"status": result.status, "reason": result.reason, **spent, **stated})

    def write_failure(self, error: BaseException) -> None:
        """Write that a run was interrupted or failed."""
        stopped = isinstance(error, KeyboardInterrupt | Stopped)
        reason = " ".join(str(error).split()) or type(error).__name__
        self._write("end", {"status": "interrupted" if stopped else "failed", "reason": reason})

    def _write(self, event: str, content: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        print(json.dumps(plain({"event": event, "time": now, **content}), allow_nan=False), file=self._file, flush=True)


@contextlib.contextmanager
def open_log(log: str | None, folder: Path) -> Iterator[list[Callback]]:
    """Open the log of a run.

    Args:
        log: "jsonl" for stderr, a file that ends in .jsonl, to which lines are added (a new one is for its owner
            only), "tensorboard", "mlflow" or None.
        folder: of the run.

    Raises:
        InputError: another value, or a log that cannot be written.
    """
    with contextlib.ExitStack() as stack:
        if log is None:
            yield []
        elif log == "tensorboard":
            yield [TensorBoard(folder / TENSORBOARD)]
        elif log == "mlflow":
            try:
                flow = MLflow(folder.name, {"folder": str(folder)})
            except InputError:
                raise
            except Exception as error:  # of any kind, and nothing is released yet
                raise InputError(f"--log: mlflow cannot be reached ({error}). Fix: leave it out.") from error
            yield [stack.enter_context(flow)]
        elif log == "jsonl" or log.endswith(".jsonl"):
            run_log = RunLog(sys.stderr if log == "jsonl" else stack.enter_context(_open_file(log)))
            try:
                yield [run_log]
            except BaseException as error:
                run_log.write_failure(error)
                raise
        else:
            raise InputError(
                f'--log: got {quoted(log)}, expected "jsonl", a file that ends in .jsonl, "tensorboard" or "mlflow".'
            )


def _open_file(name: str) -> IO[str]:
    try:
        path = regular(Path(name), "--log")
        # It has losses, which a run with secret noise keeps for its owner.
        path.touch(OWNERS)
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--log: {quoted_path(name)} cannot be written ({error.strerror}). Give another file."
        ) from None


def run_with_progress(
    make: Callable[[Sequence[Callback]], Run], log: str | None, quiet: bool, folder: str | Path
) -> Run:
    """Make a run with a progress bar and a log.

    Args:
        make: makes the run, with callbacks.
        log: as of `open_log`.
        quiet: whether no bar is shown.
        folder: of the run.
    """
    bar = ProgressBar("rounds", lines=True, quiet=quiet or log == "jsonl")
    with open_log(log, Path(folder)) as logs, bar:
        finished = make([bar, *logs])
        for callback in logs:
            if isinstance(callback, RunLog):
                callback.write_end(finished)
    return finished
