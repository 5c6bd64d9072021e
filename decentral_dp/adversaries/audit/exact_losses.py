"""Laws of the loss of a whole transcript, where one transcript is enough to know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.stats import kstest, norm

from decentral_dp.adversaries.audit.laws import Law, choice_epsilon
from decentral_dp.adversaries.audit.likelihoods import Movement, movement
from decentral_dp.adversaries.audit.neighbours import Worlds, among_copies, farthest
from decentral_dp.adversaries.audit.sampled_releases import (
    Moves,
    amplified,
    membership_of,
    opposite_moves,
    sampling_rates,
    separate,
    shown_by,
)
from decentral_dp.adversaries.audit.transcripts import Transcript, observe, replay
from decentral_dp.bounded import Array
from decentral_dp.simulation.jobs.job import Job

# With which choices by their stated law, or samples by their stated rates, fail the test of them.
_RISK = 1e-3
# Runs in which samples are counted.
_SAMPLED_RUNS = 30


class LossLaw(Protocol):
    """The law of the privacy loss between two worlds."""

    def near(self, other: Any, rtol: float) -> bool:
        """Whether both are the same but for so much of them."""
        ...

    def epsilon(self, delta: float, noise: float) -> float:
        """The ε that holds at δ, or less; noise: the drawn noise is so many times the stated."""
        ...


class Noised(NamedTuple):
    """Of values that are noised, read for certain."""

    moved: Movement

    def near(self, other: Any, rtol: float) -> bool:
        return isinstance(other, Noised) and self.moved.near(other.moved, rtol)

    def epsilon(self, delta: float, noise: float) -> float:
        return self.moved.epsilon(delta, noise)


class Sampled(NamedTuple):
    """Of values on samples."""

    found: Moves

    def near(self, other: Any, rtol: float) -> bool:
        if not isinstance(other, Sampled) or not _comparable(self.found, other.found):
            return False
        ours, theirs = self.found.moves, other.found.moves
        alike = np.array_equal(self.found.laplace, other.found.laplace)
        return alike and float(np.abs(ours - theirs).max(initial=0.0)) <= rtol * float(ours.max(initial=0.0))

    def epsilon(self, delta: float, noise: float) -> float:
        return shown_by(self.found, delta, noise)


class Chosen(NamedTuple):
    """Of one random choice: (n,) log-probabilities in either world."""

    first: Array
    second: Array

    def near(self, other: Any, rtol: float) -> bool:
        return _comparable(self, other) and all(
            float(np.abs(a - b).max()) <= rtol * max(1.0, float(np.abs(a).max()))
            for a, b in zip(self, other, strict=True)
        )

    def epsilon(self, delta: float, noise: float) -> float:
        return choice_epsilon(self.first, self.second, delta)


def _comparable(one: Moves | Chosen, other: Any) -> bool:
    """Whether the other is a law of the same class, with arrays of the same shapes."""
    return type(one) is type(other) and all(a.shape == b.shape for a, b in zip(one, other, strict=True))


def worst_worlds(job: Job, root: bytes) -> Worlds:
    """Find two worlds that are far apart, among the agent's own records, or among copies of one where that shows more.

    Args:
        job: to be audited.
        root: of the coins of the runs on which it is decided, and of no others.

    Returns:
        The worlds.
    """
    found = farthest(job, root)
    if not _fixed_batches(job):
        return found
    delta = job.scenario.privacy.delta
    return max((found, among_copies(found)), key=lambda worlds: _shown_once(worlds, root, delta))


def _shown_once(worlds: Worlds, root: bytes, delta: float) -> float:
    """What the law of one transcript shows; below 0 where none is known."""
    first: Any = worlds.first
    law = loss_law(observe(first.keyed(root), worlds.victim), worlds)
    return -1.0 if law is None else law.epsilon(delta, 1.0)


def _fixed_batches(job: Job) -> bool:
    """Whether records are hidden in batches of fixed size."""
    return any((rate < 1.0).any() and c.sampling == "fixed" for c in job.ledger.channels for rate in c.rate.values())


def loss_law(transcript: Transcript, worlds: Worlds) -> LossLaw | None:
    """Find the law of the privacy loss between two worlds.

    Args:
        transcript: of a run.
        worlds: two jobs that differ in one record.

    Returns:
        The law, if the worlds are as far apart on every transcript as on this one; None where none is known.
    """
    if not transcript.known:
        return None
    if amplified(worlds.first):
        return _of_samples(transcript, worlds)
    first, second = (replay(w, worlds.victim, transcript) for w in (worlds.first, worlds.second))
    moved = movement(transcript, first, second)
    if not transcript.choices:
        return Noised(moved)
    (key, *others) = transcript.choices
    laws = first.get(key), second.get(key)
    alone = not others and not moved.certain and not moved.gaussian.any() and not moved.laplace.any()
    if alone and isinstance(laws[0], Law) and isinstance(laws[1], Law):
        return Chosen(laws[0].logs, laws[1].logs)
    return None


def _of_samples(transcript: Transcript, worlds: Worlds) -> Sampled | None:
    rates = sampling_rates(worlds.first, worlds.victim, worlds.split)
    if rates is None or transcript.choices or not worlds.first.scenario.privacy.delta > 0.0:
        return None
    if not separate(worlds, transcript):
        return None
    moves = opposite_moves(worlds, transcript, rates)
    return None if moves is None else Sampled(moves)


def not_as_stated(worlds: Worlds, roots: Sequence[bytes]) -> str:
    """Test whether random choices and samples of the first world have their stated laws.

    A choice has the law that a replay finds, if the place of what is chosen in the order of that law is uniform. The
    victim's record is in as many samples as its rates say.

    Args:
        worlds: two jobs that differ in one record.
        roots: of the runs that are tried, one each.

    Returns:
        A sentence about what is contradicted; "" for nothing.
    """
    if amplified(worlds.first):
        return _frequency(worlds, roots[:_SAMPLED_RUNS])
    first: Any = worlds.first
    places, made = [], None
    for k, root in enumerate(roots):
        transcript = observe(first.keyed(root), worlds.victim)
        if not transcript.choices:
            return ""
        # What is released first has the same law in every run.
        if made is None or len(transcript.said) > 1:
            made = replay(first, worlds.victim, transcript)
        toss = np.random.default_rng(k)
        for key in transcript.choices:
            law = made.get(key)
            if not isinstance(law, Law):
                return "The law of a random choice is not known, so that likelihoods are not either."
            places.append(law.place_of(transcript.said[key], float(toss.random())))
    if float(kstest(places, "uniform").pvalue) >= _RISK:
        return ""
    return "What was chosen at random does not have the law that is stated, so that likelihoods are not used."


def _frequency(worlds: Worlds, roots: Sequence[bytes]) -> str:
    """Two-sided, by the normal law of a sum of independent coins."""
    first: Any = worlds.first
    rates = sampling_rates(worlds.first, worlds.victim, worlds.split)
    if rates is None:
        return ""
    drawn, expected, variance = 0, 0.0, 0.0
    for root in roots:
        there = membership_of(worlds, observe(first.keyed(root), worlds.victim))
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
