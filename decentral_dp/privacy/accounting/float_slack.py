"""Slack of float64 samplers: bounds on the amounts that they add to the (ε, δ) of ideal samplers.

The real distribution of one coordinate's noise n is p̂ = p·(1 + η), with the ideal p. The η are measured: for Laplace
by an exact enumeration of the sampler at fewer bits, extrapolated; for Gaussian noise by counting mantissas of single
atoms.

    Laplace   η ≤ 1e-15·max(1, e^{|n|/ν − 7.7}) up to 36 ν, another distribution beyond:
              ε + 2e-15·d,   δ + 1.3e-16·(2d + e^ε − 1)
    Gaussian  |η| ≤ h = u·max(10, e^{k(|n|/σ − k)}), k = 3.7, u = 2^(bits − 51) with the bits of the grid
              (`mechanisms`), up to 10 standard deviations σ; beyond, p̂ has up to twice the ideal mass, and is bounded

Consider any number of adaptive Gaussian releases, on batches or not, with N coordinates in total. Let p° be p̂ up to cσ
and p beyond, and P̂, P°, P (Q̂, Q°, Q) the distributions of transcripts of one data set (of a neighbouring one). Batch
sizes, other records in batches, and rounding may be public; a record's own Bernoulli draw is secret. As
(1 − xy)₊ ≤ (1 − x)₊ + (1 − y)₊,

    (P̂ − e^{ε+a+b} Q̂)₊ ≤ (P̂ − P°)₊ + P°(1 − Q̂/Q°)₊ + (P° − e^a P)₊ + e^a (P − e^ε Q)₊ + e^{a+ε} (Q − e^b Q°)₊,
    δ̂(ε + a + b) ≤ τ + δ_a + e^a δ(ε) + e^{a+ε} δ_b.

In the tails (τ), both terms add up over coordinates: (1 − Πx)₊ ≤ Σ(1 − x)₊. The first is at most F(0) each, with

    F(v) = ∫_{|y|>c} h(y) φ(y − v) dy = u e^{−k²/2} (e^{kv} Φ(v + k − c) + e^{−kv} Φ(−v + k − c)) + what is beyond 10.

In the second, y comes from P and is evaluated under Q. A release on a batch is a mixture over the record's draw in both
data sets, so Q̂/Q° is a mean of at most two products, of centres no further than the release's μ (in σ) from that of y.
F(√v) − F(0) over v grows, so that the sum over coordinates shifted by v_i, Σ v_i² ≤ μ², is at most d F(0) + F(μ):

    τ ≤ Σ over releases of 3 d F(0) + 2 F(μ),   times 1.1 for the grid's cells, and masses of p° that are not one.

In the middle (a, b, δ_a, δ_b) P° and P differ in the noise only: given all draws, P°/P is a product of 1 + η̃(n_i) with
n_i fresh from p, |η̃| ≤ h up to c, |E_p η̃| ≤ F(0). In the worst case, with c where h exceeds 10 u,

    a = b = −N log(1 − 10 u),   δ_a = δ_b = 0,

With high probability, (e^x − e^a)₊ ≤ e^{(1+λ)x − λa} λ^λ/(1 + λ)^{1+λ}, and moments 1 + λ of P°/P and −λ of Q°/Q, by
Taylor, lead to

    log δ_a ≤ X − λa,   log δ_b ≤ X − λb,   X = N((1+λ) F(0) + λ(1+λ)/2·V) + λ log λ − (1+λ) log(1+λ),
    V = E h² e^{(λ+2) h/(1−h)} ≤ (10 u)² t(10 u) + 2 u² Σ_j (Φ(c_j − 2k) − Φ(c_{j+1} − 2k)) t(h(c_j)),

t(h) = e^{(λ+2) h/(1−h)}, c = c_0 > c_1 > …, for any λ ≥ 1 and c on each side: a ≈ 10 u √(2 N log 1/δ_a). The share of δ
that is spent is fixed, so that either bound grows with the releases and does not depend on their order or channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from decentral_dp.bounded import Array

IntArray = NDArray[np.int64]

_K, _BULK, _END = 3.7, 10.0, 10.0
# Shifts: multiples of 1/8, rounded up; the last is for all shifts above 8, for which there is no bound.
_SENSITIVITIES = np.arange(1, 66) / 8.0
# Shares of δ for bounds with high probability: one with little effect on ε, and one for ε that depend on the slack.
SHARES = (0.02, 0.15)
# Parts of this share for tails under P, under Q, and for each of the two sums.
_OUT_P, _OUT_Q, _MIDDLE = 0.3, 0.6, 0.05
_ORDERS = np.repeat(2.0 ** np.arange(5.0, 31.0, 0.5), 4)[:, None]
# λ h(c): part of a Chernoff bound's exponent for one coordinate.
_LOADS = np.tile([1.0, 3.0, 6.0, 12.0], _ORDERS.size // 4)[:, None]
_LARGEST_HEIGHT = 1.0 / 32.0
# h_j, in units of h(c).
_STEPS = np.exp(-0.25 * np.arange(24.0))
# Probability that the stochastic rounding of one release exceeds the bound of `mechanisms`, in up to three comparisons,
# times e^a.
_COIN = 1e-16


class Slack(NamedTuple):
    """Bounds on the amounts that float64 samplers add to the (ε, δ) of ideal samplers, for each of G groups.

    Attributes:
        epsilon: addition to ε, (G,).
        delta: addition to δ, (G,).
        ratio: bound τ for distributions within factors e^{±τ} of the ideal distributions, (G,); 2τ is part of
            `epsilon`.
        exponent: exponents of bounds b ≤ (exponent + ε)/order on the sum of errors, one bound per row, (K, G).
        order: orders of these bounds, (K, G).
    """

    epsilon: Array
    delta: Array
    ratio: Array
    exponent: Array
    order: Array

    def remaining_delta(self, delta: float) -> Array:
        """Return δ for ideal samplers, (G,), from δ̂ ≤ e^τ δ + slack, or 0 if no row is valid."""
        holds = np.isfinite(self.exponent).any(axis=0)
        return np.where(holds, np.maximum(0.0, delta - self.delta) * np.exp(-self.ratio), 0.0)

    def added_epsilon(self, ideal: Array | float) -> Array:
        """Return the amount to add to an ideal ε, (G,). For a single group, any number of values is accepted."""
        finite = np.where(np.isfinite(ideal), ideal, 0.0)
        return np.asarray(self.epsilon + np.maximum(0.0, ((self.exponent + finite) / self.order).min(axis=0)))

    def total(self, ideal: Array) -> Array:
        """Return ε with slack, (G,), for an ideal ε, (G,), at `remaining_delta`."""
        return np.where(np.isfinite(ideal), ideal + self.added_epsilon(ideal), np.inf)

    def largest(self) -> Slack:
        """Return the elementwise largest slack of all groups, as a single group."""
        epsilon, delta, ratio, exponent = (part.max(axis=-1, keepdims=True) for part in self[:4])
        return Slack(epsilon, delta, ratio, exponent, self.order.min(axis=-1, keepdims=True))


class DrawnVariates(NamedTuple):
    """Numbers of normal variates on one kind of grid, for each group.

    Attributes:
        unit: relative unit u of the grid.
        coordinates: number of coordinates N, (G,).
        sensitivities: numbers of releases with a μ of each size, weighted by their pairs of centres (1 for a pair and
            its mirror image), (G, B).
        n_randomised: numbers of releases that are rounded stochastically, (G,).
        weighted_number: numbers of coordinates with these weights, (G,).
    """

    unit: float
    coordinates: Array
    sensitivities: Array
    n_randomised: Array
    weighted_number: Array


def unit(bits: int) -> float:
    """Return u = 2^(bits − 51)."""
    return 2.0 ** (bits - 51)


def drawn_variates(
    mu: Array, coordinates: Array | float, bits: int, randomised: bool, column: IntArray, weight: Array | float = 1.0
) -> DrawnVariates:
    """Count the normal variates of one channel.

    Args:
        mu: costs of its T releases, (T, g).
        coordinates: number of variates of a release, (T, g) or broadcastable.
        bits: fineness of the grid.
        randomised: whether releases are rounded stochastically.
        column: column of each group, (G,).
        weight: weight of each release, broadcastable.
    """
    sensitivity, width = mu > 0.0, mu.shape[1]
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.minimum(np.ceil(8.0 * mu), _SENSITIVITIES.size).astype(np.int64)
    weights = np.broadcast_to(weight, mu.shape)
    places = (size + (_SENSITIVITIES.size + 1) * np.arange(width))[sensitivity]
    draw_counts = np.bincount(places, weights[sensitivity], width * (_SENSITIVITIES.size + 1))
    count = draw_counts.reshape(width, -1)[:, 1:].astype(np.float64)
    releases, dimensions = sensitivity.sum(axis=0), np.broadcast_to(coordinates, mu.shape)
    number, weighted_number = (
        np.einsum("tg,tg->g", sensitivity, dimensions),
        np.einsum("tg,tg,tg->g", sensitivity, dimensions, weights),
    )
    return DrawnVariates(
        unit(bits), number[column], count[column], (randomised * releases)[column], weighted_number[column]
    )


def join_by_grid(parts: Sequence[DrawnVariates]) -> list[DrawnVariates]:
    """Join the numbers of all variates on one kind of grid."""
    out: dict[float, DrawnVariates] = {}
    for part in parts:
        partner = out.get(part.unit)
        sums = part[1:] if partner is None else [a + b for a, b in zip(part[1:], partner[1:], strict=True)]
        out[part.unit] = DrawnVariates(part.unit, *sums)
    return list(out.values())


class _ExactTable(NamedTuple):
    """Contributions of one variate or one release to τ and to an exponent, by rows of cuts.

    Attributes:
        outside_mass: mass F(0), (K, 1).
        sensitivity: masses F(μ), (B, K).
        exponent: exponent, (K, 1).
    """

    outside_mass: Array
    sensitivity: Array
    exponent: Array


def worst_case_slack(parts: Sequence[DrawnVariates]) -> Slack:
    """Bound the slack of all coordinates in the worst case."""
    groups = parts[0].coordinates.size
    ratio, delta, zeros = np.zeros(groups), np.zeros(groups), np.zeros((1, groups))
    for part in parts:
        ratio -= part.coordinates * np.log1p(-_BULK * part.unit)
        far_p, far_q = _mass_far_out(part, _table(part.unit, False))
        delta += far_p[0] + far_q[0] + _COIN * part.n_randomised
    # Masses of p° are near one if τ is small, and a large a has no use.
    return Slack(2.0 * ratio, np.where((delta < 0.1) & (ratio < 1.0), delta, 1.0), ratio, zeros, zeros + np.inf)


def likely_slack(parts: Sequence[DrawnVariates], delta: float, ratio: Array) -> Slack:
    """Bound the slack of all coordinates except for a probability δ.

    Args:
        parts: variates by kind of grid.
        delta: privacy parameter δ; exponents are infinite if it is too small.
        ratio: log ratio of distributions from other sources, (G,).
    """
    groups = parts[0].coordinates.size
    xlogy = scipy.special.xlogy
    exponent = np.broadcast_to(xlogy(_ORDERS, _ORDERS) - xlogy(1.0 + _ORDERS, 1.0 + _ORDERS), (_ORDERS.size, groups))
    out_p, out_q, randomised = np.zeros(exponent.shape), np.zeros(exponent.shape), np.zeros(groups)
    for part in parts:
        table = _table(part.unit, True)
        far_p, far_q = _mass_far_out(part, table)
        exponent = exponent + table.exponent * part.coordinates
        out_p, out_q, randomised = out_p + far_p, out_q + far_q, randomised + _COIN * part.n_randomised
    # A share of the least δ may be 0 in float64.
    with np.errstate(divide="ignore"):
        exponent = exponent - np.log(_MIDDLE * delta)
    under_p = np.where(out_p <= _OUT_P * delta, exponent, np.inf)
    under_q = np.where(out_q <= _OUT_Q * delta, exponent, np.inf)
    is_empty = sum(part.coordinates for part in parts) == 0.0
    near = np.where(is_empty, 0.0, np.maximum(0.0, (under_p / _ORDERS).min(axis=0)))
    with np.errstate(invalid="ignore"):
        second = np.where(is_empty, 0.0, under_q + near + ratio)
    lost_delta = np.where(is_empty, 0.0, np.minimum(delta + randomised, 1.0))
    return Slack(near, lost_delta, near, second, np.where(is_empty, np.inf, _ORDERS + np.zeros(groups)))


def noise_alone(draws: IntArray | int, bits: int, lost: Array | float) -> Array:
    """Return τ such that the real and ideal distributions of n variates agree within e^{±τ}, except with a probability.

    Nothing is shifted here, so the bound holds for every function of the variates, such as an adversary's view.
    With p° of the real variates up to a cut: p̂ ≤ p° + n F(0), p° ≤ e^a p + δ_a and the same in the other direction,
    as in the docstring of this module, or within 10 u in the worst case.

    Args:
        draws: number of variates n.
        bits: fineness of the grid.
        lost: probability of the exception, above 0; broadcasts with n.

    Returns:
        τ; +inf if the probability is too small for any bound.
    """
    number, unit_of_grid, most = np.asarray(draws, dtype=np.float64), unit(bits), np.asarray(lost, dtype=np.float64)
    worst, table = number * (_BULK * unit_of_grid), _table(unit_of_grid, True)
    worst = np.where(number * (2e-14 * 2.0 ** (bits - 16)) <= most, worst, np.inf)
    rows = (-1,) + (1,) * np.broadcast(number, most).ndim
    order, unmoved, load = (part.reshape(rows) for part in (_ORDERS, table.outside_mass, table.exponent))
    xlogy = scipy.special.xlogy
    with np.errstate(divide="ignore"):
        exponent = number * load + xlogy(order, order) - xlogy(1.0 + order, 1.0 + order) - np.log(0.5 * most)
    # Twice the mass far out: e^τ is at most 2 there.
    valid = (4.0 * number * unmoved <= most) & (exponent <= math.log(2.0) * order)
    likely = np.where(valid, np.maximum(0.0, exponent / order), np.inf).min(axis=0)
    return np.asarray(np.minimum(worst, likely))


def _cut_of_height(unit: float, height: Array) -> Array:
    """Return c with h(c) = height."""
    return np.asarray(_K + np.log(height / unit) / _K)


def _variance(unit: float, height: Array) -> Array:
    """Compute V up to the cut of this height, (K, 1)."""
    bulk = _BULK * unit
    steps = height * _STEPS
    mass = scipy.special.ndtr(_cut_of_height(unit, steps) - 2.0 * _K)
    mass[:, :-1] -= mass[:, 1:]
    # Larger values than e^600 are no useful bounds, and ∞·0 would be NaN.
    tilt, tilts = (np.exp(np.minimum((_ORDERS + 2.0) * h / (1.0 - h), 600.0)) for h in (np.asarray(bulk), steps))
    return np.asarray(bulk**2 * tilt + 2.0 * unit**2 * (mass * tilts).sum(axis=1, keepdims=True))


def _mass_outside(unit: float, threshold: Array, shift: Array | float) -> Array:
    """Compute 1.1 F(shift), broadcastable."""
    up = np.exp(_K * np.asarray(shift)) * scipy.special.ndtr(shift + _K - threshold)
    down = np.exp(-_K * np.asarray(shift)) * scipy.special.ndtr(_K - threshold - shift)
    beyond = 2.0 * (scipy.special.ndtr(shift - _END) + scipy.special.ndtr(-shift - _END))
    return np.asarray(1.1 * (unit * np.exp(-0.5 * _K * _K) * (up + down) + beyond))


def _mass_far_out(part: DrawnVariates, table: _ExactTable) -> tuple[Array, Array]:
    """Return the tail masses under P and under Q, (K, G) each."""
    under_p, under_q = table.outside_mass * part.coordinates, table.outside_mass * part.weighted_number
    # Infinite only if there are such shifts, since 0·∞ would be NaN.
    sensitivity = (part.sensitivities[:, :-1] @ table.sensitivity).T + np.where(
        part.sensitivities[:, -1] > 0.0, np.inf, 0.0
    )
    return under_p, 2.0 * (under_q + sensitivity)


@cache
def _table(unit: float, likely: bool) -> _ExactTable:
    if not likely:
        threshold = _cut_of_height(unit, np.full((1, 1), _BULK * unit))
        return _ExactTable(
            _mass_outside(unit, threshold, 0.0), _mass_outside(unit, threshold, _SENSITIVITIES[:-1]).T, np.zeros((1, 1))
        )
    height = np.clip(_LOADS / _ORDERS, _BULK * unit, _LARGEST_HEIGHT)
    threshold = _cut_of_height(unit, height)
    outside_mass = _mass_outside(unit, threshold, 0.0)
    exponent = (1.0 + _ORDERS) * (outside_mass + 0.5 * _ORDERS * _variance(unit, height))
    return _ExactTable(outside_mass, _mass_outside(unit, threshold, _SENSITIVITIES[:-1]).T, exponent)
