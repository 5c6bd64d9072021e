"""A round of the Ray engine against bare actor calls that pass references along the same graph."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import ray

from decentral_dp.engines.protocol import AgentNode, RunControl, blocks
from decentral_dp.engines.ray import Actor, _drive, _Kept
from decentral_dp.engines.ray_cluster import started
from decentral_dp.privacy.mechanisms.scheduled_releaser import NoiseSchedule, ScheduledReleaser
from decentral_dp.privacy.randomness import Streams, seeded_root
from tests.benchmarks.test_gossip import CHANNELS, DIMENSION, PureGossip, ring

AGENTS = 10
ROUNDS = 300


class Make:
    """A picklable factory of an agent's mechanism."""

    def __init__(self, agents: np.ndarray) -> None:
        self._agents = agents

    def __call__(self) -> ScheduledReleaser:
        ones = np.ones(self._agents.size)
        schedules = dict.fromkeys(CHANNELS, NoiseSchedule(ones, ones * 0.1))
        return ScheduledReleaser("laplace", schedules, Streams(seeded_root(1, b"benchmark"), "noise", self._agents))


class Bare:
    """Receives arrays and returns one of the same size."""

    def __init__(self) -> None:
        self._value = np.zeros((1, 3 * DIMENSION))

    def advance(self, *messages: Any) -> Any:
        return self._value


def nodes() -> list[AgentNode]:
    cut = blocks(ring(AGENTS), [1] * AGENTS)
    return [AgentNode(agents, PureGossip(1), None, Make(agents), near, mixing) for agents, near, mixing in cut]


def test_ray_ratio(benchmark: Any, ray_cluster: None) -> None:
    """Ten agents on a ring, three channels of 64, Laplace noise and ledger, per round."""
    # The programs of this benchmark are not installed where the actors live.
    for module in (PureGossip.__module__, __name__):
        ray.cloudpickle.register_pickle_by_value(sys.modules[module])
    placed = nodes()
    best = {"ours": float("inf"), "bare": float("inf")}
    for _ in range(4):
        actors = started(Actor, [(node, ROUNDS, None) for node in placed], [{}] * len(placed))
        ray.get([a.__ray_ready__.remote() for a in actors])
        start = time.perf_counter()
        _drive(actors, placed, ROUNDS, RunControl(), _Kept(None, 0))
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
