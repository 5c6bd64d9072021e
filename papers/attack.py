"""An attack on the penalty method (Kornowski, Algorithm 1) in one dimension, on whole transcripts.

    g(x, y; z) = ½(y − x)² − z y,     f(x, y; v) = ½(y − v)² + v x,     z, v ∈ [−1, 1]

Each round releases the minimiser of G, that of G + F/λ, and the upper gradient ∇_x F + λ(∇_x G(y^λ) − ∇_x G(y)) at the
two released points, at planned privacy costs. All others' records are known to be 0; one train or one validation
record is +1 or −1. Given what was released before, each release is a Gaussian around a known number in either data set,
so the likelihood ratio of a transcript is exact, and no attack is better. Its power on half of the transcripts, with
the event chosen on the other half, bounds ε from below (Clopper & Pearson, confidence 0.99).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.central.sensitivities import minimiser_sensitivity
from decentral_dp.constants import ProblemConstants
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.simulation.statistics import bound_by_counts, exactly, over_seeds, rate_at_least
from papers.draws import generator, mu_of, noised
from papers.findings import Check, Row, values

PANEL, BROKEN, SHARE = "shown and certified", "half of the noise", "share of μ"
# Budgets of ε = 1 at δ = 1e-6 show in events too rare to be counted.
EPSILON, DELTA = 4.0, 1e-5
RECORDS, ROUNDS, LAMBDA, STEP = 100, 5, 10.0, 0.1
_CONFIDENCE = 0.99
_BATCH = 100_000
# |y| ≤ |x| + 1 and |y^λ| ≤ (|x| + 1 + 1/λ)/(1 + 1/λ); gradients of either level are within 2 of records.
_CONSTANTS = ProblemConstants(
    radius=1.0, mu=1.0, l_fx=1.0, l_fy=3.0, l_gy=1.0, d_fx=2.0, d_fy=2.0, d_gy=2.0, b_fxx=0.0, b_fxy=0.0, b_fyy=1.0,
    b_gxy=1.0, b_gyy=1.0, d_hxy=0.0, d_hyy=0.0, c_gxy=0.0, c_gyy=0.0, m_gxy=0.0, m_gyy=0.0, m=1.0,
)  # fmt: skip


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure every point of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether there are fewer points and repetitions, in seconds.

    Returns:
        A row for each measured number, with the columns `findings.COLUMNS`.
    """
    rows = []
    for split in SPLITS:
        for repeat in range(4 if quick else 5):
            for panel, factor in ((PANEL, 1.0), (BROKEN, 0.5)):
                rng = generator("e13", seed, len(split), repeat, int(2 * factor))
                batches = 1 if quick else 10
                data_sets = [
                    np.concatenate([_losses(rng, split, sign, factor) for _ in range(batches)]) for sign in (1.0, -1.0)
                ]
                shown = lower_bound(data_sets[0], data_sets[1], DELTA)
                rows.append(Row(panel, f"{split}: shown", "transcripts", 2 * batches * _BATCH, "ε", repeat, shown))
                if factor == 1.0:
                    # The even test of a Gaussian pair is right with probability Φ(μ/2).
                    right = int((data_sets[0] > 0.0).sum() + (data_sets[1] < 0.0).sum())
                    share = 2.0 * float(ndtri(_at_least(right, 2 * data_sets[0].size))) / plan().mu(split)
                    rows.append(
                        Row(SHARE, split, "transcripts", 2 * batches * _BATCH, "μ shown/certified", repeat, share)
                    )
        certified = float(gaussian_epsilon(plan().mu(split), DELTA))
        rows.append(Row(PANEL, f"{split}: certified", "transcripts", 2 * batches * _BATCH, "ε", 0, certified))
    return rows


class _Plan(NamedTuple):
    """The three releases of a round: noise scales, and the privacy cost μ of one record of each split."""

    scales: tuple[float, float, float]
    prices: Mapping[Split, tuple[float, float, float]]

    def mu(self, split: Split) -> float:
        """Return μ of all rounds."""
        return math.sqrt(ROUNDS * sum(m**2 for m in self.prices[split]))


