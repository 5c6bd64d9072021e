"""Pairwise correlated Gaussian noise: the two ends of an edge share a draw, which cancels in the average.

The noise of agent i in a round is ξ_i + Σ_j ±ζ_ij: ξ_i ~ N(0, σ_i²) its own, ζ_ij ~ N(0, c_ij²) drawn once for the edge
{i, j} and taken with opposite signs at its ends. Colluders Q know the draws of their edges. What is left to the others
has the covariance

    Σ_Q = diag(σ²) + Laplacian of the edges outside Q, weights c²,

and a record of agent v that moves v's message by Δ is as hard to tell as in noise of deviation [Σ_Q⁻¹]_vv^(−1/2) on
that message alone: the *effective scale*, against an observer of every message and any q colluders. Its square is the
conductance from v to the ground in a network of conductances c² between agents and σ² to the ground. It falls with
every edge that is left out, and so with every colluder.

The release with index k of agent i, made in round t, carries beside its own noise

    Σ_j s_ij g P_ij,   P_ij = rint(N·c_ij/g),   s_ij = −s_ji = ±1,   over the pairs {i, j} of round t;

σ is the least deviation of any agent's own noise, g the grid that goes with it, and c_ij a multiple of σ. N comes from
a stream keyed by the pair, k and the channels, so that both ends draw the same integers, wherever they are, and the sum
over all agents is 0 to the bit. Pairs are the links of the round, or every two agents that are there. Every release is
charged at its effective scale: σ times a gain that follows from public numbers alone.

How much neighbours share is chosen to err least in gossip at one price. Noise of covariance Σ over agents in every
message, x_{t+1} = A(x_t − n_t) with mixing weights A, leaves in the models of round t the covariance Σ_{k=1}^t A^k Σ
(A^k)ᵀ. Their mean square error over rounds and agents is tr(MΣ),

    M = (1/mT) Σ_{k=1}^T (T − k + 1) (A^k)ᵀ A^k.

With Σ = σ²(I + r² L), L the Laplacian of the links, that is σ²(tr M + r² tr(ML)), to be divided by the square of the
effective scale. No covariance of effective scales of at least 1, without colluders, errs less than (tr M^(1/2))²/m.
With a scale of each agent and of each link the error is linear in their squares, and every [Σ_Q⁻¹]_vv convex.

Proof 40 has the reasons, and why rounded pairs hide as much as normal ones.
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

# Of float64, the largest relative error of one operation.
_UNIT = 2.0**-53
# How much more than the price of the worst set that was found is accepted.
_GAP = 1e-3
# So many branches of one agent are looked into, none whose sets have more edges, and so many edges in all.
_BRANCHES, _MOST_EDGES, _WORK = 200, 256, 1e7


def effective_scale(own: Array, pair: csr_matrix, colluders: int) -> Array:
    """Compute what noise of its own would protect each agent as well as the noise that it shares.

    Args:
        own: σ, (m,), standard deviations, above 0.
        pair: c, (m, m), symmetric, 0 on its diagonal; standard deviations of the draw that the ends of an edge share.
        colluders: q, how many other agents tell the observer all that they know.

    Returns:
        (m,) lower bounds of min over Q of [Σ_Q⁻¹]_vv^(−1/2), Q any q agents but v; rounded downwards.

    Raises:
        InputError: scales or a number of colluders that mean nothing.

    Example:
        >>> edge = csr_matrix([[0.0, 4.0], [4.0, 0.0]])
        >>> effective_scale(np.ones(2), edge, 0).round(6).tolist()
        [1.393261, 1.393261]
        >>> effective_scale(np.ones(2), edge, 1).round(6).tolist()
        [1.0, 1.0]
    """
    square, edges = np.square(own), csr_matrix(pair, dtype=np.float64).power(2)
    edges.eliminate_zeros()
    is_finite = (square > 0.0).all() and np.isfinite(square).all() and np.isfinite(edges.data).all()
    if not is_finite or edges.diagonal().any() or (edges != edges.T).nnz or colluders < 0:
        raise InputError(
            "noise: own scales are above 0, all scales finite and the same at both ends of each edge, and colluders at "
            f"least 0; got own scales from {own.min()}, and {colluders} colluders."
        )
    # A smaller draw protects less. Beyond this it protects no better, and float64 would lose σ beside it.
    edges.data = np.minimum(edges.data, 1e9 * square.min())
    if (alike := _complete(square, edges, colluders)) is not None:
        return alike
    network = _Network(square, edges)
    resistance = _largest_resistances(network, colluders) if colluders else network.resistances()
    # By the edges of v alone, of which the q best are known: every other edge only adds to it.
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
    """Scales where every two of those that share noise do, all alike: any q others are the worst; else None.

    With h left, Σ⁻¹ has (1/σ²)(1/h + (1 − 1/h)σ²/(σ² + hc²)) on its diagonal.
    """
    linked = np.diff(edges.indptr) > 0
    number = int(linked.sum())
    if edges.nnz != number * (number - 1) or not number:
        return None
    own, shared = square[linked], edges.data
    if own.min() != own.max() or shared.min() != shared.max():
        return None
    left = max(number - colluders, 1)
    gain = (own[0] + left * shared[0]) / (own[0] + shared[0])
    return np.asarray(np.sqrt(np.where(linked, square * gain, square)) * (1.0 - 16.0 * _UNIT))


class _Branch(NamedTuple):
    """Every set of colluders that holds those that are known, and others from among the free.

    known: agents. free: (m,). resistance: [Σ⁻¹]_vv without the edges of `known`, or more. Of a unit current into v,
    enters: (m,) what flows into each agent, or more; heat: (m,) on its edges and its own way to the ground, or less.
    """

    known: tuple[int, ...]
    free: NDArray[np.bool_]
    resistance: float
    enters: Array
    heat: Array

    def bound(self, more: int) -> float:
        """Bound (resistance − Σ heat)/(1 − Σ enters)² over `more` of the free: Newton's steps on a tangent of (·)²."""
        enters, heat = self.enters[self.free], self.heat[self.free]
        first = enters.size - more
        most = float(np.partition(enters, first)[first:].sum())
        if not most < 1.0:
            return np.inf
        value, left = self.resistance, 1.0 - most
        while True:
            chosen = np.argpartition(2.0 * value * left * enters - heat, first)[first:]
            step = (self.resistance - heat[chosen].sum()) / (left * (1.0 + most - 2.0 * enters[chosen].sum()))
            if step <= value * (1.0 + 1e-9):
                return float((value + max(step - value, 0.0) * (1.0 + most) / left) * (1.0 + 1e-12))
            value = step


