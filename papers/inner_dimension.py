"""Error of the penalty gradient by the lower dimension, for inner errors of equal length and different directions.

The gradient sees the errors of the two minimisers through ∇²_xy g, which has d_x rows. Gaussian noise has the same size
in the few relevant directions for every d_y; only an error placed there in full, which a black-box bound on its
length has to allow for, grows with √d_y.
"""

from __future__ import annotations

import pandas as pd

from papers.findings import Check, Row, around, slope_check
from papers.instance import repeated
from papers.penalty_rate import UPPER, inner_errors, penalty_error

PANEL, GAUSSIAN, WORST = "fixed n, λ and T", "Gaussian inner noise", "the same along the worst direction"
RECORDS, LAMBDA, ROUNDS = 1_000_000, 30.0, 1000


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure every point of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether there are fewer points and repetitions, in seconds.

    Returns:
        A row for each measured number, with the columns `findings.COLUMNS`.
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
    """Hold the claims against what was measured.

    Args:
        rows: table of measured numbers, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the numbers.
    """
    checks = [
        slope_check(rows, "along the worst direction: √d_y", (PANEL, WORST), around(0.5, 0.0)),
        slope_check(rows, "Gaussian: d_y does not matter", (PANEL, GAUSSIAN), around(0.0, 0.5)),
    ]
    return checks, [
        "Theorem 4 is right for a black-box solver; with output perturbation min(d_x, d_y) takes the place of d_y, as "
        "long as ∇_x g is nearly linear in y over the noise."
    ]
