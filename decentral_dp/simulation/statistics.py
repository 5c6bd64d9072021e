"""Confidence intervals of means and rates, and lower bounds on ε from scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from decentral_dp.bounded import Array


class Interval(NamedTuple):
    """Number with its confidence interval. Both ends equal an exact number; an unknown number is NaN.

    Args:
        value: value of the number.
        low: lower end of the interval; NaN without an interval.
        high: upper end of the interval; NaN without an interval.

    References:
        Student's t over repetitions (`over_seeds`); Clopper & Pearson 1934 for shares (`rate_at_least`).
    """

    value: float
    low: float
    high: float


# Level of the intervals of means.
CONFIDENCE = 0.95


def over_seeds(numbers: Sequence[float] | Array) -> Interval:
    """Compute the mean of independent repetitions with Student's interval.

    Args:
        numbers: number from each independent repetition, (n,).

    Returns:
        The interval mean ± t·s/√n at a level of 95 %, with n − 1 degrees of freedom. A single number has no interval.
        All values are NaN if there are no numbers or one is not finite.

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
    quantile = float(scipy.special.stdtrit(values.size - 1, 0.5 + 0.5 * CONFIDENCE))
    half = float(quantile * values.std(ddof=1) / math.sqrt(values.size))
    return Interval(mean, mean - half, mean + half)


def paired_interval(differences: Array, bound: float | None = None) -> Interval:
    """Compute the mean difference of two models on the same records, over seeds, with a 95 % interval.

    The variance of the mean is s_r²/n + s_s²/S, where s_r² is the variance of the records' means over S seeds, and s_s²
    the variance of the seeds' means over n records. The degrees of freedom are Satterthwaite's. One seed has no
    variance over seeds.

    Args:
        differences: differences of the scores of each record, (S, n).
        bound: largest difference, default none. With a bound, one more record with this difference and one with its
            negative are added, so that few records with the same difference do not have an interval of width 0.

    Returns:
        The mean, with an interval that is NaN for one record without a bound.

    References:
        Bonett & Price 2012 (two more records); Satterthwaite 1946.

    Example:
        >>> paired_interval(np.ones((1, 6)), bound=1.0).low > 0.0, paired_interval(np.ones((1, 2)), bound=1.0).low > 0.0
        (True, False)
    """
    seeds = len(differences)
    values = differences
    if bound is not None:
        values = np.concatenate([differences, np.broadcast_to([bound, -bound], (seeds, 2))], axis=1)
    if values.shape[1] == 1:
        return Interval(float(differences.mean()), math.nan, math.nan)
    means = [values.mean(axis=0), *([values.mean(axis=1)] if seeds > 1 else [])]
    variances = np.array([each.var(ddof=1) / each.size for each in means])
    total, centre = variances.sum(), values.mean()
    half = 0.0
    if total:
        freedom = total**2 / (variances**2 / [each.size - 1 for each in means]).sum()
        half = scipy.special.stdtrit(freedom, 0.5 + 0.5 * CONFIDENCE) * math.sqrt(total)
    most = math.inf if bound is None else bound
    return Interval(float(differences.mean()), max(float(centre - half), -most), min(float(centre + half), most))


def rate_at_least(hits: NDArray[np.int64] | int, trials: int, risk: float) -> Array:
    """Compute a lower confidence bound on the probability of an event.

    Args:
        hits: number of events, of any shape.
        trials: number of independent trials.
        risk: largest probability that the bound exceeds the true value.

    Returns:
        The risk-quantile of Beta(hits, trials − hits + 1), with the shape of `hits`; 0 without hits.

    References:
        Clopper & Pearson 1934.

    Example:
        >>> float(rate_at_least(10, 10, 0.05).round(4)), float(rate_at_least(0, 10, 0.05))
        (0.7411, 0.0)
    """
    hit_array = np.asarray(hits)
    return np.where(
        hit_array > 0, scipy.special.betaincinv(np.maximum(hit_array, 1), trials - hit_array + 1, risk), 0.0
    )


def rate_at_most(hits: NDArray[np.int64] | int, trials: int, risk: float) -> Array:
    """Compute an upper confidence bound on the probability of an event. See `rate_at_least`.

    The bound is 1 if all trials are hits.

    Example:
        >>> float(rate_at_most(0, 10, 0.05).round(4)), float(rate_at_most(10, 10, 0.05))
        (0.2589, 1.0)
    """
    hit_array = np.asarray(hits)
    most = scipy.special.betaincinv(hit_array + 1, np.maximum(trials - hit_array, 1), 1.0 - risk)
    return np.where(hit_array < trials, most, 1.0)


def bound_by_counts(
    first: Array,
    second: Array,
    delta: float,
    risk: float,
    shares: Array | None = None,
    unit: Literal["ε", "μ"] = "ε",
) -> float:
    """Compute an empirical lower bound on ε at δ, or on μ of two Gaussian distributions, from scores.

    For every threshold, ε ≥ log((TPR − δ)/FPR) and μ ≥ Φ⁻¹(TPR − δ) − Φ⁻¹(FPR), with both rates at the ends of their
    intervals. The threshold and the direction are chosen on the first halves of the scores, and the rates are counted
    on the second halves. The bound holds for any score.

    Args:
        first: scores under the first distribution, (n,).
        second: scores under the second distribution.
        delta: δ or, for μ, the error of the noise distribution.
        risk: largest probability that the bound exceeds the true value.
        shares: shares of scores above the tried thresholds; None (the default) tries all thresholds.
        unit: unit "ε" or "μ" of the bound.

    Returns:
        The bound, at least 0.

    Example:
        >>> round(bound_by_counts(np.ones(200), np.zeros(200), delta=1e-5, risk=0.05), 3)
        3.281
    """
    halves = [(s[: s.size // 2], s[s.size // 2 :]) for s in (first, second)]
    best: tuple[float, int, float] = (-np.inf, 1, 0.0)
    for sign in (1, -1):
        a, b = (sign * h[0] for h in halves[::sign])
        scores = np.concatenate([a, b])
        cuts = np.unique(scores if shares is None else np.quantile(scores, 1.0 - shares))
        bounds = _bounds(a, b, cuts, delta, risk, unit)
        k = int(np.argmax(bounds))
        best = max(best, (float(bounds[k]), sign, float(cuts[k])))
    _, sign, threshold = best
    a, b = (sign * h[1] for h in halves[::sign])
    return max(0.0, float(_bounds(a, b, np.array([threshold]), delta, risk, unit)[0]))


def _bounds(positives: Array, negatives: Array, cuts: Array, delta: float, risk: float, unit: str) -> Array:
    """Return the bound of each threshold, (k,); each rate is beyond its end with half of the risk."""
    hits, false = (s.size - np.searchsorted(np.sort(s), cuts) for s in (positives, negatives))
    least, most = (
        rate_at_least(hits, positives.size, 0.5 * risk) - delta,
        rate_at_most(false, negatives.size, 0.5 * risk),
    )
    if unit == "ε":
        return np.asarray(np.log(np.maximum(least, 1e-300) / most))
    return np.asarray(scipy.special.ndtri(np.maximum(least, 1e-300)) - scipy.special.ndtri(most))
