"""Privacy costs of minimax algorithms at the size of the paper's experiments, compared with independent computations.

n = 60 000, samples of 2048 on average, 80 epochs (R = 2344), δ = n^(−1.1), replace one record, Poisson samples, both
releases of a round one event. The published DP-SGDA noise for a claim of .5/1/5/10 costs .171/.362/2.10/4.59 on a fine
grid of losses and .184/.369/2.10/4.59 on one of 1e-3. The claim itself would need a joint z̄ of 24.4/12.8/3.02/1.69.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.central.context import MinimaxContext
from decentral_dp.central.minimax.dp_sgda import DpSgda
from decentral_dp.central.minimax.privatediff import PrivateDiff, PrivateDiffXY
from decentral_dp.central.problems.auc import AucObjective
from decentral_dp.central.problems.composite import Composite
from decentral_dp.central.vocabulary import Charge
from decentral_dp.models.build import LinearModel
from decentral_dp.privacy.accounting.accountants import epsilon_of
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from papers import claimed_noise
from papers.published.calibration import Calibration
from papers.published.minimax import PublishedDpSgda

N, M, R = 60_000, 2048, 2344
Q, DELTA = M / N, N**-1.1
STEP = StepSize(0.1)
CONTEXT = MinimaxContext(
    Composite(LinearModel(2, 1), AucObjective(0.5)), {"train": N, "validation": 0}, 1, Clip("l2", x=1.0, y=1.0), R
)


def make_line(name: str, charge: Charge, scale: np.ndarray, sensitivity: np.ndarray) -> ChannelLedger:
    """Make the ledger lines of one coordinate, without rounding to a grid."""
    rate = charge.rate.get("train", 1.0)
    return ChannelLedger(
        name, "gaussian", 1, np.zeros(1, dtype=np.int64), charge.indices, scale[:, None], {"train": sensitivity[:,
        None]},
        {"train": np.full((charge.indices.size, 1), rate)}, "", "poisson" if rate < 1.0 else "fixed",
    )  # fmt: skip


def cost(program: Any, calibrations: dict[str, Calibration]) -> float:
    charges = program.planned_releases(CONTEXT, R)
    lines = [make_line(name, charges[name], f.scale, f.sensitivity["train"]) for name, f in calibrations.items()]
    return float(epsilon_of(Ledger(1, tuple(lines), program.releases_per_round), DELTA)[0])


@pytest.mark.parametrize(
    ("claimed", "fine", "coarse"), [(0.5, 0.171, 0.184), (1.0, 0.362, 0.369), (5.0, 2.10, 2.10), (10.0, 4.59, 4.59)]
)
def test_certified_epsilon_of_published_dp_sgda_noise(claimed: float, fine: float, coarse: float) -> None:
    program = PublishedDpSgda(STEP, STEP, Q)
    calibrations = program.calibration(CONTEXT, R, claimed, DELTA)
    # 8 C √(R log(1/δ))/(nε) on both means.
    expected = 8.0 * math.sqrt(R * math.log(1.0 / DELTA)) / (N * claimed)
    assert all(f.scale == pytest.approx(np.full(R, expected)) for f in calibrations.values())
    price = cost(program, calibrations)
    assert 0.99 * fine <= price <= 1.01 * coarse
    assert price < 0.47 * claimed
    assert price == pytest.approx(claimed_noise.true_epsilon(claimed_noise.sgda(claimed)), rel=1e-6)


def test_certified_programs_cost_their_number_of_events() -> None:
    """R events for DP-SGDA and XY, R·(inner + 1) for PrivateDiff, for every period."""

    def price(program: Any, mu: float) -> float:
        charges = program.planned_releases(CONTEXT, R)
        lines = [make_line(name, c, np.ones(c.indices.size), mu * c.weight["train"]) for name, c in charges.items()]
        return float(epsilon_of(Ledger(1, tuple(lines), program.releases_per_round), DELTA)[0])

    # √Σμ² of DP-SGDA for a claim of 1: √R·2/z̄.
    mu = math.sqrt(R) * 2.0 / 12.8
    sgda = price(DpSgda(STEP, STEP, Q), mu)
    assert sgda == pytest.approx(1.0, rel=0.02)
    for period in (1, 2, 8):
        smooth = None if period == 1 else 1.0
        assert price(PrivateDiffXY(STEP, STEP, period, smooth, Q), mu) == pytest.approx(sgda, rel=0.06)
        program = PrivateDiff(STEP, period, STEP, 3, smooth, Q)
        assert price(program, mu) == pytest.approx(sgda, rel=0.06)
        settled = program.planned_releases(CONTEXT, R)
        assert settled["gy"].indices.size == 3 * R
        assert sum(float((c.weight["train"] ** 2).sum()) for c in settled.values()) == pytest.approx(1.0)
