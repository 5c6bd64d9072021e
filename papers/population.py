"""Hypergradients of n records against those of the population that they are drawn from.

    F(w) = mean_validation l(θ_w),     θ_w = argmin mean_train l(θ) + (w/2)‖θ‖²,     l the logistic loss,     x = log w

The population is a large finite one, from which train and validation records are drawn independently. Its slope is the
difference of two values of F, computed here with another solver; the samples' slopes are the package's.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy.special import expit

from decentral_dp.bounded import Array
from decentral_dp.central.pooled import Pooled
from decentral_dp.constants import Family, family_of
from decentral_dp.problems.bilevel.linear import logistic_regularisation
from papers.draws import generator
from papers.findings import Check, Row, around, slope_check

PANEL, SERIES = "distance to the population's slope", "n train and n validation records"
WEIGHT = 0.03
_D = 5
_FAMILY = family_of(logistic_regularisation(_D, (-1.0, 1.0)), 1.0)


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure every point of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether there are fewer points and repetitions, in seconds.

    Returns:
        A row for each measured number, with the columns `findings.COLUMNS`.
    """
    features, labels = _population(generator("e9", seed), 100_000 if quick else 1_000_000)
    truth = slope_by_differences(features, labels, features, labels, WEIGHT)
    rows = []
    for repeat in range(16 if quick else 20):
        for n in (300, 1000, 3000) if quick else (300, 1000, 3000, 10_000, 30_000):
            rng = generator("e9", seed, repeat, n)
            errors = []
            for _ in range(20):
                train, validation = (_drawn(rng, features, labels, n) for _ in range(2))
                slope = pooled(_FAMILY, train, validation).gradient(np.array([math.log(WEIGHT)]))
                errors.append(float(slope[0]) - truth)
            rmse = math.sqrt(float(np.mean(np.square(errors))))
            rows.append(Row(PANEL, SERIES, "records n", n, "RMSE of dF/dlog w", repeat, rmse))
    return rows


def _population(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    features = rng.normal(size=(n, _D))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
    labels = np.where(rng.random(n) < expit(features @ np.linspace(3.0, -1.0, _D)), 1.0, -1.0)
    return features, labels


def _drawn(rng: np.random.Generator, features: Array, labels: Array, n: int) -> tuple[Array, Array]:
    chosen = rng.integers(labels.size, size=n)
    return features[chosen], labels[chosen]


def pooled(family: Family, train: tuple[Array, Array], validation: tuple[Array, Array]) -> Pooled:
    """Pool the records of two roles within the family's bounds.

    Args:
        family: family that has the constants.
        train, validation: (features (n, d), labels (n,)) each.
    """
    prepared = [family.problem.prepare(*role, "l2") for role in (train, validation)]
    return Pooled.from_agents(family, [(prepared[0], prepared[1])])


def slope_by_differences(
    train: Array, train_labels: Array, validation: Array, validation_labels: Array, weight: float
) -> float:
    """Evaluate dF/dlog w by central differences of F, whose minimisers come from plain Newton steps.

    Args:
        train: (n, d) features.
        train_labels: (n,) −1 or 1.
        validation: (k, d) features.
        validation_labels: (k,) −1 or 1.
        weight: w.

    Returns:
        The slope.
    """
    step, found = 1e-3, []
    theta = np.zeros(train.shape[1])
    for w in (weight * math.exp(step), weight * math.exp(-step)):
        for _ in range(60):
            margin = train_labels * (train @ theta)
            wrong = expit(-margin)
            gradient = w * theta - (train_labels * wrong) @ train / margin.size
            if float(np.linalg.norm(gradient)) < 1e-13:
                break
            curvature = (train * (wrong * (1.0 - wrong))[:, None]).T @ train / margin.size
            theta = theta - np.linalg.solve(curvature + w * np.eye(theta.size), gradient)
        found.append(float(np.logaddexp(0.0, -validation_labels * (validation @ theta)).mean()))
    return (found[0] - found[1]) / (2.0 * step)


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Hold the claims against what was measured.

    Args:
        rows: table of measured numbers, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the numbers.
    """
    check = slope_check(rows, "the distance falls like n^(−1/2), not n^(−1/4)", (PANEL, SERIES), around(-0.5, -0.25))
    return [check], ["So n^(−1/4) is what the proof of the theorem loses, not what samples cost."]
