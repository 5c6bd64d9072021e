"""(ε, δ) of composed Laplace and Gaussian releases, by privacy-loss distributions.

Every release is replaced by a pair that dominates it, and the pairs are composed numerically, always rounding towards
more privacy loss ("connect the dots", Doroshenko et al. 2022). What is exact, what is rounded up:

* A set of Laplace releases is dominated by one Laplace whose pure ε is their sum: on the straight path between two
  shifts every log-density moves by at most Σε in all, and no such path leads to a lower trade-off curve than Laplace's.
  Only releases smaller than the grid are merged so.
* A release that is known to be of pure ε and nothing else is dominated by randomised response, which is likelier to
  answer one way by e^ε (Kairouz, Oh & Viswanath 2015); a set of them by one of Σε. Laplace's pair is not enough for it.
* Similar releases share one distribution, that of the largest of them; the sum of squares grows by at most 1 %.
* A release on a fresh fixed-size batch (replace-one, share η of the pool) has the profile δ(ε') = η·δ_base(ε) with
  ε' = log(1 + η(e^ε − 1)) ≥ 0, and f(−e) = 1 − e^{−e} + e^{−e} f(e) (Balle, Barthe & Gaboardi 2018).
* A Gaussian release on a Poisson sample of rate q is dominated by (1−q)N(0) + qN(μ/2) against (1−q)N(0) + qN(−μ/2):
  of all events with one probability under N(0), a half-space is likeliest under the one shift and least likely under
  the other. That pair is its own mirror image.
* Gaussian releases compose exactly: μ² adds, also adaptively.

Float64 errors of the profiles and of the Fourier transforms are bounded and taken from δ before ε is read off. Where
they would take a good part of it, after very many releases or at a very small δ, `tilted_composition` takes over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.discretised_losses import (
    LossMasses,
    composed,
    discretised,
    epsilon_at,
    errors,
    points_of,
    power,
)
from decentral_dp.privacy.accounting.loss_profiles import (
    amplified,
    gaussian_profile,
    gaussian_reach,
    laplace_profile,
    poisson_profile,
    poisson_reach,
    response_profile,
)
from decentral_dp.privacy.accounting.tilted_composition import Pair, tilted_epsilon

_NONE = np.zeros(0)
# Shares of Σε² that discretisation and bucketing may add; ε grows by about half of them.
_GRID_SHARE, _BUCKET_SHARE, _BUCKETS = 0.002, 0.003, 128
_COARSER = 64.0
_MAX_POINTS, _TILTED_POINTS = 2**18, 2**22
# Above this share of δ the errors of plain transforms show in ε.
_NOISE_SHARE = 0.01


class Releases(NamedTuple):
    """What one record is charged for a set of releases.

    laplace: (n,) pure ε of releases that every record takes part in. mu: √Σμ² of such Gaussian releases.
    sampled_laplace, sampled_gaussian: (2, k) base pure ε (or base μ) and share of the pool, one column per round.
    pure: (n,) pure ε of releases of any other law that every record takes part in. ranged: (n,) the same of
    exponential mechanisms. poisson: (2, k) base μ (two records exchanged) and rate of Gaussian releases on a Poisson
    sample.
    """

    laplace: Array = _NONE
    mu: float = 0.0
    sampled_laplace: Array = np.zeros((2, 0))
    sampled_gaussian: Array = np.zeros((2, 0))
    pure: Array = _NONE
    ranged: Array = _NONE
    poisson: Array = np.zeros((2, 0))

    def joined(self, other: Releases) -> Releases:
        """Both sets of releases."""
        return Releases(
            np.concatenate([self.laplace, other.laplace]),
            math.hypot(self.mu, other.mu),
            np.concatenate([self.sampled_laplace, other.sampled_laplace], axis=1),
            np.concatenate([self.sampled_gaussian, other.sampled_gaussian], axis=1),
            np.concatenate([self.pure, other.pure]),
            np.concatenate([self.ranged, other.ranged]),
            np.concatenate([self.poisson, other.poisson], axis=1),
        )

    @property
    def only_gaussian(self) -> bool:
        """Whether all of them are Gaussian releases that every record takes part in."""
        return not any(part.size for part in self if isinstance(part, np.ndarray))


def epsilons(segments: Sequence[Releases], delta: float, tilted: bool = False) -> list[float]:
    """Upper bounds on ε(δ) after the first, the first two, … segments; +inf where δ is too small to tell.

    Where the errors of transforms add up to a good part of δ, and wherever `tilted` is set, the releases are composed
    under an exponential tilt (`tilted_composition`), whose errors are relative to δ.
    """
    every = reduce(Releases.joined, segments)
    releases = len(segments) + sum(part.shape[-1] for part in every if isinstance(part, np.ndarray))
    # What is cut off the tails is charged as infinite loss; all cuts together take less than a thousandth of δ.
    tail = 1e-4 * delta / releases
    step = _resolution(every, delta, _MAX_POINTS)
    out: list[float] = []
    total: LossMasses | None = None
    first_tilted = len(segments)
    for k, segment in enumerate(segments):
        if not tilted:
            pairs = list(_pairs(segment, step, tail, _BUCKET_SHARE / len(segments)))
            # Errors never shrink: once they are too large, no later segment is composed so.
            profiles = sum(p.number * errors(points_of(p.reach, step)) for p in pairs)
            tilted = (total.error if total else 0.0) + profiles > _NOISE_SHARE * delta
        if tilted:
            # On the way, schedules are gathered more coarsely.
            share = _BUCKET_SHARE if k + 1 == len(segments) else _COARSER * _BUCKET_SHARE
            out.append(_tilted(segments[: k + 1], tail, delta, share))
            first_tilted = min(first_tilted, k)
            continue
        if pairs:
            losses = discretised([(p.profile, p.reach) for p in pairs], step)
            parts = [power(loss, p.number, tail) for loss, p in zip(losses, pairs, strict=True)]
            total = composed(parts if total is None else [total, *parts], tail)
        out.append(_read(total, delta))
        if total is not None and total.error > _NOISE_SHARE * delta:
            out[-1] = min(out[-1], _tilted(segments[: k + 1], tail, delta, _BUCKET_SHARE))
    # Fewer releases never cost more.
    for k in range(len(out) - 2, first_tilted - 1, -1):
        out[k] = min(out[k], out[k + 1])
    return out


def _tilted(segments: Sequence[Releases], tail: float, delta: float, share: float) -> float:
    every = reduce(Releases.joined, segments)
    step = _resolution(every, delta, _TILTED_POINTS)
    pairs = list(_pairs(every, step, tail, share))
    return tilted_epsilon(pairs, step, delta) if pairs else 0.0


def _read(total: LossMasses | None, delta: float) -> float:
    if total is None:
        return 0.0
    left = delta - total.error
    if left <= 0.0:
        return math.inf
    return epsilon_at(total, left) * (1.0 + 1e-9)


# Discretisation -----------------------------------------------------------------------------------------------------


def _squares(releases: Releases) -> Array:
    """Variances of the privacy losses, about: small losses ε² (η²χ² when sampled), large ones saturate.

    On a Poisson sample also q times the square of the loss of a record that is in it: a large loss is a rare one.
    """
    e, rate = releases.sampled_laplace
    m, share = releases.sampled_gaussian
    drawn, q = releases.poisson
    half = 0.5 * drawn
    # 0·∞ and ∞ belong to releases that are dropped, or capped, below.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        poisson = np.minimum(drawn**2, 4.0 * q**2 / (1.0 - q) * np.sinh(half**2))
        chi = rate**2 * (2.0 / 3.0 * np.exp(e) + np.exp(-2.0 * e) / 3.0 - 1.0)
        parts = [
            np.minimum(releases.laplace**2, 3.0),
            np.minimum(releases.pure**2, 3.0),
            np.minimum(releases.ranged**2, 3.0),
            np.minimum(amplified(e, rate) ** 2, chi),
            np.minimum(m**2, share**2 * np.expm1(m**2)),
            np.minimum(poisson, q * (half + 0.5 * half**2) ** 2),
            np.array([releases.mu**2]) if releases.mu > 0.0 else _NONE,
        ]
    squares = np.concatenate(parts)
    return squares[squares > 0.0]


def _resolution(releases: Releases, delta: float, points: int) -> float:
    """Grid step: connecting dots a step h apart adds min(h²/4, hε) to the variance of a loss of size ε.

    points: how many of them the composed losses may take, about.
    """
    squares = _squares(releases)
    if not squares.size:
        return 1.0
    sizes = np.sort(np.sqrt(squares))
    sums, total = np.concatenate([[0.0], np.cumsum(sizes)]), float(squares.sum())
    low, high = 0.0, math.sqrt(total)
    for _ in range(60):
        h = 0.5 * (low + high)
        small = int(np.searchsorted(sizes, 0.25 * h))
        added = h * sums[small] + 0.25 * h * h * (sizes.size - small)
        low, high = (h, high) if added <= _GRID_SHARE * total else (low, h)
    deviation = math.sqrt(total)
    guess = 0.5 * total + deviation * math.sqrt(2.0 * math.log(1.0 / delta))
    pure = np.concatenate([releases.laplace, amplified(*releases.sampled_laplace), releases.pure, releases.ranged])
    guess = max(guess, float(pure.max(initial=0.0)))
    if releases.mu == 0.0 and not releases.sampled_gaussian.size and not releases.poisson.size:
        guess = min(guess, float(pure.sum()))
    return max(min(low, guess / 800.0), 4.0 * guess / points)


def _pairs(releases: Releases, step: float, tail: float, share: float) -> Iterator[Pair]:
    """Dominating pairs of the releases; no loss beyond the reach has a probability above `tail`."""
    for loss, count in _buckets(_merge_small(releases.laplace, step), share):
        yield Pair(laplace_profile(loss, 1.0), loss, count)
    for loss, count in _buckets(_merge_small(np.concatenate([releases.pure, releases.ranged]), step), share):
        yield Pair(response_profile(loss), loss, count)
    for loss, rate, count in _sampled_buckets(releases.sampled_laplace, share):
        yield Pair(laplace_profile(loss, rate), float(amplified(loss, rate)), count)
    for mu, rate, count in _sampled_buckets(releases.sampled_gaussian, share):
        yield Pair(gaussian_profile(mu, rate), gaussian_reach(mu, rate, tail), count)
    for mu, rate, count in _sampled_buckets(releases.poisson, share):
        yield Pair(poisson_profile(mu, rate), poisson_reach(mu, rate, tail), count)
    if releases.mu > 0.0:
        yield Pair(gaussian_profile(releases.mu, 1.0), gaussian_reach(releases.mu, 1.0, tail), 1)


def _merge_small(losses: Array, step: float) -> Array:
    """Replace losses below the grid step by merged ones of about one step: the grid cannot tell them apart."""
    # Sorted, so that the order of the releases does not show in how they fall together.
    small = np.sort(losses[(losses < step) & (losses > 0.0)])
    if small.size < 2:
        return losses[losses > 0.0]
    chunk = np.floor(np.cumsum(small) / step).astype(np.int64)
    merged = np.bincount(chunk, weights=small)
    # The sums above are rounded; a merged loss must not come out smaller than its parts.
    return np.concatenate([losses[losses >= step], merged[merged > 0.0] * (1.0 + 1e-12)])


def _buckets(values: Array, share: float) -> Iterator[tuple[float, int]]:
    """(largest value, count) of runs of similar values; each run may add the same part of `share`·Σv² to Σv²."""
    v = np.sort(values)[::-1]
    if not v.size:
        return
    squares = np.concatenate([[0.0], np.cumsum(v * v)])
    allowed = share * squares[-1] / _BUCKETS
    start = 0
    while start < v.size:
        low, high = start + 1, v.size
        while low < high:
            middle = (low + high + 1) // 2
            cost = (middle - start) * v[start] ** 2 - (squares[middle] - squares[start])
            low, high = (middle, high) if cost <= allowed else (low, middle - 1)
        yield float(v[start]), low - start
        start = low


def _sampled_buckets(sampled: Array, share: float) -> Iterator[tuple[float, float, int]]:
    """(base, rate, count): rates rounded up to at most a few dozen values, then bases bucketed within each."""
    base, rate = sampled[:, (sampled[0] > 0.0) & (sampled[1] > 0.0)]
    if np.unique(rate).size > 32:
        rate = np.asarray(np.minimum(1.0, 1.01 ** np.ceil(np.log(rate) / math.log(1.01)) * (1.0 + 1e-12)), np.float64)
    for r in np.unique(rate):
        for value, count in _buckets(base[rate == r], share):
            yield value, float(r), count
