"""Pairwise correlated Gaussian noise (DECOR): the two agents of an edge share a draw, which cancels in the average.

The noise of agent i in a round is ξ_i + Σ_j ±ζ_ij. Its own part is ξ_i ~ N(0, σ_i²), and ζ_ij ~ N(0, c_ij²) is drawn
once for the edge {i, j} and added with opposite signs at its ends. Colluders Q know the draws of their edges. The
remaining noise of the others has the covariance

    Σ_Q = diag(σ²) + Laplacian of the edges outside Q with weights c².

Against an adversary that observes all messages and q colluding agents, the protection of a record that changes v's
message by Δ equals the protection by independent noise with standard deviation [Σ_Q⁻¹]_vv^(−1/2) on that message, the
*effective scale*. Its square is the conductance from v to the ground in a network of conductances c² between agents and
σ² to the ground. It decreases with every removed edge, and so with every colluder.

The release with index k of agent i, made in round t, has in addition to the agent's own noise

    Σ_j s_ij g P_ij,   P_ij = rint(N·c_ij/g),   s_ij = −s_ji = ±1,   over the pairs {i, j} of round t,

where σ is the least deviation of any agent's own noise, g its grid, and c_ij a multiple of σ. N comes from a stream
keyed by the pair, k and the channels, so that both agents draw the same integers, and the sum over all agents is
exactly 0. Pairs are the edges of the round, or all pairs of agents that are online. Every release is accounted at its
effective scale, σ times a gain that depends on public numbers only.

The ratio c/σ minimises the error of gossip at a fixed privacy cost. Noise of covariance Σ over agents in every message,
x_{t+1} = A(x_t − n_t) with mixing weights A, leads to the covariance Σ_{k=1}^t A^k Σ (A^k)ᵀ in the models of round t.
Their mean square error over rounds and agents is tr(MΣ),

    M = (1/mT) Σ_{k=1}^T (T − k + 1) (A^k)ᵀ A^k.

With Σ = σ²(I + r² L), where L is the Laplacian of the edges, it is σ²(tr M + r² tr(ML)), to be divided by the square of
the effective scale. Without colluders, no covariance with effective scales of at least 1 has an error below (tr
M^(1/2))²/m. With one scale per agent and edge, the error is linear in their squares, and every [Σ_Q⁻¹]_vv is convex.

Proof 40 derives this, and proves the same bound for rounded pairs.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags, triu

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.privacy.randomness import Draws, Root, Streams

# The largest relative error of one float64 operation.
_UNIT = 2.0**-53
# Relative gap to the worst set of colluders at which the search ends.
_GAP = 1e-3
# Limits of the search: branches per agent, edges of a set of colluders, edges in total.
_BRANCHES, _MOST_EDGES, _WORK = 200, 256, 1e7


def effective_scale(own_scale: Array, pair: csr_matrix, colluders: int) -> Array:
    """Compute each agent's effective scale, the minimum of [Σ_Q⁻¹]_vv^(−1/2) over all sets Q of q other agents.

    Args:
        own_scale: standard deviations σ > 0 of independent noise, (m,).
        pair: standard deviations c of the draws of the edges, (m, m), a symmetric matrix with diagonal 0.
        colluders: number q of colluding agents.

    Returns:
        Lower bounds on the effective scales, (m,), rounded down.

    Raises:
        InputError: scales are not finite, positive and symmetric, or q is negative.

    Example:
        >>> edge = csr_matrix([[0.0, 4.0], [4.0, 0.0]])
        >>> effective_scale(np.ones(2), edge, 0).round(6).tolist()
        [1.393261, 1.393261]
        >>> effective_scale(np.ones(2), edge, 1).round(6).tolist()
        [1.0, 1.0]
    """
    square, edges = np.square(own_scale), csr_matrix(pair, dtype=np.float64).power(2)
    edges.eliminate_zeros()
    is_finite = (square > 0.0).all() and np.isfinite(square).all() and np.isfinite(edges.data).all()
    if not is_finite or edges.diagonal().any() or (edges != edges.T).nnz or colluders < 0:
        raise InputError(
            f"noise: invalid scales or colluders (got own scales from {own_scale.min()} and {colluders} "
            "colluders, expected finite scales above 0, equal at both ends of each edge, and at least 0 "
            "colluders)."
        )
    # A smaller draw gives less protection. A larger one gives no more, and float64 would lose σ next to it.
    edges.data = np.minimum(edges.data, 1e9 * square.min())
    if (scales := _complete(square, edges, colluders)) is not None:
        return scales
    network = _Network(square, edges)
    resistance = _largest_resistances(network, colluders) if colluders else network.resistances()
    # Bound by the edges of v only, without the q best ones; every other edge increases it.
    star = square.copy()
    for v in range(square.size):
        ends = slice(edges.indptr[v], edges.indptr[v + 1])
        noise = square[edges.indices[ends]]
        series = np.sort(edges.data[ends] * (noise / (edges.data[ends] + noise)))
        star[v] += series[: max(series.size - colluders, 0)].sum()
    star *= 1.0 - (np.diff(edges.indptr) + 8.0) * _UNIT
    conductance = np.maximum(star, 1.0 / resistance)
    return np.asarray(np.sqrt(conductance) * (1.0 - 8.0 * _UNIT))


def _complete(square: Array, edges: csr_matrix, colluders: int) -> Array | None:
    """Compute the scales of a complete graph with equal scales, in closed form, or return None for other graphs.

    With h agents left, Σ⁻¹ has (1/σ²)(1/h + (1 − 1/h)σ²/(σ² + hc²)) on its diagonal.
    """
    has_links = np.diff(edges.indptr) > 0
    number = int(has_links.sum())
    if edges.nnz != number * (number - 1) or not number:
        return None
    own_square, pair_squares = square[has_links], edges.data
    if own_square.min() != own_square.max() or pair_squares.min() != pair_squares.max():
        return None
    n_honest = max(number - colluders, 1)
    gain = (own_square[0] + n_honest * pair_squares[0]) / (own_square[0] + pair_squares[0])
    return np.asarray(np.sqrt(np.where(has_links, square * gain, square)) * (1.0 - 16.0 * _UNIT))


class _Branch(NamedTuple):
    """Sets of colluders that contain the chosen agents, and others from the free agents.

    Attributes:
        known: chosen agents.
        free: whether each agent may be chosen, (m,).
        resistance: upper bound on [Σ⁻¹]_vv without the edges of `known`.
        enters: upper bounds on the flow into each agent, for a unit current into v, (m,).
        heat: lower bounds on the heat on each agent's edges and on its way to the ground, (m,).
    """

    known: tuple[int, ...]
    free: NDArray[np.bool_]
    resistance: float
    enters: Array
    heat: Array

    def bound(self, more: int) -> float:
        """Bound (resistance − Σ heat)/(1 − Σ enters)² over `more` of the free agents, by Newton's method."""
        enters, heat = self.enters[self.free], self.heat[self.free]
        first = enters.size - more
        most = float(np.partition(enters, first)[first:].sum())
        if not most < 1.0:
            return np.inf
        value, remaining_share = self.resistance, 1.0 - most
        while True:
            chosen = np.argpartition(2.0 * value * remaining_share * enters - heat, first)[first:]
            step = (self.resistance - heat[chosen].sum()) / (
                remaining_share * (1.0 + most - 2.0 * enters[chosen].sum())
            )
            if step <= value * (1.0 + 1e-9):
                return float((value + max(step - value, 0.0) * (1.0 + most) / remaining_share) * (1.0 + 1e-12))
            value = step


