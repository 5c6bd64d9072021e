"""Intervals over independent repetitions and of counted rates, and the bound on ε from counted scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

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


def bound_by_counts(
    first: Array,
    second: Array,
    delta: float,
    risk: float,
    shares: Array | None = None,
    unit: Literal["ε", "μ"] = "ε",
) -> float:
    """Bound from below what tells two laws apart, by counting: ε at δ, or μ of two Gaussian laws.

    For every threshold ε ≥ log((TPR − δ)/FPR), and μ ≥ Φ⁻¹(TPR − δ) − Φ⁻¹(FPR), with both rates at the ends of their
    intervals. Threshold and direction are chosen on the first halves of the scores, the rates are counted on the
    second. Nothing is assumed of the score.

    Args:
        first: (n,) scores under the first law, larger where it is likelier.
        second: scores under the second law.
        delta: δ; of μ what the law of the noise may be off by.
        risk: probability that the bound may fail.
        shares: of all scores that may lie above a threshold, for where all scores are too many to try; by default all
            are tried.
        unit: "ε" or "μ".

    Returns:
        0 where nothing is shown.

    Example:
        >>> round(bound_by_counts(np.ones(200), np.zeros(200), delta=1e-5, risk=0.05), 3)
        3.281
    """
    halves = [(s[: s.size // 2], s[s.size // 2 :]) for s in (first, second)]
    best: tuple[float, int, float] = (-np.inf, 1, 0.0)
    for sign in (1, -1):
        a, b = (sign * h[0] for h in halves[::sign])
        both = np.concatenate([a, b])
        cuts = np.unique(both if shares is None else np.quantile(both, 1.0 - shares))
        bounds = _bounds(a, b, cuts, delta, risk, unit)
        k = int(np.argmax(bounds))
        best = max(best, (float(bounds[k]), sign, float(cuts[k])))
    _, sign, cut = best
    a, b = (sign * h[1] for h in halves[::sign])
    return max(0.0, float(_bounds(a, b, np.array([cut]), delta, risk, unit)[0]))


def _bounds(above: Array, others: Array, cuts: Array, delta: float, risk: float, unit: str) -> Array:
    """(k,) what each threshold shows; each of its two rates is beyond its end with half of the risk."""
    hits, false = (s.size - np.searchsorted(np.sort(s), cuts) for s in (above, others))
    least, most = rate_at_least(hits, above.size, 0.5 * risk) - delta, rate_at_most(false, others.size, 0.5 * risk)
    if unit == "ε":
        return np.asarray(np.log(np.maximum(least, 1e-300) / most))
    return np.asarray(scipy.special.ndtri(np.maximum(least, 1e-300)) - scipy.special.ndtri(most))
