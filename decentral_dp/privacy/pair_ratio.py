"""How much of their noise neighbours share: what errs least in gossip, at one price.

Noise of covariance Σ over agents in every message, x_{t+1} = A(x_t − n_t) with mixing weights A, leaves in the models
of round t the covariance Σ_{k=1}^t A^k Σ (A^k)ᵀ. Their mean square error over rounds and agents is tr(MΣ),

    M = (1/mT) Σ_{k=1}^T (T − k + 1) (A^k)ᵀ A^k.

With Σ = σ²(I + r² L), L the Laplacian of the links, that is σ²(tr M + r² tr(ML)), to be divided by the square of the
effective scale. No covariance of effective scales of at least 1, without colluders, errs less than (tr M^(1/2))²/m.

With a scale of each agent and of each link the error is linear in their squares, and every [Σ⁻¹]_vv convex.

Proof in docs/proofs/40.
"""

from __future__ import annotations

import numpy as np
import scipy
from scipy.sparse import csr_matrix, triu

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.correlated_noise import effective_scale

# Ratios beyond these gain nothing that float64 could show.
LEAST, MOST = 1e-3, 1e3
# In place of the largest of several numbers their norms of these powers, one after the other, which have slopes.
_POWERS = (50.0, 500.0, 5000.0)


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
    found = scipy.optimize.minimize_scalar(
        error, bounds=(np.log(LEAST), np.log(MOST)), method="bounded", options={"xatol": 1e-3}
    )
    return float(np.exp(found.x))


def best_scales(mixed: Array, links: csr_matrix, rounds: int) -> tuple[Array, csr_matrix]:
    """Find scales of each agent and each link that err least where nobody colludes, every effective scale at least 1.

    Args:
        mixed: A, (m, m).
        links: (m, m), 1 where two agents share noise.
        rounds: T.

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
    signs = np.eye(m)[:, upper.row] - np.eye(m)[:, upper.col]
    cost = np.concatenate([np.diagonal(weights), ((weights @ signs) * signs).sum(axis=0)])

    def error(logs: Array, power: float) -> tuple[float, Array]:
        squares = np.exp(logs)
        inverse = np.linalg.inv(np.diag(squares[:m]) + signs * squares[m:] @ signs.T)
        spent, total = np.diagonal(inverse), float(cost @ squares)
        share = (spent / spent.max()) ** (power - 1.0)
        slopes = np.concatenate([np.square(inverse), np.square(signs.T @ inverse)]) @ share
        lost = float(share @ spent)
        largest = total * lost ** (1.0 / power) * spent.max() ** (1.0 - 1.0 / power)
        return np.log(largest), squares * (cost / total - slopes / lost)

    logs = np.repeat([0.0, 2.0 * np.log(best_ratio(mixed, links, rounds, 0))], [m, upper.nnz])
    bounds = [(2.0 * np.log(LEAST), 2.0 * np.log(MOST))] * logs.size
    for power in _POWERS:
        logs = scipy.optimize.minimize(error, logs, (power,), jac=True, method="L-BFGS-B", bounds=bounds).x
    scales = np.exp(0.5 * logs)
    shared = csr_matrix((scales[m:], (upper.row, upper.col)), shape=links.shape)
    pair = csr_matrix(shared + shared.T)
    least = effective_scale(scales[:m], pair, 0).min()
    return scales[:m] / least, pair / least