class _Network:
    """Conductances, and Σ⁻¹ as float64 finds it."""

    def __init__(self, square: Array, edges: csr_matrix) -> None:
        self.square, self.links = square, np.asarray(edges.sum(axis=1)).ravel()
        self.matrix = csr_matrix(diags(square + self.links) - edges)
        # No entry of the true one is below 0. For X ≥ 0, |Σ| X is twice Σ's diagonal times X, less ΣX.
        self.inverse = np.maximum(np.linalg.inv(self.matrix.toarray()), 0.0)
        self.twice = 2.0 * self.matrix.diagonal()
        upper = triu(edges).tocoo()
        self.starts, self.ends, self.weights = upper.row.astype(np.intp), upper.col.astype(np.intp), upper.data
        edge, both = np.arange(upper.nnz), np.concatenate([upper.row, upper.col])
        self.at = csr_matrix((np.ones(both.size), (both, np.tile(edge, 2))), (square.size, edge.size))
        self.incident = np.split(self.at.indices, self.at.indptr[1:-1])
        # Entries of Σ, products and sums: each of at most degree + 2 roundings of terms of one size.
        self.rounding = (4.0 * np.diff(edges.indptr).max(initial=0) + 16.0) * _UNIT
        self.upwards = 1.0 + (4.0 * square.size + 32.0) * _UNIT

    def resistances(self) -> Array:
        """[Σ⁻¹]_vv of all v with every edge, or more."""
        alone = 1.0 / self.square * (1.0 + 4.0 * _UNIT)
        product = self.matrix @ self.inverse
        sizes = self.twice[:, None] * self.inverse - product
        error = (np.abs(product - np.eye(self.square.size)) + self.rounding * sizes) / self.square[:, None]
        off = error.max(axis=0) * self.upwards
        return np.asarray(np.minimum((np.diagonal(self.inverse) + off) * self.upwards, alone))

    def branch(self, v: int, known: tuple[int, ...], free: NDArray[np.bool_]) -> _Branch:
        cut = np.unique(np.concatenate([self.incident[w] for w in known])) if known else np.zeros(0, np.int64)
        i, j, weights, x = self.starts[cut], self.ends[cut], self.weights[cut], self.inverse[v]
        if cut.size:
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
        flow[cut] = 0.0
        # What flows into an agent flows out of it, by its edges or to the ground.
        flows = self.at @ flow
        enters = 0.5 * (flows + self.square * (x + off)) + off * self.links
        # Both ends of an edge may be left out, but not v.
        warm = flow * drop
        warm[self.incident[v]] *= 2.0
        heat = 0.5 * np.maximum(self.at @ warm - 10.0 * off * flows, 0.0)
        heat += self.square * np.square(np.maximum(x - off, 0.0))
        return _Branch(known, free, resistance, np.asarray(enters * self.upwards), np.asarray(heat / self.upwards))


