"""ε(δ) of very many releases, or of a very small δ: composition by Fourier transform under an exponential tilt.

A transform in float64 has errors near 10⁻¹⁶ of the *largest* mass of a distribution, per composed release. If δ is
smaller than their sum, it has no meaning. Tilting moves the largest mass to ε(δ): with M = E e^{θL} and
P_θ = e^{θL}P/M,

    P^{∗T}(x) = M^T e^{−θx} P_θ^{∗T}(x),

so that an error of P_θ^{∗T} is an error relative to δ. θ is the minimiser of Chernoff's bound on δ. All errors are
charged:

* Each pair is discretised by connecting the dots (Doroshenko et al. 2022). The probability of more than the loss iΔ is
  S_i = δ_i + (δ_i − δ_{i+1})/(e^Δ − 1); a profile that is wrong by no more than η times that probability makes S_i
  wrong by no more than 3η(1/Δ + 1)S_{i−1}, which is added. Larger probabilities of larger losses are more privacy loss.
* Losses above the reach are charged as infinite, and below it rounded up to the least loss of the grid.
* A circular convolution moves losses below its window into it, which can only add. Losses above the window are charged
  by Chernoff's bound.
* The errors of the transforms and of the powers are bounded, summed over the losses above ε and added.

Proof: docs/proofs/10-composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array

Complex = NDArray[np.complex128]

_U = 2.0**-53
# Bound on |computed − exact| of a profile, in units of 2⁻⁵³·(4 + reach + |log S|)·S, S the probability of larger
# losses. A test has the largest ratio, computed with fifty digits.
_PROFILE = 32.0
# A component of a transform of length n and of masses of sum 1 is wrong by less than this many 2⁻⁵³·log2(n): every
# component is a sum over log2(n) butterflies, each of which costs a product, a sum and a rounded root of unity.
_BUTTERFLY = 8.0
# Points of all distributions together, and of one transform.
_MOST_POINTS, _MOST_TRANSFORM = 2**22, 2**21
_COARSEST = 0.2
# Blocks that masses are gathered into for searches.
_BLOCKS = 2048
# Masses further out than this many nats below the largest are outside the window.
_WINDOW_NATS = 16.0


class ReleaseProfile(NamedTuple):
    """Dominating pair that is its own mirror image, and the number of its releases.

    Attributes:
        profile: privacy profile δ(ε) for arrays of ε ≥ 0.
        reach: loss that is rarely exceeded.
        number: number of releases.
    """

    profile: Callable[[Array], Array]
    reach: float
    number: int


class _Losses(NamedTuple):
    """Discretised loss of several releases.

    Attributes:
        masses: masses of the losses −n … n grid steps, (2n + 1,).
        infinite: mass of an infinite loss.
        number: number of releases.
    """

    masses: Array
    infinite: float
    number: int

    @property
    def half(self) -> int:
        """Largest loss n, in grid steps."""
        return self.masses.size // 2


def tilted_epsilon(pairs: Sequence[ReleaseProfile], step: float, delta: float) -> float:
    """Bound ε(δ) of all these releases from above, with +inf if there is no finite bound.

    Args:
        pairs: dominating pairs of the releases.
        step: grid step for the accuracy. A coarser step is used if the grid would be too long.
        delta: privacy parameter δ > 0.
    """
    reach = max(pair.reach for pair in pairs)
    step = max(min(step, _COARSEST), 2.0 * reach * len(pairs) / _MOST_POINTS)
    if not 0.0 < step <= _COARSEST:
        return math.inf
    parts = [_discretise(pair, step) for pair in pairs]
    total = sum(p.number for p in parts)
    mass = math.exp(sum(p.number * math.log(float(p.masses.sum()) * (1.0 + _rounding(p)) + p.infinite) for p in parts))
    remaining_delta = delta - sum(p.number * p.infinite for p in parts) * mass * (1.0 + 1e-9)
    if not remaining_delta > 0.0 or not mass < 2.0:
        return math.inf
    moments = _Moments([_Blocks.from_losses(p, step, max(256, _BLOCKS // len(parts))) for p in parts])
    theta = moments.best_tilt(math.log(remaining_delta))
    if theta is None:
        return math.inf
    tilted, wrong, log_m = _tilt_all(parts, step, theta)
    if wrong > 0.5:
        return math.inf
    renyi = _chernoff_epsilon(log_m, theta, math.log(remaining_delta))
    low, high = moments.window(theta)
    low, high = min(low, renyi), max(high, renyi)
    if not (high - low) / step < 0.99 * _MOST_TRANSFORM:
        coarser = (high - low) / (0.9 * _MOST_TRANSFORM)
        return min(renyi, tilted_epsilon(pairs, coarser, delta)) if step < coarser <= _COARSEST else renyi
    length = 2 ** max(4, math.ceil(math.log2((high - low) / step + 16.0)))
    first = math.floor(0.5 * (low + high) / step) - length // 2
    composition, error = _compose(parts, tilted, length, first, total)
    # log of a bound on the probability of more than the last loss, by moments at a few tilts.
    last = (first + length - 1) * step
    beyond = min(_tilt_all(parts, step, t)[2] - t * last for t in (theta, 1.05 * theta, 1.5 * theta))
    return min(renyi, _epsilon_at(composition + error, first, step, theta, log_m, beyond, remaining_delta, renyi))


# Discretisation -----------------------------------------------------------------------------------------------------


def _discretise(pair: ReleaseProfile, step: float) -> _Losses:
    # Two points beyond the largest loss of a bounded pair, at which its profile is exactly zero.
    n = math.ceil(pair.reach / step) + 2
    e = np.asarray(np.arange(n + 1) * step, dtype=np.float64)
    upper = np.clip(pair.profile(e), 0.0, 1.0)
    deltas = np.concatenate([(-np.expm1(-e) + np.exp(-e) * upper)[:0:-1], upper])
    # Probability of more than the loss i, for i = −n … n − 1.
    more = deltas[:-1] - np.diff(deltas) / math.expm1(step)
    before = np.concatenate([[1.0], np.clip(more[:-1], 0.0, 1.0)])
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = np.where(before > 0.0, 4.0 + pair.reach - np.log(before), 0.0)
    more = np.clip(more, 0.0, None)
    wrong = _PROFILE * _U * digits
    infinite = (float(deltas[-1]) + float(wrong[-1] * more[-1])) * (1.0 + 1e-9)
    more = more + wrong * before * (3.0 / step + 3.0)
    ladder = np.concatenate([[1.0 + _PROFILE * _U * (3.0 / step + 3.0)], more, [infinite]])
    ladder = np.maximum.accumulate(ladder[::-1])[::-1]
    return _Losses(ladder[:-1] - ladder[1:], infinite, pair.number)


def _rounding(p: _Losses) -> float:
    """Bound the relative rounding error of (pairwise) sums over all masses."""
    return 2.0 * _U * (4.0 + math.log2(p.masses.size))


# Moments ------------------------------------------------------------------------------------------------------------


class _Blocks(NamedTuple):
    """Log masses, means and variances of blocks of neighbouring losses, for searches only."""

    log_mass: Array
    mean: Array
    variance: Array
    number: int

    @staticmethod
    def from_losses(p: _Losses, step: float, most: int) -> _Blocks:
        """Form at most `most` blocks of neighbouring losses."""
        width = -(-p.masses.size // most)
        masses = np.zeros(width * -(-p.masses.size // width))
        masses[: p.masses.size] = p.masses
        mass = masses.reshape(-1, width)
        place = (np.arange(masses.size).reshape(-1, width) - p.half) * step
        total = mass.sum(axis=1)
        is_positive = total > 0.0
        mass, place, total = mass[is_positive], place[is_positive], total[is_positive]
        mean = (mass * place).sum(axis=1) / total
        variance = (mass * (place - mean[:, None]) ** 2).sum(axis=1) / total
        return _Blocks(np.log(total), mean, variance, p.number)


class _Moments:
    """Approximation of Λ(θ) = Σ number·log E e^{θL} on a table of θ."""

    def __init__(self, blocks: Sequence[_Blocks]) -> None:
        reach = max(float(np.abs(b.mean).max()) for b in blocks) + 1e-300
        self._blocks = blocks
        spread = np.geomspace(1e-3, 1e7, 121) / reach
        self.tilts = np.concatenate([-spread[::-3], spread])
        self.values = self.evaluate(self.tilts)

    def evaluate(self, tilts: Array) -> Array:
        """Approximate Λ at these θ."""
        total = np.zeros(tilts.size)
        for b in self._blocks:
            for k, t in enumerate(tilts):
                terms = b.log_mass + t * b.mean + np.log1p(0.5 * t * t * b.variance)
                top = float(terms.max())
                total[k] += b.number * (top + math.log(float(np.exp(terms - top).sum())))
        return total

    def best_tilt(self, log_delta: float) -> float | None:
        """Find θ with about the least ε by Chernoff's bound, or None if no bound is finite."""
        positive = self.tilts > 0.0
        tilts, values = self.tilts[positive], self.values[positive]
        for _ in range(2):
            epsilons = np.array([_chernoff_epsilon(v, t, log_delta) for t, v in zip(tilts, values, strict=True)])
            if not np.isfinite(epsilons).any():
                return None
            k = int(np.nanargmin(np.where(np.isfinite(epsilons), epsilons, np.inf)))
            tilts = np.geomspace(tilts[max(k - 1, 0)], tilts[min(k + 1, tilts.size - 1)], 17)
            values = self.evaluate(tilts)
        epsilons = np.array([_chernoff_epsilon(v, t, log_delta) for t, v in zip(tilts, values, strict=True)])
        return float(tilts[int(np.argmin(epsilons))])

    def window(self, theta: float) -> tuple[float, float]:
        """Return losses between which the tilted sum lies, except for about e^{−_WINDOW_NATS}."""
        # On a Poisson sample moments of high order grow suddenly, so tilts close to θ are evaluated as well.
        near = theta * 2.0 ** -np.arange(1.0, 12.0)
        tilts = np.concatenate([self.tilts, theta - near, [theta], theta + near])
        values = np.concatenate([self.values, self.evaluate(tilts[self.tilts.size :])])
        at_theta = float(values[self.tilts.size + near.size])
        above, below = tilts > theta * 1.0001, tilts < theta * 0.9999
        high = ((values - at_theta + _WINDOW_NATS)[above] / (tilts - theta)[above]).min()
        low = ((at_theta - values - _WINDOW_NATS)[below] / (theta - tilts)[below]).max()
        return float(low), float(high)


