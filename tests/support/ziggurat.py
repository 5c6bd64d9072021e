"""Compute numpy's normal variates from random bits, and the exact distribution of rint(N·ratio).

256 boxes of equal area under e^{−x²/2} (Marsaglia & Tsang 2000; numpy/random/src/distributions). A variate is a
mantissa times a box's width, kept at once below the next box's edge, else by a second uniform number; beyond the last
edge it is an exponential variate, kept by a second one. Tables by their recursion, good to 1e-14.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import ndtr

EDGE = 3.6541528853610088
BOXES = 256


def density(x: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * x * x)


AREA = EDGE * float(density(np.array(EDGE))) + math.sqrt(2.0 * math.pi) * float(ndtr(-EDGE))
# Accepted fraction of first tries.
KEPT = math.sqrt(0.5 * math.pi) / (BOXES * AREA)


def _sides() -> np.ndarray:
    """Right sides: of the lowest box, as wide as if it had no tail; the last edge; …; of the highest box."""
    out = [AREA / float(density(np.array(EDGE))), EDGE]
    while len(out) < BOXES:
        out.append(math.sqrt(-2.0 * math.log(float(density(np.array(out[-1]))) + AREA / out[-1])))
    return np.array([out[0], *out[:0:-1]])


SIDES = _sides()
# A point left of it is under the curve at any height of the box; in the lowest box, it is not in the tail.
INNER = np.array([EDGE, 0.0, *SIDES[1:-1]])
BELOW = density(np.array([0.0, *SIDES[1:]]))
# The lowest box does not use it.
ABOVE = np.array([2.0, *BELOW[:-1]])


def draws(raw: Iterator[int]) -> Iterator[float]:
    """Variates from 64-bit words."""
    widths, inner = SIDES / 2.0**52, (INNER / SIDES * 2.0**52).astype(np.int64)

    def uniform() -> float:
        return (next(raw) >> 11) * 2.0**-53

    while True:
        word = next(raw)
        box, sign, mantissa = word & 255, (word >> 8) & 1, (word >> 9) & (2**52 - 1)
        x = mantissa * float(widths[box])
        if mantissa >= inner[box]:
            if box == 0:
                while True:
                    more, other = -math.log1p(-uniform()) / EDGE, -math.log1p(-uniform())
                    if 2.0 * other > more * more:
                        break
                x, sign = EDGE + more, (mantissa >> 8) & 1
            elif (ABOVE[box] - BELOW[box]) * uniform() + BELOW[box] >= math.exp(-0.5 * x * x):
                continue
        yield -x if sign else x


def atom(k: int, ratio: float) -> float:
    """P(rint(N·ratio) = k), k > 0, by counting the mantissas that end there."""
    widths, top = SIDES / 2.0**52, 2**52
    inner = (INNER / SIDES * top).astype(np.int64)

    def first(edge: float, target: int) -> np.ndarray:
        """(256,) the smallest mantissa of each box that is rounded to the target or beyond."""
        guess = np.minimum(np.floor(edge / widths), top + 64.0).astype(np.int64) - 6
        tried = guess + np.arange(13)[:, None]
        reached = np.rint(tried * widths * ratio) >= target
        found = np.where(edge / widths > top + 32.0, 2 * top, guess + reached.argmax(axis=0))
        assert (reached[-1] & ~reached[0] | (found > top)).all()
        return found

    low, high = first((k - 0.5) / ratio, k), first((k + 0.5) / ratio, k + 1)
    at_once = np.minimum(high, inner) - np.minimum(low, inner)
    left, right = np.maximum(low, inner), np.minimum(high, top)
    count = np.where(np.arange(BOXES) > 0, np.maximum(right - left, 0), 0)
    middle = _mean(left * widths, right * widths)
    total = float((at_once + count * np.clip((middle - BELOW) / (ABOVE - BELOW), 0.0, 1.0)).sum()) / top / BOXES
    if (k + 0.5) / ratio > EDGE:
        total += (1.0 - EDGE / SIDES[0]) / BOXES * _tail(k, ratio)
    return 0.5 * total / KEPT


def beyond(reach: float) -> float:
    """P(|N| ≥ reach), reach above the last edge."""
    first = _first_tail(lambda x: x >= reach)
    grid = np.linspace(first, 2.0**53 - 1.0, 200_001)
    more = -np.log1p(-grid * 2.0**-53) / EDGE
    mass = float(np.trapezoid(density(more), grid)) * 2.0**-53
    return (1.0 - EDGE / SIDES[0]) / BOXES * mass / _tail_kept() / KEPT


def _mean(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Mean of e^{−x²/2} over short intervals."""
    return (density(left) + 4.0 * density(0.5 * (left + right)) + density(right)) / 6.0


def _tail_kept() -> float:
    return EDGE * math.exp(0.5 * EDGE * EDGE) * math.sqrt(2.0 * math.pi) * float(ndtr(-EDGE))


def _first_tail(reached: object) -> int:
    """The smallest of 2⁵³ uniform numbers whose variate satisfies a condition that grows with it."""
    low, high = -1, 2**53
    while high - low > 1:
        middle = (low + high) // 2
        if reached(EDGE - math.log1p(-middle * 2.0**-53) / EDGE):  # type: ignore[operator]  # A callable.
            high = middle
        else:
            low = middle
    return high


def _tail(k: int, ratio: float) -> float:
    first, last = (_first_tail(lambda x, t=t: round(x * ratio) >= t) for t in (k, k + 1))
    if last == first:
        return 0.0
    ends = -np.log1p(-np.array([first, last - 1]) * 2.0**-53) / EDGE
    return (last - first) * 2.0**-53 * float(_mean(ends[:1], ends[1:])[0]) / _tail_kept()
