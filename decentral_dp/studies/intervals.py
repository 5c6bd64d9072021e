"""Means over the cells of a combination with their confidence intervals.

A count of cells has Wilson's interval, a share Student's on the logit scale, and any other quantity Student's. Neither
of the first two leaves [0, 1].
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtri

from decentral_dp.bounded import Array
from decentral_dp.formatting import power_text
from decentral_dp.simulation.statistics import over_seeds

Kind = Literal["wilson", "logit", "student", "none"]

# Whether something is true of a cell: their mean is a count out of the cells.
COUNTS = ("ok", "diverged")
# Means over agents or records that lie in [0, 1]; they are not counts out of a known number, for agents differ.
_SHARES = re.compile(r"(test_)?(accuracy|auc|f1|worst_class_accuracy|critic_auc|weight_clean|weight_corrupted)")
_ENDINGS = re.compile(r"(_last|_unreleased)?(_min|_max)?$")
# Above this, squares of values and their sum may not be finite.
_HUGE = 1e150
WORDS = {
    "wilson": "Wilson's for counts of cells",
    "logit": "Student's t on the logit scale for shares",
    "student": "Student's t for other means",
}


class CellMean(NamedTuple):
    """A mean over cells with its confidence interval.

    Args:
        mean: NaN where nothing was measured.
        low: end of the interval, NaN where there is none.
        high: end of the interval, NaN where there is none.
        kind: of the interval; "none" where there is none.
    """

    mean: float
    low: float
    high: float
    kind: Kind


def cell_mean(name: str, values: Array | Sequence[float], confidence: float) -> CellMean:
    """Compute the mean of a measured name over cells, with the interval that fits the name.

    Args:
        name: as measured.
        values: one per cell, (n,).
        confidence: level, such as 0.95.

    Limits:
        A share that is 0 in every cell, or 1 in every cell, has no interval.

    Example:
        >>> [round(v, 3) for v in cell_mean("test_accuracy", [0.9, 0.99, 0.99], confidence=0.95)[:3]]
        [0.96, 0.454, 0.999]
        >>> [round(v, 3) for v in cell_mean("ok", [1.0, 1.0, 1.0, 0.0, 1.0], confidence=0.95)[:3]]
        [0.8, 0.376, 0.964]
    """
    v = np.asarray(values, dtype=np.float64)
    if name in COUNTS and v.size:
        return CellMean(*wilson(int(v.sum()), v.size, confidence), "wilson")
    bounded = is_share(name) and bool(((v >= 0.0) & (v <= 1.0)).all())
    mean, low, high = (share_interval if bounded else interval)(v, confidence)
    return CellMean(mean, low, high, "none" if math.isnan(low) else "logit" if bounded else "student")


def is_share(name: str) -> bool:
    """Whether a measured name is a share, which lies in [0, 1].

    Example:
        >>> is_share("test_accuracy_unreleased_min"), is_share("test_loss")
        (True, False)
    """
    return _SHARES.fullmatch(_ENDINGS.sub("", name)) is not None


def interval(values: Array | Sequence[float], confidence: float) -> tuple[float, float, float]:
    """Compute mean and confidence interval, mean ± t·s/√n with Student's t of n − 1 degrees of freedom.

    Args:
        values: (n,).
        confidence: level, such as 0.95.

    Returns:
        (mean, low, high).

    Limits:
        The ends are NaN for a single value. Where a value is infinite the mean is too, without an interval.

    Example:
        >>> [round(v, 3) for v in interval([1.0, 2.0, 3.0], confidence=0.95)]
        [2.0, -0.484, 4.484]
        >>> interval([1.0], confidence=0.95)
        (1.0, nan, nan)
    """
    v = np.asarray(values, dtype=np.float64)
    if not np.isfinite(v).all():
        # Infinities of both signs have no mean.
        total = float(v[~np.isfinite(v)][0])
        return (total if (v[~np.isfinite(v)] == total).all() else math.nan), math.nan, math.nan
    # What diverged without overflowing has squares, and sums, that do; by a power of two no bit of a quotient is lost.
    unit = 2.0**600 if float(np.abs(v).max(initial=0.0)) > _HUGE else 1.0
    mean, low, high = over_seeds(v / unit, confidence)
    return unit * mean, unit * low, unit * high


def share_interval(values: Array | Sequence[float], confidence: float) -> tuple[float, float, float]:
    """Compute mean and confidence interval of shares: logit(mean) ± t·s/(√n·mean·(1 − mean)), mapped back.

    Args:
        values: in [0, 1], (n,).
        confidence: level, such as 0.95.

    Returns:
        (mean, low, high), both ends in [0, 1].

    Limits:
        The ends are NaN for a single value, and where the mean is 0 or 1.

    Example:
        >>> [round(v, 3) for v in share_interval([0.4, 0.5, 0.6], confidence=0.95)]
        [0.5, 0.27, 0.73]
    """
    mean, low, high = interval(values, confidence)
    if math.isnan(low) or not 0.0 < mean < 1.0:
        return mean, math.nan, math.nan
    half = 0.5 * (high - low) / (mean * (1.0 - mean))
    return mean, float(expit(logit(mean) - half)), float(expit(logit(mean) + half))


def wilson(hits: int, trials: int, confidence: float) -> tuple[float, float, float]:
    """Compute a counted share and its score interval.

    Args:
        hits: how often it happened.
        trials: of how many, at least 1.
        confidence: level, such as 0.95.

    Returns:
        (share, low, high), both ends in [0, 1].

    References:
        Wilson 1927.

    Example:
        >>> [round(v, 3) for v in wilson(10, 10, confidence=0.95)]
        [1.0, 0.722, 1.0]
    """
    z = float(ndtri(0.5 + confidence / 2))
    share = hits / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    # At 0 and at all of them an end is exact; rounding must not pass it.
    low = 0.0 if hits == 0 else max(0.0, middle - half)
    return share, low, 1.0 if hits == trials else min(1.0, middle + half)


def counts_text(counts: Iterable[int]) -> str:
    """Say how many cells means are over.

    Example:
        >>> counts_text([3, 3]), counts_text([3, 2])
        ('3', '2 to 3')
    """
    there = sorted(set(counts))
    return f"{there[0]}" if len(there) == 1 else f"{there[0]} to {there[-1]}"


def described_intervals(kinds: Iterable[str], confidence: float) -> str:
    """Say which intervals there are, in words; "" where there is none.

    Example:
        >>> described_intervals(["logit", "none"], 0.95)
        "95 % intervals: Student's t on the logit scale for shares"
    """
    there = set(kinds)
    named = [words for kind, words in WORDS.items() if kind in there]
    if there <= {"student", "none"} and named:
        named = ["Student's t"]
    return f"{100 * confidence:g} % intervals: {', '.join(named)}" if named else ""


def is_lopsided(mean: float, low: float, high: float) -> bool:
    """Whether an interval is not mean ± half."""
    below, above = mean - low, high - mean
    return max(below, above) >= 1e-3 * abs(mean) and not abs(above - below) <= 0.02 * max(below, above)


def spread_text(mean: float, low: float, high: float, ends: bool = False) -> str:
    """Print an interval behind its mean: " ± half", or " [low, high]" where it is lopsided; "" where none is seen.

    Args:
        mean, low, high: of the interval.
        ends: whether both ends are printed in any case, as beside others that are lopsided; default no.

    Example:
        >>> spread_text(2.0, 1.5, 2.5), spread_text(0.96, 0.9, 0.98), spread_text(2.0, 2.0, 2.0)
        (' ± 0.5', ' [0.900, 0.980]', '')
    """
    # Less than a thousandth is not seen in the mean either.
    if not max(mean - low, high - mean) >= 1e-3 * abs(mean):
        return ""
    if not ends and not is_lopsided(mean, low, high):
        return f" ± {power_text(float(f'{(high - low) / 2:.2g}'))}"
    return f" [{power_text(low, pad=True)}, {power_text(high, pad=True)}]"
