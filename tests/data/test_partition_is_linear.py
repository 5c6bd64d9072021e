"""Records are dealt as a look at every agent would deal them, in time that grows with the records alone."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from decentral_dp.data.dataset import Dataset
from decentral_dp.data.partition import Roles, deal, partition


def _dataset(owner: Any) -> Dataset:
    n = len(owner)
    return Dataset(np.zeros((n, 1)), np.zeros(n, dtype=np.int64), ("a", "b"), ("x",), "made up", np.asarray(owner))


def _dealt(spec: Any, owner: Any, agents: int, among: Any) -> list[Any]:
    return partition(_dataset(owner), agents, spec, 0, among=among)


@pytest.mark.parametrize("by_function", [False, True])
def test_shards_are_those_of_a_look_at_every_agent(by_function: bool) -> None:
    rng = np.random.default_rng(0)
    for n, agents in ((1, 1), (7, 5), (50, 9), (200, 60)):
        owner = rng.integers(0, agents, n)
        among = rng.permutation(n)[: max(agents, n // 2)]
        if among.size < agents:
            continue
        spec: Any = (lambda **_: owner[among]) if by_function else {"kind": "column"}  # noqa: B023
        found = _dealt(spec, owner, agents, among)
        wanted = [sorted(k for k in among.tolist() if owner[k] == agent) for agent in range(agents)]
        assert [shard.tolist() for shard in found] == wanted
        assert all(shard.dtype == np.int64 for shard in found)


def test_roles_of_a_function_are_those_of_a_look_at_every_record() -> None:
    rng = np.random.default_rng(1)
    owner, order = np.arange(40) % 4, rng.permutation(60)
    roles = Roles(np.sort(order[:25]), np.sort(order[25:40]))
    everyone = np.sort(order[:40])
    found = deal(_dataset(np.zeros(60, dtype=np.int64)), 4, lambda **_: owner, 0, roles)
    for parts, role in zip(found, roles, strict=True):
        for agent, part in enumerate(parts):
            assert part.tolist() == [r for k, r in enumerate(everyone.tolist()) if owner[k] == agent and r in role]


def test_eight_times_the_agents_take_far_less_than_sixty_four_times_as_long() -> None:
    def seconds(agents: int) -> float:
        data = _dataset(np.arange(2 * agents) % agents)
        times = []
        for _ in range(3):
            start = time.process_time()
            partition(data, agents, {"kind": "column"}, 0)
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(24_000) < 24 * max(seconds(3_000), 1e-3)
