"""(ε, δ) of composed Laplace and Gaussian releases, computed from privacy-loss distributions.

Every release is replaced by a pair that dominates it, and the pairs are composed numerically, always rounding towards
more privacy loss ("connect the dots", Doroshenko et al. 2022). Some pairs are exact, others are rounded up:

* A set of Laplace releases is dominated by one Laplace whose pure ε is their sum: on the straight path between two
  shifts every log-density moves by at most Σε in total, and no such path leads to a lower trade-off curve than
  Laplace's. Only releases smaller than the grid are merged in this way.
* A release of which only the pure ε is known is dominated by randomised response, whose answers differ in probability
  by e^ε (Kairouz, Oh & Viswanath 2015); a set of them by randomised response of Σε. A Laplace pair is not enough.
* Similar releases share one distribution, a mixture of the distributions of two values a < b. The profile of value v is
convex in
  the total variation t(v), so it is below w·δ_a + (1 − w)·δ_b for t(v) = w·t(a) + (1 − w)·t(b): a pair of a Bernoulli
  draw of probability w, which is revealed, and the release of value a or b dominates. If the weights of n releases
  differ, their geometric mean is used: the number of draws of b is then stochastically largest (Boland, Singh & Cukic
  2002). For groups of several records, the distribution of the largest value is used.
* A release on a fresh fixed-size batch (replace-one, share η of the pool) has the profile δ(ε') = η·δ_base(ε) with
  ε' = log(1 + η(e^ε − 1)) ≥ 0, and f(−e) = 1 − e^{−e} + e^{−e} f(e) (Balle, Barthe & Gaboardi 2018).
* A Gaussian release on a Poisson sample of rate q is dominated by (1−q)N(0) + qN(μ/2) against (1−q)N(0) + qN(−μ/2):
  of all events with one probability under N(0), a half-space is likeliest under one shift and least likely under the
  other. This pair is its own mirror image.
* With k replaced records, of which j are drawn, the pair is Σ_j Bin(k, q)(j) N(jμ/2k) and its mirror image. With zeroed
records it is Σ_j Bin(k, q)(j) N(jμ/k) and N(0), with the larger profile of both orders. * Gaussian releases compose
exactly: μ² adds, also adaptively.

The grid and the mixtures raise ε by at most about 0.02 %. Float64 errors of the profiles and of the Fourier transforms
are bounded and subtracted from δ before ε is computed. After very many releases or at a very small δ these errors are a
large part of δ, and `tilted_composition` is used.

Every release has a privacy profile δ(ε). Its losses are discretised and composed by Fourier transforms, and ε follows
from δ. A loss lies on a grid of step h, or is infinite. "Connecting the dots" (Doroshenko et al. 2022, algorithm 1)
gives the grid's masses from the profile δ_i = δ(ih), i = −n … n:

    P(ih) = ((δ_{i+1} − δ_i) − e^h (δ_i − δ_{i−1}))/(e^h − 1),    P(∞) = δ_n,

and the rest of the profile at both ends. δ of these masses is δ_i on the grid, and linear in e^ε between, so never
below the profile, which is convex in e^ε.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.tilted_composition import ReleaseProfile, tilted_epsilon

Profile = Callable[[Array], Array]

# Bisections of the interval that contains ε of a Gaussian pair.
_BISECTIONS = 100


def amplify(loss: Array | float, rate: Array | float) -> Array:
    """Compute log(1 + η(e^E − 1)), the pure ε of a release on a fresh batch with sampling rate η.

    Args:
        loss: pure ε before sampling (E), a number or an array.
        rate: sampling rate η, broadcastable.
    """
    e, eta = np.asarray(loss, dtype=np.float64), np.asarray(rate, dtype=np.float64)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        small = np.log1p(eta * np.expm1(e))
        # e^E overflows where E is large.
        large = np.logaddexp(np.log1p(-eta), e + np.log(eta))
    return np.where(eta == 0.0, 0.0, np.where(e < 700.0, small, np.maximum(0.0, large)))


def laplace_profile(loss: float, rate: float) -> Callable[[Array], Array]:
    """Return δ(ε), for arrays of ε ≥ 0, of a Laplace pair of pure ε `loss` on a batch with sampling rate `rate`."""

    def profile(e: Array) -> Array:
        return np.asarray(rate * -np.expm1(np.minimum(0.0, 0.5 * (_base_epsilon(e, rate) - loss))))

    return profile


def response_profile(loss: float) -> Callable[[Array], Array]:
    """Return δ(e) = (e^loss − e^e)₊/(1 + e^loss), for arrays of e ≥ 0, of randomised response."""

    def profile(e: Array) -> Array:
        return np.asarray(-np.expm1(np.minimum(0.0, e - loss)) / (1.0 + math.exp(-loss)))

    return profile


def gaussian_profile(mu: float, rate: float) -> Callable[[Array], Array]:
    """Return δ(ε), for arrays of ε ≥ 0, of a Gaussian pair of distance `mu` on a batch with sampling rate `rate`."""

    def profile(e: Array) -> Array:
        return np.asarray(rate * np.exp(log_gaussian_delta(np.asarray(mu), _base_epsilon(e, rate))))

    return profile


def poisson_profile(mu: float, rate: float) -> Callable[[Array], Array]:
    """Return δ(ε), for arrays of ε ≥ 0, of a Gaussian release on a Poisson sample, with one replaced record.

    P = (1−q)N(0, 1) + qN(m, 1), Q = (1−q)N(0, 1) + qN(−m, 1), m = μ/2. log(P/Q) grows with the outcome; with
    w = e^{mτ} and a = e^{−m²/2}, it is ε where (1−q) + qaw = e^ε((1−q) + qa/w), so that
    mτ = ε/2 + asinh((1−q) sinh(ε/2)/(qa)).
    """
    if rate == 1.0:
        return gaussian_profile(mu, 1.0)
    m = 0.5 * mu

    def profile(e: Array) -> Array:
        with np.errstate(divide="ignore"):
            # sinh(ε/2) = e^{ε/2}(1 − e^{−ε})/2; asinh(e^L) = log(e^L + √(e^{2L} + 1)).
            size = 0.5 * e + np.log(-np.expm1(-e)) + (0.5 * m * m + math.log1p(-rate) - math.log(2.0 * rate))
        tau = (0.5 * e + np.logaddexp(size, 0.5 * np.logaddexp(2.0 * size, 0.0))) / m
        out = math.log1p(-rate) + scipy.special.log_ndtr(-tau)
        first = np.logaddexp(out, math.log(rate) + scipy.special.log_ndtr(m - tau))
        second = e + np.logaddexp(out, math.log(rate) + scipy.special.log_ndtr(-m - tau))
        return np.asarray(np.exp(first) * -np.expm1(np.minimum(0.0, second - first)))

    return profile


# Different numbers of drawn records in a pair; those of larger groups are rounded up.
_MOST_MEMBERS = 128
# Points times numbers of drawn records, at once.
_AT_ONCE = 2**18


class _Members:
    """Gaussian mixture Σ_j Bin(k, q)(j) N(jm, 1) and its mirror image, or N(0, 1).

    Args:
        mu: sensitivity to the unit, 2km or km.
        rate: sampling rate q.
        records: number of records k.
        zeroed: whether the second distribution is N(0, 1).
    """

    def __init__(self, mu: float, rate: float, records: int, zero_out: bool) -> None:
        self.members, self.log_share = _log_binomial(records, rate)
        self.centre, self.zeroed = self.members * (mu / (records * (1.0 if zero_out else 2.0))), zero_out
        self._start = self.log_share - 0.5 * np.square(self.centre)

    def loss(self, x: Array) -> tuple[Array, Array]:
        """Compute log P/Q and its slope at outcomes (n,)."""
        loss, slope = self._rise(x)
        if not self.zeroed:
            down, falling = self._rise(-x)
            loss, slope = loss - down, slope + falling
        return loss, slope

    def _rise(self, x: Array) -> tuple[Array, Array]:
        """Compute log P/N(0, 1) and its slope."""
        terms = self._start + x[:, None] * self.centre
        top = terms.max(axis=1, keepdims=True)
        weight = np.exp(terms - top)
        total = weight.sum(axis=1)
        return top[:, 0] + np.log(total), (weight @ self.centre) / total

    def log_above(self, x: Array) -> Array:
        """Compute log P(outcome > x), (n,)."""
        return _log_sum(self.log_share + np.asarray(scipy.special.log_ndtr(self.centre - x[:, None])))

    def log_below(self, x: Array) -> Array:
        """Compute log P(outcome < x), (n,), which is log P(outcome > −x) of the mirror image."""
        return _log_sum(self.log_share + np.asarray(scipy.special.log_ndtr(x[:, None] - self.centre)))

    def outcome(self, loss: Array) -> Array:
        """Solve log P/Q = loss, (n,), by Newton's method between bounds, at least −40."""
        last = self.centre[-1]
        low = np.full(loss.shape, -40.0 if self.zeroed else 0.0)
        high = (np.maximum(loss, 0.0) - self.log_share[-1]) / last + 0.5 * last
        x = high.copy()
        for _ in range(200):
            value, slope = self.loss(x)
            low, high = np.where(value < loss, x, low), np.where(value < loss, high, x)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = x - (value - loss) / slope
            following = np.where((step > low) & (step < high), step, 0.5 * (low + high))
            movement, x = np.abs(following - x), following
            if (movement <= 1e-12 * (1.0 + np.abs(x))).all():
                break
        return np.asarray(x)

    def profile(self, e: Array) -> Array:
        """Compute δ(ε), (n,), the larger of both orders."""
        tau = self.outcome(e)
        first = self.log_above(tau)
        second = e + (scipy.special.log_ndtr(-tau) if self.zeroed else self.log_below(-tau))
        delta = np.exp(first) * -np.expm1(np.minimum(0.0, second - first))
        if self.zeroed:
            tau = self.outcome(-e)
            first, second = scipy.special.log_ndtr(tau), e + self.log_below(tau)
            delta = np.maximum(delta, np.exp(first) * -np.expm1(np.minimum(0.0, second - first)))
        return np.asarray(delta)

    def reach(self, tail: float) -> float:
        """Find a loss that is exceeded with probability below `tail` in either order."""
        least = float(scipy.special.ndtri(max(tail, 1e-300)))
        low, high = -least, float(self.centre[-1]) - least
        for _ in range(60):
            middle = 0.5 * (low + high)
            few = float(self.log_above(np.array([middle]))[0]) <= math.log(max(tail, 1e-300))
            low, high = (low, middle) if few else (middle, high)
        return max(float(self.loss(np.array([high]))[0][0]), -float(self.loss(np.array([least]))[0][0]))


