"""What float64 sampling may add to the (ε, δ) of ideal samplers.

A real law of one coordinate's noise n is p̂ = p·(1 + η), p the ideal one. The η are measured: Laplace's by enumerating
its sampler exactly at fewer bits, and extrapolating; Gaussian ones by counting the mantissas of single atoms.

    Laplace   η ≤ 1e-15·max(1, e^{|n|/ν − 7.7}) up to 36 ν, a law of its own beyond:
              ε + 2e-15·d,   δ + 1.3e-16·(2d + e^ε − 1)
    Gaussian  |η| ≤ h = u·max(10, e^{k(|n|/σ − k)}), k = 3.7, u = 2^(bits − 51) with the bits of the grid
              (`mechanisms`), up to 10 standard deviations σ; beyond, p̂ has up to twice the ideal mass, and an
              end

Gaussian releases, any number of them, adaptive, on batches or not, N coordinates in all. Let p° be p̂ up to cσ and p
beyond, and P̂, P°, P (Q̂, Q°, Q) the laws of transcripts of one data set (a neighbour's). Sizes of batches, what else
is in them, and what rounding tosses may be shown; a record's own coin stays hidden. As (1 − xy)₊ ≤ (1 − x)₊ + (1 − y)₊,

    (P̂ − e^{ε+a+b} Q̂)₊ ≤ (P̂ − P°)₊ + P°(1 − Q̂/Q°)₊ + (P° − e^a P)₊ + e^a (P − e^ε Q)₊ + e^{a+ε} (Q − e^b Q°)₊,
    δ̂(ε + a + b) ≤ τ + δ_a + e^a δ(ε) + e^{a+ε} δ_b.

Far out (τ). Both terms add up over coordinates: (1 − Πx)₊ ≤ Σ(1 − x)₊. The first is at most F(0) each, with

    F(v) = ∫_{|y|>c} h(y) φ(y − v) dy = u e^{−k²/2} (e^{kv} Φ(v + k − c) + e^{−kv} Φ(−v + k − c)) + what is beyond 10.

In the second, y comes from P and is judged by Q. A release on a batch is a mixture over the record's coin in both
data sets, so Q̂/Q° is a mean of at most two products, of centres no further than the release's μ (in σ) from that of y.
F(√v) − F(0) over v grows, so that the sum over coordinates shifted by v_i, Σ v_i² ≤ μ², is at most d F(0) + F(μ):

    τ ≤ Σ over releases of 3 d F(0) + 2 F(μ),   times 1.1 for the grid's cells, and masses of p° that are not one.

In the middle (a, b, δ_a, δ_b) P° and P differ by nothing but noise, whatever it is added to: with the coins shown, P°/P
is a product of 1 + η̃(n_i), n_i fresh from p, |η̃| ≤ h up to c, |E_p η̃| ≤ F(0). Either surely, c where h leaves 10 u:

    a = b = −N log(1 − 10 u),   δ_a = δ_b = 0,

or likely: (e^x − e^a)₊ ≤ e^{(1+λ)x − λa} λ^λ/(1 + λ)^{1+λ}, and moments 1 + λ of P°/P, −λ of Q°/Q by Taylor, make

    log δ_a ≤ X − λa,   log δ_b ≤ X − λb,   X = N((1+λ) F(0) + λ(1+λ)/2·V) + λ log λ − (1+λ) log(1+λ),
    V = E h² e^{(λ+2) h/(1−h)} ≤ (10 u)² t(10 u) + 2 u² Σ_j (Φ(c_j − 2k) − Φ(c_{j+1} − 2k)) t(h(c_j)),

t(h) = e^{(λ+2) h/(1−h)}, c = c_0 > c_1 > …, for any λ ≥ 1 and c, each side its own: a ≈ 10 u √(2 N log 1/δ_a). A fixed
share of δ is spent whatever is released, so that either bound grows with the releases and knows neither their order nor
their channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from decentral_dp.bounded import Array

IntArray = NDArray[np.int64]

_K, _BULK, _END = 3.7, 10.0, 10.0
# Of shifts: multiples of 1/8, rounded up; the last is for all above 8, where nothing is stated.
_SENSITIVITIES = np.arange(1, 66) / 8.0
# Of δ, for all that is only likely: one that leaves ε as it is, and one for when ε depends on the slack.
SHARES = (0.02, 0.15)
# Of that, for tails under P, under Q, and for each of the two sums.
_OUT_P, _OUT_Q, _MIDDLE = 0.3, 0.6, 0.05
_ORDERS = np.repeat(2.0 ** np.arange(5.0, 31.0, 0.5), 4)[:, None]
# λ h(c): how much of a Chernoff bound's exponent one coordinate may be.
_LOADS = np.tile([1.0, 3.0, 6.0, 12.0], _ORDERS.size // 4)[:, None]
_LARGEST_HEIGHT = 1.0 / 32.0
# h_j, of h(c).
_STEPS = np.exp(-0.25 * np.arange(24.0))
# That the randomised rounding of one release moves further than `mechanisms` says, in up to three
# comparisons, times e^a.
_COIN = 1e-16


class Slack(NamedTuple):
    """What float64 sampling may add to the (ε, δ) of ideal samplers; elementwise, (G,).

    ratio: τ, where laws are away from the ideal ones by factors between e^{−τ} and e^τ; its 2τ is in epsilon already.
    exponent, order: (K, G), what bounds the sum of the errors: b ≤ (exponent + ε)/order, by each row.
    """

    epsilon: Array
    delta: Array
    ratio: Array
    exponent: Array
    order: Array

    def remaining_delta(self, delta: float) -> Array:
        """(G,) δ for which ideal samplers must be priced: δ̂ ≤ e^τ δ + what the samplers add; 0 where no row holds."""
        holds = np.isfinite(self.exponent).any(axis=0)
        return np.where(holds, np.maximum(0.0, delta - self.delta) * np.exp(-self.ratio), 0.0)

    def added_epsilon(self, ideal: Array | float) -> Array:
        """What comes to an ideal ε, (G,); or with one group, to any number of them."""
        at = np.where(np.isfinite(ideal), ideal, 0.0)
        return np.asarray(self.epsilon + np.maximum(0.0, ((self.exponent + at) / self.order).min(axis=0)))

    def total(self, ideal: Array) -> Array:
        """(G,) ε for what is drawn, of an ideal one (G,) at `remaining_delta`; as for `added_epsilon`."""
        return np.where(np.isfinite(ideal), ideal + self.added_epsilon(ideal), np.inf)

    def largest(self) -> Slack:
        """The elementwise largest of all groups, as one."""
        epsilon, delta, ratio, exponent = (part.max(axis=-1, keepdims=True) for part in self[:4])
        return Slack(epsilon, delta, ratio, exponent, self.order.min(axis=-1, keepdims=True))


class DrawnVariates(NamedTuple):
    """Normal variates on one kind of grid, by group.

    unit: u. coordinates: N, (G,). sensitivities: (G, B) how many releases have a μ of each size, weighed by how many
    pairs of centres there are, of one pair and its mirror image 1. n_randomised: (G,) of them rounded at random.
    weighed: (G,) coordinates with these weights.
    """

    unit: float
    coordinates: Array
    sensitivities: Array
    n_randomised: Array
    weighed: Array


def unit(bits: int) -> float:
    """u of the bounds above."""
    return 2.0 ** (bits - 51)


def drawn_variates(
    mu: Array, coordinates: Array | float, bits: int, randomised: bool, column: IntArray, weight: Array | float = 1.0
) -> DrawnVariates:
    """Count the normal variates of one channel.

    Args:
        mu: (T, g) charges of its T releases, 0 where nothing moved.
        coordinates: variates of a release, (T, g) or broadcastable.
        bits: of the grid.
        randomised: whether releases are rounded at random.
        column: (G,) of each group.
        weight: of each release, broadcastable; default 1.
    """
    sensitivity, width = mu > 0.0, mu.shape[1]
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.minimum(np.ceil(8.0 * mu), _SENSITIVITIES.size).astype(np.int64)
    weights = np.broadcast_to(weight, mu.shape)
    places = (size + (_SENSITIVITIES.size + 1) * np.arange(width))[sensitivity]
    counted = np.bincount(places, weights[sensitivity], width * (_SENSITIVITIES.size + 1))
    count = counted.reshape(width, -1)[:, 1:].astype(np.float64)
    releases, each = sensitivity.sum(axis=0), np.broadcast_to(coordinates, mu.shape)
    number, weighed = np.einsum("tg,tg->g", sensitivity, each), np.einsum("tg,tg,tg->g", sensitivity, each, weights)
    return DrawnVariates(unit(bits), number[column], count[column], (randomised * releases)[column], weighed[column])


def join_by_grid(parts: Sequence[DrawnVariates]) -> list[DrawnVariates]:
    """The same variates, one item for each kind of grid."""
    out: dict[float, DrawnVariates] = {}
    for part in parts:
        other = out.get(part.unit)
        sums = part[1:] if other is None else [a + b for a, b in zip(part[1:], other[1:], strict=True)]
        out[part.unit] = DrawnVariates(part.unit, *sums)
    return list(out.values())


class _ExactTable(NamedTuple):
    """What one variate or one release adds to τ and to an exponent, by rows of cuts.

    unmoved: F(0), (K, 1). moved: (B, K) F(μ). exponent: (K, 1).
    """

    unmoved: Array
    sensitivity: Array
    exponent: Array


def worst_case_slack(parts: Sequence[DrawnVariates]) -> Slack:
    """What all coordinates may add, each at its worst."""
    groups = parts[0].coordinates.size
    ratio, delta, nothing = np.zeros(groups), np.zeros(groups), np.zeros((1, groups))
    for part in parts:
        ratio -= part.coordinates * np.log1p(-_BULK * part.unit)
        far_p, far_q = _mass_far_out(part, _table(part.unit, False))
        delta += far_p[0] + far_q[0] + _COIN * part.n_randomised
    # Masses of p° are near one where τ is small; and a large a is of no use.
    return Slack(2.0 * ratio, np.where((delta < 0.1) & (ratio < 1.0), delta, 1.0), ratio, nothing, nothing + np.inf)


def likely_slack(parts: Sequence[DrawnVariates], delta: float, ratio: Array) -> Slack:
    """What they may add but for this δ; ratio: (G,) by how much laws are away for other reasons.

    Where it does not suffice exponents are infinite.
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
    # Of the least δ there is no share in float64: then no exponent is enough.
    with np.errstate(divide="ignore"):
        exponent = exponent - np.log(_MIDDLE * delta)
    under_p = np.where(out_p <= _OUT_P * delta, exponent, np.inf)
    under_q = np.where(out_q <= _OUT_Q * delta, exponent, np.inf)
    still = sum(part.coordinates for part in parts) == 0.0
    near = np.where(still, 0.0, np.maximum(0.0, (under_p / _ORDERS).min(axis=0)))
    with np.errstate(invalid="ignore"):
        second = np.where(still, 0.0, under_q + near + ratio)
    lost = np.where(still, 0.0, np.minimum(delta + randomised, 1.0))
    return Slack(near, lost, near, second, np.where(still, np.inf, _ORDERS + np.zeros(groups)))


