"""Graph files: formats, errors, networks in the package."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.topology import find_named, from_edges, from_file, from_networkx, graph_title, names
from tests.support.topology_oracle import check

SIZES = {
    "abilene": (11, 14),
    "davis": (32, 89),
    "florentine_families": (15, 20),
    "karate_club": (34, 78),
    "les_miserables": (77, 254),
    "nsfnet": (14, 21),
}


def test_every_named_network_loads() -> None:
    assert set(names()) == set(SIZES)
    for name, (agents, links) in SIZES.items():
        topology = from_file(name)
        check(topology)
        assert (topology.name, topology.n_agents, len(topology.edges)) == (name, agents, links)
        assert graph_title(name) != name
        assert find_named(name).name == f"{name}.graphml"


def save(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("source,target\n1,2\n2,3\n\n10,3\n", ("1", "2", "3", "10")),
        ("Source,Target,Weight\r\nNew York,Chicago,3\r\nChicago,Boston,1e-2\r\n", ("New York", "Chicago", "Boston")),
        ('source,target\n"x, y",b\nb,c\n', ("x, y", "b", "c")),
        ("\ufeffsource,target\na,b\nb,c\n", ("a", "b", "c")),
        ("source,target\nR1 S#1,R1 S#2\nR1 S#1,https://e.org/#1\n", ("R1 S#1", "R1 S#2", "https://e.org/#1")),
        ("source,target\n% a,b\n# b,b\n% a,# b\n", ("% a", "b", "# b")),
    ],
)
def test_edge_lists(text: str, labels: tuple[str, ...], tmp_path: Path) -> None:
    topology = from_file(save(tmp_path, "a.csv", text))
    check(topology)
    assert topology.labels == labels
    assert topology.name == "a"


# Lines of an edge list that have two readings, or none, with the number of the line that is named.
REFUSED_LINES = {
    "another header": ("src,dst,w\n0,1,1\n1,2,1\n", "line 1: no header"),
    "no edges": ("source,target\n", "no edges"),
    "one column": ("source,target\na,b\nb\n", r"line 3: 1 columns \(expected 2\)"),
    "a decimal comma": ("source,target,weight\na,b,0,5\n", r"line 2: 4 columns \(expected 3\)"),
    "a second header": ("source,target\na,b\nsource,target\nb,c\n", "line 3: a second header"),
    "a weight in words": ("source,target,weight\na,b,1\nb,c,heavy\n", "line 3: the weight is not a number above 0"),
    "two weights": ("source,target,weight\na,b,1\nb,a,2\n", "line 3: the edge has another weight here than before"),
    "a self loop": ("source,target\na,b\nc,c\n", 'line 3: a self loop at "c"'),
    "blanks at a name": ("source,target\na,b\nb ,c\n", "line 3: a name is empty, or has blanks at its ends"),
    "an open quotation mark": ('source,target\na,b\n"b,c\n', "line 3: no row of a CSV file"),
    "numbers of one value": (
        "source,target\n1,2\n01,3\n2,3\n",
        'the names "1" and "01" of two nodes print identically',
    ),
    "a character that is not seen": ("source,target\na,b\na\u200b,b\n", ".* of two nodes print identically"),
}


@pytest.mark.parametrize("case", REFUSED_LINES)
def test_a_line_with_two_readings_is_refused(case: str, tmp_path: Path) -> None:
    text, message = REFUSED_LINES[case]
    with pytest.raises(InputError, match=f"a.csv: {message}") as caught:
        from_file(save(tmp_path, "a.csv", text))
    assert "Fix: " in str(caught.value)


def test_a_file_of_records_is_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        from_file(save(tmp_path, "a.csv", "777.125,0.5,no,red\n1,2,yes,blue\n"))
    assert not any(cell in str(caught.value) for cell in ("777.125", "0.5", "red"))


def test_parallel_links_count_once(tmp_path: Path) -> None:
    topology = from_file(save(tmp_path, "a.csv", "source,target\na,b\nb,a\nb,c\na,b\n"))
    assert topology.edges.tolist() == [[0, 1], [1, 2]]
    assert topology.notes[1:] == ("parallel edges count once: 2 left out",)
    assert from_edges(np.array([[0, 1], [1, 0], [1, 2]])).notes == ("parallel edges count once: 1 left out",)
    with pytest.raises(InputError, match="links agent 1 to itself"):
        from_edges(np.array([[0, 1], [1, 1]]))
    with pytest.raises(InputError, match=r"has a wrong shape \(got \(4, 4\), expected \(edges, 2\)\)"):
        from_edges(np.eye(4, dtype=np.int64))


def test_arcs_of_other_weights_than_their_reverse(tmp_path: Path) -> None:
    """Refuse two weights of one edge; one of them would count for both directions."""
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 0.25), ("b", "a", 0.5), ("b", "c", 0.25), ("c", "b", 0.25)])
    with pytest.raises(InputError, match=r"edge b – a: the edge has another weight .* topology\.directed = true"):
        from_networkx(graph)
    found = from_networkx(graph, "file", directed=True).mixing.toarray()
    assert (found[1, 0], found[0, 1]) == (0.25, 0.5)
    nx.write_graphml(graph, tmp_path / "a.graphml")
    assert from_file(tmp_path / "a.graphml", "file", directed=True).mixing.toarray()[0, 1] == 0.5


def test_weights_from_the_file(tmp_path: Path) -> None:
    path = save(tmp_path, "a.csv", "source,target,weight\na,b,0.25\nb,c,0.5\nc,a,0.125\n")
    topology = from_file(path, "file")
    expected = [[-0.375, 0.25, 0.125], [0.25, -0.75, 0.5], [0.125, 0.5, -0.625]]
    assert topology.mixing.toarray().tolist() == expected
    assert from_file(path).weights == "metropolis"
    heavy = save(tmp_path, "b.csv", "source,target,weight\na,b,2\nb,c,2\n")
    with pytest.raises(InputError, match=r"file on this .* ρ = 5\.00"):
        from_file(heavy, "file")


def test_weights_that_the_file_does_not_give(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one weight above 0 for every edge"):
        from_file(save(tmp_path, "b.csv", "source,target\na,b\nb,c\n"), "file")
    for weight, flaw in [("", "has none"), ("-1", "has -1")]:
        path = graphml(tmp_path, nodes("a", "b", "c") + edge("a", "b", "0.25") + edge("b", "c", weight))
        assert from_file(path).notes[-1].startswith("metropolis weights do not use the weights that ")
        with pytest.raises(
            InputError, match=f"one weight above 0 for every edge, and .*edge b – c {flaw}. Fix: add the weights"
        ):
            from_file(path, "file")
    with pytest.raises(InputError, match="edge a – b: its weight is not a finite number"):
        from_file(graphml(tmp_path, nodes("a", "b") + edge("a", "b", "heavy")))


GRAPHML = """<?xml version="1.0" encoding="{encoding}"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="l" for="node" attr.name="label" attr.type="string"/>
<key id="x" for="node" attr.name="Longitude" attr.type="double"/>
<key id="y" for="node" attr.name="Latitude" attr.type="double"/>
<key id="w" for="edge" attr.name="weight" attr.type="double"/>
<graph edgedefault="{direction}">{body}</graph></graphml>"""


def graphml(folder: Path, body: str, direction: str = "undirected", encoding: str = "UTF-8") -> Path:
    path = folder / "g.graphml"
    path.write_bytes(GRAPHML.format(body=body, direction=direction, encoding=encoding).encode(encoding))
    return path


def nodes(*names: str) -> str:
    return "".join(f'<node id="{n}"/>' for n in names)


def edge(a: str, b: str, weight: str = "") -> str:
    data = f'<data key="w">{weight}</data>' if weight else ""
    return f'<edge source="{a}" target="{b}">{data}</edge>'


def test_graphml(tmp_path: Path) -> None:
    body = "".join(
        f'<node id="{n}"><data key="l">{label}</data><data key="x">{x}</data><data key="y">60</data></node>'
        for n, label, x in [("n0", "Zürich", 0), ("n1", "Bern", 10), ("n2", "Genf", 20)]
    )
    path = graphml(tmp_path, body + edge("n0", "n1", "0.25") + edge("n2", "n1", "0.5"), encoding="ISO-8859-1")
    topology = from_file(path, "file", agents=3)
    assert topology.labels == ("Zürich", "Bern", "Genf")
    assert topology.mixing.toarray()[1].tolist() == [0.25, -0.75, 0.5]


def test_graphml_with_repeated_labels_keeps_the_ids_and_says_so(tmp_path: Path) -> None:
    body = "".join(f'<node id="{n}"><data key="l">?</data></node>' for n in "ab") + edge("a", "b") + edge("b", "a")
    topology = from_file(graphml(tmp_path, body))
    assert topology.labels == ("a", "b")
    unused = "labels of nodes are ignored, since they repeat or are numbers of other nodes"
    assert topology.notes[1:] == ("parallel edges count once: 1 left out", unused)


GRAPHML_FAULTS = {
    "an undeclared node": (nodes("a") + edge("a", "b"), 'an edge contains "b", which is not a node'),
    "two nodes of one id": (nodes("a", "b", "a") + edge("a", "b"), 'two nodes have the id "a"'),
    "a second graph": (nodes("a") + '</graph><graph edgedefault="directed">' + nodes("b"), "a second graph"),
    "a hyperedge": (nodes("a", "b") + '<hyperedge><endpoint node="a"/></hyperedge>', "or a hyperedge"),
    "an arc among links": (
        nodes("a", "b") + '<edge source="a" target="b" directed="true"/>',
        "edges are not all directed",
    ),
    "two weights": (
        nodes("a", "b") + '<edge source="a" target="b"><data key="w">1</data><data key="w">2</data></edge>',
        "a key occurs twice",
    ),
    "two edges of one id": (
        nodes("a", "b") + 2 * '<edge id="1" source="a" target="b"/>',
        "two edges have one id",
    ),
    "an undeclared key": (nodes("a") + '<node id="b"><data key="q">1</data></node>', "the file is not GraphML"),
    "blanks at a name": (nodes("a", " a ") + edge("a", " a "), "print identically"),
}


@pytest.mark.parametrize("case", GRAPHML_FAULTS)
def test_graphml_with_two_readings_is_refused(case: str, tmp_path: Path) -> None:
    body, message = GRAPHML_FAULTS[case]
    with pytest.raises(InputError, match=message):
        from_file(graphml(tmp_path, body))


@pytest.mark.parametrize(
    "declaration",
    [
        '<!DOCTYPE a [<!ENTITY b "' + "x" * 100_000 + '"><!ENTITY c "' + "&b;" * 5000 + '">]>',
        '<!DOCTYPE a [<!ENTITY c SYSTEM "file:///etc/hostname">]>',
    ],
    ids=["entities that unfold", "an entity of another file"],
)
def test_entities_of_xml_are_refused(declaration: str, tmp_path: Path) -> None:
    text = GRAPHML.format(encoding="UTF-8", direction="undirected", body='<node id="a">&c;</node>')
    head, _, body = text.partition("\n")
    with pytest.raises(InputError, match=r"is not GraphML\. Fix: "):
        from_file(save(tmp_path, "a.graphml", f"{head}\n{declaration}\n{body}"))


TRIANGLE = 'node [ id 0 label "Zürich" ] node [ id 1 label "Bern" ] node [ id 2 label "Genf" ]\n'
EDGES = "edge [ source 0 target 1 ] edge [ source 1 target 2 ] edge [ source 2 target 0 ]\n"


def test_gml_in_utf_8_and_with_an_edge_twice(tmp_path: Path) -> None:
    again = "edge [ source 1 target 0 ]"
    text = f'# graph [\nCreator "graph ["\ngraph [ directed 0\n{TRIANGLE}{EDGES}{again} ]'
    found = from_file(save(tmp_path, "a.gml", text))
    assert found.labels == ("Zürich", "Bern", "Genf")
    assert found.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert found.notes[1:] == ("parallel edges count once: 1 left out",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"graph [ {TRIANGLE}{EDGES} ]\ngraph [ {TRIANGLE}{EDGES} ]", "is not GML"),
        (f"graph [ {TRIANGLE}{EDGES} edge [ source 0 target 7 ] ]", "is not GML"),
        (f"graph [ directed 0\n directed 0\n{TRIANGLE}{EDGES} ]", "the key directed occurs twice"),
        (f"graph [\n{TRIANGLE} edge [ source 0 target {{ ] ]", "line 3 is not GML"),
        (f"graph [ {TRIANGLE}{EDGES} graph [ {TRIANGLE} ] ]", "a second graph"),
        (f'graph [ {TRIANGLE}{EDGES} node [ id 3 label "a" label "b" ] ]', "a node has two labels"),
        (f"graph [ {TRIANGLE}{EDGES} node [ id 3 graph [ node [ id 4 ] ] ] ]", "or a nested graph"),
        (f"graph [ directed 2\n{TRIANGLE}{EDGES} ]", "or is neither 0 nor 1"),
        ("graph []", "a.gml has no nodes"),
    ],
)
def test_gml_with_two_readings_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        from_file(save(tmp_path, "a.gml", text))


RING = nx.to_numpy_array(nx.cycle_graph(4))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (RING[:3], r"got float64 of shape \(3, 4\), expected a square matrix of numbers"),
        (np.zeros((0, 0)), r"got float64 of shape \(0, 0\)"),
        (RING.astype(str), r"expected a square matrix of numbers"),
        (RING.astype(object), "the file holds no matrix"),
        (np.triu(RING), "not a matrix of edges"),
        (RING + np.eye(4), "not a matrix of edges"),
        (np.where(RING > 0, np.nan, 0.0), "not a matrix of edges"),
    ],
    ids=["3 × 4", "nothing", "text", "objects", "one half", "loops", "NaN"],
)
def test_arrays_that_are_no_matrix_of_links(matrix: Any, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", matrix, allow_pickle=True)
    with pytest.raises(InputError, match=message):
        from_file(tmp_path / "a.npy")


def test_sparse_matrices_that_mislead_are_refused(tmp_path: Path) -> None:
    path, ring = tmp_path / "a.npz", scipy.sparse.csr_array(RING)
    parts: dict[str, Any] = {"format": b"csr", "shape": (4, 4), "data": ring.data}
    for indices, indptr in [
        (ring.indices + 4, ring.indptr),
        (-1 - ring.indices, ring.indptr),
        (ring.indices, [0, 4, 2, 6, 8]),
    ]:
        np.savez(path, indices=indices, indptr=indptr, **parts)
        with pytest.raises(InputError, match="the file holds no matrix"):
            from_file(path)
    np.savez(path, format=b"coo", shape=(2, 2), row=[0, 1, 1], col=[1, 0, 0], data=[1.0, 0.5, 0.5])
    with pytest.raises(InputError, match="an entry occurs twice"):
        from_file(path)
    scipy.sparse.save_npz(path, scipy.sparse.csr_array((200_000, 200_000)))
    with pytest.raises(InputError, match=r"more than the limit"):
        from_file(path)
    np.savez(path, X=RING)
    with pytest.raises(InputError, match="the file holds no matrix"):
        from_file(path)


@pytest.mark.parametrize("nodes", [[0, 1, 2], [0, 1.0, 2], [0, True, 2]])
def test_an_edge_may_write_its_node_as_another_number(nodes: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    for one in (1, 1.0, True):
        links = [{"source": 0, "target": one}, {"source": one, "target": 2}]
        path.write_text(json.dumps({"nodes": [{"id": node} for node in nodes], "links": links}))
        topology = from_file(path)
        assert topology.labels == tuple(map(str, nodes))
        assert topology.edges.tolist() == [[0, 1], [1, 2]]


def test_other_ways_to_miss_a_file(tmp_path: Path) -> None:
    for ending in ("csv", "npy", "npz", "graphml"):
        with pytest.raises(InputError, match=rf"nowhere\.{ending}: the file cannot be read"):
            from_file(tmp_path / f"nowhere.{ending}")
        (tmp_path / f"folder.{ending}").mkdir()
        with pytest.raises(InputError, match="cannot be read"):
            from_file(tmp_path / f"folder.{ending}")
    with pytest.raises(InputError, match=r'the ending ".toml", expected one of'):
        from_file(save(tmp_path, "a.toml", "kind = 'ring'"))
    with pytest.raises(InputError, match=r'got "abilen", .* did you mean "abilene"'):
        from_file("abilen")
    with pytest.raises(InputError, match='did you mean "nsfnet"'):
        find_named("nsfnett")
    with pytest.raises(InputError, match=r'got "ring", which is unknown'):
        from_file("ring")
    for name in ("a.csv", "a.gml", "a.json"):
        (tmp_path / name).write_bytes("Zürich Genf".encode("latin-1"))
        with pytest.raises(InputError, match=r"is not UTF-8 text\. Fix: save it as UTF-8"):
            from_file(tmp_path / name)
    with pytest.raises(InputError, match=r"topology\.agents: differs from abilene \(got 10, expected 11"):
        from_file("abilene", agents=10)


# Names of nodes that other readers cut or split.
NAMES: dict[str, Callable[[int], Any]] = {
    "tuples": lambda k: (k // 4, k % 4),
    "blanks": lambda k: f"New York {k}",
    "addresses": lambda k: f"https://e.org/a?b={k}#c",
    "signs": lambda k: f"R#{k}, S% {k}; 'x' \"y\"",
    "accents": lambda k: f"Zürich {k} 北京",
    "numbers": lambda k: 7 * k + 3,
}
WRITERS: dict[str, Callable[[Any, Path], Any]] = {
    ".graphml": nx.write_graphml,
    ".gml": nx.write_gml,
    ".json": lambda graph, path: path.write_text(json.dumps(nx.node_link_data(graph, edges="edges"))),
    ".csv": lambda graph, path: nx.to_pandas_edgelist(graph).to_csv(path, index=False),
    ".npy": lambda graph, path: np.save(path, nx.to_numpy_array(graph)),
    ".npz": lambda graph, path: scipy.sparse.save_npz(path, nx.to_scipy_sparse_array(graph)),
}
# Readers of networkx, pandas, numpy and scipy.
ORACLES: dict[str, Callable[[Path, Any], Any]] = {
    ".graphml": lambda path, kind: nx.read_graphml(path),
    ".gml": lambda path, kind: nx.read_gml(path),
    ".json": lambda path, kind: nx.node_link_graph(json.loads(path.read_text()), edges="edges"),
    ".csv": lambda path, kind: nx.from_pandas_edgelist(
        pd.read_csv(path, dtype={"source": str, "target": str}), edge_attr=True, create_using=kind
    ),
    ".npy": lambda path, kind: nx.from_numpy_array(np.load(path), create_using=kind),
    ".npz": lambda path, kind: nx.from_scipy_sparse_array(scipy.sparse.load_npz(path), create_using=kind),
}


def _random_graph(draw: random.Random, names: str, directed: bool) -> Any:
    """A connected graph with weights that suit "file"; of a directed one columns of I + W add to 1."""
    size = draw.randint(3, 12)
    base: Any = nx.gnp_random_graph(size, 0.3, seed=draw.randrange(1000), directed=directed)
    nx.add_cycle(base, draw.sample(range(size), size))
    for a, b in base.edges:
        base[a][b]["weight"] = draw.randint(1, 16) / 1024
    if directed:
        base.remove_edges_from([(b, a) for a, b in [next(iter(base.edges))]])
        if not nx.is_strongly_connected(base):
            nx.add_cycle(base, range(size), weight=1 / 512)
    return nx.relabel_nodes(base, NAMES[names])


def _weights(graph: Any) -> dict[Any, float]:
    ends = tuple if graph.is_directed() else frozenset
    return {ends((str(a), str(b))): data["weight"] for a, b, data in graph.edges(data=True)}


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("directed", [False, True], ids=["links", "arcs"])
def test_files_are_read_as_their_libraries_read_them(ending: str, names: str, directed: bool, tmp_path: Path) -> None:
    draw, path = random.Random(f"{ending} {names} {directed}"), tmp_path / f"graph{ending}"
    for _ in range(3):
        graph = _random_graph(draw, names, directed)
        if directed and ending in (".npy", ".npz"):
            # A matrix of weights of arcs has columns that add to 1, which other forms do not keep.
            nx.set_edge_attributes(graph, 1, "weight")
        WRITERS[ending](graph, path)
        oracle = ORACLES[ending](path, nx.DiGraph if directed else nx.Graph)
        rule = None if directed and ending in (".npy", ".npz") else "file"
        found = from_file(path, rule, directed=directed)
        links = found.mixing.tocoo()
        # An arc from j to i is entry (i, j).
        read = {
            (tuple if directed else frozenset)((found.labels[j], found.labels[i])): w
            for i, j, w in zip(links.row, links.col, links.data, strict=True)
            if i != j
        }
        wanted = _weights(oracle)
        assert read.keys() == wanted.keys()
        assert found.n_agents == oracle.number_of_nodes() == graph.number_of_nodes()
        if rule == "file":
            assert read == pytest.approx(wanted, rel=1e-12)
        # networkx writes the tuple (0, 0) as (0,0) in GML, and a matrix has no names.
        if ending not in (".npy", ".npz") and (ending, names) != (".gml", "tuples"):
            assert wanted == pytest.approx(_weights(graph), rel=1e-12)


_KEYS = '<key id="d0" for="{}" attr.name="weight" attr.type="double">{}</key>'
_GRAPHML = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{}<graph edgedefault="undirected"><node id="a"/>'
    '<node id="b"/><edge source="a" target="b">{}</edge></graph></graphml>'
)


@pytest.mark.parametrize(
    ("ending", "text", "said"),
    [
        ("graphml", _GRAPHML.format(_KEYS.format("edge", "<default>0.2</default>"), ""), "weight has a default"),
        (
            "graphml",
            _GRAPHML.format(_KEYS.format("node", ""), '<data key="d0">0.3</data>'),
            "an edge has an undeclared key",
        ),
        ("gml", "graph [\n Directed 1\n node [ id 0 ]\n node [ id 1 ]\n edge [ source 0 target 1 ]\n]", "lower case"),
    ],
)
def test_a_file_that_networkx_reads_otherwise_is_refused(tmp_path: Path, ending: str, text: str, said: str) -> None:
    (tmp_path / f"two.{ending}").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        decentral_dp.plan("classification", set={"topology": {"file": f"{tmp_path}/two.{ending}"}})