def _largest_resistances(network: _Network, colluders: int) -> Array:
    """(m,) the largest [Σ_Q⁻¹]_vv, or more; those that may be the largest of all are looked into first."""
    agents = np.arange(network.square.size)
    out = 1.0 / network.square * (1.0 + 4.0 * _UNIT)
    near = [v for v in agents.tolist() if len(network.incident[v]) > colluders]
    for v in near:
        out[v] = min(network.branch(v, (), agents != v).bound(colluders), out[v])
    left = int(_WORK / (network.weights.size + agents.size))
    for v in sorted(near, key=lambda v: -float(out[v])):
        if left <= 0:
            break
        out[v], spent = _largest_resistance(network, v, colluders, min(left, _BRANCHES))
        left -= spent
    return out


def _largest_resistance(network: _Network, v: int, colluders: int, most: int) -> tuple[float, int]:
    """The largest [Σ_Q⁻¹]_vv by branch and bound, or, after so many branches, what those that are left might hold.

    Returns it, and how many branches were looked into.
    """
    alone = float(1.0 / network.square[v]) * (1.0 + 4.0 * _UNIT)
    branch, spent = network.branch(v, (), np.arange(network.square.size) != v), 1
    best, order, heap = 0.0, count(), list[tuple[int, int, int, float, _Branch]]()

    def add(branch: _Branch) -> None:
        bound = min(branch.bound(colluders - len(branch.known)), alone)
        # Of equal ones the deepest first: many sets are equal in a symmetric graph.
        heapq.heappush(heap, (-math.ceil(math.log(bound) / _GAP), -len(branch.known), next(order), bound, branch))

    add(branch)
    while heap and spent < most:
        *_, bound, branch = heap[0]
        worst = (branch.resistance - branch.heat) / np.square(np.maximum(1.0 - branch.enters, 1e-9))
        known = (*branch.known, int(np.argmax(np.where(branch.free, worst, -np.inf))))
        if bound <= best * (1.0 + _GAP) or sum(len(network.incident[w]) for w in known) > _MOST_EDGES:
            break
        heapq.heappop(heap)
        spent += 1
        free = branch.free.copy()
        free[known[-1]] = False
        if len(branch.known) + free.sum() >= colluders:
            add(branch._replace(free=free))
        branch = network.branch(v, known, free)
        if len(known) < colluders:
            add(branch)
        else:
            best = max(best, min(branch.resistance, alone))
    return max([best, *(entry[3] for entry in heap)]), spent


# Variates that are drawn at a time, still in cache when they are added.
_CACHED_VARIATES = 2**14
# Ratios beyond these gain nothing that float64 could show.
LEAST, MOST = 1e-3, 1e3
# Of an agent's own noise beside what it is priced at, so that something is left where more collude than was supposed.
_LEAST_OWN = 0.25
# In place of the largest of several numbers their norms of these powers, one after the other, which have slopes.
_POWERS = (50.0, 500.0, 5000.0)
_MOST_STEPS = 100


