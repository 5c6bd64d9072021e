"""Curious neighbours where agents are offline: an agent that does not send holds its last message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decentral_dp.auditing import network_view as training
from decentral_dp.auditing.network_view import compute_view
from decentral_dp.bounded import Bounded
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import UNATTENDED
from decentral_dp.exchange import Bundle
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.published import compute_steps

RECORDS, CLIP, STEP, NOISE = 20, 0.01, 0.05, 1e-4
ONCE = [[0, 1.0], [1, 0.0]]
FOUR_ROUNDS = [[0, 1.0], [3, 1.0], [4, 0.0]]
ALWAYS = [[0, 1.0]]

# Graph, agents, rounds, offline, seed, steps, observer, victim, and μ of what the observer sees.
CASES = {
    "star 6": ("star", 6, 8, {"offline": 0.3}, 146758, ONCE, 1, 0, 0.3536213),
    "star 5": ("star", 5, 8, {"offline": 0.7}, 724160, ONCE, 1, 0, 0.2886751),
    "ring 6": ("ring", 6, 15, {"offline": 0.7}, 772789, FOUR_ROUNDS, 0, 2, 0.0821995),
    "ring 6, constant step": ("ring", 6, 5, {"offline": 0.85}, 509886, ALWAYS, 1, 5, 0.1042572),
}


def job_of(kind: str, agents: int, rounds: int, network: dict[str, Any], seed: int, points: Any) -> Any:
    """D-SGD on one feature with a Huber loss whose gradients are far above the clip for all states."""
    rng = np.random.default_rng(0)
    scenario: dict[str, Any] = {
        "seed": seed,
        "problem": {
            "kind": "regression", "loss": "huber", "label_range": [-1.0, 1.0], "data": "X and y", "test": 0.0,
            "partition": {"kind": "column", "name": "agent"}, "scale": {"a": [-1.0, 1.0]},
        },
        "topology": {"kind": kind, "agents": agents, **network},
        "algorithm": {
            "kind": "dp_dsgd", "rounds": rounds, "momentum": 0.0, "learning_rate": {"scale": STEP, "points": points},
        },
        "privacy": {
            "mechanism": "gaussian", "delta": 1e-5, "y": {"scale": NOISE}, "clip": CLIP, "share": {"y": 1.0},
        },
    }  # fmt: skip
    data = {
        "features": rng.uniform(0.5, 1.0, (agents * RECORDS, 1)),
        "labels": rng.choice([-1.0, 1.0], agents * RECORDS),
        "agent": np.repeat(np.arange(agents), RECORDS),
        "feature_names": ["a"],
    }
    return build(scenario, data=data)


def certified(job: Any) -> Any:
    """(m, m) μ of each observer and victim."""
    steps, observers = compute_steps(job), tuple((i,) for i in range(job.n_agents))
    return training.observer_mu(steps, observers, training.first_of_equal_pairs(steps, observers))


def exact_mu(job: Any, observer: int, victim: int, sign: Any = 1.0) -> float:
    """μ of all that the observer receives, where gradients are clipped: each value is a row of coefficients of noise.

    sign: (T,) of what the record adds to its agent's step.
    """
    m, rounds, changes = job.n_agents, job.rounds, job.topology.over_time
    noise = np.broadcast_to(job.noise["y"].deviations(np.arange(1, rounds + 1)), (rounds, m))
    movement = sign * job.algorithm.learning_rate.series(rounds) * 2.0 * CLIP / RECORDS
    state, sent_last = np.zeros((2, m, rounds * m + 1))
    seen = []
    for t in range(rounds + 1):
        online = changes.online(t)
        online = np.ones(m, dtype=bool) if online is None else online
        message = state.copy()
        for i in range(m if t else 0):
            message[i, (t - 1) * m + i] += noise[t - 1, i]
        arrives = changes.sent_weights(t).toarray()[observer]
        seen += [message[j] for j in np.flatnonzero(arrives) if j != observer and online[j]]
        sent_last = np.where(online[:, None], message, sent_last)
        if t < rounds:
            weights = changes.received_weights(t).toarray()
            weights += np.diag(1.0 - weights.sum(axis=1))
            state = weights @ sent_last
            state[victim, -1] += movement[t]
    rows = np.array(seen).reshape(-1, rounds * m + 1)
    rows[:, observer:-1:m] = 0.0
    return gaussian_mu(rows[:, :-1], rows[:, -1])


def gaussian_mu(noise: Any, shift: Any) -> float:
    """μ of N(0, noise noiseᵀ) against N(shift, noise noiseᵀ)."""
    return float(np.sqrt(max(0.0, shift @ np.linalg.pinv(noise @ noise.T, rcond=1e-13, hermitian=True) @ shift)))


class StatedNoise:
    """A releaser whose noise is a table, index by agent."""

    def __init__(self, inner: Any, agents: Any, table: Any, log: dict[int, Any]) -> None:
        self.inner, self.agents, self.table, self.log = inner, agents, table, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def release(self, index: int, values: Any, sends: Any = None) -> Bundle:
        out = {}
        for channel, value in values.items():
            raw = np.array(value.value if isinstance(value, Bounded) else value)
            if channel == "y":
                raw = raw + self.table[index][self.agents][:, None]
            out[channel] = raw if sends is None else np.where(sends[:, None], raw, 0.0)
        self.log[index] = out["y"].copy()
        return Bundle(out)


def sent_by_host(job: Any, table: Any) -> dict[int, Any]:
    """Index → what the host hands to the network where noise is this table."""
    log: dict[int, Any] = {}
    nodes = [
        node._replace(make_releaser=lambda node=node: StatedNoise(node.make_releaser(), node.agents, table, log))
        for node in job.nodes()
    ]
    LocalEngine().run(nodes, job.rounds, UNATTENDED)
    return log


def measured_mu(job: Any, observer: int, victim: int) -> float:
    """The same by the package's engine: every column from the difference of two runs."""
    m, rounds, changes = job.n_agents, job.rounds, job.topology.over_time
    scale = float(np.max(job.noise["y"].deviations(np.arange(1, rounds + 1))))
    table = np.random.default_rng(0).normal(size=(rounds + 1, m)) * scale
    table[0] = 0.0
    base = sent_by_host(job, table)
    received = [
        (t, j) for t in range(1, rounds + 1) for j in np.flatnonzero(changes.sent_weights(t).toarray()[observer])
        if j != observer
    ]  # fmt: skip

    def differences(other: dict[int, Any]) -> Any:
        return np.array([other[t][j] - base[t][j] for t, j in received])

    mine = job.records["train"][victim]
    labels = np.array(mine.label)
    labels[0] = -labels[0]
    train = tuple(mine._replace(label=labels) if i == victim else r for i, r in enumerate(job.records["train"]))
    moved = differences(sent_by_host(replace(job, records={**job.records, "train": train}), table))
    columns = []
    for t in range(1, rounds + 1):
        for i in set(range(m)) - {observer}:
            other = table.copy()
            other[t, i] += scale
            columns.append(differences(sent_by_host(job, other))[:, 0])
    direction = moved[np.argmax(np.linalg.norm(moved, axis=1))]
    direction = direction / np.linalg.norm(direction)
    return gaussian_mu(np.array(columns).T, moved @ direction)


