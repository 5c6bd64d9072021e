"""Hosts of blocks: the same bits as of all agents in one block, and the mean of the last released values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from decentral_dp.engines import host
from decentral_dp.engines.host import RecentValues
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl, SavedState, Snapshot
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.hosted import released_by_actors
from tests.support.training import training

Make = Callable[..., dict[str, Any]]
RANDOM = {"kind": "erdos_renyi", "probability": 0.35, "agents": 12, "seed": 3}
ROUNDS = 6
TRAINING = training(algorithm={"rounds": ROUNDS})
# Graph, and algorithm: dp_dsgd by default.
NETWORKS: dict[str, tuple[dict[str, Any], str]] = {
    "stays": ({}, "dp_dsgd"),
    "matching": ({"over_time": "matching"}, "dp_dsgd"),
    "resample": ({"over_time": "resample"}, "dp_dsgd"),
    "lossy": ({"drop": 0.4}, "dp_dsgd"),
    "offline": ({"offline": 0.3}, "dp_dsgd"),
    "late": ({"delay": 2}, "dp_dsgd"),
    "all": ({"over_time": "matching", "drop": 0.2, "offline": 0.2, "delay": 1}, "dp_dsgd"),
    "compressed": ({"compression": {"kind": "top_k", "share": 0.3}}, "dp_dsgd"),
    "complete": ({"kind": "complete", "probability": None, "seed": None}, "dp_dsgd"),
    "tracked": ({"over_time": "matching"}, "gradient_tracking"),
    "arcs": ({"kind": "directed_exponential", "probability": None, "seed": None}, "push_sum"),
    "lossy arcs": ({"kind": "directed_exponential", "probability": None, "seed": None, "drop": 0.2}, "push_sum"),
    "changing arcs": ({"directed": True, "over_time": "resample", "drop": 0.2}, "push_sum"),
    "late arcs": ({"directed": True, "delay": 2}, "push_sum"),
    "walk": ({}, "random_walk"),
}


def same(snapshots: Sequence[Snapshot], expected: Sequence[Snapshot]) -> None:
    for one, other in zip(snapshots, expected, strict=True):
        for part in ("released", "published", "state"):
            for channel, value in getattr(other, part).items():
                np.testing.assert_array_equal(getattr(one, part)[channel], value)


@pytest.mark.parametrize("network", NETWORKS)
def test_any_agents_share_an_actor(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, algorithm = NETWORKS[network]
    topology = {key: value for key, value in (RANDOM | change).items() if value is not None}
    job: Any = build(TRAINING | {"topology": topology, "algorithm": TRAINING["algorithm"] | {"kind": algorithm}})
    alone: list[Snapshot] = []
    job.start(LocalEngine(), RunControl(range(ROUNDS + 1), alone.append))
    for seed, sizes in ((0, [4, 4, 4]), (1, [1, 8, 3]), (2, [6, 6]), (3, [1] * 12)):
        order = np.random.default_rng(seed).permutation(12)
        # Messages of large networks are not laid side by side.
        monkeypatch.setattr(host, "_MOST_STACKED", 0 if seed < 2 else 2**18)
        same(released_by_actors(job, [np.sort(of) for of in np.split(order, np.cumsum(sizes)[:-1])]), alone)


def test_one_sum_of_all_messages_is_the_sum_of_every_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = {"kind": "complete", "agents": 12}
    job: Any = build(TRAINING | {"topology": topology, "privacy": {"guarantee": "none", "clip": 0.1}})
    by_agent: list[Snapshot] = []
    job.start(LocalEngine(), RunControl(range(ROUNDS + 1), by_agent.append))
    monkeypatch.setattr(host, "LEAST_SUMMED", 12)
    at_once: list[Snapshot] = []
    job.start(LocalEngine(), RunControl(range(ROUNDS + 1), at_once.append))
    for one, other in zip(at_once, by_agent, strict=True):
        np.testing.assert_allclose(one.released["y"], other.released["y"], rtol=1e-12, atol=1e-15)
    assert not np.array_equal(at_once[-1].released["y"], by_agent[-1].released["y"])
    for seed, sizes in ((0, [4, 4, 4]), (1, [1, 8, 3]), (2, [1] * 12)):
        order = np.random.default_rng(seed).permutation(12)
        same(released_by_actors(job, [np.sort(of) for of in np.split(order, np.cumsum(sizes)[:-1])]), at_once)


@pytest.mark.parametrize("changes", [{}, {"over_time": "matching", "delay": 1}])
def test_a_run_resumes_with_its_blocks(scenario: Make, changes: dict[str, Any]) -> None:
    content = scenario(topology=RANDOM | changes, algorithm={"rounds": ROUNDS})
    saved: list[SavedState] = []

    def look(s: Snapshot) -> bool:
        saved.append(s.save())
        return s.round == 3

    job: Any = build(content | {"run": {"engine": "ray", "agents_per_actor": 6, "keep_releases": True}})
    job.start(LocalEngine(), RunControl([3], look))
    alone = build(content).start(LocalEngine(), RunControl([ROUNDS]))
    # As on a machine where agents were grouped otherwise.
    for run in ({"engine": "ray", "agents_per_actor": 4}, {"blocks": 2}):
        again = build(content | {"run": run}).start(LocalEngine(), RunControl([ROUNDS], saved_state=saved[0]))
        same([again.last_snapshot], [alone.last_snapshot])
        assert again.ledger.same_releases(alone.ledger)


def test_placed_agents_have_consecutive_blocks(scenario: Make) -> None:
    run = {"engine": "ray", "agents_per_actor": 4, "place": "site-{agent}"}
    job: Any = build(scenario(topology=RANDOM) | {"run": run})
    assert [node.agents.tolist() for node in job.nodes()] == np.arange(12).reshape(3, 4).tolist()


VALUES = 60


def _values() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"x": rng.normal(size=(2, 1)), "y": rng.normal(size=(2, 3))} for _ in range(VALUES + 1)]


@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 30, 100])
@pytest.mark.parametrize("step", [1, 4, 11])
def test_the_mean_excludes_the_start(length: int, step: int) -> None:
    values, recent = _values(), RecentValues(length)
    for newest, value in enumerate(values):
        recent.append(value)
        if newest % step:
            continue
        counted = values[max(1, newest + 1 - length) : newest + 1] or values[:1]
        for channel, mean in recent.mean(newest).items():
            np.testing.assert_allclose(mean, np.mean([v[channel] for v in counted], axis=0), rtol=0, atol=1e-15)


@pytest.mark.parametrize("cut", [5, 29, 41])
def test_a_resumed_mean_has_equal_bits(cut: int) -> None:
    values, whole, after = _values(), RecentValues(30), RecentValues(30)
    for newest, value in enumerate(values):
        whole.append(value)
        whole.mean(newest)
        if newest == cut:
            after.values.extend(whole.values)
        elif newest > cut:
            after.append(value)
    np.testing.assert_array_equal(after.mean(VALUES)["y"], whole.mean(VALUES)["y"])
