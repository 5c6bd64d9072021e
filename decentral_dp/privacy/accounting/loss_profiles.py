"""Privacy profiles δ(ε) of single releases: Laplace and Gaussian noise, randomised response, and samples of records."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import log_ndtr, ndtri

from decentral_dp.bounded import Array

# Of the interval that ε of a Gaussian pair lies in.
_BISECTIONS = 100


def amplified(loss: Array | float, rate: Array | float) -> Array:
    """log(1 + η(e^E − 1)): pure ε of a release of pure ε E on a fresh batch that is a share η of the pool."""
    e, eta = np.asarray(loss, dtype=np.float64), np.asarray(rate, dtype=np.float64)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        small = np.log1p(eta * np.expm1(e))
        # e^E overflows where E is large.
        large = np.logaddexp(np.log1p(-eta), e + np.log(eta))
    return np.where(eta == 0.0, 0.0, np.where(e < 700.0, small, np.maximum(0.0, large)))


def laplace_profile(loss: float, rate: float) -> Callable[[Array], Array]:
    """δ(ε) for ε ≥ 0 of a Laplace pair of pure ε `loss` on a batch that is a share `rate` of the pool."""

    def profile(e: Array) -> Array:
        return np.asarray(rate * -np.expm1(np.minimum(0.0, 0.5 * (_base_epsilon(e, rate) - loss))))

    return profile


def response_profile(loss: float) -> Callable[[Array], Array]:
    """δ(e), e ≥ 0, of randomised response with pure ε `loss`, the most pure ε allows: (e^loss − e^e)₊/(1 + e^loss)."""

    def profile(e: Array) -> Array:
        return np.asarray(-np.expm1(np.minimum(0.0, e - loss)) / (1.0 + math.exp(-loss)))

    return profile


def gaussian_profile(mu: float, rate: float) -> Callable[[Array], Array]:
    """δ(ε) for ε ≥ 0 of a Gaussian pair of distance `mu` on a batch that is a share `rate` of the pool."""

    def profile(e: Array) -> Array:
        return np.asarray(rate * np.exp(log_gaussian_delta(np.asarray(mu), _base_epsilon(e, rate))))

    return profile


def poisson_profile(mu: float, rate: float) -> Callable[[Array], Array]:
    """δ(ε) for ε ≥ 0 of a Gaussian release on a Poisson sample, one record replaced.

    P = (1−q)N(0, 1) + qN(m, 1), Q = (1−q)N(0, 1) + qN(−m, 1), m = μ/2. log(P/Q) grows with the outcome; with
    w = e^{mτ} and a = e^{−m²/2}, it is ε where (1−q) + qaw = e^ε((1−q) + qa/w), so that
    mτ = ε/2 + asinh((1−q) sinh(ε/2)/(qa)).
    """
    if rate == 1.0:
        return gaussian_profile(mu, 1.0)
    m = 0.5 * mu

    def profile(e: Array) -> Array:
        with np.errstate(divide="ignore"):
            # sinh(ε/2) = e^{ε/2}(1 − e^{−ε})/2; asinh(e^L) = log(e^L + √(e^{2L} + 1)).
            size = 0.5 * e + np.log(-np.expm1(-e)) + (0.5 * m * m + math.log1p(-rate) - math.log(2.0 * rate))
        tau = (0.5 * e + np.logaddexp(size, 0.5 * np.logaddexp(2.0 * size, 0.0))) / m
        out = math.log1p(-rate) + log_ndtr(-tau)
        first = np.logaddexp(out, math.log(rate) + log_ndtr(m - tau))
        second = e + np.logaddexp(out, math.log(rate) + log_ndtr(-m - tau))
        return np.asarray(np.exp(first) * -np.expm1(np.minimum(0.0, second - first)))

    return profile


def log_gaussian_delta(mu: Array, epsilon: Array) -> Array:
    """log δ of a Gaussian pair: δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
    first = log_ndtr(0.5 * mu - epsilon / mu)
    second = epsilon + log_ndtr(-0.5 * mu - epsilon / mu)
    with np.errstate(divide="ignore"):
        return np.asarray(first + np.log(-np.expm1(np.minimum(0.0, second - first))))


def smallest_epsilon(mu: Array, target: Array) -> Array:
    """The smallest ε ≥ 0 with log δ(ε) ≤ target of Gaussian pairs, by bisection; mu above 0 and target of one shape."""
    return np.asarray(_smallest_of_one(float(mu), float(target)) if mu.ndim == 0 else _smallest_of_each(mu, target))


def _smallest_of_each(m: Array, target: Array) -> Array:
    low, high = np.zeros_like(m), 0.5 * m * m + m * np.sqrt(-2.0 * target)
    for turn in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        # Between neighbouring numbers no further step would move either.
        if turn > 50 and turn % 4 == 0 and ((middle == low) | (middle == high)).all():
            break
        enough = log_gaussian_delta(m, middle) <= target
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _smallest_of_one(m: float, target: float) -> float:
    """As of each, to the bit: solvers ask for thousands, and what arrays cost would be most of it."""
    low, high = 0.0, 0.5 * m * m + m * math.sqrt(-2.0 * target)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            if middle in (low, high):
                break
            first = log_ndtr(0.5 * m - middle / m)
            second = middle + log_ndtr(-0.5 * m - middle / m)
            log_delta = first + np.log(-np.expm1(np.minimum(0.0, second - first)))
            low, high = (low, middle) if log_delta <= target else (middle, high)
    return high


def _base_epsilon(e: Array, rate: float) -> Array:
    """The ε whose amplified value is e: log(1 + (e^e − 1)/η)."""
    if rate == 1.0:
        return e
    return np.where(e < 500.0, np.log1p(np.expm1(np.minimum(e, 500.0)) / rate), e - math.log(rate))


def gaussian_reach(mu: float, rate: float, tail: float) -> float:
    """A loss that a (sampled) Gaussian pair exceeds with probability below `tail`."""
    return float(amplified(0.5 * mu * mu - mu * float(ndtri(max(tail, 1e-300))), rate))


def poisson_reach(mu: float, rate: float, tail: float) -> float:
    """The loss at an outcome that N(μ/2, 1), and so the mixture, exceeds with probability below `tail`."""
    if rate == 1.0:
        return gaussian_reach(mu, 1.0, tail)
    m = 0.5 * mu
    x = m - float(ndtri(max(tail, 1e-300)))
    stay, drawn = math.log1p(-rate), math.log(rate) - 0.5 * m * m
    return float(np.logaddexp(stay, drawn + m * x) - np.logaddexp(stay, drawn - m * x))
