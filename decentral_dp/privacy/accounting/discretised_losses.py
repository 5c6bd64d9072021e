"""Privacy-loss distributions on a grid: discretised, composed by Fourier transforms, and ε read off at a δ.

A loss lies on a grid of step h, or is infinite. "Connecting the dots" (Doroshenko et al. 2022, algorithm 1) gives the
grid's masses from the profile δ_i = δ(ih), i = −n … n:

    P(ih) = ((δ_{i+1} − δ_i) − e^h (δ_i − δ_{i−1}))/(e^h − 1),    P(∞) = δ_n,

and what is left of the profile at both ends; δ of those masses is δ_i on the grid, and linear in e^ε between, so never
below the profile, which is convex in e^ε. The arithmetic, and what is cut off the tails, is that of `dp_accounting`
0.6, to the rounding of its transforms, without what its classes cost a call: a budget takes thousands of transforms of
a few hundred numbers.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, reduce
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array

_ULP = 2.0**-52
# Masses are looked through for a tail in runs of this many.
_RUN = 32


class LossMasses(NamedTuple):
    """Distribution of a privacy loss.

    Args:
        step: of the grid.
        first: the least loss, in steps.
        masses: of the losses first, first + 1, … steps.
        infinite: mass of an infinite loss.
        error: a bound on the l1 error of all masses.
    """

    step: float
    first: int
    masses: Array
    infinite: float
    error: float


def discretised(pairs: Sequence[tuple[Callable[[Array], Array], float]], step: float) -> list[LossMasses]:
    """Connect the dots of profiles.

    Args:
        pairs: δ(ε) for ε ≥ 0 of a pair that is its own mirror image, and a loss, its reach; losses beyond ±reach are
            rounded up to −reach and to infinity.
        step: of the grid.

    Returns:
        A distribution of each pair that dominates it.

    References:
        Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022, "Connect the dots". See docs/proofs/10.

    Example:
        >>> coin = discretised([(lambda e: np.maximum(0.0, 3.0 - np.exp(e)) / 4.0, np.log(3.0))], np.log(3.0))
        >>> coin[0].masses.round(12).tolist(), epsilon_at(coin[0], 0.25)
        ([0.25, 0.0, 0.75], 0.6931471805599453)
    """
    points = [points_of(reach, step) for _, reach in pairs]
    e = np.asarray(np.arange(max(points, default=0) + 1) * step, dtype=np.float64)
    # What does not depend on the pair is computed once for all of them.
    above, falling = -np.expm1(-e), np.exp(-e)
    return [
        _connected(profile(e[: n + 1]), above[: n + 1], falling[: n + 1], n, step)
        for (profile, _), n in zip(pairs, points, strict=True)
    ]


def _connected(profile: Array, above: Array, falling: Array, points: int, step: float) -> LossMasses:
    deltas = np.empty(2 * points + 1)
    upper = deltas[points:]
    np.minimum(np.maximum(profile, 0.0), 1.0, out=upper)
    # δ(−e) = 1 − e^{−e} + e^{−e} δ(e).
    deltas[:points] = (above[1:] + falling[1:] * upper[1:])[::-1]
    np.minimum.accumulate(deltas, out=deltas)
    drops, per_step = deltas[1:] - deltas[:-1], math.expm1(step)
    masses = np.empty(deltas.size)
    masses[0] = 1.0 - deltas[0] + drops[0] / per_step
    masses[1:-1] = (drops[1:] - drops[:-1] * math.exp(step)) / per_step
    masses[-1] = drops[-1] / math.expm1(-step)
    return LossMasses(step, -points, np.maximum(0.0, masses), float(deltas[-1]), errors(points))


def points_of(reach: float, step: float) -> int:
    """Return how many grid points lie between 0 and the reach, its end included.

    Example:
        >>> points_of(reach=1.0, step=0.25), points_of(reach=0.1, step=0.25)
        (4, 1)
    """
    return max(1, math.ceil(reach / step * (1.0 - 1e-12)))


def errors(points: int) -> float:
    """Bound the l1 error of the masses of one discretised pair."""
    return (2 * points + 5) * _ULP


def power(part: LossMasses, count: int, tail: float) -> LossMasses:
    """Compose a distribution with itself by repeated squaring.

    Args:
        part: the distribution.
        count: how many of them.
        tail: mass that may be cut off in each product: half of it below, which is rounded up, and half above, which
            becomes infinite.
    """
    squares: list[LossMasses] = []
    while count:
        if count & 1:
            squares.append(part)
        count >>= 1
        if count:
            part = _compose(part, part, tail)
    return reduce(lambda a, b: _compose(a, b, tail), squares)


def composed(parts: Iterable[LossMasses], tail: float) -> LossMasses:
    """Compose distributions on one grid, the two smallest first; tail: as for `power`."""
    heap = [(p.masses.size, i, p) for i, p in enumerate(parts)]
    heapq.heapify(heap)
    fresh = len(heap)
    while len(heap) > 1:
        joined = _compose(heapq.heappop(heap)[2], heapq.heappop(heap)[2], tail)
        heapq.heappush(heap, (joined.masses.size, fresh, joined))
        fresh += 1
    return heap[0][2]


def _compose(a: LossMasses, b: LossMasses, tail: float) -> LossMasses:
    size = a.masses.size + b.masses.size
    # l1 error of a convolution by Fourier transform; against long double it stayed below 0.8·ulp·√(2n) up to n = 16000.
    rounding = 2.0 * _ULP * math.sqrt(2.0 * size)
    masses = _convolved(a.masses, b.masses)
    # A cut below the transform's noise would never end the tails.
    cut = 0.5 * max(tail, 0.1 * rounding)
    low = _prefix(masses, cut)
    high = max(masses.size - _prefix(masses[::-1], cut), low + 1)
    kept, infinite = masses[low:high], a.infinite + b.infinite - a.infinite * b.infinite
    if high < masses.size:
        infinite += float(np.add.reduce(masses[high:]))
    if low:
        kept[0] += np.add.reduce(masses[:low])
    return LossMasses(a.step, a.first + b.first + low, kept, infinite, a.error + b.error + rounding)


def _convolved(a: Array, b: Array) -> Array:
    if a.size == 1 or b.size == 1:
        return a * b
    size = a.size + b.size - 1
    length = _fast_length(size)
    values = np.fft.rfft(a, length)
    other = values if a is b else np.fft.rfft(b, length)
    # In this order: as an operator, numpy may exchange the factors, and fused products then round otherwise.
    values = np.multiply(values, other)
    return np.asarray(np.fft.irfft(values, length)[:size])


@cache
def _fast_length(size: int) -> int:
    # Slow to import, and most budgets take no transform.
    from scipy.fft import next_fast_len

    return int(next_fast_len(size, True))


def _prefix(masses: Array, threshold: float) -> int:
    """Length of the longest prefix whose sums, one mass after the other, stay at or below the threshold."""
    total = 0.0
    for start in range(0, masses.size, _RUN):
        # Mostly a few masses: lists of them are faster than arrays.
        for k, mass in enumerate(masses[start : start + _RUN].tolist(), start):
            total += mass
            if total > threshold:
                return k
    return masses.size


def epsilon_at(total: LossMasses, delta: float) -> float:
    """Solve δ = Σ_{x > ε} P(x)(1 − e^{ε − x}) + P(∞) for ε ≥ 0; +inf where there is none.

    Args:
        total: the distribution of the loss x.
        delta: δ; what errors may take is to be left out of it.
    """
    if total.infinite > delta:
        return math.inf
    n = total.masses.size
    losses = np.full(n, -total.step)
    losses[0] = (total.first + n - 1) * total.step
    np.cumsum(losses, out=losses)
    # Sums over all larger losses: of P, and of P e^{−x}.
    above, further = np.empty(n + 1), np.empty(n + 1)
    above[0], above[1:] = total.infinite, total.masses[::-1]
    # Where e^{−x} would overflow, less of it is more privacy loss.
    further[0], further[1:] = 0.0, np.exp(np.minimum(-losses, 700.0)) * above[1:]
    np.cumsum(above, out=above)
    np.cumsum(further, out=further)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reached = (above > delta) & (further > 0.0)
        solved = np.log(np.where(reached, (above - delta) / further, 1.0))
    beyond = reached[:n] & (solved[:n] >= losses)
    # Only where the loss is so large that e^{−x} is zero.
    vanishing = (above[1:] >= delta) & (further[1:] == 0.0)
    k = int(beyond.argmax()) if beyond.any() else n
    if vanishing[:k].any():
        return max(0.0, float(losses[int(vanishing.argmax())]))
    if above[k] <= further[k] + delta:
        return 0.0
    return math.log((above[k] - delta) / further[k])
