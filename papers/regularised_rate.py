"""The regularised exponential mechanism on regularised least squares, and Lemma B.6 on its privacy.

Rate: Φ is a convex quadratic, so the distribution ∝ e^{−k(Φ + (μ_r/2)|x|²)} on a box is a truncated Gaussian with exact
draws. With k = μ_r m²/S² and μ_r = √(2d)S/(mR), the expected excess is at most √2·S·R√d/m, S the sensitivity of ∇Φ.

Privacy: f = y and g = a y²/2 − x y with a ∈ [1, κ]. n − 1 records have a = 1, and one has 1 or κ. Then Φ(x) = x/ā, and
Lemma B.6 bounds the slope of Φ_Z − Φ_Z' by 2/n for every κ. The true ε at δ = 1e-6 is computed by numerical integration
of both distributions on X = [−1, 1], without a formula of either analysis.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from decentral_dp.bounded import Array
from decentral_dp.central.selection import Box, RegularisedLaw, quadratic
from decentral_dp.central.sensitivities import hypergradient_sensitivity
from decentral_dp.constants import ProblemConstants, family_of
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.problems.bilevel.linear import Quadratic
from decentral_dp.simulation.statistics import over_seeds
from papers.draws import DELTA, EPSILON, generator, mu_of, rate_for
from papers.findings import Check, Row, around, exactly, slope_check, values
from papers.published.bilevel import published_lipschitz

RECORDS, DIMENSION, SHARE = "excess against n", "excess against d_x", "excess over its bound √2·S·R√d_x/m"
CURVE, PUBLISHED, PROVEN = "true ε at δ = 1e-6, calibrated to ε = 1", "by Lemma B.6", "by the proved sensitivity"
SERIES = "truncated Gaussian"
RADIUS, RIDGE = 1.0, 1.0
_LEMMA_RECORDS = 1_000
_POINTS = 400_001


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    return [*_excess(seed, quick), *_privacy(quick)]


def _excess(seed: int, quick: bool) -> list[Row]:
    rows = []
    for repeat in range(6 if quick else 10):
        for n in (10**5, 10**8) if quick else (10**5, 10**6, 10**7, 10**8):
            mean = excess(generator("e5", seed, repeat, n), 4, n, 40 if quick else 150)
            rows.append(Row(RECORDS, SERIES, "n·ε", n * EPSILON, "excess of Φ", repeat, mean))
            rows.append(Row(SHARE, SERIES, "n·ε", n * EPSILON, "ratio", repeat, mean / bound(4, n)))
        for d in (2, 16) if quick else (2, 4, 8, 16):
            mean = excess(generator("e5", seed, repeat, d), d, 10**8, (240 + 15 * d) // d if quick else 150)
            rows.append(Row(DIMENSION, SERIES, "upper dimension d_x", d, "excess of Φ", repeat, mean))
    return rows


def _sensitivity(d: int, n: int) -> float:
    """Compute S on the box of half-width R/√d around 0."""
    half = RADIUS / math.sqrt(d)
    constants = family_of(Quadratic(d, RIDGE), 1.0, 1.0).constants(np.full(d, -half), np.full(d, half))
    return max(hypergradient_sensitivity(constants, n, n).values())


def bound(d: int, n: int) -> float:
    """Compute the bound on the excess risk with the proved sensitivity.

    Args:
        d: dimension of x.
        n: number of records.
    """
    return math.sqrt(2.0) * _sensitivity(d, n) * RADIUS * math.sqrt(d) / mu_of()


def excess(rng: np.random.Generator, d: int, n: int, draws: int) -> float:
    """Measure the mean excess of Φ over draws, for records along the axes in equal shares.

    Args:
        rng: random bits.
        d: upper dimension, and lower dimension.
        n: number of train records, and of validation records.
        draws: number of draws.

    Returns:
        Mean excess.
    """
    half, sensitivity = RADIUS / math.sqrt(d), _sensitivity(d, n)
    strength = math.sqrt(2.0 * d) * sensitivity / (mu_of() * RADIUS)
    shares = np.full(d, 1.0 / d)
    # ∇Φ(x) = M(s·y(x) − s·b̄) with y(x) = (s·b + x)/(s + μ) and M = μ/(s + μ) has its zero in the box.
    derivative = RIDGE / (shares + RIDGE)
    best = 0.5 * half * rng.uniform(-1.0, 1.0, d)
    hessian = np.diag(shares * derivative**2)
    mechanism = RegularisedLaw(
        Box(np.full(d, -half), np.full(d, half)), rate_for(mu_of(), sensitivity, strength), strength, np.zeros(d),
        sensitivity, 2.0,
        inexact=1e-14,
    )  # fmt: skip
    linear = hessian @ best
    errors = [quadratic(rng, mechanism, hessian, linear) - best for _ in range(draws)]
    return float(np.mean([0.5 * error @ hessian @ error for error in errors]))


def _privacy(quick: bool) -> list[Row]:
    rows, n, strength = [], _LEMMA_RECORDS, 5.0
    for kappa in (2.9, 5.0, 10.0, 50.0) if quick else (1.5, 2.0, 2.9, 3.5, 5.0, 10.0, 20.0, 50.0):
        slopes = np.array([1.0, n / (n - 1.0 + kappa)])
        for series, sensitivity in ((PUBLISHED, published_lipschitz(_constants(1.0), n)), (PROVEN, _proven(kappa, n))):
            rate = rate_for(mu_of(), sensitivity, strength)
            epsilon = true_epsilon(slopes, rate, strength, DELTA)
            rows.append(Row(CURVE, series, "condition number κ", kappa, "ε", 0, epsilon))
    return rows


def _constants(kappa: float) -> ProblemConstants:
    """Return the constants for f = y and g = a y²/2 − x y with a ∈ [1, κ] and |x| ≤ 1, so that |y| ≤ 1."""
    return ProblemConstants(
        radius=1.0, mu=1.0, l_fx=0.0, l_fy=1.0, l_gy=1.0 + kappa, d_fx=0.0, d_fy=0.0, d_gy=kappa - 1.0, b_fxx=0.0,
        b_fxy=0.0, b_fyy=0.0, b_gxy=1.0, b_gyy=kappa, d_hxy=0.0, d_hyy=kappa - 1.0, c_gxy=0.0, c_gyy=0.0, m_gxy=0.0,
        m_gyy=0.0, m=1.0,
    )  # fmt: skip


def _proven(kappa: float, n: int) -> float:
    return max(hypergradient_sensitivity(_constants(kappa), n, n).values())


def true_epsilon(slopes: Array, rate: float, strength: float, delta: float) -> float:
    """Compute ε(δ) of two distributions ∝ e^{−k(c x + (μ_r/2)x²)} on [−1, 1] by summation on a fine grid.

    Args:
        slopes: c of both distributions, (2,).
        rate: k.
        strength: μ_r.
        delta: δ.

    Returns:
        ε, by bisection from 0 to 1000.
    """
    x = np.linspace(-1.0, 1.0, _POINTS)
    logs = -rate * (slopes[:, None] * x + 0.5 * strength * x**2)
    logs -= logs.max(axis=1, keepdims=True)
    probabilities = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    loss = np.log(probabilities[0].clip(1e-320)) - np.log(probabilities[1].clip(1e-320))

    def delta_at(epsilon: float) -> float:
        return max(
            float(np.maximum(0.0, -np.expm1(epsilon - sign * loss)) @ p)
            for sign, p in zip((1, -1), probabilities, strict=True)
        )

    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    true = {k: float(values(rows, CURVE, PUBLISHED, k)[0]) for k in (2.9, 5.0, 10.0, 50.0)}
    shares = rows[rows["panel"] == SHARE].groupby("point")["value"]
    share = max((over_seeds(each.to_numpy()) for _, each in shares), key=lambda mean: mean.high)
    proven = float(values(rows, CURVE, PROVEN).max())
    # Without truncation, μ would be (κ − 1)/(2(1 + (κ − 1)/n)) times the claimed μ.
    expected = {
        k: float(gaussian_epsilon(mu_of() * 0.5 * (k - 1.0) / (1.0 + (k - 1.0) / _LEMMA_RECORDS), DELTA)) for k in true
    }
    checks = [
        slope_check(rows, "excess risk against n: 1/(nε)", (RECORDS, SERIES), around(-1.0, -0.5)),
        slope_check(rows, "excess risk against d_x: √d_x", (DIMENSION, SERIES), around(0.5, 0.0, 1.0)),
        Check("excess risk over its bound √2·S·R√d_x/m: largest mean ratio", share, (0.0, 1.0)),
        *(
            Check(
                f"κ = {k:g}, calibrated to ε = 1 by Lemma B.6: true ε",
                exactly(true[k]),
                (0.99 * expected[k], 1.01 * expected[k]),
            )
            for k in true
        ),
        Check("κ = 5, calibrated to ε = 1 by Lemma B.6: true ε above 1", exactly(true[5.0]), (EPSILON, math.inf)),
        Check("calibrated to ε = 1 by the proved sensitivity: largest true ε", exactly(proven), (0.0, EPSILON)),
    ]
    return checks, [
        "Lemma B.6 omits the effect of one record on the minimiser for all other records, and is false for κ > 3."
    ]
