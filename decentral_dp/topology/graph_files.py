"""Graphs from files and from networkx.

    .graphml .gml .json   read by networkx; JSON in the format of `networkx.node_link_data`
    .csv                  an edge list with the header source,target or source,target,weight
    .npy .npz             an adjacency or weight matrix: dense by numpy, sparse by scipy

Extensions are case-insensitive. Ambiguous files are an error. Parallel edges of equal weight count once, with a note.
Self loops, two weights for one edge, and names that print identically are errors. A graph of arcs is directed unless it
contains the reverse of every arc.
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
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from decentral_dp.errors import InputError, converting, printable, quoted
from decentral_dp.files.package import shipped_folder
from decentral_dp.files.regular import DAMAGED, names_in, read_array, read_arrays, refuse_above, regular
from decentral_dp.topology.graphs import Array, Graph, unknown
from decentral_dp.user_code import USER_ERRORS

# A whole number in a file or a networkx graph; longer ones count as names.
_WHOLE_NUMBER = re.compile(r"([0-9]{1,18})(?:\.0)?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
# Largest number of nodes that a note lists.
_MOST_LISTED = 4


class Link(NamedTuple):
    """Edge in a file.

    Args:
        endpoints: names of the two agents.
        weight: weight of the edge, or None if it has no weight.
        place: file and line, or edge, as named in error messages.
    """

    endpoints: tuple[str, str]
    weight: float | None
    place: str


def finite(value: Any) -> float | None:
    """Parse a finite number, and return None for anything else.

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
    """Return whether all names are distinct whole numbers.

    Example:
        >>> are_whole_numbers(["3", "1", "0"]), are_whole_numbers(["a", "1"]), are_whole_numbers(["1", "01"])
        (True, False, False)
    """
    matches = [_WHOLE_NUMBER.fullmatch(name) for name in names]
    return None not in matches and len({int(match[1]) for match in matches if match}) == len(names)


def numbering(names: Sequence[str]) -> list[int]:
    """Return the indices in `names` of agents 0, 1, …, by one rule for all file formats.

    Whole numbers are sorted, so nodes 0 … m − 1 keep their numbers regardless of their order in the file. Other names
    keep their order.

    Example:
        >>> numbering(["3", "1", "0", "2"]), numbering(["b", "a"])
        ([2, 1, 3, 0], [0, 1])
    """
    places = range(len(names))
    if not are_whole_numbers(names):
        return list(places)
    return sorted(places, key=lambda k: int(names[k].removesuffix(".0")))


def numbering_note(names: Sequence[str]) -> str:
    """Return a sentence about the numbering of the nodes, or "" if the nodes are 0 … m − 1.

    Example:
        >>> numbering_note(["0", "1"]), numbering_note(["b", "a"])
        ('', "agents are numbered in the order of the graph's nodes: 0 is b, 1 is a")
    """
    if all(name in (str(k), f"{k}.0") for k, name in enumerate(names)):
        return ""
    labels = [f"{k} is {name}" for k, name in enumerate(names)]
    if len(labels) > _MOST_LISTED:
        labels = [*labels[: _MOST_LISTED - 1], "…", labels[-1]]
    return f"agents are numbered in the order of the graph's nodes: {', '.join(labels)}"


def collect(agents: Sequence[str], links: Sequence[Link], place: str, directed: bool = False) -> Graph:
    """Build a graph from the edges read from a file.

    Args:
        agents: names of the agents, in order.
        links: edges of the graph.
        place: prefix of error messages.
        directed: whether edges are arcs. The default is False.

    Raises:
        InputError: a name is empty or occurs twice, an edge is a self loop, or an edge has two weights.
    """
    names: dict[str, str] = {}
    for name in agents:
        plain = _plain(name)
        if not plain or plain in names:
            alike = f"the names {quoted(names.get(plain, ''))} and {quoted(name)} of two nodes print identically"
            problem = alike if plain else "a node has an empty name"
            raise InputError(f"{place}: {problem}. Fix: use distinct names.")
        names[plain] = name
    number = {agent: k for k, agent in enumerate(agents)}
    weights: dict[tuple[int, int], float | None] = {}
    wrong_weight = ""
    for link in links:
        a, b = (number[agent] for agent in link.endpoints)
        pair = (a, b) if a < b or directed else (b, a)
        if a == b or weights.setdefault(pair, link.weight) != link.weight:
            source, target = map(quoted, link.endpoints)
            loop, fix = f"a self loop at {source}", "remove it, W has its own diagonal"
            if a != b:
                loop = f"the edge has another weight here than before, from {source} to {target}"
                fix = "list each edge once, or set topology.directed = true"
            raise InputError(f"{link.place}: {loop}. Fix: {fix}.")
        if not wrong_weight and (link.weight is None or link.weight <= 0.0):
            wrong_weight = f"{link.place} has {'none' if link.weight is None else f'{link.weight:g}'}"
    pairs, n_repeats = sorted(weights), len(links) - len(weights)
    return Graph(
        len(agents),
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        labels=tuple(map(printable, agents)),
        file_weights=None if wrong_weight or not pairs else np.array([weights[p] for p in pairs], dtype=np.float64),
        n_weighted=sum(weight is not None for weight in weights.values()),
        wrong_weight=wrong_weight,
        notes=(f"parallel edges count once: {n_repeats} left out",) if n_repeats else (),
        directed=directed,
    )


