"""Independent tasks in parallel: in this process, in processes of this machine, or as tasks of a Ray cluster.

The outcome of a task is a file (`write`, `read_outcome`), so that what was computed is not computed again.

Run as a module it is a worker process: pickled work and items come in, outcomes go out. A worker ends when its input
does, or when the process that started it has ended.
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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, NamedTuple, TypeVar, cast

from decentral_dp.errors import InputError, needing
from decentral_dp.files.durable import HAS_LOCKS, digest, lock_file, write_whole
from decentral_dp.files.regular import regular
from decentral_dp.files.trust import trusting
from decentral_dp.simulation.result import plain

# A folder that has it is of a study.
CELLS = "cells"


def number(stored: Any) -> float:
    """Return a number as `plain` wrote it: infinities are words, what is missing is NaN.

    Example:
        >>> number("inf"), number(None)
        (inf, nan)
    """
    return math.nan if stored is None else float(stored)


def write_json(out: Path, content: Mapping[str, Any], mode: int = 0o666) -> None:
    """Write JSON values in place whole. mode: of a new file, less the umask."""
    write_whole(out, (json.dumps(plain(content), indent=2, allow_nan=False) + "\n").encode(), mode)


def write(folder: Path, key: str, record: Any) -> None:
    """Write the outcome of a task, with the digest of its text: what was damaged is computed again.

    Args:
        folder: of the outcomes.
        key: of the task, the stem of its file.
        record: JSON values; others are written as their text.

    Raises:
        OSError: it cannot be written.
        ValueError: a number in it is not finite.
    """
    text = json.dumps(record, allow_nan=False, default=str)
    write_whole(folder / f"{key}.json", f"{digest(text.encode())}\n{text}\n".encode())


def read_outcome(folder: Path, key: str) -> Any:
    """Read the outcome that was kept under the key; None where there is none that is whole.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write(Path(folder), "key", {"status": "ok"})
        ...     read_outcome(Path(folder), "key"), read_outcome(Path(folder), "another")
        ({'status': 'ok'}, None)
    """
    try:
        head, _, rest = regular(folder / f"{key}.json", "study").read_text(encoding="utf-8").partition("\n")
    except (OSError, ValueError):
        return None
    text = rest.removesuffix("\n")
    return json.loads(text) if head == digest(text.encode()) else None


@contextmanager
def hold_folder(folder: Path, under_way: str) -> Iterator[None]:
    """Hold a folder of outcomes inside this, and remove what others left unfinished.

    Args:
        folder: that exists.
        under_way: a sentence.

    Raises:
        InputError: another process computes there; the sentence.
    """
    place = os.open(folder, os.O_RDONLY) if HAS_LOCKS else None
    try:
        # A file system without locks is taken at its word.
        with suppress(OSError):
            try:
                if place is not None:
                    lock_file(place)
            except BlockingIOError:
                raise InputError(under_way) from None
        for unfinished in folder.glob(".*.part"):
            unfinished.unlink()
        yield
    finally:
        if place is not None:
            os.close(place)


Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Stream = Generator[tuple[Item, Outcome], None, None]
"""Items with their outcomes, in the order in which they are done. Closed early, it stops what is under way."""

_PACKAGE = Path(__file__).parent
# One piece's products are too small to share among threads, and every core has a piece of its own.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
# Tasks handed to Ray at a time: enough for any cluster's cores, few enough to be taken back at once.
_AHEAD = 256
# Seconds between two looks at whether the process that hands out the work is still there.
_LOOK_EVERY = 0.5


class Workers(NamedTuple):
    """Who performs tasks. jobs: processes of this machine; 1 is this one. address: of a Ray cluster to use instead."""

    jobs: int = 1
    address: str | None = None

    def check(self) -> None:
        """Check that what performs the work is installed, before anything is written.

        Raises:
            InputError: a Ray cluster is asked for, and ray is not installed.
        """
        if self.address is not None:
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


def in_parallel(
    work: Callable[[Item], Outcome],
    items: Sequence[Item],
    lost: Callable[[str], Outcome],
    workers: Workers,
    named: str = "",
) -> Stream[Item, Outcome]:
    """Perform the same work on many items.

    Args:
        work: a function of a module, or a partial one, item → outcome; both can be pickled. What it raises in another
            process ends that process.
        items: what to work on.
        lost: sentence → outcome, where the process of an item ended.
        workers: who performs it.
        named: what the command line of the processes says besides.

    Returns:
        A `Stream`.
    """
    if workers.address is not None:
        return in_ray(work, items, lost, workers.address)
    if workers.jobs == 1:
        return ((item, work(item)) for item in items)
    return in_processes(work, items, lost, workers.jobs, named)


def in_ray(
    work: Callable[[Item], Outcome], items: Sequence[Item], lost: Callable[[str], Outcome], address: str
) -> Stream[Item, Outcome]:
    """Compute independent items as tasks of a Ray cluster, one core each.

    Args:
        work: item → outcome.
        items: what to compute.
        lost: sentence → outcome, where a task's process ended.
        address: "auto" or "host:port" of a running cluster.

    Returns:
        A `Stream`.
    """
    import ray
    import ray.exceptions

    from decentral_dp.engines.ray import cluster

    def run_work(item: Item) -> Outcome:
        # Ray takes functions only, and what is worked on may be a partial one.
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
                        outcome = lost(f"the Ray task did not end: {str(error).strip().splitlines()[0]}")
                    yield pending.pop(reference), outcome
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)


def in_processes(
    work: Callable[[Item], Outcome], items: Sequence[Item], lost: Callable[[str], Outcome], jobs: int, named: str = ""
) -> Stream[Item, Outcome]:
    """Perform the work by `jobs` processes. An item whose process is killed is lost, and the next has a new one.

    multiprocessing would import the user's main module again, and a pool loses all items with one process.

    Args:
        work, items, lost, jobs, named: as of `in_parallel`.

    Returns:
        A `Stream`.
    """
    waiting, done = SimpleQueue[Item](), SimpleQueue[tuple[Item, Outcome]]()
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
                    process = _start(named, errors)
                    processes.add(process)
                    if stopping.is_set():
                        process.kill()
                try:
                    pickle.dump((work, item), cast(IO[bytes], process.stdin))
                    cast(IO[bytes], process.stdin).flush()
                    outcome = pickle.load(cast(IO[bytes], process.stdout))  # noqa: S301 # written by this package
                except (BrokenPipeError, EOFError, pickle.UnpicklingError):
                    outcome = lost(_end_text(process, errors))
                    process = None
                done.put((item, outcome))
        if process is not None:
            process.kill()

    threads = [threading.Thread(target=perform, daemon=True) for _ in range(min(jobs, len(items)))]
    for thread in threads:
        thread.start()
    try:
        for _ in items:
            yield done.get()
    finally:
        stopping.set()
        for process in processes.copy():
            process.kill()
        for thread in threads:
            thread.join()
        for process in processes:
            process.communicate()


def _start(named: str, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    path = [str(_PACKAGE.parent), os.environ.get("PYTHONPATH")]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "decentral_dp.tasks", str(os.getpid()), named],
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
    """Work on one item after the other, as a process of its own."""

    def exit_after_parent() -> None:
        # The parent may be killed in the middle of an hour's work. Files are written whole or not at all.
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=exit_after_parent, daemon=True).start()
    # An interrupt is for the process that hands out the work.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The replies go where nothing else is printed.
    with os.fdopen(os.dup(1), "wb") as replies, suppress(EOFError):
        os.dup2(2, 1)
        while True:
            work, item = pickle.load(sys.stdin.buffer)  # noqa: S301 # written by this package
            # The process that hands out the work has asked for consent.
            with trusting():
                outcome = work(item)
            pickle.dump(outcome, replies)
            replies.flush()


if __name__ == "__main__":
    _work_for(int(sys.argv[1]))
