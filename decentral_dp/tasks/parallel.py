"""Independent tasks in parallel: in this process, in processes of this machine, or as tasks of a Ray cluster.

Run as a module it is a worker process: work and an item come in, the outcome goes out, one line each. A worker ends
when its input does, and in the middle of its work when whoever started it has ended without a word.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, Generic, NamedTuple, TypeVar, cast

from decentral_dp.errors import needing
from decentral_dp.files.trust import trusting

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Stream = Generator[tuple[Item, Outcome], None, None]
"""Items with their outcomes, in the order in which they are done. Closed early, it stops what is under way."""

_PACKAGE = Path(__file__).parent.parent
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

    @property
    def is_in_process(self) -> bool:
        return self.jobs == 1 and self.address is None

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
    if workers.is_in_process:
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

    from decentral_dp.engines.ray_cluster import cluster

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
            worker.stop()
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
            done.put((item, self._request(item)))
        self._close()

    def _request(self, item: Item) -> Outcome:
        process = self._process if self._process is not None else self._start()
        reply = ""
        with suppress(BrokenPipeError):  # Then there is no reply either.
            if process.stdin is not None and process.stdout is not None:
                process.stdin.write(to_line((self._work, item)))
                process.stdin.flush()
                reply = process.stdout.readline()
        if reply.endswith("\n"):
            return cast(Outcome, from_line(reply))
        return self._lost(self._end_text(process))

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 # _close closes it
        path = [str(_PACKAGE.parent), os.environ.get("PYTHONPATH")]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "decentral_dp.tasks.parallel", str(os.getpid()), self._named],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env={**os.environ, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": os.pathsep.join(filter(None, path))},
        )
        return self._process

    def _end_text(self, process: subprocess.Popen[str]) -> str:
        code = process.wait()
        lines: list[str] = []
        if self._errors is not None:
            self._errors.seek(0)
            lines = self._errors.read().strip().splitlines()[-1:]
        self._close()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"the process that computed this cell {how}{''.join(f' ({line})' for line in lines)}"

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

    def stop(self) -> None:
        """Stop at once; what is kept is kept. May be called from another thread, and after the end."""
        self._ended = True
        process = self._process
        if process is not None:
            process.kill()


def exit_after_parent(parent: int) -> None:
    """End this process soon after its parent, which may be killed in the middle of an hour's work."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    # What is kept is written whole or not at all, so nothing is left to tidy up.
    os._exit(1)


def work_for(parent: int) -> None:
    """Work on one item after the other, as a process of its own."""
    threading.Thread(target=exit_after_parent, args=(parent,), daemon=True).start()
    # An interrupt is for the process that hands out the work.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The replies go where nothing else is printed.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)
        for line in sys.stdin:
            work, item = from_line(line)
            # The process that hands out the work has asked for consent.
            with trusting():
                replies.write(to_line(work(item)))
            replies.flush()


if __name__ == "__main__":
    work_for(int(sys.argv[1]))