def _plain(name: str) -> str:
    """Normalise a name for comparison: 01 is 1, and blanks, invisible characters and accent forms are ignored."""
    visible = "".join(c for c in printable(name, lines=False) if unicodedata.category(c) != "Cf")
    plain = unicodedata.normalize("NFC", visible).strip()
    number = _WHOLE_NUMBER.fullmatch(plain)
    return str(int(number[1])) if number else plain


def read_networkx(graph: Any, place: str, directed: bool = False) -> Graph:
    """Convert a networkx graph whose attributes are those of a GraphML file.

    Args:
        graph: networkx graph, directed or undirected.
        place: prefix of error messages.
        directed: whether a graph that contains the reverse of every arc stays directed. The default is False.

    Returns:
        The graph, with its agents in the order of `numbering`. Repeated labels are replaced by the names of the nodes.

    Raises:
        InputError: the object is not a networkx graph, or it has no nodes, duplicate names, a self loop or an invalid
            weight.
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph) or not len(graph):
        got = f": got {type(graph).__name__}, expected a networkx.Graph"
        problem = " has no nodes" if isinstance(graph, nx.Graph) else got
        raise InputError(f"{place}{problem}. Fix: pass a graph of at least one node, or use from_edges or from_matrix.")
    # Edges may have equal objects: 1.0 and True are the node 1.
    name_of = {node: str(node) for node in graph}
    nodes_with_attributes = [(name_of[node], attributes) for node, attributes in graph.nodes(data=True)]
    nodes_with_attributes = [nodes_with_attributes[k] for k in numbering([name for name, _ in nodes_with_attributes])]
    nodes = [name for name, _ in nodes_with_attributes]
    links = []
    for a, b, data in graph.edges(data=True):
        edge_place, value = f"{place}: edge {a} – {b}", data.get("weight")
        weight = finite(value)
        if weight is None and value is not None:
            raise InputError(
                f"{edge_place}: its weight is not a finite number. Fix: write a number, or remove the weight."
            )
        links.append(Link((name_of[a], name_of[b]), weight, edge_place))
    arcs = graph.is_directed() and (directed or not all(graph.has_edge(b, a) for a, b in graph.edges()))
    result = collect(nodes, links, place, arcs)
    if graph.is_directed() and not arcs:
        # The two arcs of an edge are not parallel.
        n_repeats = len(links) - len({link.endpoints for link in links})
        result = result._replace(notes=(f"parallel edges count once: {n_repeats} left out",) if n_repeats else ())
    attributes = [{str(k).lower(): v for k, v in data.items()} for _, data in nodes_with_attributes]
    labels = [str(a.get("label", a.get("name", n))) for n, a in zip(nodes, attributes, strict=True)]
    # A repeated label, or the number of another node, is ambiguous.
    if len({*map(_plain, labels)}) < len(labels) or (are_whole_numbers(labels) and are_whole_numbers(nodes)):
        if labels != nodes:
            note = "labels of nodes are ignored, since they repeat or are numbers of other nodes"
            result = result._replace(notes=(*result.notes, note))
        labels = nodes
    return result._replace(labels=tuple(map(printable, labels)))


MATRICES = (".npy", ".npz")


def names() -> tuple[str, ...]:
    """Return the names of the networks in the package, sorted.

    Example:
        >>> "abilene" in names()
        True
    """
    return tuple(sorted(p.stem for p in shipped_folder("topologies").glob("*.graphml")))


def find_named(name: str) -> Path:
    """Return the file of a network that is shipped with the package.

    Raises:
        InputError: the network does not exist. The error message suggests the closest name.

    Example:
        >>> find_named("abilene").name
        'abilene.graphml'
    """
    if name not in names():
        raise unknown("topology.file", name, names())
    return shipped_folder("topologies") / f"{name}.graphml"


def graph_title(name: str) -> str:
    """Return a one-line description of a network in the package."""
    return ElementTree.parse(find_named(name)).getroot().findtext("{*}desc", name)


def find_file(name: str | Path) -> Path:
    """Return the path of a graph file or, if there is no such file, of a network in the package.

    Raises:
        InputError: neither exists.
    """
    path = Path(name)
    if path.suffix == "" and path.parent in (Path(), Path("topologies")) and not os.path.isfile(path):
        return find_named(path.name)
    return path


def read_graph(path: Path, directed: bool = False) -> Graph:
    """Read a graph file that is not a matrix.

    Args:
        path: path of the file.
        directed: whether edges are arcs. The default is False, except for a file of arcs.

    Raises:
        InputError: the file is missing, unreadable or ambiguous.

    Example:
        >>> read_graph(find_named("abilene")).agents
        11
    """
    ending, place = path.suffix.lower(), f"topology.file: {path}"
    if ending not in (*_READERS, ".csv"):
        endings = ", ".join([*_READERS, ".csv", *MATRICES])
        fix = "convert it, for example with networkx.write_graphml"
        raise _refusal(place, f"got the ending {quoted(path.suffix)}, expected one of {endings}", fix)
    with _reading(place):
        content: Any = regular(path, "topology.file").read_bytes()
        # XML declares its own encoding.
        content = content if ending == ".graphml" else content.decode("utf-8-sig")
    if ending == ".csv":
        return _edge_list(content, place, directed)
    name, reader = _READERS[ending]
    try:
        with warnings.catch_warnings():
            # networkx warns about unused parts.
            warnings.simplefilter("ignore")
            graph = reader(content)
        problem = graph if isinstance(graph, str) else ""
    except USER_ERRORS as error:
        position = re.search(r" at \((\d+), \d+\)| line (\d+)", str(error))
        problem = f"{f'line {position[1] or position[2]}' if position else 'the file'} is not {name}"
    if problem:
        raise _refusal(place, problem, f"write one simple graph as {name}, for example with networkx")
    return read_networkx(graph, place, directed)


def _refusal(place: str, problem: str, fix: str) -> InputError:
    return InputError(f"{place}: {problem}. Fix: {fix}.")


def _reading(place: str) -> AbstractContextManager[None]:
    """Convert errors of the system, and errors of a text in a different encoding."""

    def sentence(error: Any) -> str:
        if isinstance(error, UnicodeDecodeError):
            return f"{place}: the file is not UTF-8 text. Fix: save it as UTF-8."
        return f"{place}: the file cannot be read ({error.strerror}). Fix: check the path."

    return converting((OSError, UnicodeDecodeError), sentence)


def _edge_list(text: str, place: str, directed: bool) -> Graph:
    """Read an edge list, which consists of a header and one edge per line."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    links: list[Link] = []
    problem, header = "", None
    try:
        for row in filter(None, rows):
            weight = finite(row[2]) if len(row) == 3 else None
            if header is None:
                header = [name.lower() for name in row]
                # The line is not printed, since the file may contain records by mistake.
                if header not in (["source", "target"], ["source", "target", "weight"]):
                    problem = "no header (expected source,target or source,target,weight)"
            elif len(row) != len(header):
                problem = f"{len(row)} columns (expected {len(header)})"
            elif [name.lower() for name in row] == header:
                problem = "a second header"
            elif any(not name or name != name.strip() for name in row[:2]):
                problem = "a name is empty, or has blanks at its ends"
            elif len(row) == 3 and (weight is None or weight <= 0.0):
                problem = "the weight is not a number above 0"
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
    """Describe a node that is declared twice, or an edge to an undeclared node, which networkx accepts."""
    twice = next((node for node, times in Counter(nodes).items() if times > 1), None)
    if twice is not None:
        return f"two nodes have the id {quoted(twice)}"
    node_set = {*nodes}
    unknown_ends = [end for ends in edges for end in ends if end not in node_set]
    return f"an edge contains {quoted(unknown_ends[0])}, which is not a node" if unknown_ends else ""


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
        "a key occurs twice": any(len({*values}) < len(values) for values in once),
        "an edge has an undeclared key": any(k not in (None, "edge", "all") for k in keys_of_edges),
        "the key weight has a default": any(
            k.get("attr.name") == "weight" and k.find("{*}default") is not None for k in keys
        ),
    }
    if fault := next((text for text, holds in faults.items() if text and holds), ""):
        return fault
    for key in keys:
        # Values are read as text, so that an unused value cannot have a wrong type.
        key.attrib |= {"attr.type": "string", "attr.name": key.get("attr.name", key.get("id", ""))}
    graph = nx.parse_graphml(ElementTree.tostring(root, encoding="unicode"), force_multigraph=True)
    whole = (len(graph), graph.number_of_edges()) == (len(nodes), len(edges))
    return graph if whole else "two edges have one id, or an edge is outside of the graph"


