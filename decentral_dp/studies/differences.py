"""What seeds tell of a comparison: the difference of its two sides, seed by seed, with an interval.

Both sides of a claim are measured with the same seeds, so that their difference has less noise than either. A
comparison holds where the whole interval of the mean difference lies on its side, it does not hold where it lies on
the other, and else it is undecided: so many seeds do not tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.studies.intervals import interval, wilson

Compare = Literal["less", "greater", "within"]
Outcome: TypeAlias = "Literal['holds', 'undecided', 'does not hold', 'not measured']"
HOLDS: Outcome = "holds"
UNDECIDED: Outcome = "undecided"
REFUTED: Outcome = "does not hold"
MISSING: Outcome = "not measured"


class Slack(NamedTuple):
    """How far a comparison is from its bound, on the side where it holds.

    Args:
        mean: over the seeds.
        low: end of the interval, NaN where there is none.
        high: end of the interval, NaN where there is none.
    """

    mean: float
    low: float
    high: float


class Decision(NamedTuple):
    """What the seeds tell of one comparison.

    Args:
        outcome: whether it holds.
        n: seeds that both sides have.
        slack: of the bound that is nearest.
        exact: whether it was decided without an interval, since no seed enters.
    """

    outcome: Outcome
    n: int
    slack: Slack
    exact: bool


def decide(
    left: Mapping[int, float],
    right: Mapping[int, float] | float,
    compare: Compare,
    factor: float,
    confidence: float,
    exact: bool = False,
    counts: bool = False,
) -> Decision:
    """Decide a comparison by the differences over the seeds that both sides have.

    Args:
        left: seed → value.
        right: seed → value, or a number.
        compare: "less": left < factor · right; "greater": left > factor · right; "within": right/factor ≤ left ≤
            factor · right.
        factor: of the comparison, above 0.
        confidence: level of the interval, such as 0.95.
        exact: whether no seed enters the values, so that a single one decides; default no.
        counts: whether values are 0 or 1, which are compared as counts; default no.

    Limits:
        Without an interval it is undecided: of a single seed, or where some differences are infinite and others not.

    Example:
        >>> decide({1: 0.1, 2: 0.2, 3: 0.3}, {1: 0.2, 2: 0.31, 3: 0.4}, "less", 1.0, 0.95).outcome
        'holds'
        >>> decide({1: 0.1, 2: 0.4, 3: 0.3}, {1: 0.2, 2: 0.31, 3: 0.4}, "less", 1.0, 0.95).outcome
        'undecided'
        >>> decide({1: 0.1}, 0.2, "less", 1.0, 0.95).outcome, decide({1: 0.1}, 0.2, "less", 1.0, 0.95, True).outcome
        ('undecided', 'holds')
    """
    seeds = [s for s in left if not isinstance(right, Mapping) or s in right]
    a = np.array([left[s] for s in seeds], dtype=np.float64)
    b = np.array([right[s] if isinstance(right, Mapping) else right for s in seeds], dtype=np.float64)
    if not seeds:
        return Decision(UNDECIDED, 0, Slack(math.nan, math.nan, math.nan), False)
    found = []
    for sign, scale, bound in _bounds(b, compare, factor):
        if counts:
            found.append(_of_counts(a, b, sign, scale, confidence, not isinstance(right, Mapping)))
        else:
            with np.errstate(invalid="ignore"):
                differences = np.where(a == bound, 0.0, sign * (a - bound))
            found.append(_of_values(differences, confidence, exact))
    least = min(found, key=lambda slack: math.inf if math.isnan(slack.mean) else slack.mean)
    strict = compare != "within"
    if any(slack.high < 0.0 or (strict and slack.high == 0.0) for slack in found):
        outcome = REFUTED
    elif all(slack.low > 0.0 or (not strict and slack.low == 0.0) for slack in found):
        outcome = HOLDS
    else:
        outcome = UNDECIDED
    return Decision(outcome, len(seeds), least, exact and not counts)


def _bounds(right: Array, compare: Compare, factor: float) -> list[tuple[float, float, Array]]:
    """(sign, scale, scale · right) of each bound: it is kept where sign · (left − scale · right) > 0."""
    with np.errstate(over="ignore"):
        large, small = (factor, right * factor), (1.0 / factor, right / factor)
    if compare != "within":
        return [(-1.0 if compare == "less" else 1.0, *large)]
    # Of negative numbers the larger factor gives the lower bound, as a factor below 1 does of positive ones.
    low, high = (large, small) if (right.mean() < 0.0) != (factor < 1.0) else (small, large)
    return [(1.0, *low), (-1.0, *high)]


def _of_values(differences: Array, confidence: float, exact: bool) -> Slack:
    first = float(differences[0])
    if differences.size == 1 and not exact:
        return Slack(first, math.nan, math.nan)
    if bool((differences == first).all()):
        return Slack(first, first, first)
    return Slack(*interval(differences, confidence))


def _of_counts(a: Array, b: Array, sign: float, scale: float, confidence: float, fixed: bool) -> Slack:
    """Of two counted shares: from end to end of Wilson's intervals, so that these must not overlap."""
    left = wilson(int(a.sum()), a.size, confidence)
    number = float(b[0])
    right = (number, number, number) if fixed else wilson(int(b.sum()), b.size, confidence)
    ends = (left[1] - scale * right[2], left[2] - scale * right[1])
    mean = sign * (left[0] - scale * right[0])
    return Slack(mean, *sorted(sign * end for end in ends))
