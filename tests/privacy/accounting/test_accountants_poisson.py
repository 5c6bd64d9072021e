"""Test privacy costs of Gaussian releases on Poisson samples, exponential mechanisms and inexact distributions."""

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
from decentral_dp.privacy.accounting.accountants import account, epsilon_of, gaussian_epsilon
from decentral_dp.privacy.accounting.loss_distributions import Releases, epsilons, group_profile, poisson_profile
from decentral_dp.privacy.clipping import Unit
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from tests.support.poisson_reference import Outcomes, poisson_outcomes, reference_epsilon


def line(mechanism: str, sensitivity: float, releases: int, rate: float = 1.0, **keys: object) -> ChannelLedger:
    kinds: tuple[Split, ...] = ("train",)
    one = np.ones((releases, 1))
    index = np.arange(1, releases + 1)
    moves, rates = dict.fromkeys(kinds, sensitivity * one), dict.fromkeys(kinds, rate * one)
    return ChannelLedger("v", mechanism, 1, np.zeros(1, dtype=np.int64), index, one, moves, rates, **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(("mu", "rate"), [(0.2, 0.5), (1.0, 0.1), (4.0, 0.01), (9.0, 0.3), (2.0, 1.0)])
def test_the_profile_is_that_of_the_pair(mu: float, rate: float) -> None:
    """Integrate (P − e^ε Q)₊ where P = (1−q)N(0) + qN(μ/2) and Q its mirror image."""

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


def outcomes_of_groups(m: float, rate: float, records: int, zeroed: bool, count: int) -> Outcomes:
    """Σ_j Bin(k, q)(j) N(jm, 1) against its mirror image, or N(0, 1)."""
    x = np.linspace(-records * m - 13.0, records * m + 13.0, 60_001)
    share = binom.pmf(np.arange(records + 1), records, rate)[:, None]
    near = norm.pdf(x - m * np.arange(records + 1)[:, None])
    p = (share * near).sum(axis=0)
    log_q = norm.logpdf(x) if zeroed else np.log(p[::-1])
    return Outcomes(np.log(p) + np.log(x[1] - x[0]), np.log(p) - log_q, count)


def group_line(mu: float, releases: int, rate: float, unit: Unit) -> ChannelLedger:
    return line("gaussian", mu, releases, rate, sampling=unit.sampling)


GROUPS = [
    # k, zeroed, what one drawn record adds, rate, rounds, ε of the pair by another reader at δ = 1e-5.
    (2, False, 0.833, 0.2, 10, 11.17),
    (3, False, 0.4165, 0.5, 3, None),
    (3, True, 0.8, 0.3, 20, None),
    (4, False, 0.3, 0.05, 200, None),
    (1, True, 1.0, 0.1, 30, None),
]


@pytest.mark.parametrize(("records", "zeroed", "m", "rate", "rounds", "known"), GROUPS)
def test_groups_cost_what_their_pair_says(
    records: int, zeroed: bool, m: float, rate: float, rounds: int, known: float | None
) -> None:
    """Compute ε by an independent quadrature; for zeroed-out records, take the order with the larger ε."""
    unit = Unit(records, zeroed)
    spent = float(epsilon_of(Ledger(1, (group_line(unit.steps * m, rounds, rate, unit),)), 1e-5)[0])
    wanted = reference_epsilon([outcomes_of_groups(m, rate, records, zeroed, rounds)], 1e-5)
    assert wanted * (1.0 - 1e-4) <= spent <= wanted * (1.2 if zeroed else 1.003)
    if known is not None:
        assert spent == pytest.approx(known, rel=1e-3)
    # A batch with any of them is accounted as one with all, which costs more.
    together = line("gaussian", unit.steps * m, rounds, 1.0 - (1.0 - rate) ** records)
    assert spent <= float(epsilon_of(Ledger(1, (together,)), 1e-5)[0]) * (1.0 + 1e-3)


def test_no_vectors_of_a_group_exceed_the_pair_on_a_line() -> None:
    """Two records, contributions of any direction and length up to m in the plane, in either data set."""
    rng, x = np.random.default_rng(0), np.linspace(-9.0, 9.0, 361)
    area, largest = (x[1] - x[0]) ** 2, 0.0
    for trial in range(30):
        m, rate = rng.uniform(0.2, 2.0), rng.uniform(0.05, 0.95)
        u, v = rng.normal(size=(2, 2, 2))
        if trial % 3 == 0:
            u[1], v = u[0], -u
        u, v = (m * a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), rng.uniform(0.1, 1.0)) for a in (u, v))
        laws = []
        for a in (u, v, np.zeros((2, 2))):
            subsets = [np.zeros(2), a[0], a[1], a[0] + a[1]]
            shares = [(1 - rate) ** 2, rate * (1 - rate), rate * (1 - rate), rate**2]
            laws.append(
                sum(b * np.outer(norm.pdf(x - c[0]), norm.pdf(x - c[1])) for b, c in zip(shares, subsets, strict=True))
            )
        for zeroed, pairs in ((False, [(0, 1), (1, 0)]), (True, [(0, 2), (2, 0)])):
            profile = group_profile(2 * m * (1 if zeroed else 2), rate, 2, zeroed)
            for e in (0.0, 0.3, 1.5):
                allowed = float(profile(np.array([e]))[0])
                for one, other in pairs:
                    shown = float(np.maximum(laws[one] - np.exp(e) * laws[other], 0.0).sum()) * area
                    assert shown <= allowed * (1.0 + 1e-4) + 1e-8
                    largest = max(largest, shown / allowed)
    assert largest > 0.99


