"""A whole round of LDP-DSBO, certified and recorded, against the arithmetic that it cannot do without."""

from __future__ import annotations

from typing import Any

from decentral_dp.engines.local import LocalEngine

from .rings import arithmetic, ring_job, seconds_of

AGENTS, RECORDS, WIDTH, ROUNDS = 1000, 20, 64, 20


def test_a_whole_round_against_its_arithmetic(benchmark: Any) -> None:
    job = ring_job(ROUNDS, AGENTS, RECORDS, WIDTH)
    ours, floor = seconds_of(job, arithmetic(AGENTS, RECORDS, WIDTH), ROUNDS)
    ratio = ours / floor
    benchmark.extra_info["ratio"] = round(ratio, 2)
    print(f"\na whole round: {ratio:.2f} × its products, noise and mix of {1e3 * floor / ROUNDS:.1f} ms (at most 2.2)")
    benchmark.pedantic(lambda: job.start(LocalEngine()), rounds=1)
    assert ratio <= 2.2
