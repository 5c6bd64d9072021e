"""Random families: resampled until connected, from a seed, so that the same seed gives the same graph again.

Each function takes (agents, parameters, seed) and returns a Graph. Samplers come from networkx where it samples fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.topology.graph import Graph, IntArray, canonical, is_connected
from decentral_dp.topology.parameters import require_room, wrong_agents
from decentral_dp.topology.spectrum import laplacian_ends
from decentral_dp.topology.structured import circle, cycle_ends

TRIES = 200


def _draws(seed: int) -> Iterator[int]:
    """Seeds of the successive attempts at a random graph."""
    for attempt in range(TRIES):
        yield int(np.random.default_rng([seed, attempt]).integers(2**31))


def _regular_edges(agents: int, degree: int, seed: int) -> IntArray:
    """One random simple `degree`-regular graph, perhaps disconnected."""
    import networkx as nx

    if degree == 2:
        # A connected 2-regular graph is a cycle, and nearly all samples of a large one fall apart: draw its order.
        order = np.random.default_rng(seed).permutation(agents)
        return canonical(np.stack([order, np.roll(order, -1)], axis=1))
    if degree > (agents - 1) // 2:
        # Pairing stubs rarely ends in a simple graph when it is dense; its complement is sparse.
        missing = canonical(nx.random_regular_graph(agents - 1 - degree, agents, seed=seed).edges)
        codes = np.setdiff1d(np.arange(agents * (agents - 1) // 2), _code(missing), assume_unique=True)
        return _pair(codes)
    return canonical(nx.random_regular_graph(degree, agents, seed=seed).edges)


def _check_degree(kind: str, agents: int, degree: int) -> None:
    if degree >= agents:
        raise wrong_agents(kind, f"more than degree = {degree}", agents, f"use a degree of at most {agents - 1}")
    if agents * degree % 2:
        mend = f"use {agents - 1} or {agents + 1} agents, or an even degree"
        raise wrong_agents(kind, f"an even number (degree {degree} is odd) of", agents, mend)
    if degree == 1 and agents > 2:
        raise wrong_agents(kind, "a degree of at least 2 for more than two", agents, "use a larger degree")
    require_room(kind, agents * degree / 2)


def random_regular(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Draw a random regular graph: every agent has `degree` neighbours.

    Raises:
        InputError: no such graph has so many agents, or no draw was connected.

    Example:
        >>> random_regular(8, {"degree": 3}, seed=1).degrees.tolist()
        [3, 3, 3, 3, 3, 3, 3, 3]
    """
    degree = params["degree"]
    _check_degree("random_regular", agents, degree)
    for draw in _draws(seed):
        edges = _regular_edges(agents, degree, draw)
        if is_connected(agents, edges):
            return Graph(agents, edges, cycle_ends(agents) if degree == 2 else None, circle(agents))
    raise _disconnected("random_regular", agents, "use a larger degree")


def _disconnected(kind: str, agents: int, mend: str) -> InputError:
    return InputError(f'topology: {TRIES} samples of kind "{kind}" on {agents} agents were all disconnected; {mend}.')


def erdos_renyi(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Draw an Erdős–Rényi graph: every pair is linked with `probability`.

    Raises:
        InputError: too many edges, or no draw was connected.

    Limits:
        Below ln(m)/m a draw is rarely connected.
    """
    probability, pairs = params["probability"], agents * (agents - 1) // 2
    require_room("erdos_renyi", probability * pairs)
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
    codes = np.concatenate(parts)
    return _pair(codes[codes < pairs])


def _code(edges: IntArray) -> IntArray:
    """Number of a pair i < j in the order (0, 1), (0, 2), (1, 2), (0, 3), …"""
    return np.asarray(edges[:, 1] * (edges[:, 1] - 1) // 2 + edges[:, 0])


def _pair(codes: IntArray) -> IntArray:
    """The pairs of these numbers; below 2⁵⁰ the square root of 1 + 8·code cannot round across a whole number."""
    j = ((1 + np.sqrt(1 + 8 * codes)) // 2).astype(np.int64)
    return canonical(np.stack([codes - j * (j - 1) // 2, j], axis=1))


def small_world(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Draw a Watts–Strogatz graph: a ring lattice of `degree`, of whose links a share `rewire` is moved.

    Raises:
        InputError: degree ≥ agents, too many edges, or no draw was connected.
    """
    import networkx as nx

    degree, rewire = params["degree"], params["rewire"]
    if degree >= agents:
        raise wrong_agents("small_world", f"more than degree = {degree}", agents, "use a smaller degree or more agents")
    require_room("small_world", agents * degree / 2)
    for draw in _draws(seed):
        edges = canonical(nx.watts_strogatz_graph(agents, degree, rewire, seed=draw).edges)
        if is_connected(agents, edges):
            return Graph(agents, edges, positions=circle(agents))
    raise _disconnected("small_world", agents, "use a larger degree or less rewiring")


def preferential_attachment(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Draw a Barabási–Albert graph: every new agent is linked to `attach` earlier ones.

    Earlier agents of high degree are preferred.

    Raises:
        InputError: attach ≥ agents, or too many edges.
    """
    import networkx as nx

    attach = params["attach"]
    if attach >= agents:
        raise wrong_agents("preferential_attachment", f"more than attach = {attach}", agents, "use a smaller attach")
    require_room("preferential_attachment", agents * attach)
    return Graph(agents, canonical(nx.barabasi_albert_graph(agents, attach, seed=next(_draws(seed))).edges))


def expander(agents: int, params: Mapping[str, Any], seed: int) -> Graph:
    """Draw a random regular graph whose non-trivial adjacency eigenvalues are all at most 1.05 · 2√(r−1) in size.

    2√(r−1) is the best that any large r-regular graph can do. A random one comes within any ε > 0 of it with
    probability → 1, so few samples are needed. The explicit families (Margulis, Gabber–Galil, Paley, chordal cycles)
    exist only for square or prime numbers of agents and mix no better.

    Raises:
        InputError: no such graph has so many agents, or no draw met the bound.

    References:
        Alon–Boppana bound; J. Friedman, "A proof of Alon's second eigenvalue conjecture", 2008.

    Example:
        >>> low, high = expander(20, {"degree": 4}, seed=0).ends
        >>> bool(max(4 - low, high - 4) <= 1.05 * 2 * math.sqrt(3))
        True
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
            return Graph(agents, edges, (low, high), circle(agents))
    raise InputError(
        f"topology: {TRIES} random {degree}-regular graphs on {agents} agents all had an eigenvalue above {bound:.3g}; "
        "use another seed or degree."
    )
