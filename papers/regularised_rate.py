"""The regularised exponential mechanism on least squares with a pull, and Lemma B.6 on its privacy.

Rate: Φ is a convex quadratic, so the law ∝ e^{−k(Φ + (μ_r/2)|x|²)} on a box is a truncated Gaussian, drawn exactly.
With k = μ_r m²/S² and μ_r = √(2d)S/(mR) the expected excess is at most √2·S·R√d/m, S the sensitivity of ∇Φ.

Privacy: with f = y and g = a y²/2 − x y, a ∈ [1, κ], n − 1 records of a = 1 and one of 1 or of κ, Φ(x) = x/ā. Lemma B.6
bounds the slope of Φ_Z − Φ_Z' by 2/n for every κ. Here the two laws on X = [−1, 1] are integrated numerically, and the
true ε at δ = 1e-6 is read off: no formula of either side enters.
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
from decentral_dp.simulation.statistics import exactly, over_seeds
from papers.draws import DELTA, EPSILON, generator, mu_of, rate_for
from papers.findings import Check, Row, around, slope_check, values
from papers.published.bilevel import published_lipschitz

RECORDS, DIMENSION, SHARE = "excess against n", "excess against d_x", "excess over √2·S·R√d_x/m"
CURVE, PRINTED, PROVEN = "true ε at δ = 1e-6, calibrated to ε = 1", "by Lemma B.6", "by the proven sensitivity"
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
            found = excess(generator("e5", seed, repeat, n), 4, n, 40 if quick else 150)
            rows.append(Row(RECORDS, SERIES, "n·ε", n * EPSILON, "excess of Φ", repeat, found))
            rows.append(Row(SHARE, SERIES, "n·ε", n * EPSILON, "share", repeat, found / bound(4, n)))
        for d in (2, 16) if quick else (2, 4, 8, 16):
            found = excess(generator("e5", seed, repeat, d), d, 10**8, (240 + 15 * d) // d if quick else 150)
            rows.append(Row(DIMENSION, SERIES, "upper dimension d_x", d, "excess of Φ", repeat, found))
    return rows


def _sensitivity(d: int, n: int) -> float:
    """S on the box of half width R/√d around 0."""
    half = RADIUS / math.sqrt(d)
    constants = family_of(Quadratic(d, RIDGE), 1.0, 1.0).constants(np.full(d, -half), np.full(d, half))
    return max(hypergradient_sensitivity(constants, n, n).values())


def bound(d: int, n: int) -> float:
    """The excess risk that theory allows at the right sensitivity.

    Args:
        d: coordinates of x.
        n: records.
    """
    return math.sqrt(2.0) * _sensitivity(d, n) * RADIUS * math.sqrt(d) / mu_of()


def excess(rng: np.random.Generator, d: int, n: int, draws: int) -> float:
    """Measure the mean excess of Φ over draws, for records along the axes in equal shares.

    Args:
        rng: random bits.
        d: upper dimension, which is the lower one too.
        n: train records, and as many validation records.
        draws: how many.

    Returns:
        The mean excess.
    """
    half, sensitivity = RADIUS / math.sqrt(d), _sensitivity(d, n)
    strength = math.sqrt(2.0 * d) * sensitivity / (mu_of() * RADIUS)
    shares = np.full(d, 1.0 / d)
    # ∇Φ(x) = M(s·y(x) − s·b̄), y(x) = (s·b + x)/(s + μ), M = μ/(s + μ): its zero lies within the box.
    through = RIDGE / (shares + RIDGE)
    best = 0.5 * half * rng.uniform(-1.0, 1.0, d)
    hessian = np.diag(shares * through**2)
    declared = RegularisedLaw(
        Box(np.full(d, -half), np.full(d, half)), rate_for(mu_of(), sensitivity, strength), strength, np.zeros(d),
        sensitivity, 2.0,
        inexact=1e-14,
    )  # fmt: skip
    linear = hessian @ best
    found = [quadratic(rng, declared, hessian, linear) - best for _ in range(draws)]
    return float(np.mean([0.5 * away @ hessian @ away for away in found]))


def _privacy(quick: bool) -> list[Row]:
    rows, n, strength = [], _LEMMA_RECORDS, 5.0
    for kappa in (2.9, 5.0, 10.0, 50.0) if quick else (1.5, 2.0, 2.9, 3.5, 5.0, 10.0, 20.0, 50.0):
        slopes = np.array([1.0, n / (n - 1.0 + kappa)])
        for series, sensitivity in ((PRINTED, published_lipschitz(_constants(1.0), n)), (PROVEN, _proven(kappa, n))):
            rate = rate_for(mu_of(), sensitivity, strength)
            found = true_epsilon(slopes, rate, strength, DELTA)
            rows.append(Row(CURVE, series, "condition number κ", kappa, "ε", 0, found))
    return rows


def _constants(kappa: float) -> ProblemConstants:
    """For f = y, g = a y²/2 − x y with a ∈ [1, κ], |x| ≤ 1: |y| ≤ 1, and one record changes the curvature by κ − 1."""
    return ProblemConstants(
        radius=1.0, mu=1.0, l_fx=0.0, l_fy=1.0, l_gy=1.0 + kappa, d_fx=0.0, d_fy=0.0, d_gy=kappa - 1.0, b_fxx=0.0,
        b_fxy=0.0, b_fyy=0.0, b_gxy=1.0, b_gyy=kappa, d_hxy=0.0, d_hyy=kappa - 1.0, c_gxy=0.0, c_gyy=0.0, m_gxy=0.0,
        m_gyy=0.0, m=1.0,
    )  # fmt: skip


def _proven(kappa: float, n: int) -> float:
    return max(hypergradient_sensitivity(_constants(kappa), n, n).values())


def true_epsilon(slopes: Array, rate: float, strength: float, delta: float) -> float:
    """Evaluate ε(δ) of the two laws ∝ e^{−k(c x + (μ_r/2)x²)} on [−1, 1] by summation on a fine grid.

    Args:
        slopes: (2,) c of either law.
        rate: k.
        strength: μ_r.
        delta: δ.

    Returns:
        ε, by bisection from 0 to 1000.
    """
    x = np.linspace(-1.0, 1.0, _POINTS)
    logs = -rate * (slopes[:, None] * x + 0.5 * strength * x**2)
    logs -= logs.max(axis=1, keepdims=True)
    laws = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    loss = np.log(laws[0].clip(1e-320)) - np.log(laws[1].clip(1e-320))

    def spent(epsilon: float) -> float:
        return max(
            float(np.maximum(0.0, -np.expm1(epsilon - sign * loss)) @ law)
            for sign, law in zip((1, -1), laws, strict=True)
        )

    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return high


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    true = {k: float(values(rows, CURVE, PRINTED, k)[0]) for k in (2.9, 5.0, 10.0, 50.0)}
    shares = rows[rows["panel"] == SHARE].groupby("at")["value"]
    share = max((over_seeds(each.to_numpy()) for _, each in shares), key=lambda mean: mean.high)
    proven = float(values(rows, CURVE, PROVEN).max())
    # Without the ends of X the laws are a Gaussian pair, (κ − 1)/(2(1 + (κ − 1)/n)) times as far apart as claimed.
    wanted = {
        k: float(gaussian_epsilon(mu_of() * 0.5 * (k - 1.0) / (1.0 + (k - 1.0) / _LEMMA_RECORDS), DELTA)) for k in true
    }
    checks = [
        slope_check(rows, "excess falls like 1/(nε)", (RECORDS, SERIES), around(-1.0, -0.5)),
        slope_check(rows, "excess grows like √d_x", (DIMENSION, SERIES), around(0.5, 0.0, 1.0)),
        Check("excess is at most √2·S·R√d_x/m (largest mean share)", share, (0.0, 1.0)),
        *(
            Check(f"κ = {k:g}, calibrated by Lemma B.6 to 1: ε", exactly(true[k]), (0.99 * wanted[k], 1.01 * wanted[k]))
            for k in true
        ),
        Check("κ = 5, calibrated by Lemma B.6 to 1: more than that", exactly(true[5.0]), (EPSILON, math.inf)),
        Check("calibrated by the proven sensitivity, largest ε", exactly(proven), (0.0, EPSILON)),
    ]
    return checks, ["Lemma B.6 leaves out how one record moves the minimiser under all others: it fails from κ = 3 on."]
