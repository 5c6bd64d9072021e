"""Convert graphs of networkx, and edges as a file writes them, to graphs of agents 0, 1, …

Parallel edges of equal weight count once, and a note says so. Self loops, two weights of one edge, and nodes whose
names print alike are refused. A graph of arcs is directed, unless every arc has its reverse.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.topology.graphs import Array, Graph

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
