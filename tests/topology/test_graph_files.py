"""Networks in files: GraphML, edge lists, TOML, and those that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from decentral_dp.errors import InputError
from decentral_dp.topology import build, find_named, from_edges, from_file, names, title
from tests.support.topology_oracle import check, graph_of

SIZES = {
    "abilene": (11, 14),
    "chen_wang_ring": (10, 10),
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
        assert title(name) != name
        assert find_named(name).name == f"{name}.toml"


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        ("karate_club", nx.karate_club_graph()),
        ("florentine_families", nx.florentine_families_graph()),
        ("davis", nx.davis_southern_women_graph()),
        ("les_miserables", nx.les_miserables_graph()),
    ],
)
def test_named_networks_against_networkx(name: str, graph: Any) -> None:
    topology = from_file(name)
    shift = 1 if name == "karate_club" else 0
    expected = {frozenset((str(a + shift), str(b + shift)) if shift else (a, b)) for a, b in graph.edges}
    found = {frozenset(topology.labels[i] for i in edge) for edge in topology.edges.tolist()}
    assert found == expected


def test_backbones() -> None:
    nsfnet = from_file("nsfnet")
    assert sorted(nsfnet.degrees.tolist()) == [2] * 2 + [3] * 10 + [4] * 2
    assert nx.diameter(graph_of(nsfnet)) == 3
    abilene = from_file("topologies/abilene.toml")
    assert abilene.positions is not None
    place = dict(zip(abilene.labels, abilene.positions, strict=True))
    assert place["Seattle"][0] < place["Denver"][0] < place["Chicago"][0] < place["New York"][0]
    assert place["Houston"][1] < place["Kansas City"][1] < place["Seattle"][1]


def test_the_ring_of_the_experiments() -> None:
    topology = from_file("chen_wang_ring")
    assert topology.weights == "constant 0.3"
    np.testing.assert_allclose(topology.mixing.toarray()[0], [-0.6, 0.3] + [0.0] * 7 + [0.3])
    assert from_file("chen_wang_ring", "metropolis").weights == "metropolis"


def save(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text", "labels"),
    [
        ("a.edges", "1 2\n2 3\n\n# a remark\n10 3 # at the end\n", ("1", "2", "3", "10")),
        ("a.txt", "b\ta\n% old style\na\tc\n", ("b", "a", "c")),
        ("a.csv", "source,target,weight\nNew York,Chicago,3\nChicago, Boston,1\n", ("New York", "Chicago", "Boston")),
        ("a.csv", "a;b\nb;c\n", ("a", "b", "c")),
        ("a.csv", '"x, y",b\nb,c\n', ("x, y", "b", "c")),
        ("a.csv", "\ufeffa,b\nb,c\n", ("a", "b", "c")),
        ("a.edgelist", "0 1 {}\n1 2 {'colour': 'red'}\n", ("0", "1", "2")),
    ],
)
def test_edge_lists(name: str, text: str, labels: tuple[str, ...], tmp_path: Path) -> None:
    topology = from_file(save(tmp_path, name, text))
    check(topology)
    assert topology.labels == labels
    assert topology.name == "a"


@pytest.mark.parametrize(
    ("ending", "write"),
    [
        (".edgelist", nx.write_edgelist),
        (".gml", nx.write_gml),
        (".graphml", nx.write_graphml),
        (".gexf", nx.write_gexf),
        (".net", nx.write_pajek),
        (".adjlist", nx.write_adjlist),
    ],
)
def test_what_networkx_writes_is_read(ending: str, write: Any, tmp_path: Path) -> None:
    graph = nx.Graph()
    graph.add_weighted_edges_from([("n0", "n1", 0.25), ("n1", "n2", 0.5), ("n2", "n3", 0.125), ("n0", "n3", 0.25)])
    write(graph, tmp_path / f"a{ending}")
    topology = from_file(tmp_path / f"a{ending}")
    check(topology)
    found = {frozenset(topology.labels[i] for i in edge) for edge in topology.edges.tolist()}
    assert found == {frozenset(pair) for pair in graph.edges}
    assert topology.notes[0].startswith("agents are numbered in the order of the graph's nodes: 0 is n0, ")
    if ending == ".adjlist":
        assert len(topology.notes) == 1
    else:
        assert topology.notes[1:] == ('metropolis weights do not use the weights that 4 links have; "file" would',)
        assert from_file(tmp_path / f"a{ending}", "file").neighbour_weight.max() == 0.75


def test_parallel_links_count_once(tmp_path: Path) -> None:
    topology = from_file(save(tmp_path, "a.edges", "a b\nb a\nb c\na b\n"))
    assert topology.edges.tolist() == [[0, 1], [1, 2]]
    assert topology.notes[1:] == ("parallel links count once: 2 left out",)
    assert from_edges(np.array([[0, 1], [1, 0], [1, 2]])).notes == ("parallel links count once: 1 left out",)
    with pytest.raises(InputError, match="links agent 1 to itself"):
        from_edges(np.array([[0, 1], [1, 1]]))
    with pytest.raises(InputError, match=r"has shape \(4, 4\); wanted \(links, 2\)"):
        from_edges(np.eye(4, dtype=np.int64))


def test_weights_from_the_file(tmp_path: Path) -> None:
    path = save(tmp_path, "a.edges", "a b 0.25\nb c 0.5\nc a 0.125\n")
    topology = from_file(path, "file")
    expected = [[-0.375, 0.25, 0.125], [0.25, -0.75, 0.5], [0.125, 0.5, -0.625]]
    assert topology.mixing.toarray().tolist() == expected
    assert from_file(path).weights == "metropolis"
    heavy = save(tmp_path, "b.edges", "a b 2\nb c 2\n")
    with pytest.raises(InputError, match=r"file on this .* ρ = 5\.00, .* multiply every weight by less than 0\.333\.$"):
        from_file(heavy, "file")


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("a b 0.2\nb c\n", "line 2 has none"),
        ("a b x\nb c 0.2\n", "line 1 has none"),
        ("a b -1\nb c 0.2\n", "line 1 has -1"),
        ("a b 0.1\nb a 0.2\nb c 0.1\n", "line 2 has another weight than before"),
    ],
)
def test_weights_that_the_file_does_not_give(text: str, flaw: str, tmp_path: Path) -> None:
    path = save(tmp_path, "a.edges", text)
    unread = from_file(path)
    assert unread.n_agents == 3
    assert unread.notes[-1].startswith("metropolis weights do not use the weights that ")
    with pytest.raises(InputError, match=f"one weight above 0 for every link, and .*a.edges: {flaw}; give them"):
        from_file(path, "file")
    with pytest.raises(InputError, match="one weight above 0 for every link; give them"):
        from_file(save(tmp_path, "b.edges", "a b\nb c\n"), "file")


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
    # A degree of longitude at 60° is half as wide as one of latitude.
    np.testing.assert_allclose(topology.positions, [[0, 60], [5, 60], [10, 60]])


def test_graphml_with_repeated_labels_keeps_the_ids(tmp_path: Path) -> None:
    body = "".join(f'<node id="{n}"><data key="l">?</data></node>' for n in "ab") + edge("a", "b") + edge("b", "a")
    topology = from_file(graphml(tmp_path, body))
    assert topology.labels == ("a", "b")
    assert topology.notes[1:] == ("parallel links count once: 1 left out",)
    assert topology.positions is None


def test_directed_graphml(tmp_path: Path) -> None:
    both = edge("a", "b") + edge("b", "a") + edge("b", "c") + edge("c", "b")
    topology = from_file(graphml(tmp_path, nodes("a", "b", "c") + both, "directed"))
    assert topology.edges.tolist() == [[0, 1], [1, 2]]
    assert topology.notes[1:] == ()
    with pytest.raises(InputError, match=r"2 strongly connected components, the largest of 2 of 3 agents.*agent c"):
        from_file(
            graphml(tmp_path, nodes("a", "b", "c") + edge("a", "b") + edge("b", "a") + edge("b", "c"), "directed")
        )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.edges", "a b\nb\n", r"line 2 is \"b\", wanted two agents"),
        ("a.edges", "a b 1 2\n", 'line 1 is "a b 1 2"'),
        ("a.csv", "a,b\n,c\n", 'line 2 is ",c"'),
        ("a.edges", "a b\nc c\n", "line 2 links c to itself; remove it"),
        ("a.edges", "# nothing\n", "has no links"),
        ("a.edges", "a b\nc d\nd e\n", "falls into 2 components of 3 and 2 agents, and gossip needs one"),
        (
            "a.pickle",
            "graph []",
            'ends in ".pickle", wanted one of .toml, .graphml, .gml, .gexf, .net, .adjlist, .json, .edges',
        ),
        ("a.gml", "graph []", "a.gml has no nodes"),
        ("a.gml", "graph [ node [ id", "is not readable as GML"),
        ("a.gexf", "<gexf", "is not readable as GEXF"),
        ("a.net", "*Vertices x", "is not readable as Pajek"),
        ("a.net", '*Network a\n*Vertices 2\n1 "a"\n', "is not readable as Pajek"),
        ("a.graphml", "<graphml", "is not readable as GraphML"),
        ("a.graphml", "<graphml/>", "is not readable as GraphML"),
        ("a.toml", "kind = ", "is not valid TOML"),
        ("a.toml", "kind = 'ring'", "agents is missing"),
        ("a.toml", "agents = 3", "kind is missing"),
        ("a.toml", "kind = 'ring'\nagents = 3\ndegree = 2", 'a.toml: .*got "degree"'),
        ("a.toml", "kind = 'rign'\nagents = 3", 'did you mean "ring"'),
        ("a.toml", "file = 'b.edges'", "b.edges does not exist"),
        ("a.toml", "file = 'b.toml'", "file = 'b.toml', wanted a graph file beside it"),
        ("a.toml", "file = 'b.edges'\nwieghts = 'metropolis'", 'got "wieghts", .* did you mean "weights"'),
    ],
)
def test_bad_files(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        from_file(save(tmp_path, name, text))
    assert "\n" not in str(caught.value)


def test_graphs_without_gossip_in_graphml(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="agents b and c without a neighbour cannot gossip; link or remove them"):
        from_file(graphml(tmp_path, nodes("a", "b", "c", "d") + edge("a", "d")))
    with pytest.raises(InputError, match="link a – a links a to itself"):
        from_file(graphml(tmp_path, nodes("a", "b") + edge("a", "b") + edge("a", "a")))
    with pytest.raises(InputError, match="has no nodes"):
        from_file(graphml(tmp_path, ""))


def test_other_ways_to_miss_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.edges does not exist"):
        from_file(tmp_path / "nowhere.edges")
    with pytest.raises(InputError, match=r'got "abilen", .* did you mean "abilene"'):
        from_file("abilen")
    with pytest.raises(InputError, match='did you mean "nsfnet"'):
        find_named("nsfnett")
    with pytest.raises(InputError, match=r'"ring" is a generator, and no file; replace file by kind = "ring"'):
        from_file("ring")
    (tmp_path / "folder.edges").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        from_file(tmp_path / "folder.edges")
    (tmp_path / "a.edges").write_bytes("Zürich Genf".encode("latin-1"))
    with pytest.raises(InputError, match="is not UTF-8 text"):
        from_file(tmp_path / "a.edges")
    with pytest.raises(InputError, match=r"topology\.agents: got 10, but abilene has 11 agents"):
        from_file("abilene", agents=10)


def test_toml_with_a_generator(tmp_path: Path) -> None:
    text = 'title = "t"\nkind = "random_regular"\nagents = 12\ndegree = 3\nseed = 5\nweights = "lazy_metropolis"\n'
    topology = from_file(save(tmp_path, "mine.toml", text))
    expected = build("random_regular", 12, {"degree": 3}, "lazy_metropolis", 5)
    np.testing.assert_array_equal(topology.mixing.toarray(), expected.mixing.toarray())
    assert (topology.name, topology.weights) == ("mine", "lazy_metropolis")
