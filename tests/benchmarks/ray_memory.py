"""Memory of a Ray cluster's head while actors are called: `python -m tests.benchmarks.ray_memory 100000`.

Ten agents on a ring, an actor each, three channels of 64 with noise and ledger; a round is ten calls. Resident sizes of
the head's processes and of the driver.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import ray

from decentral_dp.engines.protocol import AgentNode, RunControl, Snapshot, agent_blocks
from decentral_dp.engines.ray import RayEngine
from decentral_dp.privacy.mechanisms.releasers import NoiseSchedule, ScheduledReleaser
from decentral_dp.privacy.randomness import Streams, seeded_root
from tests.benchmarks.test_gossip import CHANNELS, PureGossip, ring

AGENTS = 10


class Make:
    """A picklable factory of an agent's mechanism."""

    def __init__(self, agents: np.ndarray) -> None:
        self._agents = agents

    def __call__(self) -> ScheduledReleaser:
        ones = np.ones(self._agents.size)
        schedules = dict.fromkeys(CHANNELS, NoiseSchedule(ones, ones * 0.1))
        return ScheduledReleaser("laplace", schedules, Streams(seeded_root(1, b"benchmark"), "noise", self._agents))


def nodes() -> list[AgentNode]:
    """Ten agents of an actor each. What they run is not installed where actors live, and travels by value."""
    for module in (PureGossip.__module__, __name__):
        ray.cloudpickle.register_pickle_by_value(sys.modules[module])
    cut = agent_blocks(ring(AGENTS), [1] * AGENTS)
    return [AgentNode(agents, PureGossip(1), None, Make(agents), near, mixing) for agents, near, mixing in cut]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int)
    asked = parser.parse_args()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        for k, sizes in enumerate(grown(asked.rounds, looks=10), start=1):
            said = ", ".join(f"{name} {size:.0f} MiB" for name, size in sizes.items())
            print(f"{k * asked.rounds // 10 * AGENTS:9d} calls: {said}")
    finally:
        ray.shutdown()


def grown(rounds: int, looks: int) -> list[dict[str, float]]:
    """Sizes of the head's processes and of the driver after equal shares of the rounds, in MiB."""
    found: list[dict[str, float]] = []

    def look(snapshot: Snapshot) -> bool:
        if snapshot.round:
            found.append({name: _resident(number) for name, number in _processes().items()})
        return False

    RayEngine().run(nodes(), rounds, RunControl([rounds * k // looks for k in range(1, looks + 1)], look))
    return found


def _processes() -> dict[str, int]:
    """Of the Ray that this process has started, by name."""
    found = {"driver": os.getpid()}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            name = (place / "comm").read_text().strip()
            parent = (place / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if name in ("gcs_server", "raylet") and int(parent) == os.getpid():
            found[name] = int(place.name)
    return found


def _resident(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024.0 for line in lines if line.startswith("VmRSS"))


if __name__ == "__main__":
    # Under the name by which what travels is looked up.
    from tests.benchmarks import ray_memory

    ray_memory.main()
