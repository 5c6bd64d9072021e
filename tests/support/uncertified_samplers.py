"""Samplers that are quick, known, and no proof: each says in its guarantee what is missing. For comparison only.

None of them is ever certified, whatever the caller declares: ε is +inf where even the ideal number does not apply.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np
from scipy.special import ndtr, ndtri

from decentral_dp.bounded import Array
from decentral_dp.central.exponential_samplers import Box, check_box
from decentral_dp.errors import InputError
from tests.support.priced_samplers import Drawn, Guarantee


def gumbel_max(generator: np.random.Generator, scores: Array, rate: float) -> Drawn[int]:
    """argmax_i G_i − rate·score_i with float64 Gumbel variates: the right law but for its tails.

    numpy's variates lie in [−3.61, 36.74], so that nothing more than 40.35 above the best can leave: its probability is
    0 under one dataset, and may be positive under its neighbour. No pure ε holds.
    """
    item = int(np.argmax(generator.gumbel(size=len(scores)) - rate * scores))
    why = "Float64 Gumbel variates are bounded: some outcomes have probability 0 under one of two neighbours."
    return Drawn(item, Guarantee(inf, 0.0, False, why), 1)


def regularised_on_grid(
    generator: np.random.Generator, score: Callable[[Array], Array], points: Array, rate: float
) -> Drawn[Array]:
    """One of a few points (n, d) with probability ∝ e^{−rate·score}: the regularised mechanism, discretised.

    A grid whose spacing is no small part of the law's deviation is not a Gaussian pair: with 5 points to 10 deviations
    its δ is hundreds of times the one of the continuous law.
    """
    heights = -rate * score(points)
    law = np.exp(heights - heights.max())
    why = "Gaussian privacy is proven for the continuous law; this is a grid, drawn in float64."
    return Drawn(
        np.asarray(points[generator.choice(len(points), p=law / law.sum())]), Guarantee(inf, 0.0, False, why), 1
    )


def gibbs(
    generator: np.random.Generator, mean: Array, precision: Array, box: Box, start: Array, sweeps: int
) -> Drawn[Array]:
    """A truncated Gaussian, approximately: coordinates in turn from their conditional laws, `sweeps` times.

    mean: (d,), precision: (d, d) of the untruncated Gaussian. No usable bound on its distance from the law is known
    for a given number of sweeps, and diagnostics of one chain bound nothing.
    """
    check_box(box)
    if sweeps < 1:
        raise InputError(f"sweeps: got {sweeps}, wanted 1 or more; ten or so for a well-conditioned precision.")
    x = np.clip(start, box.low, box.high).astype(np.float64)
    for _ in range(sweeps):
        for i in range(len(x)):
            others = float(precision[i] @ (x - mean) - precision[i, i] * (x[i] - mean[i]))
            centre, width = mean[i] - others / precision[i, i], precision[i, i] ** -0.5
            low, high = ndtr((np.array([box.low[i], box.high[i]]) - centre) / width)
            drawn = centre + width * ndtri(low + generator.random() * (high - low))
            x[i] = np.clip(drawn, box.low[i], box.high[i])
    why = f"After {sweeps} sweeps the chain is at an unknown distance from the law that the theorem is about."
    return Drawn(x, Guarantee(inf, 0.0, False, why), sweeps)
