"""Likelihood ratios of transcripts in two worlds, and the ε that follows from their law.

Given a transcript, what was rounded and noised is a known number in either world, so that the log-likelihood ratio of
the whole transcript is the sum of those of its releases. Where the two worlds' queries differ by the same vectors
whatever the transcript is, the law of the ratio is known, and with it ε(δ).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2, gamma

from decentral_dp.adversaries.transcripts import Key, Query, Transcript
from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE

# Of the losses of Laplace releases: cells of the grid that their sum lies on. Everything is rounded toward less.
_CELLS = 2**18
# More moves than this that differ are rounded down to these steps of their logarithms.
_MOVES, _STEP = 64, 0.02
# The probability with which an interval of the noise's size misses it.
NOISE_RISK = 1e-3


def log_ratio(transcript: Transcript, first: Mapping[Key, Query], second: Mapping[Key, Query]) -> float:
    """log of how much likelier the transcript is where the first queries are noised than where the second are.

    ±inf where one of the worlds could not have said it. Of a mechanism that is neither Gaussian nor Laplace the ratio
    is that of normal noise: a score like any other, but no likelihood.
    """
    total = 0.0
    for key, said in transcript.said.items():
        if key not in first or key not in second:
            continue
        pair, noise = (first[key], second[key]), transcript.noise[key]
        if noise is None:
            fits = [bool(np.array_equal(said, _value(q), equal_nan=True)) for q in pair]
            if fits[0] != fits[1]:
                return np.inf if fits[0] else -np.inf
            continue
        g, logs = noise.grid, []
        for query in pair:
            integers = np.rint((said - query.public) / g)
            private = np.zeros_like(said) if query.private is None else query.private
            if noise.mechanism == LAPLACE:
                logs.append(_laplace(integers, private / g, noise.scale / g))
            else:
                rounds = noise.mechanism.rounds_at_random(noise.width)
                centre = private / g if rounds else np.rint(private / g)
                logs.append(-0.5 * ((integers - centre) * (g / (noise.scale * noise.mechanism.deviation))) ** 2)
        total += float((logs[0] - logs[1]).sum())
    return total


def _laplace(integers: Array, query: Array, scale: Array | float) -> Array:
    """Rounded down with probability 1 − up, else up, and then a difference of two geometrics."""
    floor = np.floor(query)
    up, steps = query - floor, integers - floor
    return np.asarray(-np.abs(steps) / scale + np.log1p(up * np.expm1((np.abs(steps) - np.abs(steps - 1.0)) / scale)))


def _value(query: Query) -> Array:
    return query.public if query.private is None else query.public + query.private


class Movement(NamedTuple):
    """How far two worlds' queries are apart, in units of the noise's scale: (Σ d,) of each mechanism.

    certain: whether the worlds differ in something that nothing hides.
    """

    gaussian: Array
    laplace: Array
    certain: bool

    def size(self, delta: float) -> float:
        """What the movement costs, roughly: to compare pairs of worlds by."""
        if self.certain:
            return float("inf")
        laplace, squares = float(np.abs(self.laplace).sum()), float((self.laplace**2).sum())
        if delta > 0.0:
            # Many small losses cost less than their sum.
            laplace = min(laplace, 0.5 * squares + float(np.sqrt(-2.0 * squares * np.log(delta))))
        # Of equal sums, that on the fewest coordinates.
        return float(np.sqrt((self.gaussian**2).sum()) + laplace + 1e-3 * np.sqrt(squares))

    def minus(self, other: Movement) -> Movement:
        """How far the worlds of both are apart, where both are from one world."""
        certain = self.certain != other.certain
        return Movement(self.gaussian - other.gaussian, self.laplace - other.laplace, certain)

    def near(self, other: Movement, rtol: float) -> bool:
        """Whether both are the same but for so much of them."""
        for mine, theirs in ((self.gaussian, other.gaussian), (self.laplace, other.laplace)):
            scale = float(np.abs(mine).max(initial=0.0))
            if mine.shape != theirs.shape or float(np.abs(mine - theirs).max(initial=0.0)) > rtol * scale:
                return False
        return self.certain == other.certain

    def epsilon(self, delta: float, noise: float = 1.0) -> float:
        """The ε that holds at δ for these releases, or less; noise: the drawn noise is so many times the stated."""
        if self.certain:
            return float("inf")
        mu = float(np.sqrt((self.gaussian**2).sum())) / noise
        moves = np.abs(self.laplace[self.laplace != 0.0]) / noise
        if not moves.size:
            return float(gaussian_epsilon(mu, delta))
        # A pair of both is no easier to tell apart than the dearer of its halves.
        alone = 0.0 if mu == 0.0 else float(gaussian_epsilon(mu, delta))
        return max(alone, laplace_epsilon(moves, delta))


def movement(transcript: Transcript, first: Mapping[Key, Query], second: Mapping[Key, Query]) -> Movement:
    """The differences of two worlds' queries on one transcript."""
    parts: dict[str, list[Array]] = {GAUSSIAN.name: [np.zeros(0)], LAPLACE.name: [np.zeros(0)]}
    certain = False
    for key in transcript.said:
        if key not in first or key not in second:
            continue
        noise, a, b = transcript.noise[key], first[key], second[key]
        if noise is None or noise.mechanism.name not in parts:
            certain = certain or (noise is None and not np.array_equal(_value(a), _value(b), equal_nan=True))
            if noise is not None:
                # Of a mechanism from outside, whose law is unknown, the size alone.
                parts[GAUSSIAN.name].append((_value(a) - _value(b)) / (noise.scale * noise.mechanism.deviation))
            continue
        certain = certain or not np.array_equal(a.public, b.public, equal_nan=True)
        private = [np.zeros_like(q.public) if q.private is None else q.private for q in (a, b)]
        if noise.mechanism == GAUSSIAN and not GAUSSIAN.rounds_at_random(noise.width):
            private = [np.rint(v / noise.grid) * noise.grid for v in private]
        parts[noise.mechanism.name].append((private[0] - private[1]) / noise.scale)
    return Movement(np.concatenate(parts[GAUSSIAN.name]), np.concatenate(parts[LAPLACE.name]), certain)


