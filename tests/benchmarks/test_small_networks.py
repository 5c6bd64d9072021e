"""Rounds of small networks, certified and recorded, against the arithmetic that they cannot do without.

Here a round is a few thousand numbers, and what it costs is calls: of Python, and of numpy on small arrays.
"""

from __future__ import annotations

from typing import Any

import pytest

from decentral_dp.config.loading import load
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job

from .rings import arithmetic, ring_job, seconds_of

ROUNDS = 500


def _fifty() -> Job:
    return ring_job(ROUNDS, agents=50, records=20, width=10)


def _main_job() -> Job:
    return build(load("ring_breast_cancer", [f"algorithm.rounds={ROUNDS}"]))


@pytest.mark.parametrize(
    ("make", "shape", "limit"), [(_fifty, (50, 20, 10), 5.0), (_main_job, (10, 22, 30), 8.0)], ids=["50", "main job"]
)
def test_a_round_of_a_small_network(make: Any, shape: tuple[int, int, int], limit: float, benchmark: Any) -> None:
    once = arithmetic(*shape)
    ours, floor = seconds_of(make(), once, ROUNDS)
    ratio, speed = ours / floor, shape[0] * ROUNDS / ours
    benchmark.extra_info["ratio"] = round(ratio, 2)
    print(
        f"\na round of {shape[0]} agents: {1e6 * ours / ROUNDS:.0f} µs, {speed:,.0f} agent-rounds/s, {ratio:.1f} × its "
        f"arithmetic (at most {limit:g})"
    )
    benchmark.pedantic(once, rounds=1)
    assert ratio <= limit
