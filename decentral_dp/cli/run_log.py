"""`--log`: one JSON object a line for every event of a run, on stderr or in a file."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from decentral_dp.errors import InputError, Stopped, quoted, quoted_path
from decentral_dp.files.regular import regular
from decentral_dp.simulation.events import RunEvent
from decentral_dp.simulation.result import plain
from decentral_dp.simulation.runner import Run

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
