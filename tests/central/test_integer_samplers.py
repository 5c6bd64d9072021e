"""Samplers by integers, against their laws: by enumerating their bits, at their thresholds, and by frequencies."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from decentral_dp.central import integer_samplers
from decentral_dp.central.integer_samplers import Weights
from tests.support.exact_laws import exponential, rejected

RATES = st.fractions(min_value=0, max_value=200, max_denominator=10**12)


class MoreBitsError(Exception):
    """The script of bits has ended."""


def enumerated(draw: Callable[[Any], Any], bits: int) -> tuple[dict[Any, float], float]:
    """The probability of every outcome that some string of so many bits decides, and of being undecided."""
    law: dict[Any, float] = {}
    undecided, scripts = 0.0, [([], 0)]
    while scripts:
        script, used = scripts.pop()
        left = iter(script)
        wanted = []

        def read(_: Any, count: int, left: Any = left, wanted: list[int] = wanted) -> int:
            for value in left:
                return int(value)
            wanted.append(count)
            raise MoreBitsError

        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(integer_samplers, "_bits", read)
                outcome = draw(None)
            law[outcome] = law.get(outcome, 0.0) + 2.0**-used
        except MoreBitsError:
            if used + wanted[0] > bits:
                undecided += 2.0**-used
            else:
                scripts += [([*script, value], used + wanted[0]) for value in range(2 ** wanted[0])]
    return law, undecided


@given(RATES, st.integers(1, 250))
def test_an_exponential_lies_between_its_bounds(gamma: Fraction, bits: int) -> None:
    low, high = integer_samplers.exp_bounds(gamma, bits)
    with localcontext(prec=150):
        assert low <= exponential(gamma) * Decimal(2) ** bits <= high
    assert high - low <= 4


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 2), Fraction(1), Fraction(5, 4)])
def test_bernoulli_exp_by_all_its_bits(gamma: Fraction) -> None:
    law, undecided = enumerated(lambda g: integer_samplers.bernoulli_exp(g, gamma), 15)
    truth = float(exponential(gamma))
    assert law.get(True, 0.0) <= truth <= law.get(True, 0.0) + undecided
    assert undecided < 0.04
    for wrong in (truth - 0.04, truth + 0.04):
        assert not law.get(True, 0.0) <= wrong <= law.get(True, 0.0) + undecided


def test_integers_below_by_all_their_bits() -> None:
    law, undecided = enumerated(lambda g: integer_samplers.uniform_integer(g, 5), 15)
    assert sorted(law) == [0, 1, 2, 3, 4]
    assert len(set(law.values())) == 1
    assert undecided == pytest.approx((3 / 8) ** 5)
    assert integer_samplers.uniform_integer(np.random.default_rng(0), 1) == 0
    many = [integer_samplers.uniform_integer(np.random.default_rng(k), 3 * 2**100) / 2**100 for k in range(2000)]
    assert stats.kstest(many, stats.uniform(0, 3).cdf).pvalue > 1e-6


@given(RATES.filter(lambda r: 0 < r < 60), st.integers(0, 2**32))
def test_acceptance_turns_at_its_probability_to_64_bits(gamma: Fraction, seed: int) -> None:
    """The variate just below 2^128·e^{−γ}/bound accepts, the one just above does not; floats would show here."""
    law = Weights.from_gaps(np.array([0, 1]), gamma)
    bound = law.bounds[-1]
    with localcontext(prec=150):
        turn = int(exponential(gamma) * Decimal(2) ** 192 / Decimal(bound))

    def accepts(drawn: int) -> bool:
        script = iter([drawn, *np.random.default_rng(seed).integers(0, 2**63, 4).tolist()])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(integer_samplers, "_bits", lambda _, count: next(script))
            return law.accept(np.random.default_rng(0), 1, bound)

    assert turn < 2**64
    assert accepts(max(0, turn - 1))
    assert turn >= 2**64 - 1 or not accepts(turn + 1)


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=40),
    st.fractions(min_value=Fraction(1, 10**6), max_value=30, max_denominator=10**7),
    st.booleans(),
)
def test_integer_weights_are_no_smaller_than_the_true_ones_and_proposed_in_proportion(
    gaps: list[int], rate: Fraction, sized: bool
) -> None:
    """Every item has as many variates as its weight; with the acceptance above, the law is exactly the true one."""
    sizes = np.arange(len(gaps)) % 7 if sized else np.zeros(len(gaps), dtype=np.int64)
    law = Weights.from_gaps(np.array(gaps), rate, sizes if sized else None)
    slots = [0] * len(gaps)
    before = 0
    with pytest.MonkeyPatch.context() as patch:
        for weight, end in zip(law.weights, law.cumulative, strict=True):
            for first in range(before, end, weight):
                both = []
                for drawn in (first, first + weight - 1):
                    patch.setattr(integer_samplers, "uniform_integer", lambda _, n, drawn=drawn: drawn)
                    both.append(law.propose(np.random.default_rng(0)))
                (item, bound), again = both
                assert again == (item, bound)
                assert weight == bound << int(sizes[item])
                with localcontext(prec=150):
                    true = exponential(rate * gaps[item]) * 2**128
                    assert bound >= true
                    assert rate * gaps[item] >= 80 or float(true / bound) >= 0.939
                slots[item] += weight
            before = end
    assert all(slots)
    assert sum(slots) == law.cumulative[-1]


def test_draws_follow_the_law_and_five_per_cent_would_show() -> None:
    rng = np.random.default_rng(11)
    law = Weights.from_gaps(np.array([0, 1, 3, 10]), Fraction(1, 4), np.array([0, 1, 0, 3]))
    counts = np.bincount([law.draw(rng) for _ in range(120_000)], minlength=4)
    true = np.exp(-0.25 * np.array([0, 1, 3, 10])) * np.array([1, 2, 1, 8])
    assert not rejected(counts, true)
    for item in range(2):
        assert rejected(counts, true * np.where(np.arange(4) == item, 1.05, 1.0))


@pytest.mark.parametrize("rate", [Fraction(1, 7), Fraction(5, 3)])
def test_geometric(rate: Fraction) -> None:
    rng = np.random.default_rng(12)
    counts = np.bincount(
        np.minimum([integer_samplers.draw_geometric(rng, rate) for _ in range(10_000)], 12), minlength=13
    )
    law = np.exp(-float(rate) * np.arange(13))
    law[12] /= 1.0 - np.exp(-float(rate))
    wide = law / law.sum() * counts.sum() > 5
    counts, law = np.append(counts[wide], counts[~wide].sum()), np.append(law[wide], law[~wide].sum())
    assert not rejected(counts[law > 0], law[law > 0])


@pytest.mark.parametrize("precision", [Fraction(1, 3), Fraction(7, 2)])
def test_discrete_gaussian(precision: Fraction) -> None:
    rng = np.random.default_rng(13)
    drawn = np.array([integer_samplers.discrete_gaussian(rng, precision) for _ in range(8_000)])
    support = np.arange(-3, 4) if precision < 1 else np.arange(-1, 2)
    law = np.exp(-0.5 * float(precision) * support**2)
    inside = np.array([(drawn == k).sum() for k in support])
    assert not rejected(inside, law)
    assert rejected(inside, law * np.where(support == 0, 1.25, 1.0))
    huge = np.array(
        [integer_samplers.discrete_gaussian(rng, Fraction(1, 2**80)) for _ in range(1000)], dtype=np.float64
    )
    assert stats.kstest(huge / 2.0**40, stats.norm.cdf).pvalue > 1e-6
