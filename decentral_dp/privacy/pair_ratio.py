"""How much of their noise neighbours share: what errs least in gossip, at one price.

Noise of covariance Σ over agents in every message, x_{t+1} = A(x_t − n_t) with mixing weights A, leaves in the models
of round t the covariance Σ_{k=1}^t A^k Σ (A^k)ᵀ. Their mean square error over rounds and agents is tr(MΣ),

    M = (1/mT) Σ_{k=1}^T (T − k + 1) (A^k)ᵀ A^k.

With Σ = σ²(I + r² L), L the Laplacian of the links, that is σ²(tr M + r² tr(ML)), to be divided by the square of the
effective scale. No covariance of effective scales of at least 1, without colluders, errs less than (tr M^(1/2))²/m.

With a scale of each agent and of each link the error is linear in their squares, and every [Σ_Q⁻¹]_vv convex.

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
# Of an agent's own noise beside what it is priced at, so that something is left where more collude than was supposed.
_LEAST_OWN = 0.25
# In place of the largest of several numbers their norms of these powers, one after the other, which have slopes.
_POWERS = (50.0, 500.0, 5000.0)
_STEPS = 100


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
            error, logs, (power,), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS}
        )
        logs = minimum.x
    scales = np.exp(0.5 * logs)
    shared = csr_matrix((scales[m:], (i, j)), shape=links.shape)
    own, pair = scales[:m], csr_matrix(shared + shared.T)
    own = np.maximum(own, _LEAST_OWN * effective_scale(own, pair, colluders).min())
    least = effective_scale(own, pair, colluders).min()
    return own / least, pair / least
