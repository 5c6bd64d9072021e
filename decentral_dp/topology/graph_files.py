"""Graphs in files: edge lists, the formats of `networkx_graphs`, and TOML files that name a generator or one of these.

An edge list has one link a line: two agents, and at most a weight. Columns are separated by commas, semicolons, tabs
or white space; `#` and `%` start a comment, and a first line such as `source,target` is a header.

    Zurich  Bern    0.25
    Bern    Geneva  0.5

A TOML file describes one network:

    title = "Abilene, the backbone of Internet2 in 2005"
    source = "…"
    file = "abilene.graphml"          # beside the TOML; or: kind = "ring", agents = 10, seed = 0, parameters …
    weights = "metropolis"            # or { kind = "constant", value = 0.3 }

A graph of arcs is directed, unless every arc has its reverse: such a graph, and all other files, are directed only
where the scenario says so. The first of two agents of a line then sends, and the second hears. Parallel links count
once, and a note says so. An agent linked to itself is refused. A third column of an edge list (elsewhere the edge
attribute `weight`) is read only for weights = "file", and a note says where it is not used.

Links as a file or a networkx graph writes them, collected to a graph.

Graphs of networkx, and the files that networkx reads as text: no format that could run code.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.files.package import shipped_folder
from decentral_dp.files.regular import regular
from decentral_dp.topology.graphs import GENERATORS, Array, Graph, generate, unknown
from decentral_dp.user_code import USER_ERRORS, reason

# A whole number as a file, or a networkx graph, may write it; of more digits it is a name like any other.
_WHOLE_NUMBER = re.compile(r"([0-9]{1,18})(?:\.0)?")
# So many nodes at most are listed with their numbers.
_MOST_LISTED = 4


class Link(NamedTuple):
    """One link as written, with its place in the file for messages.

    Args:
        endpoints: names of the two agents.
        weight: None where it is absent or not a number.
        place: file and line, or link.
    """

    endpoints: tuple[str, str]
    weight: float | None
    place: str


def finite(text: Any) -> float | None:
    """Read a finite number; None for anything else.

    Example:
        >>> finite("0.5"), finite("x"), finite("inf")
        (0.5, None, None)
    """
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def are_numbers(names: Sequence[str]) -> bool:
    """Whether every name is a whole number, and no two are the same one.

    Example:
        >>> are_numbers(["3", "1", "0"]), are_numbers(["a", "1"]), are_numbers(["1", "01"])
        (True, False, False)
    """
    matches = [_WHOLE_NUMBER.fullmatch(name) for name in names]
    return None not in matches and len({int(match[1]) for match in matches if match}) == len(names)


def numbering(names: Sequence[str]) -> list[int]:
    """Place in `names` of agent 0, 1, …: the one rule by which nodes of every form of a graph become agents.

    Names that are whole numbers are sorted by them, so that nodes 0 … m − 1 keep their numbers in whatever order they
    were inserted or written; other names keep that order.

    Example:
        >>> numbering(["3", "1", "0", "2"]), numbering(["b", "a"])
        ([2, 1, 3, 0], [0, 1])
    """
    places = range(len(names))
    if not are_numbers(names):
        return list(places)
    return sorted(places, key=lambda k: int(names[k].removesuffix(".0")))


def numbering_note(names: Sequence[str]) -> str:
    """A sentence about which agent is which node; "" where the nodes are 0 … m − 1, so that there is nothing to say.

    Example:
        >>> numbering_note(["0", "1"]), numbering_note(["b", "a"])
        ('', "agents are numbered in the order of the graph's nodes: 0 is b, 1 is a")
    """
    if all(name in (str(k), f"{k}.0") for k, name in enumerate(names)):
        return ""
    numbered = [f"{k} is {name}" for k, name in enumerate(names)]
    if len(numbered) > _MOST_LISTED:
        numbered = [*numbered[: _MOST_LISTED - 1], "…", numbered[-1]]
    return f"agents are numbered in the order of the graph's nodes: {', '.join(numbered)}"


def collect(agents: list[str], links: list[Link], directed: bool = False) -> Graph:
    """Make a graph of links as written: loops are refused, parallel links merged with a note.

    Args:
        agents: their names, in order.
        links: as written.
        directed: whether they are arcs; default no.

    Raises:
        InputError: a link of an agent to itself.
    """
    number = {agent: k for k, agent in enumerate(agents)}
    weights: dict[tuple[int, int], float | None] = {}
    parallel, wrong = 0, ""
    for link in links:
        a, b = (number[agent] for agent in link.endpoints)
        if b < a and not directed:
            a, b = b, a
        if a == b:
            raise InputError(f"{link.place} links {link.endpoints[0]} to itself; remove it, W has its own diagonal.")
        if (a, b) in weights:
            parallel += 1
            if link.weight != weights[a, b]:
                # Which of two different weights is meant cannot be known: neither is, and "file" weights are refused.
                wrong = wrong or f"{link.place} has another weight than before"
                weights[a, b] = None
        else:
            weights[a, b] = link.weight
            if link.weight is None or link.weight <= 0.0:
                wrong = wrong or f"{link.place} has {'none' if link.weight is None else f'{link.weight:g}'}"
    pairs = sorted(weights)
    return Graph(
        len(agents),
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        labels=tuple(map(printable, agents)),
        file_weights=None if wrong or not pairs else np.array([weights[p] for p in pairs], dtype=np.float64),
        n_weighted=sum(link.weight is not None for link in links),
        wrong_weight=wrong,
        notes=(f"parallel links count once: {parallel} left out",) if parallel else (),
        directed=directed,
    )


COORDINATES = (("longitude", "latitude"), ("lon", "lat"), ("x", "y"))
# Coordinates place agents in a picture; farther out than this they place nobody.
_FARTHEST = 1e9


def _gml(content: io.BytesIO) -> Any:
    import networkx as nx

    # Its numbers are the format's own, those in which the nodes were written; but labels may be missing, or repeat.
    graph = nx.read_gml(content, label=None)
    label = {node: str(data["label"]) for node, data in graph.nodes(data=True) if "label" in data}
    return nx.relabel_nodes(graph, label) if len(set(label.values())) == graph.number_of_nodes() else graph


def _plain(name: str, **options: Any) -> Callable[[io.BytesIO], Any]:
    """The reader of networkx of this name."""

    def read_content(content: io.BytesIO) -> Any:
        import networkx as nx

        return getattr(nx, f"read_{name}")(content, **options)

    return read_content


def _node_link(content: io.BytesIO) -> Any:
    """What `networkx.node_link_data` writes, and D3 reads: "nodes", each with an id, and "edges" or "links"."""
    import networkx as nx

    data = json.loads(content.getvalue())
    links = next((data[key] for key in ("edges", "links") if key in data), None) if isinstance(data, dict) else None
    if not isinstance(links, list) or not isinstance(data.get("nodes"), list):
        raise ValueError('wanted {"nodes": [{"id": …}, …], "edges": [{"source": …, "target": …}, …]}')
    graph = nx.MultiDiGraph() if data.get("directed") else nx.MultiGraph()
    for k, node in enumerate(data["nodes"]):
        name = str(node.get("id", k))
        if name in graph:
            raise ValueError(f"two nodes have the id {quoted(name)}")
        graph.add_node(name)
        graph.nodes[name].update(node)
    for link in links:
        ends = [str(link[end]) for end in ("source", "target")]
        lost = next((end for end in ends if end not in graph), None)
        if lost is not None:
            raise ValueError(f"a link has the end {quoted(lost)}, which is none of the nodes")
        graph.add_edge(*ends, weight=link.get("weight"))
    return graph


# Ending → name of the format, and its reader.
FORMATS: dict[str, tuple[str, Callable[[io.BytesIO], Any]]] = {
    ".graphml": ("GraphML", _plain("graphml", node_type=str)),
    ".gml": ("GML", _gml),
    ".gexf": ("GEXF", _plain("gexf", node_type=str)),
    ".net": ("Pajek", _plain("pajek")),
    ".adjlist": ("an adjacency list", _plain("adjlist")),
    ".json": ("node-link JSON", _node_link),
}


def read_format(path: Path, content: bytes) -> Graph:
    """Read a file in one of `FORMATS`, which its ending names.

    Raises:
        InputError: it cannot be read, or what it holds is no graph of agents.
    """
    name, reader = FORMATS[path.suffix]
    try:
        with warnings.catch_warnings():
            # It warns of attributes without a declared type, which are not needed.
            warnings.simplefilter("ignore")
            graph = reader(io.BytesIO(content))
    except USER_ERRORS as error:
        raise InputError(f"topology.file: {path} is not readable as {name} ({reason(error)}).") from error
    return read_networkx(graph, f"topology.file: {path}")


def write_graphml(
    path: Path,
    labels: Sequence[str],
    links: Sequence[tuple[int, int]],
    weights: Sequence[float] | None = None,
    positions: Array | None = None,
    directed: bool = False,
) -> None:
    """Write a graph as GraphML, so that reading it gives the same agents in the same order, and the same weights.

    Args:
        path: of the file.
        labels: names of the m agents.
        links: pairs of agents.
        weights: of each link; default none.
        positions: (m, 2) for drawing; default none.
        directed: whether links are arcs; default no.
    """
    import networkx as nx

    graph = nx.DiGraph() if directed else nx.Graph()
    for agent, label in enumerate(labels):
        named = {} if label == str(agent) else {"label": label}
        at = {} if positions is None else {"x": float(positions[agent, 0]), "y": float(positions[agent, 1])}
        graph.add_node(str(agent), **named, **at)
    for k, (a, b) in enumerate(links):
        graph.add_edge(str(a), str(b), **({} if weights is None else {"weight": float(weights[k])}))
    nx.write_graphml(graph, path)


def read_networkx(graph: Any, place: str) -> Graph:
    """Read a networkx graph, its attributes as those of a GraphML file.

    Args:
        graph: directed or undirected; one whose every arc has its reverse is undirected.
        place: begins the messages.

    Returns:
        The graph, its agents in the order of `links.numbering`; its labels are the nodes' names where labels repeat.

    Raises:
        InputError: no nodes, two of one name, or an agent linked to itself.
    """
    if graph.number_of_nodes() == 0:
        raise InputError(f"{place} has no nodes.")
    listed = [(str(node), attributes) for node, attributes in graph.nodes(data=True)]
    listed = [listed[k] for k in numbering([name for name, _ in listed])]
    nodes = [name for name, _ in listed]
    if len(set(nodes)) < len(nodes):
        twice = next(name for name, there in Counter(nodes).items() if there > 1)
        raise InputError(
            f"{place} has two nodes that are both written {quoted(twice)}, so that no table could tell them apart; "
            "rename one of them."
        )
    directed = graph.is_directed() and not all(graph.has_edge(b, a) for a, b in graph.edges())
    if graph.is_directed() and not directed:
        # Both arcs of a link are one link: an arc is dropped where its reverse has been seen.
        order = {n: k for k, n in enumerate(nodes)}
        edges = [(a, b, d) for a, b, d in graph.edges(data=True) if order[str(a)] <= order[str(b)]]
    else:
        edges = list(graph.edges(data=True))
    links = [Link((str(a), str(b)), finite(data.get("weight")), f"{place}: link {a} – {b}") for a, b, data in edges]
    attributes = [{str(k).lower(): v for k, v in data.items()} for _, data in listed]
    shown = [str(a.get("label", a.get("name", n))) for n, a in zip(nodes, attributes, strict=True)]
    # Labels that repeat name nobody; and a label that is another node's number would name the wrong one.
    useless = len(set(shown)) < len(shown) or (are_numbers(shown) and are_numbers(nodes))
    labels = nodes if useless else shown
    return collect(nodes, links, directed)._replace(
        labels=tuple(map(printable, labels)), positions=_coordinates(attributes)
    )


def _coordinates(attributes: list[dict[str, Any]]) -> Array | None:
    """(m, 2) from the first pair of coordinates that every agent has; degrees are drawn with their true proportions."""
    for pair in COORDINATES:
        rows = [[finite(a.get(key)) for key in pair] for a in attributes]
        if all(value is not None and abs(value) < _FARTHEST for row in rows for value in row):
            points = np.array(rows, dtype=np.float64)
            if pair != ("x", "y"):
                points[:, 0] *= math.cos(math.radians(float(points[:, 1].mean())))
            return points
    return None


EDGE_LISTS = (".edges", ".edgelist", ".txt", ".csv")
HEADERS = {("source", "target"), ("from", "to"), ("agent", "neighbour"), ("node1", "node2")}
_WEIGHT = re.compile(r"['\"]weight['\"]\s*:\s*([^\s,}]+)")


class Content(NamedTuple):
    """What a graph file says: its name, the graph, and the weights if it names any."""

    name: str
    graph: Graph
    weights: str | Mapping[str, Any] | None = None


def names() -> tuple[str, ...]:
    """List the networks that come with the package, sorted.

    Example:
        >>> "abilene" in names()
        True
    """
    return tuple(sorted(p.stem for p in shipped_folder("topologies").glob("*.toml")))


def find_named(name: str) -> Path:
    """Find the TOML file of a network that comes with the package.

    Raises:
        InputError: no such network; the message has the nearest name, or says that it is a generator.

    Example:
        >>> find_named("abilene").name
        'abilene.toml'
    """
    if name in GENERATORS:
        raise InputError(
            f'topology.file: "{name}" is a generator, and no file; replace file by kind = "{name}" and agents.'
        )
    if name not in names():
        raise unknown("topology.file", name, names())
    return shipped_folder("topologies") / f"{name}.toml"


def title(name: str) -> str:
    """Return one line about a network that comes with the package."""
    return str(_toml(find_named(name)).get("title", name))


def read_graph(path: str | Path, directed: bool = False) -> Content:
    """Read a graph file.

    Args:
        path: a file; one that does not exist may be a shipped name, with or without folder and ending.
        directed: whether the lines of an edge list are arcs; default no.

    Returns:
        The file's name, graph and weights.

    Raises:
        InputError: a file that is missing or unreadable.

    Example:
        >>> read_graph("abilene").graph.agents
        11
    """
    path = Path(path)
    named = path.suffix in ("", ".toml") and path.parent in (Path(), Path("topologies"))
    if not os.path.isfile(path) and named and (path.suffix == "" or path.stem in names()):
        path = find_named(path.stem)
    if path.suffix == ".toml":
        return _from_toml(path, directed)
    return Content(path.stem, _graph(path, directed))


def _graph(path: Path, directed: bool) -> Graph:
    if path.suffix in FORMATS:
        return read_format(path, _bytes(path))
    if path.suffix in EDGE_LISTS:
        return _edge_list(path, directed)
    wanted = ", ".join([".toml", *FORMATS, *EDGE_LISTS])
    raise InputError(f'topology.file: {path} ends in "{path.suffix}", wanted one of {wanted}.')


def _bytes(path: Path) -> bytes:
    try:
        return regular(path, "topology.file").read_bytes()
    except FileNotFoundError:
        raise InputError(f"topology.file: {path} does not exist; check the path.") from None
    except OSError as error:
        raise InputError(f"topology.file: {path} cannot be read ({error.strerror}).") from error


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"topology.file: {path} is not UTF-8 text ({error}); save it as UTF-8.") from error


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"topology.file: {path} is not valid TOML ({error}).") from error


def _from_toml(path: Path, directed: bool) -> Content:
    table = _toml(path)
    weights = table.pop("weights", None)
    for key in ("title", "source"):
        table.pop(key, None)
    if "file" in table:
        other = table.pop("file")
        if table:
            raise unknown(f"topology.file: {path}", next(iter(table)), ("file", "source", "title", "weights"))
        if not isinstance(other, str) or Path(other).suffix == ".toml":
            raise InputError(f"topology.file: {path}: file = {other!r}, wanted a graph file beside it.")
        return Content(path.stem, _graph(path.parent / other, directed), weights)
    missing = [key for key in ("kind", "agents") if key not in table]
    if missing:
        raise InputError(
            f'topology.file: {path}: {missing[0]} is missing; give kind and agents, or file = "….graphml".'
        )
    kind, agents, seed = str(table.pop("kind")), table.pop("agents"), table.pop("seed", 0)
    try:
        return Content(path.stem, generate(kind, agents, table, seed), weights)
    except InputError as error:
        raise InputError(f"topology.file: {path}: {error}") from error


def _edge_list(path: Path, directed: bool) -> Graph:
    """Two or three columns a line, separated by comma, semicolon, tab or white space; # and % start a comment."""
    links: list[Link] = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        fields = _fields(line)
        if not fields or (not links and tuple(f.lower() for f in fields[:2]) in HEADERS):
            continue
        place = f"topology.file: {path}: line {number}"
        if len(fields) not in (2, 3) or not all(fields[:2]):
            raise InputError(
                f"{place} is {quoted(line.strip())}, wanted two agents and at most a weight; mend the line."
            )
        links.append(Link((fields[0], fields[1]), finite(fields[2]) if len(fields) == 3 else None, place))
    if not links:
        raise InputError(f"topology.file: {path} has no links; write one pair of agents a line.")
    agents = list(dict.fromkeys(agent for link in links for agent in link.endpoints))
    return collect([agents[k] for k in numbering(agents)], links, directed)


def _fields(line: str) -> list[str]:
    bare = line.split("#")[0].strip()
    if not bare or bare.startswith("%"):
        return []
    if bare.endswith("}") and "{" in bare:
        # networkx writes attributes as a dict of Python's: its weight is the third column.
        bare, _, attributes = bare.partition("{")
        weight = _WEIGHT.search(attributes)
        bare = bare.strip() if weight is None else f"{bare.strip()} {weight[1]}"
    separator = next((s for s in ",;\t" if s in bare), None)
    try:
        fields = next(csv.reader([bare], delimiter=separator)) if separator else bare.split()
    except csv.Error:
        # A cell of more letters than csv reads is the name of no agent.
        return [bare]
    return [f.strip() for f in fields]