def noise_alone(draws: IntArray, bits: int) -> tuple[Array, Array]:
    """(τ, δ): real and ideal laws of so many variates, alone, are within e^{±τ} of each other but for δ."""
    number = np.asarray(draws, dtype=np.float64)
    return number * (_BULK * unit(bits)), number * (2e-14 * 2.0 ** (bits - 16))


def _cut_of_height(unit: float, height: Array) -> Array:
    """c with h(c) = height."""
    return np.asarray(_K + np.log(height / unit) / _K)


def _variance(unit: float, height: Array) -> Array:
    """V up to the cut of this height, (K, 1)."""
    bulk = _BULK * unit
    steps = height * _STEPS
    mass = scipy.special.ndtr(_cut_of_height(unit, steps) - 2.0 * _K)
    mass[:, :-1] -= mass[:, 1:]
    # More than e^600 is no bound at all, and ∞·0 is no number.
    tilt, tilts = (np.exp(np.minimum((_ORDERS + 2.0) * h / (1.0 - h), 600.0)) for h in (np.asarray(bulk), steps))
    return np.asarray(bulk**2 * tilt + 2.0 * unit**2 * (mass * tilts).sum(axis=1, keepdims=True))


def _mass_outside(unit: float, cut: Array, shift: Array | float) -> Array:
    """1.1 F(shift); shift: broadcastable."""
    up = np.exp(_K * np.asarray(shift)) * scipy.special.ndtr(shift + _K - cut)
    down = np.exp(-_K * np.asarray(shift)) * scipy.special.ndtr(_K - cut - shift)
    beyond = 2.0 * (scipy.special.ndtr(shift - _END) + scipy.special.ndtr(-shift - _END))
    return np.asarray(1.1 * (unit * np.exp(-0.5 * _K * _K) * (up + down) + beyond))