@dataclass(frozen=True, eq=False)
class PairNoise:
    """What everybody knows of the noise that neighbours share.

    Args:
        ratio: c/σ, a number, or (m, m) one for every pair.
        colluders: q, how many agents may tell the observer all that they know.
        network: what everybody knows of it.
        own_deviation: (m,) each agent's own deviation over σ, the least of which is 1; default all are.
        all_pairs: whether every two agents share noise, not neighbours alone.
    """

    ratio: float | Array
    colluders: int
    network: Any
    own_deviation: Array | None = None
    all_pairs: bool = False
    # Links → gains, of a network that stays None. Networks that change come back to the same links.
    _gains: dict[bytes | None, Array] = field(default_factory=dict, init=False, repr=False, compare=False)
    # Round → links, of the last round that was asked for: a release asks for them several times.
    _links: dict[int | None, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def links(self, t: int | None = None) -> NDArray[np.int64]:
        """Return (E, 2) the pairs of agents that share noise in round t; default None, in any round."""
        round = None if self.network.over_time is None else t
        linked = self._links.get(round)
        if linked is None:
            if self.all_pairs:
                online = None if round is None else self.network.online(round)
                agents = np.arange(self.network.n_agents) if online is None else np.flatnonzero(online)
                linked = np.stack([agents[ends] for ends in np.triu_indices(agents.size, 1)], axis=1)
            else:
                linked = np.asarray(self.network.links(round))
            self._links.clear()
            self._links[round] = linked
        return linked

    def ratios(self, links: NDArray[np.int64]) -> Array:
        """Return (E,) the deviation over σ of what each of these pairs shares."""
        if isinstance(self.ratio, np.ndarray):
            return np.asarray(self.ratio[links[:, 0], links[:, 1]])
        return np.full(len(links), self.ratio)

    def own_deviations(self, agents: NDArray[np.int64]) -> Array:
        """Return (b,) the deviations of these agents' own noise over σ."""
        return np.ones(agents.size) if self.own_deviation is None else self.own_deviation[agents]

    def own_square(self) -> float:
        """Return the mean of the squares of all agents' own deviations over σ."""
        return float(np.square(self.own_deviations(np.arange(self.network.n_agents))).mean())

    def reach(self) -> float:
        """Return Σ_j c_ij/σ + σ_i/σ of the agent for which it is largest, its pairs of all rounds together."""
        links, m = self.links(), self.network.n_agents
        shared = np.bincount(links.ravel(), np.repeat(self.ratios(links), 2), m)
        return float((self.own_deviations(np.arange(m)) + shared).max())

    def degrees(self, t: int | None = None) -> NDArray[np.int64]:
        """Return (m,) how many neighbours each agent has in round t; default None, those of all rounds together."""
        return np.bincount(self.links(t).ravel(), minlength=self.network.n_agents)

    def covariance(self, t: int, among: NDArray[np.int64]) -> Array:
        """Return (b, b) over σ² what these agents draw in round t, for who knows what all others draw."""
        links, square = self.links(t), np.zeros((self.network.n_agents,) * 2)
        square[links[:, 0], links[:, 1]] = square[links[:, 1], links[:, 0]] = self.ratios(links) ** 2
        inner = square[np.ix_(among, among)]
        return np.asarray(np.diag(self.own_deviations(among) ** 2 + inner.sum(axis=1)) - inner)

    def gain(self, t: int) -> Array:
        """Return (m,) the effective scale over σ of what is released in round t, rounded downwards."""
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
        """Return how much smaller the average's variance is than with own noise of the same price, in the first round.

        Pairs cancel in it, so that with the gains γ_i and own deviations s_i, over σ, it is min γ_i² m/Σ s_i².
        """
        return float(self.gain(0).min() ** 2 / self.own_square())

    def facts(self) -> list[Array]:
        """Return what tells agents' charged scales apart on a network that stays, each (m,)."""
        everybody = np.arange(self.network.n_agents)
        return [self.gain(0), self.own_deviations(everybody), self._largest_ratios(everybody)]

    def _largest_ratios(self, agents: NDArray[np.int64]) -> Array:
        if isinstance(self.ratio, np.ndarray):
            return np.asarray(self.ratio[agents].max(axis=1))
        return np.full(agents.size, self.ratio)

    def charged_scales(
        self, own: Array, rounds: NDArray[np.int64], agents: NDArray[np.int64]
    ) -> tuple[Array, dict[str, Array]]:
        """Compute the scales that releases are charged at, and what was drawn for them.

        Args:
            own: σ, (R, b) or (R, 1).
            rounds: (R,) in which each is made.
            agents: (b,) their numbers.

        Returns:
            (R, b) effective scales, and name → (R, b): own scale, the largest scale of what an agent shares in any
            round, and the variates that a coordinate of the releases of all agents takes.
        """
        # All rounds of a network that stays are as round 0.
        asked = [0] if self.network.over_time is None else rounds.tolist()
        effective = np.asarray(own * np.stack([self.gain(t)[agents] for t in asked]))
        number = np.array([self.network.n_agents + len(self.links(t)) for t in asked], dtype=np.float64)
        drawn = {
            "own_scale": own * self.own_deviations(agents),
            "pair_scale": own * self._largest_ratios(agents),
            "variates": number[:, None],
        }
        return effective, {name: np.broadcast_to(v, effective.shape) for name, v in drawn.items()}


class PairDraws:
    """The draws of the links that touch a block of agents.

    Args:
        noise: what is drawn.
        root: of all draws.
        agents: (b,) numbers of the block's agents.
        told: agents who are at one end of every pair that is drawn here; by default all pairs are.
    """

    def __init__(
        self, noise: PairNoise, root: Root, agents: NDArray[np.int64], told: NDArray[np.int64] | None = None
    ) -> None:
        self.noise, self.agents, self.own_deviation = noise, agents, noise.own_deviations(agents)
        self._place = np.full(noise.network.n_agents, -1)
        self._place[agents] = np.arange(agents.size)
        self._told = None if told is None else np.isin(np.arange(self._place.size), told)
        links = self._touching(noise.links())
        self._numbers = self._link_numbers(links)
        self._streams = Streams(root, "pair", self._numbers)

    def _touching(self, links: NDArray[np.int64]) -> NDArray[np.int64]:
        here = (self._place[links] >= 0).any(axis=1)
        return links[here if self._told is None else here & self._told[links].any(axis=1)]

    def _link_numbers(self, links: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(links[:, 0] * self._place.size + links[:, 1])

    def sums(self, index: int, t: int, tag: int, ratio: Array) -> Array:
        """Compute what the pairs add to each release of the block, in units of the grid: float64 integers.

        Args:
            index: of the release.
            t: its round.
            tag: of its channels.
            ratio: (1, D) σ/g of each column.

        Returns:
            (b, D).
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


def error_weights(mixed: Array, rounds: int) -> Array:
    """Compute M.

    Args:
        mixed: A, (m, m).
        rounds: T.

    Example:
        >>> error_weights(np.eye(2), 3).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    power, total = np.eye(len(mixed)), np.zeros(mixed.shape)
    for k in range(rounds):
        power = mixed @ power
        total += (rounds - k) * (power.T @ power)
    return np.asarray(total / (len(mixed) * rounds))


def best_ratio(mixed: Array, links: csr_matrix, rounds: int, colluders: int) -> float:
    """Find the r = c/σ that errs least at one price, for every agent, against q colluders.

    Args:
        mixed: A, (m, m).
        links: (m, m), 1 where two agents share noise.
        rounds: T.
        colluders: q.

    Returns:
        r in [1e-3, 1e3].

    Example:
        >>> pair, mixed = csr_matrix([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.75, 0.25], [0.25, 0.75]])
        >>> round(best_ratio(mixed, pair, 10, 0), 2), round(best_ratio(mixed, pair, 10, 1), 3)
        (1.25, 0.001)
    """
    weights, adjacent = error_weights(mixed, rounds), links.toarray()
    own = float(np.trace(weights))
    shared = float(np.diagonal(weights) @ adjacent.sum(axis=1) - (weights * adjacent).sum())

    def error(log_ratio: float) -> float:
        square = np.exp(2.0 * log_ratio)
        scales = effective_scale(np.ones(len(mixed)), links * np.sqrt(square), colluders)
        return float(np.log((own + square * shared) / scales.min() ** 2))

    # Looked up here: scipy imports its optimisers when they are first asked for, and hardly any plan does.
    minimum = scipy.optimize.minimize_scalar(
        error, bounds=(np.log(LEAST), np.log(MOST)), method="bounded", options={"xatol": 1e-3}
    )
    return float(np.exp(minimum.x))


def best_scales(mixed: Array, links: csr_matrix, rounds: int, colluders: int = 0) -> tuple[Array, csr_matrix]:
    """Find scales of each agent and each link that err least at one price, every effective scale at least 1.

    Args:
        mixed: A, (m, m).
        links: (m, m), 1 where two agents share noise.
        rounds: T.
        colluders: q, 0, the default, or 1.

    Returns:
        σ, (m,), and c, (m, m), as `effective_scale` takes them.

    Example:
        >>> path = csr_matrix([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        >>> mixed = np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]) / 3.0
        >>> own, pair = best_scales(mixed, path, 10)
        >>> effective_scale(own, pair, 0).round(3).tolist()
        [1.0, 1.0, 1.0]
    """
    m, weights, upper = len(mixed), error_weights(mixed, rounds), triu(links).tocoo()
    i, j, diagonal = upper.row, upper.col, np.arange(m)
    cost = np.concatenate([np.diagonal(weights), weights[i, i] + weights[j, j] - 2.0 * weights[i, j]])
    # (k, E) the links that are left by each set of colluders, which are not protected themselves.
    left, known = np.ones((1, i.size)), np.zeros((1, m))
    if colluders:
        left = np.stack([(i != w) & (j != w) for w in range(m)]).astype(np.float64)
        known = np.eye(m)

    def error(logs: Array, power: float) -> tuple[float, Array]:
        squares = np.exp(logs)
        shared, covariance = left * squares[m:], np.zeros((len(left), m, m))
        covariance[:, i, j] = covariance[:, j, i] = -shared
        covariance[:, diagonal, diagonal] = squares[:m] - covariance.sum(axis=2)
        inverse = np.linalg.inv(covariance)
        spent, total = inverse[:, diagonal, diagonal] * (1.0 - known), float(cost @ squares)
        share = (spent / spent.max()) ** (power - 1.0)
        slope = np.einsum("kiv,kv->i", np.square(inverse), share)
        along = np.einsum("kev,kv,ke->e", np.square(inverse[:, i] - inverse[:, j]), share, left, optimize=True)
        lost = float((share * spent).sum())
        largest = total * lost ** (1.0 / power) * spent.max() ** (1.0 - 1.0 / power)
        return np.log(largest), squares * (cost / total - np.concatenate([slope, along]) / lost)

    # From a ratio that is worth something to everybody: slopes vanish where nobody shares.
    ratio = max(best_ratio(mixed, links, rounds, colluders), 1.0)
    alone = 1.0 / effective_scale(np.ones(m), links * ratio, colluders).min()
    logs = 2.0 * np.log(np.repeat([alone, ratio * alone], [m, i.size]))
    bounds = [(2.0 * np.log(LEAST), 2.0 * np.log(MOST))] * logs.size
    for power in _POWERS:
        minimum = scipy.optimize.minimize(
            error, logs, (power,), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _MOST_STEPS}
        )
        logs = minimum.x
    scales = np.exp(0.5 * logs)
    shared = csr_matrix((scales[m:], (i, j)), shape=links.shape)
    own, pair = scales[:m], csr_matrix(shared + shared.T)
    own = np.maximum(own, _LEAST_OWN * effective_scale(own, pair, colluders).min())
    least = effective_scale(own, pair, colluders).min()
    return own / least, pair / least
