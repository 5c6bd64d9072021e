"""Ceilings on the AUC of membership inference: attained, never exceeded in their own game, false in others."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from decentral_dp.auditing.membership import within_run
from papers.membership import shifted
from tests.support.auc_bounds import across_runs, across_runs_gaussian, within_run_gaussian, within_run_removed

EPSILONS = (0.0, 0.1, 1.0, 3.0, 8.0)
DELTAS = (0.0, 1e-5, 0.05, 0.3)


def beats(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """1 where the first is larger, ½ where equal."""
    return np.where(first > second, 1.0, np.where(first == second, 0.5, 0.0))


def reveal_or_respond(epsilon: float, delta: float) -> np.ndarray:
    """(2 inputs, 4 outputs): the input as it is with probability δ, else randomised response."""
    right = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    told = (1.0 - delta) * np.array([[right, 1.0 - right], [1.0 - right, right]])
    return np.hstack([delta * np.eye(2), told])


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def game_within(laws: np.ndarray, first: np.ndarray, second: np.ndarray, scores: np.ndarray) -> float:
    """AUC where M's data are the member alone: z ~ first, z' ~ second; laws (records, outputs), scores alike."""
    total = 0.0
    for z, other in itertools.product(range(len(first)), range(len(second))):
        total += first[z] * second[other] * float(laws[z] @ beats(scores[z], scores[other]))
    return total


def game_across(inside: np.ndarray, outside: np.ndarray) -> float:
    """AUC of the likelihood ratio between independent draws of the two laws."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(outside > 0.0, inside / outside, np.inf)
    return float(inside @ beats(ratio[:, None], ratio[None, :]) @ outside)


# The numbers ----------------------------------------------------------------------------------------------------------


def test_the_reported_table_is_impossible_where_it_is() -> None:
    """Xu et al. 2025, Table 2, at others drawn as members: Double up to ε = 3, Recursive up to 1, and no further."""
    claimed = (0.1, 1.0, 3.0, 5.0, 8.0, 10.0)
    double = (0.9719, 0.9723, 0.9717, 0.9723, 0.9724, 0.9715)
    recursive = (0.8234, 0.7932, 0.7958, 0.8014, 0.8001, 0.7825)
    delta = 25_500.0**-1.1
    assert [a > within_run(e, delta) for e, a in zip(claimed, double, strict=True)] == [True] * 3 + [False] * 3
    assert [a > within_run(e, delta) for e, a in zip(claimed, recursive, strict=True)] == [True] * 2 + [False] * 4
    for reported in (double, recursive):
        assert all(a < shifted(e, delta, 0.990) for e, a in zip(claimed, reported, strict=True))


def test_no_budget_allows_a_coin_and_an_infinite_one_everything() -> None:
    for ceiling in (within_run, across_runs, within_run_removed):
        assert ceiling(0.0, 0.0) == 0.5
        assert ceiling(math.inf, 0.0) == 1.0
        assert ceiling(800.0, 0.0) == 1.0
        assert ceiling(1.0, 1.0) == 1.0
    assert within_run_gaussian(0.0) == across_runs_gaussian(0.0) == 0.5
    assert within_run_gaussian(math.inf) == across_runs_gaussian(math.inf) == 1.0
    assert shifted(0.0, 0.0, 0.2) == pytest.approx(0.2)
    assert shifted(math.inf, 0.0, 0.2) == 1.0


# Attained -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_reveal_or_respond_attains_both(epsilon: float, delta: float) -> None:
    """Two records in random order: one is the member. And the same two as the two runs of one record."""
    laws = reveal_or_respond(epsilon, delta)
    assert hockey_stick(laws[0], laws[1], epsilon) == pytest.approx(delta, abs=1e-12)
    one, other = laws[0] @ beats(laws[0], laws[1]), laws[1] @ beats(laws[1], laws[0])
    assert 0.5 * (one + other) == pytest.approx(within_run(epsilon, delta), abs=1e-12)
    assert game_across(laws[0], laws[1]) == pytest.approx(across_runs(epsilon, delta), abs=1e-12)


