"""Read graphs from files and from networkx.

    .graphml .gml .json   read by networkx; JSON as `networkx.node_link_data` writes it
    .csv                  an edge list with the header source,target or source,target,weight
    .npy .npz             an adjacency or weight matrix: dense by numpy, sparse by scipy

Endings are case-insensitive. A file that can be read as two graphs is refused. Parallel edges of equal weight count
once, and a note says so. Self loops, two weights of one edge, and nodes whose names print alike are refused. A graph of
arcs is directed, unless every arc has its reverse.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.files.package import shipped_folder
from decentral_dp.files.regular import DAMAGED, names_in, read_array, read_arrays, refuse_above, regular
from decentral_dp.topology.graphs import Array, Graph, unknown
from decentral_dp.user_code import USER_ERRORS

# A whole number as a file, or a networkx graph, may write it; of more digits it is a name like any other.
_WHOLE_NUMBER = re.compile(r"([0-9]{1,18})(?:\.0)?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
# So many nodes at most are listed with their numbers.
_MOST_LISTED = 4
_COORDINATES = (("longitude", "latitude"), ("lon", "lat"), ("x", "y"))
# Coordinates place agents in a figure; beyond this they place no agent.
_FARTHEST = 1e9


class Link(NamedTuple):
    """One edge as written.

    Args:
        endpoints: names of the two agents.
        weight: None if absent.
        place: file and line, or edge, for messages.
    """

    endpoints: tuple[str, str]
    weight: float | None
    place: str


def finite(value: Any) -> float | None:
    """Read a finite number; None for anything else.

    Example:
        >>> finite("0.5"), finite("x"), finite("inf"), finite("1_000")
        (0.5, None, None, None)
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value) is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def are_whole_numbers(names: Sequence[str]) -> bool:
    """Whether every name is a whole number, and no two are the same one.

    Example:
        >>> are_whole_numbers(["3", "1", "0"]), are_whole_numbers(["a", "1"]), are_whole_numbers(["1", "01"])
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
    if not are_whole_numbers(names):
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


def collect(agents: Sequence[str], links: Sequence[Link], place: str, directed: bool = False) -> Graph:
    """Make a graph of edges as written.

    Args:
        agents: their names, in order.
        links: edges as written.
        place: begins the messages.
        directed: whether edges are arcs; default no.

    Raises:
        InputError: a name that is empty or equals another one, a self loop, or two weights of one edge.
    """
    names: dict[str, str] = {}
    for name in agents:
        plain = _plain(name)
        if not plain or plain in names:
            alike = f"the names {quoted(names.get(plain, ''))} and {quoted(name)} of two nodes print alike"
            problem = alike if plain else "a node has an empty name"
            raise InputError(f"{place}: {problem}. Fix: give every node one name of its own.")
        names[plain] = name
    number = {agent: k for k, agent in enumerate(agents)}
    weights: dict[tuple[int, int], float | None] = {}
    wrong = ""
    for link in links:
        a, b = (number[agent] for agent in link.endpoints)
        pair = (a, b) if a < b or directed else (b, a)
        if a == b or weights.setdefault(pair, link.weight) != link.weight:
            source, target = map(quoted, link.endpoints)
            loop, fix = f"a self loop at {source}", "remove it, W has its own diagonal"
            if a != b:
                loop = f"the edge has another weight here than before, from {source} to {target}"
                fix = "give each edge once; topology.directed = true takes arcs"
            raise InputError(f"{link.place}: {loop}. Fix: {fix}.")
        if not wrong and (link.weight is None or link.weight <= 0.0):
            wrong = f"{link.place} has {'none' if link.weight is None else f'{link.weight:g}'}"
    pairs, repeated = sorted(weights), len(links) - len(weights)
    return Graph(
        len(agents),
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        labels=tuple(map(printable, agents)),
        file_weights=None if wrong or not pairs else np.array([weights[p] for p in pairs], dtype=np.float64),
        n_weighted=sum(weight is not None for weight in weights.values()),
        wrong_weight=wrong,
        notes=(f"parallel links count once: {repeated} left out",) if repeated else (),
        directed=directed,
    )


def _plain(name: str) -> str:
    """The name as it is compared with others: 01 is 1, and blanks at its ends or the form of an accent do not count."""
    visible = "".join(c for c in printable(name, lines=False) if unicodedata.category(c) != "Cf")
    plain = unicodedata.normalize("NFC", visible).strip()
    number = _WHOLE_NUMBER.fullmatch(plain)
    return str(int(number[1])) if number else plain


def read_networkx(graph: Any, place: str, directed: bool = False) -> Graph:
    """Read a networkx graph, its attributes as those of a GraphML file.

    Args:
        graph: directed or undirected.
        place: begins the messages.
        directed: whether a graph whose every arc has its reverse stays directed; default no.

    Returns:
        The graph, its agents in the order of `numbering`; its labels are the nodes' names where labels repeat.

    Raises:
        InputError: no networkx graph, no nodes, two of one name, a self loop, or a weight that is no number.
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph) or not len(graph):
        got = f": got {type(graph).__name__}, expected a networkx.Graph"
        problem = " has no nodes" if isinstance(graph, nx.Graph) else got
        raise InputError(f"{place}{problem}. Fix: give a graph of at least one node, or use from_edges or from_matrix.")
    # An edge may write its node in another way: 1.0 and True are the node 1.
    name_of = {node: str(node) for node in graph}
    listed = [(name_of[node], attributes) for node, attributes in graph.nodes(data=True)]
    listed = [listed[k] for k in numbering([name for name, _ in listed])]
    nodes = [name for name, _ in listed]
    links = []
    for a, b, data in graph.edges(data=True):
        at, given = f"{place}: edge {a} – {b}", data.get("weight")
        weight = finite(given)
        if weight is None and given is not None:
            raise InputError(f"{at}: its weight is no finite number. Fix: write a number, or remove the weight.")
        links.append(Link((name_of[a], name_of[b]), weight, at))
    arcs = graph.is_directed() and (directed or not all(graph.has_edge(b, a) for a, b in graph.edges()))
    made = collect(nodes, links, place, arcs)
    if graph.is_directed() and not arcs:
        # Two arcs of a link are not parallel.
        repeated = len(links) - len({link.endpoints for link in links})
        made = made._replace(notes=(f"parallel links count once: {repeated} left out",) if repeated else ())
    attributes = [{str(k).lower(): v for k, v in data.items()} for _, data in listed]
    labels = [str(a.get("label", a.get("name", n))) for n, a in zip(nodes, attributes, strict=True)]
    # A label that repeats names no agent; and one that is the number of another node would name the wrong agent.
    if len({*map(_plain, labels)}) < len(labels) or (are_whole_numbers(labels) and are_whole_numbers(nodes)):
        if labels != nodes:
            note = "labels of nodes are not used, since they repeat or are numbers of other nodes"
            made = made._replace(notes=(*made.notes, note))
        labels = nodes
    return made._replace(labels=tuple(map(printable, labels)), positions=_positions(attributes))


