"""Rates of private minimax algorithms on a hard problem with x and y of equal dimension.

With s = √d/(nμ) for μ-Gaussian differential privacy of a run, and with rounds and periods from the theory:

    DP-SGDA           error ~ s^(1/2)     R ~ 1/s rounds
    PrivateDiff       error ~ s^(1/2)     R ~ 1/s, with a noisy y released in every round. The rate s^(2/3) of Theorem
                                          6 is for a y without noise, which is not private
    PrivateDiff-XY    error ~ s^(2/3)     R ~ s^(−4/3), period T ~ s^(−2/3), with estimates of both gradients

The error is the mean of ‖∇Φ(x)‖ over iterates. The constants of learning rates, rounds and periods were tuned by hand
at these s with other seeds. The exponents do not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pandas as pd

from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.central.minimax.dp_sgda import DpSgda
from decentral_dp.central.minimax.privatediff import PrivateDiff, PrivateDiffXY
from decentral_dp.central.vocabulary import Coordinated
from decentral_dp.simulation.statistics import Interval, over_seeds
from papers.draws import generator
from papers.findings import Check, Row, around, slope_check, values
from papers.saddle import HardSaddle, walk

PANEL, WIDE = "d = 16", "d = 64"
SGDA, DIFFERENCES, BOTH = "DP-SGDA", "PrivateDiff, y released", "PrivateDiff-XY"
_NOISE = (0.004, 0.0013, 0.0004)
_NARROW, _WIDE = 16, 64
_MU = 1.0


def _sgda(s: float) -> tuple[Coordinated, int]:
    return DpSgda(StepSize(0.25), StepSize(0.25)), round(1.0 / s)


def _differences(s: float) -> tuple[Coordinated, int]:
    program = PrivateDiff(StepSize(0.125), 2, y=StepSize(0.25), inner=1, smoothness=1.0)
    return program, round(2.0 / s)


def _both(s: float) -> tuple[Coordinated, int]:
    program = PrivateDiffXY(StepSize(0.125), StepSize(0.25), round(2.0 * s ** (-2.0 / 3.0)), smoothness=1.0)
    return program, round(0.5 * s ** (-4.0 / 3.0))


PROGRAMS: Mapping[str, Callable[[float], tuple[Coordinated, int]]] = {
    SGDA: _sgda,
    DIFFERENCES: _differences,
    BOTH: _both,
}


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows = []
    for repeat in range(4 if quick else 8):
        for k, s in enumerate(_NOISE[:2] if quick else _NOISE):
            for name, made in PROGRAMS.items():
                rows.append(_row(PANEL, name, seed, repeat, k, s, _NARROW, made))
        # Only one algorithm has a claim about the dimension.
        for name, made in ((n, m) for n, m in PROGRAMS.items() if n == BOTH or not quick):
            rows.append(_row(WIDE, name, seed, repeat, 1, _NOISE[1], _WIDE, made))
    return rows


def _row(
    panel: str,
    name: str,
    seed: int,
    repeat: int,
    place: int,
    s: float,
    d: int,
    made: Callable[[float], tuple[Coordinated, int]],
) -> Row:
    program, rounds = made(s)
    rng = generator("e18", seed, repeat, place, d, list(PROGRAMS).index(name))
    error = walk(program, HardSaddle(d), math.sqrt(d) / (s * _MU), _MU, rounds, rng)
    return Row(panel, name, "s = √d/(nμ)", s, "mean ‖∇Φ‖ over iterates", repeat, error)


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    half, two_thirds = around(0.5, 2.0 / 3.0), around(2.0 / 3.0, 0.5)
    least = float(rows["point"].min())
    checks = [
        slope_check(rows, f"{SGDA}: s^(1/2)", (PANEL, SGDA), half),
        slope_check(rows, f"{DIFFERENCES}: s^(1/2), not the published s^(2/3)", (PANEL, DIFFERENCES), half),
        slope_check(rows, f"{BOTH}: s^(2/3)", (PANEL, BOTH), two_thirds),
        Check(f"error of {BOTH} over that of {SGDA} at s = {least:g}", _ratio(rows, BOTH, SGDA, least), (0.0, 1.0)),
        Check("error at d = 64 over that at d = 16 at equal s", _width_ratio(rows, BOTH), (0.8, 1.2)),
    ]
    return checks, [
        "Estimates of both gradients attain the exponent 2/3 although all variables are released. They improve on "
        "DP-SGDA if s is a few thousandths or less. Networks on tens of thousands of records have a larger s."
    ]


def _ratio(rows: pd.DataFrame, first: str, second: str, at: float) -> Interval:
    return over_seeds(values(rows, PANEL, first, at) / values(rows, PANEL, second, at))


def _width_ratio(rows: pd.DataFrame, name: str) -> Interval:
    wide = values(rows, WIDE, name, _NOISE[1])
    return over_seeds(wide / values(rows, PANEL, name, _NOISE[1]))
