"""Graphs in files: GraphML, edge lists, and TOML files that name a generator or one of these.

A TOML file describes one network:

    title = "Abilene, the backbone of Internet2 in 2005"
    source = "…"
    file = "abilene.graphml"          # beside the TOML; or: kind = "ring", agents = 10, seed = 0, parameters …
    weights = "metropolis"            # or { kind = "constant", value = 0.3 }

Gossip needs every link both ways, so a directed graph is taken only if every arc has its reverse. Parallel links count
once, and a note says so. An agent linked to itself is refused. A third column of an edge list (in GraphML the edge
attribute `weight`) is read only for weights = "file".
"""

from __future__ import annotations

import csv
import io
import math
import tomllib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.files.regular import is_file, regular
from decentral_dp.topology.generators import GENERATORS, generate
from decentral_dp.topology.graph import Array, Graph, unknown

EDGE_LISTS = (".edges", ".txt", ".csv")
HEADERS = {("source", "target"), ("from", "to"), ("agent", "neighbour"), ("node1", "node2")}
COORDINATES = (("longitude", "latitude"), ("lon", "lat"), ("x", "y"))
# Coordinates place agents in a picture; farther out than this they place nobody.
_FARTHEST = 1e9
# Installed beside the modules; in a checkout beside the package.
FOLDERS = (Path(__file__).parents[1] / "topologies", Path(__file__).parents[2] / "topologies")


class Content(NamedTuple):
    """What a graph file says: its name, the graph, and the weights if it names any."""

    name: str
    graph: Graph
    weights: str | Mapping[str, Any] | None = None


class Link(NamedTuple):
    """One link as written, with its place in the file for messages.

    Args:
        ends: names of the two agents.
        weight: None where it is absent or not a number.
        place: file and line, or link.
    """

    ends: tuple[str, str]
    weight: float | None
    place: str


def folder() -> Path:
    """Return the folder of the networks that come with the package."""
    return next((f for f in FOLDERS if f.is_dir()), FOLDERS[0])


def names() -> tuple[str, ...]:
    """List the networks that come with the package, sorted.

    Example:
        >>> "abilene" in names()
        True
    """
    return tuple(sorted(p.stem for p in folder().glob("*.toml")))


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
    return folder() / f"{name}.toml"


def title(name: str) -> str:
    """Return one line about a network that comes with the package."""
    return str(_toml(find_named(name)).get("title", name))


def read(path: str | Path) -> Content:
    """Read a graph file.

    Args:
        path: a file; one that does not exist may be a shipped name, with or without folder and ending.

    Returns:
        The file's name, graph and weights.

    Raises:
        InputError: a file that is missing, unreadable, or directed one way.

    Example:
        >>> read("abilene").graph.agents
        11
    """
    path = Path(path)
    named = path.suffix in ("", ".toml") and path.parent in (Path(), Path("topologies"))
    if not is_file(path) and named and (path.suffix == "" or path.stem in names()):
        path = find_named(path.stem)
    if path.suffix == ".toml":
        return _from_toml(path)
    return Content(path.stem, _graph(path))


def _graph(path: Path) -> Graph:
    if path.suffix == ".graphml":
        return _graphml(path)
    if path.suffix in EDGE_LISTS:
        return _edge_list(path)
    wanted = ", ".join([".toml", ".graphml", *EDGE_LISTS])
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


def _from_toml(path: Path) -> Content:
    table = _toml(path)
    weights = table.pop("weights", None)
    for key in ("title", "source"):
        table.pop(key, None)
    if "file" in table:
        other = table.pop("file")
        if table:
            raise unknown(f"topology.file: {path}", next(iter(table)), ("file", "source", "title", "weights"))
        if not isinstance(other, str) or Path(other).suffix == ".toml":
            raise InputError(f"topology.file: {path}: file = {other!r}, wanted a GraphML or an edge list beside it.")
        return Content(path.stem, _graph(path.parent / other), weights)
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