class _Network:
    """Conductances, and Σ⁻¹ in float64 with error bounds."""

    def __init__(self, square: Array, edges: csr_matrix) -> None:
        self.square, self.links = square, np.asarray(edges.sum(axis=1)).ravel()
        self.matrix = csr_matrix(diags(square + self.links) - edges)
        # The exact inverse has no negative entry. For X ≥ 0, |Σ| X is twice Σ's diagonal times X, less ΣX.
        self.inverse = np.maximum(np.linalg.inv(self.matrix.toarray()), 0.0)
        self.twice = 2.0 * self.matrix.diagonal()
        upper = triu(edges).tocoo()
        self.starts, self.ends, self.weights = upper.row.astype(np.intp), upper.col.astype(np.intp), upper.data
        edge, endpoints = np.arange(upper.nnz), np.concatenate([upper.row, upper.col])
        self.at = csr_matrix((np.ones(endpoints.size), (endpoints, np.tile(edge, 2))), (square.size, edge.size))
        self.incident = np.split(self.at.indices, self.at.indptr[1:-1])
        # Entries of Σ, products and sums: each of at most degree + 2 roundings of terms of one size.
        self.rounding = (4.0 * np.diff(edges.indptr).max(initial=0) + 16.0) * _UNIT
        self.upwards = 1.0 + (4.0 * square.size + 32.0) * _UNIT

    def resistances(self) -> Array:
        """Bound [Σ⁻¹]_vv with every edge from above, for all v."""
        isolated_resistance = 1.0 / self.square * (1.0 + 4.0 * _UNIT)
        product = self.matrix @ self.inverse
        sizes = self.twice[:, None] * self.inverse - product
        error = (np.abs(product - np.eye(self.square.size)) + self.rounding * sizes) / self.square[:, None]
        off = error.max(axis=0) * self.upwards
        return np.asarray(np.minimum((np.diagonal(self.inverse) + off) * self.upwards, isolated_resistance))

    def branch(self, v: int, colluders: tuple[int, ...], free: NDArray[np.bool_]) -> _Branch:
        """Evaluate a branch of the search for the worst colluders of v."""
        cut_edges = (
            np.unique(np.concatenate([self.incident[w] for w in colluders])) if colluders else np.zeros(0, np.int64)
        )
        i, j, weights, x = self.starts[cut_edges], self.ends[cut_edges], self.weights[cut_edges], self.inverse[v]
        if cut_edges.size:
            rows = self.inverse[i] - self.inverse[j]
            x = x + np.linalg.solve(np.diag(1.0 / weights) - (rows[:, i] - rows[:, j]), x[i] - x[j]) @ rows
        x = np.maximum(x, 0.0)
        residual = self.matrix @ x
        sizes = self.twice * x - residual
        residual[v] -= 1.0
        np.subtract.at(residual, i, weights * (x[i] - x[j]))
        np.add.at(residual, j, weights * (x[i] - x[j]))
        error = (np.abs(residual) + self.rounding * sizes) / self.square
        off = float(error.max()) * self.upwards
        resistance = float(x[v] + off) * self.upwards
        drop = np.abs(x[self.starts] - x[self.ends])
        flow = self.weights * drop
        flow[cut_edges] = 0.0
        # The flow into an agent leaves it by its edges or to the ground.
        flows = self.at @ flow
        enters = 0.5 * (flows + self.square * (x + off)) + off * self.links
        # Both ends of an edge may be removed, except v.
        warm = flow * drop
        warm[self.incident[v]] *= 2.0
        heat = 0.5 * np.maximum(self.at @ warm - 10.0 * off * flows, 0.0)
        heat += self.square * np.square(np.maximum(x - off, 0.0))
        return _Branch(colluders, free, resistance, np.asarray(enters * self.upwards), np.asarray(heat / self.upwards))