def _positions(attributes: list[dict[str, Any]]) -> Array | None:
    """(m, 2) from the first pair of coordinates that every agent has; degrees are drawn with their true proportions."""
    for pair in _COORDINATES:
        rows = [[finite(a.get(key)) for key in pair] for a in attributes]
        if all(value is not None and abs(value) < _FARTHEST for row in rows for value in row):
            points = np.array(rows, dtype=np.float64)
            if pair != ("x", "y"):
                points[:, 0] *= math.cos(math.radians(float(points[:, 1].mean())))
            return points
    return None


MATRICES = (".npy", ".npz")


def names() -> tuple[str, ...]:
    """List the networks that come with the package, sorted.

    Example:
        >>> "abilene" in names()
        True
    """
    return tuple(sorted(p.stem for p in shipped_folder("topologies").glob("*.graphml")))


def find_named(name: str) -> Path:
    """Find the file of a network that comes with the package.

    Raises:
        InputError: no such network; the message has the nearest name.

    Example:
        >>> find_named("abilene").name
        'abilene.graphml'
    """
    if name not in names():
        raise unknown("topology.file", name, names())
    return shipped_folder("topologies") / f"{name}.graphml"


def graph_title(name: str) -> str:
    """Return one line about a network that comes with the package."""
    return ElementTree.parse(find_named(name)).getroot().findtext("{*}desc", name)


def find_file(name: str | Path) -> Path:
    """Return the path of a graph file; a name that is no file may be of a shipped network.

    Raises:
        InputError: neither.
    """
    path = Path(name)
    if path.suffix == "" and path.parent in (Path(), Path("topologies")) and not os.path.isfile(path):
        return find_named(path.name)
    return path


