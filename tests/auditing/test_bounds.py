"""Canaries in a single run: bounds that hold as often as they say, and are worth something."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

import decentral_dp
from decentral_dp.auditing.bounds import chance, one_run_bound, plant
from decentral_dp.errors import InputError
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.audits import audit


def test_randomised_response_is_bounded_as_often_as_it_says() -> None:
    """Each coin is told truly with probability e^ε/(1 + e^ε): the mechanism for which the theorem is tight."""
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


def test_the_chance_is_that_of_the_theorem_by_its_definition() -> None:
    for right, epsilon, delta in product((3, 7, 10), (0.3, 2.0), (0.0, 1e-3)):
        r, m = 10, 40
        q = np.exp(epsilon) / (1.0 + np.exp(epsilon))
        law = [binom.pmf(k, r, q) for k in range(r + 1)]
        alpha = max(sum(law[max(0, right - i) : right]) / i for i in range(1, right + 1))
        expected = min(1.0, sum(law[right:]) + 2.0 * m * delta * alpha)
        assert chance(right, r, m, epsilon, delta) == pytest.approx(expected, rel=1e-12)
    assert chance(0, 10, 40, 1.0, 0.0) == 1.0


def test_delta_costs_and_no_canary_shows_nothing() -> None:
    coins = np.ones(200, dtype=bool)
    sure, with_delta = (one_run_bound(np.ones(200), coins, delta, 0.05, False) for delta in (0.0, 1e-4))
    assert with_delta < sure
    assert one_run_bound(np.ones(200), np.arange(200) % 2 == 0, 0.0, 0.05, False) == 0.0


def test_canaries_are_alike_but_for_the_label_and_lie_in_different_places() -> None:
    job = build(decentral_dp.load("dp_sgda"))
    same, canaries = plant(job, 60, seeded_root(1, b"canaries"))
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


def test_without_noise_canaries_are_found_and_with_it_no_more_than_certified() -> None:
    bare = ['privacy.guarantee="none"', "algorithm.rounds=400", "algorithm.x.scale=4.0"]
    loud = audit("auc_digits", overrides=bare, canaries=100)
    assert (loud.method, loud.runs, loud.vantage, loud.null_shown) == ("one run", 1, "published", 0.0)
    assert loud.shown > 0.5
    quiet = audit("dp_sgda", canaries=100)
    assert quiet.shown <= quiet.certified
    assert any("canaries" in s for s in quiet.sentences)


@pytest.mark.parametrize(("name", "canaries"), [("dp_sgda", 5), ("dp_sgda", 10_000), ("ring_breast_cancer", 50)])
def test_canaries_that_cannot_be(name: str, canaries: int) -> None:
    with pytest.raises(InputError, match="canaries"):
        audit(name, canaries=canaries)
