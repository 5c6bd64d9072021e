"""Lower bounds by guesses and canaries, against definitions, linear programs and best mechanisms."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom, norm

import decentral_dp
from decentral_dp.auditing.bounds import (
    LeastError,
    bound_chance,
    draw_canaries,
    epsilon_refuted,
    gaussian_error,
    is_impossible,
    mu_refuted,
    one_run_bound,
)
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.audits import audit


def test_randomised_response_is_bounded_at_the_confidence() -> None:
    """Each draw is released correctly with probability e^ε/(1 + e^ε): the theorem is tight for this mechanism."""
    rng, epsilon, m = np.random.default_rng(3), 1.5, 1000
    q = 1.0 / (1.0 + np.exp(-epsilon))
    found = []
    for _ in range(60):
        coins = rng.random(m) < 0.5
        told = np.where(rng.random(m) < q, coins, ~coins)
        found.append(one_run_bound(np.where(told, 1.0, -1.0), coins, 0.0, 0.05, gaussian=False))
    # 60 tries at risk 0.05: more than 10 have probability 2e-4.
    assert sum(b > epsilon for b in found) <= 10
    assert np.median(found) > 1.2


def test_the_bound_on_the_chance_is_that_of_the_theorem() -> None:
    for right, epsilon, delta in product((3, 7, 10), (0.3, 2.0), (0.0, 1e-3)):
        r, m = 10, 40
        q = np.exp(epsilon) / (1.0 + np.exp(epsilon))
        law = [binom.pmf(k, r, q) for k in range(r + 1)]
        alpha = max(sum(law[max(0, right - i) : right]) / i for i in range(1, right + 1))
        expected = min(1.0, sum(law[right:]) + 2.0 * m * delta * alpha)
        assert bound_chance(right, r, m, epsilon, delta) == pytest.approx(expected, rel=1e-12)
    assert bound_chance(0, 10, 40, 1.0, 0.0) == 1.0


def test_bounds_of_canaries_decrease_with_delta() -> None:
    coins = np.ones(200, dtype=bool)
    sure, with_delta = (one_run_bound(np.ones(200), coins, delta, 0.05, False) for delta in (0.0, 1e-4))
    assert with_delta < sure
    assert one_run_bound(np.ones(200), np.arange(200) % 2 == 0, 0.0, 0.05, False) == 0.0


def test_canaries_differ_only_in_the_label() -> None:
    job = build(decentral_dp.load("dp_sgda"))
    same, canaries = draw_canaries(job, 60, seeded_root(1, b"canaries"))
    assert same is job
    assert len({tuple(place) for place in canaries.place.tolist()}) == 60
    labels = [name for name in canaries.first._fields if "label" in name or name in ("y", "sign", "target")]
    different = [
        name
        for name, a, b in zip(canaries.first._fields, canaries.first, canaries.second, strict=True)
        if not np.array_equal(a, b)
    ]
    assert len(different) == 1, (labels, different)
    assert 10 < canaries.coins.sum() < 50


def test_canaries_without_and_with_noise() -> None:
    bare = ['privacy.guarantee="none"', "algorithm.rounds=400", "algorithm.x.scale=4.0"]
    loud = audit("auc_digits", overrides=bare, canaries=100)
    assert (loud.method, loud.runs, loud.adversary, loud.null_shown) == ("one run", 1, "published", 0.0)
    assert loud.shown > 0.5
    quiet = audit("dp_sgda", canaries=100)
    assert quiet.shown <= quiet.certified
    assert any("canaries" in s for s in quiet.sentences)


@pytest.mark.parametrize(("name", "canaries"), [("dp_sgda", 5), ("dp_sgda", 10_000), ("ring_breast_cancer", 50)])
def test_wrong_numbers_of_canaries_are_refused(name: str, canaries: int) -> None:
    with pytest.raises(InputError, match="canaries"):
        audit(name, canaries=canaries)


# (ε, δ) of one record, two of them curves whose straight pieces all bear.
BUDGETS = ((0.0, 0.1), (0.5, 0.0), (1.0, 0.05), (2.0, 0.01))


def approximate_error(epsilon: float, delta: float) -> LeastError:
    """G of the curve of (ε, δ): max(0, e^(−ε)·(h − δ), 1 − δ − e^ε·(1 − h))."""
    grown = float(np.exp(epsilon))
    return lambda power: max(0.0, (power - delta) / grown, 1.0 - delta - grown * (1.0 - power))


def most(right: int, guesses: int, canaries: int, error: Any) -> float:
    """The largest P(V ≥ right) that is not excluded, by bisection."""
    low, high = 0.0, 1.0
    if not is_impossible(right, guesses, canaries, error, 1.0):
        return 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if is_impossible(right, guesses, canaries, error, middle) else (middle, high)
    return high


def best_mechanism(right: int, guesses: int, coins: int, epsilon: float, delta: float) -> float:
    """The largest P(V ≥ right) of all mechanisms under (ε, δ), by a linear program over their whole laws.

    Without loss of generality, a mechanism outputs the adversary's guesses: the indices of draws and their values.
    """
    outputs = [
        dict(zip(which, values, strict=True))
        for which in combinations(range(coins), guesses)
        for values in product((0, 1), repeat=guesses)
    ]
    data_sets = list(product((0, 1), repeat=coins))
    n, size = len(outputs), len(outputs) * len(data_sets)
    pairs = [
        (a, b)
        for a in range(len(data_sets))
        for b in range(len(data_sets))
        if sum(x != y for x, y in zip(data_sets[a], data_sets[b], strict=True)) == 1
    ]
    # Variables: P(output | data set), then for each ordered pair how much of each output is beyond e^ε.
    gain = np.zeros(size + len(pairs) * n)
    for w, data_set in enumerate(data_sets):
        for o, output in enumerate(outputs):
            gain[w * n + o] = -(sum(data_set[k] == v for k, v in output.items()) >= right) / len(data_sets)
    rows, limits = [], []
    for number, (a, b) in enumerate(pairs):
        budget = np.zeros(gain.size)
        for o in range(n):
            beyond = np.zeros(gain.size)
            beyond[a * n + o], beyond[b * n + o], beyond[size + number * n + o] = 1.0, -np.exp(epsilon), -1.0
            rows.append(beyond)
            limits.append(0.0)
            budget[size + number * n + o] = 1.0
        rows.append(budget)
        limits.append(delta)
    laws = np.zeros((len(data_sets), gain.size))
    for w in range(len(data_sets)):
        laws[w, w * n : (w + 1) * n] = 1.0
    found = linprog(gain, np.array(rows), limits, laws, np.ones(len(data_sets)))
    assert found.success
    return float(-found.fun)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_no_mechanism_exceeds_the_bound_of_its_curve(epsilon: float, delta: float) -> None:
    tight = 0
    for coins, guesses in ((1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)):
        for right in range(1, guesses + 1):
            possible = best_mechanism(right, guesses, coins, epsilon, delta)
            allowed = most(right, guesses, coins, approximate_error(epsilon, delta))
            assert possible <= allowed + 1e-7, (coins, guesses, right)
            tight += allowed <= possible + 1e-6
    # A mechanism attains the bound for one draw.
    assert tight >= 1


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_the_recursion_finds_the_largest_tail_of_a_linear_program(mu: float) -> None:
    """Over all distributions of V with h_c ≤ F(w_{c−1}), and F bounded from above by many tangents."""
    at = norm.ppf(np.linspace(1e-4, 1.0 - 1e-4, 1500))
    slope, level = np.exp(mu * -at - 0.5 * mu**2), norm.cdf(at + mu)
    base = level - slope * norm.cdf(at)
    for canaries, guesses, right in product((8, 12), (5, 8), (3, 5)):
        j = np.arange(guesses + 1)
        rows, limits = [], []
        for c in range(1, guesses + 1):
            h = np.where(j >= c, j, 0) / canaries
            w = np.where(j >= c - 1, guesses - j, 0) / canaries
            rows.append(h[None] - slope[:, None] * w[None])
            limits.append(base)
        tail = (j >= right).astype(float)
        found = linprog(-tail, np.concatenate(rows), np.concatenate(limits), np.ones((1, j.size)), [1.0])
        assert found.success
        assert most(right, guesses, canaries, gaussian_error(mu)) == pytest.approx(-found.fun, rel=2e-3, abs=1e-6)


@pytest.mark.parametrize(("mu", "canaries"), [(0.5, 40), (1.0, 300), (2.0, 1000)])
def test_gaussian_noise_is_bounded_at_the_confidence(mu: float, canaries: int) -> None:
    """Every draw has independent Gaussian noise, so the guesses are independent and as good as the bound allows."""
    rng, delta, tries = np.random.default_rng(5), 1e-5, 60
    price = float(gaussian_epsilon(mu, delta))
    found = []
    for _ in range(tries):
        coins = rng.random(canaries) < 0.5
        scores = np.where(coins, 0.5 * mu, -0.5 * mu) + rng.normal(size=canaries)
        found.append(one_run_bound(scores, coins, delta, 0.05, gaussian=True))
    # Above 10 of 60 at risk 0.05 has probability 2e-4.
    assert sum(b > price for b in found) <= 10


def test_a_record_that_is_released_with_probability_delta() -> None:
    """All draws are released together with probability δ, so no bound may be below it."""
    for canaries in (10, 100, 1000):
        assert not is_impossible(canaries, canaries, canaries, approximate_error(0.0, 1e-3), 1e-3)


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("canaries", [300, 1000, 5000])
def test_the_gaussian_curve_gives_larger_bounds(mu: float, canaries: int) -> None:
    """Use the mean number of correct guesses under Gaussian noise, for the surest tenth."""
    rng, guesses, delta = np.random.default_rng(6), canaries // 10, 1e-5
    draws = rng.normal(0.5 * mu, 1.0, (200, canaries))
    surest = np.argsort(-np.abs(draws), axis=1)[:, :guesses]
    right = int(np.median((np.take_along_axis(draws, surest, axis=1) > 0.0).sum(axis=1)))
    by_curve = float(gaussian_epsilon(mu_refuted(right, guesses, canaries, 0.05), delta))
    by_epsilon = epsilon_refuted(right, guesses, canaries, delta, 0.05)
    assert by_epsilon <= by_curve <= float(gaussian_epsilon(mu, delta))
    assert by_curve > 0.0 or right < 0.65 * guesses