def read_graph(path: Path, directed: bool = False) -> Graph:
    """Read a graph file that is no matrix.

    Args:
        path: of a file.
        directed: whether edges are arcs; default no, except in a file of arcs.

    Raises:
        InputError: the file is missing or unreadable, or has two readings.

    Example:
        >>> read_graph(find_named("abilene")).agents
        11
    """
    ending, place = path.suffix.lower(), f"topology.file: {path}"
    if ending not in (*_READERS, ".csv"):
        endings = ", ".join([*_READERS, ".csv", *MATRICES])
        fix = "convert it, for example with networkx.write_graphml"
        raise _refusal(place, f"got the ending {quoted(path.suffix)}, expected one of {endings}", fix)
    try:
        content: Any = regular(path, "topology.file").read_bytes()
        # XML declares its own encoding.
        content = content if ending == ".graphml" else content.decode("utf-8-sig")
    except OSError as error:
        raise _unreadable(place, error) from error
    except UnicodeDecodeError as error:
        raise _refusal(place, "the file is not UTF-8 text", "save it as UTF-8") from error
    if ending == ".csv":
        return _edge_list(content, place, directed)
    name, reader = _READERS[ending]
    try:
        with warnings.catch_warnings():
            # networkx warns of parts of GraphML that are not needed.
            warnings.simplefilter("ignore")
            graph = reader(content)
        problem = graph if isinstance(graph, str) else ""
    except USER_ERRORS as error:
        at = re.search(r" at \((\d+), \d+\)| line (\d+)", str(error))
        problem = f"{f'line {at[1] or at[2]}' if at else 'the file'} is not {name}"
    if problem:
        raise _refusal(place, problem, f"write one simple graph as {name}, for example with networkx")
    return read_networkx(graph, place, directed)


def _refusal(place: str, problem: str, fix: str) -> InputError:
    return InputError(f"{place}: {problem}. Fix: {fix}.")


def _unreadable(place: str, error: OSError) -> InputError:
    return _refusal(place, f"the file cannot be read ({error.strerror})", "check the path")


