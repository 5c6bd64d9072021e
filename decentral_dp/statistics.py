"""Intervals over independent repetitions, and for probabilities of events that were counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from decentral_dp.bounded import Array


class Interval(NamedTuple):
    """A number with its confidence interval; all equal where it is exact, NaN where it could not be measured.

    Args:
        value: the number, in the unit of what was measured.
        low, high: ends of the interval, in the same unit; they alone are NaN where there is a number and no interval.

    References:
        Student's t over repetitions (`over_seeds`); Clopper & Pearson 1934 of shares (`rate_at_least`).
    """

    value: float
    low: float
    high: float


def over_seeds(numbers: Sequence[float] | Array, confidence: float = 0.95) -> Interval:
    """Mean of repetitions with Student's interval for it.

    Args:
        numbers: one per independent repetition, (n,).
        confidence: level of the interval; default 0.95.

    Returns:
        mean ± t·s/√n with n − 1 degrees of freedom. One number has no interval, so that its ends are NaN; all are NaN
        where there is none, or one is not finite.

    Example:
        >>> over_seeds([1.0, 2.0, 3.0]).value
        2.0
    """
    values = np.asarray(numbers, dtype=np.float64)
    if not values.size or not bool(np.isfinite(values).all()):
        return Interval(math.nan, math.nan, math.nan)
    mean = float(values.mean())
    if values.size == 1:
        return Interval(mean, math.nan, math.nan)
    quantile = float(scipy.special.stdtrit(values.size - 1, 0.5 + 0.5 * confidence))
    half = float(quantile * values.std(ddof=1) / math.sqrt(values.size))
    return Interval(mean, mean - half, mean + half)


def exactly(number: float) -> Interval:
    """Make an interval of no width, for a number that is not estimated.

    Example:
        >>> exactly(2.0)
        Interval(value=2.0, low=2.0, high=2.0)
    """
    return Interval(number, number, number)


def rate_at_least(hits: NDArray[np.int64] | int, trials: int, risk: float) -> Array:
    """Lower end for a probability, of an event that was counted.

    Args:
        hits: how often it happened, any shape.
        trials: of how many independent ones.
        risk: the probability, at most, with which the end lies above the truth.

    Returns:
        The risk-quantile of Beta(hits, trials − hits + 1); 0 where nothing was hit. Same shape as `hits`.

    References:
        Clopper & Pearson 1934.

    Example:
        >>> float(rate_at_least(10, 10, 0.05).round(4)), float(rate_at_least(0, 10, 0.05))
        (0.7411, 0.0)
    """
    counted = np.asarray(hits)
    return np.where(counted > 0, scipy.special.betaincinv(np.maximum(counted, 1), trials - counted + 1, risk), 0.0)


def rate_at_most(hits: NDArray[np.int64] | int, trials: int, risk: float) -> Array:
    """Upper end for the probability of an event that was counted, for each number of hits, as `rate_at_least`.

    1 where every trial hit. Of the shape of hits.

    Example:
        >>> float(rate_at_most(0, 10, 0.05).round(4)), float(rate_at_most(10, 10, 0.05))
        (0.2589, 1.0)
    """
    counted = np.asarray(hits)
    most = scipy.special.betaincinv(counted + 1, np.maximum(trials - counted, 1), 1.0 - risk)
    return np.where(counted < trials, most, 1.0)


def auc(first: Array, second: Array) -> float:
    """The share of pairs in which the score of the first is higher, ties half; what is no number is lowest.

    The area under the receiver operating characteristic (Mann and Whitney).

    Args:
        first: (n,) scores, of positive records.
        second: (m,) scores, of the others.

    Raises:
        ValueError: there are no pairs.

    Example:
        >>> auc(np.array([0.9, 0.4]), np.array([0.1, 0.4]))
        0.875
    """
    if not (first.size and second.size):
        raise ValueError(f"{first.size} and {second.size} scores make no pairs")
    scores, others = (np.where(np.isnan(part), -np.inf, part) for part in (first, second))
    others.sort()
    below = sum(int(np.searchsorted(others, scores, side).sum()) for side in ("left", "right"))
    return 0.5 * below / (first.size * second.size)