def _edge_list(path: Path) -> Graph:
    """Two or three columns a line, separated by comma, semicolon or white space; # and % start a comment."""
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
        links.append(Link((fields[0], fields[1]), _number(fields[2]) if len(fields) == 3 else None, place))
    if not links:
        raise InputError(f"topology.file: {path} has no links; write one pair of agents a line.")
    agents = list(dict.fromkeys(agent for link in links for agent in link.ends))
    if all(a.isdecimal() for a in agents):
        agents.sort(key=int)
    return _collect(agents, links)


def _fields(line: str) -> list[str]:
    bare = line.split("#")[0].strip()
    if not bare or bare.startswith("%"):
        return []
    separator = next((s for s in ",;\t" if s in bare), None)
    try:
        fields = next(csv.reader([bare], delimiter=separator)) if separator else bare.split()
    except csv.Error:
        # A cell of more letters than csv reads is the name of no agent.
        return [bare]
    return [f.strip() for f in fields]


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _graphml(path: Path) -> Graph:
    from xml.etree.ElementTree import ParseError

    import networkx as nx

    content = io.BytesIO(_bytes(path))
    try:
        with warnings.catch_warnings():
            # It warns of attributes without a declared type, which are not needed.
            warnings.simplefilter("ignore")
            graph = nx.read_graphml(content, node_type=str)
    except (nx.NetworkXError, ParseError, KeyError, ValueError) as error:
        raise InputError(f"topology.file: {path} is not readable GraphML ({error}).") from error
    return read_networkx(graph, f"topology.file: {path}")


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
                'needs every link both ways; add it, or set edgedefault="undirected".'
            )
        # Both arcs of a link are one link: an arc is dropped where its reverse has been seen.
        order = {n: k for k, n in enumerate(nodes)}
        kept = [(a, b, d) for a, b, d in graph.edges(data=True) if order[str(a)] <= order[str(b)]]
    else:
        kept = list(graph.edges(data=True))
    links = [Link((str(a), str(b)), _number(data.get("weight")), f"{place}: link {a} – {b}") for a, b, data in kept]
    attributes = [{str(k).lower(): v for k, v in data.items()} for _, data in graph.nodes(data=True)]
    shown = [str(a.get("label", a.get("name", n))) for n, a in zip(nodes, attributes, strict=True)]
    # Labels that repeat name nobody.
    labels = shown if len(set(shown)) == len(shown) else nodes
    return _collect(nodes, links)._replace(labels=tuple(map(printable, labels)), positions=_coordinates(attributes))


def _coordinates(attributes: list[dict[str, Any]]) -> Array | None:
    """(m, 2) from the first pair of coordinates that every agent has; degrees are drawn with their true proportions."""
    for pair in COORDINATES:
        rows = [[_number(a.get(key)) for key in pair] for a in attributes]
        if all(value is not None and abs(value) < _FARTHEST for row in rows for value in row):
            points = np.array(rows, dtype=np.float64)
            if pair != ("x", "y"):
                points[:, 0] *= math.cos(math.radians(float(points[:, 1].mean())))
            return points
    return None


def _collect(agents: list[str], links: list[Link]) -> Graph:
    """A graph from links as written: loops refused, parallel links merged with a note."""
    number = {agent: k for k, agent in enumerate(agents)}
    weights: dict[tuple[int, int], float | None] = {}
    parallel = 0
    for link in links:
        a, b = sorted(number[agent] for agent in link.ends)
        if a == b:
            raise InputError(f"{link.place} links {link.ends[0]} to itself; remove it, W has its own diagonal.")
        if (a, b) in weights:
            parallel += 1
            # Which of two different weights is meant cannot be known: neither is, and "file" weights are refused.
            weights[a, b] = link.weight if link.weight == weights[a, b] else None
        else:
            weights[a, b] = link.weight
    pairs = sorted(weights)
    given = [weights[p] for p in pairs]
    complete = all(w is not None and w > 0.0 for w in given)
    return Graph(
        len(agents),
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        labels=tuple(map(printable, agents)),
        given=np.array(given, dtype=np.float64) if complete and given else None,
        notes=(f"parallel links count once: {parallel} left out",) if parallel else (),
    )
