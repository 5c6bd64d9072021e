"""Cells in parallel: in this process, in processes of this machine, or as Ray tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from decentral_dp.errors import needing
from decentral_dp.studies.study_runs import PACKAGE, Record, Task, compute, kept, lost, write

Done = tuple[Task, Record | None]
"""A cell that is done: its record, or None where the worker has kept it already."""
Stream = Generator[Done, None, None]

# One cell's products are too small to share among threads, and every core has a cell of its own.
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


def in_this_process(tasks: Sequence[Task], folder: Path) -> Stream:
    """Compute cells one after the other, each kept when it is done."""
    for task in tasks:
        record = compute(task)
        if kept(record["status"]):
            write(folder, task.key, record)
        yield task, record


def in_processes(tasks: Sequence[Task], folder: Path, jobs: int) -> Stream:
    """Compute cells by `jobs` workers, as they are done.

    A cell whose worker is killed is lost, and the next has a new one.
    """
    waiting, done = SimpleQueue[Task | None](), SimpleQueue[Done]()
    for task in tasks:
        waiting.put(task)
    workers = [_Worker(folder) for _ in range(min(jobs, len(tasks)))]
    threads = [threading.Thread(target=w.work, args=(waiting, done), daemon=True) for w in workers]
    for thread in threads:
        waiting.put(None)
        thread.start()
    try:
        for _ in tasks:
            yield done.get()
    finally:
        for worker in workers:
            worker.end()
        for thread in threads:
            thread.join()


class _Worker:
    """A process of its own, and the thread that talks to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None
        self._ended = False

    def work(self, waiting: SimpleQueue[Task | None], done: SimpleQueue[Done]) -> None:
        while (task := waiting.get()) is not None and not self._ended:
            done.put((task, self._ask(task)))
        self._close()

    def _ask(self, task: Task) -> Record | None:
        process = self._process if self._process is not None else self._start()
        reply = ""
        with suppress(BrokenPipeError):  # Then there is no reply either.
            if process.stdin is not None and process.stdout is not None:
                process.stdin.write(json.dumps(task, default=str) + "\n")
                process.stdin.flush()
                reply = process.stdout.readline()
        if reply.endswith("\n"):
            return json.loads(reply) or None
        return lost(self._how_it_ended(process))

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 # _close closes it
        path = [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "decentral_dp.studies.worker", str(self._folder), str(os.getpid())],
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


def on_ray(tasks: Sequence[Task], folder: Path, address: str) -> Stream:
    """Compute cells as tasks of a Ray cluster; each is kept here when it comes back."""
    from decentral_dp.engines.ray_tasks import mapped

    for task, record in mapped(compute, tasks, address, lost):
        if kept(record["status"]):
            write(folder, task.key, record)
        yield task, record


def check_at_hand(address: str | None) -> None:
    """Check that what computes cells is installed, before anything is written.

    Raises:
        InputError: a Ray cluster is asked for, and ray is not installed.
    """
    if address is not None:
        with needing("address"):
            import decentral_dp.engines.ray_tasks  # noqa: F401 # only whether it is there


def perform(tasks: Sequence[Task], folder: Path, jobs: int, address: str | None) -> Stream:
    """Compute each task as it is done: on Ray with an address, else in so many processes.

    Args:
        tasks: one for each cell.
        folder: where cells are kept.
        jobs: processes of this machine; 1 computes in this process. Not read with an address.
        address: of a Ray cluster, or None.

    Returns:
        Tasks with their records, in the order in which they are done.
    """
    if address is not None:
        return on_ray(tasks, folder, address)
    return in_this_process(tasks, folder) if jobs == 1 else in_processes(tasks, folder, jobs)
