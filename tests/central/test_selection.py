"""Exponential mechanisms: exact distributions, their privacy cost, and sensitivities of scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from decentral_dp.bounded import Split
from decentral_dp.central import selection
from decentral_dp.central.context import Domain
from decentral_dp.central.integer_samplers import Weights
from decentral_dp.central.pooled import Pooled
from decentral_dp.central.selection import (
    Box,
    Density,
    FiniteExponential,
    RegularisedLaw,
    RegularisedSelection,
    SelectionBounds,
    candidates,
    quadratic,
    score_unit,
    units,
)
from decentral_dp.constants import family_of
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.problems.bilevel.means import MeanEstimation
from papers.draws import pure_rate, rate_for
from tests.support.exact_laws import exponential, rejected
from tests.support.pooled_oracle import LABEL, RADIUS, Case, D, cases, dataset


def make_law(scores: np.ndarray, epsilon: float, oscillation: float, inexact: float = 0.0) -> Weights:
    unit = score_unit(oscillation)
    integers = units(scores, unit)
    rate = pure_rate(epsilon, oscillation, inexact)
    return Weights.from_gaps(integers - integers.min(), rate * Fraction(unit))


def logarithms(law: Weights) -> np.ndarray:
    """Compute log P of every item with the decimal library."""
    with localcontext(prec=60):
        gaps, which, counts = np.unique(law.gaps, return_inverse=True, return_counts=True)
        masses = [exponential(law.rate * int(gap), 60) for gap in gaps]
        total = sum((mass * int(n) for mass, n in zip(masses, counts, strict=True)), Decimal(0))
        return np.array([float((mass / total).ln()) for mass in masses])[which]


# ---- candidates ----------------------------------------------------------------------------------------------------


@given(st.integers(2, 12), st.integers(0, 10**6), st.floats(1e-3, 20.0), st.floats(1e-6, 1e6))
def test_log_ratio_is_at_most_epsilon(n: int, seed: int, epsilon: float, oscillation: float) -> None:
    """Neighbouring scores use the whole oscillation, a common shift, and the declared inaccuracy."""
    rng = np.random.default_rng(seed)
    inexact = oscillation * rng.choice([0.0, 0.1])
    base = rng.normal(size=n) * oscillation * 3
    change = oscillation * rng.choice([0.0, 1.0, rng.random()], n) + rng.normal() * oscillation
    errors = inexact * rng.choice([-1.0, 1.0], (2, n)) * (1 - 1e-9)
    first, second = (
        logarithms(make_law(scores, epsilon, oscillation * (1 + 1e-9), inexact=inexact))
        for scores in (base + errors[0], base + change + errors[1])
    )
    assert np.abs(first - second).max() <= epsilon * (1 + 1e-9)


def test_epsilon_is_attained() -> None:
    """One of 10⁵ candidates moves by the oscillation: .9999 ε, so that half the scale would not be private."""
    scores = np.zeros(100_000)
    sensitivity = scores.copy()
    sensitivity[0] = -0.37
    ratio = logarithms(make_law(sensitivity, 1.0, 0.37))[0] - logarithms(make_law(scores, 1.0, 0.37))[0]
    assert 0.9999 <= ratio <= 1.0


def test_inaccuracy_costs_four_times_its_bound() -> None:
    """An adversarial error of ±a for each neighbour exceeds ε, unless it is charged."""
    a = 0.05
    first, second = np.full(2000, -a), np.full(2000, a)
    first[0], second[0] = a, -1.0 - a

    def ratio(inexact: float) -> float:
        laws = [logarithms(make_law(scores, 1.0, 1.0, inexact=inexact)) for scores in (first, second)]
        return float(np.abs(laws[1] - laws[0]).max())

    assert ratio(0.0) == pytest.approx(1.2, abs=0.002)
    assert 0.998 <= ratio(a) <= 1.0


def test_choices_follow_the_law() -> None:
    rng, scores = np.random.default_rng(21), np.array([0.3, 0.0, 0.5, 0.1])
    counts = np.bincount([make_law(scores, 2.0, 0.5).draw(rng) for _ in range(4000)], minlength=4)
    true = np.exp(-2.0 * scores / 0.5)
    assert not rejected(counts, true)
    assert rejected(counts, true * [1.0, 1.25, 1.0, 1.0])


@pytest.mark.parametrize("scores", [[0.0, np.nan], [np.inf], [0.0, 1e300], []])
def test_refuses_invalid_scores(scores: list[float]) -> None:
    with pytest.raises(InputError, match="scores"):
        make_law(np.array(scores), 1.0, 1.0)
    with pytest.raises(InputError, match="oscillation"):
        make_law(np.zeros(2), 1.0, np.inf)


@given(st.floats(1e-9, 1e9), st.integers(0, 10**6))
def test_scores_round_by_half_a_unit(scale: float, seed: int) -> None:
    unit = score_unit(scale)
    assert 2.0**-21 < unit / scale <= 2.0**-20
    scores = np.random.default_rng(seed).normal(size=20) * scale
    assert np.abs(units(scores, unit) * unit - scores).max() <= 0.5 * unit


MU = 0.2367  # (1, 1e-6)
UNIT = Box(np.array([-1.0]), np.array([1.0]))
FINE = np.linspace(-1, 1, 400_001)


def make_regularised_law(box: Box, **changes: Any) -> RegularisedLaw:
    d = len(box.low)
    plain = RegularisedLaw(box, 50.0, 0.5, np.zeros(d), 0.01, 4.0, inexact=1e-12)
    return plain._replace(**changes)


def gaussian_mu(declared: RegularisedLaw) -> float:
    """Compute μ of the Gaussian pair that bounds a draw from the continuous distribution."""
    return float(declared.sensitivity * np.sqrt(declared.rate / (declared.strength + declared.curvature)))


def grid_epsilon(declared: RegularisedLaw, delta: float) -> float:
    """Compute ε of a draw from the grid: ε + 2τ at e^{−τ}δ, with τ twice the error."""
    return (
        float(gaussian_epsilon(gaussian_mu(declared), delta * np.exp(-2.0 * declared.error()))) + 4.0 * declared.error()
    )


def density(exponent: np.ndarray) -> np.ndarray:
    law = np.exp(exponent.min() - exponent)
    return np.asarray(law / law.sum())


def delta(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return max(float(np.maximum(p - np.exp(epsilon) * q, 0).sum()), float(np.maximum(q - np.exp(epsilon) * p, 0).sum()))


def gaussian_delta(mu: float, epsilon: float) -> float:
    high, low = stats.norm.cdf(mu / 2 - epsilon / mu), stats.norm.cdf(-mu / 2 - epsilon / mu)
    return float(high - np.exp(epsilon) * low)


# ---- the law -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [0.3, 1.4, 3.0])
@pytest.mark.parametrize("rate", [1.0, 3000.0])
def test_draws_follow_truncated_gaussian(slope: float, rate: float) -> None:
    """The minimum is inside, near the boundary, or outside; the distribution is wide or narrow."""
    rng, declared = np.random.default_rng(41), make_regularised_law(UNIT, rate=rate)
    mean, deviation = slope / 1.5, (1.5 * rate) ** -0.5
    law = stats.truncnorm((-1 - mean) / deviation, (1 - mean) / deviation, mean, deviation)
    draws = [quadratic(rng, declared, np.eye(1), np.array([slope]))[0] for _ in range(150)]
    assert stats.kstest(draws, law.cdf).pvalue > 1e-5
    assert stats.kstest(draws, lambda x: law.cdf(x - 0.7 * law.std())).pvalue < 1e-5


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.5, 1e7), st.integers(1, 3), st.booleans())
def test_proposals_lie_below_every_convex_score(seed: int, rate: float, dimension: int, far: bool) -> None:
    """No acceptance probability exceeds 1 at any tangent point, unless the curvature is overstated."""
    rng = np.random.default_rng(seed)
    box = Box(-np.ones(dimension), rng.uniform(0.0, 2.0, dimension))
    slopes = rng.normal(size=(4, dimension)) / np.sqrt(dimension)

    def score(x: np.ndarray) -> np.ndarray:
        top = (x @ slopes.T).max(axis=1)
        return np.asarray(top + np.log(np.exp(x @ slopes.T - top[:, None]).sum(axis=1)))

    declared = make_regularised_law(box, rate=rate, strength=0.1)
    near = rng.uniform(-3, 3, dimension) if far else np.zeros(dimension)
    points = rng.uniform(box.low, box.high, (300, dimension))
    points[:100] = np.clip(near, box.low, box.high) + 1e-4 * rng.normal(size=(100, dimension))
    points = np.clip(points, box.low, box.high)
    above = {}
    for curvature in (0.0, 6.0):
        precisions, centre, floor = selection._touching(
            declared, score, lambda x: np.asarray(density(-(slopes @ x)) @ slopes), near, curvature
        )
        step = box.sides * 2.0**-40
        numbers = (points - box.low) / step - 0.5
        squares = (np.array([float(a) for a in precisions]) * (numbers - np.array(centre)) ** 2).sum(1)
        heights = rate * (score(points) + 0.05 * (points**2).sum(axis=1))
        above[curvature] = heights - 0.5 * squares - float(floor)
    assert above[0.0].min() >= 0.0
    assert above[6.0].min() < 0.0


# ---- privacy cost ---------------------------------------------------------------------------------------------------


def delta_between(exponents: tuple[np.ndarray, np.ndarray], epsilon: float = 1.0) -> float:
    return delta(density(exponents[0]), density(exponents[1]), epsilon)


@pytest.mark.parametrize("curvature", [0.0, -0.6, 2.0])
def test_gaussian_cost_is_attained(curvature: float) -> None:
    """If gradients of neighbours differ by S everywhere, the distribution is a Gaussian shifted by μ deviations."""
    strength, sensitivity = 1.0, 0.002
    rate = rate_for(MU, sensitivity, strength, curvature)
    exponent = rate * 0.5 * (strength + curvature) * FINE**2
    delta_1 = delta_between((exponent, exponent + rate * sensitivity * FINE))
    declared = make_regularised_law(UNIT, rate=rate, strength=strength, sensitivity=sensitivity, curvature=curvature)
    assert gaussian_mu(declared) == pytest.approx(MU)
    assert 0.95 <= delta_1 / gaussian_delta(MU, 1.0) <= 1.001
    epsilon = grid_epsilon(declared, 1e-6)
    assert delta(density(exponent), density(exponent + rate * sensitivity * FINE), epsilon) <= 1e-6
    assert 0.0 <= epsilon - float(gaussian_epsilon(MU, 1e-6)) < 1e-3
    if curvature < 0.0:
        wrong_rate = rate_for(MU, sensitivity, strength)
        exponent = wrong_rate * 0.5 * (strength + curvature) * FINE**2
        assert delta_between((exponent, exponent + wrong_rate * sensitivity * FINE)) > 20 * gaussian_delta(MU, 1.0)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_convex_pairs_stay_within_gaussian_cost(seed: int) -> None:
    """Random convex scores on an interval, and convex perturbations of slope S."""
    rng, x = np.random.default_rng(seed), np.linspace(-1, 1, 20_001)
    sensitivity = 10 ** rng.uniform(-1.5, -0.5)
    knots, bends = rng.uniform(-1, 1, 6), rng.exponential(size=6) * rng.choice([0, 1], 6)
    base = (bends * np.abs(x[:, None] - knots)).sum(axis=1) + rng.normal() * x
    rise = rng.choice([-1.0, 1.0]) * sensitivity * np.abs(x - rng.uniform(-1, 1))
    other = base + rise if (rise >= 0).all() else base + sensitivity * rng.choice([-1, 1]) * x
    strength = 10 ** rng.uniform(-1, 1)
    rate = rate_for(MU, sensitivity, strength)
    exponents = (rate * (base + 0.5 * strength * x**2), rate * (other + 0.5 * strength * x**2))
    assert delta_between(exponents) <= 1.01 * gaussian_delta(MU, 1.0)


def test_double_well_exceeds_gaussian_cost() -> None:
    """Convexity is needed: with n = 1000 records and two wells, one record moves all mass, δ(1) ≈ 1/2."""
    strength, sensitivity = 1.0, 2 / 1000
    rate = rate_for(MU, sensitivity, strength)
    wells = 4.0 * (FINE**2 - 0.5) ** 2 + 0.5 * strength * FINE**2
    delta_1 = delta_between((rate * wells, rate * (wells + sensitivity * FINE)))
    assert delta_1 == pytest.approx(0.5, abs=0.02)
    # The curvature is 48 x² − 8, so that a guarantee requires a strength above 8.
    declared = make_regularised_law(UNIT, rate=rate, strength=strength, sensitivity=sensitivity, curvature=-8.0)
    with pytest.raises(InputError, match="curvature"):
        quadratic(np.random.default_rng(0), declared, np.eye(1), np.zeros(1))
    strong = rate_for(MU, sensitivity, 9.0, -8.0)
    convexed = 4.0 * (FINE**2 - 0.5) ** 2 + 4.5 * FINE**2
    exponents = strong * convexed, strong * (convexed + sensitivity * FINE)
    assert delta_between(exponents) <= 1.001 * gaussian_delta(MU, 1.0)


def test_inexact_score_costs_twice_tau() -> None:
    """An adversarial error of ±a breaks the Gaussian guarantee, but not the one with e = k·a."""
    strength, sensitivity = 1.0, 0.002
    rate = rate_for(MU, sensitivity, strength)
    a = 0.05 / rate
    exponent = rate * 0.5 * strength * FINE**2
    tilted = exponent + rate * sensitivity * FINE
    gains = density(exponent) > np.e * density(tilted)
    worst = (exponent - rate * a * np.where(gains, 1, -1), tilted + rate * a * np.where(gains, 1, -1))
    declared = make_regularised_law(UNIT, rate=rate, strength=strength, sensitivity=sensitivity, inexact=a)
    assert delta_between(worst) > 1.5 * gaussian_delta(MU, 1.0)
    priced = grid_epsilon(declared, 1e-6)
    assert priced == pytest.approx(float(gaussian_epsilon(MU, 1e-6 * np.exp(-0.1))) + 0.2, abs=1e-3)
    assert delta_between(worst, priced) <= 1e-6


Array = np.ndarray


def constant(values: Any) -> Callable[[Array], Array]:
    return lambda points: np.asarray(values, dtype=float)[: len(points)]


def log_law(selection: FiniteExponential, scores: Array, scale: float) -> Array:
    """Compute log-probabilities of the candidates from the integers that decide."""
    weights = selection.law(scores, scale)
    exponents = -float(weights.rate) * weights.gaps.astype(float)
    return np.asarray(exponents - logsumexp(exponents))


# ---- candidates ----------------------------------------------------------------------------------------------------


# ---- the law -------------------------------------------------------------------------------------------------------


def data_sets(case: Case, name: str, n: int, kind: Split, seed: int) -> list[tuple[Any, Any]]:
    """Return the records of two neighbours, as (features, labels) of each split."""
    rng = np.random.default_rng([seed, n])
    parts = {k: dataset(case, name, n, seed + i) for i, k in enumerate(("train", "validation"))}
    out = []
    labels = np.array(case.classes) if case.classes else np.array([-LABEL, LABEL])
    flip = rng.choice([-1.0, 1.0])
    for side in (1.0, -1.0):
        a, b = (v.copy() for v in parts[kind])
        towards = a.mean(axis=0)
        length = float(np.linalg.norm(towards))
        a[0] = side * flip * RADIUS * (towards / length if length > 1e-9 else np.eye(D)[0])
        b[0] = labels[-1] if rng.random() < 0.7 else rng.choice(labels)
        out.append({**parts, kind: (a, b)})
    return [(w["train"], w["validation"]) for w in out]


def make_pool(case: Case, data_set: tuple[Any, Any]) -> Pooled:
    train, validation = data_set
    return Pooled.from_agents(case.family, [(case.prepared(*train, "train"), case.prepared(*validation, "validation"))])


# ---- neighbouring data sets -----------------------------------------------------------------------------------------


def largest_ratio(name: str, kind: Split, norm: bool) -> tuple[float, float]:
    """Compute the largest exact log-ratio over hard data sets, in units of sensitivity over scale."""
    case, worst, price = cases()[name], 0.0, np.inf
    p = case.problem.p
    for data in ("random", "separable", "one_against_all"):
        for n in (3, 20):
            pools = [make_pool(case, w) for w in data_sets(case, data, n, kind, 11)]
            low, high = np.full(p, -1.5), np.full(p, 1.5)
            make = SelectionBounds.from_norm if norm else SelectionBounds.from_value
            points = candidates(Domain(low=-1.5, high=1.5), p, 17 if p == 1 else 2)
            selection = FiniteExponential(make(pools[0].bounds, low, high), points, pools[0].scores)
            price = selection.sensitivity[kind]
            scores = [pool.gradient_norms(points) if norm else pool.scores(points) for pool in pools]
            for scale in (price / 3.0, price / 0.1):
                laws = [log_law(selection, s, scale) for s in scores]
                worst = max(worst, float(np.abs(laws[0] - laws[1]).max()) * scale / price)
    return worst, price


@pytest.mark.parametrize("norm", [False, True], ids=["value", "norm"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("logistic_shared", "train"),
        ("logistic_shared", "validation"),
        ("ridge_shared", "train"),
        ("ridge_shared", "validation"),
        ("quadratic", "train"),
        ("mean", "validation"),
        ("logistic_pull", "train"),
    ],
)
def test_neighbours_stay_within_epsilon_of_selection(name: str, kind: Split, norm: bool) -> None:
    worst, _ = largest_ratio(name, kind, norm)
    assert 0.0 < worst <= 1.0


def test_gradient_norm_sensitivity_is_attained() -> None:
    """At a stationary point between two candidates, the norm rises at one and falls at the other by S."""
    problem, n = MeanEstimation(1, 1.0), 500
    train = problem.prepare(np.zeros((5, 1)), np.zeros(5), "l2")
    pools = []
    for side in (1.0, -1.0):
        rows = np.full((n, 1), 0.4)
        rows[0] = side
        pools.append(Pooled.from_agents(family_of(problem, 1.0), [(train, problem.prepare(rows, np.zeros(n), "l2"))]))
    points = np.array([[-1.0], [1.0]])
    facts = SelectionBounds.from_norm(pools[0].bounds, -np.ones(1), np.ones(1))
    selection = FiniteExponential(facts, points, constant([]))
    epsilon = 2.0
    scale = selection.sensitivity["validation"] / epsilon
    first, second = (log_law(selection, pool.gradient_norms(points), scale) for pool in pools)
    assert 0.9999 * epsilon < float(np.abs(first - second).max()) <= epsilon


def test_rounding_and_inexactness_are_charged() -> None:
    """Scores attain the declared oscillation, with the worst rounding and errors."""
    sensitivity = 1.0
    facts = SelectionBounds({"train": sensitivity}, 0.0, 1.0)
    r = facts.unit
    # One candidate rises by s/2 and one falls by s/2, with opposite rounding; a third has nearly all the mass.
    a, b = 0.49 * r, 0.51 * r
    shift = 0.5 * sensitivity + 0.02 * r
    scores = [np.array([a, b + 5.0, -60.0]), np.array([a + shift, b + 5.0 - shift, -60.0 - shift])]
    declared = SelectionBounds({"train": 2.0 * shift}, 0.0, 1.0)
    assert declared.unit == r
    selection = FiniteExponential(declared, np.zeros((3, 1)), constant([]))
    scale = selection.sensitivity["train"] / 3.0
    first, second = (log_law(selection, s, scale) for s in scores)
    distance = float(np.abs(first - second).max()) * scale
    assert distance <= selection.sensitivity["train"]
    assert distance > 2.0 * shift + 0.9 * r, "without rounding the stated sensitivity would be too low"
    # Errors of the scores: ±e in one data set, ∓e in the other.
    error = 0.05
    inexact = replace(selection, facts=replace(declared, inexact=error))
    signs = np.array([1.0, 0.0, -1.0])
    scale = inexact.sensitivity["train"] / 3.0
    laws = [log_law(inexact, s + w * error * signs, scale) for s, w in zip(scores, (-1.0, 1.0), strict=True)]
    distance = float(np.abs(laws[0] - laws[1]).max()) * scale
    assert selection.sensitivity["train"] < distance <= inexact.sensitivity["train"]


# ---- regularised ---------------------------------------------------------------------------------------------------


def affine(slope: float, sensitivity: float, strength: float, finest: float) -> RegularisedSelection:
    """Make Φ(x) = slope·x on [−1, 1]."""
    facts = Density(UNIT, {"train": sensitivity}, strength, np.zeros(1), 1.0, 0.0, 1e-14, 1e-14, True, finest, 0.0)
    coefficients = np.zeros((1, 1)), np.array([-slope])
    return RegularisedSelection(facts, lambda x: slope * x[:, 0], lambda x: np.array([slope]), coefficients)


def grid_density(selection: RegularisedSelection, scale: float) -> Array:
    """Evaluate the density on a fine grid."""
    facts = selection.facts
    rate = (facts.strength + facts.curvature) / scale**2
    points = FINE[:, None]
    return density(rate * (selection.score(points) + 0.5 * facts.strength * ((points - facts.anchor) ** 2).sum(axis=1)))


def two_wells(points: Array) -> Array:
    """Compute a ρ-weakly convex function with ρ = 2 and two wells."""
    return np.asarray(0.5 * np.cos(2.0 * points[:, 0]) + 0.1 * points[:, 0])


def two_wells_slope(x: Array) -> Array:
    return np.asarray(-np.sin(2.0 * x) + 0.1)


@pytest.mark.parametrize("shape", ["affine", "two_wells"])
def test_regularised_draws_follow_the_density(shape: str) -> None:
    selection = affine(0.4, 0.05, 1.0, 1e-3)
    if shape == "two_wells":
        facts = Density(UNIT, {"train": 0.05}, 3.0, np.zeros(1), 1.2, 2.0, 1e-12, 1e-12, False, 1e-3)
        selection = RegularisedSelection(facts, two_wells, two_wells_slope)
    assert selection.mechanism == "gaussian"
    assert selection.facts.is_certified
    rng, scale = np.random.default_rng(12), 0.3
    draws = [selection.draw(rng, scale)[0] for _ in range(200)]

    def cdf(s: float) -> Callable[[Any], Any]:
        total = np.cumsum(grid_density(selection, s))
        return lambda x: np.interp(x, FINE, total)

    assert stats.kstest(draws, cdf(scale)).pvalue > 1e-5
    assert stats.kstest(draws, cdf(2.0 * scale)).pvalue < 1e-5
    scores = selection.score(FINE[:, None]) + 0.5 * selection.facts.strength * FINE**2
    assert abs(float(selection.draw(rng, 0.0)[0]) - FINE[scores.argmin()]) < 1e-3


@pytest.mark.parametrize("finest", [1e-2, 1e-4, 3.3e-5])
def test_distortion_bound_holds_for_every_scale(finest: float) -> None:
    """No scale above the finest has a larger distance to the ideal distribution; finer scales are refused."""
    selection = affine(0.3, 0.01, 0.7, finest)
    for scale in finest * np.array([1.0, 1.1, 1.7, 2.3, 10.0, 1000.0]):
        assert 2.0 * selection.facts.regularise(float(scale)).error() <= selection.distortion
    with pytest.raises(ValueError, match="distortion"):
        selection.draw(np.random.default_rng(0), 0.9 * finest)
    assert affine(0.3, 0.01, 0.7, 0.0).distortion == 0.0


def test_distortion_covers_inexact_scores() -> None:
    """Errors of ±e change log-probabilities by at most the stated bound, and by more than that of e = 0."""
    scale, error = 0.1, 1e-4
    selection = affine(0.2, 0.01, 1.0, scale)
    honest = replace(selection.facts, inexact=error)
    wrong = replace(
        selection,
        facts=honest,
        coefficients=None,
        score=lambda x: 0.2 * x[:, 0] + np.where(x[:, 0] > -0.2, error, -error),
    )
    change = float(np.abs(np.log(grid_density(wrong, scale)) - np.log(grid_density(selection, scale))).max())
    assert selection.distortion < change <= wrong.distortion
