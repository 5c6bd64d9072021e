"""Privacy cost of the published noise of two SPIDER methods, with every unspecified constant as 1.

Xu et al. 2025 calibrate Algorithm 2 (Theorems 1 and 6) and Algorithm 3 (Theorem 8) for experiments on n = 25 500 images
with δ = n^(−1.1). R rounds, anchors every q rounds, batches of N. Over the clip, the noise on means in Algorithm 2 is

    y: anchors √(R log(1/δ))/(n√(qε)), differences √log(1/δ)/(Nε)
    x: √log(1/δ)/ε · max{1/N, √R/(n√q)} by Theorem 6; at anchors the same as of y by Theorem 1

It is accounted here as if each record had been clipped, for Poisson samples of rate N/n, with independent samples of
all estimates. √(qε) is printed instead of √q·ε, and the R − R/q differences have the noise of R/q differences, or of no
composition. Arora et al. 2023 have max{1/N, √R/n} there, which is private for some constant.

In fact the mean of a batch is clipped, when it has been taken. Algorithm 3 has √(R log(1/δ))/(nqε) at anchors, on
all records, and noise of √(R log(1/δ))/(nε) on the h of one record, whose part in s is β.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from decentral_dp.privacy.accounting.accountants import epsilon_at, gaussian_epsilon, smallest_factor
from decentral_dp.privacy.accounting.loss_distributions import Releases
from decentral_dp.privacy.clipping import clip_factors
from decentral_dp.simulation.statistics import exactly, over_seeds
from papers.draws import generator
from papers.findings import Check, Row, values

COST = "ε that the noise of Double-SPIDER costs, had it clipped each record"
SIX, ONE = "Theorem 6, N = 128", "Theorem 1, N = 128"
CHANGES, ENOUGH = "σ_2 alone, N = 1024", "max{1/N, √R/n}, N = 1024"
CONSTANT, NEEDED = "the constant that the claim would need", SIX
CUT, MEANS = "one record and the mean of a batch that is clipped", "an anchor of y"
ANCHORS, PRINTED, ROOT = "ε that anchors of Recursive-SPIDER cost, claimed 1", "q in the noise", "√q in the noise"
S, GAP, SHOWN = "one record in s of Recursive-SPIDER", "deviations it moves s by", "δ shown at ε = 1"

RECORDS, ROUNDS = 25_500, 6000
# Claimed ε → rounds from one anchor to the next, (nε/√(d log 1/δ))^(2/3) for the 270 000 weights of a ResNet-20.
CLAIMED = {0.5: 4, 1.0: 6, 5.0: 18, 10.0: 28}
# Fashion-MNIST in 80 epochs of batches of 2048.
S_RECORDS, S_ROUNDS = 60_000, 2344
# μ and rate of a release, and how many of them.
Line = tuple[float, float, int]


def delta_of(records: int) -> float:
    """δ = n^(−1.1).

    Args:
        records: n.
    """
    return math.exp(-1.1 * math.log(records))


def root_log(records: int) -> float:
    """√log(1/δ).

    Args:
        records: n of δ.
    """
    return math.sqrt(math.log(1.0 / delta_of(records)))


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows = []
    for claimed, period in CLAIMED.items():
        for series, lines in double_spider(claimed, period).items():
            rows.append(Row(COST, series, "claimed ε", claimed, "ε at δ = n^(−1.1)", 0, cost(lines)))
        needed = smallest_factor(partial(cost, double_spider(claimed, period)[SIX]), claimed, None)
        rows.append(Row(CONSTANT, NEEDED, "claimed ε", claimed, "smallest constant", 0, needed))
    for records in (1000, RECORDS, 60_000):
        far = separation(records, 128, rounds=100, period=6, epsilon=1.0)
        rows.append(Row(CUT, MEANS, "records n", records, "deviations it moves a release by", 0, far))
    for period in (1, 5, 20, 100):
        for series, power in ((PRINTED, 1.0), (ROOT, 0.5)):
            spent = recursive_anchors(period, power)
            rows.append(Row(ANCHORS, series, "phase q", period, "ε at δ = n^(−1.1)", 0, spent))
    return [*rows, *_one_record(seed, quick)]


def double_spider(epsilon: float, period: int) -> dict[str, list[Line]]:
    """The releases of DP Double-SPIDER, per-record clips assumed.

    Args:
        epsilon: ε that the paper states for its noise.
        period: T.

    Returns:
        Series → its releases.
    """
    n, root = RECORDS, root_log(RECORDS)
    anchors, often = ROUNDS // period, math.sqrt(ROUNDS) / (RECORDS * math.sqrt(period))
    changes = ROUNDS - anchors

    def line(batch: int, noise: float, count: int) -> Line:
        # Replacing a record moves a mean over N by 2/N clips.
        return 2.0 / (batch * noise), batch / n, count

    by_y, by_x = root * often / math.sqrt(epsilon), root / epsilon * max(1.0 / 128, often)
    of_x, of_y = line(128, by_x, changes), line(128, root / (128 * epsilon), changes)
    enough = root / epsilon * max(1.0 / 1024, math.sqrt(ROUNDS) / n)
    return {
        SIX: [line(128, by_y, anchors), line(128, by_x, anchors), of_x, of_y],
        ONE: [line(128, by_y, 2 * anchors), of_x, of_y],
        CHANGES: [line(1024, root / (1024 * epsilon), ROUNDS)],
        ENOUGH: [line(1024, enough, ROUNDS)],
    }


def cost(lines: Sequence[Line], factor: float = 1.0) -> float:
    """ε at n^(−1.1) of releases on Poisson samples.

    Args:
        lines: ledger lines of the releases.
        factor: factor of all noise.
    """
    columns = [np.repeat([[mu / factor], [rate]], count, axis=1) for mu, rate, count in lines]
    return epsilon_at(Releases(poisson=np.concatenate(columns, axis=1)), delta_of(RECORDS))


def separation(records: int, batch: int, rounds: int, period: int, epsilon: float) -> float:
    """Measure how far one gradient that is long enough moves a clipped mean.

    Args:
        records: n.
        batch: N.
        rounds: R.
        period: q, rounds from one anchor to the next.
        epsilon: the claimed ε.

    Returns:
        The distance, in deviations of the printed noise.
    """
    gradients = np.ones(batch)
    data_sets = []
    for last in (1.0, -2.0 * batch):
        gradients[-1] = last
        mean = float(gradients.mean())
        data_sets.append(mean * float(clip_factors(np.array([abs(mean)]), 1.0)[0]))
    noise = root_log(records) * math.sqrt(rounds) / (records * math.sqrt(period * epsilon))
    return (data_sets[0] - data_sets[1]) / noise


def recursive_anchors(period: int, power: float, epsilon: float = 1.0) -> float:
    """ε of the anchors of v and u, on all records: two releases of 2C/n every `period` rounds, R of these.

    Args:
        period: T.
        power: power of T in the printed σ_1.
        epsilon: ε that the paper states for its noise.
    """
    noise = root_log(RECORDS) * math.sqrt(ROUNDS) / (RECORDS * period**power * epsilon)
    mu = 2.0 / (RECORDS * noise) * math.sqrt(2.0 * ROUNDS / period)
    return float(gaussian_epsilon(mu, delta_of(RECORDS)))


def _one_record(seed: int, quick: bool) -> list[Row]:
    """Distance of s by h of the drawn record, 0 or 1, in deviations; and δ at ε = 1 of all s together."""
    rows = []
    whole = S_RECORDS / (root_log(S_RECORDS) * math.sqrt(S_ROUNDS))
    for beta in (0.01, 0.1, 1.0):
        rows.append(Row(S, GAP, "weight β", beta, "deviations, and δ", 0, beta * whole))
        for repeat in range(4 if quick else 15):
            found = shown(generator("e16", seed, repeat, round(100 * beta)), beta * whole, 2000)
            rows.append(Row(S, SHOWN, "weight β", beta, "deviations, and δ", repeat, found))
    return rows


def shown(rng: np.random.Generator, gap: float, trials: int) -> float:
    """δ at ε = 1 of h = 1 against h = 0 of one record, over transcripts of S_ROUNDS releases; each draws one record.

    Another record has h = 0. A release is N(0, 1), or N(gap, 1) where the record with h = 1 is drawn.

    Args:
        rng: random bits.
        gap: gap in standard deviations.
        trials: transcripts of each.
    """
    rate, found = 1.0 / S_RECORDS, 0.0
    for part in np.array_split(np.arange(trials), max(1, trials // 250)):
        seen = gap * (rng.random((part.size, S_ROUNDS)) < rate) + rng.standard_normal((part.size, S_ROUNDS))
        loss = np.logaddexp(math.log1p(-rate), math.log(rate) + gap * seen - 0.5 * gap**2).sum(axis=1)
        found += float(np.maximum(0.0, -np.expm1(1.0 - loss)).sum())
    return found / trials


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """

    def at(panel: str, series: str, place: float) -> float:
        return float(values(rows, panel, series, place)[0])

    checks = [
        *(
            Check(
                f"{series}, claimed {claimed:g}: ε over the claim", exactly(at(COST, series, claimed) / claimed), near
            )
            for series, each in _COSTS.items()
            for claimed, near in zip(CLAIMED, each, strict=True)
        ),
        *(
            Check(
                f"the constant that the claim of {claimed:g} needs", exactly(at(CONSTANT, NEEDED, claimed)), (1.5, 10.0)
            )
            for claimed in CLAIMED
        ),
        Check("deviations of a clipped mean, n = 25 500", exactly(at(CUT, MEANS, RECORDS)), _around(3739.0)),
        *(
            Check(f"anchors with q, q = {period}", exactly(at(ANCHORS, PRINTED, period)), _around(cost_then))
            for period, cost_then in ((1, 3.54), (5, 9.19), (20, 22.3), (100, 70.5))
        ),
        Check(
            "anchors with √q, q = 100 over q = 1", exactly(at(ANCHORS, ROOT, 100) / at(ANCHORS, ROOT, 1)), (0.99, 1.01)
        ),
        Check("deviations of one record in s, β = 1", exactly(at(S, GAP, 1.0)), _around(356.0)),
        Check(
            "δ shown of s at β = 1",
            over_seeds(values(rows, S, SHOWN, 1.0)),
            (_drawn_once() * 0.6, _drawn_once() * 1.4),
        ),
        Check(
            "δ shown of s at β = 0.1, over the claimed δ",
            over_seeds(values(rows, S, SHOWN, 0.1) / delta_of(S_RECORDS)),
            (1000.0, math.inf),
        ),
    ]
    return checks, [
        f"No constant is stated, so no ε is claimed of any noise; with 1, a claim of 1 costs {at(COST, SIX, 1.0):.3g} "
        f"(or {at(COST, ONE, 1.0):.3g} by Theorem 1), and a claim of 10 costs {at(COST, SIX, 10.0):.3g}, had each "
        "record been clipped.",
        f"With N = 1024 the missing √R/n is visible: {at(COST, CHANGES, 1.0):.3g}, not {at(COST, ENOUGH, 1.0):.3g}.",
        "The mean of a batch is clipped instead: one gradient then reveals its record by thousands of deviations, in a "
        "single release.",
        f"The record that is drawn for s is revealed if β times {at(S, GAP, 1.0):.3g} deviations is large: with "
        f"probability 1 − (1 − 1/n)^R = {_drawn_once():.2g} a record is, which δ = {delta_of(S_RECORDS):.2g} does not "
        "allow.",
    ]


def _around(number: float, share: float = 0.02) -> tuple[float, float]:
    return (1.0 - share) * number, (1.0 + share) * number


def _drawn_once() -> float:
    """The chance that one given record is drawn at all."""
    return -math.expm1(S_ROUNDS * math.log1p(-1.0 / S_RECORDS))


# Series → cost over claim, by claimed ε.
_COSTS: dict[str, tuple[tuple[float, float], ...]] = {
    series: tuple(_around(spent / claimed) for claimed, spent in zip(CLAIMED, each, strict=True))
    for series, each in {
        SIX: (1.955, 7.03, 219.5, 669.5),
        ONE: (2.78, 9.22, 308.0, 902.0),
        CHANGES: (3.95, 9.0, 105.0, 729.0),
        ENOUGH: (1.105, 2.39, 16.4, 44.2),
    }.items()
}
