"""Rounds of small networks, certified and recorded, against the arithmetic that they cannot do without.

Here a round is a few thousand numbers, and what it costs is calls: of Python, and of numpy on small arrays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import decentral_dp
from decentral_dp.engines.local import LocalEngine
from decentral_dp.simulation.jobs import Job

from .test_whole_run import job_of

ROUNDS = 500


def _fifty() -> Job:
    return job_of(ROUNDS, agents=50, records=20, width=10)


def _main_job() -> Job:
    return decentral_dp.build(decentral_dp.load("ring_breast_cancer", [f"algorithm.rounds={ROUNDS}"]))


def arithmetic(agents: int, records: int, width: int) -> Callable[[], None]:
    """Six products of records with vectors, three channels of Laplace noise, and one mix."""
    draw = np.random.default_rng(0)
    shards, points = draw.normal(size=(agents, records, width)), draw.normal(size=(agents, 3 * width))
    around = np.arange(agents)
    ends = (np.tile(around, 2), np.concatenate([(around + 1) % agents, (around - 1) % agents]))
    mix = sp.csr_array((np.full(2 * agents, 0.25), ends))

    def once() -> None:
        for _ in range(3):
            margins = np.einsum("gnd,gd->gn", shards, points[:, :width])
            np.einsum("gn,gnd->gd", margins, shards)
        mix @ (points + draw.laplace(size=points.shape))

    return once


@pytest.mark.parametrize(
    ("make", "shape", "limit"), [(_fifty, (50, 20, 10), 8.0), (_main_job, (10, 22, 30), 12.0)], ids=["50", "main job"]
)
def test_a_round_of_a_small_network(make: Any, shape: tuple[int, int, int], limit: float, benchmark: Any) -> None:
    job, once = make(), arithmetic(*shape)
    ours = floor = float("inf")
    with threadpool_limits(limits=1):
        for _ in range(5):
            started = time.process_time()
            job.start(LocalEngine())
            middle = time.process_time()
            for _ in range(ROUNDS):
                once()
            ours, floor = min(ours, middle - started), min(floor, time.process_time() - middle)
    ratio, speed = ours / floor, shape[0] * ROUNDS / ours
    benchmark.extra_info["ratio"] = round(ratio, 2)
    print(
        f"\na round of {shape[0]} agents: {1e6 * ours / ROUNDS:.0f} µs, {speed:,.0f} agent-rounds/s, {ratio:.1f} × its "
        f"arithmetic (at most {limit:g})"
    )
    benchmark.pedantic(once, rounds=1)
    assert ratio <= limit
