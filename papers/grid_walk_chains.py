"""The lazy grid walk as an object to verify: small chains, exactly, by dense matrices.

A walk on the N^d centres of cells of side γ samples F = e^{−f}, f the exponent: stay with probability 1/2, else propose
a neighbour along ±e_i (1/(4d) each), stay where that leaves the box, and accept with min(1, F(y)/F(x)). Then a uniform
point θ of the cell of x is accepted with F(θ)/(e·F(x)), else all restarts (Bassily, Smith & Thakurta, FOCS 2014, after
Applegate & Kannan, STOC 1991).

Three facts, to be checked by it. With an exponent off by ζ at most, the flow min(F_x, F_y)/(4d) and the masses change
by e^{±ζ} each, normalisation cancels, and so conductance keeps e^{−2ζ} of its value. The last step is a probability
only if α·γ/2 + 2ζ ≤ 1. A chain within ξ of its law in Dist_∞ = sup |log(p/q)| gives points within 2ζ + 2ξ of theirs.
The certified number of steps is too large for use: the exact samplers of `cells` take its
place, and what is drawn by walking is never certified here.
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
    """matrix: (n, n) transition probabilities. law: (n,) what it keeps, ∝ e^{−exponent}. shape: (N, …, N) of states."""

    matrix: Array
    law: Array
    shape: tuple[int, ...]


def walk(exponent: Array) -> Walk:
    """The chain of an exponent given at the cells' centres, an array with one axis for each dimension."""
    shape, n = exponent.shape, exponent.size
    if not exponent.ndim or n > _MOST_STATES:
        raise InputError(f"exponent: got {n} states, wanted 1 to {_MOST_STATES}; take fewer cells, to be exact.")
    f = exponent.reshape(-1)
    law = np.exp(f.min() - f)
    law /= law.sum()
    matrix, numbers = np.zeros((n, n)), np.arange(n).reshape(shape)
    for axis in range(exponent.ndim):
        lower = np.take(numbers, range(shape[axis] - 1), axis=axis).reshape(-1)
        upper = np.take(numbers, range(1, shape[axis]), axis=axis).reshape(-1)
        for here, there in ((lower, upper), (upper, lower)):
            matrix[here, there] = np.exp(np.minimum(0.0, f[here] - f[there])) / (4.0 * exponent.ndim)
    matrix[np.arange(n), np.arange(n)] = 1.0 - matrix.sum(axis=1)
    return Walk(matrix, law, shape)


def distance(p: Array, q: Array) -> float:
    """Dist_∞ = sup |log(p/q)|; +inf where one has mass and the other none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(np.log(p) - np.log(q))
    return float(np.where(p == q, 0.0, ratio).max())


def steps(chain: Walk, xi: float) -> int:
    """The fewest steps after which the law from every start is within ξ of the kept one in Dist_∞.

    Args:
        chain: chain of the walk.
        xi: ξ.

    Raises:
        InputError: not even 2⁴⁰ steps are enough.
    """
    powers = [chain.matrix]
    while distance(powers[-1], np.broadcast_to(chain.law, chain.matrix.shape)) > xi:
        if len(powers) > 40:
            raise InputError(f"steps: got a chain that is not within {xi:g} after 2^40 steps, wanted a faster one.")
        powers.append(powers[-1] @ powers[-1])
    # The distance never grows: the last power of two before it is reached, then its bits.
    taken, reached = 0, np.eye(len(chain.law))
    for k in range(len(powers) - 2, -1, -1):
        further = reached @ powers[k]
        if distance(further, np.broadcast_to(chain.law, further.shape)) > xi:
            taken, reached = taken + 2**k, further
    return taken + 1


def conductance(chain: Walk) -> float:
    """min over sets S of (flow from S to its complement)/min(π(S), π(Sᶜ)), over all sets of a chain of 16 states."""
    n = len(chain.law)
    if n > _MOST_CUT:
        raise InputError(f"conductance: got {n} states, wanted {_MOST_CUT} or fewer; all sets of them are tried.")
    members = (np.arange(1, 2**n - 1)[:, None] >> np.arange(n) & 1).astype(np.float64)
    flow = chain.law[:, None] * chain.matrix
    out = np.einsum("si,ij,sj->s", members, flow, 1.0 - members, optimize=True)
    mass = members @ chain.law
    return float((out / np.minimum(mass, 1.0 - mass)).min())


def output(start: Array, exponent: Array, fine: Array) -> Array:
    """Return the distribution of output points, (n, k): states drawn from `start` (n,), k candidates θ in each cell.

    exponent: (n,) at the centres. fine: (n, k) at the candidates. Raises InputError where the last step has no law.
    """
    kept = np.exp(exponent[:, None] - fine - 1.0)
    if float(kept.max()) > 1.0:
        raise InputError(
            f"grid walk: got an acceptance of {kept.max():.3g}, wanted 1 or less; take smaller cells, so that "
            "alpha·gamma/2 + 2·zeta ≤ 1."
        )
    out = start[:, None] * kept
    return np.asarray(out / out.sum())


def certified_steps(side: float, alpha: float, gamma: float, dimension: int, xi: float, zeta: float = 0.0) -> int:
    """Compute after how many steps the conductance bound proves Dist_∞ ≤ ξ: (ατ)² d³ e^{4ζ + 2ξ}·256/ξ² times a log.

    Args:
        side: τ, of the cube.
        alpha: α, Lipschitz constant of the exponent in the infinity norm.
        gamma: γ, side of a cell.
        dimension: d.
        xi: ξ.
        zeta: ζ, error of the exponent; default 0.
    """
    size = alpha * side
    logs = size + 2.0 * zeta + dimension * log(side / gamma) + log(1.0 / xi)
    return 1 + ceil(256.0 * exp(4.0 * zeta + 2.0 * xi) * size**2 * dimension**3 / xi**2 * logs)


def price(epsilon: float, zeta: float, xi: float) -> float:
    """Compute ε + 2(2ζ + 2ξ), the privacy cost of a walk within ξ of its distribution; ξ is not feasible in runs.

    Args:
        epsilon: ε of the law.
        zeta: ζ, how far scores are off.
        xi: ξ.
    """
    return epsilon + 4.0 * (zeta + xi)
