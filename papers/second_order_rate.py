"""The private hypergradient at a non-private minimiser (Algorithm 1), and at a private one, with tuned rounds.

In Algorithm 1, the query has l2 sensitivity S, so each of T rounds has noise of scale S√T/m. With T = m√(8bΔ)/(S√d_x),
the error of the gradient is of order (√d_x/(nε))^{1/2} for every d_y. The alternative evaluates the implicit gradient
at a released minimiser. It needs no third derivatives, and gives half of the budget to each release.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from decentral_dp.bounded import Array
from decentral_dp.central.sensitivities import (
    Clips,
    hypergradient_sensitivity,
    implicit_sensitivity,
    minimiser_sensitivity,
    smoothness,
)
from papers.draws import mu_of, noised
from papers.findings import Check, Row, around, slope_check
from papers.instance import Instance, repeated

SECOND_ORDER, IMPLICIT, BY_DIMENSION = "Algorithm 1", "implicit gradient at a private point", "Algorithm 1, n = 10⁶"
UPPER, LOWER = 4, (10, 100, 1000)
_RECORDS = (10_000, 100_000, 1_000_000, 10_000_000)
_DRAWS = 40
_MEASURE = "RMSE of the gradient"


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows = []
    repeats, dimensions = (6, LOWER[:2]) if quick else (20, LOWER)
    for repeat, q, rng, instance, x in repeated("e3", seed, repeats, dimensions, UPPER):
        truth = instance.hypergradient(x)
        for n in _RECORDS:
            gradients = {SECOND_ORDER: second_order(rng, instance, x, n), IMPLICIT: implicit(rng, instance, x, n)}
            for panel, estimates in gradients.items():
                rmse = math.sqrt(float(np.square(estimates - truth).sum(axis=1).mean()))
                rows.append(Row(panel, f"d_y = {q}", "records n", n, _MEASURE, repeat, rmse))
                if panel == SECOND_ORDER and n == 1_000_000:
                    rows.append(Row(BY_DIMENSION, SECOND_ORDER, "lower dimension d_y", q, _MEASURE, repeat, rmse))
    return rows


def rounds(instance: Instance, x: Array, n: int) -> int:
    """Compute T for Δ = 1.

    Args:
        instance: problem instance.
        x: upper point (p,).
        n: number of train records.
    """
    c = instance.constants(x)
    sensitivity = max(hypergradient_sensitivity(c, n, n).values())
    return math.ceil(mu_of() * math.sqrt(8.0 * smoothness(c)) / (sensitivity * math.sqrt(UPPER)))


def second_order(rng: np.random.Generator, instance: Instance, x: Array, n: int) -> Array:
    """Draw private gradients of one of T rounds, at the exact minimiser.

    Args:
        rng: random bits.
        instance: problem instance.
        x: upper point (p,).
        n: number of train records, and of validation records.

    Returns:
        Gradients (draws, p).
    """
    sensitivity = max(hypergradient_sensitivity(instance.constants(x), n, n).values())
    each = mu_of() / math.sqrt(rounds(instance, x, n))
    query = instance.implicit(instance.minimiser(x))
    return noised(rng, np.tile(query, (_DRAWS, 1)), sensitivity / each)


def implicit(rng: np.random.Generator, instance: Instance, x: Array, n: int) -> Array:
    """Draw private gradients of one of T rounds, each at a private minimiser.

    Args:
        rng, instance, x, n: see `second_order`.
    """
    c = instance.constants(x)
    each = mu_of() / math.sqrt(2.0 * rounds(instance, x, n))
    sensitivity = max(minimiser_sensitivity(c, n, n, 0.0).values())
    y = noised(rng, np.tile(instance.minimiser(x), (_DRAWS, 1)), sensitivity / each)
    # ∇_y f at released points is clipped at its bound at the minimiser. Released points are close to the minimiser.
    clips = Clips(0.0, c.l_fy, 0.0, c.b_fyy)
    query_sensitivity = max(implicit_sensitivity(clips, c.mu, c.b_gxy, n, n).values())
    return noised(rng, instance.implicit(y), query_sensitivity / each)


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    names = [s for s in dict.fromkeys(rows["series"]) if s.startswith("d_y")]
    checks = [
        slope_check(rows, f"{panel}, {series}: n^(−1/2)", (panel, series), around(-0.5, -1.0 / 3.0))
        for panel in (SECOND_ORDER, IMPLICIT)
        for series in names
    ]
    checks.append(slope_check(rows, "Algorithm 1: independent of d_y", (BY_DIMENSION, SECOND_ORDER), around(0.0, 0.25)))
    return checks, []
