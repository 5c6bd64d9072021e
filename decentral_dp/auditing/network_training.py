"""Prices against curious neighbours in training, where gradients depend on hidden states.

Round t maps the messages m_{t−1} of all agents to m_{i,t} = Φ_{i,t}(m_{t−1}) + z_{i,t}, z ~ N(0, s²_{i,t} I)
independent. For the unchanged data sets

    ‖Φ_{i,t}(m) − Φ_{i,t}(m')‖ ≤ Σ_j R_{t,ij} ‖m_j − m'_j‖,

and the replaced record of agent v moves v's own noiseless message of round t by at most D_t. An observer O that sees
the messages of the agents S_t ⊇ O of round t learns no more than a Gaussian pair with

    μ² = min over d ≥ 0, d_{i,t} = 0 on S_t:   Σ_{t,i} (R_t d_{t−1} + D_t e_v − d_t)²_{i,+} / s²_{i,t},     d_{−1} = 0.

d_{i,t} is how far the messages of agent i may be apart in two coupled runs; what exceeds it is taken away by a shift
of that agent's noise. Every d ≥ 0 that is 0 on S_t gives a valid price: what is printed is evaluated at the d that was
found, with every rounding upwards, so that no solver is trusted. d = 0 is the price against who sees every message.

Noise of 0 cannot be shifted: where s_{i,t} = 0, d_{i,t} is all of (R_t d_{t−1} + D_t e_v)_i. An agent that
does not send in a round holds the message that it sent last: row i of R_t is e_i, and s_{i,t} = D_{t,i} = 0.

With d of any sign and R the mixing weights this is the price of linear gossip, which is no bound for training.

Proofs in docs/proofs/37 and 38. The Lipschitz factors of the steps of this package are there, too: see `step_factor`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solveh_banded

from decentral_dp.bounded import Array

# Where d may be above 0, and the right side → d, and the slope of the sum.
_Solver = Callable[[NDArray[np.bool_], Array], tuple[Array, Array]]
# Exchanges of variables between zero and positive; then the best price so far is taken.
_PIVOTS = 40
# Of the least noise, what the solver takes in place of none; prices are evaluated without it.
_SOLVER_NOISE = 2.0**-10
# Of float64, the largest relative error of one operation.
_UNIT = 2.0**-53


class Coupled(NamedTuple):
    """What is public of T rounds among m agents.

    Args:
        factors: R, T arrays (m, m): by how much at most the l2 distance of two messages of j grows in that of i.
        noise: s, (T, m) standard deviations; 0 where a message is made without noise; +inf at members of the observer,
            whose noise hides nothing from it.
        observed: S, (T, m) whether the observer sees the message.
        rounding: (T, m) what float64 adds to the l2 distance of two noiseless messages.

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
        weight: w, the weight of the point itself.
        curvature: L, the largest curvature of a record's loss.
        step: η.
        ridge: m.
        scalar: whether every record's gradient is φ'(aᵀy) a with φ convex, such as those of logistic, squared, Huber.

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
    left, scaled = np.asarray(weight, dtype=np.float64) - step * ridge, step * curvature
    if scalar:
        bound = np.maximum(np.abs(left), np.abs(left - scaled))
    else:
        positive = np.where(left > 0.0, left, 1.0)
        convex = positive / np.sqrt(1.0 - np.minimum(scaled / (4.0 * positive), 0.5))
        bound = np.where(scaled <= 2.0 * left, convex, np.abs(left) + scaled)
    # A few operations, each of which may round down.
    upwards = np.asarray(bound * (1.0 + 16.0 * _UNIT))
    return float(upwards) if upwards.ndim == 0 and np.isscalar(weight) else upwards


