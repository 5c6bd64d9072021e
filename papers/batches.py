"""Batches of the upper level: how far a batch is from all records, and how much noise its privacy takes.

The printed noise on the mean of a batch is the same for every batch size b. Here it is the least that is (ε, δ)-private
over T rounds where every batch is all n records. On the sum of a batch that is z = 2√T·b/(nμ) clips: if z is small,
an adversary that sees the releases learns whether a record was drawn. The two data sets of the attack have one record
of +1 or of −1, all others 0. A release is N(±1·[drawn], z²), and its likelihood ratio is known. Then
δ(ε) = E[(1 − e^{ε−L})₊] over the sum L of the logarithms is estimated from whole transcripts.
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
from decentral_dp.simulation.statistics import Interval, exactly, over_seeds
from papers.draws import DELTA, EPSILON, generator, mu_of
from papers.findings import Check, Row, around, slope_check, values

ERROR, SERIES = "error of a batch", "uniform batch"
PRIVACY, SHOWN, THRICE = "what an attack shows of the printed noise", "printed noise", "thrice as much"
BUDGET, CERTIFIED = "what is certified of it", "Poisson batches"
RECORDS, ROUNDS = 10_000, 100
# nε/√T: below it the printed noise does not hide a record.
ENOUGH = RECORDS * EPSILON / math.sqrt(ROUNDS)
_LARGE_POPULATION = 200_000


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure every point of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether there are fewer points and repetitions, in seconds.

    Returns:
        A row for each measured number, with the columns `findings.COLUMNS`.
    """
    return [*_errors(seed, quick), *_privacy(seed, quick)]


def _errors(seed: int, quick: bool) -> list[Row]:
    """RMSE of the mean of clipped penalty terms over a batch, against that over all records."""
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
    """(n, 4) clipped λ(∇_x g_i(y^λ) − ∇_x g_i(y)): logistic records in four groups, weighted by σ(x_c) at x = 0."""
    d, groups = 5, 4
    a = rng.normal(size=(n, d)) / math.sqrt(d)
    labels = np.where(rng.random(n) < expit(3.0 * a[:, 0]), 1.0, -1.0)
    plain, penalised = np.ones(d), np.ones(d) + rng.normal(size=d) / lam
    losses = [np.logaddexp(0.0, -labels * (a @ y)) for y in (plain, penalised)]
    # ∂/∂x_c of σ(x_c)·l: ¼·l at x_c = 0, for the records of group c.
    size = 0.25 * lam * (losses[1] - losses[0])
    terms = np.zeros((n, groups))
    terms[np.arange(n), rng.integers(groups, size=n)] = np.clip(size, -bound, bound)
    return terms


def _privacy(seed: int, quick: bool) -> list[Row]:
    """δ that an attack shows at ε = 1, and ε that is certified at δ = 1e-6; Poisson batches of b on average."""
    rows, trials = [], 4_000 if quick else 20_000
    for b in (10, 100, 1000) if quick else (10, 30, 100, 300, 1000, 3000):
        rate, z = b / RECORDS, noise(b)
        for repeat in range(5):
            for name, factor in ((SHOWN, 1.0), (THRICE, 3.0)):
                rng = generator("e7", seed, b, repeat, int(factor))
                shown = attack(rng, rate, factor * z, trials)
                rows.append(Row(PRIVACY, name, "batch b", b, "δ at ε = 1", repeat, shown))
        # A record replaced by one opposite to it: two clips over the noise.
        poisson = np.array([[2.0 / z] * ROUNDS, [rate] * ROUNDS])
        certified = epsilon_at(Releases(poisson=poisson), DELTA)
        rows.append(Row(BUDGET, CERTIFIED, "batch b", b, "ε at δ = 1e-6", 0, certified))
    return rows


def noise(b: float) -> float:
    """z of the sum of a batch of b, in clips."""
    return 2.0 * math.sqrt(ROUNDS) * b / (RECORDS * mu_of())


def attack(rng: np.random.Generator, rate: float, z: float, trials: int) -> float:
    """Estimate δ at ε = 1 of one record of +1 against one of −1, over transcripts of ROUNDS releases.

    Args:
        rng: random bits.
        rate: sampling rate.
        z: standard deviation of the noise on the sum, in clips.
        trials: how many transcripts.

    Returns:
        The estimate of δ.
    """
    drawn = rng.random((trials, ROUNDS)) < rate
    seen = drawn + z * rng.standard_normal((trials, ROUNDS))
    # log of (1 − q) + q·φ(seen ∓ 1)/φ(seen), for either data set.
    tilt, least = seen / z**2, math.log(rate) - 0.5 / z**2
    data_sets = [np.logaddexp(math.log1p(-rate), least + sign * tilt) for sign in (1.0, -1.0)]
    loss = (data_sets[0] - data_sets[1]).sum(axis=1)
    return float(np.maximum(0.0, -np.expm1(EPSILON - loss)).mean())


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Hold the claims against what was measured.

    Args:
        rows: table of measured numbers, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the numbers.
    """
    certified = {b: float(values(rows, BUDGET, CERTIFIED, b)[0]) for b in (100, 1000)}
    checks = [
        slope_check(rows, "a batch of b errs like b^(−1/2), not 1/b", (ERROR, SERIES), around(-0.5, -1.0)),
        *(
            Check(f"δ shown with batches of {b}, over the claimed 1e-6", shown, (1.0, math.inf))
            for b in (10, 100)
            for shown in [_over_delta(rows, SHOWN, b)]
        ),
        Check(
            "δ shown with batches of 10 and thrice the noise, over it", _over_delta(rows, THRICE, 10), (1.0, math.inf)
        ),
        Check(f"ε certified at b = nε/√T = {ENOUGH:g}", exactly(certified[1000]), (0.9 * EPSILON, 1.1 * EPSILON)),
    ]
    return checks, [
        f"Noise that is right for all {RECORDS} records is z = {noise(10):.2g}, {noise(100):.2g} and {noise(1000):.2g} "
        "clips on batches of 10, 100 and 1000; the theorem needs batches of about nε/√T, though it allows any.",
        f"At a tenth of nε/√T the certified ε is {epsilon_text(certified[100])}.",
        "For the full rate in n, batches must grow with the square of Remark 12's size.",
    ]


def _over_delta(rows: pd.DataFrame, name: str, b: float) -> Interval:
    return over_seeds(values(rows, PRIVACY, name, b) / DELTA)
