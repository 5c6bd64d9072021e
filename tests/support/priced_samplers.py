"""Draws with the prices that they have by themselves, beside those of the ledger: what tests compare laws by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log2, sqrt
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.central import exponential_samplers
from decentral_dp.central.exponential_samplers import Box, GibbsTarget, Score, law_at, not_negative, score_unit
from decentral_dp.central.log_concave_sampler import RegularisedLaw
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.mechanisms.integer_samplers import Weights
from papers.draws import pure_rate

Value = TypeVar("Value")


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
            "(0, 1]."
        )
    lost = float(np.exp(restarts * np.log1p(-acceptance))) if acceptance < 1.0 else 0.0
    why = f"{guarantee.why} After {restarts} rejections a data-independent value leaves."
    return Guarantee(guarantee.epsilon, min(1.0, guarantee.delta + lost), guarantee.certified, why)


def acceptance(target: GibbsTarget) -> float:
    """Bound the probability that a proposal is accepted from below, publicly."""
    dimension = len(target.box.low)
    surely = min(
        exponential_samplers.DEPTH, 1 + int(log2(exponential_samplers._MOST_CELLS / (2**dimension + 1)) / dimension)
    )
    reached = 2.0 * float(target.rate) * target.unit * target.slack(surely)
    return 0.9 * exp(-min(max(target.tightness(), reached) + 1.0 / 16.0, 700.0))


def choose_in_box(
    generator: np.random.Generator, score: Score, box: Box, epsilon: float, oscillation: float, lipschitz: float
) -> Array:
    """A point (d,) of a public box, d ≤ 3, at pure ε.

    Args:
        generator: of random bits.
        score: (n, d) points → (n,), lower is better.
        box: public.
        epsilon: ε > 0.
        oscillation: s, declared for every dataset.
        lipschitz: L, declared for every dataset.
    """
    unit = score_unit(oscillation)
    return exponential_samplers.draw(
        generator, GibbsTarget(score, box, pure_rate(epsilon, oscillation, 0.0), unit, lipschitz, 0.0)
    )


def mu_of(declared: RegularisedLaw) -> float:
    """μ of the Gaussian pair that bounds a draw from the continuous law."""
    return declared.sensitivity * sqrt(declared.rate / (declared.strength + declared.curvature))


def guarantee_of(declared: RegularisedLaw, delta: float) -> Guarantee:
    """(ε, δ) of a draw from the grid, δ as given."""
    left = delta * exp(-2.0 * declared.error())
    priced = perturbed(Guarantee(float(gaussian_epsilon(mu_of(declared), left)), left, True, ""), declared.error())
    return replace(priced, delta=delta)
