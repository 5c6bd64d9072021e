"""Pure gossip with float-safe noise and ledger, against the bare arithmetic it stands for; and how it grows."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.engines.host import Host
from decentral_dp.engines.protocol import AgentNode, agent_blocks
from decentral_dp.exchange import Gossip, Reply, Value
from decentral_dp.privacy.mechanisms.releasers import NoiseSchedule, ScheduledReleaser
from decentral_dp.privacy.randomness import Streams, seeded_root

DIMENSION = 64
CHANNELS = ("x", "y", "z")


class State(NamedTuple):
    x: Value
    y: Value
    z: Value


class PureGossip:
    """Every channel is charged, and averaged with the neighbours; nothing else."""

    channels = CHANNELS
    releases_per_round = 1
    central = False

    def __init__(self, agents: int) -> None:
        ones = np.ones(agents)
        self._spread = {"train": Sensitivity(ones, ones, None)}
        self._zero = np.zeros((agents, DIMENSION))

    def _bounded(self, public: np.ndarray) -> Bounded:
        return Bounded(public, self._zero, self._spread, "l1")

    def init(self, dataset: Any) -> State:
        return State(self._zero, self._zero, self._zero)

    def step(self, t: int, dataset: Any, s: State) -> Generator[Gossip, Reply, State]:
        own, near = yield Gossip(x=s.x, y=s.y, z=s.z)
        return State(*(self._bounded(0.4 * own[c] + near[c]) for c in CHANNELS))


def ring(agents: int) -> sp.csr_array:
    i = np.arange(agents)
    ones = np.full(agents, 0.3)
    rows, columns = np.concatenate([i, i]), np.concatenate([(i + 1) % agents, (i - 1) % agents])
    off = sp.csr_array((np.concatenate([ones, ones]), (rows, columns)), shape=(agents, agents))
    return sp.csr_array(off - sp.diags_array(np.full(agents, 0.6)))


def host(agents: int, rounds: int) -> Host:
    mixing = ring(agents)
    numbers, near, weights = agent_blocks(mixing, [agents])[0]
    schedule = NoiseSchedule(np.ones(agents), np.full(agents, 0.1))
    streams = Streams(seeded_root(1, b"benchmark"), "noise", numbers)
    node = AgentNode(
        numbers,
        PureGossip(agents),
        None,
        lambda: ScheduledReleaser("laplace", dict.fromkeys(CHANNELS, schedule), streams),
        near,
        weights,
    )
    return Host(node, rounds)


def bare(agents: int) -> Callable[[], object]:
    rng, mixing = np.random.default_rng(1), ring(agents)
    values = np.zeros((agents, 3 * DIMENSION))

    def one_round() -> object:
        return mixing @ (values + rng.laplace(size=values.shape))

    return one_round


def best_of(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Smallest time of each, measured in turns so that a busy moment hits all of them."""
    times: dict[str, float] = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, call in runs.items():
            start = time.perf_counter()
            call()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def rounds_of(h: Host) -> Callable[[], object]:
    message = [h.advance()]

    def one_round() -> object:
        message[0] = h.advance(message[0])
        return message[0]

    return one_round


def test_gossip_ratio(benchmark: Any) -> None:
    """1000 agents, three channels of 64: noise, gossip and ledger against a bare Laplace draw and sparse product."""
    ours = rounds_of(host(1000, 10**6))
    times = best_of({"ours": ours, "bare": bare(1000)}, 60)
    ratio = times["ours"] / times["bare"]
    benchmark.extra_info["ratio"] = round(ratio, 2)
    print(f"\ngossip of 1000 agents: {ratio:.2f} × the bare arithmetic (at most 2)")
    benchmark.pedantic(ours, rounds=5)
    assert ratio <= 2.0


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_sampler_ratio(benchmark: Any, kind: str) -> None:
    """The float-safe sampler, rounding included, against numpy's own of the same law."""
    shape = (20, 50_000)
    schedule = NoiseSchedule(np.ones(shape[0]), np.zeros(shape[0]))
    streams = Streams(seeded_root(1, b"benchmark"), "noise", np.arange(shape[0]))
    mechanism = ScheduledReleaser(kind, {"y": schedule}, streams)
    ones = np.ones(shape[0])
    norm = "l1" if kind == "laplace" else "l2"
    value = Bounded(np.zeros(shape), np.full(shape, 0.1), {"train": Sensitivity(ones, ones, None)}, norm)
    rng = np.random.default_rng(3)
    own = rng.laplace if kind == "laplace" else rng.normal
    runs = {"ours": lambda: mechanism.release(1, {"y": value}), "numpy": lambda: own(0.0, 1.0, size=shape)}
    times = best_of(runs, 12)
    ratio = times["ours"] / times["numpy"]
    benchmark.extra_info["ratio"] = round(ratio, 2)
    print(f"\nfloat-safe {kind} sampler: {ratio:.2f} × numpy's own (at most 1.5)")
    benchmark.pedantic(runs["ours"], rounds=3)
    assert ratio <= 1.5


def test_cost_is_linear_in_edges(benchmark: Any) -> None:
    """Time per edge and round from 10² to 10⁴ agents on a ring: never worse than a quarter above the smallest."""
    sizes = (100, 1000, 10_000)
    runs = {str(m): rounds_of(host(m, 10**6)) for m in sizes}
    times = best_of(runs, 15)
    per_edge = {m: times[str(m)] / m for m in sizes}
    growth = max(per_edge[1000], per_edge[10_000]) / per_edge[100]
    benchmark.extra_info["ratio"] = round(growth, 2)
    print(f"\ntime per edge: {growth:.2f} × that of 100 agents at 10⁴ (linear: about 1)")
    benchmark.pedantic(runs["100"], rounds=3)
    assert growth <= 1.6


def test_a_hundred_thousand_agents(benchmark: Any) -> None:
    """Time per edge and round against 10³ agents, and the peak in numpy's and Python's allocations over 20 rounds."""
    many, few = 100_000, 1000
    times = best_of({str(m): rounds_of(host(m, 10**6)) for m in (few, many)}, 6)
    growth = times[str(many)] / many / (times[str(few)] / few)
    tracemalloc.start()
    one_round = rounds_of(host(many, 10**6))
    for _ in range(20):
        one_round()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    benchmark.extra_info["ratio"] = round(growth, 2)
    print(f"\n10⁵ agents: {growth:.2f} × the time per edge at 10³ (at most 1.2), {peak:.0f} MiB (at most 1536)")
    benchmark.pedantic(one_round, rounds=1)
    assert growth <= 1.2
    assert peak <= 1536


def test_memory_of_ten_thousand_agents(benchmark: Any) -> None:
    """Peak memory of 10⁴ agents × 64 × three channels over 50 rounds, in numpy's and Python's allocations."""
    tracemalloc.start()
    one_round = rounds_of(host(10_000, 10**6))
    for _ in range(50):
        one_round()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    benchmark.extra_info["ratio"] = round(peak / 1024, 2)
    print(f"\npeak memory of 10⁴ agents: {peak:.0f} MiB (at most 1024)")
    benchmark.pedantic(one_round, rounds=1)
    assert peak < 1024