def _log_sum(terms: Array) -> Array:
    top = terms.max(axis=1)
    return np.asarray(top + np.log(np.exp(terms - top[:, None]).sum(axis=1)))


@cache
def _log_binomial(records: int, rate: float) -> tuple[Array, Array]:
    """Return numbers j of drawn records, rounded up to at most `_MOST_MEMBERS` numbers, and their log probabilities."""
    ways, logs = 1, []
    for j in range(records + 1):
        logs.append(math.log(ways) + j * math.log(rate) + (records - j) * math.log1p(-rate))
        ways = ways * (records - j) // (j + 1)
    width = -(-records // _MOST_MEMBERS)
    members = np.minimum(np.arange(0, records + width, width), records)
    ends = [0, *(members + 1).tolist()]
    shares = [float(_log_sum(np.array([logs[a:b]]))[0]) for a, b in pairwise(ends)]
    return members.astype(np.float64), np.array(shares)


def group_profile(mu: float, rate: float, records: int, zero_out: bool) -> Callable[[Array], Array]:
    """Return δ(ε), for ε ≥ 0, of a Gaussian release on a Poisson sample, with k records replaced or zeroed out.

    Args:
        mu: sensitivity to all k records, 2km or km.
        rate: sampling rate q.
        records: number of records k.
        zero_out: whether the records contribute nothing in one of the data sets.

    Returns:
        The profile of Σ_j Bin(k, q)(j) N(jm, 1) against Σ_j Bin(k, q)(j) N(−jm, 1), or against N(0, 1), the larger of
        both orders, for arrays (n,).

    References:
        docs/proofs/11.

    Example:
        >>> float(group_profile(2.0, 0.5, 2, False)(np.array([0.5]))[0].round(6))
        0.215231
    """
    if rate == 1.0:
        return gaussian_profile(mu, 1.0)
    pair = _Members(mu, rate, records, zero_out)
    width = max(1, _AT_ONCE // pair.members.size)

    def profile(e: Array) -> Array:
        parts = [pair.profile(e[start : start + width]) for start in range(0, e.size, width)]
        return np.concatenate([_EMPTY, *parts])

    return profile


def log_gaussian_delta(mu: Array, epsilon: Array) -> Array:
    """Compute log δ of a Gaussian pair, δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), for μ and ε that broadcast."""
    first = scipy.special.log_ndtr(0.5 * mu - epsilon / mu)
    second = epsilon + scipy.special.log_ndtr(-0.5 * mu - epsilon / mu)
    with np.errstate(divide="ignore"):
        return np.asarray(first + np.log(-np.expm1(np.minimum(0.0, second - first))))


def smallest_epsilon(mu: Array, target: Array) -> Array:
    """Find the smallest ε ≥ 0 with log δ(ε) ≤ target for each Gaussian pair, by bisection.

    Args:
        mu: distances μ > 0 of the pairs, any shape.
        target: target log δ, of the same shape.
    """
    low, high = np.zeros_like(mu), 0.5 * mu * mu + mu * np.sqrt(-2.0 * target)
    for turn in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        # Between neighbouring floats bisection has ended.
        if turn > 50 and turn % 4 == 0 and ((middle == low) | (middle == high)).all():
            break
        enough = log_gaussian_delta(mu, middle) <= target
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _base_epsilon(e: Array, rate: float) -> Array:
    """Return log(1 + (e^e − 1)/η), the ε whose amplified value is e."""
    if rate == 1.0:
        return e
    return np.where(e < 500.0, np.log1p(np.expm1(np.minimum(e, 500.0)) / rate), e - math.log(rate))


def gaussian_reach(mu: float, rate: float, tail: float) -> float:
    """Return a loss that a (sampled) Gaussian pair exceeds with probability below `tail`."""
    return float(amplify(0.5 * mu * mu - mu * float(scipy.special.ndtri(max(tail, 1e-300))), rate))


def poisson_reach(mu: float, rate: float, tail: float) -> float:
    """Return the loss at an outcome that N(μ/2, 1), and so the mixture, exceeds with probability below `tail`."""
    if rate == 1.0:
        return gaussian_reach(mu, 1.0, tail)
    m = 0.5 * mu
    x = m - float(scipy.special.ndtri(max(tail, 1e-300)))
    stay, log_drawn = math.log1p(-rate), math.log(rate) - 0.5 * m * m
    return float(np.logaddexp(stay, log_drawn + m * x) - np.logaddexp(stay, log_drawn - m * x))


def group_reach(mu: float, rate: float, records: int, zero_out: bool, tail: float) -> float:
    """Return a loss that the pair of `group_profile` exceeds with probability below `tail`."""
    return gaussian_reach(mu, 1.0, tail) if rate == 1.0 else _Members(mu, rate, records, zero_out).reach(tail)


_ULP = 2.0**-52
# Bounds in units of 2⁻⁵², on profiles per (4.5 + reach), and on the arithmetic of masses (docs/proofs/10).
_PROFILE, _MASSES = 4.0, 16.0
# Distributions with at most this number of masses are convolved directly, four times as fast as by transforms. With 60,
# costs of Poisson samples would change in the ninth digit.
_SHORT = 48
# Masses that are searched for a tail one by one; more in arrays, each twice as long.
_RUN = 32


class LossMasses(NamedTuple):
    """Distribution of a privacy loss.

    Args:
        step: grid step.
        lowest: smallest loss, in steps.
        masses: masses of the losses lowest, lowest + 1, … steps, (n,).
        infinite: mass of an infinite loss.
        error: bound on the error of δ at every ε.
    """

    step: float
    lowest: int
    masses: Array
    infinite: float
    error: float


def discretise(pairs: Sequence[tuple[Callable[[Array], Array], float]], step: float) -> list[LossMasses]:
    """Discretise profiles by connecting the dots.

    Args:
        pairs: profile and reach of each pair, which is its own mirror image. The profile is δ(ε) for arrays (n,) of ε ≥
            0. Losses beyond ±reach are rounded up to −reach and to infinity.
        step: grid step.

    Returns:
        For each pair, a distribution that dominates it.

    References:
        Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022, "Connect the dots". See docs/proofs/10.

    Example:
        >>> coin = discretise([(lambda e: np.maximum(0.0, 3.0 - np.exp(e)) / 4.0, np.log(3.0))], np.log(3.0))
        >>> coin[0].masses.round(12).tolist(), epsilon_of_masses(coin[0], 0.25)
        ([0.25, 0.0, 0.75], 0.6931471805599453)
    """
    # Points in (0, reach], and the first one beyond.
    points = [max(1, math.ceil(reach / step * (1.0 - 1e-12))) for _, reach in pairs]
    e = np.asarray(np.arange(max(points, default=0) + 1) * step, dtype=np.float64)
    # Independent of the pair.
    above, falling = -np.expm1(-e), np.exp(-e)
    out, per_step = [], math.expm1(step)
    for (profile, reach), n in zip(pairs, points, strict=True):
        deltas = np.empty(2 * n + 1)
        upper = deltas[n:]
        np.minimum(np.maximum(profile(e[: n + 1]), 0.0), 1.0, out=upper)
        # δ(−e) = 1 − e^{−e} + e^{−e} δ(e).
        deltas[:n] = (above[1 : n + 1] + falling[1 : n + 1] * upper[1:])[::-1]
        np.minimum.accumulate(deltas, out=deltas)
        drops = deltas[1:] - deltas[:-1]
        masses = np.empty(deltas.size)
        masses[0] = 1.0 - deltas[0] + drops[0] / per_step
        # With e^h as 1 + (e^h − 1), roundings are relative to differences of drops, not to drops.
        masses[1:-1] = (drops[1:] - drops[:-1]) / per_step - drops[:-1]
        masses[-1] = drops[-1] / math.expm1(-step)
        # A drop to at least half of a value is exact.
        inexact = float(drops @ (2.0 * deltas[1:] < deltas[:-1])) / -per_step
        error = errors(reach) + 2.0 * _ULP * inexact
        out.append(LossMasses(step, -n, np.maximum(0.0, masses), float(deltas[-1]), error))
    return out


def errors(reach: float) -> float:
    """Bound the error of δ from discretising one pair whose profile falls by at most half between grid points."""
    return (_PROFILE * (4.5 + reach) + _MASSES) * _ULP


def compose(parts: Iterable[LossMasses], tail: float) -> LossMasses:
    """Compose distributions on the same grid, starting with the two smallest.

    Args:
        parts: distributions.
        tail: mass that may be truncated in each product: half of it below, which is rounded up, and half above, which
            becomes infinite.
    """
    heap = [(p.masses.size, i, p) for i, p in enumerate(parts)]
    heapq.heapify(heap)
    fresh = len(heap)
    while len(heap) > 1:
        composition = _compose(heapq.heappop(heap)[2], heapq.heappop(heap)[2], tail)
        heapq.heappush(heap, (composition.masses.size, fresh, composition))
        fresh += 1
    return heap[0][2]


def powers(parts: Sequence[LossMasses], counts: Sequence[int], tail: float) -> LossMasses:
    """Compose powers of distributions, Π_k P_k^{n_k}, with shared squarings.

    For each bit b of the counts, from the highest, S ← S² Π_{k: n_k has bit b} P_k (Straus 1964). Only S is squared,
    and the factors P_k stay short. Each later squaring doubles the mass that a product truncates. Over all products it
    counts at most 3 Σ_k n_k times.

    Args:
        parts: distributions P_k on one grid.
        counts: powers n_k, at least 1.
        tail: mass that may be truncated in each product, as in `compose`.
    """
    total: list[LossMasses] = []
    for bit in reversed(range(max(counts).bit_length())):
        total = [_compose(s, s, tail) for s in total]
        here = [part for part, n in zip(parts, counts, strict=True) if n >> bit & 1]
        total = [compose([*total, *here], tail)]
    return total[0]


def _compose(a: LossMasses, b: LossMasses, tail: float) -> LossMasses:
    size = a.masses.size + b.masses.size
    # l1 error of a convolution by Fourier transform; against long double it stayed below 0.8·ulp·√(2n) up to n = 16000.
    # Sums of k products are wrong by at most k·ulp/2 of themselves, and so less for k ≤ 64: this is at least 4√k·ulp.
    rounding = 2.0 * _ULP * math.sqrt(2.0 * size)
    if a.masses.size == 1 or b.masses.size == 1:
        masses = a.masses * b.masses
    elif min(a.masses.size, b.masses.size) <= _SHORT:
        masses = np.asarray(np.convolve(a.masses, b.masses))
    else:
        # Slow to import, and few budgets need transforms.
        from scipy.fft import next_fast_len

        length = int(next_fast_len(size - 1, True))
        values = np.fft.rfft(a.masses, length)
        second_values = values if a.masses is b.masses else np.fft.rfft(b.masses, length)
        # In this order: as an operator, numpy may exchange the factors, and fused products then round differently.
        values = np.multiply(values, second_values)
        masses = np.asarray(np.fft.irfft(values, length)[: size - 1])
    # A cut below the transform's noise would never end the tails.
    tail_mass = 0.5 * max(tail, 0.1 * rounding)
    low = _prefix(masses, tail_mass)
    high = max(masses.size - _prefix(masses[::-1], tail_mass), low + 1)
    middle, infinite = masses[low:high], a.infinite + b.infinite - a.infinite * b.infinite
    if high < masses.size:
        infinite += float(np.add.reduce(masses[high:]))
    if low:
        middle[0] += np.add.reduce(masses[:low])
    return LossMasses(a.step, a.lowest + b.lowest + low, middle, infinite, a.error + b.error + rounding)


def _prefix(masses: Array, threshold: float) -> int:
    """Return the length of the longest prefix whose cumulative sum stays at or below the threshold."""
    total, start = 0.0, 0
    # Usually a few masses, for which a list is faster than arrays.
    for mass in masses[:_RUN].tolist():
        total += mass
        if total > threshold:
            return start
        start += 1
    while start < masses.size:
        # In the same order, so to the same bits.
        sums = masses[start : 2 * start].copy()
        sums[0] += total
        np.cumsum(sums, out=sums)
        above = sums > threshold
        if above.any():
            return start + int(above.argmax())
        total, start = sums[-1], 2 * start
    return masses.size


def epsilon_of_masses(total: LossMasses, delta: float) -> float:
    """Solve δ = Σ_{x > ε} P(x)(1 − e^{ε − x}) + P(∞) for ε ≥ 0, and return +inf if there is no solution.

    Args:
        total: distribution of the loss x.
        delta: privacy parameter δ minus the errors.
    """
    if total.infinite > delta:
        return math.inf
    n = total.masses.size
    losses = np.full(n, -total.step)
    losses[0] = (total.lowest + n - 1) * total.step
    np.cumsum(losses, out=losses)
    # Sums over all larger losses: of P, and of P e^{−x}.
    above, further = np.empty(n + 1), np.empty(n + 1)
    above[0], above[1:] = total.infinite, total.masses[::-1]
    # A smaller e^{−x} is more privacy loss.
    further[0], further[1:] = 0.0, np.exp(np.minimum(-losses, 700.0)) * above[1:]
    np.cumsum(above, out=above)
    np.cumsum(further, out=further)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        is_reached = (above > delta) & (further > 0.0)
        epsilon = np.log(np.where(is_reached, (above - delta) / further, 1.0))
    beyond = is_reached[:n] & (epsilon[:n] >= losses)
    # For losses so large that e^{−x} is zero.
    vanishing = (above[1:] >= delta) & (further[1:] == 0.0)
    k = int(beyond.argmax()) if beyond.any() else n
    if vanishing[:k].any():
        return max(0.0, float(losses[int(vanishing.argmax())]))
    if above[k] <= further[k] + delta:
        return 0.0
    return math.log((above[k] - delta) / further[k])


_EMPTY = np.zeros(0)
# Shares of Σε² that discretisation and bucketing may add; ε grows by about half of them.
_GRID_SHARE, _BUCKET_SHARE, _BUCKETS = 0.00015, 0.002, 128
_COARSER = 64.0
_MAX_POINTS, _TILTED_POINTS = 2**20, 2**22
# Up to this number of releases, tiny ones are merged by the grid only.
_FEW = 2**14
# Relative width below which a bucket has one value, and the distance of a mixture's values in widths, times √width.
_NARROW, _SPREAD = 1e-6, 0.4
# Largest exponent of a variance.
_RARE = 8.0
# Tiny losses that are merged into one before a grid is chosen.
_TOGETHER = 32
# Above these shares of δ, of one pair and of several pairs, errors of plain transforms are worth a tilted composition.
_NOISE_SHARE_OF_ONE, _NOISE_SHARE = 0.002, 0.01


class Releases(NamedTuple):
    """Charges of a set of releases to one record.

    Attributes:
        laplace: pure ε of Laplace releases in which every record takes part, (n,).
        mu: total cost √Σμ² of such Gaussian releases.
        sampled_laplace: base pure ε and sampling rate, one column per round with a fresh batch, (2, k).
        sampled_gaussian: base μ and sampling rate, (2, k).
        pure: pure ε of other releases in which every record takes part, (n,).
        bounded_range: pure ε of exponential mechanisms, (n,).
        poisson: base μ of one replaced record and sampling rate of Gaussian releases on a Poisson sample, (2, k).
        poisson_groups: base μ of all records of other units, sampling rate, number of records, and 1 if zeroed out, (4,
            k).
    """

    laplace: Array = _EMPTY
    mu: float = 0.0
    sampled_laplace: Array = np.zeros((2, 0))
    sampled_gaussian: Array = np.zeros((2, 0))
    pure: Array = _EMPTY
    bounded_range: Array = _EMPTY
    poisson: Array = np.zeros((2, 0))
    poisson_groups: Array = np.zeros((4, 0))

    def join(self, other: Releases) -> Releases:
        """Join two sets of releases."""
        pairs: Iterable[tuple[Any, Any]] = zip(self, other, strict=True)
        return Releases._make(np.concatenate(p, axis=-1) if np.ndim(p[0]) else math.hypot(*p) for p in pairs)

    def divide(self, factor: float) -> Releases:
        """Return the charges with all noise scales multiplied by a factor."""
        # The first row of sampled releases is divided; rates and units stay.
        return Releases._make(
            np.concatenate([part[:1] * (1.0 / factor), part[1:]])
            if isinstance(part, np.ndarray) and part.ndim == 2
            else part / factor
            for part in self
        )

    @property
    def only_gaussian(self) -> bool:
        """Whether all releases are Gaussian and every record takes part in all of them."""
        return not any(part.size for part in self if isinstance(part, np.ndarray))


def epsilons(segments: Sequence[Releases], delta: float, tilted: bool = False) -> list[float]:
    """Bound ε(δ) from above after one segment, after two segments, …. The bound is +inf if δ is too small.

    If the errors of transforms add up to a large part of δ, or if `tilted` is set, the releases are composed under an
    exponential tilt (`tilted_composition`), whose errors are relative to δ.
    """
    all_releases = reduce(Releases.join, segments)
    releases = len(segments) + sum(part.shape[-1] for part in all_releases if isinstance(part, np.ndarray))
    if releases > _FEW:
        segments = [segment._replace(laplace=_merge_tiny(segment.laplace)) for segment in segments]
        all_releases = reduce(Releases.join, segments)
    # Truncated tails are charged as infinite loss. All of them take less than a thousandth of δ.
    tail = 1e-4 * delta / releases
    step = _resolution(all_releases, delta, _MAX_POINTS)
    out: list[float] = []
    total: LossMasses | None = None
    first_tilted = len(segments)
    for k, segment in enumerate(segments):
        if not tilted:
            pairs = list(_pairs(segment, step, tail, _BUCKET_SHARE / len(segments)))
            # Errors never shrink, so that all later segments are tilted as well.
            profiles = sum(p.number * errors(p.reach) for p in pairs)
            tilted = (total.error if total else 0.0) + profiles > _NOISE_SHARE * delta
        if tilted:
            # Segments before the last one are bundled more coarsely.
            share = _BUCKET_SHARE if k + 1 == len(segments) else _COARSER * _BUCKET_SHARE
            out.append(_tilted_epsilon(segments[: k + 1], tail, delta, share))
            first_tilted = min(first_tilted, k)
            continue
        if pairs:
            losses = discretise([(p.profile, p.reach) for p in pairs], step)
            part = powers(losses, [p.number for p in pairs], tail)
            total = part if total is None else compose([total, part], tail)
        out.append(_epsilon_at(total, delta))
        if total is not None and total.error > (_NOISE_SHARE if len(pairs) > 1 else _NOISE_SHARE_OF_ONE) * delta:
            out[-1] = min(out[-1], _tilted_epsilon(segments[: k + 1], tail, delta, _BUCKET_SHARE))
    # Fewer releases never cost more.
    for k in range(len(out) - 2, first_tilted - 1, -1):
        out[k] = min(out[k], out[k + 1])
    return out


def _tilted_epsilon(segments: Sequence[Releases], tail: float, delta: float, share: float) -> float:
    all_releases = reduce(Releases.join, segments)
    step = _resolution(all_releases, delta, _TILTED_POINTS)
    pairs = list(_pairs(all_releases, step, tail, share))
    return tilted_epsilon(pairs, step, delta) if pairs else 0.0


def _epsilon_at(total: LossMasses | None, delta: float) -> float:
    if total is None:
        return 0.0
    # An error of one pair is weighted by the masses of all others, which rounding may raise above one.
    remaining_delta = delta - total.error * max(1.0, float(total.masses.sum()) + total.infinite)
    if remaining_delta <= 0.0:
        return math.inf
    return epsilon_of_masses(total, remaining_delta) * (1.0 + 1e-9)


# Discretisation -----------------------------------------------------------------------------------------------------


def _squares(releases: Releases) -> Array:
    """Approximate variances of the privacy losses: ε² for small losses (η²χ² with sampling), bounded for large ones.

    On a Poisson sample, q times the squared loss of a drawn record is a further bound, since a large loss is rare.
    """
    e, rate = releases.sampled_laplace
    m, share = releases.sampled_gaussian
    mu, q = releases.poisson
    half = 0.5 * mu
    together, drawn_rate, records, zero_out = releases.poisson_groups
    mu_per_record = together / np.where(zero_out > 0.0, records, 2.0 * records)
    # 0·∞ and ∞ belong to releases that are dropped, or bounded, below.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        poisson = np.minimum(mu**2, 4.0 * q**2 / (1.0 - q) * np.sinh(half**2))
        # The part of one of k records.
        single = np.minimum((2.0 * mu_per_record) ** 2, drawn_rate * (mu_per_record + 0.5 * mu_per_record**2) ** 2)
        single = np.minimum(single, drawn_rate**2 * np.expm1(mu_per_record**2) * 4.0)
        chi = rate**2 * (2.0 / 3.0 * np.exp(e) + np.exp(-2.0 * e) / 3.0 - 1.0)
        parts = [
            np.minimum(releases.laplace**2, 3.0),
            np.minimum(releases.pure**2, 3.0),
            np.minimum(releases.bounded_range**2, 3.0),
            np.minimum(amplify(e, rate) ** 2, chi),
            np.minimum(m**2, share**2 * np.expm1(m**2)),
            np.minimum(poisson, q * (half + 0.5 * half**2) ** 2),
            np.minimum(together**2, records * (1.0 + (records - 1.0) * drawn_rate) * single),
            np.array([releases.mu**2]) if releases.mu > 0.0 else _EMPTY,
        ]
    several = [part for part in parts if part.size]
    squares = several[0] if len(several) == 1 else np.concatenate([_EMPTY, *several])
    return squares if (positive := squares > 0.0).all() else squares[positive]


def _resolution(releases: Releases, delta: float, points: int) -> float:
    """Choose a grid step h. Connecting the dots adds min(h²/4, hε) to the variance of a loss of size ε.

    Args:
        releases: releases to be composed.
        delta: privacy parameter δ.
        points: approximate limit on the points of the composed losses.
    """
    squares = _squares(releases)
    if not squares.size:
        return 1.0
    # A stable sort is fast for costs that fall from round to round.
    sizes = np.sort(np.sqrt(squares), kind="stable")
    sums, total = np.zeros(sizes.size + 1), float(squares.sum())
    np.cumsum(sizes, out=sums[1:])
    low, high = 0.0, math.sqrt(total)
    for _ in range(60):
        h = 0.5 * (low + high)
        small = int(np.searchsorted(sizes, 0.25 * h))
        extra = h * sums[small] + 0.25 * h * h * (sizes.size - small)
        low, high = (h, high) if extra <= _GRID_SHARE * total else (low, h)
    deviation = math.sqrt(total)
    guess = 0.5 * total + deviation * math.sqrt(2.0 * math.log(1.0 / delta))
    pure = np.concatenate([releases.laplace, amplify(*releases.sampled_laplace), releases.pure, releases.bounded_range])
    guess = max(guess, largest := float(pure.max(initial=0.0)))
    if releases.mu == 0.0 and not any(
        part.size for part in (releases.sampled_gaussian, releases.poisson, releases.poisson_groups)
    ):
        guess = min(guess, float(pure.sum()))
    step = max(min(low, guess / 800.0), 4.0 * guess / points)
    # Half of the mass of equal releases is at the largest loss, which a multiple of the step represents exactly.
    return largest / math.ceil(largest / step) if step < largest == pure.min() else step


def _pairs(releases: Releases, step: float, tail: float, share: float) -> Iterator[ReleaseProfile]:
    """Yield dominating pairs of the releases. No loss beyond the reach has a probability above `tail`."""
    for bucket in _buckets(_merge_small(releases.laplace, step), share, _LAPLACE):
        yield bucket.pair(partial(laplace_profile, rate=1.0), bucket.high)
    pure = np.concatenate([releases.pure, releases.bounded_range])
    for bucket in _buckets(_merge_small(pure, step), share, _RESPONSE):
        yield bucket.pair(response_profile, bucket.high)
    for rate, bucket in _sampled_buckets(releases.sampled_laplace, share, _LAPLACE):
        yield bucket.pair(partial(laplace_profile, rate=rate), float(amplify(bucket.high, rate)))
    for rate, bucket in _sampled_buckets(releases.sampled_gaussian, share, _GAUSSIAN):
        yield bucket.pair(partial(gaussian_profile, rate=rate), gaussian_reach(bucket.high, rate, tail))
    for rate, bucket in _sampled_buckets(releases.poisson, share, _POISSON):
        yield bucket.pair(partial(poisson_profile, rate=rate), poisson_reach(bucket.high, rate, tail))
    for records, zero_out in np.unique(releases.poisson_groups[2:], axis=1).T:
        is_unit = np.all(releases.poisson_groups[2:] == [[records], [zero_out]], axis=0)
        unit: dict[str, Any] = {"records": int(records), "zero_out": bool(zero_out)}
        kind = _GAUSSIAN if records == 1.0 else _Kind(np.square, None)
        for rate, bucket in _sampled_buckets(releases.poisson_groups[:2, is_unit], share, kind):
            reach = group_reach(bucket.high, rate, tail=tail, **unit)
            yield bucket.pair(partial(group_profile, rate=rate, **unit), reach)
    if releases.mu > 0.0:
        yield ReleaseProfile(gaussian_profile(releases.mu, 1.0), gaussian_reach(releases.mu, 1.0, tail), 1)


def _merge_tiny(losses: Array) -> Array:
    """Replace the tiniest of many losses by sums of `_TOGETHER` of them, so that fewer are sorted.

    Sums of at most h add at most hΣε to the variance Σε²: half of the variance that a grid step may add.
    """
    total = float(losses.sum())
    if total == 0.0:
        return losses
    is_tiny = losses < 0.5 * _GRID_SHARE * float(losses @ losses) / total / _TOGETHER
    tiny = losses[is_tiny]
    sums = np.concatenate([tiny, np.zeros(-tiny.size % _TOGETHER)]).reshape(-1, _TOGETHER).sum(axis=1)
    # Sums are rounded, and must not be smaller than their parts.
    return np.concatenate([losses[~is_tiny], sums * (1.0 + _TOGETHER * _ULP)])


def _merge_small(losses: Array, step: float) -> Array:
    """Merge losses below the grid step into losses of about one step."""
    # Sorted, so that the result does not depend on the order of the releases.
    small = np.sort(losses[(losses < step) & (losses > 0.0)], kind="stable")
    if small.size < 2:
        return losses[losses > 0.0]
    # The conversion to integers is a floor of non-negative numbers.
    chunk = (np.cumsum(small) / step).astype(np.int64)
    merged_masses = np.bincount(chunk, weights=small)
    # The sums are rounded, and a merged loss must not be smaller than its parts.
    return np.concatenate([losses[losses >= step], merged_masses[merged_masses > 0.0] * (1.0 + 1e-12)])


class _Bucket(NamedTuple):
    """Similar releases, each dominated by a public random choice between two of them.

    Attributes:
        low: smaller sensitivity.
        high: larger sensitivity.
        weight: probability of the smaller sensitivity.
        number: number of releases.
    """

    low: float
    high: float
    weight: float
    number: int

    def pair(self, profile: Callable[[float], Profile], reach: float) -> ReleaseProfile:
        """Return the dominating pair, for a profile of one sensitivity and the reach of the larger one."""
        high = profile(self.high)
        if self.weight == 0.0:
            return ReleaseProfile(high, reach, self.number)
        low, weight = profile(self.low), self.weight
        return ReleaseProfile(lambda e: weight * low(e) + (1.0 - weight) * high(e), reach, self.number)


def laplace_weights(values: Array, low: float, high: float) -> Array:
    """Return the w with v = w·low + (1 − w)·high in total variations, 1 − e^{−v/2}, of Laplace pairs (n,)."""
    return np.asarray(np.expm1(0.5 * (values - high)) / math.expm1(0.5 * (low - high)) * np.exp(0.5 * (low - values)))


def response_weights(values: Array, low: float, high: float) -> Array:
    """Return the same weights as `laplace_weights` for randomised response, tanh(v/2)."""
    weights = np.expm1(values - high) / math.expm1(low - high) * np.exp(low - values)
    return np.asarray(weights * (1.0 + math.exp(-low)) / (1.0 + np.exp(-values)))


def gaussian_weights(values: Array, low: float, high: float) -> Array:
    """Return the same weights as `laplace_weights` for (sampled) Gaussian pairs, in proportion to 2Φ(v/2) − 1."""

    def upper(v: Array | float) -> Any:
        # Small and large values each need their own function for a small relative error of differences.
        return -scipy.special.erf(v / math.sqrt(8.0)) if high < 1.0 else scipy.special.erfc(v / math.sqrt(8.0))

    return np.asarray((upper(values) - upper(high)) / (upper(low) - upper(high)))


class _Kind(NamedTuple):
    """Rules for bucketing releases of one kind.

    Attributes:
        variance: function from values (n,) to approximate variances of the losses, up to a factor.
        weights: function for the weights of mixtures, such as `laplace_weights`; None if no mixture is proven to
            dominate.
    """

    variance: Callable[[Array], Array]
    weights: Callable[[Array, float, float], Array] | None


def _rare_variance(mu: Array) -> Array:
    """Approximate e^{μ²} − 1, for few drawn records. Large losses are too rare to count in full."""
    return np.asarray(np.square(mu) * np.exp(np.minimum(np.square(mu), _RARE)))


_LAPLACE, _RESPONSE = _Kind(np.square, laplace_weights), _Kind(np.square, response_weights)
_GAUSSIAN = _Kind(_rare_variance, gaussian_weights)
_POISSON = _Kind(lambda mu: _rare_variance(0.5 * mu), gaussian_weights)


def _buckets(values: Array, share: float, kind: _Kind) -> Iterator[_Bucket]:
    """Yield runs of similar values, of which the largest would add the same part of `share` to the variance."""
    v = np.sort(values)[::-1]
    if not v.size:
        return
    variance = kind.variance(v)
    sums = np.concatenate([[0.0], np.cumsum(variance)])
    largest_cost = share * sums[-1] / _BUCKETS
    start = 0
    while start < v.size:
        low, high = start + 1, v.size
        while low < high:
            middle = (low + high + 1) // 2
            cost = (middle - start) * variance[start] - (sums[middle] - sums[start])
            low, high = (middle, high) if cost <= largest_cost else (low, middle - 1)
        yield _mix(v[start:low], kind)
        start = low


def _mix(values: Array, kind: _Kind) -> _Bucket:
    """Dominate similar, descending values by mixtures of two values, or by the largest."""
    largest, least = float(values[0]), float(values[-1])
    plain, width = _Bucket(largest, largest, 0.0, values.size), (largest - least) / largest
    if kind.weights is None or width < _NARROW:
        return plain
    high = least + max(2.0, _SPREAD / math.sqrt(width)) * (largest - least)
    # A binomial number of high values is stochastically larger if P(none) is the same. A smaller weight is safe.
    weight = math.exp(float(np.log(kind.weights(values, least, high)).mean())) * (1.0 - 1e-9)
    below, top, above = kind.variance(np.array([least, largest, high]))
    is_better = weight * below + (1.0 - weight) * above < top
    return _Bucket(least, high, weight, values.size) if is_better else plain


def _sampled_buckets(sampled: Array, share: float, kind: _Kind) -> Iterator[tuple[float, _Bucket]]:
    """Yield rates, rounded up to at most a few dozen values, and buckets of bases for each."""
    base, rate = sampled[:, (sampled[0] > 0.0) & (sampled[1] > 0.0)]
    if np.unique(rate).size > 32:
        rate = np.asarray(np.minimum(1.0, 1.01 ** np.ceil(np.log(rate) / math.log(1.01)) * (1.0 + 1e-12)), np.float64)
    for r in np.unique(rate):
        for bucket in _buckets(base[rate == r], share, kind):
            yield float(r), bucket