def _read_gml(text: str) -> Any:
    import networkx as nx

    statements = re.findall(r"^(?:\s*graph\s*\[)?\s*(directed)\s+(\S+)", text, re.MULTILINE | re.IGNORECASE)
    if statements not in ([], [("directed", "0")], [("directed", "1")]):
        return "the key directed occurs twice, not in lower case, or is neither 0 nor 1"
    # Parallel edges are read one by one. Labels may be missing, or repeat, so nodes are read by their ids.
    graph = nx.parse_gml(re.sub(r"(?m)^\s*graph\s*\[", r"\g<0> multigraph 1 ", text, count=1), label=None)
    # A repeated key is a list.
    if any(isinstance(data.get(key), list | dict) for _, data in graph.nodes(data=True) for key in ("label", "graph")):
        return "a node has two labels, or a nested graph"
    if "graph" in graph.graph:
        return "a second graph"
    label = {node: str(data["label"]) for node, data in graph.nodes(data=True) if "label" in data}
    return nx.relabel_nodes(graph, label) if len(set(label.values())) == graph.number_of_nodes() else graph


def _read_json(text: str) -> Any:
    import networkx as nx

    duplicates: list[str] = []

    def collect_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            duplicates.append("a key occurs twice in one object")
        return dict(pairs)

    data = json.loads(text, object_pairs_hook=collect_keys)
    data = data if isinstance(data, dict) else {}
    rows = [data.get("nodes"), *(data[key] for key in ("edges", "links") if key in data)]
    is_list_pair = len(rows) == 2 and all(
        isinstance(r, list) and all(isinstance(entry, dict) for entry in r) for r in rows
    )
    if duplicates or not is_list_pair or not isinstance(data.get("directed", False), bool):
        return duplicates[0] if duplicates else "the file is not node-link JSON"
    nodes, edges = rows
    ends = [(_hashable(edge.get("source")), _hashable(edge.get("target"))) for edge in edges]
    if fault := _fault_of_names([_hashable(node.get("id", k)) for k, node in enumerate(nodes)], ends):
        return fault
    # Parallel edges are read one by one. The key of edges has another name in later versions of networkx.
    edges = [{key: edge.get(key) for key in ("source", "target", "weight")} for edge in edges]
    return nx.node_link_graph({**data, "graph": {}, "multigraph": True, "edges": edges, "links": edges})


