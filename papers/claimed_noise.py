"""Privacy cost of published noise for minimax problems, and the noise that its claims need.

The setting is that of the paper's experiments: n = 60 000 records, Poisson samples of mean size 2048, 80 epochs or
R = 2344 rounds, δ = n^(−1.1), and clips of 1. Adjacency replaces one record, and the two gradients of a round are
accounted together.

    DP-SGDA       noise 8√(R log(1/δ))/(nε) on both means, from the explicit values after Theorem 1
    PrivateDiff   noise of Remark 5.1 with T = 2, with sensitivity 2C over the sample size for x and that of Lemma 9 for
                  y. Both sensitivities are false, and the result is the privacy cost if they were true

The programs calibrate their noise themselves. The same accountant finds the smallest noise for a claim. On a coarser
grid of losses the accountant gives 0.184 and 0.369 instead of 0.171 and 0.362.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Array
from decentral_dp.central.context import MinimaxContext
from decentral_dp.central.problems.auc import AucObjective
from decentral_dp.central.problems.composite import Composite
from decentral_dp.models.build import LinearModel
from decentral_dp.privacy.accounting.accountants import epsilon_of
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN
from papers.findings import Check, Row, exactly, values
from papers.published.minimax import PublishedDpSgda, PublishedPrivateDiff

COST, NOISE = "true ε of the published noise", "noise multiplier of a sum"
SGDA, DIFFERENCES = "DP-SGDA", "PrivateDiff, if its lemmas held"
PUBLISHED, NEEDED = "DP-SGDA, published", "required"
RECORDS, SAMPLE, ROUNDS, PERIOD = 60_000, 2048, 2344, 2
DELTA = RECORDS**-1.1
CLAIMS = (0.5, 1.0, 5.0, 10.0)
_STEP = StepSize(1.0, 1.0)


def context() -> MinimaxContext:
    """Return the coordinator's context for AUC maximisation with a linear model of one feature and clips of 1."""
    problem = Composite(LinearModel(1, 1), AucObjective(0.5))
    return MinimaxContext(problem, {"train": RECORDS, "validation": 0}, 1, Clip("l2", x=1.0, y=1.0), ROUNDS)


def line(channel: str, indices: Any, scale: Array, sensitivity: Array, rate: float) -> ChannelLedger:
    """Form the ledger of a Gaussian channel of width one, without the cost of rounding.

    Args:
        channel: name of the channel.
        indices: indices of the releases, (R,).
        scale: standard deviations of the noise, (R,).
        sensitivity: l2 sensitivities to a train record, (R,).
        rate: rate of Poisson samples; 1 means all records.

    Returns:
        Ledger of one agent.
    """
    one = np.ones((indices.size, 1))
    group = np.zeros(1, dtype=np.int64)
    drawn = "poisson" if rate < 1.0 else "fixed"
    return ChannelLedger(
        channel, GAUSSIAN, 1, group, indices, scale[:, None], {"train": sensitivity[:, None]}, {"train": rate * one},
        "",
        drawn,
    )  # fmt: skip


def sgda(claim: float) -> Ledger:
    """Form the ledger of DP-SGDA with the paper's noise.

    Args:
        claim: claimed ε at δ = `DELTA`.
    """
    program = PublishedDpSgda(_STEP, _STEP, SAMPLE / RECORDS)
    charges = program.planned_releases(context(), ROUNDS)
    noise = program.calibration(context(), ROUNDS, claim, DELTA)
    lines = [line(c, charges[c].indices, n.scale, n.sensitivity["train"], SAMPLE / RECORDS) for c, n in noise.items()]
    return Ledger(1, tuple(lines))


def differences(claim: float) -> Ledger:
    """Form the ledger of PrivateDiff with sensitivity (2C_0²)/(μn) for y and 2C over the sample size for x.

    Args:
        claim: claimed ε at δ = `DELTA`.
    """
    program = PublishedPrivateDiff(_STEP, PERIOD, _STEP, smoothness=1.0, rate=SAMPLE / RECORDS)
    charges = program.planned_releases(context(), ROUNDS)
    noise = program.calibration(context(), ROUNDS, claim, DELTA)
    lines = []
    for channel in ("gx", "dx"):
        sensitivity = np.full(charges[channel].indices.size, 2.0 / SAMPLE)
        lines.append(line(channel, charges[channel].indices, noise[channel].scale, sensitivity, SAMPLE / RECORDS))
    lemma = np.full(ROUNDS, 2.0 / RECORDS)
    lines.append(line("y", charges["y"].indices, noise["y"].scale, lemma, 1.0))
    return Ledger(1, tuple(lines), program.releases_per_round)


def true_epsilon(ledger: Ledger) -> float:
    """Return the certified ε of a ledger of one agent at `DELTA`.

    Args:
        ledger: ledger of the releases.
    """
    return float(epsilon_of(ledger, DELTA)[0])


def required_noise(claim: float) -> float:
    """Find the smallest noise multiplier with at most the claimed ε.

    Args:
        claim: claimed ε at `DELTA`.

    Returns:
        Noise multiplier z̄ of both releases of a round together, z̄⁻² = z_x⁻² + z_y⁻².
    """
    index = np.arange(1, ROUNDS + 1, dtype=np.int64)

    def excess(log_z: float) -> float:
        sensitivity = np.full(ROUNDS, 2.0 / math.exp(log_z))
        channel = line("g", index, np.ones(ROUNDS), sensitivity, SAMPLE / RECORDS)
        return true_epsilon(Ledger(1, (channel,))) - claim

    return math.exp(brentq(excess, math.log(0.8), math.log(100.0), xtol=1e-4))


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows = []
    for claim in CLAIMS:
        for name, ledger in ((SGDA, sgda(claim)), (DIFFERENCES, differences(claim))):
            rows.append(Row(COST, name, "claimed ε", claim, "ε", 0, true_epsilon(ledger)))
        scale = float(sgda(claim).channels[0].scale[0, 0])
        # For two equal releases, z̄ = z/√2.
        rows.append(Row(NOISE, PUBLISHED, "claimed ε", claim, "z̄", 0, scale * SAMPLE / math.sqrt(2.0)))
        rows.append(Row(NOISE, NEEDED, "claimed ε", claim, "z̄", 0, required_noise(claim)))
    return rows


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    costs = values(rows, COST, SGDA)
    share = costs / np.array(CLAIMS)
    ratio = values(rows, COST, DIFFERENCES) / costs
    spare = values(rows, NOISE, PUBLISHED) / values(rows, NOISE, NEEDED)
    checks = [
        Check("true ε of DP-SGDA over its claim: largest ratio", exactly(float(share.max())), (0.4, 0.5)),
        Check("true ε of DP-SGDA over its claim: smallest ratio", exactly(float(share.min())), (0.3, 0.4)),
        Check("true ε of PrivateDiff over that of DP-SGDA: smallest ratio", exactly(float(ratio.min())), (1.8, 2.3)),
        Check("published over required noise of DP-SGDA: smallest ratio", exactly(float(spare.min())), (1.8, 3.0)),
    ]
    return checks, [
        "At equal claimed ε, PrivateDiff uses about twice the budget of DP-SGDA, even if its lemmas held.",
        "The required noise multiplier is z̄ = " + ", ".join(f"{z:.3g}" for z in values(rows, NOISE, NEEDED)) + " for "
        "both gradients together, and √2 z̄ for each.",
    ]
