"""Prices of Gaussian releases on Poisson samples, of exponential mechanisms, and of laws that are not quite ideal."""

from __future__ import annotations

from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_privacy_accountant
from scipy.integrate import trapezoid
from scipy.optimize import brentq
from scipy.stats import binom, norm

from decentral_dp import InputError
from decentral_dp.bounded import Split
from decentral_dp.privacy.accounting.accountants import epsilon_of, gaussian_epsilon, price
from decentral_dp.privacy.accounting.loss_distributions import Releases, epsilons, poisson_profile
from decentral_dp.privacy.ledger import ChannelLedger, Ledger


def line(mechanism: str, sensitivity: float, releases: int, rate: float = 1.0, **keys: object) -> ChannelLedger:
    kinds: tuple[Split, ...] = ("train",)
    one = np.ones((releases, 1))
    index = np.arange(1, releases + 1)
    moves, rates = dict.fromkeys(kinds, sensitivity * one), dict.fromkeys(kinds, rate * one)
    return ChannelLedger("v", mechanism, 1, np.zeros(1, dtype=np.int64), index, one, moves, rates, **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(("mu", "rate"), [(0.2, 0.5), (1.0, 0.1), (4.0, 0.01), (9.0, 0.3), (2.0, 1.0)])
def test_the_profile_is_that_of_the_pair(mu: float, rate: float) -> None:
    """By integrating (P − e^ε Q)₊ where P = (1−q)N(0) + qN(μ/2) and Q its mirror image."""

    x = np.linspace(-10.0, mu / 2 + 10.0, 400_001)
    p = (1 - rate) * norm.pdf(x) + rate * norm.pdf(x - mu / 2)
    q = (1 - rate) * norm.pdf(x) + rate * norm.pdf(x + mu / 2)
    for e in (0.0, 0.05, 0.7, 3.0):
        wanted = trapezoid(np.maximum(0.0, p - np.exp(e) * q), x)
        assert float(poisson_profile(mu, rate)(np.array([e]))[0]) == pytest.approx(wanted, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(("mu", "rate", "rounds"), [(1.0, 0.1, 100), (4.0, 0.01, 200), (0.2, 0.5, 50), (2.0, 1.0, 3)])
def test_composed_as_dp_accounting_composes_it(mu: float, rate: float, rounds: int) -> None:
    """Its PLD accountant takes the bound on one record's contribution and doubles it by itself."""
    accountant = pld_privacy_accountant.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(2.0 / mu)
    event = dp_accounting.PoissonSampledDpEvent(rate, event) if rate < 1.0 else event
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, rounds))
    wanted = accountant.get_epsilon(1e-5)
    ours = epsilons([Releases(poisson=np.tile([[mu], [rate]], (1, rounds)))], 1e-5)[0]
    assert wanted * (1.0 - 1e-3) <= ours <= wanted * 1.01


def test_a_ledger_of_poisson_samples_costs_more_than_the_pair_and_less_than_no_sampling() -> None:
    sampled = Ledger(1, (line("gaussian", 1.0, 20, 0.1, sampling="poisson"),))
    spent = float(epsilon_of(sampled, 1e-6)[0])
    ideal = epsilons([Releases(poisson=np.tile([[1.0], [0.1]], (1, 20)))], 1e-6)[0]
    assert ideal < spent < 1.02 * ideal
    assert spent < 0.5 * float(gaussian_epsilon(np.sqrt(20.0), 1e-6))
    assert np.isinf(price(sampled, 1e-6).epsilon_pure[0])


def test_two_channels_on_one_sample_are_one_release_of_both() -> None:
    one = line("gaussian", 0.6, 5, 0.2, sampling="poisson")
    both = Ledger(1, (one, replace(line("gaussian", 0.8, 5, 0.2, sampling="poisson"), channel="w")))
    joint = Ledger(1, (line("gaussian", 1.0, 5, 0.2, sampling="poisson"),))
    assert float(epsilon_of(both, 1e-5)[0]) == pytest.approx(float(epsilon_of(joint, 1e-5)[0]), rel=2e-3)


