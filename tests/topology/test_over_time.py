"""Changing networks: distributions of every kind, public randomness, and errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

from decentral_dp.errors import InputError
from decentral_dp.topology import build_topology, time_varying
from decentral_dp.topology.over_time import OverTime, sequence


def over_time(kind: str, graph: str = "torus", agents: int = 12, seed: int = 3, **lossy: Any) -> OverTime:
    made = time_varying(build_topology(graph, agents), kind, seed).over_time
    assert made is not None
    return replace(made, **lossy)


@pytest.mark.parametrize("t", [0, 1, 17])
def test_a_matching_pairs_neighbours_and_nobody_free_is_left_beside_another(t: int) -> None:
    graph = nx.grid_2d_graph(3, 4, periodic=True)
    weights = over_time("matching").received_weights(t).toarray()
    np.testing.assert_array_equal(weights, weights.T)
    assert set(np.unique(weights)) == {0.0, 0.5}
    assert ((weights > 0).sum(axis=1) <= 1).all()
    links = nx.to_numpy_array(graph, nodelist=sorted(graph)) > 0
    assert not (weights > 0)[~links].any()
    free = np.flatnonzero(weights.sum(axis=1) == 0.0)
    assert not links[np.ix_(free, free)].any()


@pytest.mark.parametrize("agents", [2, 3, 8, 11])
def test_one_peer_averages_exactly_where_agents_are_a_power_of_two(agents: int) -> None:
    made = over_time("one_peer_exponential", "complete", agents)
    product = np.eye(agents)
    for t in range(made.period):
        weights = made.received_weights(t).toarray()
        product = (weights + np.diag(1.0 - weights.sum(axis=1))) @ product
        np.testing.assert_array_equal(weights.sum(axis=0), weights.sum(axis=1))
    assert made.period == int(np.ceil(np.log2(agents)))
    assert np.allclose(product, 1.0 / agents) == (agents in (2, 8))
    assert (product > 0).all()


def test_a_random_graph_is_drawn_anew_in_every_round() -> None:
    def draw(seed: int) -> Any:
        return build_topology("erdos_renyi", 10, {"probability": 0.5}, seed=seed)

    made = time_varying(draw(0), "resample", 5, draw=draw).over_time
    assert made is not None
    at = [made.received_weights(t).toarray() for t in range(3)]
    assert not np.array_equal(at[0], at[1])
    # Independent of previous calls.
    np.testing.assert_array_equal(made.received_weights(1).toarray(), at[1])


def test_graphs_in_turn_connect_all_only_together() -> None:
    one, other = (nx.Graph(links) for links in ([(0, 1), (2, 3)], [(1, 2), (3, 0)]))
    both = [csr_array(0.5 * nx.to_numpy_array(graph, nodelist=range(4))) for graph in (one, other)]
    made = sequence(both, 0)
    np.testing.assert_array_equal(made.received_weights(5).toarray(), both[1].toarray())
    assert made.period == 2
    with pytest.raises(InputError, match="2 groups of agents that never communicate"):
        sequence([both[0], both[0]], 0)
    with pytest.raises(InputError, match=r"have \[3, 4\] agents"):
        sequence([both[0], csr_array(np.ones((3, 3)) - np.eye(3))], 0)


def test_lost_messages_and_absent_agents_are_as_frequent_as_declared() -> None:
    made = over_time("fixed", agents=36, drop=0.3, offline=0.2)
    sent = heard = there = 0
    for t in range(300):
        online = made.online(t)
        assert online is not None
        out, arrived = made.sent_weights(t).toarray() > 0, made.received_weights(t).toarray() > 0
        assert not out[~online].any()
        assert not out[:, ~online].any()
        assert not (arrived & ~out).any()
        sent, heard, there = sent + out.sum(), heard + arrived.sum(), there + online.sum()
    # Five standard deviations.
    assert abs(there / (300 * 36) - 0.8) < 5 * np.sqrt(0.16 / (300 * 36))
    assert abs(heard / sent - 0.7) < 5 * np.sqrt(0.21 / sent)


@pytest.mark.parametrize(
    ("kind", "options"), [("matching", {}), ("fixed", {"drop": 0.3, "delay": 2}), ("fixed", {"offline": 0.2})]
)
def test_the_rate_is_what_rounds_leave_of_the_disagreement(kind: str, options: dict[str, Any]) -> None:
    """Compared with random start values that a loop mixes over many rounds."""
    made, over_rounds = (
        over_time(kind, agents=9, graph="torus", **one) for one in (options, {**options, "delay": 0} if options else {})
    )
    start = np.random.default_rng(0).standard_normal((9, 500))
    values = start - start.mean(axis=0)
    rounds = 32
    for t in range(rounds):
        mixed = values.copy()
        for i, j in zip(*np.nonzero(weights := over_rounds.received_weights(t).toarray()), strict=True):
            mixed[i] += weights[i, j] * (values[j] - values[i])
        values = mixed
    # Changes of the mean by losses are not disagreement.
    left = np.linalg.norm(values - values.mean(axis=0), 2) / np.linalg.norm(start - start.mean(axis=0), 2)
    assert made.rate is not None
    assert 0.2 * made.rate**rounds <= left <= made.rate**rounds * 1.01
    assert build_topology("torus", 9).rho < made.rate < 1.0


@pytest.mark.parametrize(
    ("graph", "kind", "words"),
    [
        ("ring", "one_peer_exponential", 'topology.kind = "complete"'),
        ("ring", "resample", "supports random graphs of at most 5000 agents"),
        ("ring", "sometimes", "sometimes"),
    ],
)
def test_a_kind_that_does_not_fit_is_refused(graph: str, kind: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        time_varying(build_topology(graph, 6), kind, 0)
