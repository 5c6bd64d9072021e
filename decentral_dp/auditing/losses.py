"""Distributions of the privacy loss between two data sets, and the ε(δ) that follows from them.

Given a transcript, the rounded query before noise is known in either data set. So the log-likelihood ratio of the
transcript is the sum over its releases. If the queries of the two data sets differ by the same vectors on every
transcript, the distribution of the ratio is known, and with it ε(δ).

ε(δ) is rounded down. The losses of independent releases add up: each is rounded down to one grid, and Fourier
transforms give the distribution of the sum. Mass beyond the grid is dropped, so δ(ε) is never overstated.

With sampling, a Bernoulli draw decides whether the victim's record is in the sample. Given the transcript so far and
the draws of all others, the releases of one index are those with the record, with probability q, or those without it.
So the likelihood of a transcript is

    Π_t ((1 − q_t)·L_t(without) + q_t·L_t(with)),

if no draw affects releases beyond its index. `has_separate_samples` tests this: draws that differ from index to index
must give the queries with the record, or those without it, at each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.stats import chi2, gamma, kstest, norm

from decentral_dp.auditing.transcripts import (
    ChoiceDistribution,
    Key,
    Made,
    Membership,
    Neighbours,
    Noise,
    Query,
    Transcript,
    grid_of,
    replay,
)
from decentral_dp.bounded import Array, Split
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from decentral_dp.simulation.jobs.job import PlannedJob

# Number of cells of the grid of losses.
_CELLS = 2**18
# Above this number, distinct shifts are rounded down to these steps of their logarithms.
_MOVES, _STEP = 64, 0.02
# Numbers of standard deviations (Gaussian) and scales (Laplace) that noise exceeds with probability 1e-19.
_FAR, _FAR_LAPLACE = 9.0, 44.0
# Number of outcomes of a release.
_OUTCOMES = 2**16
# Largest rounding error of a loss, about 1e-14.
_ROUNDING = 1e-12


def laplace_epsilon(moves: Array, delta: float) -> float:
    """Compute a lower bound on ε(δ) of independent Laplace releases.

    Args:
        moves: shifts in units of the scale, (n,).
        delta: value of δ, at least 0.

    Returns:
        ε at δ, rounded down. At δ = 0 it is the sum of all moves.
    """
    total = float(moves.sum())
    if delta == 0.0 or total == 0.0:
        return total
    # The mean loss is at most Σm²/2. By Hoeffding, it is exceeded by 9√Σm² with probability e^{−40}.
    squares = float((moves**2).sum())
    width = 2.0 * min(total, 0.5 * squares + 9.0 * float(np.sqrt(squares))) / (_CELLS // 2)
    steps = np.maximum(np.floor(_round_moves_down(moves) / width), 0.0).astype(np.int64)
    steps, counts = np.unique(steps[steps > 0], return_counts=True)
    laws = []
    for cells in steps.tolist():
        # P(loss ≥ l) for −move ≤ l ≤ move: the Laplace noise is at most (move − l)/2.
        edges, move = np.arange(-cells, cells + 1) * width, cells * width
        laws.append(_on_grid(np.where(edges <= -move, 1.0, 1.0 - 0.5 * np.exp(-0.5 * (move - edges))), cells))
    return _compose(laws, counts, width, delta)


def mixture_epsilon(moves: Array, rates: Array, delta: float, laplace: NDArray[np.bool_] | None = None) -> float:
    """Compute a lower bound on ε(δ) of sampled releases.

    If the record is in the sample, with probability q_i, release i is shifted up by u_i standard deviations (Laplace:
    scales). In the other data set it is shifted down by v_i. With noise N,

        P = (1 − q)N(0) + qN(u),    Q = (1 − q)N(0) + qN(−v).

    The likelihood ratio increases with the outcome, and ε increases with u and with v: the derivative of
    P(t, ∞) − e^ε Q(t, ∞) with respect to u or v is q, or q·e^ε, times a density.

    Args:
        moves: shifts u_i ≥ 0 and v_i ≥ 0, (n, 2).
        rates: sampling rates q_i, (n,).
        delta: value of δ, above 0.
        laplace: whether the noise is Laplace, (n,); by default all noise is Gaussian.

    Returns:
        ε at δ, rounded down.
    """
    laplace_rates = np.zeros(len(rates)) if laplace is None else laplace.astype(np.float64)
    columns = np.stack([_round_moves_down(moves[:, 0]), _round_moves_down(moves[:, 1]), rates, laplace_rates])
    kinds, counts = np.unique(columns, axis=1, return_counts=True)
    # Computed twice, since all mixtures may exceed the memory.
    tops, means, squares = np.array([_Mixture.from_moves(*kind).moments() for kind in kinds.T]).T
    spread = counts @ means + _FAR * np.sqrt(counts @ squares) + tops.max()
    reach = min(float(counts @ tops), float(spread))
    if reach <= 0.0:
        return 0.0
    width = 2.0 * reach / (_CELLS // 2)
    laws = (_Mixture.from_moves(*kind).on_grid(top, width) for kind, top in zip(kinds.T, tops, strict=True))
    return _compose(laws, counts, width, delta)


def _round_moves_down(moves: Array) -> Array:
    """Round shifts down, which rounds ε down."""
    if np.unique(moves).size <= _MOVES:
        return moves
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(_STEP * np.floor(np.log(moves) / _STEP)))


def _compose(laws: Iterable[Array], counts: NDArray[np.int64], width: float, delta: float) -> float:
    """Return ε(δ) of the sum of losses with distributions (_CELLS,) on the grid, each `count` times."""
    transform = np.ones(_CELLS // 2 + 1, dtype=np.complex128)
    for law, count in zip(laws, counts, strict=True):
        # The grid is circular, and wide enough.
        transform *= np.fft.rfft(law) ** int(count)
    law = np.maximum(np.fft.irfft(transform, _CELLS), 0.0)
    losses = np.where(np.arange(_CELLS) < _CELLS // 2, np.arange(_CELLS), np.arange(_CELLS) - _CELLS) * width
    # Rounding errors of the transforms, about 1e-16 a cell, are not mass.
    law = np.where(law < 1e-14, 0.0, law)
    return least_epsilon(law, losses, delta)


def least_epsilon(law: Array, losses: Array, delta: float) -> float:
    """Compute the least ε ≥ 0 with Σ law·(1 − e^{ε − loss})₊ ≤ δ, by bisection.

    Args:
        law: probabilities, (n,).
        losses: privacy losses, (n,).
        delta: value of δ.

    Returns:
        The least ε, rounded down.
    """
    low, high = 0.0, max(0.0, float(losses.max()))
    for _ in range(60):
        middle = 0.5 * (low + high)
        spent_delta = float((law * np.maximum(-np.expm1(np.minimum(middle - losses, 0.0)), 0.0)).sum())
        low, high = (middle, high) if spent_delta > delta else (low, middle)
    return low


class _Mixture(NamedTuple):
    """Sampled release: privacy losses of ascending outcomes, and P(outcome ≥ each), (_OUTCOMES,) each."""

    loss: Array
    survival: Array

    @classmethod
    def from_moves(cls, up: float, down: float, rate: float, laplace: float) -> _Mixture:
        """Build a release shifted up with the first record and down with the second (`laplace` is 1 for Laplace)."""
        far = _FAR_LAPLACE if laplace else _FAR
        outcomes = np.linspace(-down - far, up + far, _OUTCOMES)
        at_least = stats.laplace.sf if laplace else stats.norm.sf
        ratios = [
            np.abs(outcomes) - np.abs(outcomes - move) if laplace else move * outcomes - 0.5 * move * move
            for move in (up, -down)
        ]
        left_out = np.log1p(-rate) if rate < 1.0 else -np.inf
        first, second = (np.logaddexp(left_out, np.log(rate) + ratio) for ratio in ratios)
        # Rounded down by more than the float64 error of the ratio.
        return cls(first - second - _ROUNDING, (1.0 - rate) * at_least(outcomes) + rate * at_least(outcomes - up))

    def moments(self) -> tuple[float, float, float]:
        """Return the largest loss, the mean and the variance."""
        law = self.survival - np.append(self.survival[1:], 0.0)
        mean = float(law @ self.loss)
        return max(0.0, float(self.loss[-1])), mean, float(law @ (self.loss - mean) ** 2)

    def on_grid(self, top: float, width: float) -> Array:
        """Return the distribution of the loss, (_CELLS,), rounded down to the grid. `top` is the largest loss."""
        cells = int(top / width)
        edges = np.arange(-cells, cells + 1) * width
        # First outcome whose loss reaches the edge.
        first = np.searchsorted(np.maximum.accumulate(self.loss), edges)
        return _on_grid(np.append(self.survival, 0.0)[first], cells)


def _on_grid(above: Array, cells: int) -> Array:
    """Return masses (_CELLS,), negative losses at the end, from P(loss ≥ edge) at −cells … cells, (2·cells + 1,)."""
    law = np.zeros(_CELLS)
    law[np.arange(-cells, cells + 1)] = above - np.append(above[1:], 0.0)
    return law


# Likelihoods of one transcript


_EMPTY: Array = np.zeros(0)
# Risk of the interval of the noise's size.
NOISE_RISK = 1e-3


@np.errstate(all="ignore")
def log_ratio(transcript: Transcript, first: Mapping[Key, Made], second: Mapping[Key, Made]) -> float:
    """Return the log-likelihood ratio of a transcript between the first and the second queries.

    It is ±inf if one of the data sets cannot produce the transcript. For mechanisms other than Gaussian and Laplace it
    is the ratio for normal noise, which is a score but not a likelihood ratio.
    """
    keys = [key for key in transcript.releases if key in first and key in second]
    return sum_of_ratios(zip(*(log_likelihoods(transcript, keys, side) for side in (first, second)), strict=True))


def sum_of_ratios(logs: Iterable[tuple[float, float]]) -> float:
    """Return Σ (first − second) of log-likelihoods, without terms where both are impossible; ±inf if only one is."""
    total = sum(first - second for first, second in logs if not (first == -math.inf and second == -math.inf))
    # A run that overflows scores 0.
    return 0.0 if math.isnan(total) else float(total)


def log_likelihoods(transcript: Transcript, keys: Sequence[Key], queries: Mapping[Key, Made]) -> list[float]:
    """Compute, up to constants, the log-density of each release given all earlier releases.

    Args:
        transcript: transcript of a run.
        keys: index and channel of each release.
        queries: key → query, or distribution of the choice, in one data set.

    Returns:
        The log-densities, which are −inf for impossible releases.
    """
    logs, normal = dict[Key, float](), dict[tuple[int, ...], list[tuple[Key, Query, Noise]]]()
    for key in keys:
        released, noise, query = transcript.releases[key], transcript.noise[key], queries[key]
        if isinstance(query, ChoiceDistribution):
            logs[key] = query.log_at(released)
        elif noise is None:
            value = _value(query)
            # The second comparison is slow.
            is_equal = np.array_equal(released, value) or np.array_equal(released, value, equal_nan=True)
            logs[key] = 0.0 if is_equal else -math.inf
        elif noise.mechanism == LAPLACE:
            g = grid_of(noise)
            integers = np.rint((released - transcript.noise_means.get(key, 0.0) - query.public) / g)
            private = np.zeros_like(released) if query.private is None else query.private
            # Rounded down with probability 1 − up, else up, plus a difference of two geometric variables.
            scale, floor = noise.scale / g, np.floor(private / g)
            up, steps = private / g - floor, integers - floor
            rounded_up = np.expm1((np.abs(steps) - np.abs(steps - 1.0)) / scale)
            logs[key] = float((-np.abs(steps) / scale + np.log1p(up * rounded_up)).sum())
        else:
            normal.setdefault(released.shape, []).append((key, query, noise))
    for shape, group in normal.items():
        # All releases of one shape in the same calls, since an audit has hundreds per run.
        zeros = np.zeros(shape)
        arrays, numbers = list[tuple[Array, ...]](), list[tuple[float, ...]]()
        for key, query, n in group:
            private = zeros if query.private is None else query.private
            arrays.append((transcript.releases[key], transcript.noise_means.get(key, zeros), query.public, private))
            numbers.append((grid_of(n), n.scale * n.mechanism.deviation, n.mechanism.rounds_at_random(n.width)))
        released, mean, public, private = np.array(arrays).reshape(len(group), 4, -1).swapaxes(0, 1)
        g, deviation, is_random = np.array(numbers).T[..., None]
        centre = np.where(is_random, private / g, np.rint(private / g))
        distance = (np.rint((released - mean - public) / g) - centre) * (g / deviation)
        logs.update(zip((key for key, _, _ in group), (-0.5 * distance**2).sum(axis=1).tolist(), strict=True))
    return [logs[key] for key in keys]


def _value(query: Query) -> Array:
    return query.public if query.private is None else query.public + query.private


def close(first: Array, second: Array, rtol: float, least: float = 0.0) -> bool:
    """Return whether two arrays have the same shape, are finite, and differ by at most `rtol`.

    Args:
        first, second: arrays of any shape.
        rtol: tolerance relative to the largest absolute value of `first`, or to `least` if that is larger.
        least: smallest reference value of `rtol`.
    """
    if first.shape != second.shape or not (np.isfinite(first).all() and np.isfinite(second).all()):
        return False
    largest = max(least, float(np.abs(first).max(initial=0.0)))
    return bool(np.abs(first - second).max(initial=0.0) <= rtol * largest)


class Movement(NamedTuple):
    """Difference between the queries of two data sets, in units of the noise scale.

    Args:
        gaussian, laplace: differences in all releases of that mechanism, (Σ d,).
        certain: whether noiseless values differ.
        choices: log-ratios of the distributions of random choices, at all points.
    """

    gaussian: Array
    laplace: Array
    certain: bool
    choices: Array = _EMPTY

    def size(self, delta: float) -> float:
        """Return the approximate privacy loss, to compare pairs of data sets."""
        if self.certain:
            return float("inf")
        laplace, squares = float(np.abs(self.laplace).sum()), float((self.laplace**2).sum())
        if delta > 0.0:
            # Advanced composition.
            laplace = min(laplace, 0.5 * squares + float(np.sqrt(-2.0 * squares * np.log(delta))))
        if not np.isfinite(laplace + squares + (self.gaussian**2).sum()):
            return 0.0
        # Ties go to the fewest coordinates.
        chosen = float(np.abs(self.choices).max(initial=0.0))
        return float(np.sqrt((self.gaussian**2).sum()) + laplace + chosen + 1e-3 * np.sqrt(squares))

    def minus(self, subtrahend: Movement) -> Movement:
        """Return the movement between two data sets from their movements relative to a third data set."""
        certain = self.certain != subtrahend.certain
        chosen = self.choices - subtrahend.choices
        return Movement(self.gaussian - subtrahend.gaussian, self.laplace - subtrahend.laplace, certain, chosen)

    def epsilon(self, delta: float, noise: float = 1.0) -> float:
        """Return ε at δ, rounded down, if the scale of the drawn noise is `noise` times the stated scale."""
        if self.certain:
            return float("inf")
        mu = float(np.sqrt((self.gaussian**2).sum())) / noise
        moves = np.abs(self.laplace[self.laplace != 0.0]) / noise
        if not moves.size:
            return float(gaussian_epsilon(mu, delta))
        # The larger of both bounds is a bound.
        gaussian = 0.0 if mu == 0.0 else float(gaussian_epsilon(mu, delta))
        return max(gaussian, laplace_epsilon(moves, delta))


@np.errstate(all="ignore")
def compute_movement(transcript: Transcript, first: Mapping[Key, Made], second: Mapping[Key, Made]) -> Movement:
    """Compute the differences between the queries of two data sets on one transcript.

    Args:
        transcript: transcript of a run on either data set.
        first, second: key → query in each data set. Keys that are missing in one of them are omitted.
    """
    parts: dict[str, list[Array]] = {GAUSSIAN.name: [np.zeros(0)], LAPLACE.name: [np.zeros(0)]}
    certain, chosen = False, [np.zeros(0)]
    for key in transcript.releases:
        if key not in first or key not in second:
            continue
        noise, a, b = transcript.noise[key], first[key], second[key]
        if isinstance(a, ChoiceDistribution) or isinstance(b, ChoiceDistribution):
            if isinstance(a, ChoiceDistribution) and isinstance(b, ChoiceDistribution):
                chosen.append(a.logs - b.logs)
            continue
        if noise is None or noise.mechanism.name not in parts:
            certain = certain or (noise is None and not np.array_equal(_value(a), _value(b), equal_nan=True))
            if noise is not None:
                # The distribution of a custom mechanism is unknown, so only the size is used.
                parts[GAUSSIAN.name].append((_value(a) - _value(b)) / (noise.scale * noise.mechanism.deviation))
            continue
        certain = certain or not np.array_equal(a.public, b.public, equal_nan=True)
        private = [np.zeros_like(q.public) if q.private is None else q.private for q in (a, b)]
        if noise.mechanism == GAUSSIAN and not GAUSSIAN.rounds_at_random(noise.width):
            private = [np.rint(v / grid_of(noise)) * grid_of(noise) for v in private]
        parts[noise.mechanism.name].append((private[0] - private[1]) / noise.scale)
    gaussian, laplace = (np.concatenate(parts[name]) for name in (GAUSSIAN.name, LAPLACE.name))
    return Movement(gaussian, laplace, certain, np.concatenate(chosen))


def drawn_noise(sums: Iterable[tuple[str, int, float]]) -> tuple[float, float]:
    """Return a confidence interval for the scale of the drawn noise relative to the stated scale.

    If mechanisms contradict each other, its upper end is the largest of their upper ends, which gives the smallest ε.

    Args:
        sums: name of a mechanism, number of coordinates, and Σ r² (Gaussian) or Σ |r| (Laplace) of their noise in units
            of the scale.

    Returns:
        The interval (low, high), with risk `NOISE_RISK`.
    """
    noisy_sums = [entry for entry in sums if entry[0] in (GAUSSIAN.name, LAPLACE.name)]
    if not noisy_sums:
        return 0.0, np.inf
    tail = 0.5 * NOISE_RISK / len(noisy_sums)
    quantiles = np.array([1.0 - tail, tail])
    ends = np.array(
        [
            np.sqrt(total / chi2.ppf(quantiles, n)) if name == GAUSSIAN.name else total / gamma.ppf(quantiles, n)
            for name, n, total in noisy_sums
        ]
    )
    low, high = float(ends[:, 0].max()), float(ends[:, 1].min())
    return low, high if low <= high else float(ends[:, 1].max())


# Losses with sampling


# Difference of queries, relative to their noise, due to float64 rounding.
_EQUAL_WITHIN = 1e-6

Replay = Mapping[Key, Made]
Replays = tuple[Replay, Replay]
"""Replays of one data set: with its record in every sample, and in none."""


def is_amplified(job: PlannedJob) -> bool:
    """Return whether the guarantee uses amplification by sampling."""
    return any((rate < 1.0).any() for c in job.ledger.channels for rate in c.rate.values())


def sampling_rates(job: PlannedJob, victim: int, split: Split) -> Mapping[int, float] | None:
    """Return the sampling rates of one agent's records.

    Args:
        job: planned job.
        victim: index of the agent.
        split: split of the records.

    Returns:
        Index → rate q, which is 1 without sampling. The result is None if an index has two rates.
    """
    rates: dict[int, float] = {}
    for c in job.ledger.charged_channels:
        column = int(c.group[victim])
        reads = c.sensitivity[split][:, column] > 0.0 if split in c.sensitivity else np.zeros(c.rounds.size, bool)
        for index, rate in zip(c.rounds[reads].tolist(), c.rate[split][reads, column].tolist(), strict=True):
            if rates.setdefault(index, rate) != rate:
                return None
    return rates


def replay_both(neighbours: Neighbours, transcript: Transcript) -> tuple[Replays, Replays]:
    """Replay a transcript on both data sets, once with the victim's record in all samples and once in none.

    Args:
        neighbours: two jobs that differ in one record.
        transcript: transcript of a run whose samples contain all other records.
    """
    members, left_out = Membership(neighbours.split, "in"), Membership(neighbours.split, "out")
    first, second = (
        (replay(job, neighbours.victim, transcript, members), replay(job, neighbours.victim, transcript, left_out))
        for job in (neighbours.first, neighbours.second)
    )
    return first, second


def has_separate_samples(neighbours: Neighbours, transcript: Transcript) -> bool:
    """Return whether each sample affects only the releases of its index.

    Args:
        neighbours: two jobs that differ in one record.
        transcript: transcript of a run of one of them.
    """
    for side, (members, left_out) in zip(
        (neighbours.first, neighbours.second), replay_both(neighbours, transcript), strict=True
    ):
        by_draw = replay(side, neighbours.victim, transcript, Membership(neighbours.split, "by coin"))
        for keys in _group_by_index(transcript).values():
            if not any(
                all(_are_equal_queries(transcript, k, by_draw, alternative) for k in keys)
                for alternative in (members, left_out)
            ):
                return False
    return True


def find_memberships(neighbours: Neighbours, transcript: Transcript) -> dict[int, bool]:
    """Return the samples that contained the victim's record.

    Args:
        neighbours: two jobs that differ in one record.
        transcript: transcript of a run of the first job.

    Returns:
        Index → whether the record was in its sample, for indices that it moves. A record that always affects an index
        was in its sample.
    """
    (members, left_out), (second, _) = replay_both(neighbours, transcript)
    membership = {}
    for index, keys in _group_by_index(transcript).items():
        is_replayed = all(key in transcript.queries for key in keys)
        if is_replayed and not all(_are_equal_queries(transcript, k, members, second) for k in keys):
            included_here = all(_are_equal_queries(transcript, k, transcript.queries, members) for k in keys)
            membership[index] = included_here or all(_are_equal_queries(transcript, k, members, left_out) for k in keys)
    return membership


@np.errstate(all="ignore")
def mixture_log_ratio(neighbours: Neighbours, transcript: Transcript, rates: Mapping[int, float]) -> float:
    """Compute the log-likelihood ratio of two data sets, over the draws of the victim's record.

    Args:
        neighbours: two jobs that differ in one record.
        transcript: transcript of a run of one of them.
        rates: index → sampling rate q, by default 1.

    Returns:
        The log-likelihood ratio, which is ±inf if one of the data sets cannot produce the transcript.
    """
    first, second = replay_both(neighbours, transcript)
    keys_with_rates = [(keys, rates.get(index, 1.0)) for index, keys in _group_by_index(transcript).items()]
    return sum_of_ratios(
        (_log_mixture(transcript, keys, first, rate), _log_mixture(transcript, keys, second, rate))
        for keys, rate in keys_with_rates
    )


class Shifts(NamedTuple):
    """Shifts of sampled releases by a record, each along one line.

    Args:
        shifts: shifts in standard deviations (Laplace: scales), (n, 2), up with the record of the first data set and
            down with the record of the second.
        rates: sampling rates q, (n,).
        laplace: whether the noise is Laplace, (n,).
    """

    shifts: Array
    rates: Array
    laplace: NDArray[np.bool_]

    def epsilon(self, delta: float, noise: float = 1.0) -> float:
        """Compute ε of opposite shifts of sampled releases, from below.

        Args:
            delta: value of δ, above 0.
            noise: scale of the drawn noise relative to the stated scale.
        """
        moving = self.shifts.sum(axis=1) > 0.0
        if not moving.any():
            return 0.0
        moves = self.shifts[moving] / noise
        # Both directions. The larger costs no confidence, since no data are involved.
        directions = [
            mixture_epsilon(m, self.rates[moving], delta, self.laplace[moving]) for m in (moves, moves[:, ::-1])
        ]
        return max(directions)


def opposite_moves(neighbours: Neighbours, transcript: Transcript, rates: Mapping[int, float]) -> Shifts | None:
    """Compute the shifts of sampled releases in opposite directions along one line.

    The record of the first data set shifts the releases of an index by u, the record of the second by v. A projection
    on a line is post-processing. For Gaussian noise the line is along u − v, or orthogonal to v or u, so a record that
    shifts nothing stays visible. For Laplace noise it is one coordinate.

    Args:
        neighbours: two jobs that differ in one record.
        transcript: transcript of a run of one of them.
        rates: index → sampling rate q, by default 1.

    Returns:
        Shifts of the indices that read the record; None for other noise, or if the two data sets differ without the
        record.
    """
    (first, first_without), (second, second_without) = replay_both(neighbours, transcript)
    moves, draw_rates, laplace = [], [], []
    replays = (first_without, second, second_without)
    for index, all_keys in _group_by_index(transcript).items():
        # A release that the record never shifts is public.
        keys = [
            key for key in all_keys if not all(_are_equal_queries(transcript, key, first, replay) for replay in replays)
        ]
        laws = {None if (n := transcript.noise[key]) is None else n.mechanism for key in keys}
        if not keys:
            continue
        if laws not in ({GAUSSIAN}, {LAPLACE}):
            return None
        u, v = (
            np.concatenate([_query_move(transcript, key, *pair) for key in keys])
            for pair in ((first, first_without), (second, second_without))
        )
        between = np.concatenate([_query_move(transcript, key, first_without, second_without) for key in keys])
        if np.abs(between).max(initial=0.0) > _EQUAL_WITHIN:
            return None
        if np.abs(u - v).max(initial=0.0) > _EQUAL_WITHIN:
            is_laplace = laws == {LAPLACE}
            # Convert standard deviations to scales of Laplace noise.
            unit = LAPLACE.deviation if is_laplace else 1.0
            moves.append(_coordinate(unit * u, unit * v) if is_laplace else _line(u, v))
            draw_rates.append(rates.get(index, 1.0))
            laplace.append(is_laplace)
    return Shifts(np.array(moves).reshape(-1, 2), np.array(draw_rates), np.array(laplace, dtype=bool))


def _line(u: Array, v: Array) -> tuple[float, float]:
    """Return u and −v along u − v if neither is negative, or the part of u orthogonal to v, or of v to u."""
    line = u - v
    length = float(np.linalg.norm(line))
    up, down = float(u @ line) / length, -float(v @ line) / length
    if up >= 0.0 and down >= 0.0:
        return up, down
    return (_residual_norm(u, v), 0.0) if down < 0.0 else (0.0, _residual_norm(v, u))


def _residual_norm(first: Array, second: Array) -> float:
    square = float(second @ second)
    return float(np.linalg.norm(first - second * (float(first @ second) / square))) if square > 0.0 else 0.0


def _coordinate(u: Array, v: Array) -> tuple[float, float]:
    """Return the shifts on the coordinate with the largest distance of u and v on opposite sides of zero, or 0.

    Coordinates with u and v on one side are ignored: replacing the smaller shift by 0 would overstate ε.
    """
    signs = np.where(u >= v, 1.0, -1.0)
    opposite = (signs * u >= 0.0) & (signs * v <= 0.0)
    up, down = np.where(opposite, signs * u, 0.0), np.where(opposite, -signs * v, 0.0)
    best = int(np.argmax(up + down))
    return float(up[best]), float(down[best])


def _log_mixture(transcript: Transcript, keys: list[Key], side: Replays, rate: float) -> float:
    with_it, without = (sum(log_likelihoods(transcript, keys, replay)) for replay in side)
    if rate >= 1.0:
        return with_it
    return float(np.logaddexp(np.log(rate) + with_it, np.log1p(-rate) + without))


def _group_by_index(transcript: Transcript) -> dict[int, list[Key]]:
    keys_of: dict[int, list[Key]] = {}
    for key in transcript.releases:
        keys_of.setdefault(key[0], []).append(key)
    return keys_of


@np.errstate(all="ignore")
def _are_equal_queries(transcript: Transcript, key: Key, first: Replay, second: Replay) -> bool:
    if key not in first or key not in second:
        return key not in first and key not in second
    return bool(np.abs(_query_move(transcript, key, first, second)).max(initial=0.0) <= _EQUAL_WITHIN)


def _query_move(transcript: Transcript, key: Key, first: Replay, second: Replay) -> Array:
    """Return the difference of two queries in standard deviations of the noise; infinite without noise."""
    a, b, noise = first[key], second[key], transcript.noise[key]
    if not isinstance(a, Query) or not isinstance(b, Query):
        return np.zeros(0)
    if noise is None:
        return np.where(_value(a) == _value(b), 0.0, np.inf)
    return np.asarray((_value(a) - _value(b)) / (noise.scale * noise.mechanism.deviation))


# Risk of the tests of choices and samples.
_RISK = 1e-3
# Number of runs of the test of samples.
_SAMPLED_RUNS = 30


class Choice(NamedTuple):
    """Log-probabilities (n,) of a random choice in either data set."""

    first: Array
    second: Array

    def epsilon(self, delta: float, noise: float = 1.0) -> float:
        """Compute the least ε for which the two distributions are (ε, δ)-indistinguishable, for any noise."""
        loss = self.first - self.second
        if delta == 0.0:
            return float(np.abs(loss).max())
        return max(least_epsilon(np.exp(self.first), loss, delta), least_epsilon(np.exp(self.second), -loss, delta))


LossDistribution: TypeAlias = Movement | Shifts | Choice
"""The distribution of the privacy loss between two data sets."""


def are_close(first: LossDistribution, second: LossDistribution, rtol: float) -> bool:
    """Return whether two distributions are the same up to a relative tolerance."""
    if type(first) is not type(second):
        return False
    # Logarithms of probabilities may be near 0.
    least = 1.0 if isinstance(first, Choice) else 0.0
    pairs = ((np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(first, second, strict=True))
    return all(close(a, b, rtol, least) for a, b in pairs)


def find_loss_distribution(transcript: Transcript, neighbours: Neighbours) -> LossDistribution | None:
    """Return the distribution of the privacy loss, or None if the shifts of queries depend on the transcript.

    Args:
        transcript: transcript of a run.
        neighbours: two jobs that differ in one record.
    """
    if not transcript.is_replayable:
        return None
    if is_amplified(neighbours.first):
        rates = sampling_rates(neighbours.first, neighbours.victim, neighbours.split)
        is_supported = rates is not None and not transcript.choices and neighbours.first.scenario.privacy.delta > 0.0
        if rates is None or not is_supported or not has_separate_samples(neighbours, transcript):
            return None
        return opposite_moves(neighbours, transcript, rates)
    first, second = (replay(w, neighbours.victim, transcript) for w in (neighbours.first, neighbours.second))
    movements = compute_movement(transcript, first, second)
    if not transcript.choices:
        return movements
    (key, *other_keys) = transcript.choices
    laws = first.get(key), second.get(key)
    alone = not other_keys and not movements.certain and not movements.gaussian.any() and not movements.laplace.any()
    if alone and isinstance(laws[0], ChoiceDistribution) and isinstance(laws[1], ChoiceDistribution):
        return Choice(laws[0].logs, laws[1].logs)
    return None


def refute_stated_laws(neighbours: Neighbours, roots: Sequence[bytes]) -> str:
    """Test whether random choices and samples of the first data set have their stated distributions.

    The quantiles of choices must be uniform (Kolmogorov–Smirnov). The number of samples with the victim's record must
    agree with the rates.

    Args:
        neighbours: two jobs that differ in one record.
        roots: noise keys of the runs.

    Returns:
        A sentence about the contradiction, or "".
    """
    if is_amplified(neighbours.first):
        return _test_sampling(neighbours, roots[:_SAMPLED_RUNS])
    places, replays = [], None
    for k, root in enumerate(roots):
        transcript = neighbours.observe(neighbours.first, root)
        if not transcript.choices:
            return ""
        # The first release has the same distribution in every run.
        if replays is None or len(transcript.releases) > 1:
            replays = replay(neighbours.first, neighbours.victim, transcript)
        toss = np.random.default_rng(k)
        for key in transcript.choices:
            law = replays.get(key)
            if not isinstance(law, ChoiceDistribution):
                return "The distribution of a random choice is unknown, and so are likelihoods."
            places.append(law.place_of(transcript.releases[key], float(toss.random())))
    if float(kstest(places, "uniform").pvalue) >= _RISK:
        return ""
    return "Random choices do not have the stated distribution, so likelihoods are not used."


def _test_sampling(neighbours: Neighbours, roots: Sequence[bytes]) -> str:
    """Test the number of samples with the record, by the normal approximation."""
    rates = sampling_rates(neighbours.first, neighbours.victim, neighbours.split)
    if rates is None:
        return ""
    count, mean, variance = 0, 0.0, 0.0
    for root in roots:
        memberships = find_memberships(neighbours, neighbours.observe(neighbours.first, root))
        for index, members in memberships.items():
            rate = rates.get(index, 1.0)
            count, mean, variance = count + members, mean + rate, variance + rate * (1.0 - rate)
    # With continuity correction.
    if abs(count - mean) <= 0.5 + float(norm.isf(0.5 * _RISK)) * np.sqrt(variance):
        return ""
    return f"The record was in {count} samples (expected {mean:.4g}), so likelihoods at the stated rates are not used."
