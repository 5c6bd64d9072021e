"""Intervals over independent repetitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from decentral_dp.bounded import Array

_CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A number with its confidence interval; all equal where it is exact, NaN where it could not be measured."""

    value: float
    low: float
    high: float


def over_seeds(numbers: Sequence[float] | Array) -> Interval:
    """Mean of repetitions with Student's 95 % interval for it.

    Args:
        numbers: one per independent repetition, (n,).

    Returns:
        mean ± t·s/√n with n − 1 degrees of freedom; the number itself where n = 1, NaN where none or one is not finite.

    Example:
        >>> over_seeds([1.0, 2.0, 3.0]).value
        2.0
    """
    found = np.asarray(numbers, dtype=np.float64)
    if not found.size or not bool(np.isfinite(found).all()):
        return Interval(math.nan, math.nan, math.nan)
    mean = float(found.mean())
    if found.size == 1:
        return Interval(mean, mean, mean)
    half = float(student.ppf(0.5 + 0.5 * _CONFIDENCE, found.size - 1) * found.std(ddof=1) / math.sqrt(found.size))
    return Interval(mean, mean - half, mean + half)


def exactly(number: float) -> Interval:
    """Make an interval of no width, for a number that is not estimated.

    Example:
        >>> exactly(2.0)
        Interval(value=2.0, low=2.0, high=2.0)
    """
    return Interval(number, number, number)
