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

import numpy as np
from scipy.sparse import csr_matrix, diags

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError

# Of float64, the largest relative error of one operation.
_UNIT = 2.0**-53


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
    if not ((square > 0.0).all() and np.isfinite(square).all() and np.isfinite(edges.data).all()):
        raise InputError(f"noise: own scales are above 0 and all scales finite; got an own scale of {own.min()}.")
    if edges.shape != (own.size, own.size) or edges.diagonal().any() or (edges != edges.T).nnz or colluders < 0:
        raise InputError(
            f"noise: wanted one scale for both ends of each edge of {own.size} agents, and colluders from 0 on; "
            f"got an array {edges.shape} and {colluders} colluders."
        )
    # A smaller draw protects less. Beyond this it protects no better, and float64 would lose σ beside it.
    edges.data = np.minimum(edges.data, 1e9 * square.min())
    conductance = _star(square, edges, colluders)
    if not colluders:
        conductance = np.maximum(conductance, 1.0 / _resistance(square, edges))
    return np.asarray(np.sqrt(conductance) * (1.0 - 8.0 * _UNIT))


def _star(square: Array, edges: csr_matrix, colluders: int) -> Array:
    """Conductance by the edges of v alone, of which the q best are known: every other edge only adds to it."""
    out = square.copy()
    for v in range(square.size):
        ends = slice(edges.indptr[v], edges.indptr[v + 1])
        noise = square[edges.indices[ends]]
        series = np.sort(edges.data[ends] * (noise / (edges.data[ends] + noise)))
        out[v] += series[: max(series.size - colluders, 0)].sum()
    return np.asarray(out * (1.0 - (np.diff(edges.indptr) + 8.0) * _UNIT))


def _resistance(square: Array, edges: csr_matrix) -> Array:
    """[Σ⁻¹]_vv of all v, rounded upwards.

    Σ⁻¹ ≥ 0 and Σ⁻¹σ² = 1, so that a residual r of e_v − Σx is an error of at most max_i |r_i|/σ_i².
    """
    matrix = diags(square + np.asarray(edges.sum(axis=1)).ravel()) - edges
    near = np.linalg.inv(matrix.toarray())
    # Entries of Σ, products and sums: each of at most degree + 2 roundings of terms of one size.
    rounding = (4.0 * np.diff(edges.indptr).max(initial=0) + 16.0) * _UNIT
    off = np.abs(np.eye(square.size) - matrix @ near) + rounding * (abs(matrix) @ np.abs(near))
    return np.asarray((near.diagonal() + (off / square[:, None]).max(axis=0)) * (1.0 + 8.0 * _UNIT))