def _tilt_all(parts: Sequence[_Losses], step: float, theta: float) -> tuple[list[_Tilted], float, float]:
    """Tilt all distributions, and bound the relative error of δ and log E e^{θL} of the sum of all finite losses."""
    tilted = [_tilt(p, step, theta) for p in parts]
    # A masses' relative error, to the power of the number of releases, is one of δ.
    wrong = sum(p.number * (y.relative + _rounding(p)) for p, y in zip(parts, tilted, strict=True))
    return tilted, wrong, sum(p.number * y.log_moment for p, y in zip(parts, tilted, strict=True)) + 2.0 * wrong


def _chernoff_epsilon(log_moment: float, theta: float, log_delta: float) -> float:
    """Solve M e^{−θε} θ^θ/(1 + θ)^{1+θ} = δ for ε, since (1 − e^{ε−x})₊ ≤ e^{θ(x−ε)} θ^θ/(1 + θ)^{1+θ}."""
    factor = -math.log1p(theta) - theta * math.log1p(1.0 / theta)
    return max(0.0, (log_moment + factor - log_delta) / theta) * (1.0 + 1e-9)


class _Tilted(NamedTuple):
    """Tilted distribution.

    Attributes:
        masses: tilted masses e^{θL}P/M, (2n + 1,).
        relative: bound on their relative errors.
        log_moment: log M.
    """

    masses: Array
    relative: float
    log_moment: float


