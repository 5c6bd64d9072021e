"""A whole round with secret noise, whose numbers are keystreams of AES-256, against the same round with a seed."""

from __future__ import annotations

import time
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from decentral_dp.config.loading import load
from decentral_dp.engines.local import LocalEngine
from decentral_dp.privacy.randomness import secret_root
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job

from .rings import ring_job

AT_MOST = 1.3


def _ratio(seeded: Job, measured: int) -> float:
    """Of processor times: the least of runs that take turns, ciphers for all agents made anew in each."""
    secret, times = seeded.with_root(secret_root()), {}
    with threadpool_limits(limits=1):
        for _ in range(measured):
            for name, job in (("secret", secret), ("seeded", seeded)):
                started = time.process_time()
                job.start(LocalEngine())
                times[name] = min(times.get(name, float("inf")), time.process_time() - started)
    return times["secret"] / times["seeded"]


@pytest.mark.parametrize(("agents", "rounds"), [(10, 200), (1000, 20)])
def test_a_whole_run_with_secret_noise(benchmark: Any, agents: int, rounds: int) -> None:
    """LDP-DSBO on a ring, certified and recorded: 20 + 20 records × 64 features, three channels of noise."""
    job = ring_job(rounds, agents, 20, 64)
    ratio = _ratio(job, 7)
    benchmark.extra_info["ratio"] = round(ratio, 2)
    print(f"\n{agents} agents, secret noise: {ratio:.2f} × the run with a seed (at most {AT_MOST})")
    benchmark.pedantic(lambda: job.with_root(secret_root()).start(LocalEngine()), rounds=1)
    assert ratio <= AT_MOST


@pytest.mark.parametrize("name", ["minibatch_torus", "dp_sgd_dual"])
def test_secret_batches_and_coins(benchmark: Any, name: str) -> None:
    """Records drawn for each agent and round: minibatches of gossip, and a coordinator's Poisson samples."""
    job = build(load(name, ["algorithm.rounds=50"]))
    ratio = _ratio(job, 7)
    benchmark.extra_info["ratio"] = round(ratio, 2)
    print(f"\n{name} with secret draws: {ratio:.2f} × the run with a seed (at most {AT_MOST})")
    benchmark.pedantic(lambda: job.with_root(secret_root()).start(LocalEngine()), rounds=1)
    assert ratio <= AT_MOST
