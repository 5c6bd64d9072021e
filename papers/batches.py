"""Batches in the upper level: sampling error of a batch, and the noise that its privacy needs.

The published noise on the mean of a batch is the same for every batch size b. Here it is the smallest noise that is
(ε, δ)-private over T rounds on all n records. The noise multiplier of the sum of a batch is then z = 2√T·b/(nμ). If z
is small, an adversary that observes the releases learns whether a record was sampled. The two data sets of the attack
have one record +1 or −1, and all other records are 0. A release is N(±1·[sampled], z²), with a known likelihood ratio.
δ(ε) = E[(1 − e^{ε−L})₊], with L the sum of the log-likelihood ratios, is estimated from whole transcripts.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy.special import expit

from decentral_dp.bounded import Array
from decentral_dp.formatting import epsilon_text
from decentral_dp.privacy.accounting.accountants import epsilon_at
from decentral_dp.privacy.accounting.loss_distributions import Releases
from decentral_dp.simulation.statistics import Interval, over_seeds
from papers.draws import DELTA, EPSILON, generator, mu_of
from papers.findings import Check, Row, around, exactly, slope_check, values

ERROR, SERIES = "error of a batch", "uniform batch"
PRIVACY, SHOWN, THRICE = "empirical δ of the published noise", "published noise", "three times the published noise"
BUDGET, CERTIFIED = "certified ε of the published noise", "Poisson batches"
RECORDS, ROUNDS = 10_000, 100
# nε/√T, the batch size below which the published noise does not hide a record.
ENOUGH = RECORDS * EPSILON / math.sqrt(ROUNDS)
_LARGE_POPULATION = 200_000


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    return [*_errors(seed, quick), *_privacy(seed, quick)]


def _errors(seed: int, quick: bool) -> list[Row]:
    """Measure the RMSE of the mean of clipped penalty terms over a batch, relative to the mean over all records."""
    n, rows = _LARGE_POPULATION // (10 if quick else 1), []
    for repeat in range(8 if quick else 20):
        rng = generator("e7", seed, repeat)
        terms = _terms(rng, n)
        whole = terms.mean(axis=0)
        for b in (10, 32, 100, 320) if quick else (10, 32, 100, 320, 1000, 3200):
            draws = [terms[rng.integers(n, size=b)].mean(axis=0) - whole for _ in range(40 if quick else 100)]
            rmse = float(np.sqrt(np.square(draws).sum(axis=1).mean()))
            rows.append(Row(ERROR, SERIES, "batch b", b, "RMSE of the upper gradient", repeat, rmse))
    return rows


def _terms(rng: np.random.Generator, n: int, lam: float = 10.0, bound: float = 1.0) -> Array:
    """Draw (n, 4) clipped λ(∇_x g_i(y^λ) − ∇_x g_i(y)) of logistic records in four groups with weight σ(x_c), x = 0."""
    d, groups = 5, 4
    a = rng.normal(size=(n, d)) / math.sqrt(d)
    labels = np.where(rng.random(n) < expit(3.0 * a[:, 0]), 1.0, -1.0)
    plain, penalised = np.ones(d), np.ones(d) + rng.normal(size=d) / lam
    losses = [np.logaddexp(0.0, -labels * (a @ y)) for y in (plain, penalised)]
    # The derivative of σ(x_c)·l in x_c at 0 is ¼·l for the records of group c.
    size = 0.25 * lam * (losses[1] - losses[0])
    terms = np.zeros((n, groups))
    terms[np.arange(n), rng.integers(groups, size=n)] = np.clip(size, -bound, bound)
    return terms


def _privacy(seed: int, quick: bool) -> list[Row]:
    """Estimate δ at ε = 1 by an attack, and compute the certified ε at δ = 1e-6, for Poisson batches of mean size b."""
    rows, trials = [], 4_000 if quick else 20_000
    for b in (10, 100, 1000) if quick else (10, 30, 100, 300, 1000, 3000):
        rate, z = b / RECORDS, noise(b)
        for repeat in range(5):
            for name, factor in ((SHOWN, 1.0), (THRICE, 3.0)):
                rng = generator("e7", seed, b, repeat, int(factor))
                empirical = attack(rng, rate, factor * z, trials)
                rows.append(Row(PRIVACY, name, "batch b", b, "δ at ε = 1", repeat, empirical))
        # Replacing a record by its opposite moves the sum by two clips.
        poisson = np.array([[2.0 / z] * ROUNDS, [rate] * ROUNDS])
        certified = epsilon_at(Releases(poisson=poisson), DELTA)
        rows.append(Row(BUDGET, CERTIFIED, "batch b", b, "ε at δ = 1e-6", 0, certified))
    return rows


def noise(b: float) -> float:
    """Return the noise multiplier z of the sum of a batch of b."""
    return 2.0 * math.sqrt(ROUNDS) * b / (RECORDS * mu_of())


def attack(rng: np.random.Generator, rate: float, z: float, trials: int) -> float:
    """Estimate δ at ε = 1 for a record +1 replaced by −1, from transcripts of ROUNDS releases.

    Args:
        rng: random bits.
        rate: sampling rate.
        z: noise multiplier of the sum.
        trials: number of transcripts.

    Returns:
        Estimate of δ.
    """
    sampled = rng.random((trials, ROUNDS)) < rate
    releases = sampled + z * rng.standard_normal((trials, ROUNDS))
    # Logarithm of (1 − q) + q·φ(release ∓ 1)/φ(release) for either data set.
    tilt, least = releases / z**2, math.log(rate) - 0.5 / z**2
    data_sets = [np.logaddexp(math.log1p(-rate), least + sign * tilt) for sign in (1.0, -1.0)]
    loss = (data_sets[0] - data_sets[1]).sum(axis=1)
    return float(np.maximum(0.0, -np.expm1(EPSILON - loss)).mean())


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    certified = {b: float(values(rows, BUDGET, CERTIFIED, b)[0]) for b in (100, 1000)}
    checks = [
        slope_check(rows, "error of a batch of b: b^(−1/2), not 1/b", (ERROR, SERIES), around(-0.5, -1.0)),
        *(
            Check(f"batches of {b}: empirical δ over claimed 1e-6", _ratio_to_delta(rows, SHOWN, b), (1.0, math.inf))
            for b in (10, 100)
        ),
        Check(
            "batches of 10, three times the noise: empirical δ over claimed 1e-6",
            _ratio_to_delta(rows, THRICE, 10),
            (1.0, math.inf),
        ),
        Check(f"batches of nε/√T = {ENOUGH:g}: certified ε", exactly(certified[1000]), (0.9 * EPSILON, 1.1 * EPSILON)),
    ]
    return checks, [
        f"Noise for ε = {EPSILON:g} on all {RECORDS} records has z = {noise(10):.2g}, {noise(100):.2g} and "
        f"{noise(1000):.2g} on batches of 10, 100 and 1000. The theorem allows any batch size, but needs about nε/√T.",
        f"At a tenth of nε/√T the certified ε is {epsilon_text(certified[100])}.",
        "For the full rate in n, the batch size must be the square of that in Remark 12.",
    ]


def _ratio_to_delta(rows: pd.DataFrame, name: str, b: float) -> Interval:
    return over_seeds(values(rows, PRIVACY, name, b) / DELTA)