def test_the_ceiling_of_one_run_is_false_across_runs() -> None:
    laws = reveal_or_respond(1.0, 0.05)
    found = game_across(laws[0], laws[1])
    assert found == pytest.approx(0.757, abs=5e-4)
    assert within_run(1.0, 0.05) == pytest.approx(0.745, abs=6e-4)
    assert within_run(1.0, 0.05) < found <= across_runs(1.0, 0.05) + 1e-12


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_naming_attains_the_ceiling_for_removed_records(epsilon: float) -> None:
    """Answers: the first, the second, silence. Data: the first, the second, none or both."""
    low, named = math.exp(-epsilon), 1.0 / (1.0 + math.exp(epsilon))
    high = 1.0 - named
    alone = np.array([[high, named * low, 0.0], [named * low, high, 0.0], [named, named, 0.0]])
    alone[:, 2] = 1.0 - alone.sum(axis=1)
    for k in (0, 1):
        assert hockey_stick(alone[k], alone[2], epsilon) == pytest.approx(0.0, abs=1e-12)
        assert hockey_stick(alone[2], alone[k], epsilon) == pytest.approx(0.0, abs=1e-12)
    found = float(alone[0] @ beats(alone[0], alone[1]))
    assert found == pytest.approx(within_run_removed(epsilon, 0.0), abs=1e-12)
    if epsilon == 1.0:
        assert found == pytest.approx(0.816, abs=5e-4)
        assert within_run(epsilon, 0.0) == pytest.approx(0.731, abs=5e-4)
    if epsilon:
        assert found > across_runs(epsilon, 0.0) >= within_run(epsilon, 0.0)


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_gaussian_noise_attains_its_two(mu: float) -> None:
    nearer = quad(lambda u: norm.pdf(u, 0.0, 1.0 / mu) * (abs(u) < abs(u - 1.0)), -40 / mu, 40 / mu, points=[0.5])[0]
    assert within_run_gaussian(mu) == pytest.approx(nearer, abs=1e-9)
    above = quad(lambda u: norm.pdf(u, mu) * norm.cdf(u), mu - 12.0, mu + 12.0)[0]
    assert across_runs_gaussian(mu) == pytest.approx(above, abs=1e-9)


# Never exceeded -------------------------------------------------------------------------------------------------------

budgets = st.floats(0.0, 4.0)


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 2**32 - 1), epsilon=budgets, peaked=st.floats(0.05, 3.0))
def test_no_mechanism_exceeds_the_ceiling_of_its_game(seed: int, epsilon: float, peaked: float) -> None:
    """Mechanisms drawn at random, δ computed from what they are; scored by likelihood and at random."""
    rng = np.random.default_rng(seed)
    records, outputs = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    laws = rng.dirichlet(np.full(outputs, peaked), size=records)
    empty = rng.dirichlet(np.full(outputs, peaked))
    first, second = rng.dirichlet(np.ones(records)), rng.dirichlet(np.ones(records))
    replaced = max(hockey_stick(p, q, epsilon) for p, q in itertools.permutations(laws, 2))
    removed = max(max(hockey_stick(p, empty, epsilon), hockey_stick(empty, p, epsilon)) for p in laws)
    rank = np.argsort(-first / second)
    # The best order of records, whatever the mechanism: the sum over pairs, by hand.
    apart = sum(
        first[a] * second[b] * (1.0 if i < j else 0.5 if i == j else 0.0)
        for i, a in enumerate(rank)
        for j, b in enumerate(rank)
    )
    for scores in (laws, laws / np.maximum(first @ laws, 1e-300), rng.random(laws.shape), np.zeros(laws.shape)):
        alike = game_within(laws, first, first, scores)
        assert alike <= within_run(epsilon, replaced) + 1e-12
        assert alike <= within_run_removed(epsilon, min(1.0, removed)) + 1e-12
        differing = game_within(laws, first, second, scores)
        assert differing <= shifted(epsilon, replaced, apart) + 1e-12
        assert differing <= shifted(epsilon, min(1.0, removed), apart) + 1e-12
    assert all(game_across(p, q) <= across_runs(epsilon, replaced) + 1e-12 for p, q in itertools.permutations(laws, 2))
