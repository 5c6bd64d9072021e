"""Exponential mechanisms over finitely many candidates, exactly.

A candidate with score q leaves with probability proportional to e^{−λq}, lower scores being better. If one record
moves the scores of all candidates by amounts that lie within s of each other (their *oscillation*, sup − inf), then
λ = ε/s is pure ε: a common shift cancels in the normalisation, so that no factor 1/2 is lost (McSherry & Talwar, FOCS
2007; the bounded range of Dong, Durfee & Rogers, ICML 2020).

Scores are rounded to a public grid r = 2^(⌊log₂ s⌋ − 20) and known up to `inexact` only; both go into the price,

    λ = ε/(s + 2r + 4·inexact),

and then integers alone decide (`exact`). Float64 would not do: numpy's Gumbel variates end at 36.74 and −3.61, so a
candidate whose λq is 40.4 above the best never leaves under one dataset and may under its neighbour: infinite pure ε.

The score must be one fixed function of dataset and candidate: no warm start from the candidate tried before, and what
depends on how a computation is batched belongs in `inexact`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import exp, frexp, isfinite, ldexp
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.privacy.mechanisms.integer_samplers import IntArray, Weights

Value = TypeVar("Value")

GRID_BITS = 20
# Float64 itself errs by more than 2^-11 of the oscillation on scores beyond this many grid units.
_MOST_UNITS = 2.0**62


@dataclass(frozen=True)
class Guarantee:
    """What one draw costs one replaced record.

    Args:
        epsilon: ε of the draw; +inf where nothing is proven.
        delta: δ of the draw.
        certified: whether they hold for what was drawn, given what the caller declared.
        why: on what they rest, or what is missing.
    """

    epsilon: float
    delta: float
    certified: bool
    why: str


class Drawn(NamedTuple, Generic[Value]):
    """A value, and what revealing it costs.

    Args:
        value: what was drawn.
        guarantee: its price.
        proposals: how many were tried, for the simulator alone: never reveal it.
    """

    value: Value
    guarantee: Guarantee
    proposals: int


def choose(
    generator: np.random.Generator, scores: Array, epsilon: float, oscillation: float, *, inexact: float = 0.0
) -> Drawn[int]:
    """Choose one of finitely many public candidates, at pure ε.

    Args:
        generator: of random bits.
        scores: (n,), lower is better.
        epsilon: ε > 0.
        oscillation: s, declared.
        inexact: bound on |score given − score that s is about|; default 0.

    Returns:
        The index of the candidate, with its guarantee.

    Raises:
        InputError: prices that are no prices, and scores that contradict any oscillation.

    Sensitivity:
        Oscillation of the scores, one record replaced; λ = ε/(s + 2r + 4·inexact). See docs/proofs/20 and 21.

    References:
        McSherry & Talwar, FOCS 2007; Dong, Durfee & Rogers, ICML 2020.

    Example:
        >>> drawn = choose(np.random.default_rng(0), np.array([50.0, 0.0]), epsilon=1.0, oscillation=0.1)
        >>> drawn.value, drawn.guarantee.epsilon, drawn.guarantee.delta
        (1, 1.0, 0.0)
    """
    law = law_of(scores, epsilon, oscillation, inexact=inexact)
    proposals = 0
    while True:
        proposals += 1
        item, bound = law.propose(generator)
        if law.accept(generator, int(law.gaps[item]), bound):
            why = (
                "Exact rejection by integers from the law ∝ exp(−λ·score); pure ε if the declared oscillation and "
                "accuracy of the scores hold for every pair of datasets and the candidates are public."
            )
            return Drawn(item, Guarantee(epsilon, 0.0, True, why), proposals)


def law_of(scores: Array, epsilon: float, oscillation: float, *, inexact: float = 0.0) -> Weights:
    """Return the law that `choose` draws from.

    Args:
        scores, epsilon, oscillation, inexact: as of `choose`.

    Raises:
        InputError: as `choose`.
    """
    rate = pure_rate(epsilon, oscillation, inexact)
    return law_at(np.asarray(scores, dtype=np.float64).reshape(-1), score_unit(oscillation), rate)


def law_at(scores: Array, unit: float, rate: Fraction) -> Weights:
    """Return the law ∝ exp(−rate·score) over scores (n,) rounded to whole units."""
    whole = units(scores, unit)
    return Weights.of(whole - whole.min(), rate * Fraction(unit))


def score_unit(scale: float) -> float:
    """Return the grid of scores whose differences matter on this scale: a power of two, 2⁻²⁰ of it or a little less.

    Example:
        >>> score_unit(1.0) == 2.0**-20, score_unit(1.9) == 2.0**-20
        (True, True)
    """
    positive("oscillation", scale)
    return ldexp(1.0, frexp(scale)[1] - 1 - GRID_BITS)


def pure_rate(epsilon: float, oscillation: float, inexact: float) -> Fraction:
    """Compute λ = ε/(s + 2r + 4·inexact), without rounding.

    Raises:
        InputError: ε or s that is not above 0, or a negative accuracy.

    Example:
        >>> round(float(pure_rate(epsilon=1.0, oscillation=0.5, inexact=0.125)), 4)
        1.0
    """
    positive("epsilon", epsilon)
    not_negative("inexact", inexact)
    unit = score_unit(oscillation)
    return Fraction(epsilon) / (Fraction(oscillation) + 2 * Fraction(unit) + 4 * Fraction(inexact))


def units(scores: Array, unit: float) -> IntArray:
    """Round scores to whole units, a power of two: (n,) integers, each within half a unit.

    Raises:
        InputError: no scores, or some that are not finite or too large.

    Example:
        >>> units(np.array([0.0, 0.5, 0.7]), unit=0.25).tolist()
        [0, 2, 3]
    """
    with np.errstate(over="ignore"):
        scaled = np.rint(scores / unit)
    if not scores.size or not bool((np.abs(scaled) < _MOST_UNITS).all()):
        raise InputError(
            f"scores: got {scores.size} of which {int((~np.isfinite(scores)).sum())} are not finite or some exceed "
            f"{unit * _MOST_UNITS:g}, wanted one or more below that; such scores contradict the declared oscillation, "
            "so declare the one that they have."
        )
    return scaled.astype(np.int64)


def perturbed(guarantee: Guarantee, error: float) -> Guarantee:
    """Price a law whose unnormalised log-density is within `error` of the one that `guarantee` is about.

    Normalised logarithms differ by up to τ = 2·error, under either dataset: (ε + 2τ, e^τ δ), which is attained.

    Example:
        >>> priced = perturbed(Guarantee(1.0, 0.0, True, "Declared."), error=0.125)
        >>> priced.epsilon, priced.delta
        (1.5, 0.0)
    """
    not_negative("error", error)
    epsilon, delta = guarantee.epsilon + 4.0 * error, min(1.0, guarantee.delta * exp(min(2.0 * error, 700.0)))
    why = f"{guarantee.why} Its log-density is off by at most {error:.3g} before normalisation."
    return Guarantee(epsilon, delta, guarantee.certified, why)


def with_restarts(guarantee: Guarantee, acceptance: float, restarts: int) -> Guarantee:
    """Price a draw where a data-independent value leaves after so many rejected proposals: δ + (1 − p)^restarts.

    Args:
        guarantee: without a cap.
        acceptance: p, a public lower bound on the probability that a proposal is accepted, whatever the data.
        restarts: the cap, at least 1.

    Raises:
        InputError: a cap below 1, or no proven acceptance.

    Example:
        >>> round(with_restarts(Guarantee(1.0, 0.0, True, "Declared."), acceptance=0.5, restarts=20).delta * 2**20, 6)
        1.0
    """
    if not 0.0 < acceptance <= 1.0 or restarts < 1:
        raise InputError(
            f"restarts: got {restarts} with acceptance {acceptance:g}, wanted 1 or more with a proven acceptance in "
            "(0, 1]; leave restarts out to try until one is accepted."
        )
    lost = float(np.exp(restarts * np.log1p(-acceptance))) if acceptance < 1.0 else 0.0
    why = f"{guarantee.why} After {restarts} rejections a data-independent value leaves."
    return Guarantee(guarantee.epsilon, min(1.0, guarantee.delta + lost), guarantee.certified, why)


def positive(name: str, value: float) -> None:
    """Refuse what is not a finite number above 0.

    Raises:
        InputError: it is none.
    """
    if not (isfinite(value) and value > 0.0):
        raise InputError(
            f"{name}: got {value}, wanted a finite number above 0; compute it from the declared constants."
        )


def not_negative(name: str, value: float) -> None:
    """Refuse what is not a finite number of at least 0.

    Raises:
        InputError: it is none.
    """
    if not (isfinite(value) and value >= 0.0):
        raise InputError(f"{name}: got {value}, wanted a finite number, 0 or more; 0 if there is none.")
