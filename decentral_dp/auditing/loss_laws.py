"""Laws of the privacy loss of a whole transcript, and likelihoods of releases on samples.

A coin decides whether the victim's record was drawn. Given the transcript so far and how the others were drawn, the
releases of one index are those with the record, with probability q, or those without it. So the likelihood of a
transcript is

    Π_t ((1 − q_t)·L_t(without) + q_t·L_t(with)),

if no coin is remembered beyond its index. Whether that is so is tried: coins that differ from index to index must give
the queries with the record, or those without it, at each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from decentral_dp.auditing.laws import Law, choice_epsilon, mixture_epsilon
from decentral_dp.auditing.likelihoods import Movement, close, log_likelihood, movement, sum_of_ratios
from decentral_dp.auditing.neighbours import Neighbours, among_copies, farthest
from decentral_dp.auditing.transcripts import Key, Made, Membership, Query, Transcript, replay
from decentral_dp.bounded import Array, Split
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from decentral_dp.simulation.jobs.job import Job

# Queries that differ by less than this part of their noise are the same but for float64.
_EQUAL_WITHIN = 1e-6

Replay = Mapping[Key, Made]


class Replays(NamedTuple):
    """What one data set makes of a transcript: with its record in every sample, and in none."""

    with_record: Replay
    without_record: Replay


def is_amplified(job: Job) -> bool:
    """Whether the price counts on an observer who does not see who was drawn."""
    return any((rate < 1.0).any() for c in job.ledger.channels for rate in c.rate.values())


def sampling_rates(job: Job, victim: int, split: Split) -> Mapping[int, float] | None:
    """Find the rates at which releases sample one agent's records of a kind.

    Args:
        job: planned.
        victim: number of the agent.
        split: kind of record.

    Returns:
        Index → q, 1 where the record is read for certain; None where one index has two rates.
    """
    rates: dict[int, float] = {}
    for c in job.ledger.charged_channels:
        column = int(c.group[victim])
        reads = c.sensitivity[split][:, column] > 0.0 if split in c.sensitivity else np.zeros(c.rounds.size, bool)
        for index, rate in zip(c.rounds[reads].tolist(), c.rate[split][reads, column].tolist(), strict=True):
            if rates.setdefault(index, rate) != rate:
                return None
    return rates


def replays(neighbours: Neighbours, transcript: Transcript) -> tuple[Replays, Replays]:
    """Find what both data sets make of a transcript, the victim's record in every sample and in none.

    Args:
        neighbours: two jobs that differ in one record.
        transcript: of a run, whose samples all other records have.

    Returns:
        Of the first data set and of the second.
    """
    both = [
        Replays(*(replay(w, neighbours.victim, transcript, Membership(neighbours.split, m)) for m in ("in", "out")))
        for w in (neighbours.first, neighbours.second)
    ]
    return both[0], both[1]


def separate(neighbours: Neighbours, transcript: Transcript) -> bool:
    """Say whether each sample bears on its own releases alone.

    Args:
        neighbours: two jobs that differ in one record.
        transcript: of a run of one of them.

    Returns:
        Whether every index's queries are those with the record or those without it, whatever the coins of others.
    """
    for side, (included, left_out) in zip(
        (neighbours.first, neighbours.second), replays(neighbours, transcript), strict=True
    ):
        by_coin = replay(side, neighbours.victim, transcript, Membership(neighbours.split, "by coin"))
        for keys in _by_index(transcript).values():
            if not any(
                all(_are_equal_queries(transcript, k, by_coin, other) for k in keys) for other in (included, left_out)
            ):
                return False
    return True


def membership_of(neighbours: Neighbours, transcript: Transcript) -> dict[int, bool]:
    """Find in which samples the victim's record was.

    Args:
        neighbours: two jobs that differ in one record.
        transcript: of a run of the first.

    Returns:
        Index → whether the record was in its sample, of indices that it moves. A record that moves an index whatever
        its coin was in it.
    """
    (included, left_out), (other, _) = replays(neighbours, transcript)
    membership = {}
    for index, keys in _by_index(transcript).items():
        known = all(key in transcript.queries for key in keys)
        if known and not all(_are_equal_queries(transcript, k, included, other) for k in keys):
            included_here = all(_are_equal_queries(transcript, k, transcript.queries, included) for k in keys)
            membership[index] = included_here or all(
                _are_equal_queries(transcript, k, included, left_out) for k in keys
            )
    return membership


@np.errstate(all="ignore")
def mixture_log_ratio(neighbours: Neighbours, transcript: Transcript, rates: Mapping[int, float]) -> float:
    """Compute the log-likelihood ratio of two data sets, over the coins of the victim's record.

    Args:
        neighbours: two jobs that differ in one record.
        transcript: of a run of one of them.
        rates: index → q, 1 where there is none.

    Returns:
        log of how much likelier the transcript is in the first data set; ±inf where it is impossible in one.
    """
    first, second = replays(neighbours, transcript)
    rated = [(keys, rates.get(index, 1.0)) for index, keys in _by_index(transcript).items()]
    return sum_of_ratios(
        (_log_mixture(transcript, keys, first, rate), _log_mixture(transcript, keys, second, rate))
        for keys, rate in rated
    )


class Shifts(NamedTuple):
    """How far a record moves releases on samples, seen along one line each.

    shifts: (n, 2) in deviations (scales, of Laplace noise), up with the record of the first data set, and down with
    that of the second. rates: (n,) q. laplace: (n,) whether that is the noise.
    """

    shifts: Array
    rates: Array
    laplace: NDArray[np.bool_]

    def epsilon(self, delta: float, noise: float = 1.0) -> float:
        """Compute the ε that opposite moves on samples show, of either data set beside the other.

        Args:
            delta: δ > 0.
            noise: the drawn noise over the stated one; default 1.

        Returns:
            ε that holds at δ for such moves, or less.
        """
        there = self.shifts.sum(axis=1) > 0.0
        if not there.any():
            return 0.0
        moves = self.shifts[there] / noise
        # Mirrored, the second record moves up. These are laws and not data: the larger costs no confidence.
        both = [mixture_epsilon(m, self.rates[there], delta, self.laplace[there]) for m in (moves, moves[:, ::-1])]
        return max(both)


def opposite_moves(neighbours: Neighbours, transcript: Transcript, rates: Mapping[int, float]) -> Shifts | None:
    """Find how far a record moves releases on samples, in opposite directions along one line.

    With the record of the first data set the releases of an index are moved by u, with that of the second by v, both
    from those without it. What is seen along one line is post-processing. Of Gaussian noise it is the line along
    u − v, or across v, or across u, which makes a record that moves nothing visible. Of Laplace noise it is one
    coordinate.

    Args:
        neighbours: two jobs that differ in one record.
        transcript: of a run of one of them.
        rates: index → q, 1 where there is none.

    Returns:
        The moves of indices that read the record; None where the law of the noise, or the two data sets without the
        record, leave it open.
    """
    first, second = replays(neighbours, transcript)
    moves, drawn, laplace = [], [], []
    for index, all_keys in _by_index(transcript).items():
        # What the record moves neither here nor there is public.
        keys = [key for key in all_keys if not _is_unmoved(transcript, key, first, second)]
        laws = {None if (n := transcript.noise[key]) is None else n.mechanism for key in keys}
        if not keys:
            continue
        if laws not in ({GAUSSIAN}, {LAPLACE}):
            return None
        u, v = (
            np.concatenate([_query_move(transcript, key, w.with_record, w.without_record) for key in keys])
            for w in (first, second)
        )
        between = np.concatenate(
            [_query_move(transcript, key, first.without_record, second.without_record) for key in keys]
        )
        if np.abs(between).max(initial=0.0) > _EQUAL_WITHIN:
            return None
        if np.abs(u - v).max(initial=0.0) > _EQUAL_WITHIN:
            is_laplace = laws == {LAPLACE}
            # `_query_move` is in deviations, of which a Laplace variable has √2 in its scale.
            unit = LAPLACE.deviation if is_laplace else 1.0
            moves.append(_coordinate(unit * u, unit * v) if is_laplace else _line(u, v))
            drawn.append(rates.get(index, 1.0))
            laplace.append(is_laplace)
    return Shifts(np.array(moves).reshape(-1, 2), np.array(drawn), np.array(laplace, dtype=bool))


def _is_unmoved(transcript: Transcript, key: Key, first: Replays, second: Replays) -> bool:
    others = (first.without_record, second.with_record, second.without_record)
    return all(_are_equal_queries(transcript, key, first.with_record, other) for other in others)


def _line(u: Array, v: Array) -> tuple[float, float]:
    """u and −v along the line of u − v, if neither is negative there; else what u has across v, or v across u."""
    line = u - v
    length = float(np.linalg.norm(line))
    up, down = float(u @ line) / length, -float(v @ line) / length
    if up >= 0.0 and down >= 0.0:
        return up, down
    return (_residual_norm(u, v), 0.0) if down < 0.0 else (0.0, _residual_norm(v, u))


def _residual_norm(one: Array, other: Array) -> float:
    squared = float(other @ other)
    return float(np.linalg.norm(one - other * (float(one @ other) / squared))) if squared > 0.0 else 0.0


def _coordinate(u: Array, v: Array) -> tuple[float, float]:
    """The coordinate in which u and v lie farthest apart on both sides of zero; 0 where there is none.

    Where both lie on one side, the nearer one is no 0: without it the other would show more than there is.
    """
    turned = np.where(u >= v, 1.0, -1.0)
    opposite = (turned * u >= 0.0) & (turned * v <= 0.0)
    up, down = np.where(opposite, turned * u, 0.0), np.where(opposite, -turned * v, 0.0)
    best = int(np.argmax(up + down))
    return float(up[best]), float(down[best])


def _log_mixture(transcript: Transcript, keys: list[Key], side: Replays, rate: float) -> float:
    with_it, without = (sum(log_likelihood(transcript, k, made[k]) for k in keys) for made in side)
    if rate >= 1.0:
        return with_it
    return float(np.logaddexp(np.log(rate) + with_it, np.log1p(-rate) + without))


def _by_index(transcript: Transcript) -> dict[int, list[Key]]:
    keys_of: dict[int, list[Key]] = {}
    for key in transcript.releases:
        keys_of.setdefault(key[0], []).append(key)
    return keys_of


@np.errstate(all="ignore")
def _are_equal_queries(transcript: Transcript, key: Key, one: Replay, other: Replay) -> bool:
    if key not in one or key not in other:
        return key not in one and key not in other
    return bool(np.abs(_query_move(transcript, key, one, other)).max(initial=0.0) <= _EQUAL_WITHIN)


def _query_move(transcript: Transcript, key: Key, one: Replay, other: Replay) -> Array:
    """How far two queries are apart, in deviations of the noise; without noise, infinitely far if at all."""
    a, b, noise = one[key], other[key], transcript.noise[key]
    if not isinstance(a, Query) or not isinstance(b, Query):
        return np.zeros(0)
    parts = [q.public if q.private is None else q.public + q.private for q in (a, b)]
    if noise is None:
        return np.where(parts[0] == parts[1], 0.0, np.inf)
    return np.asarray((parts[0] - parts[1]) / (noise.scale * noise.mechanism.deviation))


# With which choices by their stated law, or samples by their stated rates, fail the test of them.
_RISK = 1e-3
# Runs in which samples are counted.
_SAMPLED_RUNS = 30


class Choice(NamedTuple):
    """Of one random choice: (n,) log-probabilities in either data set."""

    first: Array
    second: Array

    def epsilon(self, delta: float, noise: float) -> float:
        return choice_epsilon(self.first, self.second, delta)


LossLaw: TypeAlias = Movement | Shifts | Choice
"""The law of the privacy loss between two data sets, and the ε(δ) that it shows."""


def are_close(one: LossLaw, other: LossLaw, rtol: float) -> bool:
    """Whether two laws are the same but for so much of them."""
    if type(one) is not type(other):
        return False
    # Logarithms of probabilities may be near 0.
    least = 1.0 if isinstance(one, Choice) else 0.0
    pairs = ((np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(one, other, strict=True))
    return all(close(a, b, rtol, least) for a, b in pairs)


def worst_neighbours(job: Job, root: bytes) -> Neighbours:
    """Find neighbours that are far apart, among the agent's own records, or among copies of one where that shows more.

    Args:
        job: to be audited.
        root: of the coins of the runs on which it is decided, and of no others.

    Returns:
        The data sets.
    """
    pair = farthest(job, root)
    if not _fixed_batches(job):
        return pair
    delta = job.scenario.privacy.delta
    return max((pair, among_copies(pair)), key=lambda neighbours: _epsilon_of_one_run(neighbours, root, delta))


def _epsilon_of_one_run(neighbours: Neighbours, root: bytes, delta: float) -> float:
    """What the law of one transcript shows; below 0 where none is known."""
    law = loss_law(neighbours.observe(neighbours.first, root), neighbours)
    return -1.0 if law is None else law.epsilon(delta, 1.0)


def _fixed_batches(job: Job) -> bool:
    """Whether records are hidden in batches of fixed size."""
    return any((rate < 1.0).any() and c.sampling == "fixed" for c in job.ledger.channels for rate in c.rate.values())


def loss_law(transcript: Transcript, neighbours: Neighbours) -> LossLaw | None:
    """Find the law of the privacy loss between two data sets.

    Args:
        transcript: of a run.
        neighbours: two jobs that differ in one record.

    Returns:
        The law, if the data sets are as far apart on every transcript as on this one; None where none is known.
    """
    if not transcript.is_replayable:
        return None
    if is_amplified(neighbours.first):
        return _of_samples(transcript, neighbours)
    first, second = (replay(w, neighbours.victim, transcript) for w in (neighbours.first, neighbours.second))
    movements = movement(transcript, first, second)
    if not transcript.choices:
        return movements
    (key, *others) = transcript.choices
    laws = first.get(key), second.get(key)
    alone = not others and not movements.certain and not movements.gaussian.any() and not movements.laplace.any()
    if alone and isinstance(laws[0], Law) and isinstance(laws[1], Law):
        return Choice(laws[0].logs, laws[1].logs)
    return None


def _of_samples(transcript: Transcript, neighbours: Neighbours) -> Shifts | None:
    rates = sampling_rates(neighbours.first, neighbours.victim, neighbours.split)
    if rates is None or transcript.choices or not neighbours.first.scenario.privacy.delta > 0.0:
        return None
    if not separate(neighbours, transcript):
        return None
    return opposite_moves(neighbours, transcript, rates)


def refute_stated_laws(neighbours: Neighbours, roots: Sequence[bytes]) -> str:
    """Test whether random choices and samples of the first data set have their stated laws.

    A choice has the law that a replay finds, if the place of what is chosen in the order of that law is uniform. The
    victim's record is in as many samples as its rates say.

    Args:
        neighbours: two jobs that differ in one record.
        roots: of the runs that are tried, one each.

    Returns:
        A sentence about what is contradicted; "" for nothing.
    """
    if is_amplified(neighbours.first):
        return _frequency(neighbours, roots[:_SAMPLED_RUNS])
    places, made = [], None
    for k, root in enumerate(roots):
        transcript = neighbours.observe(neighbours.first, root)
        if not transcript.choices:
            return ""
        # What is released first has the same law in every run.
        if made is None or len(transcript.releases) > 1:
            made = replay(neighbours.first, neighbours.victim, transcript)
        toss = np.random.default_rng(k)
        for key in transcript.choices:
            law = made.get(key)
            if not isinstance(law, Law):
                return "The law of a random choice is not known, so that likelihoods are not either."
            places.append(law.place_of(transcript.releases[key], float(toss.random())))
    if float(kstest(places, "uniform").pvalue) >= _RISK:
        return ""
    return "What was chosen at random does not have the law that is stated, so that likelihoods are not used."


def _frequency(neighbours: Neighbours, roots: Sequence[bytes]) -> str:
    """Two-sided, by the normal law of a sum of independent coins."""
    rates = sampling_rates(neighbours.first, neighbours.victim, neighbours.split)
    if rates is None:
        return ""
    drawn, expected, variance = 0, 0.0, 0.0
    for root in roots:
        there = membership_of(neighbours, neighbours.observe(neighbours.first, root))
        for index, included in there.items():
            rate = rates.get(index, 1.0)
            drawn, expected, variance = drawn + included, expected + rate, variance + rate * (1.0 - rate)
    # Half a record for that its number is whole.
    if abs(drawn - expected) <= 0.5 + float(norm.isf(0.5 * _RISK)) * np.sqrt(variance):
        return ""
    return (
        f"The record was in {drawn} samples where {expected:.4g} are expected, so that likelihoods, which rest on the "
        "stated rates, are not used."
    )