def _largest_resistances(network: _Network, colluders: int) -> Array:
    """Bound the largest [Σ_Q⁻¹]_vv of each agent, (m,), from above, starting with the agents of the largest bounds."""
    agents = np.arange(network.square.size)
    out = 1.0 / network.square * (1.0 + 4.0 * _UNIT)
    near = [v for v in agents.tolist() if len(network.incident[v]) > colluders]
    for v in near:
        out[v] = min(network.branch(v, (), agents != v).bound(colluders), out[v])
    work = int(_WORK / (network.weights.size + agents.size))
    for v in sorted(near, key=lambda v: -float(out[v])):
        if work <= 0:
            break
        out[v], work_spent = _largest_resistance(network, v, colluders, min(work, _BRANCHES))
        work -= work_spent
    return out


def _largest_resistance(network: _Network, v: int, colluders: int, most: int) -> tuple[float, int]:
    """Bound the largest [Σ_Q⁻¹]_vv by branch and bound, with a limited number of branches.

    Returns:
        The bound, and the number of evaluated branches.
    """
    isolated_resistance = float(1.0 / network.square[v]) * (1.0 + 4.0 * _UNIT)
    branch, work_spent = network.branch(v, (), np.arange(network.square.size) != v), 1
    best, order, heap = 0.0, count(), list[tuple[int, int, int, float, _Branch]]()

    def add(branch: _Branch) -> None:
        bound = min(branch.bound(colluders - len(branch.known)), isolated_resistance)
        # Among equal bounds the deepest branch first, since many sets are equal in a symmetric graph.
        heapq.heappush(heap, (-math.ceil(math.log(bound) / _GAP), -len(branch.known), next(order), bound, branch))

    add(branch)
    while heap and work_spent < most:
        *_, bound, branch = heap[0]
        worst = (branch.resistance - branch.heat) / np.square(np.maximum(1.0 - branch.enters, 1e-9))
        known_agents = (*branch.known, int(np.argmax(np.where(branch.free, worst, -np.inf))))
        if bound <= best * (1.0 + _GAP) or sum(len(network.incident[w]) for w in known_agents) > _MOST_EDGES:
            break
        heapq.heappop(heap)
        work_spent += 1
        free = branch.free.copy()
        free[known_agents[-1]] = False
        if len(branch.known) + free.sum() >= colluders:
            add(branch._replace(free=free))
        branch = network.branch(v, known_agents, free)
        if len(known_agents) < colluders:
            add(branch)
        else:
            best = max(best, min(branch.resistance, isolated_resistance))
    return max([best, *(entry[3] for entry in heap)]), work_spent


