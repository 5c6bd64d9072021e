"""Time besides the rounds: the journal of a run, secret noise, and the start of a command."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from decentral_dp.config.loading import load_scenario as load
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl
from decentral_dp.privacy.randomness import secret_root
from decentral_dp.simulation.folder.journal import begin
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.benchmarks.rings import ring_job
from tests.benchmarks.timing import fastest, report

LIBRARIES = "import numpy, scipy.special, pydantic, typer, rich.table"
PICTURES = f"{LIBRARIES}, pandas, pyarrow.parquet, matplotlib.figure, matplotlib.backends.backend_agg"


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda: build(load("ring_breast_cancer", ["algorithm.rounds=4000", "privacy.epsilon=1e3"])), 1.1),
        (lambda: ring_job(400, agents=1000, records=20, width=64), 1.05),
    ],
    ids=["10", "1000"],
)
def test_a_record_against_none(make: Callable[[], Job], limit: float, benchmark: Any, tmp_path: Path) -> None:
    job, number = make(), itertools.count()

    def plain() -> None:
        job.start(LocalEngine())

    def recorded() -> None:
        kept = begin(tmp_path / str(next(number)), job)

        def observe(s: Any) -> bool:
            kept.write_due(s, [])
            return False

        job.start(LocalEngine(), RunControl([0], observe, kept.due))
        kept.write_interruption("interrupted", "measured")

    ratios = []
    with threadpool_limits(limits=1):
        for _ in range(5):
            started = time.perf_counter()
            plain()
            middle = time.perf_counter()
            recorded()
            ratios.append((time.perf_counter() - middle) / (middle - started))
    report(benchmark, "a run on record, of one without a folder", sorted(ratios)[len(ratios) // 2], limit)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ring_job(200, 10, 20, 64),
        lambda: ring_job(20, 1000, 20, 64),
        lambda: build(load("minibatch_torus", ["algorithm.rounds=50"])),
        lambda: build(load("dp_sgd_dual", ["algorithm.rounds=50"])),
    ],
    ids=["10 agents", "1000 agents", "minibatches", "Poisson samples"],
)
def test_a_run_with_secret_noise(make: Callable[[], Job], benchmark: Any) -> None:
    """Whole runs, certified and recorded; ciphers of all agents are made anew in each."""
    seeded = make()
    secret = seeded.with_root(secret_root())
    with threadpool_limits(limits=1):
        times = fastest([lambda job=job: job.start(LocalEngine()) for job in (secret, seeded)], 7, time.process_time)
    report(benchmark, "a run with secret noise, of one with a seed", times[0] / times[1], 1.3)


def _seconds(arguments: list[str], folder: Path) -> float:
    """Processor time of a process, user and system: the least of five."""
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        # With cached bytecode.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


@pytest.mark.parametrize(
    ("command", "libraries", "limit"),
    [
        (["--help"], LIBRARIES, 1.0),
        (["plan", "ring_breast_cancer"], LIBRARIES, 3.0),
        (["run", "ring_breast_cancer"], PICTURES, 4.0),
    ],
    ids=["help", "plan", "run"],
)
def test_a_command_against_its_imports(
    command: list[str], libraries: str, limit: float, benchmark: Any, tmp_path: Path
) -> None:
    ours = _seconds(["-m", "decentral_dp.cli.main", *command], tmp_path)
    floor = _seconds(["-c", libraries], tmp_path)
    print(f"\n{command[0]}: {ours:.2f} s of processor time")
    report(benchmark, f"{command[0]}, of its libraries", ours / floor, limit)
