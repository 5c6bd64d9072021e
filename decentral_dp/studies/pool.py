"""Cells in parallel, each kept in its file when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from decentral_dp.engines.task_pool import Stream, in_parallel
from decentral_dp.studies import study_runs
from decentral_dp.studies.study_runs import Record, Task, compute_and_keep, keep, lost


def perform(tasks: Sequence[Task], folder: Path, jobs: int, address: str | None) -> Stream[Task, Record]:
    """Compute each task as it is done: on Ray with an address, else in so many processes.

    Args:
        tasks: one for each cell.
        folder: where cells are kept, by the process that computed them; from Ray, when they come back.
        jobs: processes of this machine; 1 computes in this process. Not read with an address.
        address: of a Ray cluster, or None.

    Returns:
        Tasks with their records, in the order in which they are done.
    """
    if address is None:
        yield from in_parallel(partial(compute_and_keep, folder), tasks, lost, jobs, named=str(folder))
    else:
        for task, record in in_parallel(study_runs.compute, tasks, lost, jobs, address):
            keep(folder, task, record)
            yield task, record
