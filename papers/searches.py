"""Searches for neighbouring data sets that violate a sensitivity, over the analytic families.

The searches use the problems' own oracles at public records and start from the worst cases of the proofs. The bounds
are those at the public x of each instance. The negative control compares the minimiser of G + F/λ with constants that
hold only on the ball of the minimisers of G, and are too small for the upper losses of least squares.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from decentral_dp.bounded import SPLITS
from decentral_dp.central.sensitivities import minimiser_sensitivity
from decentral_dp.constants import family_of
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.linear import (
    LogisticHyperparameter,
    Quadratic,
    biased_regularisation,
    logistic_regularisation,
    ridge_hyperparameter,
    ridge_regularisation,
)
from decentral_dp.problems.bilevel.means import MeanEstimation, MeanLowerBound
from decentral_dp.problems.protocol import Problem
from papers.counterexamples import TARGETS, SearchSpace, search
from papers.findings import Check, Row, exactly

RELEASES = ", ".join(f"{at} {target}" for at, target in enumerate(TARGETS))
BOUNDS, CONTROL = "largest change over its bound", "change of the minimiser of G + F/λ over its bound"
RIGHT, WRONG = "constants of its ball", "constants of the ball of G"
_D = 2
_CLASSES = (0.0, 1.0)


def search_spaces() -> dict[str, SearchSpace]:
    """Return one search space for each family."""
    problems: dict[str, tuple[Problem, float, tuple[float, ...]]] = {
        "logistic, one strength per feature": (LogisticHyperparameter(_D, _CLASSES), 1.0, _CLASSES),
        "logistic, one strength": (logistic_regularisation(_D, _CLASSES), 1.0, _CLASSES),
        "least squares, one strength": (ridge_regularisation(_D), 1.0, ()),
        "weighted groups": (HyperCleaning(_D, _CLASSES, 2, ridge=0.3), 1.0, _CLASSES),
        "least squares, one strength per feature": (ridge_hyperparameter(_D), 1.0, ()),
        "least squares, biased": (Quadratic(_D, 0.3), 1.0, ()),
        "logistic, biased": (biased_regularisation(_D, _CLASSES, 0.3), 1.0, _CLASSES),
        "means": (MeanEstimation(_D, 0.5), 1.0, ()),
        "means, linear upper level": (MeanLowerBound(_D), 1.0, ()),
    }
    return {
        name: SearchSpace(
            family_of(problem, 1.0, 1.0), _D, 1.0, -np.full(problem.p, half), np.full(problem.p, half), classes
        )
        for name, (problem, half, classes) in problems.items()
    }


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows, tries = [], 12 if quick else 400
    for name, space in search_spaces().items():
        for at, target in enumerate(TARGETS):
            for split in SPLITS:
                result = search(space, target, split, seed, tries)
                rows.append(Row(f"{split} record: {BOUNDS}", name, RELEASES, at, "change/bound", 0, result.ratio))
    return [*rows, *_controls()]


def _controls() -> list[Row]:
    """Compute the change of the minimiser of G + F/λ over its bound, with correct constants and with those of G.

    All validation records are (√(wλ), 0) with label 1, so y is large along the first axis. (c, −s) replaces the train
    record (c, s) with label −1, and all other train records are 0. Two linear systems give both minimisers.
    """
    rows = []
    n, family = 2000, family_of(ridge_regularisation(2), 1.0, 1.0)
    for lam, weight in ((0.01, 3.0), (0.02, 3.0), (0.01, 10.0), (0.05, 6.0)):
        x, along = np.array([math.log(weight)]), math.sqrt(weight * lam)
        upper, changes = np.array([along, 0.0]), []
        for angle in np.linspace(0.05, 1.5, 60):
            data_sets = []
            for sign in (1.0, -1.0):
                record = np.array([math.cos(angle), sign * math.sin(angle)])
                hessian = weight * np.eye(2) + np.outer(upper, upper) / lam + np.outer(record, record) / n
                data_sets.append(np.linalg.solve(hessian, upper / lam - record / n))
            changes.append(float(np.linalg.norm(data_sets[0] - data_sets[1])))
        for series, record_mass in ((RIGHT, 1.0 + 1.0 / lam), (WRONG, 1.0)):
            bound = minimiser_sensitivity(family.constants(x, x, record_mass), n, n, 0.0, lam)["train"]
            rows.append(Row(CONTROL, series, "penalty λ", lam, "change/bound", 0, max(changes) / bound))
    return rows


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    results = rows[rows["panel"] != CONTROL]
    control = rows[rows["panel"] == CONTROL].groupby("series")["value"].max()
    tightest = results.sort_values("value").iloc[-1]
    largest = exactly(float(results["value"].max()))
    checks = [
        Check("largest change over its bound is at most 1", largest, (0.0, 1.0 + 1e-6)),
        Check("largest change over its bound is close to 1", largest, (0.9, 1.0 + 1e-6)),
        Check(f"G + F/λ with {RIGHT}: change over bound", exactly(float(control[RIGHT])), (0.0, 1.0 + 1e-6)),
        Check(f"G + F/λ with {WRONG}: change over bound", exactly(float(control[WRONG])), (1.0 + 1e-6, math.inf)),
    ]
    return checks, [f"{len(results)} bounds were tested. The tightest bound is that of “{tightest['series']}”."]
