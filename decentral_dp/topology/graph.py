"""A simple undirected graph over agents 0 … m−1, and the refusal of graphs and parameters that cannot gossip."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decentral_dp.errors import InputError

Array: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

MAX_EDGES = 10_000_000


class Graph(NamedTuple):
    """A simple undirected graph over agents 0 … m − 1.

    Args:
        agents: m.
        edges: (E, 2), i < j in every row, rows sorted and distinct.
        ends: second smallest and largest eigenvalue of the unweighted Laplacian where a closed form is known.
        positions: (m, 2) coordinates for drawing, where a file has them.
        labels: names of the agents, numbers if empty.
        given: (E,) weights that came with the edges; None where one of them has none above 0.
        weighted: how many links came with a weight.
        wrong_weight: the first link without one weight above 0, in words.
        notes: what was converted on the way, in sentences.

    Example:
        >>> Graph(3, np.array([[0, 1], [1, 2]])).description
        'graph of degrees 1 to 2'
    """

    agents: int
    edges: IntArray
    ends: tuple[float, float] | None = None
    positions: Array | None = None
    labels: tuple[str, ...] = ()
    given: Array | None = None
    weighted: int = 0
    wrong_weight: str = ""
    notes: tuple[str, ...] = ()

    @property
    def degrees(self) -> IntArray:
        """(m,) number of neighbours of each agent."""
        return np.bincount(self.edges.reshape(-1), minlength=self.agents).astype(np.int64)

    @property
    def description(self) -> str:
        """Words for error messages: "5-regular graph" or "graph of degrees 1 to 9"."""
        low, high = int(self.degrees.min()), int(self.degrees.max())
        return f"{low}-regular graph" if low == high else f"graph of degrees {low} to {high}"


def canonical(edges: IntArray | Iterable[tuple[int, int]]) -> IntArray:
    """Sort edges and make them distinct, with i < j in each.

    Args:
        edges: (E, 2) array or pairs of agents.

    Returns:
        (E', 2); loops are dropped, orientation and parallel edges are forgotten.

    Example:
        >>> canonical([(2, 1), (1, 1), (0, 1), (1, 2)]).tolist()
        [[0, 1], [1, 2]]
    """
    pairs = np.asarray(edges if isinstance(edges, np.ndarray) else list(edges), dtype=np.int64).reshape(-1, 2)
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0)


def components(agents: int, edges: IntArray) -> IntArray:
    """Find the connected component of every agent.

    Args:
        agents: their number m.
        edges: (E, 2).

    Returns:
        (m,) numbers of components, from 0.

    Example:
        >>> components(4, np.array([[0, 1]])).tolist()
        [0, 0, 1, 2]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(len(edges), dtype=np.int8)
    adjacency = coo_array((ones, (edges[:, 0], edges[:, 1])), shape=(agents, agents)).tocsr()
    return np.asarray(connected_components(adjacency, directed=False)[1], dtype=np.int64)


def is_connected(agents: int, edges: IntArray) -> bool:
    """Say whether the graph has one component.

    Example:
        >>> is_connected(3, np.array([[0, 1], [1, 2]])), is_connected(3, np.array([[0, 1]]))
        (True, False)
    """
    # A missing neighbour is the usual reason, and cheaper to see than components.
    if agents > 1 and np.bincount(edges.reshape(-1), minlength=agents).min() == 0:
        return False
    return bool(components(agents, edges).max() == 0)


def require_connected(graph: Graph, where: str) -> None:
    """Refuse a graph of more than one component.

    Args:
        graph: the graph; one agent alone passes.
        where: begins the message.

    Raises:
        InputError: isolated agents (named) or several components (counted).
    """
    if graph.agents == 1:
        return
    isolated = np.flatnonzero(graph.degrees == 0)
    if isolated.size:
        names = [graph.labels[i] if graph.labels else str(i) for i in isolated]
        raise InputError(f"{where}: {few(names, 'agent')} without a neighbour cannot gossip; link or remove them.")
    sizes = np.sort(np.bincount(components(graph.agents, graph.edges)))[::-1]
    if sizes.size > 1:
        shown = few([str(s) for s in sizes])
        raise InputError(
            f"{where}: this graph falls into {sizes.size} components of {shown} agents, and gossip needs one; "
            "add links between them."
        )


def few(names: list[str], noun: str = "", limit: int = 6) -> str:
    """Join names with commas and "and", cut off after `limit`.

    Example:
        >>> few(["1", "2", "3"], "agent")
        'agents 1, 2 and 3'
        >>> few(["a", "b", "c"], limit=2)
        'a, b and 1 more'
    """
    plural = f"{noun}{'s' if len(names) > 1 else ''} " if noun else ""
    if len(names) > limit:
        return f"{plural}{', '.join(names[:limit])} and {len(names) - limit} more"
    return plural + (" and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0])


def unknown(where: str, got: str, valid: Iterable[str]) -> InputError:
    """Make the error for an unknown name, with the nearest valid name and all of them.

    Args:
        where: the key, which begins the message.
        got: the unknown name.
        valid: names that are known; none where nothing can be given.

    Returns:
        The error, to be raised by the caller.

    Example:
        >>> print(unknown("topology.kind", "rng", ["ring", "star"]))
        topology.kind: got "rng", which is not known; did you mean "ring"? Valid: ring, star.
    """
    names = sorted(valid)
    if not names:
        return InputError(f'{where}: got "{got}", which is not known; remove it, nothing can be given here.')
    near = difflib.get_close_matches(got, names, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"? Valid: ' if near else "valid: "
    return InputError(f'{where}: got "{got}", which is not known; {hint}{", ".join(names)}.')


# Keys of every topology with a kind.
SHARED = ("agents", "weights", "seed")


class Parameter(NamedTuple):
    """One parameter of a generator or weight rule.

    Args:
        name: its key.
        type: int or float.
        constraint: the valid values in words.
        valid: value → whether it is valid.
        default: None where the parameter is required, unless `optional`.
        optional: whether it may be absent, and is None then; default no.
        description: a noun.
    """

    name: str
    type: type[int] | type[float]
    constraint: str
    valid: Callable[[Any], bool]
    default: int | float | None = None
    optional: bool = False
    description: str = ""


def resolve(where: str, parameters: tuple[Parameter, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Check given values and fill in defaults.

    Args:
        where: begins the messages.
        parameters: those that may be given.
        given: name → value.

    Returns:
        Name → value of every parameter; an optional one that is absent is None.

    Raises:
        InputError: an unknown name, a required parameter that is missing, or a wrong value.

    Example:
        >>> degree = Parameter("degree", int, "an integer of at least 1", lambda v: v >= 1, default=4)
        >>> resolve("topology", (degree,), {})
        {'degree': 4}
    """
    known = {p.name: p for p in parameters}
    for name in given:
        if name not in known:
            raise unknown(where, name, known)
    return {p.name: _value(where, p, given.get(p.name)) for p in parameters}


def _value(where: str, p: Parameter, got: Any) -> Any:
    if got is None:
        if p.default is None and not p.optional:
            raise InputError(f"{where}: {p.name} is missing; give {p.constraint}.")
        return p.default
    is_number = isinstance(got, (int, np.integer) if p.type is int else (int, float, np.number))
    if isinstance(got, bool) or not is_number or not p.valid(got):
        raise InputError(f"{where}: {p.name} = {got!r}, wanted {p.constraint}.")
    return p.type(got)


def unknown_key(key: str, kind: str, parameters: Iterable[str]) -> InputError:
    """Make the error for a key of a topology that its graph does not take.

    Args:
        key: the unknown one.
        kind: of the graph.
        parameters: what that kind takes beside `SHARED`.

    Returns:
        The error, with the nearest key, and how to replace the graph as a whole.

    Example:
        >>> print(unknown_key("agent", "star", []))
        topology.agent: star takes no such key; did you mean "agents"? It takes agents, weights, seed. To take another \
graph, replace the whole table: topology = {kind = "star", agents = 10}.
    """
    known = [*parameters, *SHARED]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    hint = f'did you mean "{near[0]}"? It' if near else "it"
    return InputError(
        f"topology.{key}: {kind} takes no such key; {hint} takes {', '.join(known)}. To take another graph, replace "
        f'the whole table: topology = {{kind = "{kind}", agents = 10}}.'
    )


def whole(where: str, got: Any) -> int:
    """Return a whole number as an int.

    Raises:
        InputError: a fraction, a truth value, or no number.

    Example:
        >>> whole("seed", np.int64(3))
        3
    """
    try:
        value = operator.index(got)
    except TypeError:
        value = None
    if value is None or isinstance(got, bool):
        raise InputError(f"{where}: got {got!r}, wanted a whole number.")
    return value


def wrong_agents(kind: str, wanted: str, got: int, mend: str) -> InputError:
    """Make the error for a number of agents that a family does not have.

    Args:
        kind: name of the family.
        wanted: which numbers it has, in words.
        got: the number of agents.
        mend: what to change.
    """
    return InputError(f'topology.agents: kind "{kind}" needs {wanted} agents, got {got}; {mend}.')


def require_room(kind: str, edges: float) -> None:
    """Refuse a graph of more edges than are built.

    Raises:
        InputError: more than MAX_EDGES edges.
    """
    if edges > MAX_EDGES:
        raise InputError(
            f'topology.agents: kind "{kind}" would have about {edges:.3g} edges, and {MAX_EDGES} is the most that is '
            "built; use fewer agents or a sparser graph."
        )
