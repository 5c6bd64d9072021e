"""Directed graphs: column-stochastic weights of every format, mixing rates, run folders and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.topology import Topology, build_topology, from_edges, from_file, from_matrix, from_networkx, in_turn
from decentral_dp.topology.spectrum import second_largest
from tests.support.training import training

ARCS = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])
LINKS = nx.to_numpy_array(ARCS, nodelist=range(4))
WEIGHTS = np.array([[0.4, 0.0, 0.0, 0.5], [0.3, 0.5, 0.0, 0.0], [0.3, 0.5, 0.1, 0.0], [0.0, 0.0, 0.9, 0.5]])


def naive(graph: Any) -> np.ndarray:
    """A with a_ij = 1/(1 + out-degree of j) on arcs j → i and on the diagonal."""
    m = graph.number_of_nodes()
    shares = np.zeros((m, m))
    for j in graph.nodes:
        for i in [j, *graph.successors(j)]:
            shares[i, j] = 1.0 / (1 + graph.out_degree(j))
    return shares


def written(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    if name.endswith(".csv"):
        path.write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in ARCS.edges))
    else:
        nx.write_graphml(ARCS, path)
    return path


FORMS = {
    "networkx": lambda p: from_networkx(ARCS),
    "pairs": lambda p: from_edges(np.array(ARCS.edges), directed=True),
    "matrix of arcs": lambda p: from_matrix(LINKS, directed=True),
    "GraphML": lambda p: from_file(written(p, "arcs.graphml")),
    "edge list": lambda p: from_file(written(p, "arcs.csv"), directed=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_arcs_has_the_same_weights(form: str, tmp_path: Path) -> None:
    made: Topology = FORMS[form](tmp_path)
    assert made.directed
    np.testing.assert_allclose(np.eye(4) + made.mixing.toarray(), naive(ARCS), rtol=1e-15)
    np.testing.assert_allclose(made.kept_weight, [1 / 3, 1 / 2, 1 / 2, 1 / 2])
    assert made.edges.tolist() == sorted(map(list, ARCS.edges))
    values = np.sort(np.abs(np.linalg.eigvals(naive(ARCS))))
    assert made.rho == pytest.approx(values[-2])
    assert made.spectral_gap == pytest.approx(1.0 - values[-2])


def test_given_weights_are_shares_of_what_the_sender_has() -> None:
    made = from_matrix(WEIGHTS, "file", directed=True)
    np.testing.assert_allclose(np.eye(4) + made.mixing.toarray(), WEIGHTS, rtol=1e-15)
    graph = nx.DiGraph()
    graph.add_weighted_edges_from((j, i, WEIGHTS[i, j]) for i in range(4) for j in range(4) if i != j and WEIGHTS[i, j])
    again = from_networkx(graph, "file")
    np.testing.assert_allclose(again.mixing.toarray(), made.mixing.toarray(), rtol=1e-15)


def test_the_rate_of_large_graphs_is_that_of_small_ones() -> None:
    """Above 1500 agents by iteration: of a ring of arcs |λ₂| = |1 + exp(2πi/m)|/2."""
    for agents in (40, 1600):
        ring = from_edges(np.stack([np.arange(agents), np.roll(np.arange(agents), -1)], axis=1), directed=True)
        assert ring.rho == pytest.approx(np.cos(np.pi / agents), abs=1e-10)
    assert second_largest(ring.mixing[:1, :1]) == 0.0


def test_graphs_of_arcs_in_turn_mix_at_the_rate_of_their_product() -> None:
    first, other = nx.DiGraph([(0, 1), (2, 3)]), nx.DiGraph([(1, 2), (3, 0), (0, 2)])
    made = in_turn([from_networkx(one, connected=False) for one in (first, other)], 0, "both").over_time
    assert made is not None
    product = naive(nx.DiGraph(other)) @ np.eye(4)
    one = np.eye(4)
    for j, i in first.edges:
        one[i, j] = one[j, j] = 0.5
    product = product @ one
    assert made.rate == pytest.approx(np.linalg.norm(product - product.mean(axis=1, keepdims=True), 2) ** 0.5)
    for t in range(2):
        shares = made.received_weights(t).toarray() + np.diag(made.kept_share(t))
        np.testing.assert_allclose(shares.sum(axis=0), 1.0, rtol=1e-15)


CITY = nx.DiGraph([("Bern", "Genf"), ("Genf", "Chur"), ("Chur", "Bern"), ("Bern", "Chur")])
GIVEN: dict[str, tuple[Any, dict[str, Any]]] = {
    "a DiGraph": (CITY, {}),
    "with losses": (CITY, {"topology.drop": 0.3}),
    "with absences and delay": (CITY, {"topology.offline": 0.3, "topology.delay": 2}),
    "a list": ([nx.DiGraph([(0, 1), (2, 3)]), nx.DiGraph([(1, 2), (3, 0), (0, 2)])], {}),
    "pairs": ([[0, 1], [1, 2], [2, 0]], {"topology.directed": True}),
    "a matrix": (LINKS, {"topology.directed": True}),
    "weights": (WEIGHTS, {"topology.directed": True, "topology.weights": "file"}),
}


def content(**run: Any) -> dict[str, Any]:
    return training(algorithm={"kind": "push_sum", "rounds": 6}, run=run)


@pytest.mark.parametrize("what", GIVEN)
def test_a_run_folder_draws_the_same_again(what: str, tmp_path: Path) -> None:
    given, changes = GIVEN[what]
    first = decentral_dp.run(content(), set=changes, topology=given, out=tmp_path / "run")
    assert first.result.privacy.epsilon_max == pytest.approx(4.0, rel=1e-3)
    assert first.records.same_releases(first.simulation().ledger)
    again = decentral_dp.run(tmp_path / "run" / "scenario.toml", topology=given)
    cut = decentral_dp.run(content(blocks=3), set=changes, topology=given)
    for channel, value in first.released.items():
        np.testing.assert_array_equal(again.released[channel], value)
        np.testing.assert_array_equal(cut.released[channel], value)
    # Values of y and their weight, over every arc of a round.
    graph = first.simulation().topology
    rounds = (
        [graph.edges] * 6 if graph.over_time is None else [graph.over_time.sent_weights(t).indices for t in range(6)]
    )
    assert first.result.communication.messages == sum(len(arcs) for arcs in rounds)
    assert first.result.communication.numbers == first.result.communication.messages * 32


def test_messages_are_counted_for_who_sends() -> None:
    communication = decentral_dp.build(content(), topology=CITY).plan().communication
    assert communication is not None
    assert communication.by_agent == tuple(6 * CITY.out_degree(agent) for agent in CITY)
    assert communication.bits == 6 * 32 * 64 * CITY.number_of_edges()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: from_networkx(nx.DiGraph([(0, 1), (1, 0), (1, 2)])),
            "2 strongly connected .* 2 of 3 agents, without agent 2",
        ),
        (lambda: from_matrix(0.9 * WEIGHTS, "file", directed=True), "columns of sum 1"),
        (lambda: from_matrix(WEIGHTS, directed=True), "not a matrix of arcs: expected 0 and 1"),
        (lambda: from_matrix(LINKS), "not a matrix of edges"),
        (lambda: from_networkx(ARCS, "metropolis"), "metropolis is for undirected graphs"),
        (lambda: build_topology("ring", 4, weights="out_degree"), "out_degree is for directed graphs"),
    ],
)
def test_what_is_no_directed_graph_is_refused(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()