def law_of_two(x: np.ndarray, shares: list[float], first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Densities of two releases on one sample of two records, of what each adds: (2,) to the first, (2, n) later."""
    out = np.zeros((x.size, x.size))
    for share, drawn in zip(shares, ([], [0], [1], [0, 1]), strict=True):
        then = second[drawn].sum(axis=0)
        out += share * norm.pdf(x - first[drawn].sum())[:, None] * norm.pdf(x - then[:, None])
    return out


def test_no_second_release_that_follows_the_first_exceeds_one_merged_event() -> None:
    """Two records on one sample of two releases; signs of the second follow the outcome of the first."""
    rng, x = np.random.default_rng(1), np.linspace(-9.0, 9.0, 361)
    area, largest = (x[1] - x[0]) ** 2, 0.0
    for trial in range(16):
        first, second, rate = rng.uniform(0.3, 1.2), rng.uniform(0.3, 1.2), rng.uniform(0.1, 0.9)
        shares = [(1 - rate) ** 2, rate * (1 - rate), rate * (1 - rate), rate**2]

        turns = rng.choice([-1.0, 0.5, 1.0], (2, 2, x.size)) if trial % 2 else np.ones((2, 2, x.size))
        signs = rng.choice([-1.0, 1.0], (2, 2)) if trial % 4 else np.ones((2, 2))
        p, q, none = (
            law_of_two(x, shares, first * a, second * b)
            for a, b in ((signs[0], turns[0]), (-signs[1], -turns[1]), (0.0 * signs[0], 0.0 * turns[0]))
        )
        size = np.hypot(first, second)
        for other, zeroed in ((q, False), (none, True)):
            profile = group_profile(2 * size * (1 if zeroed else 2), rate, 2, zeroed)
            for e in (0.0, 0.5, 2.0):
                allowed = float(profile(np.array([e]))[0])
                for one, two in ((p, other), (other, p)):
                    shown = float(np.maximum(one - np.exp(e) * two, 0.0).sum()) * area
                    assert shown <= allowed * (1.0 + 1e-4) + 1e-8
                    largest = max(largest, shown / allowed)
    assert largest > 0.99


@pytest.mark.parametrize(("mu", "rate", "rounds", "known"), [(5.0, 0.1, 50, 41.23), (6.0, 0.1, 50, None)])
def test_a_poisson_sample_of_a_large_loss_has_a_finite_price(
    mu: float, rate: float, rounds: int, known: float | None
) -> None:
    spent = float(epsilon_of(Ledger(1, (line("gaussian", mu, rounds, rate, sampling="poisson"),)), 1e-5)[0])
    wanted = reference_epsilon([poisson_outcomes(2.0 / mu, rate, rounds)], 1e-5)
    assert wanted * (1.0 - 1e-4) <= spent <= 1.005 * wanted
    if known is not None:
        assert wanted == pytest.approx(known, rel=3e-3)


def test_large_losses_have_no_price_where_the_far_side_is_not_hidden() -> None:
    """Beyond ten deviations float64 samplers have no outcomes: 50 rounds of a record that is mostly drawn show more."""
    one = line("gaussian", 5.0, 50, 0.1, sampling="poisson")
    for some in (
        (line("gaussian", 5.0, 50, 0.6, sampling="poisson"),),
        (replace(one, dimension=2 * 10**6),),
        (one, replace(line("gaussian", 0.1, 50, 0.1, sampling="poisson"), channel="w")),
    ):
        assert np.isinf(epsilon_of(Ledger(1, some), 1e-5)[0])


def test_groups_of_many_records_are_rounded_to_more_drawn_ones() -> None:
    """400 of them: P(N(jm, 1) > τ) against N(0, 1), j binomial, at the best of many τ."""
    e, tau, m = np.array([0.0, 0.5, 1.0]), np.linspace(-4.0, 8.0, 2401)[:, None], 2.0 / 400
    j = np.arange(401)
    above = (binom.pmf(j, 400, 0.3) * norm.sf(tau - m * j)).sum(axis=1)
    wanted = (above[:, None] - np.exp(e) * norm.sf(tau)).max(axis=0)
    found = group_profile(2.0, 0.3, 400, True)(e)
    assert (found >= wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=0.1)


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
            account(Ledger(1, (wrong,)), 1e-5)
    fixed = replace(line("gaussian", 1.0, 2, 0.1), channel="w")
    with pytest.raises(InputError, match="two samplings"):
        account(Ledger(1, (line("gaussian", 1.0, 2, 0.1, sampling="poisson"), fixed)), 1e-5)


def test_exponential_mechanisms_compose_at_an_eighth() -> None:
    """ρ = ε²/8 per draw: with many of them ε(δ) is nearly half the ε(δ) of unknown releases of pure ε."""
    rounds, each = 4000, 0.01
    ranged = float(epsilon_of(Ledger(1, (line("exponential", each, rounds),)), 1e-6)[0])
    rho = rounds * each**2 / 8.0
    assert ranged <= (rho + 2.0 * np.sqrt(rho * np.log(1e6))) * (1.0 + 1e-9)
    assert ranged < 0.62 * float(epsilon_of(Ledger(1, (line("pure", each, rounds),)), 1e-6)[0])
    assert account(Ledger(1, (line("exponential", each, rounds),)), 0.0).epsilon[0] == pytest.approx(rounds * each)


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
    """Bound pure ε₁ and μ together by the concentrated bound ε₁²/8 + μ²/2, and from below by each one."""
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
    budget = account(Ledger(1, (line("uncertified", 1.0, 1),)), 1e-5)
    assert np.isinf(budget.epsilon[0])
