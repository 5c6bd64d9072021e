"""What float64 adds to a budget seen from inside the network: a bound, beside the exact price in real arithmetic.

Messages are ṽ = g·(rint(public/g) + rint(private/g) + rint(N s/g)), on the grid g of `prices`. With z the same but for
the last rounding, z = g·(rint(public/g) + rint(private/g)) + s N, ṽ is z rounded to the grid, and what an observer O
sees is a function of the path of z outside O and of O's own noise. Given the past of z, the mean of z_{i,t+1} differs
from what real arithmetic makes of that past by at most D_{i,t+1} in a coordinate, and √d D_{i,t+1} + E_{i,t} in norm:

    D_{i,t+1} = o·g_{i,t+1} + Σ_j |A_ij,t| r_{j,t} + φ_t,   r_{j,t} = g_{j,t}/2 outside O, and D_{j,t} + g_{j,t}/2 in O

(its own two roundings, o = 1, or 3/2 if the private one is tossed; those of what it received, what float64 adds to the
public part; E is what summing and clipping add, `summation_slack`). Both laws of the path are chains of Gaussian
kernels of the same variance, hence (adaptive composition) a pair with at most

    ν² = Σ_{t, i∉O} (√d D_{i,t+1} + E_{i,t})²/s_{i,t+1}²,

and the views in two neighbouring worlds are a pair with at most μ + 2ν: float64 to real, real to real, real to float64
(group privacy; Dong, Roth & Su, "Gaussian differential privacy", J. R. Stat. Soc. B, 2022).

All noise counts here, not the victim's alone, and float64 draws it not quite normally. With n draws the laws of both
worlds lie within e^{±σ/2} of the ideal ones but for δ_n (`float_slack.noise_alone`), so that

    δ(ε' + σ) ≤ δ_n + e^{σ/2} (δ'(ε') + e^{ε'} δ_n).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.accounting.float_slack import noise_alone
from decentral_dp.privacy.mechanisms import GAUSSIAN

# No normal variate of float64 is larger, and of real ones one in 10^440.
_LARGEST_VARIATE = 45.0


class Sent(NamedTuple):
    """What the messages are computed from.

    mixing: W, (m, m). share, contraction: k and c, (T,), of A_t = k_t (I + W) − c_t I. noise: s, (T, m). dimension: d.
    summed: E, (T, m). start: sup |ṽ_0|. added: (T,) the most that a round adds to a coordinate, noise aside.
    """

    mixing: Array
    share: Array
    contraction: Array
    noise: Array
    dimension: int
    summed: Array
    start: float
    added: Array


def rounding(sent: Sent, observers: tuple[tuple[int, ...], ...]) -> Array:
    """ν of each observer, (o,); +inf where messages may outgrow their noise so far that they leave its grid."""
    rounds, m = sent.noise.shape
    cells, identity = GAUSSIAN.grid(sent.noise, sent.dimension), np.eye(m)
    own = 1.5 if GAUSSIAN.rounds_at_random(sent.dimension) else 1.0
    terms = 16.0 + float((sent.mixing != 0.0).sum(axis=1).max())
    inside = np.zeros((len(observers), m), dtype=np.bool_)
    for row, members in enumerate(observers):
        inside[row, list(members)] = True
    reach, total, largest = np.zeros((len(observers), m)), np.zeros(len(observers)), sent.start
    for t in range(rounds):
        step = np.abs(sent.share[t] * (identity + sent.mixing) - sent.contraction[t] * identity)
        # Before anything cancels: the terms of k_t (I + W) and of c_t I one by one.
        passed = (float((identity + np.abs(sent.mixing)).sum(axis=1).max()) + sent.contraction[t]) * largest
        computed = 2.0**-53 * terms * (passed + float(sent.added[t]))
        off = own * cells[t] + reach @ step.T + computed
        total += np.where(inside, 0.0, ((np.sqrt(sent.dimension) * off + sent.summed[t]) / sent.noise[t]) ** 2).sum(
            axis=1
        )
        reach = 0.5 * cells[t] + np.where(inside, off, 0.0)
        grown = float(step.sum(axis=1).max()) * largest + float(sent.added[t]) + computed
        largest = grown + float((_LARGEST_VARIATE * sent.noise[t] + 2.0 * cells[t]).max())
        if not largest < 2.0**52 * cells[t].min():
            return np.full(len(observers), np.inf)
    return np.sqrt(total)


def certified_epsilon(
    mu: Array, nu: Array, draws: NDArray[np.int64], dimension: int, delta: float, every: Array
) -> Array:
    """Compute the ε that holds for float64 messages.

    Args:
        mu: (o, m) exact, NaN (and so is the result) where the victim is a member of the observer.
        nu: (o,) the bound of `rounding`.
        draws: (o,) how many normal variates were drawn outside the observer.
        dimension: of a message.
        delta: δ.
        every: (m,) ε against an observer of every message.

    Returns:
        (o, m) ε, never more than `every`.
    """
    half, lost = (v[:, None] for v in noise_alone(draws, GAUSSIAN.bits(dimension)))
    sigma = 2.0 * half
    with np.errstate(over="ignore"):
        left = (delta - lost) * np.exp(-0.5 * sigma) - np.exp(np.minimum(every, 700.0)) * lost
    inside = np.isnan(mu)
    distance = np.where(inside, 0.0, mu) + 2.0 * nu[:, None]
    found = gaussian_epsilon(distance, np.maximum(left, 0.0)) + sigma
    return np.where(inside, np.nan, np.minimum(found, every))
