"""Rounds of the Ray engine: against bare actor calls along the same graph, against one process, and in memory."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import ray
from threadpoolctl import threadpool_limits

from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import Recovery, RunControl, boundaries
from decentral_dp.engines.ray import Actor, _begin, _drive, _Driver
from decentral_dp.engines.ray_cluster import start_actors
from tests.benchmarks.ray_memory import AGENTS, grown, nodes
from tests.benchmarks.rings import ring_job
from tests.benchmarks.test_gossip import DIMENSION

ROUNDS = 300


class Bare:
    """Receives arrays and returns one of the same size."""

    def __init__(self) -> None:
        self._value = np.zeros((1, 3 * DIMENSION))

    def advance(self, *messages: Any) -> Any:
        return self._value


def test_ray_ratio(benchmark: Any, ray_cluster: None) -> None:
    """Ten agents on a ring, three channels of 64, Laplace noise and ledger, per round."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    placed = nodes()
    best = {"ours": float("inf"), "bare": float("inf")}
    for _ in range(4):
        actors = start_actors(Actor, [{}] * len(placed))
        _begin(actors, [(n, b, ROUNDS, None, False, None) for n, b in zip(placed, boundaries(placed), strict=True)])
        start = time.perf_counter()
        _drive(actors, placed, ROUNDS, RunControl(), _Driver(None, 0, Recovery()))
        best["ours"] = min(best["ours"], time.perf_counter() - start)
        for actor in actors:
            ray.kill(actor)

        bare = [ray.remote(num_cpus=0.1)(Bare).remote() for _ in placed]
        ray.get([a.__ray_ready__.remote() for a in bare])
        start = time.perf_counter()
        messages = [a.advance.remote() for a in bare]
        for t in range(ROUNDS):
            messages = [
                a.advance.remote(*(messages[j] for j in n.neighbours)) for a, n in zip(bare, placed, strict=True)
            ]
            if t % 32 == 0:
                ray.wait(messages, num_returns=len(messages), fetch_local=False)
        ray.get(messages)
        best["bare"] = min(best["bare"], time.perf_counter() - start)
        for actor in bare:
            ray.kill(actor)
    ratio = best["ours"] / best["bare"]
    benchmark.extra_info["ratio"] = round(ratio, 2)
    print(
        f"\nRay round of {AGENTS} actors: {ratio:.2f} × bare calls, {1e3 * best['ours'] / ROUNDS:.1f} ms (at most 1.5)"
    )
    benchmark.pedantic(lambda: None, rounds=1)
    assert ratio <= 1.5


def test_a_thousand_agents_in_two_actors(benchmark: Any, ray_cluster: None) -> None:
    """Whole certified rounds on a ring, 20 + 20 records × 64 features, against the same in one process on one core."""
    rounds = 100
    job = ring_job(rounds, 1000, 20, 64)
    halves, whole = job.nodes([500, 500]), job.nodes([1000])
    best = {"ray": float("inf"), "local": float("inf")}
    for _ in range(4):
        actors = start_actors(Actor, [{}] * len(halves))
        _begin(actors, [(n, b, rounds, None, False, None) for n, b in zip(halves, boundaries(halves), strict=True)])
        start = time.perf_counter()
        _drive(actors, halves, rounds, RunControl(), _Driver(None, 0, Recovery()))
        best["ray"] = min(best["ray"], time.perf_counter() - start)
        for actor in actors:
            ray.kill(actor)
        with threadpool_limits(limits=1):
            start = time.perf_counter()
            LocalEngine().run(whole, rounds)
            best["local"] = min(best["local"], time.perf_counter() - start)
    ratio = best["ray"] / best["local"]
    benchmark.extra_info["ratio"] = round(ratio, 2)
    print(f"\n1000 agents in two actors: {ratio:.2f} × one process, {10 * best['ray']:.1f} ms a round (at most 1.3)")
    benchmark.pedantic(lambda: None, rounds=1)
    assert ratio <= 1.3


def test_memory_of_the_head(benchmark: Any, ray_cluster: None) -> None:
    """Ten actors, 100 000 calls: what the processes of the head grow by after the first half."""
    sizes = grown(rounds=10_000, looks=2)
    first, last = (sum(size.values()) for size in sizes)
    benchmark.extra_info["MiB"] = round(last - first)
    print(f"\nthe head over 100 000 actor calls: {first:.0f} MiB after half of them, {last:.0f} MiB after all")
    benchmark.pedantic(lambda: None, rounds=1)
    assert last - first <= 0.1 * first
