"""Networks that change, against one that stays."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import decentral_dp
from decentral_dp.engines.local import LocalEngine
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.benchmarks.timing import report

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
    report(benchmark, f"{change}, of a round of a ring that stays", float(np.median(ratios)), 1.1)
