"""Prices against closed forms, quadrature, other accountants, and the traps that under-report."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import simpson

from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting import loss_distributions
from decentral_dp.privacy.accounting.accountants import account, epsilon_at, epsilon_of, gaussian_epsilon, spending
from decentral_dp.privacy.accounting.charges import MOST_COLUMNS
from decentral_dp.privacy.accounting.loss_distributions import Releases, epsilons
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE
from tests.support.oracles import convolved_epsilon, gaussian_delta, hockey_stick, laplace_delta, sampled_twice_delta
from tests.support.release_cost_oracle import grid
from tests.support.schedules import deviations, ledger, line, pair_stream, sampling, steps

DELTA = 1e-5


def one(losses: np.ndarray, rate: float = 1.0) -> Ledger:
    """A ledger of one agent whose Laplace releases have these pure ε."""
    e = np.asarray(losses, dtype=float)
    return ledger(line("y", {"train": e}, np.ones(e.size), rate=rate))


def composed(losses: np.ndarray, delta: float = DELTA) -> float:
    return epsilons([Releases(laplace=np.asarray(losses, dtype=float))], delta)[0]


# Numbers of the paper's synthetic schedules -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "train", "validation"),
    [(100, 1.035444, 0.272299), (1000, 1.277571, 0.330742), (10_000, 1.465694, 0.373075)],
)
def test_stream_of_one_record_a_round(rounds: int, train: float, validation: float) -> None:
    budget = account(sampling(rounds), 0.0)
    # The rounding grid adds at most 2⁻²⁰ of the cost.
    assert budget.records["train"].epsilon_pure[0] == pytest.approx(train, rel=1.5e-6)
    assert budget.records["validation"].epsilon_pure[0] == pytest.approx(validation, rel=3e-6)
    assert budget.epsilon_pure[0] == budget.records["train"].epsilon_pure[0]
    assert budget.channels["z"].epsilon_pure[0] == pytest.approx(validation, rel=3e-6)


def test_minibatches_of_fifty_in_six_thousand() -> None:
    size = np.full(720, 50.0)
    assert account(pair_stream(720, weight=size), 0.0).epsilon_pure[0] == pytest.approx(1.657, abs=5e-4)
    sampled = account(pair_stream(720, weight=size, rate=50 / 6000), 0.0)
    assert sampled.epsilon_pure[0] == pytest.approx(0.01383, abs=5e-6)


def test_gaussian_stream_is_exactly_gaussian() -> None:
    rounds, index = 100, np.arange(1, 101)
    counts = np.arange(1.0, rounds + 1)
    lines = [line(c, {"train": steps(c, rounds) * 2 / counts}, deviations(c, index), "gaussian") for c in "xyz"]
    budget = account(ledger(*lines), DELTA)
    assert budget.epsilon[0] == pytest.approx(1.057, abs=1e-3)
    assert math.isinf(budget.epsilon_pure[0])


# One release --------------------------------------------------------------------------------------------------------


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.integers(1, 10_000))
def test_prices_of_one_release_are_the_stated_formulas(delta: float, scale: float, dimension: int) -> None:
    g = 2.0 ** (math.floor(math.log2(scale)) - 20)
    assert grid(scale, "laplace", 1) == g
    expected = (delta / g + dimension * 2.0**-52) * math.expm1(g / scale)
    assert LAPLACE.cost(delta, scale, dimension) == pytest.approx(expected, rel=1e-12)
    assert delta / scale <= LAPLACE.cost(delta, scale, dimension) <= delta / scale * (1 + 2.0**-20) + 1e-10
    wide = dimension > 4096
    h = 2.0 ** (math.floor(math.log2(scale)) - (18 if wide else 16))
    assert grid(scale, "gaussian", dimension) == h
    # Rounding to the nearest may move all coordinates the same way; randomised rounding moves half of them.
    rounded = math.sqrt((delta + 5 * h) ** 2 + (dimension / 4 + 5 * math.sqrt(dimension)) * h * h)
    apart = rounded if wide else delta + math.sqrt(dimension) * h
    assert GAUSSIAN.cost(delta, scale, dimension) == pytest.approx(apart / scale, rel=1e-12)


def test_prices_at_the_edges() -> None:
    for rule in (LAPLACE.cost, GAUSSIAN.cost):
        np.testing.assert_array_equal(
            rule(np.array([0.0, 0.0, 1.0, np.inf]), np.array([1.0, 0.0, 0.0, 1.0]), 5), [0, 0, np.inf, np.inf]
        )


def test_the_rounding_is_in_the_price() -> None:
    """One coordinate moves by half a cell. Stochastic rounding is covered; rounding to nearest would jump a cell."""
    scale, cells = 1.0, 2.0**20
    ratio = 1.0 / cells
    charged = float(LAPLACE.cost(0.5 / cells, scale, 1))
    # P_k(u) = (1−f) p(k) + f p(k−1) with p(k−1)/p(k) = e^{1/b} at the worst k.
    stochastic = math.log1p(0.5 * math.expm1(ratio))
    assert stochastic <= charged <= stochastic * (1 + 1e-5)
    many = 1000
    nearest = many * ratio
    assert nearest > 100 * float(LAPLACE.cost(many * 1e-9 / cells, scale, many))


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.283, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-10])
def test_gaussian_closed_form(mu: float, delta: float) -> None:
    epsilon = float(gaussian_epsilon(mu, delta))
    assert gaussian_delta(mu, epsilon) <= delta * (1 + 1e-9)
    if epsilon > 0.0:
        assert gaussian_delta(mu, epsilon * (1 - 1e-7)) > delta


# Composition against quadrature and other accountants ---------------------------------------------------------------


@pytest.mark.parametrize(
    "losses", [(1.0,), (0.3,), (4.0,), (1.0, 0.5), (0.2, 0.2), (3.0, 0.1), (1.0, 0.7, 0.4), (0.1, 2.0, 0.1)]
)
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_few_laplaces_against_quadrature(losses: tuple[float, ...], delta: float) -> None:
    bound = composed(losses, delta)
    assert laplace_delta(losses, bound) <= delta * (1 + 1e-7)
    assert laplace_delta(losses, 0.992 * bound) > delta


@pytest.mark.parametrize("decay", [0.6, 1.2])
def test_many_laplaces_against_a_bracketing_convolution(decay: float) -> None:
    losses = 0.3 * np.arange(1, 121) ** -decay
    low, high = convolved_epsilon(losses, DELTA)
    bound = composed(losses)
    assert low <= bound <= high * 1.01


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("parts", [1, 7])
def test_gaussian_composition_against_the_closed_form(mu: float, parts: int) -> None:
    segments = [Releases(mu=mu / math.sqrt(parts))] * parts
    found = epsilons(segments, DELTA)[-1]
    exact = float(gaussian_epsilon(mu, DELTA))
    assert exact * (1 - 1e-9) <= found <= exact * 1.005


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("decay", [0.3, 0.8])
def test_no_looser_than_renyi_nor_the_plain_sum(mechanism: str, decay: float) -> None:
    size = 0.5 * np.arange(1, 201) ** -decay
    found = account(ledger(line("y", {"train": size}, np.ones(200), mechanism)), DELTA).epsilon[0]
    event = dp_event.LaplaceDpEvent if mechanism == "laplace" else dp_event.GaussianDpEvent
    accountant = rdp.RdpAccountant()
    for s in size:
        accountant.compose(event(1.0 / s))
    assert found <= accountant.get_epsilon(DELTA) * 1.005
    assert found <= size.sum() or mechanism == "gaussian"


@pytest.mark.parametrize(("loss", "mu"), [(1.0, 1.0), (0.3, 0.5), (2.0, 0.2)])
def test_mixed_mechanisms_against_quadrature(loss: float, mu: float) -> None:
    """δ(ε) = E_L[δ_Gauss(ε − L)] over the Laplace loss L."""
    a = line("y", {"train": np.array([loss])}, np.ones(1))
    b = line("z", {"train": np.array([mu])}, np.ones(1), "gaussian")
    both, alone = account(ledger(a, b), DELTA).epsilon[0], account(ledger(b), DELTA).epsilon[0]
    assert alone < both < alone + loss

    def delta(epsilon: float) -> float:
        ends = 0.5 * gaussian_delta(mu, epsilon - loss) + 0.5 * math.exp(-loss) * gaussian_delta(mu, epsilon + loss)
        u = np.linspace(-loss, loss, 401)
        density = 0.25 * np.exp(0.5 * (u - loss))
        return ends + float(simpson(density * [gaussian_delta(mu, epsilon - x) for x in u], x=u))

    assert delta(both) <= DELTA * 1.0001
    assert delta(0.992 * both) > DELTA


# Sampling -----------------------------------------------------------------------------------------------------------


def test_a_batch_is_amplified_once_over_all_its_channels() -> None:
    """N = 2, B = 1, data {+1, −1} against {−1, −1}, y and z released from the same record: an exact counterexample."""
    a, b, eta = 1.3, 0.9, 0.5
    lines = [line(c, {"train": np.array([e])}, np.ones(1), rate=eta) for c, e in (("y", a), ("z", b))]
    budget = account(ledger(*lines), 0.0)
    exact = math.log(eta * math.exp(a + b) + 1.0 - eta)
    per_channel = sum(math.log1p(eta * math.expm1(e)) for e in (a, b))
    assert per_channel < exact
    assert budget.epsilon_pure[0] == pytest.approx(exact, rel=1e-5)
    assert budget.epsilon_pure[0] >= exact
    assert budget.channels["y"].epsilon_pure[0] == pytest.approx(math.log1p(eta * math.expm1(a)), rel=1e-5)


def test_amplifying_per_channel_would_show_at_a_hundredth_of_the_noise() -> None:
    fine = pair_stream(720, weight=np.full(720, 50.0), rate=50 / 6000, finer=100.0)
    assert account(fine, 0.0).epsilon_pure[0] == pytest.approx(1.556, abs=5e-4)
    alone = account(fine, 0.0).channels
    assert alone["y"].epsilon_pure[0] + alone["z"].epsilon_pure[0] == pytest.approx(1.482, abs=5e-4)


@pytest.mark.parametrize(("loss", "eta"), [(1.0, 0.5), (0.4, 0.1), (3.0, 0.02)])
def test_profile_of_a_sampled_release_is_attained_and_never_passed(loss: float, eta: float) -> None:
    """Records at the ends of the clip: mixtures of Laplace laws a distance apart, compared on the line."""

    def law(at: float) -> object:
        return lambda x: 0.5 * np.exp(-np.abs(x - at))

    profile = loss_distributions.laplace_profile(loss, eta)
    for others in (0.0, loss, 0.3 * loss):
        p = lambda x, o=others: (1 - eta) * law(o)(x) + eta * law(loss)(x)  # type: ignore[operator]  # noqa: E731
        q = lambda x, o=others: (1 - eta) * law(o)(x) + eta * law(0.0)(x)  # type: ignore[operator]  # noqa: E731
        reach = math.log1p(eta * math.expm1(loss))
        for epsilon in np.linspace(0.0, 0.95 * reach, 5):
            bound = float(profile(np.asarray(epsilon)))
            for first, second in ((p, q), (q, p)):
                assert hockey_stick(first, second, float(epsilon)) <= bound + 1e-7
            if others == 0.0:
                assert hockey_stick(p, q, float(epsilon)) == pytest.approx(bound, abs=1e-7)


def test_two_sampled_rounds_against_the_exact_pair() -> None:
    """Two rounds of the pair that attains the profile: the bound holds, and is not far above."""
    loss, eta, delta = 1.0, 0.3, 1e-3
    bound = epsilons([Releases(sampled_laplace=np.array([[loss, loss], [eta, eta]]))], delta)[0]
    assert sampled_twice_delta(loss, eta, bound) <= delta
    assert sampled_twice_delta(loss, eta, 0.99 * bound) > delta


# Structure of the budget --------------------------------------------------------------------------------------------


def test_the_budget_is_the_dearer_kind_and_a_record_in_both_costs_the_sum() -> None:
    """Exact replay of two rounds at the public point: y moves with the train record, z with both."""
    train, validation, scale = np.array([0.4, 0.2]), np.array([0.3, 0.25]), 1.0
    y = line("y", {"train": train}, np.ones(2))
    z = line("z", {"train": train, "validation": validation}, np.ones(2))
    budget = account(ledger(y, z), 0.0)
    assert budget.records["train"].epsilon_pure[0] == pytest.approx(2 * train.sum(), rel=1e-5)
    assert budget.records["validation"].epsilon_pure[0] == pytest.approx(validation.sum(), rel=1e-5)
    assert budget.epsilon_pure[0] == budget.records["train"].epsilon_pure[0]
    # A record that sits in both sets moves y by the first and z by both; outputs far out attain every |shift|/b.
    far = 1e3
    shift_y, shift_z = train, train + validation
    realised = (
        sum(abs(far + s) - abs(far) for s in shift_y) / scale + sum(abs(far + s) - abs(far) for s in shift_z) / scale
    )
    both = budget.records["train"].epsilon_pure[0] + budget.records["validation"].epsilon_pure[0]
    assert realised > budget.epsilon_pure[0] * 1.2
    assert realised == pytest.approx(both, rel=1e-5)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_validation_record_may_be_the_dearer_one(mechanism: str) -> None:
    rounds = np.ones(10)
    both = ledger(
        line("y", {"train": 0.1 * rounds}, rounds, mechanism),
        line("z", {"validation": 0.3 * rounds}, rounds, mechanism),
    )
    alone = ledger(line("z", {"validation": 0.3 * rounds}, rounds, mechanism))
    budget = account(both, DELTA)
    assert budget.epsilon[0] == budget.records["validation"].epsilon[0] > budget.records["train"].epsilon[0] > 0.0
    assert budget.epsilon[0] == account(alone, DELTA).epsilon[0] == epsilon_of(both, DELTA)[0]
    assert spending(both, DELTA, [10])[0] == pytest.approx(budget.epsilon[0], rel=1e-6)


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_what_hides_nothing_costs_infinity(delta: float) -> None:
    unbounded = line("y", {"train": np.array([0.1, np.inf])}, np.ones(2))
    silent = line("y", {"train": np.array([0.0, 0.1])}, np.zeros(2), "none")
    zero = line("y", {"train": np.array([0.1, 0.1])}, np.array([1.0, 0.0]))
    gaussian = line("y", {"train": np.array([0.1, np.inf])}, np.ones(2), "gaussian")
    drawn = line("y", {"train": np.array([0.1, np.inf])}, np.ones(2), rate=0.1)
    for bad in (unbounded, silent, zero, gaussian, drawn):
        beside = line("z", {"train": np.array([0.1, 0.1])}, np.ones(2), "laplace")
        budget = account(ledger(bad, beside), delta)
        assert budget.epsilon.tolist() == [np.inf]
        assert budget.channels["z"].epsilon[0] < 1.0
    assert account(ledger(line("y", {"train": np.zeros(2)}, np.zeros(2), "none")), delta).epsilon.tolist() == [0.0]


def test_unknown_or_unsound_lines_are_refused() -> None:
    good = line("y", {"train": np.array([0.1, 0.1])}, np.ones(2))
    drawn = replace(good, rate={"train": np.full((2, 1), 0.5)})
    other = line("z", {"train": np.array([0.1, 0.1])}, np.ones(2), "gaussian", rate=0.5)
    slower = line("z", {"train": np.array([0.1, 0.1])}, np.ones(2), rate=0.25)
    cases = {
        "both": (drawn, other),
        "different sampling rates": (drawn, slower),
        "not a number": (replace(good, sensitivity={"train": np.array([[0.1], [np.nan]])}),),
        "negative": (replace(good, scale=np.array([[1.0], [-1.0]])),),
        "above 1": (replace(good, rate={"train": np.full((2, 1), 1.5)}),),
        "ascending": (replace(good, rounds=np.array([2, 1])),),
    }
    for words, lines in cases.items():
        with pytest.raises(InputError, match=words):
            account(ledger(*lines), DELTA)
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(InputError, match="delta"):
            account(ledger(good), delta)


@given(st.lists(st.floats(0.001, 2.0), min_size=1, max_size=30), st.floats(1.01, 3.0), st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_monotone_and_blind_to_order_and_splitting(losses: list[float], factor: float, seed: int) -> None:
    e = np.asarray(losses)
    base = epsilon_of(one(e), DELTA)[0]
    pure = account(one(e), 0.0).epsilon[0]
    loose = 1.006
    assert base <= pure
    assert epsilon_of(one(e).rescale(factor), DELTA)[0] <= base * loose
    assert epsilon_of(one(np.append(e, 0.5)), DELTA)[0] >= base / loose
    shuffled = np.random.default_rng(seed).permutation(e)
    assert epsilon_of(one(shuffled), DELTA)[0] == pytest.approx(base, rel=1e-6)
    # The same releases on two channels of the same record.
    half = e.size // 2
    if half:
        parts = (line("y", {"train": e[:half]}, np.ones(half)), line("z", {"train": e[half:]}, np.ones(e.size - half)))
        assert epsilon_of(ledger(*parts), DELTA)[0] == pytest.approx(base, rel=1e-6)
    assert epsilon_of(one(e), 1e-3)[0] <= base * loose


def test_very_small_delta_costs_no_more_than_what_is_proven_without_numerics() -> None:
    losses = np.full(100, 0.01)
    for delta in (1e-13, 1e-30, 1e-300):
        assert epsilon_of(one(losses), delta)[0] <= 1.0 + 1e-5
    many = np.full(10**5, 1e-3)
    assert 0.05 < epsilon_at(Releases(laplace=many), 1e-13) < 3.0
    # The slack of 10⁵ samplers is more than that δ, so the budget is the pure one.
    assert epsilon_of(one(many), 1e-13)[0] == pytest.approx(100.0, rel=1e-5)
    # A million plain convolutions add up to more rounding error than this δ; under a tilt they do not. Σε² = 1.
    assert composed(np.full(10**6, 1e-3), 1e-10) == pytest.approx(float(gaussian_epsilon(1.0, 1e-10)), rel=5e-3)


def test_schedules_of_equal_sums_are_not_taken_for_one() -> None:
    # At a δ this large their costs differ by more than a last bit.
    columns, delta = np.array([[1.0] * 6, [0.5, 1.5] * 3, [1.0] * 6, [0.25, 1.75] * 3]), 0.1
    together = account(own_columns(columns), delta).epsilon
    alone = [account(own_columns(c[None]), delta).epsilon[0] for c in columns]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    assert together[0] == together[2]
    assert np.diff(np.unique(together)).min() > 0.3


def own_columns(losses: np.ndarray) -> Ledger:
    """Each agent has a separate column of losses."""
    ones = np.ones(losses.T.shape)
    group, rounds = np.arange(len(losses)), np.arange(1, losses.shape[1] + 1)
    kinds = {"train": np.asarray(losses.T)}
    return Ledger(len(losses), (ChannelLedger("x", LAPLACE, 1, group, rounds, ones, kinds, {"train": ones}),))


def test_more_columns_than_are_composed_one_by_one() -> None:
    factors = np.random.default_rng(4).uniform(0.5, 8.0, 2 * MOST_COLUMNS)
    few, many = sampling(40), sampling(40, [1] * factors.size).rescale(factors)
    budget = account(many, DELTA)
    each = np.array([epsilon_of(few.rescale(f), DELTA)[0] for f in factors])
    assert 0 < budget.bundles <= MOST_COLUMNS
    assert (budget.epsilon >= each * (1 - 1e-9)).all()
    assert (budget.epsilon <= each * (16 ** (1.2 / (MOST_COLUMNS - 1)) + 0.01)).all()
    assert budget.epsilon.max() == pytest.approx(each.max(), rel=1e-9)
    assert (budget.epsilon <= budget.epsilon_pure).all()


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_spending_along_a_run(mechanism: str) -> None:
    whole = sampling(120, [1, 4], mechanism)
    rounds = [0, 1, 2, 10, 50, 120]
    curve = spending(whole, DELTA, rounds)
    worst = [epsilon_of(whole.truncate(t), DELTA).max() for t in rounds]
    assert curve[0] == 0.0
    assert (np.diff(curve) >= 0).all()
    np.testing.assert_allclose(curve, worst, rtol=0.01)


@pytest.mark.parametrize(
    ("mechanism", "delta"),
    [(m, d) for m in ("laplace", "gaussian") for d in (0.0, DELTA, 1e-9)] + [("gaussian", 1e-18)],
)
def test_slack_of_the_samplers_is_in_the_price(mechanism: str, delta: float) -> None:
    """ε of the float64 sampler at δ is that of the ideal one at what is left of δ, plus the slack in ε."""
    dimension, rounds, size = 40_000, 10, 0.1
    y = line("y", {"train": np.full(rounds, size)}, np.ones(rounds), mechanism, dimension=dimension)
    budget = account(ledger(y), delta)
    if mechanism == "laplace":
        loss = float(LAPLACE.cost(size, 1.0, dimension))
        assert budget.slack_epsilon == pytest.approx(rounds * dimension * 2e-15)
        assert budget.slack_delta == pytest.approx(rounds * 1.3e-16 * (2 * dimension + math.expm1(loss)))
        ideal = rounds * loss if delta == 0.0 else composed(np.full(rounds, loss), delta - budget.slack_delta)
    else:
        mu = float(GAUSSIAN.cost(size, 1.0, dimension))
        # No more than if all errors added up, and no more than the share of δ that may be spent on them.
        assert budget.slack_epsilon <= rounds * dimension * 20 * 2.0**-33 * (1 + 1e-6)
        left = max(0.0, delta - budget.slack_delta)
        assert left >= 0.849 * delta or delta < 1e-9
        ideal = float(gaussian_epsilon(mu * math.sqrt(rounds), left))
        assert budget.epsilon[0] <= float(
            gaussian_epsilon(mu * math.sqrt(rounds), left * math.exp(-budget.slack_epsilon)) + budget.slack_epsilon
        )
    tolerance = 1e-9 if mechanism == "laplace" else 1e-4
    assert budget.epsilon[0] == pytest.approx(ideal + budget.slack_epsilon, rel=tolerance)
    assert budget.epsilon[0] >= ideal
    # So small a δ is less than what is beyond the Gaussian sampler's end, and no ε can be stated with it.
    assert math.isinf(budget.epsilon[0]) == (mechanism == "gaussian" and delta < 1e-9)
    assert budget.has_pure_only == (delta == 1e-18)