def test_what_no_rule_covers_is_refused() -> None:
    for wrong in (
        line("laplace", 1.0, 2, 0.1, sampling="poisson"),
        line("exponential", 1.0, 2, 0.1),
        line("gaussian", 1.0, 2, 0.1, sampling="with replacement"),
    ):
        with pytest.raises(InputError, match=r"sampl"):
            price(Ledger(1, (wrong,)), 1e-5)
    fixed = replace(line("gaussian", 1.0, 2, 0.1), channel="w")
    with pytest.raises(InputError, match="ways of sampling"):
        price(Ledger(1, (line("gaussian", 1.0, 2, 0.1, sampling="poisson"), fixed)), 1e-5)


def test_exponential_mechanisms_compose_at_an_eighth() -> None:
    """ρ = ε²/8 per draw: with many of them ε(δ) is nearly half of what unknown laws of pure ε cost."""
    rounds, each = 4000, 0.01
    ranged = float(epsilon_of(Ledger(1, (line("exponential", each, rounds),)), 1e-6)[0])
    rho = rounds * each**2 / 8.0
    assert ranged <= (rho + 2.0 * np.sqrt(rho * np.log(1e6))) * (1.0 + 1e-9)
    assert ranged < 0.62 * float(epsilon_of(Ledger(1, (line("pure", each, rounds),)), 1e-6)[0])
    assert price(Ledger(1, (line("exponential", each, rounds),)), 0.0).epsilon[0] == pytest.approx(rounds * each)


@pytest.mark.parametrize(("rounds", "each"), [(4000, 0.01), (400, 0.1), (30, 0.5)])
def test_exponential_mechanisms_cost_no_less_than_two_candidates_do(rounds: int, each: float) -> None:
    """Two candidates whose odds one record turns from e^{ε/4} to e^{−ε/4}: losses ±ε/2, binomially often."""
    half = 0.5 * each
    k = np.arange(rounds + 1)
    p = binom.pmf(k, rounds, 1.0 / (1.0 + np.exp(-half)))
    loss = half * (2.0 * k - rounds)

    def delta(epsilon: float) -> float:
        above = loss > epsilon
        return float((p[above] * -np.expm1(epsilon - loss[above])).sum())

    exact = brentq(lambda e: delta(e) - 1e-6, 0.0, half * rounds * (1.0 - 1e-9))
    found = float(epsilon_of(Ledger(1, (line("exponential", each, rounds),)), 1e-6)[0])
    assert exact <= found <= 1.4 * exact


def test_a_warm_start_and_gaussian_rounds_compose() -> None:
    """Pure ε₁ and μ together: at most the concentrated bound ε₁²/8 + μ²/2, at least either alone."""
    start = replace(line("exponential", 0.5, 1), channel="start")
    both = float(epsilon_of(Ledger(1, (start, line("gaussian", 0.05, 25))), 1e-6)[0])
    rho = 0.5**2 / 8.0 + 25 * 0.05**2 / 2.0
    assert both <= rho + 2.0 * np.sqrt(rho * np.log(1e6)) + 1e-3
    assert both >= float(gaussian_epsilon(0.25, 1e-6))


def test_a_distorted_law_costs_twice_its_distortion_and_some_delta() -> None:
    ideal = Ledger(1, (line("gaussian", 0.3, 1),))
    bent = Ledger(1, (line("gaussian", 0.3, 1, distortion=0.01),))
    shrunk = float(epsilon_of(ideal, 1e-5 * np.exp(-0.01))[0])
    assert float(epsilon_of(bent, 1e-5)[0]) == pytest.approx(shrunk + 0.02, rel=1e-6)


def test_nothing_is_certified_of_an_uncertified_law() -> None:
    budget = price(Ledger(1, (line("uncertified", 1.0, 1),)), 1e-5)
    assert np.isinf(budget.epsilon[0])


def test_the_numbers_of_the_gaussian_pair() -> None:
    """m(ε, δ) to fifty digits, from a computation of its own."""

    def delta(m: float, e: float) -> float:
        return float(norm.cdf(-e / m + m / 2) - np.exp(e) * norm.cdf(-e / m - m / 2))

    for e, d, wanted in ((1.0, 1e-5, 0.268051), (1.0, 1e-6, 0.236704), (0.5, 1e-6, 0.124106), (4.0, 1e-6, 0.837859)):
        assert brentq(lambda m, e=e, d=d: delta(m, e) - d, 1e-3, 5.0, xtol=1e-12) == pytest.approx(wanted, abs=1e-6)
        # Ours, rounded towards more privacy loss.
        assert float(gaussian_epsilon(wanted - 1e-6, d)) < e < float(gaussian_epsilon(wanted + 1e-6, d))
