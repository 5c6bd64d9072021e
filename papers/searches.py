"""Searches for neighbours that move a release by more than its sensitivity, over the analytic families.

Everything is computed from the problems' own oracles at public records, by an adversary who starts from the worst cases
of the proofs; bounds are those at the public x of each try. Negative control: the minimiser of G + F/λ, held against
constants that hold on the ball of the minimisers of G only, where the upper losses of least squares are not that flat.
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
from decentral_dp.simulation.statistics import exactly
from papers.counterexamples import TARGETS, SearchSpace, search
from papers.findings import Check, Row

RELEASES = ", ".join(f"{at} {target}" for at, target in enumerate(TARGETS))
BOUNDS, CONTROL = "worst found, over its bound", "the minimiser of G + F/λ"
RIGHT, WRONG = "constants of the ball", "constants of the ball of G"
_D = 2
_CLASSES = (0.0, 1.0)


def arenas() -> dict[str, SearchSpace]:
    """One public setting for each family."""
    made: dict[str, tuple[Problem, float, tuple[float, ...]]] = {
        "logistic, a strength per feature": (LogisticHyperparameter(_D, _CLASSES), 1.0, _CLASSES),
        "logistic, one strength": (logistic_regularisation(_D, _CLASSES), 1.0, _CLASSES),
        "least squares, one strength": (ridge_regularisation(_D), 1.0, ()),
        "weighed groups": (HyperCleaning(_D, _CLASSES, 2, ridge=0.3), 1.0, _CLASSES),
        "least squares, a strength per feature": (ridge_hyperparameter(_D), 1.0, ()),
        "least squares, pulled": (Quadratic(_D, 0.3), 1.0, ()),
        "logistic, pulled": (biased_regularisation(_D, _CLASSES, 0.3), 1.0, _CLASSES),
        "means": (MeanEstimation(_D, 0.5), 1.0, ()),
        "means, linear upper level": (MeanLowerBound(_D), 1.0, ()),
    }
    return {
        name: SearchSpace(
            family_of(problem, 1.0, 1.0), _D, 1.0, -np.full(problem.p, half), np.full(problem.p, half), classes
        )
        for name, (problem, half, classes) in made.items()
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
    for name, space in arenas().items():
        for at, target in enumerate(TARGETS):
            for split in SPLITS:
                found = search(space, target, split, seed, tries)
                rows.append(Row(f"{split} record: {BOUNDS}", name, RELEASES, at, "found/bound", 0, found.ratio))
    return [*rows, *_controls()]


def _controls() -> list[Row]:
    """How far one train record moves the minimiser of G + F/λ, over the bound at mass 1 + 1/λ and, wrongly, at mass 1.

    All validation records are (√(wλ), 0) with the label 1, which takes y far along the first axis; the train record
    (c, s) with the label −1 becomes (c, −s), all other train records are 0. Two linear systems give the rest.
    """
    rows = []
    n, family = 2000, family_of(ridge_regularisation(2), 1.0, 1.0)
    for lam, weight in ((0.01, 3.0), (0.02, 3.0), (0.01, 10.0), (0.05, 6.0)):
        x, along = np.array([math.log(weight)]), math.sqrt(weight * lam)
        upper, reached = np.array([along, 0.0]), []
        for angle in np.linspace(0.05, 1.5, 60):
            data_sets = []
            for sign in (1.0, -1.0):
                record = np.array([math.cos(angle), sign * math.sin(angle)])
                hessian = weight * np.eye(2) + np.outer(upper, upper) / lam + np.outer(record, record) / n
                data_sets.append(np.linalg.solve(hessian, upper / lam - record / n))
            reached.append(float(np.linalg.norm(data_sets[0] - data_sets[1])))
        for series, record_mass in ((RIGHT, 1.0 + 1.0 / lam), (WRONG, 1.0)):
            bound = minimiser_sensitivity(family.constants(x, x, record_mass), n, n, 0.0, lam)["train"]
            rows.append(Row(CONTROL, series, "penalty λ", lam, "found/bound", 0, max(reached) / bound))
    return rows


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    found = rows[rows["panel"] != CONTROL]
    control = rows[rows["panel"] == CONTROL].groupby("series")["value"].max()
    top = found.sort_values("value").iloc[-1]
    checks = [
        Check(
            "no neighbours exceed a bound (worst of all families)",
            exactly(float(found["value"].max())),
            (0.0, 1.0 + 1e-6),
        ),
        Check("and some come close", exactly(float(found["value"].max())), (0.9, 1.0 + 1e-6)),
        Check("G + F/λ on its own ball", exactly(float(control[RIGHT])), (0.0, 1.0 + 1e-6)),
        Check(
            "G + F/λ with constants of the ball of G: refuted", exactly(float(control[WRONG])), (1.0 + 1e-6, math.inf)
        ),
    ]
    return checks, [f"{len(found)} bounds were searched; the closest is that of “{top['series']}”."]
