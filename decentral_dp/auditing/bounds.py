"""Lower bounds on ε from the scores of many runs."""

from __future__ import annotations

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.simulation.statistics import rate_at_least, rate_at_most


def counting_limit(runs: int, delta: float, risk: float) -> float:
    """Return the largest bound that counting can achieve, which requires that every run is classified correctly."""
    n = runs - runs // 2
    least, most = rate_at_least(n, n, 0.5 * risk), rate_at_most(0, n, 0.5 * risk)
    return max(0.0, float(np.log(np.maximum(least - delta, 1e-300) / most)))


def bound_by_likelihoods(first: Array, second: Array, delta: float, risk: float) -> float:
    """Compute a lower bound on ε at δ from log-likelihood ratios. It fails with probability at most `risk`.

    P₁(L ≥ t) ≤ e^{−t} P₀(L ≥ t), so P₁ need not be estimated, and ε ≥ t + log(1 − δ/P₀(L ≥ t)). t is the k-th largest
    score for a fixed k. The lower Clopper–Pearson limit for k of n bounds P₀(L ≥ t) from below.

    Args:
        first: log-likelihood ratios of the first data set to the second, (n,), in runs on the first.
        second: the same ratios, (n,), in runs on the second.
        delta: δ of the guarantee.
        risk: maximum probability that the bound fails.

    Returns:
        The lower bound on ε, which is at least 0.
    """
    best = 0.0
    for logs in (first, -second):
        n = logs.size
        # The fewest scores whose probability is certainly well above δ: k depends only on n and δ.
        least = rate_at_least(np.arange(1, n + 1), n, 0.5 * risk)
        enough = np.flatnonzero(least >= 4.0 * delta)
        if enough.size:
            k = int(enough[0])
            best = max(best, float(np.sort(logs)[n - 1 - k]) + float(np.log1p(-delta / least[k])))
    return best
