"""δ(ε) of composed mechanisms by other means: closed forms and quadrature, sharing no code with the accountants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import mpmath
import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) in 50 digits."""
    with mpmath.workdps(50):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return float(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m))


def laplace_delta(losses: Sequence[float], epsilon: float) -> float:
    """δ of a few Laplace releases: E[(1 − e^{ε − Σ L})₊] over independent losses.

    The loss of one release of pure ε E is E with probability ½, −E with probability e^{−E}/2, and has density
    ¼ e^{(l − E)/2} between.
    """
    first, rest = losses[0], losses[1:]
    if not rest:
        return 1.0 if epsilon < -700 else _single(first, epsilon)

    def inner(left: float) -> float:
        return laplace_delta(rest, left)

    ends = 0.5 * inner(epsilon - first) + 0.5 * math.exp(-first) * inner(epsilon + first)
    total = sum(rest)
    kinks = sorted({k for k in (epsilon - total, epsilon + total) if -first < k < first})
    body = quad(
        lambda u: 0.25 * math.exp(0.5 * (u - first)) * inner(epsilon - u),
        -first,
        first,
        points=kinks or None,
        epsabs=1e-13,
        epsrel=1e-11,
        limit=400,
    )[0]
    return ends + body


def _single(loss: float, epsilon: float) -> float:
    if epsilon >= loss:
        return 0.0
    if epsilon <= -loss:
        return -math.expm1(epsilon)
    return -math.expm1(0.5 * (epsilon - loss))


def convolved_epsilon(losses: np.ndarray, delta: float, cells: int = 2**17) -> tuple[float, float]:
    """ε(δ) of many Laplace releases, bracketed: every loss is cut to a grid, once downwards and once upwards."""
    reach = float(losses.sum())
    h = 2.2 * reach / cells
    edges = (np.arange(cells + 1) - cells // 2) * h
    answers = []
    for up in (False, True):
        spectrum = np.ones(cells // 2 + 1, dtype=complex)
        for e in losses:
            # Cumulative distribution of one loss; the mass of each cell moves to its lower or upper edge.
            inside = np.clip(edges, -e, e)
            law = np.where(edges < -e, 0.0, 0.5 * np.exp(0.5 * (inside - e)))
            law = np.where(edges >= e, 1.0, law)
            mass = np.diff(law)
            cell = np.zeros(cells)
            cell[1 if up else 0 :] += mass[: cells - 1] if up else mass
            spectrum *= np.fft.rfft(np.roll(cell, -(cells // 2)))
        pmf = np.roll(np.fft.irfft(spectrum, cells), cells // 2)
        at = (np.arange(cells) - cells // 2) * h

        def excess(epsilon: float, pmf: np.ndarray = pmf, at: np.ndarray = at) -> float:
            above = at > epsilon
            return float((pmf[above] * -np.expm1(epsilon - at[above])).sum()) - delta

        answers.append(brentq(excess, 0.0, reach * 1.05) if excess(0.0) > 0.0 else 0.0)
    return answers[0], answers[1]


def hockey_stick(p: Callable[[np.ndarray], np.ndarray], q: Callable[[np.ndarray], np.ndarray], epsilon: float) -> float:
    """∫ (p − e^ε q)₊ on the line, by a fine trapezoidal rule."""
    x = np.linspace(-30.0, 30.0, 600_001)
    return float(np.trapezoid(np.maximum(p(x) - math.exp(epsilon) * q(x), 0.0), x))


def sampled_twice_delta(loss: float, eta: float, epsilon: float) -> float:
    """δ of two rounds of (1 − η) Lap(0) + η Lap(loss) against Lap(0): E[δ₁(ε − L)] over the first round's loss L."""

    def p(x: float) -> float:
        return 0.5 * ((1 - eta) * math.exp(-abs(x)) + eta * math.exp(-abs(x - loss)))

    def q(x: float) -> float:
        return 0.5 * math.exp(-abs(x))

    low, high = math.log(1 - eta + eta * math.exp(-loss)), math.log(1 - eta + eta * math.exp(loss))
    mass_low, mass_high = quad(p, -50, 0)[0], quad(p, loss, loss + 50)[0]
    rest = quad(q, loss, loss + 50)[0]

    def once(e: float) -> float:
        if e >= high:
            return 0.0
        if e <= low:
            return -math.expm1(e)
        start = 0.5 * (math.log((math.expm1(e) + eta) / eta) + loss)
        body = quad(lambda x: p(x) - math.exp(e) * q(x), start, loss)[0]
        return body + mass_high - math.exp(e) * rest

    middle = quad(lambda x: p(x) * once(epsilon - math.log(p(x) / q(x))), 0.0, loss, epsabs=1e-13, limit=300)[0]
    return mass_low * once(epsilon - low) + mass_high * once(epsilon - high) + middle
