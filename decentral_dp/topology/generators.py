"""Graph families by name. Random ones are resampled until connected, from a seed, and give the same graph again.

`GENERATORS` is the registry: every entry knows its parameters, so a wrong one is refused before anything is drawn.
Regular structures are written down directly, with the eigenvalues of their Laplacian in closed form; random families
come from networkx where it samples them well.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.topology.graph import MAX_EDGES, Array, Graph, IntArray, canonical, is_connected, unknown
from decentral_dp.topology.spectrum import laplacian_ends

TRIES = 200


class Parameter(NamedTuple):
    """One parameter of a generator or weight rule. default None: required, unless `optional`."""

    name: str
    type: type[int] | type[float]
    constraint: str
    valid: Callable[[Any], bool]
    default: int | float | None = None
    optional: bool = False


@dataclass(frozen=True)
class Generator:
    """A graph family.

    make(agents, parameters, seed) → Graph. least: fewest agents. random: whether the seed matters.
    example: agents and parameters of a small instance.
    """

    name: str
    summary: str
    make: Callable[[int, Mapping[str, Any], int], Graph]
    least: int = 2
    parameters: tuple[Parameter, ...] = ()
    random: bool = False
    example: tuple[int, Mapping[str, Any]] = field(default=(10, {}))


def generate(kind: str, agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """The graph of a registered family.

    Raises InputError for an unknown kind or parameter, a value outside its constraint, a number of agents that the
    family does not have, and a random family that stays disconnected.
    """
    if kind not in GENERATORS:
        raise unknown("topology.kind", kind, GENERATORS)
    generator = GENERATORS[kind]
    agents = _whole("topology.agents", agents)
    if agents < generator.least:
        hint = ' or kind = "complete" for one agent alone' if agents == 1 else ""
        raise _agents(kind, f"at least {generator.least}", agents, f"use {generator.least} or more{hint}")
    if _whole("seed", seed) < 0:
        raise InputError(f"seed: got {seed}, wanted a whole number of at least 0.")
    return generator.make(agents, resolve(f'topology (kind "{kind}")', generator.parameters, params), seed)


def resolve(where: str, parameters: tuple[Parameter, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Given values checked, defaults filled in; an optional parameter that is absent becomes None."""
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


def _whole(where: str, got: Any) -> int:
    try:
        value = operator.index(got)
    except TypeError:
        value = None
    if value is None or isinstance(got, bool):
        raise InputError(f"{where}: got {got!r}, wanted a whole number.")
    return value


def _agents(kind: str, wanted: str, got: int, mend: str) -> InputError:
    return InputError(f'topology.agents: kind "{kind}" needs {wanted} agents, got {got}; {mend}.')


def _room(kind: str, edges: float) -> None:
    if edges > MAX_EDGES:
        raise InputError(
            f'topology.agents: kind "{kind}" would have about {edges:.3g} edges, and {MAX_EDGES} is the most that is '
            "built; use fewer agents or a sparser graph."
        )


def _draws(seed: int) -> Iterator[int]:
    """Seeds of the successive attempts at a random graph."""
    for attempt in range(TRIES):
        yield int(np.random.default_rng([seed, attempt]).integers(2**31))


