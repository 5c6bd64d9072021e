"""Lower bounds on ε from the scores of runs, which hold but for a stated risk, and points of the trade-off curve."""

from __future__ import annotations

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.simulation.statistics import rate_at_least, rate_at_most


def counting_limit(runs: int, delta: float, risk: float) -> float:
    """The most that counting can show with so many runs of each data set: every run told apart."""
    n = runs - runs // 2
    least, most = rate_at_least(n, n, 0.5 * risk), rate_at_most(0, n, 0.5 * risk)
    return max(0.0, float(np.log(np.maximum(least - delta, 1e-300) / most)))


def from_likelihoods(first: Array, second: Array, delta: float, risk: float) -> float:
    """Compute a lower bound on ε at δ from log-likelihood ratios, which holds but for probability `risk`.

    P₁(L ≥ t) ≤ e^{−t} P₀(L ≥ t), so that the rate of the other data set need not be counted, and
    ε ≥ t + log(1 − δ/P₀(L ≥ t)). t is the k-th largest of the scores, k fixed beforehand: the share of the law above it
    is at least the low end of the interval of Clopper and Pearson for k of n.

    Args:
        first: (n,) log-likelihood ratios of the first data set over the second, of runs of the first.
        second: the same ratios, of runs of the second.
        delta: δ.
        risk: probability that the bound may fail.

    Returns:
        ε; 0 where nothing is shown.
    """
    best = 0.0
    for logs in (first, -second):
        n = logs.size
        # Fixed by n and δ alone: the fewest scores whose share, at the low end of its interval, is well above δ.
        least = rate_at_least(np.arange(1, n + 1), n, 0.5 * risk)
        enough = np.flatnonzero(least >= 4.0 * delta)
        if enough.size:
            k = int(enough[0])
            best = max(best, float(np.sort(logs)[n - 1 - k]) + float(np.log1p(-delta / least[k])))
    return best


def trade_off(first: Array, second: Array, risk: float, points: int = 15) -> list[tuple[float, float]]:
    """Find points that the trade-off curve of the two data sets is at or below, all but for probability `risk`.

    Thresholds are quantiles of the first halves of the scores, the rates are counted on the second.

    Args:
        first: (n,) scores in the first data set, larger where the first is likelier.
        second: scores in the second data set.
        risk: probability that some point may be wrong.
        points: how many thresholds are tried; default 15.

    Returns:
        (α, β), ascending: some test takes the second data set for the first with probability α at most, and the first
        for the second with probability β at most. Points that guessing reaches are left out.

    References:
        Dong, Roth & Su 2022.
    """
    learnt, (a, b) = (
        np.concatenate([s[: s.size // 2] for s in (first, second)]),
        (s[s.size // 2 :] for s in (first, second)),
    )
    curve = []
    for cut in np.unique(np.quantile(learnt, np.linspace(0.0, 1.0, points + 2)[1:-1])):
        false, missed = np.array([(b >= cut).sum()]), np.array([(a < cut).sum()])
        each = 0.5 * risk / points
        curve.append((float(rate_at_most(false, b.size, each)[0]), float(rate_at_most(missed, a.size, each)[0])))
    # Guessing reaches α + β = 1.
    return sorted({(a, b) for a, b in curve if a + b < 1.0})
