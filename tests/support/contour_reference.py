"""ε(δ) of composed releases, by contour integration of their moments. It shares no code with the package.

For θ > 0 and M(s) = E e^{sL}, δ(ε) = 1/π Re ∫_0^∞ M(θ + it) e^{−(θ + it)ε}/((θ + it)(θ + it + 1)) dt. The trapezoidal
rule converges faster than any power of its step, because the integrand is analytic.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

Array = np.ndarray


def laplace_log_moment(epsilons: Array, s: Array) -> Array:
    """Σ log M(s) of Laplace pairs: atoms ½ at ε and ½e^{−ε} at −ε, and a density ¼e^{(l − ε)/2} between them."""
    total = np.zeros(s.shape, dtype=complex)
    for e, count in zip(*np.unique(epsilons, return_counts=True), strict=True):
        between = math.exp(-0.5 * e) * np.sinh((s + 0.5) * e) / (s + 0.5)
        total += count * np.log(0.5 * (np.exp(s * e) + np.exp(-(1.0 + s) * e) + between))
    return total


def poisson_log_moment(mus: Array, rate: float, s: Array, points: int = 1201) -> Array:
    """Σ log M(s) of (1−q)N(0, 1) + qN(m, 1) with m = μ/2 against its mirror image."""
    total = np.zeros(s.shape, dtype=complex)
    for mu, count in zip(*np.unique(mus, return_counts=True), strict=True):
        m = 0.5 * mu
        x = np.linspace(-m - 14.0, 2.0 * m + 18.0, points)
        near, up, down = (-0.5 * (x - at) ** 2 for at in (0.0, m, -m))
        p = np.logaddexp(math.log1p(-rate) + near, math.log(rate) + up)
        loss = p - np.logaddexp(math.log1p(-rate) + near, math.log(rate) + down)
        weight = np.exp(p) * (x[1] - x[0]) / math.sqrt(2.0 * math.pi)
        total += count * np.log(np.exp(s[:, None] * loss) @ weight)
    return total


def contour_epsilon(log_moment: Callable[[Array], Array], delta: float, theta: float, end: float, step: float) -> float:
    """ε(δ); `end` is the largest t, `step` the distance of two nodes."""
    t = np.arange(0.0, end, step)
    s = theta + 1j * t
    kernel = log_moment(s) - np.log(s * (s + 1.0))
    weights = np.full(t.size, step / math.pi)
    weights[0] *= 0.5

    def excess(epsilon: float) -> float:
        return float((weights * np.exp(kernel - s * epsilon - math.log(delta)).real).sum()) - 1.0

    # Chernoff's bound.
    low = high = float(kernel[0].real + math.log(theta * (theta + 1.0)) - math.log(delta)) / theta
    while excess(low) < 0.0:
        low -= 0.01 * high
    return float(brentq(excess, low, high, xtol=1e-12, rtol=1e-13))
