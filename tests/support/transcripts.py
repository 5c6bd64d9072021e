"""Laws of transcripts, and what an optimal distinguisher shows of them."""

from __future__ import annotations

import numpy as np
from scipy.stats import beta

from tests.support.release_cost_oracle import grid

CONFIDENCE = 0.99


def lower_bound(first: np.ndarray, second: np.ndarray, delta: float) -> float:
    """ε that holds at least, with confidence 0.99: the test is chosen on one half of the scores, counted on the other.

    first, second: scores in the two data sets, larger where the first is likelier.
    """
    halves = [(s[: s.size // 2], s[s.size // 2 :]) for s in (first, second)]
    best: tuple[float, int, float] = (-np.inf, 1, 0.0)
    for sign in (1, -1):
        a, b = (sign * h[0] for h in halves[::sign])
        # Ties at the ends of the scores are events too.
        cuts = np.quantile(np.concatenate([a, b]), np.linspace(0.0, 1.0, 400)) - 1e-9
        found = _bounds(*((s[None] >= cuts[:, None]).sum(axis=1) for s in (a, b)), a.size, b.size, delta)
        k = int(np.argmax(found))
        best = max(best, (float(found[k]), sign, float(cuts[k])))
    _, sign, cut = best
    a, b = (sign * h[1] for h in halves[::sign])
    counts = (np.array([(s >= cut).sum()]) for s in (a, b))
    return max(0.0, float(_bounds(*counts, a.size, b.size, delta)[0]))


def _bounds(hits: np.ndarray, false: np.ndarray, n: int, m: int, delta: float) -> np.ndarray:
    """log((TPR − δ)/FPR) with the rates at the ends of their Clopper-Pearson intervals."""
    risk = 0.5 * (1.0 - CONFIDENCE)
    least = np.where(hits > 0, beta.ppf(risk, np.maximum(hits, 1), n - hits + 1), 0.0)
    most = np.where(false < m, beta.ppf(1.0 - risk, false + 1, np.maximum(m - false, 1)), 1.0)
    return np.log(np.maximum(least - delta, 1e-300) / most)


def log_law(integers: np.ndarray, query: np.ndarray, scale: np.ndarray, kind: str) -> np.ndarray:
    """log probability of the released integers, up to a constant, given what was rounded and noised."""
    g = grid(scale, kind, 1)
    if kind == "gaussian":
        return -0.5 * ((integers - np.rint(query / g)) * g / scale) ** 2
    floor = np.floor(query / g)
    up, steps = query / g - floor, integers - floor
    # Rounded down with probability 1 − up, else up, and then a difference of two geometrics.
    return -np.abs(steps) * g / scale + np.log1p(up * np.expm1((np.abs(steps) - np.abs(steps - 1)) * g / scale))
