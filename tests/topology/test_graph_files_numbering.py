"""Numbers of agents: one rule for all formats of a graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.topology import Topology, from_edges, from_file, from_matrix, from_networkx

# Graphs whose nodes are inserted in another order than that of their numbers.
STAR = nx.Graph([(3, k) for k in (0, 1, 2, 4)])
MIXED = nx.Graph([(3, 1), (1, 0), (0, 2), (2, 3), (3, 4)])
GRAPHS = {
    "star": STAR,
    "mixed": MIXED,
    "shuffled": nx.relabel_nodes(
        nx.barbell_graph(5, 2), dict(enumerate([7, 2, 9, 11, 4, 0, 5, 10, 1, 8, 3, 6])), copy=True
    ),
}


def _saved(write: Callable[[Any, Path], Any], ending: str) -> Callable[[Any, Path], Topology]:
    def through(graph: Any, folder: Path) -> Topology:
        write(graph, folder / f"graph{ending}")
        return from_file(folder / f"graph{ending}")

    return through


def _written(text: Callable[[Any], str], ending: str) -> Callable[[Any, Path], Topology]:
    return _saved(lambda graph, path: path.write_text(text(graph), encoding="utf-8"), ending)


def _matrix(graph: Any) -> Any:
    return nx.to_numpy_array(graph, nodelist=range(len(graph)), weight=None)


def _text_nodes(graph: Any) -> Any:
    return nx.relabel_nodes(graph, str)


FORMS: dict[str, Callable[[Any, Path], Topology]] = {
    "networkx.Graph": lambda g, _: from_networkx(g),
    "networkx.DiGraph": lambda g, _: from_networkx(nx.DiGraph(g)),
    "networkx.MultiGraph": lambda g, _: from_networkx(nx.MultiGraph(g)),
    "nodes as text": lambda g, _: from_networkx(_text_nodes(g)),
    "nodes as floats": lambda g, _: from_networkx(nx.relabel_nodes(g, float)),
    "nodes of numpy": lambda g, _: from_networkx(nx.relabel_nodes(g, np.int64)),
    "pairs": lambda g, _: from_edges(np.array(g.edges)),
    "matrix": lambda g, _: from_matrix(_matrix(g)),
    "csv": _written(lambda g: "source,target\n" + "".join(f"{a},{b}\n" for a, b in g.edges), ".csv"),
    "GraphML": _saved(nx.write_graphml, ".graphml"),
    "directed GraphML": _saved(lambda g, path: nx.write_graphml(nx.DiGraph(g), path), ".graphml"),
    "GML": _saved(nx.write_gml, ".gml"),
    "npy": _saved(lambda g, path: np.save(path, _matrix(g)), ".npy"),
    "npz": _saved(lambda g, path: scipy.sparse.save_npz(path, scipy.sparse.csr_array(_matrix(g))), ".npz"),
    "JSON": _written(lambda g: json.dumps(nx.node_link_data(g, edges="edges")), ".json"),
    "JSON of links": _written(lambda g: json.dumps(nx.node_link_data(_text_nodes(g), edges="links")), ".json"),
    "directed JSON": _written(lambda g: json.dumps(nx.node_link_data(nx.DiGraph(g), edges="edges")), ".json"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_nodes_that_are_numbers_keep_them_in_every_form(graph: Any, form: str, tmp_path: Path) -> None:
    found = FORMS[form](graph, tmp_path)
    wanted = {frozenset(edge) for edge in graph.edges}
    assert {frozenset(edge) for edge in found.edges.tolist()} == wanted
    assert found.degrees.tolist() == [graph.degree[k] for k in range(len(graph))]
    assert [float(label) for label in found.labels] == list(range(len(graph)))
    assert not any("numbered" in note for note in found.notes)
    # The graph differs from itself numbered by insertion: the numbers are not right by accident.
    place = {node: k for k, node in enumerate(graph)}
    assert {frozenset(place[node] for node in edge) for edge in graph.edges} != wanted


ROUNDS = {"algorithm.rounds": 5}


def _star_function() -> Any:
    return STAR


@pytest.mark.parametrize(
    "given", [STAR, list(STAR.edges), _matrix(STAR), _star_function], ids=["Graph", "pairs", "matrix", "function"]
)
def test_the_epsilon_of_the_hub_stands_at_its_number(given: Any) -> None:
    """Expect the smallest ε for the hub: under equal noise, it gives its neighbours the largest weight."""
    content = load("ring_breast_cancer", ['algorithm.protocol="private"', "algorithm.rounds=5"]).model_dump(
        exclude_unset=True, exclude_none=True
    )
    content["privacy"].pop("epsilon")
    content["privacy"] |= {"y": {"scale": 1.0}, "z": {"scale": 1.0}}
    del content["topology"]
    spent = [float(e or 0.0) for e in decentral_dp.plan(content, topology=given).epsilon]
    assert spent[3] < 0.5 * min(spent[:3] + spent[4:])
    assert min(spent[:3] + spent[4:]) == max(spent)


@pytest.mark.parametrize("form", ["networkx.Graph", "GraphML", "GML", "JSON"])
def test_other_names_keep_their_order_and_a_note_says_so(form: str, tmp_path: Path) -> None:
    graph = nx.relabel_nodes(MIXED, dict(zip(range(5), ["dora", "ben", "anna", "carl", "emil"], strict=True)))
    found = FORMS[form](graph, tmp_path)
    assert found.labels == tuple(graph)
    told = "agents are numbered in the order of the graph's nodes: 0 is carl, 1 is ben, 2 is dora, …, 4 is emil"
    assert [note for note in found.notes if "numbered" in note] == [told]
    named = {frozenset(found.labels[k] for k in edge) for edge in found.edges.tolist()}
    assert named == {frozenset(edge) for edge in graph.edges}


@pytest.mark.parametrize("form", ["networkx.Graph", "nodes as text", "GraphML", "GML", "csv", "JSON"])
def test_whole_numbers_from_elsewhere_are_sorted(form: str, tmp_path: Path) -> None:
    found = FORMS[form](nx.Graph([(30, 2), (2, 11), (11, 30), (11, 4)]), tmp_path)
    assert found.labels == ("2", "4", "11", "30")
    assert "agents are numbered in the order of the graph's nodes: 0 is 2, 1 is 4, 2 is 11, 3 is 30" in found.notes


def test_attributes_follow_their_nodes() -> None:
    graph = STAR.copy()
    for node in graph:
        graph.nodes[node].update(label=f"city {node}")
    found = from_networkx(graph)
    assert found.labels == tuple(f"city {k}" for k in range(5))
    weighted = nx.Graph()
    weighted.add_weighted_edges_from([(2, 1, 0.25), (1, 0, 0.5)])
    np.testing.assert_array_equal(from_networkx(weighted, "file").mixing.toarray()[1], [0.5, -0.75, 0.25])


def test_a_label_that_is_the_number_of_another_node_names_nobody() -> None:
    graph = nx.convert_node_labels_to_integers(STAR, label_attribute="label")
    assert from_networkx(graph).labels == ("0", "1", "2", "3", "4")
    assert from_networkx(graph).degrees.tolist() == [4, 1, 1, 1, 1]


def test_two_nodes_that_are_written_alike_are_refused() -> None:
    with pytest.raises(InputError, match='the names "1" and "1" of two nodes print identically'):
        from_networkx(nx.Graph([(0, 1), (0, "1")]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "line 1 is not node-link JSON"),
        ("[" * 100_000, "is not node-link JSON"),
        ('{"nodes": [{"id": 0}, {"id": "0"}], "edges": []}', 'the names "0" and "0" of two nodes print identically'),
        ('{"nodes": [{"id": 0}, {"id": 0}], "edges": []}', "two nodes have the id 0"),
        ('{"nodes": [{"id": 0}], "edges": [{"source": 0, "target": 5}]}', "an edge contains 5, which is not a node"),
        ('{"nodes": [{"id": 0}], "edges": [{"source": 0, "target": "0"}]}', 'an edge contains "0", which is not'),
        ('{"nodes": [], "edges": [], "links": []}', "is not node-link JSON"),
        ('{"nodes": [], "edges": [], "nodes": [{"id": 0}]}', "a key occurs twice in one object"),
        (
            '{"directed": true, "nodes": [{}, {}], "links": [{"source": 0, "target": 1}]}',
            "2 strongly connected components",
        ),
    ],
)
def test_json_that_is_no_graph(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(text)
    with pytest.raises(InputError, match=sentence):
        from_file(tmp_path / "graph.json")


def test_a_matrix_of_weights_is_taken_for_weights_from_the_file() -> None:
    ring = 0.3 * _matrix(nx.cycle_graph(5))
    wanted = ring - 0.6 * np.eye(5)
    for given in (ring, wanted, np.eye(5) + wanted):
        np.testing.assert_allclose(from_matrix(given, "file").mixing.toarray(), wanted)
    with pytest.raises(InputError, match="not a matrix of edges"):
        from_matrix(ring)
    for wrong in (ring + 0.1 * np.eye(5), np.triu(ring), -ring, np.where(ring > 0, np.nan, 0.0)):
        with pytest.raises(InputError, match="not a matrix of weights"):
            from_matrix(wrong, "file")
    plan = decentral_dp.plan("ring_breast_cancer", set={**ROUNDS, "topology.weights": "file"}, topology=ring)
    assert plan.topology["weights"] == "file"
