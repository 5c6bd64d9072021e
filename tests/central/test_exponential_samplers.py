"""Exponential mechanisms over candidates: exact laws, what they cost, and where float64 would fail."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decentral_dp.central.selection import law_at, score_unit, units
from decentral_dp.errors import InputError
from decentral_dp.privacy.mechanisms import integer_samplers
from decentral_dp.privacy.mechanisms.integer_samplers import Weights
from papers.draws import pure_rate
from tests.support.exact_laws import exponential, rejected


def law_of(scores: np.ndarray, epsilon: float, oscillation: float, inexact: float = 0.0) -> Weights:
    return law_at(scores, score_unit(oscillation), pure_rate(epsilon, oscillation, inexact))


def logarithms(law: Weights) -> np.ndarray:
    """log P of every item, by the decimal library."""
    with localcontext(prec=60):
        gaps, which, counts = np.unique(law.gaps, return_inverse=True, return_counts=True)
        masses = [exponential(law.rate * int(gap), 60) for gap in gaps]
        total = sum((mass * int(n) for mass, n in zip(masses, counts, strict=True)), Decimal(0))
        return np.array([float((mass / total).ln()) for mass in masses])[which]


# ---- candidates ----------------------------------------------------------------------------------------------------


@given(st.integers(2, 12), st.integers(0, 10**6), st.floats(1e-3, 20.0), st.floats(1e-6, 1e6))
def test_no_log_ratio_exceeds_epsilon(n: int, seed: int, epsilon: float, oscillation: float) -> None:
    """Neighbouring scores that use the whole oscillation, a common shift, and the declared inaccuracy."""
    rng = np.random.default_rng(seed)
    inexact = oscillation * rng.choice([0.0, 0.1])
    base = rng.normal(size=n) * oscillation * 3
    change = oscillation * rng.choice([0.0, 1.0, rng.random()], n) + rng.normal() * oscillation
    off = inexact * rng.choice([-1.0, 1.0], (2, n)) * (1 - 1e-9)
    one, two = (
        logarithms(law_of(scores, epsilon, oscillation * (1 + 1e-9), inexact=inexact))
        for scores in (base + off[0], base + change + off[1])
    )
    assert np.abs(one - two).max() <= epsilon * (1 + 1e-9)


def test_the_ratio_is_attained_on_two_levels() -> None:
    """One candidate in 10^5 moves by the oscillation: .9999 ε, so that a factor 1/2 would be lost for nothing."""
    scores = np.zeros(100_000)
    sensitivity = scores.copy()
    sensitivity[0] = -0.37
    ratio = logarithms(law_of(sensitivity, 1.0, 0.37))[0] - logarithms(law_of(scores, 1.0, 0.37))[0]
    assert 0.9999 <= ratio <= 1.0


def test_inaccuracy_costs_four_times_its_bound() -> None:
    """An adversarial error of ±a under each neighbour: not priced it exceeds ε, priced it does not."""
    a = 0.05
    one, two = np.full(2000, -a), np.full(2000, a)
    one[0], two[0] = a, -1.0 - a

    def ratio(inexact: float) -> float:
        laws = [logarithms(law_of(scores, 1.0, 1.0, inexact=inexact)) for scores in (one, two)]
        return float(np.abs(laws[1] - laws[0]).max())

    assert ratio(0.0) == pytest.approx(1.2, abs=0.002)
    assert 0.998 <= ratio(a) <= 1.0


def test_choices_follow_the_law() -> None:
    rng, scores = np.random.default_rng(21), np.array([0.3, 0.0, 0.5, 0.1])
    counts = np.bincount([law_of(scores, 2.0, 0.5).draw(rng) for _ in range(4000)], minlength=4)
    true = np.exp(-2.0 * scores / 0.5)
    assert not rejected(counts, true)
    assert rejected(counts, true * [1.0, 1.25, 1.0, 1.0])


@pytest.mark.parametrize(("gap", "share"), [(36.0, 0.78), (38.0, 0.106), (41.0, 0.0)])
def test_float_gumbel_variates_end_and_integers_do_not(gap: float, share: float) -> None:
    """The reason for integers: numpy's variates are −log(−log(1 − k·2^−53)), which end at 36.74 and −3.61."""
    drawn = np.random.default_rng(5).gumbel(size=1000)
    assert np.allclose(drawn, -np.log(-np.log(1.0 - np.random.default_rng(5).random(1000))), rtol=1e-12)
    highest, lowest = -np.log(-np.log1p(-(2.0**-53))), -np.log(-np.log(2.0**-53))
    assert (lowest, highest) == (pytest.approx(-3.60, abs=0.01), pytest.approx(36.74, abs=0.01))
    # P(G − gap > G') = Σ_k 2^−53 exp(−k e^{gap − highest}), if G' is continuous; e^−gap is the truth.
    step = np.exp(gap - highest)
    found = 0.0 if gap > highest - lowest else step / np.expm1(step)
    assert found == pytest.approx(share, abs=0.005)
    law = law_of(np.array([0.0, gap]), 1.0, 1.0)
    assert np.diff(logarithms(law))[0] == pytest.approx(-gap, abs=1e-3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integer_samplers, "uniform_integer", lambda _, n: n - 1)
        patch.setattr(integer_samplers, "_bits", lambda _, count: 0)
        assert law.draw(np.random.default_rng(0)) == 1


@pytest.mark.parametrize("scores", [[0.0, np.nan], [np.inf], [0.0, 1e300], []])
def test_scores_that_are_none_are_refused(scores: list[float]) -> None:
    with pytest.raises(InputError, match="scores"):
        law_of(np.array(scores), 1.0, 1.0)
    with pytest.raises(InputError, match="oscillation"):
        law_of(np.zeros(2), 1.0, np.inf)


@given(st.floats(1e-9, 1e9), st.integers(0, 10**6))
def test_scores_move_by_half_a_unit_at_most(scale: float, seed: int) -> None:
    unit = score_unit(scale)
    assert 2.0**-21 < unit / scale <= 2.0**-20
    scores = np.random.default_rng(seed).normal(size=20) * scale
    assert np.abs(units(scores, unit) * unit - scores).max() <= 0.5 * unit