def _hashable(node: Any) -> Any:
    """Convert a JSON node to the form of networkx, in which a list is a tuple."""
    return tuple(node) if isinstance(node, list) else node


# Ending → name of the format, and reader: content → networkx graph, or the fault of an ambiguous file.
_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    ".graphml": ("GraphML", _read_graphml),
    ".gml": ("GML", _read_gml),
    ".json": ("node-link JSON", _read_json),
}


def read_matrix(path: Path) -> Array:
    """Read the square matrix of a `.npy` file, or of a `.npz` file of `scipy.sparse.save_npz`.

    Raises:
        InputError: the file is missing, damaged, too large, or not a matrix.
    """
    import scipy.sparse

    place, fix = f"topology.file: {path}", "use numpy.save or scipy.sparse.save_npz for an adjacency matrix"
    damaged = converting(DAMAGED, lambda _: f"{place}: the file holds no matrix. Fix: {fix}.")
    with _reading(place), damaged:
        if path.suffix.lower() == ".npy":
            matrix: Any = read_array(path, place)
        else:
            # Check the sizes of the arrays before scipy reads them.
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
                problem = "an entry occurs twice" if entries.nnz < matrix.nnz else ""
                matrix = entries.toarray()
    if problem:
        raise _refusal(place, problem, fix)
    return np.asarray(matrix, dtype=np.float64)
