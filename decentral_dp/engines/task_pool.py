"""Independent pieces of work in parallel: in this process, in processes of this machine, or as Ray tasks."""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, Generic, TypeVar, cast

from decentral_dp.errors import needing

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Stream = Generator[tuple[Item, Outcome], None, None]
"""Items with their outcomes, in the order in which they are done. Closed early, it stops what is under way."""

_PACKAGE = Path(__file__).parent.parent
# One piece's products are too small to share among threads, and every core has a piece of its own.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def cores() -> int:
    """Count the cores that this process may use.

    Example:
        >>> cores() >= 1
        True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_at_hand(address: str | None) -> None:
    """Check that what performs the work is installed, before anything is written.

    Raises:
        InputError: a Ray cluster is asked for, and ray is not installed.
    """
    if address is not None:
        with needing("address"):
            import decentral_dp.engines.ray_tasks  # noqa: F401 # only whether it is there


def in_parallel(
    work: Callable[[Item], Outcome],
    items: Sequence[Item],
    lost: Callable[[str], Outcome],
    jobs: int,
    address: str | None = None,
    named: str = "",
) -> Stream[Item, Outcome]:
    """Perform the same work on many items: on Ray with an address, else in so many processes.

    Args:
        work: a function of a module, or a partial one, item → outcome; both can be pickled. What it raises in another
            process ends that process.
        items: what to work on.
        lost: sentence → outcome, where the process of an item ended.
        jobs: processes of this machine; 1 works in this process. Not read with an address.
        address: of a Ray cluster, "auto" or "host:port", or None.
        named: what the command line of the processes says besides.

    Returns:
        A `Stream`.
    """
    if address is not None:
        from decentral_dp.engines.ray_tasks import mapped

        return mapped(work, items, address, lost)
    if jobs == 1:
        return ((item, work(item)) for item in items)
    return in_processes(work, items, lost, jobs, named)


def in_processes(
    work: Callable[[Item], Outcome], items: Sequence[Item], lost: Callable[[str], Outcome], jobs: int, named: str = ""
) -> Stream[Item, Outcome]:
    """Perform the work by `jobs` workers. An item whose worker is killed is lost, and the next has a new one.

    Args:
        work, items, lost, jobs, named: as of `in_parallel`.

    Returns:
        A `Stream`.
    """
    waiting, done = SimpleQueue[Item | None](), SimpleQueue[tuple[Item, Outcome]]()
    for item in items:
        waiting.put(item)
    workers = [_Worker(work, lost, named) for _ in range(min(jobs, len(items)))]
    threads = [threading.Thread(target=w.work, args=(waiting, done), daemon=True) for w in workers]
    for thread in threads:
        waiting.put(None)
        thread.start()
    try:
        for _ in items:
            yield done.get()
    finally:
        for worker in workers:
            worker.end()
        for thread in threads:
            thread.join()


def to_line(value: Any) -> str:
    """Write a value as one line of text, for a pipe between two processes of one user."""
    return base64.b64encode(pickle.dumps(value)).decode("ascii") + "\n"


def from_line(line: str) -> Any:
    """Read what `to_line` wrote."""
    return pickle.loads(base64.b64decode(line))  # noqa: S301 # written by this package, in a process of its own


class _Worker(Generic[Item, Outcome]):
    """A process of its own, and the thread that talks to it."""

    def __init__(self, work: Callable[[Item], Outcome], lost: Callable[[str], Outcome], named: str) -> None:
        self._work, self._lost, self._named = work, lost, named
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None
        self._ended = False

    def work(self, waiting: SimpleQueue[Item | None], done: SimpleQueue[tuple[Item, Outcome]]) -> None:
        while (item := waiting.get()) is not None and not self._ended:
            done.put((item, self._ask(item)))
        self._close()

    def _ask(self, item: Item) -> Outcome:
        process = self._process if self._process is not None else self._start()
        reply = ""
        with suppress(BrokenPipeError):  # Then there is no reply either.
            if process.stdin is not None and process.stdout is not None:
                process.stdin.write(to_line((self._work, item)))
                process.stdin.flush()
                reply = process.stdout.readline()
        if reply.endswith("\n"):
            return cast(Outcome, from_line(reply))
        return self._lost(self._how_it_ended(process))

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 # _close closes it
        path = [str(_PACKAGE.parent), os.environ.get("PYTHONPATH")]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "decentral_dp.engines.task_worker", str(os.getpid()), self._named],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env={**os.environ, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": os.pathsep.join(filter(None, path))},
        )
        return self._process

    def _how_it_ended(self, process: subprocess.Popen[str]) -> str:
        code = process.wait()
        said: list[str] = []
        if self._errors is not None:
            self._errors.seek(0)
            said = self._errors.read().strip().splitlines()[-1:]
        self._close()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"the process that computed this cell {how}{''.join(f' ({line})' for line in said)}"

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
            process.wait()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def end(self) -> None:
        """Stop at once; what is kept is kept. May be called from another thread, and after the end."""
        self._ended = True
        process = self._process
        if process is not None:
            process.kill()