# Variates drawn at a time, which fit into the cache.
_CACHED_VARIATES = 2**14
# Ratios outside this range have no measurable gain.
LEAST, MOST = 1e-3, 1e3
# Least ratio of own scale to effective scale, for some protection if more agents collude than assumed.
_LEAST_OWN = 0.25
# Powers of the norms that replace a maximum, one after the other, since they are differentiable.
_POWERS = (50.0, 500.0, 5000.0)
_MOST_STEPS = 100


@dataclass(frozen=True, eq=False)
class PairNoise:
    """Public parameters of pairwise correlated noise.

    Args:
        ratio: ratio c/σ, as one number or with one value for every pair, (m, m).
        colluders: number q of colluding agents.
        network: public part of the network.
        own_deviation: standard deviation of each agent's own noise divided by σ, (m,), with minimum 1. None (the
            default) means 1 for all agents.
        all_pairs: whether all pairs of agents share noise, instead of neighbours only.
    """

    ratio: float | Array
    colluders: int
    network: Any
    own_deviation: Array | None = None
    all_pairs: bool = False
    # Edges → gains; key None for a network that does not change. Changing networks repeat their edges.
    _gains: dict[bytes | None, Array] = field(default_factory=dict, init=False, repr=False, compare=False)
    # The last round and its edges, which a release uses several times.
    _links: dict[int | None, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def links(self, t: int | None = None) -> NDArray[np.int64]:
        """Return the pairs of agents that share noise in round t, (E, 2), or by default in any round."""
        round = None if self.network.over_time is None else t
        links = self._links.get(round)
        if links is None:
            if self.all_pairs:
                online = None if round is None else self.network.online(round)
                agents = np.arange(self.network.n_agents) if online is None else np.flatnonzero(online)
                links = np.stack([agents[ends] for ends in np.triu_indices(agents.size, 1)], axis=1)
            else:
                links = np.asarray(self.network.links(round))
            self._links.clear()
            self._links[round] = links
        return links

    def ratios(self, links: NDArray[np.int64]) -> Array:
        """Return the standard deviation of the draw of each pair, divided by σ, (E,)."""
        if isinstance(self.ratio, np.ndarray):
            return np.asarray(self.ratio[links[:, 0], links[:, 1]])
        return np.full(len(links), self.ratio)

    def own_deviations(self, agents: NDArray[np.int64]) -> Array:
        """Return the standard deviations of these agents' own noise, divided by σ, (b,)."""
        return np.ones(agents.size) if self.own_deviation is None else self.own_deviation[agents]

    def own_square(self) -> float:
        """Return the mean square of all agents' own standard deviations, in units of σ."""
        return float(np.square(self.own_deviations(np.arange(self.network.n_agents))).mean())

    def reach(self) -> float:
        """Return max_i Σ_j c_ij/σ + σ_i/σ, where the sum is over the pairs of all rounds."""
        links, m = self.links(), self.network.n_agents
        pair_square = np.bincount(links.ravel(), np.repeat(self.ratios(links), 2), m)
        return float((self.own_deviations(np.arange(m)) + pair_square).max())

    def degrees(self, t: int | None = None) -> NDArray[np.int64]:
        """Return the degrees in round t, (m,), or by default the degrees over the pairs of all rounds."""
        return np.bincount(self.links(t).ravel(), minlength=self.network.n_agents)

    def covariance(self, t: int, among: NDArray[np.int64]) -> Array:
        """Return these agents' noise covariance in round t, divided by σ², (b, b), given the draws of all others."""
        links, square = self.links(t), np.zeros((self.network.n_agents,) * 2)
        square[links[:, 0], links[:, 1]] = square[links[:, 1], links[:, 0]] = self.ratios(links) ** 2
        inner = square[np.ix_(among, among)]
        return np.asarray(np.diag(self.own_deviations(among) ** 2 + inner.sum(axis=1)) - inner)

    def gain(self, t: int) -> Array:
        """Return the effective scale of the releases in round t, divided by σ, (m,), rounded down."""
        links, m = self.links(t), self.network.n_agents
        key = None if self.network.over_time is None else links.tobytes()
        if key not in self._gains:
            ends = np.concatenate([links, links[:, ::-1]]).T
            pair = csr_matrix((np.tile(self.ratios(links), 2), tuple(ends)), shape=(m, m))
            self._gains[key] = effective_scale(self.own_deviations(np.arange(m)), pair, self.colluders) * (
                1.0 - 2.0**-50
            )
        return self._gains[key]

    def gain_of_average(self) -> float:
        """Return the factor by which pairs reduce the variance of the average in round 0, at the same privacy cost.

        Pairs cancel in the average. With gains γ_i and own deviations s_i over σ, the factor is min γ_i² m/Σ s_i².
        """
        return float(self.gain(0).min() ** 2 / self.own_square())

    def facts(self) -> list[Array]:
        """Return arrays (m,) that determine the charged scales of all agents on a fixed network."""
        agents = np.arange(self.network.n_agents)
        return [self.gain(0), self.own_deviations(agents), self._largest_ratios(agents)]

    def _largest_ratios(self, agents: NDArray[np.int64]) -> Array:
        if isinstance(self.ratio, np.ndarray):
            return np.asarray(self.ratio[agents].max(axis=1))
        return np.full(agents.size, self.ratio)

    def charged_scales(
        self, own_scale: Array, rounds: NDArray[np.int64], agents: NDArray[np.int64]
    ) -> tuple[Array, dict[str, Array]]:
        """Compute the scales at which releases are accounted, and the scales at which their noise is drawn.

        Args:
            own_scale: scales σ, (R, b) or (R, 1).
            rounds: rounds of the releases, (R,).
            agents: indices of the agents, (b,).

        Returns:
            Effective scales, (R, b), and name → (R, b), with the names "own_scale", "pair_scale" (the largest of an
            agent's pairs in any round) and "variates" (number per coordinate in the releases of all agents).
        """
        # All rounds of a network that does not change equal round 0.
        distinct_rounds = [0] if self.network.over_time is None else rounds.tolist()
        effective = np.asarray(own_scale * np.stack([self.gain(t)[agents] for t in distinct_rounds]))
        number = np.array([self.network.n_agents + len(self.links(t)) for t in distinct_rounds], dtype=np.float64)
        draw_scales = {
            "own_scale": own_scale * self.own_deviations(agents),
            "pair_scale": own_scale * self._largest_ratios(agents),
            "variates": number[:, None],
        }
        return effective, {name: np.broadcast_to(v, effective.shape) for name, v in draw_scales.items()}


class PairDraws:
    """Draws of all pairs that include an agent of a block.

    Args:
        noise: parameters of the pairs.
        root: noise key.
        agents: indices of the block's agents, (b,).
        colluding: if given, only pairs that include one of these agents are drawn. The default is all pairs.
    """

    def __init__(
        self, noise: PairNoise, root: Root, agents: NDArray[np.int64], colluding: NDArray[np.int64] | None = None
    ) -> None:
        self.noise, self.agents, self.own_deviation = noise, agents, noise.own_deviations(agents)
        self._place = np.full(noise.network.n_agents, -1)
        self._place[agents] = np.arange(agents.size)
        self._colluding = None if colluding is None else np.isin(np.arange(self._place.size), colluding)
        links = self._touching(noise.links())
        self._numbers = self._link_numbers(links)
        self._streams = Streams(root, "pair", self._numbers)

    def _touching(self, links: NDArray[np.int64]) -> NDArray[np.int64]:
        here = (self._place[links] >= 0).any(axis=1)
        return links[here if self._colluding is None else here & self._colluding[links].any(axis=1)]

    def _link_numbers(self, links: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(links[:, 0] * self._place.size + links[:, 1])

    def sums(self, index: int, t: int, tag: int, ratio: Array) -> Array:
        """Compute the pairwise noise in each release of the block, in units of the grid: float64 integers.

        Args:
            index: index of the release.
            t: round of the release.
            tag: tag of its channels.
            ratio: ratio σ/g of each column, (1, D).

        Returns:
            Noise, (b, D).
        """
        out = np.zeros((self.agents.size, ratio.shape[1]))
        links = self._touching(self.noise.links(t))
        scales = self.noise.ratios(links)[:, None]
        rows, ends = np.searchsorted(self._numbers, self._link_numbers(links)), self._place[links].tolist()
        size = max(1, _CACHED_VARIATES // out.shape[1])
        for first in range(0, len(links), size):
            part = slice(first, first + size)
            normals = np.empty((len(links[part]), out.shape[1]))
            Draws(self._streams, index, tag, rows[part]).fill(("normal", normals))
            normals *= scales[part] * ratio
            np.rint(normals, out=normals)
            for pair, (i, j) in zip(normals, ends[part], strict=True):
                if i >= 0:
                    out[i] += pair
                if j >= 0:
                    out[j] -= pair
        return out


def error_weights(mixing: Array, rounds: int) -> Array:
    """Compute the weights M of the mean square error tr(MΣ).

    Args:
        mixing: mixing weights A, (m, m).
        rounds: number of rounds T.

    Example:
        >>> error_weights(np.eye(2), 3).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    power, total = np.eye(len(mixing)), np.zeros(mixing.shape)
    for k in range(rounds):
        power = mixing @ power
        total += (rounds - k) * (power.T @ power)
    return np.asarray(total / (len(mixing) * rounds))


def best_ratio(mixing: Array, links: csr_matrix, rounds: int, colluders: int) -> float:
    """Find the ratio r = c/σ with the smallest error at a fixed privacy cost against q colluders.

    Args:
        mixing: mixing weights A, (m, m).
        links: adjacency matrix, (m, m), 1 for pairs that share noise.
        rounds: number of rounds T.
        colluders: number q of colluding agents.

    Returns:
        The ratio r in [1e-3, 1e3].

    Example:
        >>> pair, mixed = csr_matrix([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.75, 0.25], [0.25, 0.75]])
        >>> round(best_ratio(mixed, pair, 10, 0), 2), round(best_ratio(mixed, pair, 10, 1), 3)
        (1.25, 0.001)
    """
    weights, adjacent = error_weights(mixing, rounds), links.toarray()
    own_weight = float(np.trace(weights))
    pair_weight = float(np.diagonal(weights) @ adjacent.sum(axis=1) - (weights * adjacent).sum())

    def error(log_ratio: float) -> float:
        square = np.exp(2.0 * log_ratio)
        scales = effective_scale(np.ones(len(mixing)), links * np.sqrt(square), colluders)
        return float(np.log((own_weight + square * pair_weight) / scales.min() ** 2))

    # scipy imports its optimisers lazily; few plans need them.
    minimum = scipy.optimize.minimize_scalar(
        error, bounds=(np.log(LEAST), np.log(MOST)), method="bounded", options={"xatol": 1e-3}
    )
    return float(np.exp(minimum.x))


def best_scales(mixing: Array, links: csr_matrix, rounds: int, colluders: int = 0) -> tuple[Array, csr_matrix]:
    """Find the scales of all agents and edges that minimise the error, with every effective scale at least 1.

    Args:
        mixing: mixing weights A, (m, m).
        links: adjacency matrix, (m, m), 1 for pairs that share noise.
        rounds: number of rounds T.
        colluders: number q of colluding agents, 0 (the default) or 1.

    Returns:
        σ, (m,), and c, (m, m), as in `effective_scale`.

    Example:
        >>> path = csr_matrix([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        >>> mixed = np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]) / 3.0
        >>> own, pair = best_scales(mixed, path, 10)
        >>> effective_scale(own, pair, 0).round(3).tolist()
        [1.0, 1.0, 1.0]
    """
    m, weights, upper = len(mixing), error_weights(mixing, rounds), triu(links).tocoo()
    i, j, diagonal = upper.row, upper.col, np.arange(m)
    cost = np.concatenate([np.diagonal(weights), weights[i, i] + weights[j, j] - 2.0 * weights[i, j]])
    # (k, E) edges outside each set of colluders, who are not protected themselves.
    edge_mask, fixed_rows = np.ones((1, i.size)), np.zeros((1, m))
    if colluders:
        edge_mask = np.stack([(i != w) & (j != w) for w in range(m)]).astype(np.float64)
        fixed_rows = np.eye(m)

    def error(logs: Array, power: float) -> tuple[float, Array]:
        squares = np.exp(logs)
        pair_scales, covariance = edge_mask * squares[m:], np.zeros((len(edge_mask), m, m))
        covariance[:, i, j] = covariance[:, j, i] = -pair_scales
        covariance[:, diagonal, diagonal] = squares[:m] - covariance.sum(axis=2)
        inverse = np.linalg.inv(covariance)
        variances, total = inverse[:, diagonal, diagonal] * (1.0 - fixed_rows), float(cost @ squares)
        share = (variances / variances.max()) ** (power - 1.0)
        slope = np.einsum("kiv,kv->i", np.square(inverse), share)
        along = np.einsum("kev,kv,ke->e", np.square(inverse[:, i] - inverse[:, j]), share, edge_mask, optimize=True)
        weighted_sum = float((share * variances).sum())
        largest = total * weighted_sum ** (1.0 / power) * variances.max() ** (1.0 - 1.0 / power)
        return np.log(largest), squares * (cost / total - np.concatenate([slope, along]) / weighted_sum)

    # The gradient vanishes at ratio 0, so the initial ratio is positive.
    ratio = max(best_ratio(mixing, links, rounds, colluders), 1.0)
    start = 1.0 / effective_scale(np.ones(m), links * ratio, colluders).min()
    logs = 2.0 * np.log(np.repeat([start, ratio * start], [m, i.size]))
    bounds = [(2.0 * np.log(LEAST), 2.0 * np.log(MOST))] * logs.size
    for power in _POWERS:
        minimum = scipy.optimize.minimize(
            error, logs, (power,), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _MOST_STEPS}
        )
        logs = minimum.x
    scales = np.exp(0.5 * logs)
    pair_scales = csr_matrix((scales[m:], (i, j)), shape=links.shape)
    own_scale, pair = scales[:m], csr_matrix(pair_scales + pair_scales.T)
    own_scale = np.maximum(own_scale, _LEAST_OWN * effective_scale(own_scale, pair, colluders).min())
    least = effective_scale(own_scale, pair, colluders).min()
    return own_scale / least, pair / least
