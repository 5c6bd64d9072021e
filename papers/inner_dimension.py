"""Error of the penalty gradient against the lower dimension, for inner errors of equal norm and different directions.

The gradient depends on the errors of the two minimisers through ∇²_xy g, which has d_x rows. In these few directions,
the size of Gaussian noise does not depend on d_y. A black-box bound on the norm of the error has to allow for an error
that lies completely in these directions, which grows with √d_y.
"""

from __future__ import annotations

import pandas as pd

from papers.findings import Check, Row, around, slope_check
from papers.instance import repeated
from papers.penalty_rate import UPPER, inner_errors, penalty_error

PANEL, GAUSSIAN, WORST = "fixed n, λ and T", "Gaussian inner noise", "inner noise along the worst direction"
RECORDS, LAMBDA, ROUNDS = 1_000_000, 30.0, 1000


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows = []
    repeats, dimensions = (6, (10, 100, 1000)) if quick else (20, (10, 32, 100, 320, 1000, 3200, 10_000))
    for repeat, q, rng, instance, x in repeated("e2", seed, repeats, dimensions, UPPER):
        for series in (GAUSSIAN, WORST):
            errors = inner_errors(rng, instance, x, RECORDS, LAMBDA, ROUNDS, 40, series == WORST)
            rmse = penalty_error(instance, x, LAMBDA, *errors)
            rows.append(Row(PANEL, series, "lower dimension d_y", q, "RMSE of the gradient", repeat, rmse))
    return rows


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    checks = [
        slope_check(rows, "worst direction: √d_y", (PANEL, WORST), around(0.5, 0.0)),
        slope_check(rows, "Gaussian noise: independent of d_y", (PANEL, GAUSSIAN), around(0.0, 0.5)),
    ]
    return checks, [
        "Theorem 4 is correct for a black-box solver. With output perturbation, min(d_x, d_y) replaces d_y if ∇_x g is "
        "nearly linear in y at the scale of the noise."
    ]
