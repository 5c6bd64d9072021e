"""Likelihood ratios of transcripts in two data sets, and the ε that follows from their law.

Given a transcript, what was rounded and noised is a known number in either data set, so the log-likelihood ratio of the
whole transcript is the sum of those of its releases. Where the two data sets' queries differ by the same vectors
whatever the transcript is, the law of the ratio is known, and with it ε(δ).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2, gamma

from decentral_dp.auditing.laws import Law, laplace_epsilon
from decentral_dp.auditing.transcripts import Key, Made, Query, Transcript
from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE

_EMPTY: Array = np.zeros(0)
# The probability with which an interval of the noise's size misses it.
NOISE_RISK = 1e-3


@np.errstate(all="ignore")
def log_ratio(transcript: Transcript, first: Mapping[Key, Made], second: Mapping[Key, Made]) -> float:
    """log of how much likelier the transcript is where the first queries are noised than where the second are.

    ±inf where one of the data sets could not have said it. Of a mechanism that is neither Gaussian nor Laplace it is
    that of normal noise: a score like any other, but no likelihood.
    """
    return sum_of_ratios(
        (log_likelihood(transcript, key, first[key]), log_likelihood(transcript, key, second[key]))
        for key in transcript.releases
        if key in first and key in second
    )


def sum_of_ratios(logs: Iterable[tuple[float, float]]) -> float:
    """Σ (first − second) of log-likelihoods; ±inf where one is impossible, and nothing from where both are."""
    total = sum(one - other for one, other in logs if not (np.isneginf(one) and np.isneginf(other)))
    # Of a run that overflows nothing is known: it speaks for neither data set.
    return 0.0 if np.isnan(total) else float(total)


def log_likelihood(transcript: Transcript, key: Key, made: Made) -> float:
    """Compute the log-density of one release, given what was said before, up to a constant.

    Args:
        transcript: of a run.
        key: index and channel of the release.
        made: what it was made of in one of the data sets: a query, or the law of a choice.

    Returns:
        −inf where it could not have been released.
    """
    said, noise = transcript.releases[key], transcript.noise[key]
    if isinstance(made, Law):
        return made.log_at(said)
    if noise is None:
        return 0.0 if np.array_equal(said, _value(made), equal_nan=True) else -np.inf
    g = noise.grid
    integers = np.rint((said - transcript.noise_means.get(key, 0.0) - made.public) / g)
    private = np.zeros_like(said) if made.private is None else made.private
    if noise.mechanism == LAPLACE:
        return float(_laplace(integers, private / g, noise.scale / g).sum())
    centre = private / g if noise.mechanism.rounds_at_random(noise.width) else np.rint(private / g)
    return float((-0.5 * ((integers - centre) * (g / (noise.scale * noise.mechanism.deviation))) ** 2).sum())


def _laplace(integers: Array, query: Array, scale: Array | float) -> Array:
    """Rounded down with probability 1 − up, else up, and then a difference of two geometrics."""
    floor = np.floor(query)
    up, steps = query - floor, integers - floor
    return np.asarray(-np.abs(steps) / scale + np.log1p(up * np.expm1((np.abs(steps) - np.abs(steps - 1.0)) / scale)))


def _value(query: Query) -> Array:
    return query.public if query.private is None else query.public + query.private


def close(mine: Array, theirs: Array, rtol: float, least: float = 0.0) -> bool:
    """Whether two arrays have one shape, are finite, and differ by at most `rtol` of their largest number.

    Args:
        mine, theirs: of any shape.
        rtol: of the largest absolute value of `mine`.
        least: that is taken for it where it is smaller.
    """
    if mine.shape != theirs.shape or not (np.isfinite(mine).all() and np.isfinite(theirs).all()):
        return False
    largest = max(least, float(np.abs(mine).max(initial=0.0)))
    return bool(np.abs(mine - theirs).max(initial=0.0) <= rtol * largest)


class Movement(NamedTuple):
    """How far two data sets' queries are apart, in units of the noise's scale.

    gaussian, laplace: (Σ d,) of all releases of that mechanism. choices: (points of all laws,) log-ratios of the laws
    of random choices. certain: whether the data sets differ in something that nothing hides.
    """

    gaussian: Array
    laplace: Array
    certain: bool
    choices: Array = _EMPTY

    def size(self, delta: float) -> float:
        """What the movement costs, roughly: to compare pairs of data sets by."""
        if self.certain:
            return float("inf")
        laplace, squares = float(np.abs(self.laplace).sum()), float((self.laplace**2).sum())
        if delta > 0.0:
            # Many small losses cost less than their sum.
            laplace = min(laplace, 0.5 * squares + float(np.sqrt(-2.0 * squares * np.log(delta))))
        if not np.isfinite(laplace + squares + (self.gaussian**2).sum()):
            return 0.0
        # Of equal sums, that on the fewest coordinates.
        chosen = float(np.abs(self.choices).max(initial=0.0))
        return float(np.sqrt((self.gaussian**2).sum()) + laplace + chosen + 1e-3 * np.sqrt(squares))

    def minus(self, other: Movement) -> Movement:
        """How far the data sets of both are apart, where both are from one data set."""
        certain = self.certain != other.certain
        chosen = self.choices - other.choices
        return Movement(self.gaussian - other.gaussian, self.laplace - other.laplace, certain, chosen)

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


@np.errstate(all="ignore")
def movement(transcript: Transcript, first: Mapping[Key, Made], second: Mapping[Key, Made]) -> Movement:
    """Find the differences of two data sets' queries on one transcript.

    Args:
        transcript: of a run of either.
        first, second: key → what each would have released; keys that one of them lacks are left out.
    """
    parts: dict[str, list[Array]] = {GAUSSIAN.name: [np.zeros(0)], LAPLACE.name: [np.zeros(0)]}
    certain, chosen = False, [np.zeros(0)]
    for key in transcript.releases:
        if key not in first or key not in second:
            continue
        noise, a, b = transcript.noise[key], first[key], second[key]
        if isinstance(a, Law) or isinstance(b, Law):
            if isinstance(a, Law) and isinstance(b, Law):
                chosen.append(a.logs - b.logs)
            continue
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
    gaussian, laplace = (np.concatenate(parts[name]) for name in (GAUSSIAN.name, LAPLACE.name))
    return Movement(gaussian, laplace, certain, np.concatenate(chosen))


def drawn_noise(sums: Iterable[tuple[str, int, float]]) -> tuple[float, float]:
    """An interval for how many times the stated scale the noise really has, over all mechanisms whose law is known.

    Where mechanisms contradict each other, it ends at the largest that any has, under which least is shown.

    Args:
        sums: mechanism's name, number of coordinates, and Σ r² (Gaussian) or Σ |r| (Laplace) of their noise in units
            of the scale.

    Returns:
        (low, high), which misses the truth with probability `NOISE_RISK`.
    """
    known = [each for each in sums if each[0] in (GAUSSIAN.name, LAPLACE.name)]
    if not known:
        return 0.0, np.inf
    tail = 0.5 * NOISE_RISK / len(known)
    ends = np.array([[_size(*each, q) for q in (1.0 - tail, tail)] for each in known])
    low, high = float(ends[:, 0].max()), float(ends[:, 1].min())
    return low, high if low <= high else float(ends[:, 1].max())


def _size(name: str, n: int, total: float, quantile: float) -> float:
    if name == GAUSSIAN.name:
        return float(np.sqrt(total / chi2.ppf(quantile, n)))
    return float(total / gamma.ppf(quantile, n))
