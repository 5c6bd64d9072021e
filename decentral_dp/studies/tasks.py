"""Independent tasks in parallel: in processes of this machine, or as tasks of a Ray cluster.

The outcome of a task is a file (`write`, `read_outcome`), so finished tasks are not repeated.

If this module is run, it is a worker process that receives pickled work and items and sends outcomes. A worker ends
when its input ends, or when the process that started it has ended.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, TypeVar, cast

from decentral_dp.errors import converting, needing
from decentral_dp.files.durable import HAS_LOCKS, digest, lock_file, write_whole
from decentral_dp.files.regular import regular
from decentral_dp.files.trust import trusting

# Folders with this entry belong to a study.
CELLS = "cells"


def number(value: Any) -> float:
    """Convert a number from JSON, in which infinities are words and NaN is null.

    Example:
        >>> number("inf"), number(None)
        (inf, nan)
    """
    return math.nan if value is None else float(value)


def write(folder: Path, key: str, record: Any) -> None:
    """Write the outcome of a task with a digest, which detects damaged files.

    Args:
        folder: folder of the outcomes.
        key: key of the task, the stem of its file.
        record: JSON values; other values are written as text.

    Raises:
        OSError: the file is not writable.
        ValueError: a number is not finite.
    """
    text = json.dumps(record, allow_nan=False, default=str)
    write_whole(folder / f"{key}.json", f"{digest(text.encode())}\n{text}\n".encode())


def read_outcome(folder: Path, key: str) -> Any:
    """Read the outcome of a task; return None if there is no intact file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write(Path(folder), "key", {"status": "ok"})
        ...     read_outcome(Path(folder), "key"), read_outcome(Path(folder), "another")
        ({'status': 'ok'}, None)
    """
    try:
        head, _, remainder = regular(folder / f"{key}.json", "study").read_text(encoding="utf-8").partition("\n")
    except (OSError, ValueError):
        return None
    text = remainder.removesuffix("\n")
    return json.loads(text) if head == digest(text.encode()) else None


@contextmanager
def hold_folder(folder: Path, under_way: str) -> Iterator[None]:
    """Lock a folder of outcomes in this context, and remove unfinished files.

    Args:
        folder: existing folder.
        under_way: message of the error if another process holds the lock.

    Raises:
        InputError: another process holds the lock.
    """
    place = os.open(folder, os.O_RDONLY) if HAS_LOCKS else None
    try:
        # Some file systems have no locks.
        with suppress(OSError), converting(BlockingIOError, lambda _: under_way):
            if place is not None:
                lock_file(place)
        for partial_file in folder.glob(".*.part"):
            partial_file.unlink()
        yield
    finally:
        if place is not None:
            os.close(place)


Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Stream = Generator[tuple[Item, Outcome], None, None]
"""Items with their outcomes, in order of completion. Closing it stops running tasks."""

_PACKAGE = Path(__file__).parent.parent
# Every core has its own task, so libraries use one thread.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
# Tasks submitted to Ray at a time: enough for all cores of a cluster, few enough to be cancelled quickly.
_AHEAD = 256
# Seconds between checks that the parent process is alive.
_LOOK_EVERY = 0.5


def check_address(address: str | None) -> None:
    """Check that ray is installed if an address is set. Raises InputError."""
    if address is not None:
        with needing("address"):
            import ray  # noqa: F401 # only whether it is there


def cores() -> int:
    """Count the cores that this process may use.

    Example:
        >>> cores() >= 1
        True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_ray(
    work: Callable[[Item], Outcome], items: Sequence[Item], outcome_of_crash: Callable[[str], Outcome], address: str
) -> Stream[Item, Outcome]:
    """Compute independent items as tasks of a Ray cluster, one core each.

    Args:
        work: item → outcome, a picklable function or partial.
        items: inputs of the work.
        outcome_of_crash: error text → outcome of an item whose process ended.
        address: "auto" or "host:port" of a running cluster.

    Returns:
        Items with their outcomes.
    """
    import ray
    import ray.exceptions

    from decentral_dp.engines.ray import cluster

    def run_work(item: Item) -> Outcome:
        # Ray accepts no partial functions.
        with trusting():
            return work(item)

    with cluster(address):
        remote = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(run_work)
        waiting = list(reversed(items))
        pending: dict[ray.ObjectRef[Outcome], Item] = {}
        try:
            while waiting or pending:
                while waiting and len(pending) < _AHEAD:
                    item = waiting.pop()
                    pending[remote.remote(item)] = item
                ready, _ = ray.wait(list(pending), num_returns=1)
                for reference in ready:
                    try:
                        outcome: Outcome = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        outcome = outcome_of_crash(f"the Ray task did not end: {str(error).strip().splitlines()[0]}")
                    yield pending.pop(reference), outcome
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)


