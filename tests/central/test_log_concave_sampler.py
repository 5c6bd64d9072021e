"""Regularised exponential mechanisms: their laws, their Gaussian price, and each way to lose it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from decentral_dp.central import selection
from decentral_dp.central.selection import Box, RegularisedLaw, quadratic
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from papers.draws import rate_for
from tests.support.exact_laws import rejected

MU = 0.2367  # (1, 1e-6)
UNIT = Box(np.array([-1.0]), np.array([1.0]))
FINE = np.linspace(-1, 1, 400_001)


def on(box: Box, **changes: Any) -> RegularisedLaw:
    d = len(box.low)
    plain = RegularisedLaw(box, 50.0, 0.5, np.zeros(d), 0.01, 4.0, inexact=1e-12)
    return plain._replace(**changes)


def mu_of(declared: RegularisedLaw) -> float:
    """μ of the Gaussian pair that bounds a draw from the continuous law."""
    return float(declared.sensitivity * np.sqrt(declared.rate / (declared.strength + declared.curvature)))


def epsilon_of(declared: RegularisedLaw, delta: float) -> float:
    """ε of a draw from the grid: with τ twice the error, ε + 2τ at e^{−τ}δ."""
    return float(gaussian_epsilon(mu_of(declared), delta * np.exp(-2.0 * declared.error()))) + 4.0 * declared.error()


def density(exponent: np.ndarray) -> np.ndarray:
    law = np.exp(exponent.min() - exponent)
    return np.asarray(law / law.sum())


def delta(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return max(float(np.maximum(p - np.exp(epsilon) * q, 0).sum()), float(np.maximum(q - np.exp(epsilon) * p, 0).sum()))


def gaussian_delta(mu: float, epsilon: float) -> float:
    high, low = stats.norm.cdf(mu / 2 - epsilon / mu), stats.norm.cdf(-mu / 2 - epsilon / mu)
    return float(high - np.exp(epsilon) * low)


# ---- the law -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [0.3, 1.4, 3.0])
@pytest.mark.parametrize("rate", [1.0, 3000.0])
def test_the_truncated_gaussian_is_drawn(slope: float, rate: float) -> None:
    """Minimum inside, near the edge, outside; wide and narrow."""
    rng, declared = np.random.default_rng(41), on(UNIT, rate=rate)
    mean, deviation = slope / 1.5, (1.5 * rate) ** -0.5
    law = stats.truncnorm((-1 - mean) / deviation, (1 - mean) / deviation, mean, deviation)
    drawn = [quadratic(rng, declared, np.eye(1), np.array([slope]))[0] for _ in range(150)]
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-5
    assert stats.kstest(drawn, lambda x: law.cdf(x - 0.7 * law.std())).pvalue < 1e-5


def test_a_plane_of_a_convex_score_that_is_no_quadratic() -> None:
    """log-sum-exp on a square, against its density on a fine grid."""
    rng, box, rate = np.random.default_rng(42), Box(-np.ones(2), np.ones(2)), 12.0
    slopes = rng.normal(size=(4, 2))

    def score(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(np.exp(x @ slopes.T).sum(axis=1)))

    def gradient(x: np.ndarray) -> np.ndarray:
        return np.asarray(density(-(slopes @ x)) @ slopes)

    side = np.linspace(-1, 1, 301)[:-1] + 1 / 300
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    law = density(rate * (score(grid) + 0.25 * (grid**2).sum(axis=1)))
    declared, near = on(box, rate=rate), grid[law.argmax()]
    drawn = [selection.draw_regularised(rng, declared, score, gradient, near) for _ in range(500)]
    cell = (grid[:, 0] > -0.2) * 3 + (grid[:, 1] > -0.2) + (grid[:, 1] > 0.2)
    x = np.array(drawn)
    counts = np.bincount((x[:, 0] > -0.2) * 3 + (x[:, 1] > -0.2) + 1 * (x[:, 1] > 0.2), minlength=6)
    expected = np.bincount(cell, weights=law, minlength=6)
    assert not rejected(counts, expected)
    assert rejected(counts, expected * np.where(np.arange(6) == expected.argmax(), 1.6, 1.0))


@pytest.mark.parametrize(
    ("precision", "centre", "draws"),
    # Just outside, proposals are refused most often; the law is steep there, and fewer draws tell it from the other.
    [
        (Fraction(1, 9), 6, 4000),
        (Fraction(1, 10**5), 3, 4000),
        (Fraction(1, 9), -2, 1600),
        (Fraction(1, 9), -30, 4000),
        (Fraction(1, 4), 19, 4000),
    ],
)
def test_coordinates_follow_a_truncated_gaussian_on_the_grid(
    precision: Fraction, centre: int, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Centre inside, wide, just outside, far outside, and on the other side."""
    monkeypatch.setattr(selection, "_POSITIONS", 16)
    rng = np.random.default_rng(43)
    drawn = [selection._on_axis(rng, precision, centre) for _ in range(draws)]
    law = density(0.5 * float(precision) * (np.arange(16) - centre) ** 2)
    counts, wide = np.bincount(drawn, minlength=16), law > 0.002
    counts, law = np.append(counts[wide], counts[~wide].sum()), np.append(law[wide], law[~wide].sum())
    counts, law = counts[law > 0], law[law > 0]
    assert not rejected(counts, law)
    # Half as much again of the second most likely.
    assert rejected(counts, law * np.where(np.arange(len(law)) == np.argsort(law)[-2], 1.5 + 0.3 * (law < 0.1), 1.0))


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.5, 1e7), st.integers(1, 3), st.booleans())
def test_proposals_lie_below_every_convex_score(seed: int, rate: float, dimension: int, far: bool) -> None:
    """No acceptance is above 1 wherever the tangent touches; with more curvature than there is, some are."""
    rng = np.random.default_rng(seed)
    box = Box(-np.ones(dimension), rng.uniform(0.0, 2.0, dimension))
    slopes = rng.normal(size=(4, dimension)) / np.sqrt(dimension)

    def score(x: np.ndarray) -> np.ndarray:
        top = (x @ slopes.T).max(axis=1)
        return np.asarray(top + np.log(np.exp(x @ slopes.T - top[:, None]).sum(axis=1)))

    declared = on(box, rate=rate, strength=0.1)
    near = rng.uniform(-3, 3, dimension) if far else np.zeros(dimension)
    points = rng.uniform(box.low, box.high, (300, dimension))
    points[:100] = np.clip(near, box.low, box.high) + 1e-4 * rng.normal(size=(100, dimension))
    points = np.clip(points, box.low, box.high)
    above = {}
    for curvature in (0.0, 6.0):
        proposal = selection._touching(
            declared, score, lambda x: np.asarray(density(-(slopes @ x)) @ slopes), near, curvature
        )
        step = box.sides * 2.0**-40
        numbers = (points - box.low) / step - 0.5
        squares = (np.array([float(a) for a in proposal.precisions]) * (numbers - np.array(proposal.centre)) ** 2).sum(
            1
        )
        heights = rate * (score(points) + 0.05 * (points**2).sum(axis=1))
        above[curvature] = heights - 0.5 * squares - float(proposal.floor)
    assert above[0.0].min() >= 0.0
    assert above[6.0].min() < 0.0


