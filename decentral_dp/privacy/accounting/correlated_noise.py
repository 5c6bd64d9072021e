"""Prices of Gaussian noise that agents share, against an observer of every message and any q colluders.

The noise of agent i in a round is ξ_i + Σ_j ±ζ_ij: ξ_i ~ N(0, σ_i²) its own, ζ_ij ~ N(0, c_ij²) drawn once for the edge
{i, j} and taken with opposite signs at its ends. Colluders Q know the draws of their edges. What is left to the others
has the covariance

    Σ_Q = diag(σ²) + Laplacian of the edges outside Q, weights c²,

and a record of agent v that moves v's message by Δ is as hard to tell as in noise of deviation [Σ_Q⁻¹]_vv^(−1/2) on
that message alone: the *effective scale*. Its square is the conductance from v to the ground in a network of
conductances c² between agents and σ² to the ground. It falls with every edge that is left out, and so with every
colluder.

Proof in docs/proofs/40.
"""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags, triu

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError

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
