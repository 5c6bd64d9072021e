"""Pure gossip with float-safe noise and ledger, compared with the bare arithmetic, and its growth."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.engines.host import Host
from decentral_dp.engines.protocol import AgentNode, agent_blocks
from decentral_dp.exchange import Gossip, Reply, Value
from decentral_dp.privacy.randomness import Streams, seeded_root
from decentral_dp.privacy.releasers import NoiseSchedule, ScheduledReleaser
from tests.benchmarks.timing import fastest, report

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


def rounds_of(h: Host) -> Callable[[], object]:
    message = [h.advance()]

    def one_round() -> object:
        message[0] = h.advance(message[0])
        return message[0]

    return one_round


def test_gossip_ratio(benchmark: Any) -> None:
    """1000 agents, three channels of 64: noise, gossip and ledger against a bare Laplace draw and sparse product."""
    ours, plain = fastest([rounds_of(host(1000, 10**6)), bare(1000)], 60)
    report(benchmark, "gossip of 1000 agents, of the bare arithmetic", ours / plain, 2.0)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_sampler_ratio(benchmark: Any, kind: str) -> None:
    """The float-safe sampler, rounding included, against numpy's own of the same law."""
    shape, ones = (20, 50_000), np.ones(20)
    streams = Streams(seeded_root(1, b"benchmark"), "noise", np.arange(20))
    mechanism = ScheduledReleaser(kind, {"y": NoiseSchedule(ones, np.zeros(20))}, streams)
    norm: Any = "l1" if kind == "laplace" else "l2"
    value = Bounded(np.zeros(shape), np.full(shape, 0.1), {"train": Sensitivity(ones, ones, None)}, norm)
    rng = np.random.default_rng(3)
    own = rng.laplace if kind == "laplace" else rng.normal
    ours, plain = fastest([lambda: mechanism.release(1, {"y": value}), lambda: own(0.0, 1.0, size=shape)], 12)
    report(benchmark, f"float-safe {kind} sampler, of numpy's own", ours / plain, 1.5)


@pytest.mark.parametrize(("few", "many", "limit"), [(100, 10_000, 1.6), (1000, 100_000, 1.2)])
def test_cost_is_linear_in_edges(benchmark: Any, few: int, many: int, limit: float) -> None:
    """Time per edge and round on a ring."""
    times = fastest([rounds_of(host(m, 10**6)) for m in (few, many)], 6)
    report(benchmark, f"time per edge of {many} agents, of that of {few}", times[1] / many / (times[0] / few), limit)
