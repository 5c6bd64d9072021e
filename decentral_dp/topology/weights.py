"""Weight rules, which map a graph to the mixing matrix W.

W is symmetric with zero row sums, w_ij > 0 on edges and w_ii = −Σ_j w_ij. So P = I + W is doubly stochastic, and one
round of gossip is x ← P x. It averages geometrically at the rate

    ρ = ‖I + W − 11ᵀ/m‖₂ = max(|1 − λ₂|, |1 − λ_m|),   0 = λ₁ < λ₂ ≤ … ≤ λ_m the eigenvalues of −W,

if and only if ρ < 1. (Assumption 2.1 of Chen & Wang, ICML 2024, requires eigenvalues of I + W in [0, 1), which no such
W has; the proofs use ρ < 1.)

For a directed graph A = I + W is column-stochastic: a_ij is the share of agent j's value that i receives, and a_jj the
share that j keeps. In this case λ₂ := 1 − |λ₂(A)| and λ_m := 1, so that ρ = |λ₂(A)|, the rate of push-sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
from typing_extensions import Doc

from decentral_dp.errors import InputError
from decentral_dp.files.tables import DeclaredKey, Positive, declared_keys
from decentral_dp.topology.graphs import Array, Graph, fill_parameters, unknown
from decentral_dp.topology.spectrum import DENSE, LANCZOS_ERROR, laplacian_ends, second_largest

WHERE = "topology.weights"


class WeightRule(NamedTuple):
    """Weight rule.

    Args:
        name: key in `WEIGHTS`.
        summary: one-line description.
        make: function (graph, …) → positive weights (E,), whose parameters are also scenario keys.
        example: parameters of a small instance.
        directed: whether the rule is for directed graphs, or None if it is for both kinds. The default is False.

    Example:
        >>> WEIGHTS["constant"].usage
        'weights = { kind = "constant", value = 0.3 }'
    """

    name: str
    summary: str
    make: Callable[..., Array]
    example: Mapping[str, Any] = {}
    directed: bool | None = False

    @property
    def parameters(self) -> tuple[DeclaredKey, ...]:
        """Keys of the rule."""
        return declared_keys(self.make)

    @property
    def usage(self) -> str:
        """Scenario text that selects the rule, by name or, if it has parameters, by a table."""
        values = "".join(f", {key} = {value}" for key, value in self.example.items())
        return f'weights = {{ kind = "{self.name}"{values} }}' if self.example else f'weights = "{self.name}"'


def weigh(
    graph: Graph, weights: str | Mapping[str, Any] | None = None, alone: bool = True
) -> tuple[str, Any, float, float]:
    """Apply a weight rule to a connected graph.

    Args:
        graph: connected graph.
        weights: name of a rule, or {"kind": name, parameter: value, …}, default "metropolis", or "out_degree" for a
            directed graph.
        alone: whether the graph is the only one of the network. If not, it may be disconnected, with λ₂ = 0 and λ_m =
            1.

    Returns:
        The rule and its parameters in words, the CSR array W, (m, m), and λ₂ and λ_m of −W.

    Raises:
        InputError: the rule or a parameter is unknown, or ρ ≥ 1.

    Example:
        >>> pair = Graph(2, np.array([[0, 1]]))
        >>> weigh(pair, {"kind": "constant", "value": 0.25})[1].toarray().tolist()
        [[-0.25, 0.25], [0.25, -0.25]]
    """
    default = "out_degree" if graph.directed else "metropolis"
    choice = default if weights is None else weights
    options = {"kind": choice} if isinstance(choice, str) else dict(choice)
    kind = str(options.pop("kind", None))
    if kind not in WEIGHTS:
        raise unknown(WHERE, kind, WEIGHTS)
    rule = WEIGHTS[kind]
    values = fill_parameters(f'{WHERE} (kind "{kind}")', rule.make, options)
    if rule.directed is not None and rule.directed != graph.directed:
        direction, requirement, alternative = (
            ("directed", "undirected", '"out_degree", or "file"')
            if graph.directed
            else ("undirected", "directed", '"metropolis", or topology.directed = true')
        )
        raise InputError(
            f"{WHERE}: {rule.name} is for {requirement} graphs, and this graph is {direction}. Fix: use {alternative}."
        )
    edge_weights = rule.make(graph, **values)
    mixing = mixing_matrix(graph, edge_weights)
    shares = 1.0 + mixing.diagonal()
    worst = int(np.argmin(shares))
    if graph.directed and shares[worst] < 0.0:
        name = graph.labels[worst] if graph.labels else str(worst)
        raise InputError(
            f"{WHERE}: agent {name} sends {1.0 - shares[worst]:.4g} in total, but weights of a directed graph "
            "must be column-stochastic: shares that an agent sends and keeps sum to 1. Fix: normalise the "
            'weights, or use "out_degree".'
        )
    label = " ".join([rule.name, *(f"{v:g}" for v in values.values())])
    # If no diagonal weight is negative, no power of I + W grows.
    if not alone and graph.agents > 1 and mixing.diagonal().min() >= -1.0:
        return label, mixing, 0.0, 1.0
    if graph.directed:
        return label, mixing, *directed_spectrum(mixing)
    error = 1e-13
    if not edge_weights.size and graph.agents > 1:
        delta2 = delta_max = 0.0
    elif graph.spectrum is not None and edge_weights.size and np.all(edge_weights == edge_weights[0]):
        delta2, delta_max = (end * float(edge_weights[0]) for end in graph.spectrum)
    else:
        delta2, delta_max = laplacian_ends(-mixing)
        error = error if graph.agents <= DENSE else LANCZOS_ERROR
    if delta_max >= 2.0 * (1.0 - error):
        raise InputError(
            f"{WHERE}: {label} on this {graph.description} has ρ = {delta_max - 1.0:.2f}, and gossip diverges unless "
            f'ρ < 1. Fix: use "metropolis", or weights smaller by more than the factor {0.5 * delta_max:.4g}.'
        )
    return label, mixing, delta2, delta_max


def mixing_matrix(graph: Graph, weights: Array) -> Any:
    """Assemble W from the weights of the edges.

    Args:
        graph: graph with m agents and E edges.
        weights: weights, (E,).

    Returns:
        The CSR array W (m, m), with sorted indices, all diagonal entries, and zero row sums (column sums for a directed
        graph).
    """
    from scipy.sparse import coo_array

    i, j = graph.edges.T
    agents = np.arange(graph.agents)
    if graph.directed:
        data = np.concatenate([weights, -np.bincount(i, weights, graph.agents)])
        entries = (np.append(j, agents), np.append(i, agents))
        push_matrix = coo_array((data, entries), shape=(graph.agents, graph.agents)).tocsr()
        push_matrix.sort_indices()
        return push_matrix
    if weights.size and np.all(weights == weights[0]):
        # One rounding instead of one per neighbour.
        total = graph.degrees * weights[0]
    else:
        total = np.bincount(i, weights, graph.agents) + np.bincount(j, weights, graph.agents)
    data = np.concatenate([weights, weights, 0.0 - total])
    indices = (np.concatenate([i, j, agents]), np.concatenate([j, i, agents]))
    mixing = coo_array((data, indices), shape=(graph.agents, graph.agents)).tocsr()
    mixing.sort_indices()
    return mixing


def directed_spectrum(mixing: Any) -> tuple[float, float]:
    """Return 1 − |λ₂(A)| and 1, the counterparts of λ₂ and λ_m for a directed graph.

    Args:
        mixing: matrix A − I, (m, m).
    """
    from scipy.sparse import eye_array

    return 1.0 - second_largest(mixing + eye_array(mixing.shape[0], format="csr")), 1.0


def metropolis(graph: Graph) -> Array:
    """Compute 1/(1 + the larger degree of the two ends) for each edge, (E,)."""
    return np.asarray(1.0 / (1.0 + graph.degrees[graph.edges].max(axis=1, initial=0)))


def lazy_metropolis(graph: Graph) -> Array:
    """Halve the Metropolis weights, (E,)."""
    return 0.5 * metropolis(graph)


def max_degree(graph: Graph) -> Array:
    """Assign the weight 1/(1 + largest degree) to every edge, (E,)."""
    return equal_weights(graph, 1.0 / (1.0 + graph.degrees.max()))


def out_degree(graph: Graph) -> Array:
    """Compute 1/(1 + the out-degree of the sender) for each arc, (E,)."""
    return np.asarray(1.0 / (1.0 + np.bincount(graph.edges[:, 0], minlength=graph.agents)[graph.edges[:, 0]]))


def equal_weights(graph: Graph, value: Annotated[Positive, Doc("weight of every edge")]) -> Array:
    """Assign the same weight to every edge, (E,)."""
    return np.full(len(graph.edges), value)


def weights_of_file(graph: Graph) -> Array:
    """Return the weights in the file, (E,).

    Raises:
        InputError: an edge has no weight above 0.
    """
    if graph.file_weights is None and len(graph.edges):
        flaw = f", and {graph.wrong_weight.removeprefix('topology.file: ')}" if graph.n_weighted else ""
        raise InputError(
            f'{WHERE}: "file" needs a file, or a graph, with one weight above 0 for every edge{flaw}. Fix: '
            'add the weights, or use "metropolis".'
        )
    return np.zeros(0) if graph.file_weights is None else graph.file_weights


WEIGHTS: dict[str, WeightRule] = {
    r.name: r
    for r in (
        WeightRule("constant", "one value on every edge", equal_weights, {"value": 0.3}),
        WeightRule("file", "the weights of the file", weights_of_file, directed=None),
        WeightRule("lazy_metropolis", "half of metropolis, without negative eigenvalues", lazy_metropolis),
        WeightRule("max_degree", "1/(1 + the largest degree of the graph)", max_degree),
        WeightRule("metropolis", "1/(1 + the larger degree of both ends)", metropolis),
        WeightRule("out_degree", "1/(1 + out-degree of the sender), for directed graphs", out_degree, directed=True),
    )
}