def _edge_list(text: str, place: str, directed: bool) -> Graph:
    """A header, then an edge a line."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    links: list[Link] = []
    problem, header = "", None
    try:
        for row in filter(None, rows):
            weight = finite(row[2]) if len(row) == 3 else None
            if header is None:
                header = [name.lower() for name in row]
                # The line is not printed: a file of records may be named by mistake.
                if header not in (["source", "target"], ["source", "target", "weight"]):
                    problem = "no header (expected source,target, and weight or not)"
            elif len(row) != len(header):
                problem = f"{len(row)} columns (expected {len(header)})"
            elif [name.lower() for name in row] == header:
                problem = "a second header"
            elif any(not name or name != name.strip() for name in row[:2]):
                problem = "a name is empty, or has blanks at its ends"
            elif len(row) == 3 and (weight is None or weight <= 0.0):
                problem = "the weight is no number above 0"
            else:
                links.append(Link((row[0], row[1]), weight, f"{place}: line {rows.line_num}"))
            if problem:
                break
    except csv.Error:
        problem = "no row of a CSV file"
    if problem or not links:
        problem = f"line {rows.line_num}: {problem}" if problem else "no edges"
        raise _refusal(place, problem, "write a header and one edge a line, with commas")
    agents = list(dict.fromkeys(agent for link in links for agent in link.endpoints))
    return collect([agents[k] for k in numbering(agents)], links, place, directed)


def _fault_of_names(nodes: Sequence[Hashable], edges: Sequence[tuple[Hashable, Hashable]]) -> str:
    """Describe a node that is declared twice, or an edge to an undeclared one: networkx would merge and add them."""
    twice = next((node for node, times in Counter(nodes).items() if times > 1), None)
    if twice is not None:
        return f"two nodes have the id {quoted(twice)}"
    declared = {*nodes}
    lost = [end for ends in edges for end in ends if end not in declared]
    return f"an edge leads to {quoted(lost[0])}, which is none of the nodes" if lost else ""


def _read_graphml(content: bytes) -> Any:
    import networkx as nx

    root = ElementTree.fromstring(content)
    graphs, nodes, edges, keys = (root.findall(f".//{{*}}{tag}") for tag in ("graph", "node", "edge", "key"))
    directions = {"directed": "true", "undirected": "false"}
    kinds = {e.get("directed") for e in edges} - {None} | {directions.get(g.get("edgedefault", "")) for g in graphs}
    once: list[list[Any]] = [[d.get("key") for d in element.findall("{*}data")] for element in (*nodes, *edges)]
    once.append([(k.get("for"), k.get("attr.name", k)) for k in keys])
    owner = {k.get("id"): k.get("for") for k in keys}
    keys_of_edges = [owner.get(d.get("key")) for e in edges for d in e.findall("{*}data")]
    faults = {
        "a second graph, or a hyperedge": len(graphs) > 1 or root.find(".//{*}hyperedge") is not None,
        _fault_of_names([n.get("id") for n in nodes], [(e.get("source"), e.get("target")) for e in edges]): True,
        "edges are not all directed, or all undirected": len(kinds) > 1 or kinds == {None},
        "a key is there twice": any(len({*values}) < len(values) for values in once),
        "an edge has a key that is not declared for edges": any(k not in (None, "edge", "all") for k in keys_of_edges),
        "the key weight has a default": any(
            k.get("attr.name") == "weight" and k.find("{*}default") is not None for k in keys
        ),
    }
    if fault := next((text for text, holds in faults.items() if text and holds), ""):
        return fault
    for key in keys:
        # All values are read as text, so that one that is not needed cannot be of a wrong type.
        key.attrib |= {"attr.type": "string", "attr.name": key.get("attr.name", key.get("id", ""))}
    graph = nx.parse_graphml(ElementTree.tostring(root, encoding="unicode"), force_multigraph=True)
    whole = (len(graph), graph.number_of_edges()) == (len(nodes), len(edges))
    return graph if whole else "two edges have one id, or some stand outside the graph"


def _read_gml(text: str) -> Any:
    import networkx as nx

    stated = re.findall(r"^(?:\s*graph\s*\[)?\s*(directed)\s+(\S+)", text, re.MULTILINE | re.IGNORECASE)
    if stated not in ([], [("directed", "0")], [("directed", "1")]):
        return "the key directed is there twice, not in lower case, or is neither 0 nor 1"
    # Parallel edges are read one by one. Labels may be missing, or repeat, so nodes are read by their ids.
    graph = nx.parse_gml(re.sub(r"(?m)^\s*graph\s*\[", r"\g<0> multigraph 1 ", text, count=1), label=None)
    # A key that is there twice is a list.
    if any(isinstance(data.get(key), list | dict) for _, data in graph.nodes(data=True) for key in ("label", "graph")):
        return "a node has two labels, or a graph of its own"
    if "graph" in graph.graph:
        return "a second graph"
    label = {node: str(data["label"]) for node, data in graph.nodes(data=True) if "label" in data}
    return nx.relabel_nodes(graph, label) if len(set(label.values())) == graph.number_of_nodes() else graph


def _read_json(text: str) -> Any:
    import networkx as nx

    repeated: list[str] = []

    def collect_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            repeated.append("a key is there twice in one object")
        return dict(pairs)

    data = json.loads(text, object_pairs_hook=collect_keys)
    data = data if isinstance(data, dict) else {}
    rows = [data.get("nodes"), *(data[key] for key in ("edges", "links") if key in data)]
    listed = len(rows) == 2 and all(isinstance(r, list) and all(isinstance(one, dict) for one in r) for r in rows)
    if repeated or not listed or not isinstance(data.get("directed", False), bool):
        return repeated[0] if repeated else "the file is no node-link JSON"
    nodes, edges = rows
    ends = [(_hashable(edge.get("source")), _hashable(edge.get("target"))) for edge in edges]
    if fault := _fault_of_names([_hashable(node.get("id", k)) for k, node in enumerate(nodes)], ends):
        return fault
    # Parallel edges are read one by one. The key of edges has another name in later versions of networkx.
    edges = [{key: edge.get(key) for key in ("source", "target", "weight")} for edge in edges]
    return nx.node_link_graph({**data, "graph": {}, "multigraph": True, "edges": edges, "links": edges})


def _hashable(node: Any) -> Any:
    """A node of JSON as networkx has it: a list is a tuple."""
    return tuple(node) if isinstance(node, list) else node


# Ending → name of the format, and its reader: content → a graph of networkx, or the fault of a file with two readings.
_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    ".graphml": ("GraphML", _read_graphml),
    ".gml": ("GML", _read_gml),
    ".json": ("node-link JSON", _read_json),
}


def read_matrix(path: Path) -> Array:
    """Read the square matrix of a `.npy` file, or of a `.npz` file that `scipy.sparse.save_npz` wrote.

    Raises:
        InputError: the file is missing, damaged or too large, or has another content.
    """
    import scipy.sparse

    place = f"topology.file: {path}"
    try:
        if path.suffix.lower() == ".npy":
            matrix: Any = read_array(path, place)
        else:
            # The sizes of its arrays are checked here, before scipy reads them.
            read_arrays(path, place, names_in(path, place))
            matrix = scipy.sparse.load_npz(path)
            if hasattr(matrix, "check_format"):
                matrix.check_format(full_check=True)
        problem = ""
        if matrix.ndim != 2 or not 0 < matrix.shape[0] == matrix.shape[1] or matrix.dtype.kind not in "buif":
            problem = f"got {matrix.dtype} of shape {matrix.shape}, expected a square matrix of numbers"
        else:
            refuse_above(8 * matrix.shape[0] ** 2, f"{place}: its matrix has")
            if scipy.sparse.issparse(matrix):
                entries = matrix.tocoo(copy=True)
                entries.sum_duplicates()
                problem = "an entry is there twice" if entries.nnz < matrix.nnz else ""
                matrix = entries.toarray()
    except InputError:
        raise
    except OSError as error:
        raise _refusal(place, f"the file cannot be read ({error.strerror})", "check the path") from error
    except DAMAGED:
        problem = "the file holds no matrix"
    if problem:
        raise _refusal(place, problem, "use numpy.save or scipy.sparse.save_npz for an adjacency matrix")
    return np.asarray(matrix, dtype=np.float64)