def _mass_far_out(part: DrawnVariates, table: _ExactTable) -> tuple[Array, Array]:
    """(K, G) each: what is far out under P, and under Q."""
    still, judged = table.unmoved * part.coordinates, table.unmoved * part.weighed
    # Only where there are such shifts: 0·∞ is no number.
    sensitivity = (part.sensitivities[:, :-1] @ table.sensitivity).T + np.where(
        part.sensitivities[:, -1] > 0.0, np.inf, 0.0
    )
    return still, 2.0 * (judged + sensitivity)


@cache
def _table(unit: float, likely: bool) -> _ExactTable:
    if not likely:
        cut = _cut_of_height(unit, np.full((1, 1), _BULK * unit))
        return _ExactTable(
            _mass_outside(unit, cut, 0.0), _mass_outside(unit, cut, _SENSITIVITIES[:-1]).T, np.zeros((1, 1))
        )
    height = np.clip(_LOADS / _ORDERS, _BULK * unit, _LARGEST_HEIGHT)
    cut = _cut_of_height(unit, height)
    still = _mass_outside(unit, cut, 0.0)
    exponent = (1.0 + _ORDERS) * (still + 0.5 * _ORDERS * _variance(unit, height))
    return _ExactTable(still, _mass_outside(unit, cut, _SENSITIVITIES[:-1]).T, exponent)
