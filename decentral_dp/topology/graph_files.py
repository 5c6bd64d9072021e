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

Gossip needs every link both ways, so a directed graph is taken only if every arc has its reverse. Parallel links count
once, and a note says so. An agent linked to itself is refused. A third column of an edge list (elsewhere the edge
attribute `weight`) is read only for weights = "file", and a note says where it is not used.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from decentral_dp.errors import InputError, quoted
from decentral_dp.files.regular import is_file, regular
from decentral_dp.topology.generators import GENERATORS, generate
from decentral_dp.topology.graph import Graph, unknown
from decentral_dp.topology.links import Link, collect, finite, numbering
from decentral_dp.topology.networkx_graphs import FORMATS, read_format

EDGE_LISTS = (".edges", ".edgelist", ".txt", ".csv")
HEADERS = {("source", "target"), ("from", "to"), ("agent", "neighbour"), ("node1", "node2")}
_WEIGHT = re.compile(r"['\"]weight['\"]\s*:\s*([^\s,}]+)")
# Installed beside the modules; in a checkout beside the package.
FOLDERS = (Path(__file__).parents[1] / "topologies", Path(__file__).parents[2] / "topologies")


class Content(NamedTuple):
    """What a graph file says: its name, the graph, and the weights if it names any."""

    name: str
    graph: Graph
    weights: str | Mapping[str, Any] | None = None


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
    if path.suffix in FORMATS:
        return read_format(path, _bytes(path))
    if path.suffix in EDGE_LISTS:
        return _edge_list(path)
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
            raise InputError(f"topology.file: {path}: file = {other!r}, wanted a graph file beside it.")
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
    agents = list(dict.fromkeys(agent for link in links for agent in link.ends))
    return collect([agents[k] for k in numbering(agents)], links)


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
