"""Exact samplers from random bits, with integer arithmetic and no float64.

    Bernoulli(e^{−γ}), γ rational        Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy",
    geometric, discrete Gaussian         NeurIPS 2020, Algorithms 1 to 3
    P(i) ∝ size_i·e^{−c·gap_i}           rejection from integer weights above the true ones (`Weights`)

A uniform variate is compared with an irrational number by its leading 64 bits, and by 64 more if these do not decide.
The number is enclosed between integers at the required precision. The distribution is exact for ideal random bits. The
running time of a draw depends on its outcome.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import isqrt

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

_STEPS = 16  # levels of weights to a factor e, so that a proposal is accepted with probability e^{-1/16} or more
_WEIGHT_BITS = 128
_LARGEST = 2**62


def uniform_integer(generator: np.random.Generator, n: int) -> int:
    """Draw a uniform integer in [0, n) for n of any size.

    Example:
        >>> 0 <= uniform_integer(np.random.default_rng(0), 10**30) < 10**30
        True
    """
    bits = (n - 1).bit_length()
    while True:
        draw = _bits(generator, bits)
        if draw < n:
            return draw


def bernoulli_exp(generator: np.random.Generator, gamma: Fraction) -> bool:
    """Draw True with probability e^{−γ}.

    Args:
        generator: source of random bits.
        gamma: rational γ ≥ 0.

    Limits:
        γ = 0 is always True.

    References:
        Canonne, Kamath & Steinke, NeurIPS 2020, Algorithm 1.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> bernoulli_exp(generator, Fraction(0)), bernoulli_exp(generator, Fraction(10**6))
        (True, False)
    """
    return _coin(generator, gamma.numerator, gamma.denominator)


def draw_geometric(generator: np.random.Generator, rate: Fraction) -> int:
    """Draw k ≥ 0 with probability (1 − e^{−rate})·e^{−k·rate}, for rate > 0.

    References:
        Canonne, Kamath & Steinke, NeurIPS 2020.
    """
    whole = rate.denominator
    while True:
        part = uniform_integer(generator, whole)
        if _coin(generator, part, whole):
            break
    units = 0
    while _coin(generator, 1, 1):
        units += 1
    return (part + whole * units) // rate.numerator


def discrete_gaussian(generator: np.random.Generator, precision: Fraction) -> int:
    """Draw k ∈ Z with probability proportional to e^{−precision·k²/2}, for precision > 0.

    References:
        Canonne, Kamath & Steinke, NeurIPS 2020.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> drawn = [discrete_gaussian(generator, precision=Fraction(1, 100)) for _ in range(200)]
        >>> 80.0 < float(np.var(drawn)) < 120.0
        True
    """
    variance = 1 / precision
    t = isqrt(variance.numerator // variance.denominator) + 1
    rate, peak = Fraction(1, t), variance / t
    while True:
        size = draw_geometric(generator, rate)
        negative = bool(_bits(generator, 1))
        if (size or not negative) and bernoulli_exp(generator, (size - peak) ** 2 * precision / 2):
            return -size if negative else size


def exp_bounds(gamma: Fraction, bits: int) -> tuple[int, int]:
    """Enclose e^{−γ}, for γ ≥ 0, between integers lo ≤ 2^bits·e^{−γ} ≤ hi that are a few units apart.

    Example:
        >>> low, high = exp_bounds(Fraction(1), bits=8)
        >>> bool(low <= 2**8 * np.exp(-1.0) <= high), high - low <= 4
        (True, True)
    """
    num, den = gamma.numerator, gamma.denominator
    if num == 0:
        return 1 << bits, 1 << bits
    if 10 * num > 7 * (bits + 1) * den:  # 0.7 > ln 2
        return 0, 1
    halvings = (num // den).bit_length() + 6
    work = bits + halvings + 16
    small = (num << work) // (den << halvings)  # t = γ/2^halvings < 1/32, at `work` bits
    term = total = 1 << work
    count = 0
    while term:
        count += 1
        term = (term * small >> work) // count
        total += -term if count % 2 else term
    # Each term is off by at most 2 units, t by one, and the terms left out sum to less than one.
    slack = 3 * count + 3
    low, high = total - slack, total + slack
    for _ in range(halvings):
        low, high = low * low >> work, (high * high >> work) + 1
    return low >> (work - bits), (high >> (work - bits)) + 1


@dataclass(frozen=True)
class Weights:
    """Distribution P(i) ∝ 2^{size_i}·e^{−rate·gap_i}, sampled by rejection from integer weights above the true ones.

    Items of equal size and ⌊16·rate·gap⌋ = ℓ share the weight 2^{size}·⌈2^128·e^{−ℓ/16}⌉, and a proposal takes a
    bisection. It is accepted with the exact ratio, which is at least e^{−1/16}, except for items with 2⁻¹²⁸ of the
    mass. Create a distribution with `Weights.from_gaps`.

    Example:
        >>> law = Weights.from_gaps(np.array([0, 10**6]), rate=Fraction(1, 1000))
        >>> {law.draw(np.random.default_rng(seed)) for seed in range(20)}
        {0}
    """

    rate: Fraction
    gaps: IntArray
    order: IntArray
    starts: tuple[int, ...]
    cumulative: tuple[int, ...]
    weights: tuple[int, ...]
    bounds: tuple[int, ...]

    @classmethod
    def from_gaps(cls, gaps: IntArray, rate: Fraction, sizes: IntArray | None = None) -> Weights:
        """Build the distribution from gaps and sizes.

        Args:
            gaps: integers ≥ 0, (n,). The best item has 0.
            rate: rational number above 0.
            sizes: base-2 logarithms below 256, (n,), default 0.
        """
        last = int(_STEPS * (_WEIGHT_BITS + 1) * 0.7)
        edges = [min(_LARGEST, -(-level * rate.denominator // (_STEPS * rate.numerator))) for level in range(last + 1)]
        key = (np.searchsorted(np.array(edges, dtype=np.int64), gaps, side="right") - 1) << 8
        if sizes is not None:
            key += sizes
        order = np.argsort(key, kind="stable")
        unique, first, many = np.unique(key[order], return_index=True, return_counts=True)
        keys = unique.tolist()
        bounds = [_weight_of_level(k >> 8) for k in keys]
        weights = [bound << (k & 255) for bound, k in zip(bounds, keys, strict=True)]
        cumulative = accumulate(weight * count for weight, count in zip(weights, many.tolist(), strict=True))
        return cls(rate, gaps, order, tuple(first.tolist()), tuple(cumulative), tuple(weights), tuple(bounds))

    def propose(self, generator: np.random.Generator) -> tuple[int, int]:
        """Draw an item in proportion to the integer weights. Return it and its bound on 2^128·e^{−rate·gap}."""
        draw = uniform_integer(generator, self.cumulative[-1])
        group = bisect_right(self.cumulative, draw)
        within = draw - (self.cumulative[group - 1] if group else 0)
        return int(self.order[self.starts[group] + within // self.weights[group]]), self.bounds[group]

    def accept(self, generator: np.random.Generator, gap: int, bound: int) -> bool:
        """Draw True with probability 2^128·e^{−rate·gap}/bound, for the gap of a proposal or a larger one."""
        gamma, draw, bits = self.rate * gap, 0, 0
        while True:
            draw, bits = draw << 64 | _bits(generator, 64), bits + 64
            low, high = exp_bounds(gamma, _WEIGHT_BITS + bits)
            if (draw + 1) * bound <= low:
                return True
            if draw * bound >= high:
                return False

    def draw(self, generator: np.random.Generator) -> int:
        """Draw one item."""
        while True:
            item, bound = self.propose(generator)
            if self.accept(generator, int(self.gaps[item]), bound):
                return item


@cache
def _weight_of_level(level: int) -> int:
    """Compute ⌈2^128·e^{−ℓ/16}⌉, or a number a few units larger."""
    return exp_bounds(Fraction(level, _STEPS), _WEIGHT_BITS)[1]


def _coin(generator: np.random.Generator, num: int, den: int) -> bool:
    """Draw True with probability e^{−num/den}, by one draw of e^{−1} per whole unit and one for the rest."""
    whole, remainder = divmod(num, den)
    return all(_unit_coin(generator, 1, 1) for _ in range(whole)) and (
        not remainder or _unit_coin(generator, remainder, den)
    )


def _unit_coin(generator: np.random.Generator, num: int, den: int) -> bool:
    """Draw True with probability e^{−num/den}, num ≤ den, by the terms of the alternating series."""
    k = 1
    while uniform_integer(generator, den * k) < num:
        k += 1
    return k % 2 == 1


def _bits(generator: np.random.Generator, count: int) -> int:
    size = (count + 7) // 8
    return int.from_bytes(generator.bytes(size), "little") >> (8 * size - count)
