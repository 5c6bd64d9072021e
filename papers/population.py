"""Hypergradients of n records compared with the hypergradient of their population.

    F(w) = mean_validation l(θ_w),     θ_w = argmin mean_train l(θ) + (w/2)‖θ‖²,     l the logistic loss,     x = log w

Train and validation records are drawn independently from a large finite population. The population's hypergradient is
a difference of two values of F from an independent solver. The samples' hypergradients are computed by the package.
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

PANEL, SERIES = "distance to the hypergradient of the population", "n train and n validation records"
WEIGHT = 0.03
_D = 5
_FAMILY = family_of(logistic_regularisation(_D, (-1.0, 1.0)), 1.0)


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    features, labels = _population(generator("e9", seed), 100_000 if quick else 1_000_000)
    truth = slope_by_differences(features, labels, features, labels, WEIGHT)
    rows = []
    for repeat in range(16 if quick else 20):
        for n in (300, 1000, 3000) if quick else (300, 1000, 3000, 10_000, 30_000):
            rng = generator("e9", seed, repeat, n)
            errors = []
            for _ in range(20):
                train, validation = (_sample(rng, features, labels, n) for _ in range(2))
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


def _sample(rng: np.random.Generator, features: Array, labels: Array, n: int) -> tuple[Array, Array]:
    index = rng.integers(labels.size, size=n)
    return features[index], labels[index]


def pooled(family: Family, train: tuple[Array, Array], validation: tuple[Array, Array]) -> Pooled:
    """Pool train and validation records for a family.

    Args:
        family: family with the constants.
        train, validation: features (n, d) and labels (n,) of each split.
    """
    prepared = [family.problem.prepare(*records, "l2") for records in (train, validation)]
    return Pooled.from_agents(family, [(prepared[0], prepared[1])])


def slope_by_differences(
    train: Array, train_labels: Array, validation: Array, validation_labels: Array, weight: float
) -> float:
    """Evaluate dF/dlog w by central differences of F, with minimisers from Newton steps.

    Args:
        train: features of the train records, (n, d).
        train_labels: labels −1 or 1 of the train records, (n,).
        validation: features of the validation records, (k, d).
        validation_labels: labels −1 or 1 of the validation records, (k,).
        weight: w.

    Returns:
        dF/dlog w.
    """
    step, losses = 1e-3, []
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
        losses.append(float(np.logaddexp(0.0, -validation_labels * (validation @ theta)).mean()))
    return (losses[0] - losses[1]) / (2.0 * step)


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    check = slope_check(rows, "distance: n^(−1/2), not n^(−1/4)", (PANEL, SERIES), around(-0.5, -0.25))
    return [check], ["The rate n^(−1/4) is an artefact of the proof, and not the sampling error."]