# ---- the price -----------------------------------------------------------------------------------------------------


def gap_of(exponents: tuple[np.ndarray, np.ndarray], epsilon: float = 1.0) -> float:
    return delta(density(exponents[0]), density(exponents[1]), epsilon)


@pytest.mark.parametrize("curvature", [0.0, -0.6, 2.0])
def test_the_gaussian_price_holds_and_is_attained(curvature: float) -> None:
    """Neighbours whose gradients differ by S everywhere: a Gaussian shifted by exactly μ deviations."""
    strength, sensitivity = 1.0, 0.002
    rate = rate_for(MU, sensitivity, strength, curvature)
    whole = rate * 0.5 * (strength + curvature) * FINE**2
    found = gap_of((whole, whole + rate * sensitivity * FINE))
    declared = on(UNIT, rate=rate, strength=strength, sensitivity=sensitivity, curvature=curvature)
    assert mu_of(declared) == pytest.approx(MU)
    assert 0.95 <= found / gaussian_delta(MU, 1.0) <= 1.001
    priced = epsilon_of(declared, 1e-6)
    assert delta(density(whole), density(whole + rate * sensitivity * FINE), priced) <= 1e-6
    assert 0.0 <= priced - float(gaussian_epsilon(MU, 1e-6)) < 1e-3
    if curvature < 0.0:
        forgotten = rate_for(MU, sensitivity, strength)
        whole = forgotten * 0.5 * (strength + curvature) * FINE**2
        assert gap_of((whole, whole + forgotten * sensitivity * FINE)) > 20 * gaussian_delta(MU, 1.0)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_no_convex_pair_costs_more(seed: int) -> None:
    """Random convex scores on an interval, and perturbations of slope S that keep them convex."""
    rng, x = np.random.default_rng(seed), np.linspace(-1, 1, 20_001)
    sensitivity = 10 ** rng.uniform(-1.5, -0.5)
    knots, bends = rng.uniform(-1, 1, 6), rng.exponential(size=6) * rng.choice([0, 1], 6)
    base = (bends * np.abs(x[:, None] - knots)).sum(axis=1) + rng.normal() * x
    rise = rng.choice([-1.0, 1.0]) * sensitivity * np.abs(x - rng.uniform(-1, 1))
    other = base + rise if (rise >= 0).all() else base + sensitivity * rng.choice([-1, 1]) * x
    strength = 10 ** rng.uniform(-1, 1)
    rate = rate_for(MU, sensitivity, strength)
    exponents = (rate * (base + 0.5 * strength * x**2), rate * (other + 0.5 * strength * x**2))
    assert gap_of(exponents) <= 1.01 * gaussian_delta(MU, 1.0)