def plan() -> _Plan:
    """The budget in full for either kind: a train record is in the first two releases, the other in the last two."""
    round_mu = mu_of(EPSILON, DELTA) / math.sqrt(ROUNDS)
    each = round_mu / math.sqrt(2.0)
    plain = minimiser_sensitivity(_CONSTANTS, RECORDS, RECORDS, 0.0)
    penalised = minimiser_sensitivity(_CONSTANTS, RECORDS, RECORDS, 0.0, LAMBDA)
    scales = plain["train"] / each, penalised["train"] / each
    left = math.sqrt(round_mu**2 - (penalised["validation"] / scales[1]) ** 2)
    last = _CONSTANTS.d_fx / RECORDS / left
    prices: dict[Split, tuple[float, float, float]] = {
        "train": (each, each, 0.0),
        "validation": (0.0, penalised["validation"] / scales[1], left),
    }
    return _Plan((*scales, last), prices)


def _losses(rng: np.random.Generator, split: Split, sign: float, factor: float) -> Array:
    """(n,) log-likelihood ratio of +1 over −1, of transcripts drawn where the record is `sign`.

    factor: factor of the noise; 1 for the planned noise.
    """
    scales = [factor * s for s in plan().scales]
    x, loss = np.zeros((_BATCH, 1)), np.zeros((_BATCH, 1))

    def means(s: float) -> tuple[float, float]:
        """Means of the train and of the validation records."""
        return (s / RECORDS, 0.0) if split == "train" else (0.0, s / RECORDS)

    def tell(seen: Array, at: list[Array], scale: float) -> Array:
        return np.asarray((seen - 0.5 * (at[0] + at[1])) * (at[0] - at[1]) / scale**2)

    for _ in range(ROUNDS):
        minimisers = [x + means(s)[0] for s in (1.0, -1.0)]
        pulls = [(x + means(s)[0] + means(s)[1] / LAMBDA) / (1.0 + 1.0 / LAMBDA) for s in (1.0, -1.0)]
        data_set = 0 if sign > 0.0 else 1
        y = noised(rng, minimisers[data_set], scales[0])
        y_penalised = noised(rng, pulls[data_set], scales[1])
        # ∇_x g = x − y, so λ times the difference is public; the upper records' part is their mean.
        public = LAMBDA * (y - y_penalised)
        gradients = [public + means(s)[1] for s in (1.0, -1.0)]
        seen = public + noised(rng, np.full_like(x, means(sign)[1]), scales[2])
        loss += tell(y, minimisers, scales[0]) + tell(y_penalised, pulls, scales[1]) + tell(seen, gradients, scales[2])
        x = np.clip(x - STEP * seen, -1.0, 1.0)
    return loss[:, 0]


def lower_bound(first: Array, second: Array, delta: float) -> float:
    """ε that holds at least, with confidence 0.99.

    Args:
        first, second: (n,) scores of transcripts of either data set, larger where the first is likelier.
        delta: δ.
    """
    return bound_by_counts(first, second, delta, 1.0 - _CONFIDENCE, np.geomspace(1e-4, 0.5, 60))


def _at_least(hits: int, trials: int) -> float:
    """A probability from below, one side of Clopper and Pearson's interval."""
    return float(rate_at_least(hits, trials, 0.5 * (1.0 - _CONFIDENCE)))


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Hold the claims against what was measured.

    Args:
        rows: table of measured numbers, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the numbers.
    """
    checks = []
    for split in SPLITS:
        certified = float(values(rows, PANEL, f"{split}: certified")[0])
        # Each number is a lower bound, and the largest is the result.
        shown = float(values(rows, PANEL, f"{split}: shown").max()) / certified
        broken = float(values(rows, BROKEN, f"{split}: shown").max()) / certified
        even = over_seeds(values(rows, SHARE, split))
        checks += [
            Check(f"a {split} record: largest ε shown, over ε certified", exactly(shown), (0.4, 1.0)),
            Check(f"a {split} record: μ that the even test shows, over μ certified", even, (0.9, 1.0)),
            Check(f"a {split} record, noise halved: the same", exactly(broken), (1.0, math.inf)),
        ]
    return checks, [
        "With half of the planned noise, the attack exceeds the certificate: it has power.",
        "A validation record is charged all that it can lose here; the minimiser of G + F/λ is charged a little more "
        "for a train record than it can move.",
    ]
