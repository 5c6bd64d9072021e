"""Exact computations on small chains of the lazy grid walk, with dense matrices.

A walk on the N^d centres of cells of side γ samples F = e^{−f}, with exponent f. It stays with probability 1/2.
Otherwise it proposes a neighbour along ±e_i (1/(4d) each), stays if the neighbour is outside the box, and accepts with
probability min(1, F(y)/F(x)). A uniform point θ of the final cell is then accepted with probability F(θ)/(e·F(x)), or
the walk restarts (Bassily, Smith & Thakurta, FOCS 2014, after Applegate & Kannan, STOC 1991).

The chains verify three statements. (1) An error of at most ζ in the exponent changes the flow min(F_x, F_y)/(4d) and
the masses by factors e^{±ζ}, and the normalisation cancels. The conductance is therefore at least e^{−2ζ} times its
value. (2) The acceptance probability of the last step is at most 1 only if α·γ/2 + 2ζ ≤ 1. (3) If a chain is within ξ
of its stationary distribution in Dist_∞ = sup |log(p/q)|, the output is within 2ζ + 2ξ of its distribution. The
certified number of steps is infeasible. The exact samplers of `cells` replace the walk, which has no certificate.
"""

from __future__ import annotations

from math import ceil, exp, log
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError

_MOST_STATES = 4096
_MOST_CUT = 16


class Walk(NamedTuple):
    """Markov chain of a grid walk.

    Attributes:
        matrix: transition probabilities, (n, n).
        stationary: stationary distribution ∝ e^{−exponent}, (n,).
        shape: shape of the grid of states, (N, …, N).
    """

    matrix: Array
    stationary: Array
    shape: tuple[int, ...]


def walk(exponent: Array) -> Walk:
    """Build the chain of an exponent at the centres of the cells, an array with one axis for each dimension."""
    shape, n = exponent.shape, exponent.size
    if not exponent.ndim or n > _MOST_STATES:
        raise InputError(f"exponent: too many states (got {n}, expected 1 to {_MOST_STATES}). Fix: use fewer cells.")
    f = exponent.reshape(-1)
    stationary = np.exp(f.min() - f)
    stationary /= stationary.sum()
    matrix, numbers = np.zeros((n, n)), np.arange(n).reshape(shape)
    for axis in range(exponent.ndim):
        lower = np.take(numbers, range(shape[axis] - 1), axis=axis).reshape(-1)
        upper = np.take(numbers, range(1, shape[axis]), axis=axis).reshape(-1)
        for source, target in ((lower, upper), (upper, lower)):
            matrix[source, target] = np.exp(np.minimum(0.0, f[source] - f[target])) / (4.0 * exponent.ndim)
    matrix[np.arange(n), np.arange(n)] = 1.0 - matrix.sum(axis=1)
    return Walk(matrix, stationary, shape)


def distance(p: Array, q: Array) -> float:
    """Compute Dist_∞ = sup |log(p/q)|, +inf if the supports differ."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(np.log(p) - np.log(q))
    return float(np.where(p == q, 0.0, ratio).max())


def mixing_time(chain: Walk, xi: float) -> int:
    """Return the fewest steps after which the chain is within ξ of its stationary distribution from every start.

    Args:
        chain: chain of the walk.
        xi: ξ, in Dist_∞.

    Raises:
        InputError: 2⁴⁰ steps are not enough.
    """
    powers = [chain.matrix]
    while distance(powers[-1], np.broadcast_to(chain.stationary, chain.matrix.shape)) > xi:
        if len(powers) > 40:
            raise InputError(f"xi: the chain does not mix within 2^40 steps (got {xi:g}). Fix: use a larger xi.")
        powers.append(powers[-1] @ powers[-1])
    # The distance does not increase, so a binary search over the bits of the number of steps is exact.
    taken, reached = 0, np.eye(len(chain.stationary))
    for k in range(len(powers) - 2, -1, -1):
        product = reached @ powers[k]
        if distance(product, np.broadcast_to(chain.stationary, product.shape)) > xi:
            taken, reached = taken + 2**k, product
    return taken + 1


def conductance(chain: Walk) -> float:
    """Compute the minimum over all sets S of (flow from S to Sᶜ)/min(π(S), π(Sᶜ)), for at most 16 states."""
    n = len(chain.stationary)
    if n > _MOST_CUT:
        raise InputError(f"conductance: too many states to enumerate all sets (got {n}, expected at most {_MOST_CUT}).")
    members = (np.arange(1, 2**n - 1)[:, None] >> np.arange(n) & 1).astype(np.float64)
    flow = chain.stationary[:, None] * chain.matrix
    out = np.einsum("si,ij,sj->s", members, flow, 1.0 - members, optimize=True)
    mass = members @ chain.stationary
    return float((out / np.minimum(mass, 1.0 - mass)).min())


def output_distribution(start: Array, exponent: Array, fine: Array) -> Array:
    """Compute the distribution of the output over k candidates in each of n cells, (n, k).

    Args:
        start: distribution of the final cell, (n,).
        exponent: exponent at the centres, (n,).
        fine: exponent at the candidates, (n, k).

    Raises:
        InputError: an acceptance probability of the last step exceeds 1.
    """
    acceptance = np.exp(exponent[:, None] - fine - 1.0)
    if float(acceptance.max()) > 1.0:
        raise InputError(
            f"exponent: the acceptance probability exceeds 1 (got {acceptance.max():.3g}). Fix: use smaller cells, so "
            "that alpha·gamma/2 + 2·zeta ≤ 1."
        )
    out = start[:, None] * acceptance
    return np.asarray(out / out.sum())


def certified_steps(side: float, alpha: float, gamma: float, dimension: int, xi: float, zeta: float = 0.0) -> int:
    """Compute the number of steps at which the conductance bound proves Dist_∞ ≤ ξ.

    It is (ατ)² d³ e^{4ζ + 2ξ}·256/ξ² times a logarithm.

    Args:
        side: τ, side of the cube.
        alpha: α, Lipschitz constant of the exponent in the infinity norm.
        gamma: γ, side of a cell.
        dimension: d.
        xi: ξ.
        zeta: ζ, error of the exponent.
    """
    size = alpha * side
    logs = size + 2.0 * zeta + dimension * log(side / gamma) + log(1.0 / xi)
    return 1 + ceil(256.0 * exp(4.0 * zeta + 2.0 * xi) * size**2 * dimension**3 / xi**2 * logs)