def test_a_double_well_costs_everything() -> None:
    """Convexity is needed for every dataset: n = 1000 records, two wells, one record moves all mass: δ(1) ≈ 1/2."""
    strength, sensitivity = 1.0, 2 / 1000
    rate = rate_for(MU, sensitivity, strength)
    wells = 4.0 * (FINE**2 - 0.5) ** 2 + 0.5 * strength * FINE**2
    found = gap_of((rate * wells, rate * (wells + sensitivity * FINE)))
    assert found == pytest.approx(0.5, abs=0.02)
    # As weakly convex as it is (its curvature is 48 x² − 8), no strength below 8 gives any price.
    declared = on(UNIT, rate=rate, strength=strength, sensitivity=sensitivity, curvature=-8.0)
    with pytest.raises(InputError, match="curvature"):
        quadratic(np.random.default_rng(0), declared, np.eye(1), np.zeros(1))
    strong = rate_for(MU, sensitivity, 9.0, -8.0)
    convexed = 4.0 * (FINE**2 - 0.5) ** 2 + 4.5 * FINE**2
    assert gap_of((strong * convexed, strong * (convexed + sensitivity * FINE))) <= 1.001 * gaussian_delta(MU, 1.0)


def test_an_inexact_score_costs_twice_tau() -> None:
    """An error of ±a chosen by an adversary breaks the Gaussian price, and keeps the one with e = k·a."""
    strength, sensitivity = 1.0, 0.002
    rate = rate_for(MU, sensitivity, strength)
    a = 0.05 / rate
    whole = rate * 0.5 * strength * FINE**2
    tilted = whole + rate * sensitivity * FINE
    gains = density(whole) > np.e * density(tilted)
    worst = (whole - rate * a * np.where(gains, 1, -1), tilted + rate * a * np.where(gains, 1, -1))
    declared = on(UNIT, rate=rate, strength=strength, sensitivity=sensitivity, inexact=a)
    assert gap_of(worst) > 1.5 * gaussian_delta(MU, 1.0)
    priced = epsilon_of(declared, 1e-6)
    assert priced == pytest.approx(float(gaussian_epsilon(MU, 1e-6 * np.exp(-0.1))) + 0.2, abs=1e-3)
    assert gap_of(worst, priced) <= 1e-6


def test_an_unnormalised_error_costs_four_times_itself() -> None:
    """τ = .1 per cell of a quadrature at ε = 1: 1.4 is attained, so ε + 2τ would be wrong."""
    tau, n = 0.1, 10**6
    exponents = np.zeros((2, n))
    exponents[0, 0], exponents[1, 0] = 1.0 + tau, -tau
    exponents[:, 1:] += np.array([[-tau], [tau]])
    laws = np.exp(exponents) / np.exp(exponents).sum(axis=1, keepdims=True)
    assert float(np.abs(np.log(laws[0] / laws[1])).max()) == pytest.approx(1.4, abs=1e-4)


def test_a_coarse_grid_is_no_gaussian_pair() -> None:
    """δ(1) over the Gaussian one with 11, 21, 51, 201 points on 43 deviations, at its worst position."""
    ratios = []
    for points in (11, 21, 51, 201):
        x = np.linspace(-21.65, 21.65, points)
        shifts = np.linspace(-0.5, 0.5, 401) * (x[1] - x[0])
        laws = [(density(0.5 * (x - s) ** 2), density(0.5 * (x - s - MU) ** 2)) for s in shifts]
        ratios.append(max(delta(p, q, 1.0) for p, q in laws) / 1e-6)
    assert ratios == pytest.approx([240, 3.3, 1.6, 1.04], rel=0.05)
    declared = on(UNIT, rate=rate_for(MU, 0.002, 1.0), strength=1.0, sensitivity=0.002)
    assert declared.error() < 1e-5
