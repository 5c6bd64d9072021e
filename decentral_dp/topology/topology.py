"""Connected graphs with a mixing matrix W, built from a generator, a file, a networkx graph, edges or a matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.topology import graphs
from decentral_dp.topology import over_time as changes
from decentral_dp.topology.graph_files import (
    MATRICES,
    find_file,
    numbering_note,
    read_graph,
    read_matrix,
    read_networkx,
)
from decentral_dp.topology.spectrum import laplacian_ends
from decentral_dp.topology.weights import directed_spectrum, weigh

# Resampled graphs may have any edge, so their union is dense.
_MOST_RESAMPLED = 5000


@dataclass(frozen=True, eq=False)
class Topology:
    """Graph with its mixing matrix W. It is connected unless its kind is "isolated".

    Args:
        name: kind of the graph, or name of its file.
        weights: weight rule, such as "metropolis" or "constant 0.3".
        mixing: mixing matrix W, (m, m), a symmetric CSR array with zero row sums, w_ij > 0 on edges, and every diagonal
            entry stored. For a directed graph columns sum to zero, and w_ij is the weight of messages from j to i.
        edges: edges (E, 2), with i < j in every row; (sender, receiver) of a directed graph.
        labels: names of the m agents.
        delta2: second smallest eigenvalue λ₂ of −W, or 1 − |λ₂(I + W)| for a directed graph. It is 1 for a single
            agent.
        delta_max: largest eigenvalue λ_m of −W, or 1 for a directed graph or a single agent.
        notes: notes on conversions, in sentences.
        over_time: weights of each round, or None for a fixed network.
        directed: whether edges are arcs.

    Example:
        >>> ring = build_topology("ring", 4)
        >>> round(ring.spectral_gap, 6), round(ring.rho, 6)
        (0.666667, 0.333333)
        >>> build_topology("complete", 1).delta2
        1.0
    """

    name: str
    weights: str
    mixing: Any
    edges: graphs.IntArray
    labels: tuple[str, ...]
    delta2: float
    delta_max: float
    notes: tuple[str, ...] = ()
    over_time: changes.OverTime | None = None
    directed: bool = False

    @property
    def n_agents(self) -> int:
        """Number of agents m."""
        return len(self.labels)

    @property
    def neighbour_weight(self) -> graphs.Array:
        """Total weight of the in-neighbours, (m,).

        It is |w_ii| for an undirected graph. Above 1, the agent's value has a negative weight.

        Example:
            >>> build_topology("ring", 4).neighbour_weight.round(6).tolist()
            [0.666667, 0.666667, 0.666667, 0.666667]
        """
        if self.directed:
            return np.asarray(self.mixing.sum(axis=1) - self.mixing.diagonal())
        return np.asarray(np.abs(self.mixing.diagonal()))

    @property
    def kept_weight(self) -> graphs.Array:
        """Share 1 + w_ii of an agent's value that the agent keeps, (m,).

        Example:
            >>> build_topology("directed_exponential", 4).kept_weight.round(6).tolist()
            [0.333333, 0.333333, 0.333333, 0.333333]
        """
        return np.asarray(1.0 + self.mixing.diagonal())

    @property
    def rho(self) -> float:
        """Contraction factor ρ = ‖I + W − 11ᵀ/m‖₂ < 1 of the disagreement per round, or |λ₂| for a directed graph."""
        return max(abs(1.0 - self.delta2), abs(1.0 - self.delta_max))

    @property
    def spectral_gap(self) -> float:
        """Spectral gap 1 − ρ, computed without cancellation as min(λ₂, 2 − λ_m).

        Example:
            >>> [round(build_topology("ring", m).spectral_gap, 4) for m in (5, 10, 20)]
            [0.4607, 0.1273, 0.0326]
        """
        return min(self.delta2, 2.0 - self.delta_max)

    @property
    def degrees(self) -> graphs.IntArray:
        """Number of neighbours of each agent, (m,).

        Example:
            >>> build_topology("star", 4).degrees.tolist()
            [3, 1, 1, 1]
        """
        return np.bincount(self.edges.reshape(-1), minlength=self.n_agents).astype(np.int64)


def build_topology(
    kind: str,
    agents: int,
    params: Mapping[str, Any] | None = None,
    weights: str | Mapping[str, Any] | None = None,
    seed: int = 0,
    directed: bool = False,
) -> Topology:
    """Build the topology of a registered generator. Equal arguments give equal topologies.

    Args:
        kind: name in `GENERATORS`.
        agents: number of agents m.
        params: parameter of the generator → value. Omitted parameters take their default values.
        weights: name in `WEIGHTS`, or {"kind": name, parameter: value, …}. The default is "metropolis", or "out_degree"
            for a directed graph.
        seed: seed of a random generator, at least 0, default 0.
        directed: whether edges are arcs and weights are column-stochastic. The default is False, except for directed
            generators.

    Returns:
        The weighted graph with its eigenvalues.

    Raises:
        InputError: a name, value or number of agents is invalid, the graph is not connected, or ρ ≥ 1.

    Example:
        >>> star, complete = build_topology("star", 5), build_topology("complete", 5)
        >>> round(star.spectral_gap, 6), round(complete.spectral_gap, 6)
        (0.2, 1.0)
        >>> build_topology("ring", 6, weights={"kind": "constant", "value": 0.25}).weights
        'constant 0.25'
    """
    graph = graphs.generate(kind, agents, params or {}, seed)
    return _topology(kind, graph, weights, graphs.GENERATORS[kind].is_connected, directed)


def from_file(
    path: str | Path,
    weights: str | Mapping[str, Any] | None = None,
    agents: int | None = None,
    directed: bool = False,
) -> Topology:
    """Read a topology from a file: GraphML, GML, node-link JSON, an edge list (`.csv`) or a matrix (`.npy`, `.npz`).

    Args:
        path: path of a file, or name of a network in the package, such as "abilene".
        weights: weight rule, as in `build_topology`. "file" uses the weights in the file.
        agents: expected number of agents. None accepts any number.
        directed: whether edges are arcs and weights are column-stochastic. The default is False, except for files of
            arcs.

    Returns:
        The weighted graph, with the labels of the file.

    Raises:
        InputError: the file is missing, unreadable, ambiguous or disconnected, or ρ ≥ 1.

    Example:
        >>> from_file("karate_club", agents=34).edges.shape
        (78, 2)
    """
    path = find_file(path)
    if path.suffix.lower() in MATRICES:
        topology = from_matrix(read_matrix(path), weights, path.stem, "topology.file", directed=directed)
    else:
        topology = _topology(path.stem, read_graph(path, directed), weights, directed=directed)
    if agents is not None and agents != topology.n_agents:
        raise InputError(
            f"topology.agents: differs from {path.stem} (got {agents}, expected {topology.n_agents}). Fix: remove it."
        )
    return topology


def from_networkx(
    graph: Any,
    weights: str | Mapping[str, Any] | None = None,
    name: str = "networkx.Graph",
    connected: bool = True,
    directed: bool = False,
) -> Topology:
    """Convert a `networkx.Graph` to a topology.

    Nodes that are whole numbers are sorted, so nodes 0 … m − 1 keep their numbers. Other names keep the order of the
    graph.

    Args:
        graph: networkx graph, whose labels, coordinates and weights are attributes, as in GraphML.
        weights: weight rule as in `build_topology`.
        name: name in tables and messages.
        connected: whether the graph must be connected, default True.
        directed: whether edges are arcs and weights are column-stochastic. The default is False, except for graphs of
            arcs.

    Returns:
        The weighted graph.

    Raises:
        InputError: the graph is disconnected or empty, or ρ ≥ 1.

    Example:
        >>> import networkx as nx
        >>> from_networkx(nx.path_graph(["a", "b", "c"])).labels
        ('a', 'b', 'c')
        >>> from_networkx(nx.Graph([(3, 0), (3, 1), (3, 2)])).degrees.tolist()
        [1, 1, 1, 3]
    """
    return _topology(name, read_networkx(graph, f"topology: {name}", directed), weights, connected, directed)


def from_edges(
    edges: graphs.IntArray,
    agents: int | None = None,
    weights: str | Mapping[str, Any] | None = None,
    name: str = "edges",
    connected: bool = True,
    directed: bool = False,
) -> Topology:
    """Convert pairs of agents to a topology.

    Args:
        edges: pairs of agents, numbered from 0, (E, 2).
        agents: number of agents m. The default is the largest agent number + 1.
        weights: weight rule as in `build_topology`.
        name: name in tables and messages.
        connected: whether the graph must be connected, default True.
        directed: whether pairs are arcs (sender, receiver), default False.

    Returns:
        The weighted graph.

    Raises:
        InputError: a number is outside 0 … m − 1, the graph is disconnected, or ρ ≥ 1.

    Example:
        >>> from_edges(np.array([[0, 1], [1, 2]])).degrees.tolist()
        [1, 2, 1]
    """
    ends = np.asarray(edges)
    fault = ""
    if ends.size and (ends.ndim != 2 or ends.shape[1] != 2):
        fault = f"has a wrong shape (got {ends.shape}, expected (edges, 2))"
    elif ends.size and (ends.dtype.kind not in "iuf" or np.any(ends != np.floor(ends))):
        fault = "has agent numbers that are not integers (expected 0, 1, …)"
    elif ends.size and (ends.min() < 0 or (agents is not None and ends.max() >= agents)):
        most = "" if agents is None else f"; agents are 0 to {agents - 1}"
        fault = f"links agents {int(ends.min())} to {int(ends.max())}{most}. Number from 0"
    elif ends.size and (loops := ends[ends[:, 0] == ends[:, 1]]).size:
        fault = f"links agent {int(loops[0, 0])} to itself. Fix: remove the edge"
    if fault:
        raise InputError(f"topology: {name} {fault}.")
    pairs = np.unique(ends.reshape(-1, 2).astype(np.int64), axis=0) if directed else graphs.canonical(ends)
    n_known = int(pairs.max(initial=0)) + 1
    repeated = len(ends) - len(pairs)
    notes = (f"parallel edges count once: {repeated} left out",) if repeated else ()
    graph = graphs.Graph(n_known if agents is None else agents, pairs, notes=notes, directed=directed)
    return _topology(name, graph, weights, connected, directed)


def from_matrix(
    matrix: graphs.Array,
    weights: str | Mapping[str, Any] | None = None,
    name: str = "matrix",
    place: str = "topology",
    connected: bool = True,
    directed: bool = False,
) -> Topology:
    """Convert a matrix to a topology in which nonzero entries are edges.

    Args:
        matrix: symmetric matrix (m, m) of 0 and 1 with a zero diagonal. With weights "file" it holds weights, and its
            diagonal is 0 or makes every row sum 0 (W) or 1 (I + W). For a directed graph, 1 in row i and column j is an
            arc from i to j, as in networkx; weights are A with column sums 1, where a_ij is the weight of messages from
            j to i.
        weights: weight rule, as in `build_topology`. "file" uses the entries of the matrix.
        name: name in tables and messages.
        place: prefix of error messages.
        connected: whether the graph must be connected, default True.
        directed: whether the matrix may be asymmetric, default False.

    Returns:
        The weighted graph.

    Raises:
        InputError: the matrix is invalid, the graph is disconnected, or ρ ≥ 1.

    Example:
        >>> third = np.full((3, 3), 1 / 3)
        >>> round(from_matrix(third, "file").spectral_gap, 6), from_matrix(1 - np.eye(3)).degrees.tolist()
        (1.0, [2, 2, 2])
    """
    has_weights = weights == "file" or (isinstance(weights, Mapping) and weights.get("kind") == "file")
    off_diagonal = matrix * (1.0 - np.eye(len(matrix)))
    symmetric, loops = np.array_equal(matrix, matrix.T), matrix.diagonal().any()
    sums = matrix.sum(axis=0)
    adds_up = [bool(np.allclose(sums, total, rtol=0.0, atol=1e-9)) for total in (0.0, 1.0)]
    least = (matrix if directed else off_diagonal).min(initial=0.0)
    is_links, is_weights = np.isin(matrix, (0.0, 1.0)).all() and not loops, np.isfinite(matrix).all() and least >= 0.0
    if has_weights and directed:
        fits = is_weights and adds_up[1]
        requirement = "matrix of shares: expected weights of at least 0 in columns of sum 1"
    elif has_weights:
        fits = is_weights and symmetric and (any(adds_up) or not loops)
        requirement = (
            "matrix of weights: expected a symmetric one without negative weights of edges, with a diagonal of 0, or "
            "one that makes every row add up to 0 (W) or to 1 (I + W)"
        )
    elif directed:
        fits = is_links
        requirement = "matrix of arcs: expected 0 and 1 with a zero diagonal, 1 from the row to the column"
    else:
        fits = is_links and symmetric
        requirement = "matrix of edges: expected a symmetric one of 0 and 1 with a zero diagonal"
    if not fits:
        raise InputError(
            f"{place}: {name} has a {len(matrix)} × {len(matrix)} array, which is not a {requirement}. Fix: "
            'correct it, or change topology.weights ("file" takes weights) and topology.directed.'
        )
    links = (off_diagonal.T if has_weights else off_diagonal) if directed else np.triu(off_diagonal)
    edges = np.argwhere(links).reshape(-1, 2)
    graph = graphs.Graph(len(matrix), edges, file_weights=links[edges[:, 0], edges[:, 1]], directed=directed)
    return _topology(name, graph, weights, connected, directed)


def time_varying(base: Topology, kind: str, seed: int, *, draw: Callable[[int], Topology] | None = None) -> Topology:
    """Make a topology time-varying.

    Args:
        base: graph that contains all edges.
        kind: kind in `over_time.KINDS`, except "sequence" (see `in_turn`).
        seed: public seed.
        draw: function seed → graph of a random family.

    Returns:
        The base graph with its `over_time`.

    Raises:
        InputError: the base graph does not suit the kind.

    Example:
        >>> time_varying(build_topology("ring", 6), "matching", seed=0).over_time.kind
        'matching'
    """
    links, m = changes.off_diagonal(base.mixing), base.n_agents
    fault, weights = "", None
    if base.directed and kind in ("matching", "one_peer_exponential"):
        fault = f"needs an undirected graph, and {base.name} is directed. Fix: use a sequence or resample"
    elif kind == "one_peer_exponential" and len(base.edges) != m * (m - 1) // 2:
        fault = f'requires edges at distances 1, 2, 4, …, which {base.name} lacks. Fix: set topology.kind = "complete"'
    elif kind == "resample" and (draw is None or m > _MOST_RESAMPLED):
        fault = f"supports random graphs of at most {_MOST_RESAMPLED} agents, and {base.name} is not one. Fix: use one"
    elif kind == "fixed":
        weights = changes.fixed_weights(links, seed)
    elif kind == "matching":
        weights = changes.matching(links, seed)
    elif kind == "one_peer_exponential":
        weights = changes.one_peer_exponential(m, seed)
    elif kind == "resample" and draw is not None:
        weights = changes.resample(draw, m, seed)
    if weights is None:
        raise InputError(f'topology.over_time: "{kind}" {fault or f"is not one of {changes.KINDS}"}.')
    return replace(base, over_time=replace(weights, directed=base.directed))


def in_turn(several: Sequence[Topology], seed: int, name: str, kind: str = "sequence") -> Topology:
    """Combine a sequence of graphs into one topology whose weight matrix W is the mean of theirs.

    Args:
        several: graphs of rounds 0, 1, …. The sequence is repeated.
        seed: public seed.
        name: name in tables and messages.
        kind: kind "sequence", or "function" if a function of the round returned the graphs.

    Returns:
        The mean of the graphs, with its `over_time`.

    Raises:
        InputError: the graphs do not have the same agents, or their union is not connected.

    Example:
        >>> one, other = (from_edges(np.array([pair]), agents=3, connected=False) for pair in ([0, 1], [1, 2]))
        >>> both = in_turn([one, other], seed=0, name="both")
        >>> both.edges.tolist(), both.neighbour_weight.tolist()
        ([[0, 1], [1, 2]], [0.25, 0.5, 0.25])
    """
    first = several[0]
    # Repeated graphs are one object, so that engines detect unchanged weights.
    weights = {}
    for graph in several:
        if graph.labels == first.labels:
            weights[id(graph)] = graph.mixing
            continue
        place = {label: k for k, label in enumerate(graph.labels)}
        if place.keys() != set(first.labels):
            missing = next((label for label in graph.labels if label not in first.labels), None)
            difference = "lacks agents of the first" if missing is None else f'has "{missing}", which the first lacks'
            raise InputError(
                f"topology.over_time: a graph of {graph.n_agents} agents {difference}, which has "
                f"{first.n_agents}. Fix: use the same agents in all graphs, including agents without edges."
            )
        # W with the agents in the order of the first graph.
        order = [place[label] for label in first.labels]
        weights[id(graph)] = graph.mixing[order][:, order].tocsr()
    off_diagonals = {key: changes.off_diagonal(mixing) for key, mixing in weights.items()}
    over_time = changes.sequence([off_diagonals[id(graph)] for graph in several], seed)
    mixing = (sum((weights[id(graph)] for graph in several[1:]), weights[id(first)]) / len(several)).tocsr()
    rows, columns = mixing.nonzero()
    directed = any(graph.directed for graph in several)
    arcs = np.stack([columns, rows], axis=1)[rows != columns].astype(np.int64)
    edges = arcs[np.lexsort(arcs.T[::-1])] if directed else graphs.canonical(arcs)
    ends = directed_spectrum(mixing) if directed else laplacian_ends(-mixing)
    notes = tuple(dict.fromkeys(note for graph in several for note in graph.notes))
    over_time = replace(over_time, kind=kind, directed=directed)
    return Topology(name, first.weights, mixing, edges, first.labels, *ends, notes, over_time, directed)


def _topology(
    name: str,
    graph: graphs.Graph,
    weights: str | Mapping[str, Any] | None,
    connected: bool = True,
    directed: bool = False,
) -> Topology:
    if directed:
        graph = graph.to_directed()
    if connected:
        graphs.require_connected(graph, "topology")
    rule, mixing, delta2, delta_max = weigh(graph, weights, connected)
    labels = graph.labels or tuple(str(i) for i in range(graph.agents))
    notes = [numbering_note(labels), *graph.notes]
    if graph.n_weighted and rule != "file":
        notes.append(f'{rule} weights do not use the weights that {graph.n_weighted} links have; "file" would')
    return Topology(
        name,
        rule,
        mixing,
        graph.edges,
        labels,
        delta2,
        delta_max,
        tuple(filter(None, notes)),
        directed=graph.directed,
    )
