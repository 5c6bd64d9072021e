"""Rounds on networks that change against rounds on one that stays, and ten thousand agents on either."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import decentral_dp
from decentral_dp.engines.local import LocalEngine
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job

RECORDS, WIDTH = 20, 64


def training_job(agents: int, rounds: int, topology: Mapping[str, Any] | None = None) -> Job:
    """A logistic regression by `dp_dsgd`, Gaussian noise; made-up records in [−1, 1]."""
    draw, n = np.random.default_rng(0), agents * RECORDS
    data = {
        "features": draw.uniform(-1.0, 1.0, (n, WIDTH)),
        "labels": np.where(draw.uniform(size=n) < 0.5, -1, 1),
        "agent": np.repeat(np.arange(agents), RECORDS),
        "split": np.full(n, "train"),
        "classes": [-1, 1],
    }
    content = {
        "seed": 1,
        "problem": {"kind": "classification", "data": "breast_cancer", "classes": [-1, 1]},
        "topology": {"kind": "ring", "agents": agents, **(topology or {})},
        "algorithm": {"kind": "dp_dsgd", "rounds": rounds, "y": {"scale": 0.1}},
        "privacy": {"mechanism": "gaussian", "y": {"scale": 1.0}, "clip": {"y": 1.0}, "delta": 1e-5},
        "run": {"evaluate_every": rounds, "average": 1},
    }
    return build(decentral_dp.load(content), data=data)


def seconds(job: Job) -> float:
    with threadpool_limits(limits=1):
        started = time.process_time()
        job.start(LocalEngine())
        return time.process_time() - started


# Agents, and what changes; a complete graph of more takes long to build.
CHANGES: dict[str, tuple[int, dict[str, Any]]] = {
    "one_peer_exponential": (500, {"kind": "complete", "over_time": "one_peer_exponential"}),
    "matching": (2000, {"over_time": "matching"}),
    "drop": (2000, {"drop": 0.1}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_network_that_changes_against_one_that_stays(change: str, benchmark: Any) -> None:
    """Against a ring of as many agents: the time of a hundred rounds more."""
    agents, topology = CHANGES[change]
    jobs = {
        (name, rounds): training_job(agents, rounds, table)
        for name, table in (("stays", {}), ("changes", topology))
        for rounds in (20, 120)
    }
    ratios = []
    for _ in range(5):
        took = {key: seconds(job) for key, job in jobs.items()}
        stays, changes = (took[name, 120] - took[name, 20] for name in ("stays", "changes"))
        ratios.append(changes / stays)
    ratio = float(np.median(ratios))
    benchmark.extra_info["ratio"] = round(ratio, 2)
    print(f"\n{change}: {ratio:.2f} × a round of a ring that stays (at most 1.1)")
    benchmark.pedantic(lambda: None, rounds=1)
    assert ratio <= 1.1


def test_ten_thousand_agents(benchmark: Any) -> None:
    """Agent-rounds a second of one core, and memory that does not grow with rounds."""
    short, long = (training_job(10_000, rounds) for rounds in (5, 45))
    rate = 40 * 10_000 / min(seconds(long) - seconds(short) for _ in range(3))
    peaks = []
    for job in (short, long):
        tracemalloc.start()
        job.start(LocalEngine())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    benchmark.extra_info.update(rate=round(rate), growth=round(peaks[1] / peaks[0], 3))
    print(f"\n10 000 agents: {rate:.0f} agent-rounds/s; memory of 45 rounds {peaks[1] / peaks[0]:.2f} × that of 5")
    benchmark.pedantic(lambda: None, rounds=1)
    assert rate >= 100_000
    assert peaks[1] <= 1.1 * peaks[0]