def _circle(agents: int, share: float = 1.0) -> Array:
    """Positions on the unit circle, clockwise from the top; a share below 1 leaves the rest of the circle open."""
    angle = math.pi / 2 - 2 * math.pi * share * (np.arange(agents) / agents - (1 - share) / 2)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _cycle_ends(agents: int) -> tuple[float, float]:
    """Eigenvalues 4 sin²(πk/m) of the cycle; written with the sine, 2 − 2cos loses all digits for large m."""
    if agents == 2:
        return 2.0, 2.0
    return 4 * math.sin(math.pi / agents) ** 2, 4 * math.sin(math.pi * (agents // 2) / agents) ** 2


def _path_ends(agents: int) -> tuple[float, float]:
    return 4 * math.sin(math.pi / (2 * agents)) ** 2, 4 * math.cos(math.pi / (2 * agents)) ** 2


def _product_ends(*ends: tuple[float, float]) -> tuple[float, float]:
    """A Cartesian product's eigenvalues are the sums of its factors' eigenvalues, zero included."""
    return min(low for low, _ in ends), sum(high for _, high in ends)


def _consecutive(agents: int) -> IntArray:
    return np.stack([np.arange(agents - 1), np.arange(1, agents)], axis=1)


def _ring(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    edges = canonical(np.append(_consecutive(agents), [[agents - 1, 0]], axis=0))
    return Graph(agents, edges, _cycle_ends(agents), _circle(agents))


def _path(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    return Graph(agents, _consecutive(agents), _path_ends(agents), _circle(agents, share=0.85))


def _star(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    leaves = np.arange(1, agents)
    positions = np.append([[0.0, 0.0]], _circle(agents - 1), axis=0)
    ends = (1.0, float(agents)) if agents > 2 else (2.0, 2.0)
    return Graph(agents, np.stack([np.zeros_like(leaves), leaves], axis=1), ends, positions)


def _complete(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    _room("complete", agents * (agents - 1) / 2)
    edges = np.stack(np.triu_indices(agents, 1), axis=1).astype(np.int64)
    return Graph(agents, edges, (float(agents), float(agents)) if agents > 1 else None, _circle(agents))


def _sides(kind: str, agents: int, params: Mapping[str, Any], least: int) -> tuple[int, int]:
    """Rows and columns: as given, else the most nearly square factorisation."""
    rows, columns = params["rows"], params["columns"]
    if rows is None and columns is None:
        rows = next((r for r in range(math.isqrt(agents), least - 1, -1) if agents % r == 0), None)
    elif rows is None:
        rows = agents // columns
    if rows is not None and columns is None:
        columns = agents // rows
    if rows is None or rows * columns != agents or min(rows, columns) < least:
        wanted = f"rows × columns, both at least {least},"
        near = (2 if least == 2 else 3) * max(round(agents / least), least)
        raise _agents(kind, wanted, agents, f"use {near}, or another kind")
    return rows, columns


def _grid(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    rows, columns = _sides("grid", agents, params, 2)
    index = np.arange(agents).reshape(rows, columns)
    right = np.stack([index[:, :-1], index[:, 1:]], axis=-1).reshape(-1, 2)
    down = np.stack([index[:-1], index[1:]], axis=-1).reshape(-1, 2)
    row, column = np.divmod(np.arange(agents), columns)
    positions = np.stack([column, -row], axis=1).astype(np.float64)
    ends = _product_ends(_path_ends(rows), _path_ends(columns))
    return Graph(agents, canonical(np.append(right, down, axis=0)), ends, positions)


def _torus(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    rows, columns = _sides("torus", agents, params, 3)
    index = np.arange(agents).reshape(rows, columns)
    near = [np.stack([index, np.roll(index, -1, axis)], axis=-1).reshape(-1, 2) for axis in (0, 1)]
    ends = _product_ends(_cycle_ends(rows), _cycle_ends(columns))
    return Graph(agents, canonical(np.concatenate(near)), ends)


def _hypercube(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    bits = agents.bit_length() - 1
    if agents != 1 << bits:
        raise _agents("hypercube", "a power of two", agents, f"use {1 << bits} or {2 << bits}")
    index = np.arange(agents)
    edges = np.concatenate([np.stack([index, index ^ (1 << bit)], axis=1) for bit in range(bits)])
    return Graph(agents, canonical(edges), (2.0, 2.0 * bits))


def _circular_ladder(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    if agents % 2:
        raise _agents("circular_ladder", "an even number of", agents, f"use {agents - 1} or {agents + 1}")
    half = agents // 2
    outer = np.stack([np.arange(half), np.roll(np.arange(half), -1)], axis=1)
    rungs = np.stack([np.arange(half), np.arange(half, agents)], axis=1)
    positions = np.append(_circle(half), 0.55 * _circle(half), axis=0)
    edges = canonical(np.concatenate([outer, outer + half, rungs]))
    return Graph(agents, edges, _product_ends(_cycle_ends(half), (2.0, 2.0)), positions)


def _regular_edges(agents: int, degree: int, seed: int) -> IntArray:
    """One random simple `degree`-regular graph, perhaps disconnected."""
    import networkx as nx

    if degree == 2:
        # A connected 2-regular graph is a cycle, and nearly all samples of a large one fall apart: draw its order.
        order = np.random.default_rng(seed).permutation(agents)
        return canonical(np.stack([order, np.roll(order, -1)], axis=1))
    if degree > (agents - 1) // 2:
        # Pairing stubs rarely ends in a simple graph when it is dense; its complement is sparse.
        sparse = nx.random_regular_graph(agents - 1 - degree, agents, seed=seed)
        return canonical(nx.complement(sparse).edges)
    return canonical(nx.random_regular_graph(degree, agents, seed=seed).edges)


def _check_degree(kind: str, agents: int, degree: int) -> None:
    if degree >= agents:
        raise _agents(kind, f"more than degree = {degree}", agents, f"use a degree of at most {agents - 1}")
    if agents * degree % 2:
        raise _agents(kind, f"agents × degree even, so with degree = {degree} an even number of", agents, "change one")
    if degree == 1 and agents > 2:
        raise _agents(kind, "a degree of at least 2 for more than two", agents, "use a larger degree")
    _room(kind, agents * degree / 2)


def _random_regular(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    degree = params["degree"]
    _check_degree("random_regular", agents, degree)
    for draw in _draws(seed):
        edges = _regular_edges(agents, degree, draw)
        if is_connected(agents, edges):
            return Graph(agents, edges, positions=_circle(agents))
    raise _disconnected("random_regular", agents, "use a larger degree")


def _disconnected(kind: str, agents: int, mend: str) -> InputError:
    return InputError(f'topology: {TRIES} samples of kind "{kind}" on {agents} agents were all disconnected; {mend}.')


def _erdos_renyi(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    probability, pairs = params["probability"], agents * (agents - 1) // 2
    _room("erdos_renyi", probability * pairs)
    for draw in _draws(seed):
        edges = _bernoulli_pairs(np.random.default_rng(draw), pairs, probability)
        if is_connected(agents, edges):
            return Graph(agents, edges)
    threshold = math.log(agents) / agents
    raise _disconnected("erdos_renyi", agents, f"use a probability well above ln(m)/m = {threshold:.3g}")


def _bernoulli_pairs(rng: np.random.Generator, pairs: int, probability: float) -> IntArray:
    """Every pair j < i independently with one probability, by geometric skips over the pairs in order."""
    chunk = int(1.1 * probability * pairs) + 100
    # A skip is cut at the number of pairs, which leaves the range all the same and cannot overflow in the sum.
    last, parts = -1, []
    while last < pairs:
        parts.append(last + np.cumsum(np.minimum(rng.geometric(probability, chunk), pairs + 1)))
        last = int(parts[-1][-1])
    code = np.concatenate(parts)
    code = code[code < pairs]
    # Row i of the triangle starts at i(i−1)/2; the square root may miss by one.
    i = ((1 + np.sqrt(1 + 8 * code)) // 2).astype(np.int64)
    i -= code < i * (i - 1) // 2
    i += code >= i * (i + 1) // 2
    return canonical(np.stack([code - i * (i - 1) // 2, i], axis=1))


def _small_world(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    import networkx as nx

    degree, rewire = params["degree"], params["rewire"]
    if degree >= agents:
        raise _agents("small_world", f"more than degree = {degree}", agents, "use a smaller degree or more agents")
    _room("small_world", agents * degree / 2)
    for draw in _draws(seed):
        edges = canonical(nx.watts_strogatz_graph(agents, degree, rewire, seed=draw).edges)
        if is_connected(agents, edges):
            return Graph(agents, edges, positions=_circle(agents))
    raise _disconnected("small_world", agents, "use a larger degree or less rewiring")


def _preferential_attachment(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    import networkx as nx

    attach = params["attach"]
    if attach >= agents:
        raise _agents("preferential_attachment", f"more than attach = {attach}", agents, "use a smaller attach")
    _room("preferential_attachment", agents * attach)
    return Graph(agents, canonical(nx.barabasi_albert_graph(agents, attach, seed=next(_draws(seed))).edges))


def _expander(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """A random regular graph, certified: every non-trivial adjacency eigenvalue is at most 1.05 · 2√(r−1) in size.

    2√(r−1) is the best that any large r-regular graph can do (Alon–Boppana), and a random one comes within any
    ε > 0 of it with probability → 1 (Friedman, 2008), so few samples are needed. The explicit families (Margulis,
    Gabber–Galil, Paley, chordal cycles) exist only for square or prime numbers of agents and mix no better.
    """
    from scipy.sparse import coo_array, diags_array

    degree = params["degree"]
    _check_degree("expander", agents, degree)
    bound = 1.05 * 2 * math.sqrt(degree - 1)
    for draw in _draws(seed):
        edges = _regular_edges(agents, degree, draw)
        if not is_connected(agents, edges):
            continue
        half = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(agents, agents)).tocsr()
        low, high = laplacian_ends((diags_array(np.full(agents, float(degree))) - half - half.T).tocsr())
        if max(degree - low, high - degree) <= bound:
            return Graph(agents, edges, (low, high), _circle(agents))
    raise InputError(
        f"topology: {TRIES} random {degree}-regular graphs on {agents} agents all had an eigenvalue above {bound:.3g}; "
        "use another seed or degree."
    )


_ROWS = Parameter("rows", int, "a whole number; by default as square as possible", lambda v: v >= 2, optional=True)
_COLUMNS = _ROWS._replace(name="columns")


def _degree(least: int, default: int | None = None) -> Parameter:
    return Parameter("degree", int, f"a whole number of at least {least}", lambda v: v >= least, default)


_ALL = (
    Generator("ring", "every agent has two neighbours on a circle", _ring),
    Generator("path", "a line of agents", _path),
    Generator("star", "agent 0 is everybody's only neighbour", _star),
    Generator("complete", "everybody is everybody's neighbour; also one agent alone", _complete, least=1),
    Generator("grid", "rows × columns without wrapping around", _grid, 4, (_ROWS, _COLUMNS)),
    Generator("torus", "rows × columns, wrapping around", _torus, 9, (_ROWS, _COLUMNS), example=(12, {"rows": 3})),
    Generator("hypercube", "binary words that differ in one bit; agents a power of two", _hypercube, example=(8, {})),
    Generator(
        "random_regular",
        "random graph in which all have the same number of neighbours",
        _random_regular,
        parameters=(_degree(1),),
        random=True,
        example=(10, {"degree": 3}),
    ),
    Generator(
        "erdos_renyi",
        "every pair is linked with the same probability",
        _erdos_renyi,
        parameters=(Parameter("probability", float, "a number above 0 and at most 1", lambda v: 0 < v <= 1),),
        random=True,
        example=(10, {"probability": 0.4}),
    ),
    Generator(
        "small_world",
        "ring of near neighbours with some links rewired at random (Watts–Strogatz)",
        _small_world,
        least=3,
        parameters=(
            Parameter("degree", int, "an even whole number of at least 2", lambda v: v >= 2 and v % 2 == 0, 4),
            Parameter("rewire", float, "a number from 0 to 1", lambda v: 0 <= v <= 1, 0.3),
        ),
        random=True,
        example=(10, {"degree": 4, "rewire": 0.3}),
    ),
    Generator(
        "preferential_attachment",
        "newcomers link to the well linked: few hubs, many leaves (Barabási–Albert)",
        _preferential_attachment,
        parameters=(Parameter("attach", int, "a whole number of at least 1", lambda v: v >= 1, 2),),
        random=True,
        example=(10, {"attach": 2}),
    ),
    Generator("circular_ladder", "two rings joined by rungs (a prism); agents even", _circular_ladder, least=6),
    Generator(
        "expander",
        "random regular graph, certified to mix nearly as fast as its degree allows",
        _expander,
        least=4,
        parameters=(_degree(3, 4),),
        random=True,
        example=(10, {"degree": 4}),
    ),
)

GENERATORS: dict[str, Generator] = {g.name: g for g in sorted(_ALL, key=lambda g: g.name)}