def _tilt(p: _Losses, step: float, theta: float) -> _Tilted:
    place = (np.arange(p.masses.size) - p.half) * step
    with np.errstate(divide="ignore"):
        exponent = np.log(p.masses)
    exponent += theta * place
    top = float(exponent.max())
    exponent -= top
    masses = np.exp(exponent)
    total = float(masses.sum())
    # Exponents below −745 vanish, and are charged with the errors of the transform.
    relative = 4.0 * _U * (theta * p.half * step + 2.0 * abs(top) + 1500.0)
    return _Tilted(masses / total, relative, top + math.log(total))


# Transform ----------------------------------------------------------------------------------------------------------


def _compose(
    parts: Sequence[_Losses], tilted: Sequence[_Tilted], length: int, first: int, total: int
) -> tuple[Array, float]:
    """Compute masses of the tilted sum at the losses of the window, modulo its length, and their largest error."""
    size = length // 2 + 1
    product: Complex = np.ones(size, dtype=np.complex128)
    log_most, relative = np.zeros(size), np.zeros(size)
    single = _BUTTERFLY * _U * math.log2(length) * (1.0 + 1e-6)
    for p, y in zip(parts, tilted, strict=True):
        padded_masses = np.zeros(length * -(-y.masses.size // length))
        padded_masses[: y.masses.size] = y.masses
        folded_masses = np.roll(padded_masses.reshape(-1, length).sum(axis=0), -p.half % length)
        values = np.fft.rfft(folded_masses)
        wide = np.abs(values) * (1.0 + 4.0 * _U)
        # |∏f̂ − ∏f| ≤ ∏(|f̂| + s)·min(1, Σ number·s/|f̂|) where every f̂ is within s of f.
        log_most += p.number * np.log(wide + single)
        relative += p.number * (single / np.maximum(wide, single) + 16.0 * _U)
        product *= _power(values, p.number)
    most = np.exp(np.minimum(log_most, 1.0))
    weights = most * (np.minimum(1.0, relative) + single)
    error = (2.0 * float(weights.sum()) / length + total * 1e-290) * (1.0 + 1e-6)
    masses = np.maximum(np.fft.irfft(product, length), 0.0)
    return np.roll(masses, -(first % length)), error


def _power(values: Complex, count: int) -> Complex:
    """Compute values^count by squaring; each product has a relative error below 4·2⁻⁵³."""
    result, square = np.ones_like(values), values
    while count:
        if count & 1:
            result = result * square
        count >>= 1
        if count:
            square = square * square
    return result


def _epsilon_at(
    masses: Array, first: int, step: float, theta: float, log_m: float, beyond: float, delta: float, near: float
) -> float:
    """Find the least ε at which δ, including all errors, is at most `delta`; `near` is an upper bound on ε."""
    start = max(0, math.ceil((near - min(60.0 / theta, 500.0)) / step) - first - 1)
    x = (first + np.arange(start, masses.size)) * step
    log_scale = log_m - theta * near
    if x.size < 2 or log_scale > 600.0:
        return math.inf
    away = x - near
    weight = masses[start:] * np.exp(-theta * away)
    falling = weight * np.exp(-away)
    # Σ_{m>k}, and δ at loss k is Σ_{m>k} w_m (1 − e^{x_k − x_m}).
    above = np.concatenate([np.cumsum(weight[::-1])[::-1][1:], [0.0]])
    further = np.concatenate([np.cumsum(falling[::-1])[::-1][1:], [0.0]])
    excess = np.maximum(above - np.exp(np.minimum(away, 600.0)) * further, 0.0) + 4.0 * x.size * _U * above
    tail = math.exp(beyond) if beyond < 0.0 else 1.0
    deltas = excess * math.exp(log_scale) * (1.0 + 1e-6) + tail
    enough = np.flatnonzero(deltas <= delta)
    if not enough.size:
        return math.inf
    k = int(enough[0])
    if k == 0:
        return max(0.0, float(x[0]))
    # Between two losses δ is linear in e^ε.
    part = (deltas[k - 1] - delta) / (deltas[k - 1] - deltas[k])
    return max(0.0, float(x[k - 1]) + math.log1p(float(part) * math.expm1(step))) * (1.0 + 1e-9)
