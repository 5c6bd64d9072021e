"""What a study adds to the runs that it is made of, and how long one of two hundred cells takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from decentral_dp import run
from decentral_dp.config.loading import load
from decentral_dp.studies.runs import Task, compute, task_of
from decentral_dp.studies.schema import Cell, Study, cells, load_study
from decentral_dp.studies.study import conduct
from decentral_dp.studies.tables import cell_table, results, summary
from decentral_dp.tasks.outcomes import read_outcome, write
from decentral_dp.tasks.parallel import cores


def study_of(seeds: int) -> Study:
    """10 agents, d = 30, 500 rounds, four graphs: 200 cells with 50 seeds."""
    return load_study(
        {
            "scenario": "ring_breast_cancer",
            "seeds": seeds,
            "set": {"algorithm": {"rounds": 500, "x": {"scale": 0.02, "decay": 0.3}}, "run": {"evaluate_every": 50}},
            "grid": {"topology.kind": ["ring", "star", "path", "complete"]},
        }
    )


def test_overhead_of_a_cell(benchmark: Any, tmp_path: Path) -> None:
    """Everything from the cell's content to its rows in the tables, against decentral_dp.run alone, in turns."""
    study = study_of(5)
    listed = cells(study)
    run(load(listed[0].content))  # Imports and the data set's cache are not the cell's.

    def whole(cell: Cell) -> None:
        task = task_of(cell, study.kind, study.rounds)
        assert isinstance(task, Task)
        write(tmp_path, task.key, compute(task))
        record = read_outcome(tmp_path, task.key)
        assert record is not None
        table = cell_table([cell], [task.key], [record])
        summary(results([cell], [task.key], [record], "last"), ["topology.kind"], 0.95, table)

    ours, bare = float("inf"), float("inf")
    with threadpool_limits(limits=1):
        cell, scenario = listed[0], load(listed[0].content)
        for _ in range(15):
            started = time.perf_counter()
            whole(cell)
            middle = time.perf_counter()
            run(scenario)
            ours, bare = min(ours, middle - started), min(bare, time.perf_counter() - middle)
    ratio = ours / bare
    benchmark.extra_info["ratio"] = round(ratio, 3)
    print(f"\na cell of a study: {ratio:.3f} × the bare run of {bare:.2f} s (at most 1.10)")
    benchmark.pedantic(lambda: whole(listed[0]), rounds=1)
    assert ratio <= 1.10


def test_two_hundred_cells(benchmark: Any, tmp_path: Path) -> None:
    """Minutes on two cores, both busy."""
    started = time.perf_counter()
    found = conduct(study_of(50), tmp_path / "out")
    seconds = time.perf_counter() - started
    busy = float(found.cells["seconds"].sum()) / (seconds * cores())
    benchmark.extra_info["seconds"] = round(seconds, 1)
    print(f"\n200 cells: {seconds:.0f} s on {cores()} cores, {100 * busy:.0f} % of them in cells (at most 300 s)")
    benchmark.pedantic(lambda: None, rounds=1)
    assert found.computed == 200
    assert found.failed.empty
    assert seconds < 300
    assert busy > 0.75
