"""Sensitivities and rates from constants: published numbers, limits and one-dimensional counterexamples."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.optimize import brentq
from scipy.stats import norm as normal

from decentral_dp.central.sensitivities import (
    Clips,
    default_penalty,
    estimate_slack,
    hypergradient_lipschitz,
    hypergradient_sensitivity,
    implicit_sensitivity,
    minimiser_sensitivity,
    penalty_bias,
    penalty_smoothness,
    score_oscillation,
    smoothness,
)
from decentral_dp.constants import ProblemConstants, solution_spread
from papers.penalty_rate import descent_steps, estimator_bias
from papers.published.bilevel import published_lipschitz

MANY = 10**9


def granular(**constants: Any) -> ProblemConstants:
    """Return constants, 0 by default, with a radius of 1e9 that truncates no bound."""
    values = dict.fromkeys(ProblemConstants._fields, 0.0) | {"radius": 1e9, "mu": 1.0} | constants
    return ProblemConstants(**values)


def logistic(w: float, radius: float) -> ProblemConstants:
    """Return those of ridge-regularised logistic regression in log w, records of norm 1, gradients bounded by 1."""
    return granular(
        radius=1e9, mu=w, l_fy=1.0, l_gy=1.0 + w * radius, d_fy=2.0, d_gy=2.0, b_fyy=0.25, b_gxy=w * radius,
        b_gyy=0.25 + w, d_hyy=0.25, c_gxy=w, c_gyy=1.0 / (6.0 * math.sqrt(3.0)), m_gyy=w, m=radius,
    )  # fmt: skip


def squares(w: float, rest: float, m: float, ridge: bool) -> ProblemConstants:
    """Return those of least squares with residuals up to `rest`, records of norm 1, strength or bias w."""
    mixed = w * m if ridge else w
    return granular(
        mu=w, l_fy=rest, l_gy=rest + w * m, d_fy=2 * rest, d_gy=2 * rest, b_fyy=1.0, b_gxy=mixed, b_gyy=1.0 + w,
        d_hyy=1.0, c_gxy=w if ridge else 0.0, m=m,
    )  # fmt: skip


def groups(mu: float) -> ProblemConstants:
    """Return those of sigmoid weights of groups with the logistic loss, records of norm 1."""
    return granular(
        mu=mu, l_fy=1.0, d_fy=2.0, d_gy=2.0, b_fyy=0.25, b_gxy=0.25, b_gyy=0.25 + mu, d_hxy=0.5, d_hyy=0.25,
        c_gxy=1 / 16, c_gyy=1.0 / (6.0 * math.sqrt(3.0)), m=0.25 / mu,
    )  # fmt: skip


R_CARD = math.sqrt(2.0 * math.log(2.0) / 0.1)
NUMBERS = [
    (logistic(0.1, R_CARD), 119.6, 7.45),
    (squares(0.05, 1 + math.sqrt(5), math.sqrt(5), True), 853.0, 14.47),
    (squares(0.2, 1 + math.sqrt(1.25), math.sqrt(1.25), True), 80.4, 4.74),
    (squares(1.0, 1.5, 0.5, True), 6.75, 1.5),
    (squares(0.1, 2 + math.sqrt(10), 1.0, False), 154.9, 10.32),
    (groups(0.05), 519.9, 10.0),
    (groups(0.2), 16.3, 2.5),
    (groups(1.0), 0.86, 0.5),
]


@pytest.mark.parametrize(("c", "train", "validation"), NUMBERS)
def test_hypergradient_sensitivity_by_hand(c: ProblemConstants, train: float, validation: float) -> None:
    got = hypergradient_sensitivity(c, MANY, MANY)
    assert got["train"] * MANY == pytest.approx(train, rel=6e-3)
    assert got["validation"] * MANY == pytest.approx(validation, rel=6e-3)


def test_relative_curvature_is_smaller_at_weak_regularisation() -> None:
    """Below w = .096 R² it is the smaller bound of the same change."""
    for w, wins in ((0.03, True), (0.3, False)):
        c = logistic(w, math.sqrt(2 * math.log(2) / w))
        plain, other = (hypergradient_sensitivity(c, MANY, MANY, k)["train"] * MANY for k in (math.inf, 1.0))
        assert (other < 0.5 * plain) == wins
        assert other <= plain
    c = logistic(0.03, R_CARD)
    assert hypergradient_sensitivity(c, 1, 1, 1.0) == hypergradient_sensitivity(c, 1, 1)


def test_sensitivity_is_at_most_the_range() -> None:
    c = logistic(0.1, R_CARD)._replace(radius=R_CARD)
    for n in (1, 2):
        got = hypergradient_sensitivity(c, n, n)
        assert max(got.values()) <= 2 * R_CARD * (1 + 1e-9)
        assert minimiser_sensitivity(c, n, n, 0.25)["train"] <= 2 * R_CARD + 0.5 + 1e-9


def test_minimisers() -> None:
    c = granular(mu=0.5, d_gy=3.0, d_fy=2.0, b_fyy=1.0)
    assert minimiser_sensitivity(c, 10, 20, 0.01) == pytest.approx({"train": 0.62, "validation": 0.0})
    penalised = minimiser_sensitivity(c, 10, 20, 0.01, 0.1)
    assert penalised == pytest.approx({"train": 0.62, "validation": 2.02})


# Lemma B.6 ----------------------------------------------------------------------------------------------------------


def gdp_mu(epsilon: float, delta: float) -> float:
    return float(brentq(lambda m: gaussian_delta(epsilon, m) - delta, 1e-3, 50.0))


def gaussian_delta(epsilon: float, m: float) -> float:
    tail = normal.logcdf(-epsilon / m - m / 2)
    return float(normal.cdf(-epsilon / m + m / 2) - math.exp(epsilon + tail))


@pytest.mark.parametrize(("kappa", "true"), [(2.9, 0.94), (5.0, 2.11), (10.0, 5.20), (50.0, 40.8)])
def test_published_slope_bound_is_false(kappa: float, true: float) -> None:
    """f = y, g = ½a y² − b x y, a ∈ [1, κ], n = 1000: the mechanism is a 1-D Gaussian, so its ε is exact.

    exp(−k(Φ + ½ρx²)) with Φ_Z = b x/ā is N(−b/(āρ), 1/(kρ)); k = ρ m²/S² for S-Lipschitz differences.
    """
    n, b, rho = 1000, 0.7, 5.0
    m = gdp_mu(1.0, 1e-6)
    means = [1.0, (n - 1 + kappa) / n]
    largest = b  # |y| ≤ b/μ for |x| ≤ 1
    c = granular(
        mu=1.0, l_fy=1.0, l_gy=2 * kappa * b, b_gxy=b, b_gyy=kappa, d_gy=(kappa - 1) * largest, d_hyy=kappa - 1, m=b
    )

    def spent(s: float) -> float:
        k = rho * m**2 / s**2
        shift = b / rho * abs(1 / means[0] - 1 / means[1]) * math.sqrt(k * rho)
        return float(brentq(lambda e: gaussian_delta(e, shift) - 1e-6, 1e-9, 500.0))

    assert spent(published_lipschitz(c, n)) == pytest.approx(true, abs=0.051 if kappa > 20 else 0.0051)
    assert (spent(published_lipschitz(c, n)) > 1.0) == (kappa > 3)
    assert 0.9 < spent(hypergradient_sensitivity(c, n, n)["train"]) <= 1.0 + 1e-9


def test_scores_and_spreads() -> None:
    c = granular(mu=0.5, radius=3.0, l_fx=0.2, l_fy=2.0, l_gy=1.0, d_gy=4.0, m=0.75)
    assert solution_spread(c, 10.0, centred=True) == pytest.approx(2.0)
    assert solution_spread(c._replace(l_gy=9.0), 10.0, centred=True) == pytest.approx(6.0)
    assert solution_spread(c, 1.0, centred=True) == pytest.approx(0.75)
    assert solution_spread(c, 10.0, centred=False) == pytest.approx(7.5)
    got = score_oscillation(c, 10, 5, 10.0, 2.0, 0.01)
    assert got == pytest.approx({"train": 2 * 2.0 * 0.8 + 0.04, "validation": 2 / 5 * (2.0 + 4.0) + 0.04})
    assert score_oscillation(c, 10, 5, 10.0, 2.0, 0.0, loss_range=1.0)["validation"] == pytest.approx(0.4)


def test_inexact_solves_add_to_sensitivity() -> None:
    c = granular(mu=0.5, l_fy=2.0, b_fxy=0.1, b_fyy=0.3, c_gxy=0.4, c_gyy=0.6, m=1.5, b_gxy=0.7)
    lipschitz = 0.1 + 1.5 * 0.3 + 4.0 * (0.4 + 1.5 * 0.6)
    assert hypergradient_lipschitz(c) == pytest.approx(lipschitz)
    assert estimate_slack(c, 0.01, 0.02) == pytest.approx(2 * (lipschitz * 0.01 + 0.7 * 0.02))


# Implicit gradients -------------------------------------------------------------------------------------------------


def test_implicit_sensitivity_by_hand() -> None:
    clips, n, v = Clips(0.3, 2.0, 0.4, 0.5), 10, 20
    got = implicit_sensitivity(clips, 0.1, 0.9, n, v)
    drift = 0.9 * 2.0 * 0.05 / (0.1 * 0.15)
    assert got == pytest.approx({"train": 2 * 0.4 / n * 20 + drift, "validation": (0.6 + 2 * 9 * 2.0) / v})
    loose = implicit_sensitivity(clips, 0.1, 0.9, n, v, positive=False)
    assert loose["train"] == pytest.approx(2 * 0.4 / n * 20 + 0.9 * 2.0 * 0.1 / 0.01)
    less = implicit_sensitivity(clips, 0.1, 0.9, n, v, through=1.0)
    assert less == pytest.approx({"train": 0.8 / n * 20 + 2.0 * 0.05 / 0.1, "validation": (0.6 + 2 * 2.0) / v})
    slack = implicit_sensitivity(clips, 0.1, 0.9, n, v, solve_error=0.01)
    assert slack["train"] - got["train"] == pytest.approx(2 * 0.9 * 0.01)


# Rates --------------------------------------------------------------------------------------------------------------


def test_rates_by_hand() -> None:
    c = granular(
        mu=0.5, l_fy=2.0, b_fxx=0.2, b_fxy=0.1, b_fyy=0.3, b_gxy=0.7, c_gxy=0.4, c_gyy=0.6, m_gxy=0.8, m_gyy=0.9, m=1.4
    )
    k = 0.7 / 0.5
    printed = 0.2 + 2 * 0.1 * k + k**2 * 0.3 + 4 * k * (0.9 + 0.6 * k) + 4 * 0.4 * k + 4 * 0.8
    assert smoothness(c) == pytest.approx(printed)
    assert penalty_bias(c) == pytest.approx(4 * (0.1 + k * 0.3 + 2 * (0.4 + k * 0.6)))
    # In the limit the penalty's smoothness is that of Φ; C_gxy and M_gyy bound the same third derivative.
    assert penalty_smoothness(c, 1e9) == pytest.approx(smoothness(c._replace(m_gyy=0.4)), rel=1e-6)
    assert estimator_bias(c, 10.0, 0.01, 0.02) == pytest.approx(0.1 * 0.02 + 7.0 * 0.03)
    best = default_penalty(c, 0.01, 0.02)
    loss = [penalty_bias(c) / lam + lam * 0.7 * 0.03 for lam in (0.9 * best, best, 1.1 * best)]
    assert loss[1] == min(loss)
    assert default_penalty(c, 0.0, 0.0) == math.inf
    assert descent_steps(3.0, 0.5, 0.1) == 3200
