"""Privacy cost of the published noise of two SPIDER methods, by accountants outside of the package."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from papers import spider_budgets as e16
from papers.draws import generator

N, T = 25_500, 6000
DELTA = N**-1.1
ROOT = math.sqrt(1.1 * math.log(N))
# Claimed ε → independently computed ε (period, Theorem 6, Theorem 1, σ_2 only, the noise of Arora et al.).
COSTS = {
    0.5: (4, 1.96, 2.8, 3.95, 1.1),
    1.0: (6, 7.0, 9.2, 9.0, 2.4),
    5.0: (18, 219.0, 308.0, 105.0, 16.4),
    10.0: (28, 669.0, 901.0, 728.0, 44.0),
}


@pytest.mark.parametrize("claimed", COSTS)
def test_costs_agree_with_independent_computations(claimed: float) -> None:
    """Use the paper's period, (nε/√(d log 1/δ))^(2/3), for the 270 000 weights of a ResNet-20."""
    period, *expected = COSTS[claimed]
    assert e16.CLAIMED[claimed] == period == round((N * claimed / (math.sqrt(270_000) * ROOT)) ** (2 / 3))
    computed = e16.double_spider(claimed, period)
    for series, value in zip((e16.SIX, e16.ONE, e16.CHANGES, e16.ENOUGH), expected, strict=True):
        assert e16.cost(computed[series]) == pytest.approx(value, rel=0.025), series


def per_record(lines: list[tuple[float, float, int]], h: float) -> float:
    """Compute ε at δ with dp_accounting, for noise multipliers z = σ/C of sums and replace-one adjacency."""
    import dp_accounting
    from dp_accounting import pld

    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE, value_discretization_interval=h)
    for z, rate, count in lines:
        event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(z))
        accountant.compose(event, count)
    return float(accountant.get_epsilon(DELTA))


@pytest.mark.parametrize(("claimed", "h"), [(0.5, 1e-3), (1.0, 1e-3), (10.0, 3e-2)])
def test_theorem_6_by_another_accountant(claimed: float, h: float) -> None:
    """Recompute the table from the formulas."""
    q, batch = COSTS[claimed][0], 128
    anchors = T // q
    of_y = batch * math.sqrt(T) * ROOT / (N * math.sqrt(q * claimed))
    of_x = batch * ROOT / claimed * max(1.0 / batch, math.sqrt(T) / (N * math.sqrt(q)))
    change = ROOT / claimed
    rate = batch / N
    lines = [(of_y, rate, anchors), (of_x, rate, T), (change, rate, T - anchors)]
    assert e16.cost(e16.double_spider(claimed, q)[e16.SIX]) == pytest.approx(per_record(lines, h), rel=0.01)


@pytest.mark.parametrize(("period", "expected"), [(1, 3.5), (5, 9.2), (20, 22.3), (100, 70.0)])
def test_anchors_without_the_root(period: int, expected: float) -> None:
    """μ² = 8q/log(1/δ), and the Gaussian trade-off at its ε."""
    assert e16.recursive_anchors(period, 1.0) == pytest.approx(expected, rel=0.02)
    assert e16.recursive_anchors(period, 0.5) == pytest.approx(3.54, rel=0.01)
    mu, epsilon = math.sqrt(8.0 * period) / ROOT, e16.recursive_anchors(period, 1.0)
    delta = norm.cdf(0.5 * mu - epsilon / mu) - math.exp(epsilon) * norm.cdf(-0.5 * mu - epsilon / mu)
    assert delta == pytest.approx(DELTA, rel=1e-3)


def test_one_record_in_s() -> None:
    """At β·356 standard deviations, a sampled record is revealed, and δ is the probability of being sampled."""
    deviations = 60_000 / math.sqrt(2344 * 1.1 * math.log(60_000))
    assert deviations == pytest.approx(356.0, abs=0.5)
    probability = 1.0 - (1.0 - 1.0 / 60_000) ** 2344
    assert probability == pytest.approx(0.038, abs=5e-4)
    computed = [e16.empirical_delta(generator("t", k), deviations, 1000) for k in range(8)]
    assert np.mean(computed) == pytest.approx(probability, abs=4.0 * math.sqrt(probability / 8000))
    assert max(e16.empirical_delta(generator("u", k), 0.02, 500) for k in range(2)) == 0.0