def in_processes(
    work: Callable[[Item], Outcome], items: Sequence[Item], outcome_of_crash: Callable[[str], Outcome], jobs: int
) -> Stream[Item, Outcome]:
    """Perform the work in `jobs` processes. If a process is killed, its item fails and a new process starts.

    multiprocessing would import the user's main module again, and its pools lose all items if one process is killed.

    Args:
        work: see `in_ray`. An exception ends its process.
        items: see `in_ray`.
        outcome_of_crash: see `in_ray`.
        jobs: number of processes.

    Returns:
        See `in_ray`.
    """
    waiting, outcomes = SimpleQueue[Item](), SimpleQueue[tuple[Item, Outcome]]()
    for item in items:
        waiting.put(item)
    processes: set[subprocess.Popen[bytes]] = set()
    stopping = threading.Event()

    def perform() -> None:
        process = None
        with tempfile.TemporaryFile() as errors, suppress(Empty):
            while not stopping.is_set():
                item = waiting.get_nowait()
                if process is None:
                    process = _start(errors)
                    processes.add(process)
                    if stopping.is_set():
                        process.kill()
                try:
                    pickle.dump((work, item), cast(IO[bytes], process.stdin))
                    cast(IO[bytes], process.stdin).flush()
                    outcome = pickle.load(cast(IO[bytes], process.stdout))  # noqa: S301 # written by this package
                except (BrokenPipeError, EOFError, pickle.UnpicklingError):
                    outcome = outcome_of_crash(_end_text(process, errors))
                    process = None
                outcomes.put((item, outcome))
        if process is not None:
            process.kill()

    threads = [threading.Thread(target=perform, daemon=True) for _ in range(min(jobs, len(items)))]
    for thread in threads:
        thread.start()
    try:
        for _ in items:
            yield outcomes.get()
    finally:
        stopping.set()
        for process in processes.copy():
            process.kill()
        for thread in threads:
            thread.join()
        for process in processes:
            process.communicate()


def _start(errors: IO[bytes]) -> subprocess.Popen[bytes]:
    path = [str(_PACKAGE.parent), os.environ.get("PYTHONPATH")]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "decentral_dp.studies.tasks", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": os.pathsep.join(filter(None, path))},
    )


def _end_text(process: subprocess.Popen[bytes], errors: IO[bytes]) -> str:
    code = process.wait()
    errors.seek(0)
    last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    errors.truncate(0)
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"the process that computed this cell {how}{''.join(f' ({line})' for line in last)}"


def _work_for(parent: int) -> None:
    """Serve items one after another, as a worker process."""

    def exit_after_parent() -> None:
        # The parent may be killed during a long task. Files are written atomically.
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=exit_after_parent, daemon=True).start()
    # An interrupt is handled by the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Replies use a separate stream, since work may print to stdout.
    with os.fdopen(os.dup(1), "wb") as replies, suppress(EOFError):
        os.dup2(2, 1)
        while True:
            work, item = pickle.load(sys.stdin.buffer)  # noqa: S301 # written by this package
            # The parent has asked for consent.
            with trusting():
                outcome = work(item)
            pickle.dump(outcome, replies)
            replies.flush()


if __name__ == "__main__":
    _work_for(int(sys.argv[1]))
