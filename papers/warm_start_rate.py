"""Algorithm 1 from a bad public start, and from a private start by the exponential mechanism with half of the budget.

    f = d^{−1/2} Σ_j ½(1 − cos y_j),     g = ½‖y − x‖² − ⟨y, z⟩, ‖z‖ ≤ ½,     X = [−4, 4]^d:     y_Z(x) = x + z̄

With Δ the excess of the start, T = m√(8bΔ)/(S√d) steps with noise S√T/m give a mean squared gradient of order
S√(bΔd)/m. A public start has Δ = O(1), and a gradient norm of order n^{−1/2}. A private start has Δ ~ d/(nε), and
n^{−3/4} if nε is large compared with d. Otherwise it does not improve on the public start, but uses half of the budget.
√d of the coordinates start far from the optimum, so Δ is equal for all d. The distribution of the private start is a
product over coordinates.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from decentral_dp.bounded import Array
from decentral_dp.central.sensitivities import hypergradient_sensitivity, score_oscillation, smoothness
from decentral_dp.constants import ProblemConstants
from decentral_dp.simulation.statistics import over_seeds
from papers.draws import DELTA, EPSILON, generator, mu_of, pure_rate
from papers.findings import Check, Row, around, slope_check, values

RATE, RATIO = "gradient at a random step", "gradient from a private start over a public start"
CROSSING = "n at which the private start halves the gradient"
COLD, WARM, BOTH = "public start", "private start", "n at half of the gradient"
_BAD, _EDGE, _RADIUS = 2.5, 4.0, 0.5


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows = []
    for repeat in range(6 if quick else 10):
        for n in (300, 1000, 3000) if quick else (300, 1000, 3000, 10_000, 30_000):
            for name in (COLD, WARM):
                rms = gradient(generator("e10", seed, repeat, n, int(name == WARM)), 1, n, name == WARM)
                rows.append(Row(RATE, name, "n·ε", n * EPSILON, "RMS gradient", repeat, rms))
        for d in (1, 4, 16):
            ratios = {n: _ratio(seed, repeat, d, n) for n in (2 * d, 32 * d, 64 * d, 128 * d)}
            for n, ratio in ratios.items():
                rows.append(Row(RATIO, f"d_x = {d}", "n·ε", n * EPSILON, "ratio", repeat, ratio))
            halved = _crossing(np.array([n for n in ratios if n > 2 * d]), np.array(list(ratios.values())[1:]), 0.5)
            rows.append(Row(CROSSING, BOTH, "upper dimension d_x", d, "n", repeat, halved))
    return rows


def constants(d: int) -> ProblemConstants:
    """Return the constants of the instance in d dimensions.

    Args:
        d: dimension of x.
    """
    curved = 0.5 / math.sqrt(d)
    return ProblemConstants(
        radius=_RADIUS, mu=1.0, l_fx=0.0, l_fy=0.5, l_gy=2.0 * _RADIUS, d_fx=0.0, d_fy=0.0, d_gy=2.0 * _RADIUS,
        b_fxx=0.0, b_fxy=0.0, b_fyy=curved, b_gxy=1.0, b_gyy=1.0, d_hxy=0.0, d_hyy=0.0, c_gxy=0.0, c_gyy=0.0,
        m_gxy=0.0, m_gyy=0.0, m=1.0,
    )  # fmt: skip


def gradient(rng: np.random.Generator, d: int, n: int, warm: bool) -> float:
    """Measure the gradient over all steps of a batch of runs.

    Args:
        rng: random bits.
        d: dimension of x, and of y.
        n: number of train records, and of validation records.
        warm: whether the start is private, with half of the budget, or public.

    Returns:
        Root mean square of ‖∇Φ(x_t)‖.
    """
    c, centre, batch = constants(d), np.full(d, -0.3 / math.sqrt(d)), 40 + 320 // d
    sensitivity, smooth = max(hypergradient_sensitivity(c, n, n).values()), smoothness(c)
    if warm:
        oscillation = score_oscillation(c, n, n, 0.0, 0.0, 0.0)["train"]
        rate = float(pure_rate(0.5 * EPSILON, oscillation, 0.0))
        x = _private_start(rng, rate / math.sqrt(d), centre[0], (batch, d))
        excess, m = min(d / rate, math.sqrt(d)), mu_of(0.5 * EPSILON, DELTA)
    else:
        x = np.zeros((batch, d))
        x[:, : round(math.sqrt(d))] = _BAD
        excess, m = 1.0, mu_of()
    steps = max(1, math.ceil(m * math.sqrt(8.0 * smooth * excess) / (sensitivity * math.sqrt(d))))
    scale, total = sensitivity * math.sqrt(steps) / m, 0.0
    for _ in range(steps):
        slope = 0.5 / math.sqrt(d) * np.sin(x + centre)
        total += float(np.square(slope).sum())
        x = np.clip(x - (slope + scale * rng.standard_normal(x.shape)) / (2.0 * smooth), -_EDGE, _EDGE)
    return math.sqrt(total / (steps * batch))


def _private_start(rng: np.random.Generator, rate: float, centre: float, shape: tuple[int, int]) -> Array:
    """Draw coordinates ∝ exp(−rate·½(1 − cos(x + centre))) on [−4, 4] by inversion on a fine grid."""
    x = np.linspace(-_EDGE, _EDGE, 20_001)
    logs = -0.5 * rate * (1.0 - np.cos(x + centre))
    cumulative = np.cumsum(np.exp(logs - logs.max()))
    return np.asarray(np.interp(rng.random(shape) * cumulative[-1], cumulative, x))


def _ratio(seed: int, repeat: int, d: int, n: int) -> float:
    """Compute the ratio of the RMS gradients from a private and from a public start."""
    cold, warm = (
        gradient(generator("e10", seed, repeat, n, d, int(name == WARM)), d, n, name == WARM) for name in (COLD, WARM)
    )
    return warm / cold


def _crossing(sizes: Array, ratios: Array, level: float) -> float:
    """Return the size at which a power law fitted to ratios has a given level."""
    inclination, intercept = np.polyfit(np.log(sizes), np.log(ratios / level), 1)
    return float(np.exp(-intercept / inclination)) if inclination < 0.0 else math.nan


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    early = values(rows, RATIO, "d_x = 16", 32)
    checks = [
        slope_check(rows, "public start: n^(−1/2)", (RATE, COLD), around(-0.5, -0.75)),
        slope_check(rows, "private start: n^(−3/4)", (RATE, WARM), around(-0.75, -0.5)),
        slope_check(
            rows, "n at which the private start halves the gradient: d_x", (CROSSING, BOTH), around(1.0, 0.5, 2.0)
        ),
        Check("private over public start at nε = 2 d_x, d_x = 16: ratio", over_seeds(early), (1.0, math.inf)),
    ]
    crossing = values(rows, CROSSING, BOTH, 16).mean() / 16.0
    return checks, [f"The private start halves the gradient at nε = {crossing:.3g} d_x."]
