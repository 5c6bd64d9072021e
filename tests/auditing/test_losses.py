"""The laws and the statistics that an audit rests on, against laws that are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from decentral_dp.auditing.bounds import counting_limit, from_likelihoods
from decentral_dp.auditing.losses import Movement, drawn_noise, laplace_epsilon
from decentral_dp.simulation.statistics import bound_by_counts

NOTHING = np.zeros(0)


def test_one_laplace_release_by_its_closed_form() -> None:
    """δ(ε) = 1 − e^{(ε − a)/2} for a shift of a scales."""
    for a, delta in ((1.0, 0.05), (3.0, 1e-3), (0.2, 1e-5)):
        exact = a + 2.0 * np.log1p(-delta)
        assert exact - 1e-3 * a <= laplace_epsilon(np.array([a]), delta) <= exact
    assert laplace_epsilon(np.array([0.5, 0.25]), 0.0) == 0.75


def test_many_laplace_releases_compose_as_in_a_simulation() -> None:
    moves = np.full(400, 0.05)
    found = laplace_epsilon(moves, 1e-5)
    rng = np.random.default_rng(1)
    noise = rng.laplace(size=(20_000, 400))
    losses = (np.abs(noise + 0.05) - np.abs(noise)).sum(axis=1)
    # By simulation at a larger δ.
    coarse = laplace_epsilon(moves, 0.05)
    assert float(np.maximum(-np.expm1(np.minimum(coarse - losses, 0.0)), 0.0).mean()) == pytest.approx(0.05, rel=0.05)
    assert coarse < found < 20.0


def test_a_gaussian_movement_has_its_known_epsilon() -> None:
    found = Movement(np.array([0.6, 0.8]), NOTHING, False).epsilon(1e-5)
    delta = norm.cdf(0.5 - found) - np.exp(found) * norm.cdf(-0.5 - found)
    assert delta == pytest.approx(1e-5, rel=1e-6)
    assert Movement(NOTHING, NOTHING, False).epsilon(1e-5) == 0.0
    assert Movement(NOTHING, NOTHING, True).epsilon(1e-5) == np.inf


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_bounds_hold_as_often_as_they_say_and_are_worth_something(mu: float) -> None:
    """Gaussian pairs of 100 runs each, 300 times: at most one in ten is above the truth at risk 0.1."""
    rng, delta = np.random.default_rng(5), 1e-5
    truth = Movement(np.array([mu]), NOTHING, False).epsilon(delta)
    found = {"counted": [], "likelihood": []}
    for _ in range(300):
        first, second = (mu * (sign * 0.5 * mu + rng.normal(size=100)) for sign in (1, -1))
        found["counted"].append(bound_by_counts(first, second, delta, 0.1))
        found["likelihood"].append(from_likelihoods(first, second, delta, 0.1))
    for values in found.values():
        assert np.mean(np.array(values) > truth) <= 0.1
    assert np.median(found["likelihood"]) > 0.6 * truth


def test_counting_shows_what_it_says_it_can_at_most() -> None:
    most = counting_limit(200, 1e-5, 0.05)
    assert bound_by_counts(np.ones(200), np.zeros(200), 1e-5, 0.05) == most
    # A score that points the other way is no attack.
    assert bound_by_counts(np.zeros(200), np.ones(200), 1e-5, 0.05) == 0.0
    assert 3.0 < most < 3.5
    assert counting_limit(20, 1e-5, 0.05) < most


def test_equal_laws_show_nothing_by_counting() -> None:
    rng = np.random.default_rng(2)
    shown = [bound_by_counts(rng.normal(size=60), rng.normal(size=60), 1e-5, 1e-3) for _ in range(300)]
    assert np.mean(np.array(shown) > 0.0) <= 0.01


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.3])
def test_noise_of_another_size_is_measured(factor: float) -> None:
    rng = np.random.default_rng(3)
    low, high = drawn_noise(
        [
            ("gaussian", 4000, float(((factor * rng.normal(size=4000)) ** 2).sum())),
            ("laplace", 4000, float(np.abs(factor * rng.laplace(size=4000)).sum())),
        ]
    )
    assert low <= factor <= high
    assert high - low < 0.2
