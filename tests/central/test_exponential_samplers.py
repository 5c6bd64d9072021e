"""Exponential mechanisms over candidates and boxes: exact laws, what they cost, and where float64 would fail."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.central import exponential_samplers
from decentral_dp.central.exponential_samplers import Box, GibbsTarget, refine, score_unit, units
from decentral_dp.errors import InputError
from decentral_dp.privacy.mechanisms import integer_samplers
from decentral_dp.privacy.mechanisms.integer_samplers import Weights
from papers.draws import pure_rate
from tests.support.exact_laws import exponential, rejected
from tests.support.priced_samplers import (
    Guarantee,
    acceptance,
    choose,
    choose_in_box,
    law_of,
    perturbed,
    with_restarts,
)
from tests.support.uncertified_samplers import gibbs, gumbel_max, regularised_on_grid

UNIT = Box(np.array([-1.0]), np.array([1.0]))


def logarithms(law: Weights) -> np.ndarray:
    """log P of every item, by the decimal library."""
    with localcontext(prec=60):
        gaps, which, counts = np.unique(law.gaps, return_inverse=True, return_counts=True)
        masses = [exponential(law.rate * int(gap), 60) for gap in gaps]
        total = sum((mass * int(n) for mass, n in zip(masses, counts, strict=True)), Decimal(0))
        return np.array([float((mass / total).ln()) for mass in masses])[which]


def hockey_stick(p: Any, q: Any, epsilon: float) -> float:
    return float(np.maximum(p - np.exp(epsilon) * q, 0.0).sum())


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
    counts = np.bincount([choose(rng, scores, 2.0, 0.5).value for _ in range(4000)], minlength=4)
    true = np.exp(-2.0 * scores / 0.5)
    assert not rejected(counts, true)
    assert rejected(counts, true * [1.0, 1.25, 1.0, 1.0])


def test_concentrated_laws_of_many_candidates_cost_a_proposal() -> None:
    rng = np.random.default_rng(22)
    scores = rng.random(200_000) * 1e4
    drawn = [choose(rng, scores, 1.0, 1.0) for _ in range(3)]
    assert sum(d.proposals for d in drawn) <= 6
    assert all(scores[d.value] < 60.0 for d in drawn)
    assert drawn[0].guarantee.certified
    assert (drawn[0].guarantee.epsilon, drawn[0].guarantee.delta) == (1.0, 0.0)


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


def test_scores_and_prices_that_are_none_are_refused() -> None:
    rng = np.random.default_rng(0)
    for scores in ([0.0, np.nan], [np.inf], [0.0, 1e300], []):
        with pytest.raises(InputError, match="scores"):
            choose(rng, np.array(scores), 1.0, 1.0)
    for epsilon, oscillation, inexact, name in (
        (0.0, 1, 0, "epsilon"),
        (1, np.inf, 0, "oscill"),
        (1, 1, -1, "inexact"),
    ):
        with pytest.raises(InputError, match=name):
            choose(rng, np.zeros(2), epsilon, oscillation, inexact=inexact)


@given(st.floats(1e-9, 1e9), st.integers(0, 10**6))
def test_scores_move_by_half_a_unit_at_most(scale: float, seed: int) -> None:
    unit = score_unit(scale)
    assert 2.0**-21 < unit / scale <= 2.0**-20
    scores = np.random.default_rng(seed).normal(size=20) * scale
    assert np.abs(units(scores, unit) * unit - scores).max() <= 0.5 * unit


# ---- prices --------------------------------------------------------------------------------------------------------


def test_an_unnormalised_error_costs_four_times_itself() -> None:
    """τ = .1 per cell of a quadrature at ε = 1: 1.4 is attained, so ε + 2τ would be wrong."""
    tau, n = 0.1, 10**6
    exponents = np.zeros((2, n))
    exponents[0, 0], exponents[1, 0] = 1.0 + tau, -tau
    exponents[:, 1:] += np.array([[-tau], [tau]])
    laws = np.exp(exponents) / np.exp(exponents).sum(axis=1, keepdims=True)
    attained = float(np.abs(np.log(laws[0] / laws[1])).max())
    priced = perturbed(Guarantee(1.0, 0.0, True, "."), tau)
    assert attained == pytest.approx(1.4, abs=1e-4)
    assert priced.epsilon == pytest.approx(1.4)
    assert attained <= priced.epsilon
    assert perturbed(Guarantee(1.0, 1e-6, False, "."), tau).delta == pytest.approx(np.exp(0.2) * 1e-6)


@given(st.integers(0, 10**6), st.floats(0.05, 2.0))
def test_a_fallback_costs_its_probability_and_no_factor(seed: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    n = 6
    p = rng.dirichlet(np.ones(n) * 0.3) + 1e-9
    q = p * np.exp(epsilon * rng.random(n))
    p, q, fallback = p / p.sum(), q / q.sum(), rng.dirichlet(np.ones(n) * 0.1)
    acceptances = rng.uniform(0.2, 1.0, 2)
    lost = (1.0 - acceptances) ** 3
    real = [(1 - f) * law + f * fallback for f, law in zip(lost, (p, q), strict=True)]
    delta = with_restarts(Guarantee(epsilon, 0.0, True, "."), 0.2, 3).delta
    assert delta == pytest.approx(0.8**3)
    exact_delta = with_restarts(Guarantee(epsilon, 0.0, True, "."), float(acceptances.min()), 3).delta
    assert max(hockey_stick(*real, epsilon), hockey_stick(*real[::-1], epsilon)) <= exact_delta + 1e-12


def test_a_cap_needs_a_proven_acceptance() -> None:
    good = Guarantee(1.0, 0.0, True, ".")
    assert with_restarts(good, 1.0, 1).delta == 0.0
    for accepted, restarts in ((0.0, 5), (1.5, 5), (0.5, 0)):
        with pytest.raises(InputError, match="restarts"):
            with_restarts(good, accepted, restarts)


def test_nothing_uncertified_passes_as_certified() -> None:
    rng, points = np.random.default_rng(1), np.linspace(-1, 1, 11)[:, None]
    drawn = [
        gumbel_max(rng, np.arange(4.0), 1.0),
        regularised_on_grid(rng, lambda x: (x**2).sum(axis=1), points, 3.0),
        gibbs(rng, np.zeros(2), np.array([[2.0, 0.5], [0.5, 1.0]]), Box(-np.ones(2), np.ones(2)), np.zeros(2), 5),
    ]
    for one in drawn:
        assert not one.guarantee.certified
        assert one.guarantee.epsilon == np.inf
        assert not perturbed(one.guarantee, 0.1).certified
        assert not with_restarts(one.guarantee, 0.5, 4).certified


def test_gibbs_has_the_right_moments_after_many_sweeps() -> None:
    rng, precision, box = np.random.default_rng(2), np.array([[4.0, 1.5], [1.5, 2.0]]), Box(-np.ones(2), np.ones(2))
    mean = np.array([0.5, -0.4])
    chain = np.array([gibbs(rng, mean, precision, box, np.zeros(2), 8).value for _ in range(1500)])
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 201)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    law = np.exp(-0.5 * np.einsum("ni,ij,nj->n", grid - mean, precision, grid - mean))
    assert np.abs(chain.mean(axis=0) - law @ grid / law.sum()).max() < 0.06
    with pytest.raises(InputError, match="sweeps"):
        gibbs(rng, mean, precision, box, mean, 0)


# ---- boxes ---------------------------------------------------------------------------------------------------------


def rough(dimension: int, seed: int, lipschitz: float) -> Any:
    """A maximum of minima of cones: as steep as declared, not convex."""
    rng = np.random.default_rng(seed)
    tips, heights = rng.uniform(-1, 1, (5, dimension)), rng.uniform(0, lipschitz, 5)

    def score(points: np.ndarray) -> np.ndarray:
        cones = heights + lipschitz * np.linalg.norm(points[:, None, :] - tips, axis=2)
        return np.asarray(np.maximum(cones[:, :4].min(axis=1), -cones[:, 4]))

    return score


def positions(box: Box, depth: int) -> np.ndarray:
    d = len(box.low)
    numbers = np.stack(np.meshgrid(*[np.arange(2**depth)] * d, indexing="ij"), axis=-1).reshape(-1, d)
    return box.centres(numbers, depth)


@settings(max_examples=25)
@given(st.sampled_from([(1, 9), (2, 5), (3, 3)]), st.integers(0, 10**6), st.floats(0.1, 300.0), st.booleans())
def test_cells_cover_the_box_below_the_score_and_keep_the_public_acceptance(
    size: tuple[int, int], seed: int, rate: float, wavy: bool
) -> None:
    """Exactness needs two things of an envelope: each position in one cell, whose floor is no higher than its score."""
    (dimension, depth), lipschitz = size, 1.5
    box = Box(-np.ones(dimension), np.linspace(0.5, 2.0, dimension))
    inexact = 0.01 if wavy else 0.0
    ideal = rough(dimension, seed, lipschitz)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exponential_samplers, "DEPTH", depth)

        def score(points: np.ndarray) -> np.ndarray:
            return np.asarray(ideal(points) + inexact * np.sin(1e5 * points.sum(axis=1)))

        target = GibbsTarget(
            score, box, pure_rate(1.0, 1.0 / rate, inexact), score_unit(1.0 / rate), lipschitz, inexact
        )
        envelope = refine(target)
        whole = units(score(positions(box, depth)), target.unit).reshape([2**depth] * dimension)
        covered = np.zeros(whole.shape, dtype=np.int64)
        floors = np.zeros(whole.shape, dtype=np.int64)
        for cell, at, gap in zip(envelope.cells, envelope.depths, envelope.law.gaps, strict=True):
            block = tuple(slice(int(c) << (depth - at), int(c + 1) << (depth - at)) for c in cell)
            covered[block] += 1
            floors[block] = gap + envelope.floor
        assert (covered == 1).all()
        assert (floors <= whole).all()
        c = float(target.rate) * target.unit
        accepted = np.exp(-c * (whole - floors.min())).sum() / np.exp(-c * (floors - floors.min())).sum()
        assert accepted * np.exp(-1 / 16) >= acceptance(target) * 0.999


def test_a_lipschitz_constant_too_small_would_show() -> None:
    """The check above can fail: halve the declared constant."""
    target = GibbsTarget(rough(1, 3, 1.5), UNIT, pure_rate(1.0, 0.02, 0.0), score_unit(0.02), 0.75, 0.0)
    envelope = refine(target)
    inside = UNIT.centres(envelope.cells, 1)[:0]
    for cell, at, gap in zip(envelope.cells, envelope.depths, envelope.law.gaps, strict=True):
        ends = UNIT.low + UNIT.sides * ((cell + np.array([[0.01], [0.99]])) * 2.0 ** -float(at))
        low = units(target.score(ends), target.unit) < gap + envelope.floor
        inside = np.concatenate([inside, ends[low]])
    assert len(inside)


@pytest.mark.parametrize(("dimension", "depth"), [(1, 4), (2, 2), (3, 1)])
def test_points_follow_the_law_of_the_grid(dimension: int, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exponential_samplers, "DEPTH", depth)
    box, rng, score = Box(-np.ones(dimension), np.ones(dimension)), np.random.default_rng(31), rough(dimension, 4, 1.0)
    target = GibbsTarget(score, box, pure_rate(1.5, 1.0, 0.0), score_unit(1.0), 1.0, 0.0)
    envelope, grid = refine(target), positions(box, depth)
    drawn = np.array([exponential_samplers.sample(rng, target, envelope) for _ in range(8_000)])
    nearest = np.abs(drawn[:, None, :] - grid).sum(axis=2).argmin(axis=1)
    counts, law = np.bincount(nearest, minlength=len(grid)), np.exp(-1.5 * score(grid))
    assert not rejected(counts, law)
    assert rejected(counts, law * np.where(law > np.median(law), 1.25, 1.0))


def test_a_million_epsilons_of_range_take_no_time_and_find_the_minimum() -> None:
    rng = np.random.default_rng(32)
    drawn = [
        choose_in_box(rng, lambda x: np.abs(x[:, 0] - 0.2) + 0.1 * np.sin(9 * x[:, 0]), UNIT, 1.0, 1e-5, 1.9)
        for _ in range(5)
    ]
    grid = np.linspace(-1, 1, 200_001)
    best = grid[np.argmin(np.abs(grid - 0.2) + 0.1 * np.sin(9 * grid))]
    assert np.abs(np.array([point[0] for point in drawn]) - best).max() < 0.01


def test_the_bound_on_the_acceptance_is_public() -> None:
    """It knows the constants only: the same for every score."""
    targets = [
        GibbsTarget(rough(1, seed, 1.0), UNIT, pure_rate(1.0, 0.01, 0.0), score_unit(0.01), 1.0, 0.0)
        for seed in range(5)
    ]
    bounds = {acceptance(target) for target in targets}
    assert len(bounds) == 1
    assert 0.3 < bounds.pop() < 0.33


def test_boxes_that_are_none_are_refused() -> None:
    rng = np.random.default_rng(0)
    for low, high in (([0.0], [0.0]), ([0.0], [np.inf]), ([0.0, 1.0], [2.0]), ([0.0] * 4, [1.0] * 4)):
        with pytest.raises(InputError, match="box"):
            choose_in_box(rng, lambda x: x[:, 0], Box(np.array(low), np.array(high)), 1.0, 1.0, 1.0)
