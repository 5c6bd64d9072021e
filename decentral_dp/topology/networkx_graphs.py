"""Graphs of networkx, and the files that networkx reads as text: no format that could run code."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.topology.graph import Array, Graph
from decentral_dp.topology.links import Link, are_numbers, collect, finite, numbering
from decentral_dp.user_code import USER_ERRORS, reason

COORDINATES = (("longitude", "latitude"), ("lon", "lat"), ("x", "y"))
# Coordinates place agents in a picture; farther out than this they place nobody.
_FARTHEST = 1e9


def _graphml(content: io.BytesIO) -> Any:
    import networkx as nx

    return nx.read_graphml(content, node_type=str)


def _gml(content: io.BytesIO) -> Any:
    import networkx as nx

    # Its numbers are the format's own, those in which the nodes were written; but labels may be missing, or repeat.
    graph = nx.read_gml(content, label=None)
    label = {node: str(data["label"]) for node, data in graph.nodes(data=True) if "label" in data}
    return nx.relabel_nodes(graph, label) if len(set(label.values())) == graph.number_of_nodes() else graph


def _gexf(content: io.BytesIO) -> Any:
    import networkx as nx

    return nx.read_gexf(content, node_type=str)


def _pajek(content: io.BytesIO) -> Any:
    import networkx as nx

    return nx.read_pajek(content)


def _adjacency_list(content: io.BytesIO) -> Any:
    import networkx as nx

    return nx.read_adjlist(content)


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
    ".graphml": ("GraphML", _graphml),
    ".gml": ("GML", _gml),
    ".gexf": ("GEXF", _gexf),
    ".net": ("Pajek", _pajek),
    ".adjlist": ("an adjacency list", _adjacency_list),
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
) -> None:
    """Write a graph as GraphML, so that reading it gives the same agents in the same order, and the same weights.

    Args:
        path: of the file.
        labels: names of the m agents.
        links: pairs of agents.
        weights: of each link; default none.
        positions: (m, 2) for drawing; default none.
    """
    import networkx as nx

    graph = nx.Graph()
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
        graph: directed or undirected; a directed one needs every arc both ways.
        place: begins the messages.

    Returns:
        The graph, its agents in the order of `links.numbering`; its labels are the nodes' names where labels repeat.

    Raises:
        InputError: no nodes, two of one name, an arc without its reverse, or an agent linked to itself.
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
    if graph.is_directed():
        lonely = next(((a, b) for a, b in graph.edges() if not graph.has_edge(b, a)), None)
        if lonely is not None:
            raise InputError(
                f"{place} is directed and has {lonely[0]} → {lonely[1]} but not the reverse, and gossip "
                "needs every link both ways; add it, or make the graph undirected."
            )
        # Both arcs of a link are one link: an arc is dropped where its reverse has been seen.
        order = {n: k for k, n in enumerate(nodes)}
        kept = [(a, b, d) for a, b, d in graph.edges(data=True) if order[str(a)] <= order[str(b)]]
    else:
        kept = list(graph.edges(data=True))
    links = [Link((str(a), str(b)), finite(data.get("weight")), f"{place}: link {a} – {b}") for a, b, data in kept]
    attributes = [{str(k).lower(): v for k, v in data.items()} for _, data in listed]
    shown = [str(a.get("label", a.get("name", n))) for n, a in zip(nodes, attributes, strict=True)]
    # Labels that repeat name nobody; and a label that is another node's number would name the wrong one.
    useless = len(set(shown)) < len(shown) or (are_numbers(shown) and are_numbers(nodes))
    labels = nodes if useless else shown
    return collect(nodes, links)._replace(labels=tuple(map(printable, labels)), positions=_coordinates(attributes))


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
