"""The exponential mechanism on the instance of the lower bound, with exact draws on a box of one to three dimensions.

    f = −⟨y, a⟩,  ‖a‖ ≤ 1,     g = ½‖y − x‖²,     X = [−1, 1]^d:     Φ(x) = −⟨x, ā⟩

The distribution ∝ e^{−kΦ} is a product of truncated exponentials, so the expected excess risk also has a closed form.
k = ε/s, where s is the oscillation of the score difference of neighbouring data sets, which decreases as 1/n. Equation
4 as published has k = ε/(2s), and a term of its s does not decrease.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pandas as pd

from decentral_dp.bounded import Array
from decentral_dp.central.selection import Box, score_unit
from decentral_dp.central.sensitivities import score_oscillation
from decentral_dp.constants import family_of
from decentral_dp.problems.bilevel.means import MeanLowerBound
from decentral_dp.simulation.statistics import over_seeds
from papers import cells
from papers.draws import EPSILON, generator, pure_rate
from papers.findings import Check, Row, around, exactly, slope_check, values
from papers.published.bilevel import published_score

CORRECTED, PUBLISHED = "corrected scale", "scale as published"
AGREE, OPTIMAL = "excess of draws over closed form", "closed form over d_x·s/ε"
_RECORDS = (1_000, 10_000, 100_000, 1_000_000)
_AXIS = "n·ε"


def measure(seed: int, quick: bool) -> list[Row]:
    """Measure all points of the experiment.

    Args:
        seed: public seed of all random bits.
        quick: whether to use fewer points and repetitions, which takes seconds.

    Returns:
        One row for each measurement, with the columns `findings.COLUMNS`.
    """
    rows = []
    for d in (1, 2) if quick else (1, 2, 3):
        for n in _RECORDS[:3] if quick else _RECORDS:
            mean = 0.5 * np.resize([1.0, -0.8, 0.6], d) / math.sqrt(d)
            oscillation, published = scales(d, n)
            for panel, s in ((CORRECTED, oscillation), (PUBLISHED, 2.0 * published)):
                draw = sampler(mean, s)
                for repeat in range(8 if quick else 10):
                    rng = generator("e4", seed, d, n, repeat, int(panel == PUBLISHED))
                    excess = float(np.mean([draw(rng) for _ in range(80 if quick else 100)]))
                    rows.append(Row(panel, f"d_x = {d}", _AXIS, n * EPSILON, "excess of Φ", repeat, excess))
                    if panel == CORRECTED:
                        ratio = excess / expected(mean, EPSILON / s)
                        rows.append(Row(AGREE, f"d_x = {d}", _AXIS, n * EPSILON, "ratio", repeat, ratio))
            ratio = expected(mean, EPSILON / oscillation) / (d * oscillation / EPSILON)
            rows.append(Row(OPTIMAL, f"d_x = {d}", _AXIS, n * EPSILON, "ratio", 0, ratio))
    return rows


def scales(d: int, n: int) -> tuple[float, float]:
    """Return s of the package, and s as published with L_gy of g on the whole of Y = X."""
    family = family_of(MeanLowerBound(d), 1.0)
    low, high = -np.ones(d), np.ones(d)
    c, width = family.constants(low, high), 2.0 * math.sqrt(d)
    proven = score_oscillation(c, n, n, width, family.spread(low, high), 0.0, family.loss_range(low, high))
    return max(proven.values()), published_score(c._replace(l_gy=width), n, width)


def sampler(mean: Array, s: float) -> Callable[[np.random.Generator], float]:
    """Build an exact sampler of the excess Φ(x) − min Φ for k = ε/s.

    Args:
        mean: slopes of Φ along the axes, (d,).
        s: oscillation of the scores.

    Returns:
        Function of a generator → one draw.
    """
    box = Box(-np.ones(mean.size), np.ones(mean.size))
    rate: Fraction = pure_rate(EPSILON, s, 0.0)

    def score(points: Array) -> Array:
        return np.asarray(-points @ mean)

    target = cells.GibbsTarget(score, box, rate, score_unit(s), float(np.linalg.norm(mean)), 0.0)
    envelope = cells.refine(target)
    least = -float(np.abs(mean).sum())
    return lambda rng: float(score(cells.sample(rng, target, envelope)[None])[0]) - least


def expected(mean: Array, k: float) -> float:
    """Compute E Φ − min Φ of the distribution ∝ e^{−kΦ} on [−1, 1]^d, the sum of 1/k − 2c/(e^{2kc} − 1) over the axes.

    Args:
        mean: slopes c of Φ along the axes, (d,).
        k: ε over the oscillation.
    """
    c = np.abs(mean)
    return float((1.0 / k - 2.0 * c / np.expm1(np.minimum(2.0 * k * c, 700.0))).sum())


def judge(rows: pd.DataFrame) -> tuple[list[Check], list[str]]:
    """Compare the claims with the measurements.

    Args:
        rows: table of measurements, see `findings.table`.

    Returns:
        A check for each claim, and sentences about the results.
    """
    names = list(dict.fromkeys(rows["series"]))
    share = float(rows[rows["panel"] == OPTIMAL]["value"].max())
    least = float(rows[(rows["panel"] == OPTIMAL) & (rows["point"] == rows["point"].max())]["value"].min())
    agree = over_seeds(rows[rows["panel"] == AGREE].groupby("seed")["value"].mean().to_numpy())
    checks = [
        *(slope_check(rows, f"{name}, corrected: 1/(nε)", (CORRECTED, name), around(-1.0, -0.5)) for name in names),
        *(
            slope_check(rows, f"{name}, as published: no decrease", (PUBLISHED, name), around(0.0, -1.0))
            for name in names
        ),
        Check("excess of draws over its closed form", agree, (0.9, 1.1)),
        # The bound is attained in the limit, up to float64 rounding.
        Check("closed form over its bound d_x·s/ε: largest ratio", exactly(share), (0.0, 1.0 + 1e-9)),
        Check("closed form over its bound at the largest n: smallest ratio", exactly(least), (0.9, 1.0 + 1e-9)),
    ]
    largest = rows["point"].max()
    excess = {name: float(values(rows, CORRECTED, name, largest).mean()) for name in names}
    ratios = [excess[name] / (2.0 * math.sqrt(d) * d / largest) for d, name in enumerate(names, start=1)]
    return checks, [
        f"The excess is {min(ratios):.2g} to {max(ratios):.2g} times L_fy·D_y·d_x/(nε), the order of the lower bound "
        "(Theorem 3.10).",
    ]