def neighbour_mu(coupled: Coupled, victims: Sequence[int] | NDArray[np.int64], shift: Array) -> Array:
    """Compute μ of one record of one agent, for each of several.

    Args:
        coupled: the rounds.
        victims: agents v, no members of the observer.
        shift: D, (T, m), how far a record moves its agent's noiseless message.

    Returns:
        (len(victims),) prices that hold in float64; +inf where a message that is seen has no noise, and may differ.

    Raises:
        ValueError: an observer that goes on from a message that it does not see.

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
        raise ValueError("the victim is no observer, and an observer sees every message that it goes on from")
    system = _system(coupled._replace(noise=_solver_noise(coupled.noise)))
    return np.array([_least_price(coupled, system, int(victim), shift[:, victim]) for victim in victims])


def _least_price(coupled: Coupled, system: _Solver, victim: int, shift: Array) -> float:
    """The least price that was found; the price at every d that was tried is one."""
    hidden = ~coupled.observed
    best = _price_at(coupled, victim, shift, np.zeros(hidden.shape))
    paid = shift / np.square(_solver_noise(coupled.noise)[:, victim])
    right = np.zeros(hidden.shape)
    right[:, victim] = paid
    for t, factors in enumerate(coupled.factors[1:]):
        right[t] -= factors[victim] * paid[t + 1]
    free = hidden.copy()
    fewest, patience = np.inf, 3
    for _ in range(_PIVOTS):
        apart, slope = system(free, right)
        best = min(best, _price_at(coupled, victim, shift, np.maximum(apart, 0.0)))
        largest = max(float(np.abs(apart).max(initial=0.0)), 1e-300)
        wrong = np.where(free, apart < -1e-12 * largest, hidden & (slope < -1e-12 * largest))
        count = int(wrong.sum())
        if not count:
            break
        # Kim & Park 2011: all at once while that helps, then the last one alone, which ends.
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
    """s with little noise where there is none."""
    drawn = noise > 0.0
    return noise if drawn.all() else np.where(drawn, noise, _SOLVER_NOISE * noise.min(where=drawn, initial=np.inf))


def _price_at(coupled: Coupled, victim: int, shift: Array, apart: Array) -> float:
    """√ of the sum at d, every rounding upwards."""
    terms = apart.shape[1] + 8.0
    before, total = np.zeros(apart.shape[1]), 0.0
    for t, factors in enumerate(coupled.factors):
        arrives = factors @ before + coupled.rounding[t]
        arrives[victim] += shift[t]
        # A sum of m products that are at least 0 is off by at most m + 1 roundings of itself.
        arrives = arrives * (1.0 + 2.0 * terms * _UNIT)
        noiseless = coupled.noise[t] == 0.0
        if (arrives[noiseless & coupled.observed[t]] > 0.0).any() or np.isinf(arrives[noiseless]).any():
            return np.inf
        before = np.where(noiseless, arrives, apart[t])
        # An observer's inputs are equal in both data sets, and so is what it computes.
        paid = ~noiseless & np.isfinite(coupled.noise[t])
        total += float(np.square(np.maximum(arrives - before, 0.0)[paid] / coupled.noise[t][paid]).sum())
    return float(np.sqrt(total) * (1.0 + 4.0 * (terms + len(coupled.factors)) * _UNIT))


def _system(coupled: Coupled) -> _Solver:
    """Least squares in d_{i,t} of i outside the observer, one block for each round, as a banded normal matrix."""
    rounds, m = coupled.noise.shape
    weight = 1.0 / np.square(coupled.noise)
    width = 2 * m
    bands = np.zeros((width, rounds * m))
    rows, columns = np.indices((m, m))
    low, left = np.tril_indices(m)
    for t in range(rounds):
        block = np.diag(weight[t])
        if t + 1 < rounds:
            ahead = weight[t + 1][:, None] * coupled.factors[t + 1]
            block = block + coupled.factors[t + 1].T @ ahead
            # Rows of the next round below this one.
            bands[m + rows - columns, t * m + columns] = -ahead
        bands[low - left, t * m + left] = block[low, left]

    def solve(free: NDArray[np.bool_], right: Array) -> tuple[Array, Array]:
        chosen = free.ravel()
        masked = bands.copy()
        for below in range(width):
            both = chosen[: chosen.size - below] & chosen[below:]
            masked[below, : both.size] *= both
        masked[0, ~chosen] = 1.0
        try:
            apart = solveh_banded(masked, np.where(chosen, right.ravel(), 0.0), lower=True, check_finite=False)
        except LinAlgError:
            apart = np.zeros(chosen.size)
        apart = np.where(chosen, apart, 0.0)
        slope = _times(bands, apart) - right.ravel()
        return apart.reshape(free.shape), slope.reshape(free.shape)

    return solve


def _times(bands: Array, values: Array) -> Array:
    """The symmetric banded matrix times a vector."""
    out: Array = bands[0] * values
    for below in range(1, min(len(bands), values.size)):
        line = bands[below, : values.size - below]
        out[below:] += line * values[: values.size - below]
        out[: values.size - below] += line * values[below:]
    return out
