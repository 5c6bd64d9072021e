"""Check that a mechanism's cost, norm and sampler agree; each check returns error messages."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from decentral_dp.privacy.mechanisms import DominatingPair, NoiseMechanism, Unnoised
from decentral_dp.privacy.randomness import Draws, Streams, seeded_root

DRAWS = 50_000


def drawn(m: NoiseMechanism, query: np.ndarray, scale: float, draws: int, seed: int = 5) -> np.ndarray:
    """Draw (draws, d) noisy copies of one query (d,) by the mechanism's sampler, as channels of one agent."""
    d = query.size
    g = m.grid(scale, d).reshape(1, 1)
    every, sampling = np.tile(query, draws)[None], Streams(seeded_root(seed, b"checks"), "noise", [0])
    grid, ratio = np.full_like(every, g), np.full_like(every, scale / g)
    integers = m.sample(Unnoised(Draws(sampling, 1, 0), every, grid, ratio, (d,) * draws, {}))
    return np.asarray(g * integers).reshape(draws, d)


def deviation_complaints(m: NoiseMechanism, scale: float = 0.7, draws: int = DRAWS) -> list[str]:
    """Test the standard deviation of the noise, within six standard errors at a kurtosis below 10."""
    found = float(drawn(m, np.full(1, 0.3), scale, draws).std())
    wanted = m.deviation * scale
    if abs(found / wanted - 1.0) < 6.0 * 1.5 / math.sqrt(draws):
        return []
    return [f"{m.name}: noise of deviation {found:.4g}, stated {wanted:.4g}"]


def price_complaints(
    m: NoiseMechanism, size: float = 0.8, scale: float = 0.7, width: int = 1, draws: int = DRAWS
) -> list[str]:
    """Test the cost by half-spaces along the move, with a tolerance of five standard errors each.

    The move is as long as allowed in the mechanism's norm, and goes along all coordinates at once.
    """
    step = size / width if m.norm == "l1" else size / math.sqrt(width)
    here, there = np.zeros(width), np.full(width, step)
    a, b = drawn(m, here, scale, draws, seed=6), drawn(m, there, scale, draws, seed=7)
    # The log-likelihood ratio's direction: of heavy tails sums of signs, of normal noise sums.
    score = (lambda v: (v > 0.5 * step).sum(axis=1)) if m.unit == "ε" else (lambda v: v.sum(axis=1))
    left, right = score(a), score(b)
    loss = float(m.cost(size, scale, width))
    out = []
    for cut in np.unique(np.quantile(np.concatenate([left, right]), [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98])):
        for one, other in (((left < cut).sum(), (right < cut).sum()), ((right >= cut).sum(), (left >= cut).sum())):
            p, q = _least(int(one), draws), _most(int(other), draws)
            if p - _allowed(m, loss, q) > 0.0:
                out.append(f"{m.name}: an event of {p:.4g} for one data set and {q:.4g} for the other, at {loss:.3g}")
    return out[:1]


def _allowed(m: NoiseMechanism, loss: float, q: float) -> float:
    """The largest probability that a neighbour may give an event of probability q."""
    if m.dominating_pair is DominatingPair.GAUSSIAN:
        return float(ndtr(ndtri(q) + loss))
    return min(math.exp(loss) * q, 1.0 - math.exp(-loss) * (1.0 - q))


def _most(count: int, draws: int) -> float:
    """An upper confidence bound on a probability, by the normal law and five deviations, but never 0."""
    p = (count + 13.0) / (draws + 26.0)
    return min(1.0, p + 5.0 * math.sqrt(p * (1.0 - p) / draws))


def _least(count: int, draws: int) -> float:
    return max(0.0, 1.0 - _most(draws - count, draws))