@pytest.mark.parametrize("case", CASES)
def test_no_view_with_repeated_messages_exceeds_its_mu(case: str) -> None:
    *network, observer, victim, wanted = CASES[case]
    job = job_of(*network)
    shown = exact_mu(job, observer, victim)
    assert shown == pytest.approx(wanted, rel=1e-6)
    assert shown <= certified(job)[observer, victim] < 1.2 * shown


@pytest.mark.parametrize("case", ["star 6", "star 5"])
def test_the_engine_agrees_with_the_recursion(case: str) -> None:
    """Gradients keep their size and direction: what differs is the label of the record."""
    *network, observer, victim, wanted = CASES[case]
    assert measured_mu(job_of(*network), observer, victim) == pytest.approx(wanted, rel=1e-6)


NETWORKS: list[dict[str, Any]] = [
    {"offline": 0.4},
    {"offline": 0.7},
    {"offline": 0.4, "drop": 0.3},
    {"offline": 0.3, "over_time": "matching"},
    {"offline": 0.5, "over_time": "matching", "drop": 0.3},
    {"drop": 0.4},
]


def test_no_random_network_exceeds_its_mu() -> None:
    rng = np.random.default_rng(7)
    largest, pairs = 0.0, 0
    for trial in range(18):
        kind, points = ("path", "ring", "star")[trial % 3], (ONCE, FOUR_ROUNDS, ALWAYS)[trial // 3 % 3]
        m, rounds = int(rng.integers(4, 7)), int(rng.integers(3, 9))
        job = job_of(kind, m, rounds, NETWORKS[trial % len(NETWORKS)], int(rng.integers(10**6)), points)
        priced = certified(job)
        for observer, victim in np.argwhere(priced > 1e-12):
            for sign in (np.ones(rounds), rng.choice([-1.0, 1.0], rounds)):
                largest = max(largest, exact_mu(job, observer, victim, sign) / priced[observer, victim])
                pairs += 1
    assert pairs > 200
    assert 0.99 < largest <= 1.0 + 1e-9


def test_an_unsent_message_is_not_charged() -> None:
    """Agents that never send after a read have ε = 0 in the view and in the ledger."""
    kind, agents, rounds, network, seed, points, *_ = CASES["star 6"]
    job = job_of(kind, agents, rounds, network, seed, points)
    view = compute_view(job)
    silent = ~job.topology.over_time.online(1)
    assert silent.any()
    assert (view.certified_total[silent] == 0.0).all()
    assert (view.epsilon_total[silent] == 0.0).all()
    np.testing.assert_allclose(view.epsilon_total[~silent], view.certified_total[~silent], rtol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_agents_that_are_offline_together_have_one_mu(seed: int) -> None:
    """Leaves that are online in the same rounds are symmetric for all numbers of records."""
    job = job_of("star", 7, 3, {"offline": 0.3}, seed, ALWAYS)
    steps = compute_steps(job)
    each = tuple((i,) for i in range(7))
    apart = np.where(np.eye(7, dtype=bool), -1, np.stack([np.arange(49).reshape(7, 7)] * 2))
    for more in (np.ones(7), np.linspace(1.0, 1.5, 7)):
        some = steps._replace(movement=steps.movement * more)
        grouped = training.first_of_equal_pairs(some, each)
        found, wanted = (training.observer_mu(some, each, first) for first in (grouped, apart))
        assert (found >= wanted * (1.0 - 1e-9))[wanted > 0.0].all()
        np.testing.assert_allclose(found, wanted, rtol=1e-3)
        assert np.unique(grouped[grouped >= 0]).size < 42
