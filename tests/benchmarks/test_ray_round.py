"""Rounds of the Ray engine: against bare actor calls along the same graph, and against one process."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import ray
from threadpoolctl import threadpool_limits

from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import AgentNode, Recovery, RunControl, agent_blocks, boundaries
from decentral_dp.engines.ray import Actor, _begin, _drive, _Driver, start_actors
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.privacy.releasers import NoiseSchedule, ScheduledReleaser
from tests.benchmarks.rings import ring_job
from tests.benchmarks.test_gossip import CHANNELS, DIMENSION, PureGossip, ring
from tests.benchmarks.timing import fastest, report

AGENTS, ROUNDS = 10, 300


class Make:
    """A picklable factory of an agent's mechanism."""

    def __init__(self, agents: np.ndarray) -> None:
        self._agents = agents

    def __call__(self) -> ScheduledReleaser:
        ones = np.ones(self._agents.size)
        schedules = dict.fromkeys(CHANNELS, NoiseSchedule(ones, ones * 0.1))
        return ScheduledReleaser("laplace", schedules, Streams(seeded_root(1, b"benchmark"), "noise", self._agents))


def nodes() -> list[AgentNode]:
    """Ten agents with an actor each. Their code is not installed in the actors, and is sent by value."""
    for module in (PureGossip.__module__, __name__):
        ray.cloudpickle.register_pickle_by_value(sys.modules[module])
    cut = agent_blocks(ring(AGENTS), [1] * AGENTS)
    return [AgentNode(agents, PureGossip(1), None, Make(agents), near, mixing) for agents, near, mixing in cut]


class Bare:
    """Receives arrays and returns one of the same size."""

    def __init__(self) -> None:
        self._value = np.zeros((1, 3 * DIMENSION))

    def advance(self, *messages: Any) -> Any:
        return self._value


def seconds_on_ray(placed: list[AgentNode], rounds: int) -> float:
    """Time of the rounds, without starting and ending the actors."""
    actors = start_actors(Actor, [{}] * len(placed))
    _begin(actors, [(n, b, rounds, None, False, None) for n, b in zip(placed, boundaries(placed), strict=True)])
    start = time.perf_counter()
    _drive(actors, placed, rounds, RunControl(), _Driver(None, 0, Recovery()))
    took = time.perf_counter() - start
    for actor in actors:
        ray.kill(actor)
    return took


def seconds_of_bare_calls(placed: list[AgentNode]) -> float:
    actors = [ray.remote(num_cpus=0.1)(Bare).remote() for _ in placed]
    ray.get([a.__ray_ready__.remote() for a in actors])
    start = time.perf_counter()
    messages = [a.advance.remote() for a in actors]
    for t in range(ROUNDS):
        messages = [a.advance.remote(*(messages[j] for j in n.neighbours)) for a, n in zip(actors, placed, strict=True)]
        if t % 32 == 0:
            ray.wait(messages, num_returns=len(messages), fetch_local=False)
    ray.get(messages)
    took = time.perf_counter() - start
    for actor in actors:
        ray.kill(actor)
    return took


def test_ray_ratio(benchmark: Any, ray_cluster: None) -> None:
    """Ten agents on a ring, three channels of 64, Laplace noise and ledger, per round."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    placed = nodes()
    pairs = [(seconds_on_ray(placed, ROUNDS), seconds_of_bare_calls(placed)) for _ in range(4)]
    ours, bare = map(min, zip(*pairs, strict=True))
    report(benchmark, f"a round of {AGENTS} Ray actors, of bare calls", ours / bare, 1.5)


def test_a_thousand_agents_in_two_actors(benchmark: Any, ray_cluster: None) -> None:
    """Whole certified rounds on a ring, 20 + 20 records × 64 features, against the same in one process on one core."""
    job = ring_job(100, 1000, 20, 64)
    halves, whole = job.nodes([500, 500]), job.nodes([1000])
    there = min(seconds_on_ray(halves, 100) for _ in range(4))
    with threadpool_limits(limits=1):
        (here,) = fastest([lambda: LocalEngine().run(whole, 100)], 4)
    report(benchmark, "1000 agents in two Ray actors, of one process", there / here, 1.3)