def laplace_epsilon(moves: Array, delta: float) -> float:
    """ε(δ) of Laplace releases that move by these shares of their scales, or less, by convolution of their losses.

    Losses are rounded down to a grid, and whatever is cut off is taken for nothing: δ(ε) is never overstated.
    """
    total = float(moves.sum())
    if delta == 0.0 or total == 0.0:
        return total
    # The loss has a mean of at most Σm²/2, and (Hoeffding) is farther than 9√Σm² above it with probability e^{−40}.
    squares = float((moves**2).sum())
    width = 2.0 * min(total, 0.5 * squares + 9.0 * float(np.sqrt(squares))) / (_CELLS // 2)
    # A release that moves less is a coarser view of one that moves more, so that moves may be rounded down.
    if np.unique(moves).size > _MOVES:
        moves = np.exp(_STEP * np.floor(np.log(moves) / _STEP))
    steps = np.maximum(np.floor(moves / width), 0.0).astype(np.int64)
    transform = np.ones(_CELLS // 2 + 1, dtype=np.complex128)
    counts = np.bincount(steps[steps > 0]) if (steps > 0).any() else np.zeros(0, dtype=np.int64)
    for cells in np.flatnonzero(counts):
        # Powers of the transform sum as many equal losses. The grid is circular, and wide enough not to wrap.
        transform *= np.fft.rfft(_loss(int(cells), width)) ** int(counts[cells])
    law = np.maximum(np.fft.irfft(transform, _CELLS), 0.0)
    losses = np.where(np.arange(_CELLS) < _CELLS // 2, np.arange(_CELLS), np.arange(_CELLS) - _CELLS) * width
    # Rounding in the transforms, about 1e-16 a cell, must not pass for mass far out.
    law = np.where(law < 1e-14, 0.0, law)
    low, high = 0.0, float(losses.max())
    for _ in range(60):
        middle = 0.5 * (low + high)
        spent = float((law * np.maximum(-np.expm1(np.minimum(middle - losses, 0.0)), 0.0)).sum())
        low, high = (middle, high) if spent > delta else (low, middle)
    return low


def _loss(cells: int, width: float) -> Array:
    """(_CELLS,) law of the loss of one Laplace release that moves by cells·width scales, rounded down to the grid."""
    move = cells * width
    # P(loss ≥ l) for −move ≤ l ≤ move: the noise n is at most (move − l)/2, which has a Laplace law.
    edges = np.arange(-cells, cells + 1) * width
    at = 0.5 * (move - edges)
    above = np.where(edges <= -move, 1.0, 1.0 - 0.5 * np.exp(-at))
    law = np.zeros(_CELLS)
    # Negative losses stand at the end.
    law[np.arange(-cells, cells + 1)] = above - np.append(above[1:], 0.0)
    return law


def drawn_noise(sums: Iterable[tuple[str, int, float]]) -> tuple[float, float]:
    """An interval for how many times the stated scale the noise really has, over all mechanisms whose law is known.

    sums: mechanism's name, number of coordinates, and Σ r² (Gaussian) or Σ |r| (Laplace) of their noise in units of
    the scale. The interval misses the truth with probability `NOISE_RISK`.
    """
    low, high = 0.0, np.inf
    for name, n, total in sums:
        if name == GAUSSIAN.name:
            ends = [np.sqrt(total / chi2.ppf(q, n)) for q in (1.0 - 0.5 * NOISE_RISK, 0.5 * NOISE_RISK)]
        elif name == LAPLACE.name:
            ends = [total / gamma.ppf(q, n) for q in (1.0 - 0.5 * NOISE_RISK, 0.5 * NOISE_RISK)]
        else:
            continue
        low, high = max(low, float(ends[0])), min(high, float(ends[1]))
    return low, high
