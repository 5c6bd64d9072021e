"""What it costs to keep a run on record as it goes, against the same run without."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from decentral_dp.config.loading import load
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl
from decentral_dp.simulation.folder.journal import begin
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job

from .rings import ring_job


def _ten_agents() -> Job:
    return build(load("ring_breast_cancer", ["algorithm.rounds=4000", "privacy.epsilon=1e3"]))


def _thousand_agents() -> Job:
    return ring_job(400, agents=1000, records=20, width=64)


@pytest.mark.parametrize(("make", "limit"), [(_ten_agents, 1.1), (_thousand_agents, 1.05)], ids=["10", "1000"])
def test_a_record_against_none(make: Any, limit: float, benchmark: Any, tmp_path: Path) -> None:
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
    ratio = sorted(ratios)[len(ratios) // 2]
    benchmark.extra_info["ratio"] = round(ratio, 3)
    print(f"\non record: {ratio:.3f} × the run without a folder (at most {limit})")
    benchmark.pedantic(plain, rounds=1)
    assert ratio <= limit
