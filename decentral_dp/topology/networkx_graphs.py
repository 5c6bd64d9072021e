"""Graphs of networkx, and the files that networkx reads as text: no format that could run code."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.errors import InputError, printable
from decentral_dp.topology.graph import Array, Graph
from decentral_dp.topology.links import Link, collect, finite
from decentral_dp.user_code import USER_ERRORS, reason

COORDINATES = (("longitude", "latitude"), ("lon", "lat"), ("x", "y"))
# Coordinates place agents in a picture; farther out than this they place nobody.
_FARTHEST = 1e9


def _graphml(content: io.BytesIO) -> Any:
    import networkx as nx

    return nx.read_graphml(content, node_type=str)


def _gml(content: io.BytesIO) -> Any:
    import networkx as nx

    # Nodes by their numbers: labels may be missing, or repeat.
    return nx.read_gml(content, label=None)


def _gexf(content: io.BytesIO) -> Any:
    import networkx as nx

    return nx.read_gexf(content, node_type=str)


def _pajek(content: io.BytesIO) -> Any:
    import networkx as nx

    return nx.read_pajek(content)


def _adjacency_list(content: io.BytesIO) -> Any:
    import networkx as nx

    return nx.read_adjlist(content)


# Ending → name of the format, and its reader.
FORMATS: dict[str, tuple[str, Callable[[io.BytesIO], Any]]] = {
    ".graphml": ("GraphML", _graphml),
    ".gml": ("GML", _gml),
    ".gexf": ("GEXF", _gexf),
    ".net": ("Pajek", _pajek),
    ".adjlist": ("an adjacency list", _adjacency_list),
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
        The graph; its labels are the nodes' names where labels repeat.

    Raises:
        InputError: no nodes, an arc without its reverse, or an agent linked to itself.
    """
    if graph.number_of_nodes() == 0:
        raise InputError(f"{place} has no nodes.")
    nodes = [str(n) for n in graph.nodes]
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
    attributes = [{str(k).lower(): v for k, v in data.items()} for _, data in graph.nodes(data=True)]
    shown = [str(a.get("label", a.get("name", n))) for n, a in zip(nodes, attributes, strict=True)]
    # Labels that repeat name nobody.
    labels = shown if len(set(shown)) == len(shown) else nodes
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
