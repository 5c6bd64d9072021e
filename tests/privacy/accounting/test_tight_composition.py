"""Composed releases against a contour integral: never below it, and at most 0.02 % above it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting import loss_distributions
from decentral_dp.privacy.accounting.accountants import epsilon_at
from decentral_dp.privacy.accounting.loss_distributions import (
    Profile,
    Releases,
    gaussian_profile,
    group_profile,
    laplace_profile,
    poisson_profile,
    response_profile,
)
from tests.support.contour_reference import contour_epsilon, laplace_log_moment, poisson_log_moment

DELTA = 1e-5


def scales(count: int) -> Array:
    return math.sqrt(count) * (0.5 + np.arange(1, count + 1) / count)


def sigmas(count: int) -> Array:
    return max(0.8, 0.8 * math.sqrt(count / 1000.0)) * (0.7 + 0.6 * np.arange(1, count + 1) / count)


def poisson(mus: Array, rate: float) -> Releases:
    return Releases(poisson=np.stack([mus, np.full(mus.size, rate)]))


def mixed_log_moment(s: Array) -> Array:
    """Laplace releases and a Gaussian one of μ = 0.5."""
    return laplace_log_moment(1.0 / scales(1000), s) + 0.125 * s * (s + 1.0)


# Releases, their moments, a tilt near the saddle point, and the largest t.
ROWS: dict[str, tuple[Releases, Callable[[Array], Array], float, float]] = {
    f"{count} equal Laplace": (
        Releases(laplace=np.full(count, count**-0.5)),
        partial(laplace_log_moment, np.full(count, count**-0.5)),
        4.0,
        20.0 * math.pi * count**0.5,
    )
    for count in (10**3, 10**5, 10**6)
}
ROWS |= {
    f"{count} different Laplace": (
        Releases(laplace=1.0 / scales(count)),
        partial(laplace_log_moment, 1.0 / scales(count)),
        4.0,
        60.0,
    )
    for count in (300, 1000)
}
ROWS["different Laplace and Gaussian"] = (
    Releases(laplace=1.0 / scales(1000), mu=0.5),
    mixed_log_moment,
    4.0,
    40.0,
)
ROWS |= {
    f"{count} equal Gaussian on Poisson samples": (
        poisson(np.full(count, 2.0 / sigma), 0.01),
        partial(poisson_log_moment, np.full(count, 2.0 / sigma), 0.01),
        theta,
        60.0,
    )
    for count, sigma, theta in (
        (10**3, 0.8, 2.0),
        (10**4, 0.8 * math.sqrt(10.0), 4.0),
        (10**6, 8.0 * math.sqrt(10), 4.0),
    )
}
ROWS["40 different Gaussian on Poisson samples"] = (
    poisson(1.0 / sigmas(40), 0.1),
    partial(poisson_log_moment, 1.0 / sigmas(40), 0.1, points=601),
    3.0,
    30.0,
)


@pytest.mark.parametrize("name", ROWS)
def test_epsilon_is_at_most_a_fiftieth_of_a_percent_above_the_integral(name: str) -> None:
    releases, log_moment, theta, end = ROWS[name]
    wanted = contour_epsilon(log_moment, DELTA, theta, end, 0.05)
    # Another contour has the same integral.
    assert contour_epsilon(log_moment, DELTA, 0.8 * theta, end, 0.04) == pytest.approx(wanted, rel=1e-8)
    assert wanted * (1.0 - 1e-8) <= epsilon_at(releases, DELTA) <= wanted * 1.0002


KINDS: dict[str, tuple[Callable[[float], Profile], loss_distributions._Kind]] = {
    "laplace": (lambda v: laplace_profile(v, 1.0), loss_distributions._LAPLACE),
    "a batch, laplace": (lambda v: laplace_profile(v, 0.1), loss_distributions._LAPLACE),
    "response": (response_profile, loss_distributions._RESPONSE),
    "gaussian": (lambda v: gaussian_profile(v, 1.0), loss_distributions._GAUSSIAN),
    "a batch, gaussian": (lambda v: gaussian_profile(v, 0.1), loss_distributions._GAUSSIAN),
    "poisson": (lambda v: poisson_profile(v, 0.1), loss_distributions._POISSON),
    "zeroed out": (lambda v: group_profile(v, 0.1, 1, True), loss_distributions._GAUSSIAN),
}
RANGES = [(1e-4, 1.01e-4), (0.01, 0.02), (0.3, 0.33), (0.8, 1.1), (2.0, 2.3), (9.0, 9.1)]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_mixtures_of_two_values_dominate_the_values_between(name: str, low: float, high: float) -> None:
    profile, kind = KINDS[name]
    assert kind.weights is not None
    values = np.linspace(low, high, 12)[1:-1]
    e = np.linspace(0.0, high * (1.0 + high), 300)
    ends = profile(low)(e), profile(high)(e)
    for value, weight in zip(values, kind.weights(values, low, high), strict=True):
        mixture = weight * ends[0] + (1.0 - weight) * ends[1]
        between = profile(float(value))(e)
        # Equal in total variation, so that no larger weight would do.
        assert mixture[0] == pytest.approx(between[0], rel=1e-9)
        assert (mixture >= between - 1e-14 * (1.0 + high)).all()


@pytest.mark.parametrize("name", ["laplace", "response", "poisson"])
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_the_number_of_high_values_is_stochastically_largest(name: str, low: float, high: float) -> None:
    """Against the distribution of a sum of Bernoulli draws with different probabilities."""
    kind = KINDS[name][1]
    assert kind.weights is not None
    values = np.sort(np.random.default_rng(2).uniform(low, high, 23))[::-1]
    bucket = loss_distributions._mix(values, kind)
    assert bucket.low == values[-1] < values[0] < bucket.high
    assert bucket.number == values.size
    sums = np.ones(1)
    for weight in kind.weights(values, bucket.low, bucket.high):
        sums = np.convolve(sums, [weight, 1.0 - weight])
    more = 1.0 - np.cumsum(sums)
    binomial = binom.sf(np.arange(values.size + 1), values.size, 1.0 - bucket.weight)
    assert (binomial >= more - 1e-14).all()
    # P(no high value) is the same.
    assert binomial[0] == pytest.approx(more[0], rel=1e-6)
