"""Graphs over agents 0 … m − 1: families of graphs by name, and errors for graphs on which gossip is impossible.

`GENERATORS` is the registry of families, and `generate` generates a graph of a family. Each family is a function of the
number of agents, of its parameters, and of a seed if it is random. Types and bounds of parameters are checked first.
Regular structures have the extreme Laplacian eigenvalues in closed form. Random families are resampled until connected,
and the same seed gives the same graph.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from annotated_types import Ge, Gt, Le, MultipleOf
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import Doc

from decentral_dp.errors import InputError, nearest_of
from decentral_dp.files.tables import DeclaredKey, declared_keys, type_in_words
from decentral_dp.formatting import join_words

Array: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

MAX_EDGES = 10_000_000


class Graph(NamedTuple):
    """Simple graph on the agents 0 … m − 1.

    Args:
        agents: number of agents m.
        edges: edges, (E, 2), in sorted and distinct rows with i < j, or with (sender, receiver) for a directed graph.
        spectrum: second smallest and largest eigenvalues of the unweighted Laplacian, if known in closed form.
        labels: names of the agents. If empty, agents are named by their numbers.
        file_weights: weights of the edges, (E,), or None unless every edge has a weight above 0.
        n_weighted: number of edges with a weight.
        wrong_weight: description of the first edge without a weight above 0.
        notes: sentences about conversions that were made.
        directed: whether edges are arcs, default False.

    Example:
        >>> Graph(3, np.array([[0, 1], [1, 2]])).description
        'graph of degrees 1 to 2'
    """

    agents: int
    edges: IntArray
    spectrum: tuple[float, float] | None = None
    labels: tuple[str, ...] = ()
    file_weights: Array | None = None
    n_weighted: int = 0
    wrong_weight: str = ""
    notes: tuple[str, ...] = ()
    directed: bool = False

    def to_directed(self) -> Graph:
        """Return the graph with each edge replaced by two arcs of the same weight. A directed graph is unchanged.

        Example:
            >>> Graph(2, np.array([[0, 1]])).to_directed().edges.tolist()
            [[0, 1], [1, 0]]
        """
        if self.directed:
            return self
        weights = None if self.file_weights is None else np.tile(self.file_weights, 2)
        return self._replace(
            edges=np.concatenate([self.edges, self.edges[:, ::-1]]), file_weights=weights, directed=True
        )

    @property
    def degrees(self) -> IntArray:
        """Number of neighbours of each agent, (m,)."""
        return np.bincount(self.edges.reshape(-1), minlength=self.agents).astype(np.int64)

    @property
    def description(self) -> str:
        """Description for error messages: "5-regular graph" or "graph of degrees 1 to 9"."""
        low, high = int(self.degrees.min()), int(self.degrees.max())
        return f"{low}-regular graph" if low == high else f"graph of degrees {low} to {high}"


def canonical(edges: IntArray | Iterable[tuple[int, int]]) -> IntArray:
    """Sort edges and remove duplicates, with i < j in each edge.

    Args:
        edges: pairs of agents, (E, 2).

    Returns:
        The edges, (E', 2), without loops, orientation or parallel edges.

    Example:
        >>> canonical([(2, 1), (1, 1), (0, 1), (1, 2)]).tolist()
        [[0, 1], [1, 2]]
    """
    pairs = np.asarray(edges if isinstance(edges, np.ndarray) else list(edges), dtype=np.int64).reshape(-1, 2)
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0)


def is_connected(agents: int, edges: IntArray) -> bool:
    """Return whether the graph has a single connected component.

    Args:
        agents: number of agents m.
        edges: edges, (E, 2).

    Example:
        >>> is_connected(3, np.array([[0, 1], [1, 2]])), is_connected(3, np.array([[0, 1]]))
        (True, False)
    """
    # Isolated agents are the most common case, and quick to find.
    if agents > 1 and np.bincount(edges.reshape(-1), minlength=agents).min() == 0:
        return False
    # In the end every agent points to the lowest index in its component. scipy's csgraph is slow to import.
    lowest, previous = np.arange(agents), None
    while previous is None or (lowest != previous).any():
        previous = lowest.copy()
        ends = previous[edges]
        for end in ends.T:
            np.minimum.at(lowest, end, ends.min(axis=1))
        lowest = lowest[lowest]
    return not lowest.any()


def require_connected(graph: Graph, subject: str) -> None:
    """Raise InputError for a graph with several components (strongly connected components if it is directed).

    Args:
        graph: graph to test. A single agent is connected.
        subject: beginning of the error message, which names agents of the small components.
    """
    if not graph.directed and is_connected(graph.agents, graph.edges):
        return
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    arcs = coo_array((np.ones(len(graph.edges)), tuple(graph.edges.T)), shape=(graph.agents, graph.agents)).tocsr()
    parts, part = connected_components(arcs, directed=graph.directed, connection="strong")
    if parts == 1:
        return
    sizes = np.bincount(part)
    names = graph.labels or tuple(str(i) for i in range(graph.agents))
    outside = list_agents([names[i] for i in np.flatnonzero(part != np.argmax(sizes))])
    raise InputError(
        f"{subject}: this graph has {parts} {'strongly connected ' * graph.directed}components (expected 1): the "
        f"largest has {sizes.max()} of {graph.agents} agents, without {outside}. Fix: add edges between them, or "
        "remove these agents."
    )


def list_agents(names: list[str]) -> str:
    """List the names of up to six agents, and give the number of any others.

    Example:
        >>> list_agents(["1", "2", "3"]), list_agents(list("abcdefgh"))
        ('agents 1, 2 and 3', 'agents a, b, c, d, e, f and 2 more')
    """
    noun = "agents" if len(names) > 1 else "agent"
    return f"{noun} {join_words(names if len(names) <= 6 else [', '.join(names[:6]), f'{len(names) - 6} more'])}"


# Name in other libraries → our kind.
_OTHER_NAMES = {"fully_connected": "complete", "full": "complete", "clique": "complete", "line": "path"}


def unknown(subject: str, got: str, valid: Iterable[str]) -> InputError:
    """Return an error for an unknown name that suggests the closest valid name or lists all valid names.

    Args:
        subject: key at the beginning of the error message.
        got: name that was given.
        valid: valid names.

    Example:
        >>> print(unknown("topology.kind", "rng", ["ring", "star"]))
        topology.kind: got "rng", which is unknown; did you mean "ring"?
    """
    names = sorted(valid)
    near = nearest_of(_OTHER_NAMES.get(got, got), names) if names else ". Fix: remove it."
    return InputError(f'{subject}: got "{got}", which is unknown{near}')


_NEIGHBOURS = "neighbours of each agent"
Degree = Annotated[int, Ge(1), Doc(_NEIGHBOURS)]
Probability = Annotated[float, Gt(0), Le(1), Doc("probability of each edge")]
Rows = Annotated[int, Ge(2), Doc("agents of a column")]
Columns = Annotated[int, Ge(2), Doc("agents of a row")]


def fill_parameters(subject: str, make: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Validate those parameters of a function that are scenario keys, and fill in the defaults.

    Args:
        subject: beginning of messages.
        make: function with the parameters.
        values: name → value for the parameters that are given.

    Returns:
        Name → value for every parameter, which is None for an optional parameter without a default.

    Raises:
        InputError: a name is unknown, a required parameter is missing, or a value is invalid.

    Example:
        >>> fill_parameters("topology", small_world, {"degree": 6})
        {'degree': 6, 'rewire': 0.3}
    """
    keys = {key.name: key for key in declared_keys(make)}
    for name in values:
        if name not in keys:
            raise unknown(subject, name, keys)
    parameter_values = {}
    for name, key in keys.items():
        got = values.get(name)
        plain = got.item() if isinstance(got, np.generic) else got
        try:
            if plain is None and not key.required:
                parameter_values[name] = key.default
            else:
                parameter_values[name] = TypeAdapter(key.type, config=ConfigDict(strict=True)).validate_python(plain)
        except ValidationError:
            problem = "is missing" if got is None else f"= {got!r}"
            raise InputError(f"{subject}: {name} {problem}, expected {type_in_words(key.type)}.") from None
    return parameter_values


def require_agents(kind: str, holds: bool, numbers: str, got: int, fix: str) -> None:
    """Raise InputError for a number of agents that a family does not support.

    Args:
        kind: name of the family.
        holds: whether the number is valid.
        numbers: valid numbers, in words.
        got: number of agents.
        fix: advice at the end of the message.
    """
    if not holds:
        raise InputError(f'topology.agents: kind "{kind}" needs {numbers} agents (got {got}). Fix: {fix}.')


def require_room(kind: str, edges: float) -> None:
    """Raise InputError for a graph with more than MAX_EDGES edges."""
    if edges > MAX_EDGES:
        raise InputError(
            f'topology.agents: kind "{kind}" would have about {edges:.3g} edges, and the maximum is {MAX_EDGES}. '
            "Fix: use fewer agents or a sparser graph."
        )


def cycle_ends(agents: int) -> tuple[float, float]:
    """Compute λ₂ and λ_m of the Laplacian of the cycle, which has the eigenvalues 4 sin²(πk/m).

    The sine avoids the cancellation of 2 − 2cos for large m.

    Example:
        >>> [round(v, 6) for v in cycle_ends(6)]
        [1.0, 4.0]
    """
    if agents == 2:
        return 2.0, 2.0
    return 4 * math.sin(math.pi / agents) ** 2, 4 * math.sin(math.pi * (agents // 2) / agents) ** 2


def _path_ends(agents: int) -> tuple[float, float]:
    return 4 * math.sin(math.pi / (2 * agents)) ** 2, 4 * math.cos(math.pi / (2 * agents)) ** 2


def _product_ends(*ends: tuple[float, float]) -> tuple[float, float]:
    """Combine spectra of a Cartesian product, whose eigenvalues are sums of its factors' eigenvalues, zero included."""
    return min(low for low, _ in ends), sum(high for _, high in ends)


def _consecutive(agents: int) -> IntArray:
    return np.stack([np.arange(agents - 1), np.arange(1, agents)], axis=1)


def ring(agents: int) -> Graph:
    """Build a cycle, in which every agent has two neighbours.

    Example:
        >>> ring(4).edges.tolist()
        [[0, 1], [0, 3], [1, 2], [2, 3]]
    """
    edges = canonical(np.append(_consecutive(agents), [[agents - 1, 0]], axis=0))
    return Graph(agents, edges, cycle_ends(agents))


def path(agents: int) -> Graph:
    """Build a path, in which the agents form a line."""
    return Graph(agents, _consecutive(agents), _path_ends(agents))


def star(agents: int) -> Graph:
    """Build a star, in which agent 0 is the only neighbour of all other agents."""
    leaves = np.arange(1, agents)
    ends = (1.0, float(agents)) if agents > 2 else (2.0, 2.0)
    return Graph(agents, np.stack([np.zeros_like(leaves), leaves], axis=1), ends)


def complete(agents: int) -> Graph:
    """Build the complete graph.

    Raises:
        InputError: there are too many edges.
    """
    require_room("complete", agents * (agents - 1) / 2)
    edges = np.stack(np.triu_indices(agents, 1), axis=1).astype(np.int64)
    return Graph(agents, edges, (float(agents), float(agents)) if agents > 1 else None)


def isolated(agents: int) -> Graph:
    """Build the graph without edges, with λ₂ = λ_m = 0 and ρ = 1."""
    return Graph(agents, np.zeros((0, 2), dtype=np.int64), (0.0, 0.0))


def _sides(kind: str, agents: int, rows: int | None, columns: int | None, least: int) -> tuple[int, int]:
    """Return the given rows and columns, or the most nearly square factorisation with sides of at least `least`."""
    square = next((r for r in range(math.isqrt(agents), least - 1, -1) if agents % r == 0), 0)
    rows = rows or (agents // columns if columns else square) or agents
    columns = columns or agents // rows
    if min(rows, columns) < least or rows * columns != agents:
        raise InputError(
            f'topology (kind "{kind}"): rows × columns = {rows} × {columns} for {agents} agents (expected sides of at '
            f"least {least} whose product is the number of agents). Fix: change topology.agents, or rows and columns."
        )
    return rows, columns


def grid_graph(agents: int, rows: Rows | None = None, columns: Columns | None = None) -> Graph:
    """Build a grid of rows × columns agents.

    Raises:
        InputError: the number of agents does not fit the rows and columns.
    """
    rows, columns = _sides("grid", agents, rows, columns, 2)
    index = np.arange(agents).reshape(rows, columns)
    right = np.stack([index[:, :-1], index[:, 1:]], axis=-1).reshape(-1, 2)
    down = np.stack([index[:-1], index[1:]], axis=-1).reshape(-1, 2)
    ends = _product_ends(_path_ends(rows), _path_ends(columns))
    return Graph(agents, canonical(np.append(right, down, axis=0)), ends)


def torus(agents: int, rows: Rows | None = None, columns: Columns | None = None) -> Graph:
    """Build a torus, a grid of at least 3 × 3 agents in which every row and column is a cycle.

    Raises:
        InputError: the number of agents does not fit the rows and columns.
    """
    rows, columns = _sides("torus", agents, rows, columns, 3)
    index = np.arange(agents).reshape(rows, columns)
    near = [np.stack([index, np.roll(index, -1, axis)], axis=-1).reshape(-1, 2) for axis in (0, 1)]
    ends = _product_ends(cycle_ends(rows), cycle_ends(columns))
    return Graph(agents, canonical(np.concatenate(near)), ends)


def hypercube(agents: int) -> Graph:
    """Build a hypercube, in which two agents are neighbours if their numbers differ in exactly one bit.

    Raises:
        InputError: the number of agents is not a power of two.

    Example:
        >>> hypercube(8).degrees.tolist()
        [3, 3, 3, 3, 3, 3, 3, 3]
    """
    bits = agents.bit_length() - 1
    require_agents("hypercube", agents == 1 << bits, "a power of two", agents, f"use {1 << bits} or {2 << bits}")
    index = np.arange(agents)
    edges = np.concatenate([np.stack([index, index ^ (1 << k)], axis=1) for k in range(bits)])
    return Graph(agents, canonical(edges), (2.0, 2.0 * bits))


def circular_ladder(agents: int) -> Graph:
    """Build a circular ladder, which consists of two cycles of m/2 agents joined by rungs.

    Raises:
        InputError: the number of agents is odd.
    """
    is_even = agents % 2 == 0
    require_agents("circular_ladder", is_even, "an even number of", agents, f"use {agents - 1} or {agents + 1}")
    half = agents // 2
    outer = np.stack([np.arange(half), np.roll(np.arange(half), -1)], axis=1)
    rungs = np.stack([np.arange(half), np.arange(half, agents)], axis=1)
    edges = canonical(np.concatenate([outer, outer + half, rungs]))
    return Graph(agents, edges, _product_ends(cycle_ends(half), (2.0, 2.0)))


def directed_exponential(agents: int) -> Graph:
    """Build a directed exponential graph, in which agent i sends to the agents i + 1, i + 2, i + 4, … mod m.

    References:
        M. Assran et al., "Stochastic Gradient Push for Distributed Deep Learning", ICML 2019.

    Example:
        >>> directed_exponential(5).edges[:3].tolist()
        [[0, 1], [0, 2], [0, 4]]
    """
    hops = 2 ** np.arange(max(1, (agents - 1).bit_length()))
    arcs = [(i, (i + int(hop)) % agents) for i in range(agents) for hop in hops[hops < agents]]
    return Graph(agents, np.array(sorted(arcs), dtype=np.int64), directed=True)


TRIES = 200


def _draws(seed: int) -> Iterator[int]:
    """Yield the seeds of successive attempts at a random graph."""
    for attempt in range(TRIES):
        yield int(np.random.default_rng([seed, attempt]).integers(2**31))


def _first_connected(kind: str, agents: int, seed: int, draw: Callable[[int], Graph], fix: str) -> Graph:
    """Return the first connected graph that `draw` makes from these seeds. Raises InputError if there is none."""
    for graph in map(draw, _draws(seed)):
        if is_connected(agents, graph.edges):
            return graph
    raise InputError(
        f'topology: {TRIES} samples of kind "{kind}" on {agents} agents were all disconnected. Fix: {fix}.'
    )


def random_regular(agents: int, seed: int, degree: Degree) -> Graph:
    """Draw a random regular graph, in which every agent has `degree` neighbours.

    Raises:
        InputError: no such graph has this number of agents, or no draw was connected.

    Example:
        >>> random_regular(8, seed=1, degree=3).degrees.tolist()
        [3, 3, 3, 3, 3, 3, 3, 3]
    """
    import networkx as nx

    fits = degree < agents and agents * degree % 2 == 0 and (degree > 1 or agents <= 2)
    numbers = f"more than degree = {degree} and, of an odd degree, an even number of"
    fix = "use another degree, of at least 2 where there are more than two agents"
    require_agents("random_regular", fits, numbers, agents, fix)
    require_room("random_regular", agents * degree / 2)
    ends = cycle_ends(agents) if degree == 2 else None

    def draw(attempt: int) -> Graph:
        if degree == 2:
            # A connected 2-regular graph is a cycle, and large samples are rarely connected: draw the order.
            order = np.random.default_rng(attempt).permutation(agents)
            edges = canonical(np.stack([order, np.roll(order, -1)], axis=1))
        elif degree > (agents - 1) // 2:
            # Pairing stubs rarely gives a simple graph if it is dense; its complement is sparse.
            missing = canonical(nx.random_regular_graph(agents - 1 - degree, agents, seed=attempt).edges)
            # Index of a pair i < j in the order (0, 1), (0, 2), (1, 2), (0, 3), …
            codes = missing[:, 1] * (missing[:, 1] - 1) // 2 + missing[:, 0]
            edges = _pair(np.setdiff1d(np.arange(agents * (agents - 1) // 2), codes, assume_unique=True))
        else:
            edges = canonical(nx.random_regular_graph(degree, agents, seed=attempt).edges)
        return Graph(agents, edges, ends)

    return _first_connected("random_regular", agents, seed, draw, "use a larger degree")


def erdos_renyi(agents: int, seed: int, probability: Probability) -> Graph:
    """Draw an Erdős–Rényi graph, in which every pair of agents is joined by an edge with `probability`.

    Raises:
        InputError: there are too many edges, or no draw was connected.

    Limits:
        Below ln(m)/m a draw is rarely connected.
    """
    pairs = agents * (agents - 1) // 2
    require_room("erdos_renyi", probability * pairs)

    def draw(attempt: int) -> Graph:
        return Graph(agents, _bernoulli_pairs(np.random.default_rng(attempt), pairs, probability))

    fix = f"use a probability well above ln(m)/m = {math.log(agents) / agents:.3g}"
    return _first_connected("erdos_renyi", agents, seed, draw, fix)


def _bernoulli_pairs(rng: np.random.Generator, pairs: int, probability: float) -> IntArray:
    """Draw every pair j < i independently with one probability, by geometric skips over the ordered pairs."""
    chunk = int(1.1 * probability * pairs) + 100
    # The cap at the number of pairs avoids overflow in the sum.
    last, parts = -1, []
    while last < pairs:
        parts.append(last + np.cumsum(np.minimum(rng.geometric(probability, chunk), pairs + 1)))
        last = int(parts[-1][-1])
    codes = np.concatenate(parts)
    return _pair(codes[codes < pairs])


def _pair(codes: IntArray) -> IntArray:
    """Return the pairs of these indices in the order (0, 1), (0, 2), (1, 2), (0, 3), …

    Below 2⁵⁰ the root of 1 + 8·code cannot round across a whole number.
    """
    j = ((1 + np.sqrt(1 + 8 * codes)) // 2).astype(np.int64)
    return canonical(np.stack([codes - j * (j - 1) // 2, j], axis=1))


def small_world(
    agents: int,
    seed: int,
    degree: Annotated[int, Ge(2), MultipleOf(2), Doc(_NEIGHBOURS)] = 4,
    rewire: Annotated[float, Ge(0), Le(1), Doc("fraction of rewired edges")] = 0.3,
) -> Graph:
    """Draw a Watts–Strogatz graph: a ring lattice with this `degree`, in which a fraction `rewire` of edges is rewired.

    Raises:
        InputError: degree ≥ agents, there are too many edges, or no draw was connected.
    """
    import networkx as nx

    fix = "use a smaller degree or more agents"
    require_agents("small_world", degree < agents, f"more than degree = {degree}", agents, fix)
    require_room("small_world", agents * degree / 2)

    def draw(attempt: int) -> Graph:
        return Graph(agents, canonical(nx.watts_strogatz_graph(agents, degree, rewire, seed=attempt).edges))

    return _first_connected("small_world", agents, seed, draw, "use a larger degree or less rewiring")


def preferential_attachment(
    agents: int, seed: int, attach: Annotated[int, Ge(1), Doc("edges of a new agent")] = 2
) -> Graph:
    """Draw a Barabási–Albert graph. Each new agent attaches to `attach` earlier agents, preferring high degrees.

    Raises:
        InputError: attach ≥ agents, or there are too many edges.
    """
    import networkx as nx

    numbers, fix = f"more than attach = {attach}", "use a smaller attach"
    require_agents("preferential_attachment", attach < agents, numbers, agents, fix)
    require_room("preferential_attachment", agents * attach)
    return Graph(agents, canonical(nx.barabasi_albert_graph(agents, attach, seed=next(_draws(seed))).edges))


@dataclass(frozen=True)
class Generator:
    """Family of graphs.

    Args:
        summary: one-line description.
        make: function of the number of agents, a seed if the family is random, and parameters that are scenario keys.
        min_agents: smallest number of agents, default 2.
        example: number of agents and parameters of a small instance.
        is_connected: whether the graphs of the family are connected, default True.
    """

    summary: str
    make: Callable[..., Graph]
    min_agents: int = 2
    example: tuple[int, Mapping[str, Any]] = (10, {})
    is_connected: bool = True

    @property
    def parameters(self) -> tuple[DeclaredKey, ...]:
        """Keys of the family."""
        return declared_keys(self.make)

    @property
    def random(self) -> bool:
        """Whether the graph depends on the seed."""
        return "seed" in inspect.signature(self.make).parameters


def generate(kind: str, agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Generate the graph of a registered family.

    Args:
        kind: name in `GENERATORS`.
        agents: number of agents.
        params: parameter → value. Omitted parameters take their default values.
        seed: seed of random families, at least 0.

    Returns:
        The unweighted graph, which is connected unless the kind is "isolated".

    Raises:
        InputError: the kind or a parameter is unknown, a value or the number of agents is invalid, or no draw of a
            random family was connected.

    Example:
        >>> generate("torus", 9, {"rows": 3}, seed=0).edges.shape
        (18, 2)
    """
    if kind not in GENERATORS:
        raise unknown("topology.kind", kind, GENERATORS)
    generator = GENERATORS[kind]
    agents, least = int(agents), generator.min_agents
    require_agents(kind, agents >= least, f"at least {least}", agents, f"use {least} or more")
    # A connected graph has at least this many edges.
    require_room(kind, agents - 1)
    parameters = fill_parameters(f'topology (kind "{kind}")', generator.make, params)
    return generator.make(agents, **({"seed": seed} if generator.random else {}), **parameters)


GENERATORS: dict[str, Generator] = {
    "circular_ladder": Generator("two rings joined by rungs (a prism); agents even", circular_ladder, min_agents=6),
    "complete": Generator("all pairs of agents are neighbours; also a single agent", complete, min_agents=1),
    "directed_exponential": Generator(
        "every agent sends to the agents at distances 1, 2, 4, …; directed, for push_sum", directed_exponential
    ),
    "erdos_renyi": Generator(
        "every pair is an edge with the same probability", erdos_renyi, example=(10, {"probability": 0.4})
    ),
    "grid": Generator("rows × columns without wrapping around", grid_graph, 4),
    "hypercube": Generator("binary words that differ in one bit; agents a power of two", hypercube, example=(8, {})),
    "isolated": Generator(
        "no edges: every agent learns alone, the baseline of collaboration",
        isolated,
        min_agents=1,
        is_connected=False,
    ),
    "path": Generator("a line of agents", path),
    "preferential_attachment": Generator(
        "new agents prefer neighbours of high degree: few hubs, many leaves (Barabási–Albert)",
        preferential_attachment,
        example=(10, {"attach": 2}),
    ),
    "random_regular": Generator(
        "random graph in which all agents have the same number of neighbours",
        random_regular,
        example=(10, {"degree": 3}),
    ),
    "ring": Generator("every agent has two neighbours on a circle", ring),
    "small_world": Generator(
        "ring of near neighbours with randomly rewired edges (Watts–Strogatz)",
        small_world,
        min_agents=3,
        example=(10, {"degree": 4, "rewire": 0.3}),
    ),
    "star": Generator("agent 0 is the only neighbour of all others", star),
    "torus": Generator("rows × columns, wrapping around", torus, 9, example=(12, {"rows": 3})),
}
