"""Network DP of training, where gradients depend on hidden states.

Round t maps the messages m_{t−1} of all agents to m_{i,t} = Φ_{i,t}(m_{t−1}) + z_{i,t}, z ~ N(0, s²_{i,t} I)
independent. For unchanged data sets

    ‖Φ_{i,t}(m) − Φ_{i,t}(m')‖ ≤ Σ_j R_{t,ij} ‖m_j − m'_j‖,

and the replaced record of agent v moves v's own noiseless message of round t by at most D_t. An observer O that sees
the messages of the agents S_t ⊇ O of round t has at most the view of a Gaussian pair with

    μ² = min over d ≥ 0, d_{i,t} = 0 on S_t:   Σ_{t,i} (R_t d_{t−1} + D_t e_v − d_t)²_{i,+} / s²_{i,t},     d_{−1} = 0.

d_{i,t} is the distance of the messages of agent i in two coupled runs, and a shift of that agent's noise removes the
excess. Every d ≥ 0 that is 0 on S_t gives a bound. It is evaluated at the d of the solver with every rounding upwards,
so the solver need not be trusted. d = 0 gives μ of all messages.

Noise of 0 cannot be shifted: if s_{i,t} = 0, then d_{i,t} = (R_t d_{t−1} + D_t e_v)_i. The message of an agent that
does not send in a round stays: row i of R_t is e_i, and s_{i,t} = D_{t,i} = 0.

With d of any sign and R the mixing weights this is μ of linear gossip, which is no bound for training.

Proofs in docs/proofs/37 and 38, with the Lipschitz factors of steps: see `step_factor`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solveh_banded

from decentral_dp.bounded import Array

# (Which d may be positive, right side) → (d, gradient of the sum).
_Solver = Callable[[NDArray[np.bool_], Array], tuple[Array, Array]]
# Exchanges of variables between zero and positive.
_PIVOTS = 40
# Fraction of the smallest noise that the solver uses instead of none; bounds are evaluated without it.
_SOLVER_NOISE = 2.0**-10
# Largest relative error of one operation in float64.
_UNIT = 2.0**-53


class Coupled(NamedTuple):
    """The public numbers of T rounds among m agents.

    Args:
        factors: R, T arrays (m, m): Lipschitz factors from the message of j to that of i, in l2.
        noise: s, (T, m) standard deviations; 0 without noise; +inf at members of the observer.
        observed: S, (T, m) whether the observer sees the message.
        rounding: (T, m) addition by float64 to the l2 distance of two noiseless messages.

    References:
        docs/proofs/37.
    """

    factors: Sequence[Array]
    noise: Array
    observed: NDArray[np.bool_]
    rounding: Array


def step_factor(weight: float | Array, curvature: float, step: float, ridge: float, scalar: bool) -> float | Array:
    """Bound ‖(w − ηm) I − η J‖ for a step of length η on records of clipped gradients J and a ridge m outside the clip.

        scalar gradients φ'(aᵀy) a:      max(|w − ηm|, |w − ηm − ηL|)
        any convex loss, ηL ≤ 2u:        u (1 − ηL/(4u))^(−1/2),    u = w − ηm
        else                             |u| + ηL

    Args:
        weight: w, of the point.
        curvature: L, the largest curvature of a record's loss.
        step: η.
        ridge: m.
        scalar: whether every record's gradient is φ'(aᵀy) a with φ convex, as for logistic, squared and Huber losses.

    Returns:
        The bound, with the shape of `weight`.

    References:
        Proof in docs/proofs/38.

    Example:
        >>> round(step_factor(1.0, 1.0, 0.5, 0.0, scalar=True), 12)
        1.0
        >>> round(float(step_factor(1.0, 1.0, 0.5, 0.0, scalar=False)), 4)
        1.069
    """
    kept_weight, scaled_curvature = np.asarray(weight, dtype=np.float64) - step * ridge, step * curvature
    if scalar:
        bound = np.maximum(np.abs(kept_weight), np.abs(kept_weight - scaled_curvature))
    else:
        positive = np.where(kept_weight > 0.0, kept_weight, 1.0)
        convex = positive / np.sqrt(1.0 - np.minimum(scaled_curvature / (4.0 * positive), 0.5))
        bound = np.where(scaled_curvature <= 2.0 * kept_weight, convex, np.abs(kept_weight) + scaled_curvature)
    # Rounded up.
    upwards = np.asarray(bound * (1.0 + 16.0 * _UNIT))
    return float(upwards) if upwards.ndim == 0 and np.isscalar(weight) else upwards


def neighbour_mu(coupled: Coupled, victims: Sequence[int] | NDArray[np.int64], shift: Array) -> Array:
    """Compute μ of one record, for each of several agents.

    Args:
        coupled: the rounds.
        victims: agents v, no members of the observer.
        shift: D, (T, m), movement of an agent's noiseless message by its record.

    Returns:
        (len(victims),) bounds in float64; +inf if an observed message has no noise, and may differ.

    Raises:
        ValueError: an adversary does not see one of its inputs.

    Example:
        >>> pull = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3.0
        >>> seen = np.array([[False, True, True]] * 2)
        >>> noise = np.array([[1.0, 1.0, np.inf]] * 2)
        >>> rounds = Coupled([pull, pull], noise, seen, np.zeros((2, 3)))
        >>> neighbour_mu(rounds, [0], np.array([[2.0, 2.0, 2.0], [0.0, 0.0, 0.0]])).round(6).tolist()
        [0.632456]
    """
    hidden, inside = ~coupled.observed, np.isinf(coupled.noise)
    if inside[:, victims].any() or any(
        factors[np.ix_(inside[t + 1], hidden[t])].any() for t, factors in enumerate(coupled.factors[1:])
    ):
        raise ValueError("the victim must be hidden, and an observer must see all its inputs")
    system = _system(coupled._replace(noise=_solver_noise(coupled.noise)))
    return np.array([_smallest_mu(coupled, system, int(victim), shift[:, victim]) for victim in victims])


def _smallest_mu(coupled: Coupled, system: _Solver, victim: int, shift: Array) -> float:
    """Return the smallest bound over all d of the solver."""
    hidden = ~coupled.observed
    best = _mu_at_distances(coupled, victim, shift, np.zeros(hidden.shape))
    cost = shift / np.square(_solver_noise(coupled.noise)[:, victim])
    right = np.zeros(hidden.shape)
    right[:, victim] = cost
    for t, factors in enumerate(coupled.factors[1:]):
        right[t] -= factors[victim] * cost[t + 1]
    free = hidden.copy()
    fewest, patience = np.inf, 3
    for _ in range(_PIVOTS):
        apart, slope = system(free, right)
        best = min(best, _mu_at_distances(coupled, victim, shift, np.maximum(apart, 0.0)))
        largest = max(float(np.abs(apart).max(initial=0.0)), 1e-300)
        wrong = np.where(free, apart < -1e-12 * largest, hidden & (slope < -1e-12 * largest))
        count = int(wrong.sum())
        if not count:
            break
        # Kim & Park 2011: exchange all variables while that helps, then only the last one, which terminates.
        if count < fewest:
            fewest, patience = count, 3
        elif patience:
            patience -= 1
        else:
            last = np.flatnonzero(wrong)[-1]
            wrong = np.zeros_like(wrong)
            wrong.flat[last] = True
        free = free ^ wrong
    return best


def _solver_noise(noise: Array) -> Array:
    """Return s with little noise instead of none."""
    has_noise = noise > 0.0
    return (
        noise
        if has_noise.all()
        else np.where(has_noise, noise, _SOLVER_NOISE * noise.min(where=has_noise, initial=np.inf))
    )


def _mu_at_distances(coupled: Coupled, victim: int, shift: Array, apart: Array) -> float:
    """Return √ of the sum at d, rounded up."""
    terms = apart.shape[1] + 8.0
    before, total = np.zeros(apart.shape[1]), 0.0
    for t, factors in enumerate(coupled.factors):
        arrives = factors @ before + coupled.rounding[t]
        arrives[victim] += shift[t]
        # A sum of m nonnegative products has at most m + 1 relative roundings.
        arrives = arrives * (1.0 + 2.0 * terms * _UNIT)
        noiseless = coupled.noise[t] == 0.0
        if (arrives[noiseless & coupled.observed[t]] > 0.0).any() or np.isinf(arrives[noiseless]).any():
            return np.inf
        before = np.where(noiseless, arrives, apart[t])
        # The inputs of the observer are equal in both data sets, and so are its messages.
        is_noisy = ~noiseless & np.isfinite(coupled.noise[t])
        total += float(np.square(np.maximum(arrives - before, 0.0)[is_noisy] / coupled.noise[t][is_noisy]).sum())
    return float(np.sqrt(total) * (1.0 + 4.0 * (terms + len(coupled.factors)) * _UNIT))


def _system(coupled: Coupled) -> _Solver:
    """Return a solver of least squares in d_{i,t} of hidden agents, by a banded normal matrix."""
    rounds, m = coupled.noise.shape
    weight = 1.0 / np.square(coupled.noise)
    width = 2 * m
    bands = np.zeros((width, rounds * m))
    rows, columns = np.indices((m, m))
    low, column_index = np.tril_indices(m)
    for t in range(rounds):
        block = np.diag(weight[t])
        if t + 1 < rounds:
            ahead = weight[t + 1][:, None] * coupled.factors[t + 1]
            block = block + coupled.factors[t + 1].T @ ahead
            # Rows of the next round below this one.
            bands[m + rows - columns, t * m + columns] = -ahead
        bands[low - column_index, t * m + column_index] = block[low, column_index]

    def solve(free: NDArray[np.bool_], right: Array) -> tuple[Array, Array]:
        chosen = free.ravel()
        masked_bands = bands.copy()
        for below in range(width):
            is_pair = chosen[: chosen.size - below] & chosen[below:]
            masked_bands[below, : is_pair.size] *= is_pair
        masked_bands[0, ~chosen] = 1.0
        try:
            apart = solveh_banded(masked_bands, np.where(chosen, right.ravel(), 0.0), lower=True, check_finite=False)
        except LinAlgError:
            apart = np.zeros(chosen.size)
        apart = np.where(chosen, apart, 0.0)
        slope = _times(bands, apart) - right.ravel()
        return apart.reshape(free.shape), slope.reshape(free.shape)

    return solve


def _times(bands: Array, values: Array) -> Array:
    """Multiply a symmetric banded matrix with a vector."""
    out: Array = bands[0] * values
    for below in range(1, min(len(bands), values.size)):
        line = bands[below, : values.size - below]
        out[below:] += line * values[: values.size - below]
        out[: values.size - below] += line * values[below:]
    return out
