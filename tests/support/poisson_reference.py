"""ε(δ) of composed Gaussian releases on Poisson samples, one record replaced, by a quadrature over outcomes.

It shares no code with the package. Weights are densities at equidistant
outcomes (a trapezoidal rule, exact to all digits for Gaussians), each loss is split among five neighbours on a grid so
that its first four moments stay (some parts are negative), and the sum is composed under a tilt. It is an estimate, not
a bound: half the step changes it by what the test that uses it states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar


class Outcomes(NamedTuple):
    """Log weights under P and log-ratios log P/Q at outcomes, of a release made `number` times."""

    log_weight: np.ndarray
    loss: np.ndarray
    number: int


def poisson_outcomes(sigma: float, rate: float, count: int, points: int = 60_001) -> Outcomes:
    """(1−q)N(0, 1) + qN(1/σ, 1) against (1−q)N(0, 1) + qN(−1/σ, 1)."""
    m = 1.0 / sigma
    x = np.linspace(-m - 13.0, m + 13.0, points)
    near, up, down = (-0.5 * (x - at) ** 2 for at in (0.0, m, -m))
    p = np.logaddexp(math.log1p(-rate) + near, math.log(rate) + up)
    q = np.logaddexp(math.log1p(-rate) + near, math.log(rate) + down)
    return Outcomes(p + math.log((x[1] - x[0]) / math.sqrt(2.0 * math.pi)), p - q, count)


def reference_epsilon(releases: Sequence[Outcomes], delta: float, length: int = 2**19) -> float:
    """ε(δ) of all of them."""
    moment = _log_moment(releases)

    def chernoff(log_theta: float) -> float:
        theta = math.exp(log_theta)
        return (moment(theta) - math.log(delta)) / theta

    theta = math.exp(float(minimize_scalar(chernoff, bounds=(-8.0, 16.0), method="bounded").x))
    tilted = [np.exp(r.log_weight + theta * r.loss) for r in releases]
    tilted = [w / w.sum() for w in tilted]
    means = [float(w @ r.loss) for w, r in zip(tilted, releases, strict=True)]
    spreads = [float(w @ (r.loss - m) ** 2) for w, r, m in zip(tilted, releases, means, strict=True)]
    centre = sum(r.number * m for r, m in zip(releases, means, strict=True))
    deviation = math.sqrt(sum(r.number * v for r, v in zip(releases, spreads, strict=True)))
    # The window holds the sum and the largest single loss that has any weight.
    farthest = max(float(np.abs(r.loss[w > 1e-9 / r.number]).max()) for w, r in zip(tilted, releases, strict=True))
    step = max(24.0 * deviation, 2.5 * farthest) / length
    product = np.ones(length // 2 + 1, dtype=complex)
    for w, r in zip(tilted, releases, strict=True):
        nearest = np.rint(r.loss / step)
        f = r.loss / step - nearest
        masses = np.zeros(length)
        for k in range(-2, 3):
            share = np.prod([(f - j) / (k - j) for j in range(-2, 3) if j != k], axis=0)
            masses += np.bincount((nearest.astype(np.int64) + k) % length, w * share, length)
        product *= np.fft.rfft(masses) ** r.number
    composed = np.fft.irfft(product, length)
    start = round(centre / step) - length // 2
    x = (start + np.arange(length)) * step
    composed = composed[np.arange(start, start + length) % length]

    def enough(epsilon: float) -> bool:
        above = x > epsilon
        excess = float(composed[above] @ (np.exp(-theta * (x[above] - epsilon)) * -np.expm1(epsilon - x[above])))
        return excess <= math.exp(math.log(delta) - moment(theta) + theta * epsilon)

    low, high = max(0.0, centre - 8.0 * deviation), chernoff(math.log(theta))
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def renyi_epsilon(releases: Sequence[Outcomes], delta: float) -> float:
    """The bound on ε(δ) from Rényi divergences of all orders (Mironov 2017): looser than composed laws."""
    moment = _log_moment(releases)
    orders = np.geomspace(1e-3, 1e5, 400)
    return float(min((moment(t) - math.log(delta)) / t for t in orders))


def _log_moment(releases: Sequence[Outcomes]) -> Callable[[float], float]:
    def moment(theta: float) -> float:
        total = 0.0
        for r in releases:
            terms = r.log_weight + theta * r.loss
            top = float(terms.max())
            total += r.number * (top + math.log(float(np.exp(terms - top).sum())))
        return total

    return moment
