"""Exponential mechanisms as releases: their laws against laws computed otherwise, and what neighbours tell apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from decentral_dp.bounded import Split
from decentral_dp.central.context import Domain
from decentral_dp.central.pooled import Pooled, PooledBounds
from decentral_dp.central.selection import (
    Box,
    Density,
    FiniteExponential,
    RegularisedSelection,
    SelectionBounds,
    best_point,
    candidates,
)
from decentral_dp.constants.families import family_of
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.problems.bilevel.means import MeanEstimation, MeanLowerBound
from tests.support.exact_laws import rejected
from tests.support.pooled_oracle import LABEL, RADIUS, Case, D, Exact, cases, dataset

Array = np.ndarray
UNIT = Box(np.array([-1.0]), np.array([1.0]))
FINE = np.linspace(-1.0, 1.0, 200_001)


def constant(values: Any) -> Callable[[Array], Array]:
    return lambda points: np.asarray(values, dtype=float)[: len(points)]


def log_law(selection: FiniteExponential, scores: Array, scale: float) -> Array:
    """Log-probabilities of the candidates, from the integers that decide."""
    weights = selection.law(scores, scale)
    exponents = -float(weights.rate) * weights.gaps.astype(float)
    return np.asarray(exponents - logsumexp(exponents))


def density(exponent: Array) -> Array:
    law = np.exp(exponent.min() - exponent)
    return np.asarray(law / law.sum())


def delta(p: Array, q: Array, epsilon: float) -> float:
    return max(float(np.maximum(p - np.exp(epsilon) * q, 0).sum()), float(np.maximum(q - np.exp(epsilon) * p, 0).sum()))


def true_epsilon(p: Array, q: Array, allowed: float) -> float:
    """The smallest ε of two laws at this δ, by bisection."""
    low, high = 0.0, 200.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if delta(p, q, middle) <= allowed else (middle, high)
    return high


# ---- candidates ----------------------------------------------------------------------------------------------------


def test_candidates_are_even() -> None:
    box = candidates(Domain(low=-5.0, high=0.0), 1)
    assert box.shape == (65, 1)
    assert box[0] == -5.0
    assert box[-1] == 0.0
    assert np.allclose(np.diff(box[:, 0]), 5.0 / 64)
    assert candidates(Domain(low=0.0, high=1.0), 3, 4).shape == (64, 3)


@pytest.mark.parametrize(
    ("domain", "p", "count", "says"),
    [
        (Domain(low=0.0, high=1.0), 4, None, "too many points"),
        (Domain(low=0.0, high=1.0), 1, 1, "wanted 2 or more"),
        (Domain(low=0.0, high=1.0), 3, 100, "no more than"),
    ],
)
def test_what_has_no_candidates(domain: Domain, p: int, count: int | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        candidates(domain, p, count)


# ---- the law -------------------------------------------------------------------------------------------------------


def data_sets(case: Case, name: str, n: int, kind: Split, seed: int) -> list[tuple[Any, Any]]:
    """Records of two neighbours, as (features, labels) of train and of validation records."""
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


def pool_of(case: Case, data_set: tuple[Any, Any]) -> Pooled:
    train, validation = data_set
    return Pooled.from_agents(case.family, [(case.prepared(*train, "train"), case.prepared(*validation, "validation"))])


def exact_score(case: Case, data_set: tuple[Any, Any], x: Array) -> float:
    """Φ(x) in extended precision, by other code: a dozen of Newton's steps from 0."""
    there, y = Exact(case, x, *data_set), np.zeros(case.problem.q, dtype=np.longdouble)
    for _ in range(12):
        hessian, gradient = there.lower_hessian(y), there.lower_gradient(y)
        y = y - np.linalg.solve(hessian.astype(float), gradient.astype(float))
    return float(there.upper_value(y))


@pytest.mark.parametrize("name", ["logistic_shared", "ridge_shared", "quadratic", "mean"])
def test_candidates_follow_the_exact_law(name: str) -> None:
    """Draws against probabilities from an independent Φ; half the scale, and twice, are seen."""
    case = cases()[name]
    data_set = data_sets(case, "random", 12, "train", 5)[0]
    pool = pool_of(case, data_set)
    p = case.problem.p
    points = candidates(Domain(low=-2.0, high=1.0), p, 9 if p == 1 else 2)
    low, high = np.full(p, -2.0), np.full(p, 1.0)
    selection = FiniteExponential(SelectionBounds.of_value(pool.bounds, low, high), points, pool.scores)
    exact = np.array([exact_score(case, data_set, x) for x in points])
    scores = pool.scores(points)
    assert np.abs(scores - exact).max() <= selection.facts.inexact
    scale = float(np.ptp(exact)) / 2.5
    expected = density(exact / scale)
    assert np.abs(log_law(selection, scores, scale) - np.log(expected)).max() <= 1.01 * selection.facts.unit / scale
    quick, rng = replace(selection, score=constant(scores)), np.random.default_rng(7)
    drawn = np.array([quick.draw(rng, scale) for _ in range(700)])
    counts = np.array([(drawn == point).all(axis=1).sum() for point in points])
    assert counts.sum() == 700
    assert not rejected(counts, expected)
    assert rejected(counts, density(exact / (2.0 * scale)))
    assert rejected(counts, density(2.0 * exact / scale))
    assert np.array_equal(quick.draw(rng, 0.0), points[exact.argmin()])


def test_the_best_of_a_box_in_three_dimensions() -> None:
    low, high, at = -np.ones(3), np.ones(3), np.array([0.31, -1.0, 0.777])
    found = best_point(lambda x: ((x - at) ** 2).sum(axis=1), Box(low, high))
    assert np.abs(found - at).max() < 1e-4


# ---- what neighbours tell apart -------------------------------------------------------------------------------------


def tried(name: str, kind: Split, norm: bool) -> tuple[float, float]:
    """The largest exact log-ratio over hard data sets, and the price, at price 1 for a scale."""
    case, worst, price = cases()[name], 0.0, np.inf
    p = case.problem.p
    for data in ("random", "separable", "one_against_all"):
        for n in (3, 20):
            both = [pool_of(case, w) for w in data_sets(case, data, n, kind, 11)]
            low, high = np.full(p, -1.5), np.full(p, 1.5)
            make = SelectionBounds.of_norm if norm else SelectionBounds.of_value
            points = candidates(Domain(low=-1.5, high=1.5), p, 17 if p == 1 else 2)
            selection = FiniteExponential(make(both[0].bounds, low, high), points, both[0].scores)
            price = selection.sensitivity[kind]
            scores = [pool.gradient_norms(points) if norm else pool.scores(points) for pool in both]
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
def test_no_neighbour_is_told_apart_beyond_the_price(name: str, kind: Split, norm: bool) -> None:
    worst, _ = tried(name, kind, norm)
    assert 0.0 < worst <= 1.0


def lower_bound_laws(n: int, per_axis: int) -> tuple[FiniteExponential, list[Array]]:
    """The instance of the lower bound, all other records alike: Φ = −⟨x, c̄⟩, c̄ changed by 2/n."""
    family = family_of(MeanLowerBound(1), 1.0)
    bounds = PooledBounds(family, 5, n)
    points = candidates(Domain(low=-1.0, high=1.0), 1, per_axis)
    selection = FiniteExponential(SelectionBounds.of_value(bounds, -np.ones(1), np.ones(1)), points, constant([]))
    return selection, [-points[:, 0] * (n - 1 + side) / n for side in (1.0, -1.0)]


def test_the_price_is_attained() -> None:
    """Two levels, and nearly all mass on one of them: the log-ratio at the other is all of ε."""
    selection, scores = lower_bound_laws(1000, 2)
    (price,) = selection.sensitivity.values()
    assert price == pytest.approx(4.0 / 1000, rel=1e-5)
    for epsilon in (0.5, 2.0):
        one, other = (log_law(selection, s, price / epsilon) for s in scores)
        found = float(np.abs(one - other).max())
        assert 0.9999 * epsilon < found <= epsilon
        # Planted: half the scale.
        one, other = (log_law(selection, s, 0.5 * price / epsilon) for s in scores)
        assert float(np.abs(one - other).max()) > 1.9 * epsilon


def test_the_price_of_a_norm_is_attained() -> None:
    """A stationary point between two candidates: the norm rises at one and falls at the other by all of S."""
    problem, n = MeanEstimation(1, 1.0), 500
    train = problem.prepare(np.zeros((5, 1)), np.zeros(5), "l2")
    pools = []
    for side in (1.0, -1.0):
        rows = np.full((n, 1), 0.4)
        rows[0] = side
        pools.append(Pooled.from_agents(family_of(problem, 1.0), [(train, problem.prepare(rows, np.zeros(n), "l2"))]))
    points = np.array([[-1.0], [1.0]])
    facts = SelectionBounds.of_norm(pools[0].bounds, -np.ones(1), np.ones(1))
    selection = FiniteExponential(facts, points, constant([]))
    epsilon = 2.0
    scale = selection.sensitivity["validation"] / epsilon
    one, other = (log_law(selection, pool.gradient_norms(points), scale) for pool in pools)
    assert 0.9999 * epsilon < float(np.abs(one - other).max()) <= epsilon


def test_rounding_and_inexactness_are_in_the_price() -> None:
    """Scores that meet the declared oscillation, and are rounded or computed as badly as allowed."""
    sensitivity = 1.0
    facts = SelectionBounds({"train": sensitivity}, 0.0, 1.0)
    r = facts.unit
    # One candidate up by s/2, one down by s/2, both about to be rounded the other way; a third holds all the mass.
    a, b = 0.49 * r, 0.51 * r
    shift = 0.5 * sensitivity + 0.02 * r
    scores = [np.array([a, b + 5.0, -60.0]), np.array([a + shift, b + 5.0 - shift, -60.0 - shift])]
    declared = SelectionBounds({"train": 2.0 * shift}, 0.0, 1.0)
    assert declared.unit == r
    selection = FiniteExponential(declared, np.zeros((3, 1)), constant([]))
    scale = selection.sensitivity["train"] / 3.0
    one, other = (log_law(selection, s, scale) for s in scores)
    found = float(np.abs(one - other).max()) * scale
    assert found <= selection.sensitivity["train"]
    assert found > 2.0 * shift + 0.9 * r, "without room for rounding the price would be too low"
    # Errors of the scores: ±e in one data set, ∓e in the other.
    error = 0.05
    inexact = replace(selection, facts=replace(declared, inexact=error))
    signs = np.array([1.0, 0.0, -1.0])
    scale = inexact.sensitivity["train"] / 3.0
    laws = [log_law(inexact, s + w * error * signs, scale) for s, w in zip(scores, (-1.0, 1.0), strict=True)]
    found = float(np.abs(laws[0] - laws[1]).max()) * scale
    assert selection.sensitivity["train"] < found <= inexact.sensitivity["train"]


# ---- regularised ---------------------------------------------------------------------------------------------------


def affine(slope: float, sensitivity: float, strength: float, finest: float) -> RegularisedSelection:
    """Φ(x) = slope·x on [−1, 1]."""
    facts = Density(UNIT, {"train": sensitivity}, strength, np.zeros(1), 1.0, 0.0, 1e-14, 1e-14, True, finest, 0.0)
    coefficients = np.zeros((1, 1)), np.array([-slope])
    return RegularisedSelection(facts, lambda x: slope * x[:, 0], lambda x: np.array([slope]), coefficients)


def law_of(selection: RegularisedSelection, scale: float) -> Array:
    """On a fine grid, from the density as it is written."""
    facts = selection.facts
    rate = (facts.strength + facts.curvature) / scale**2
    points = FINE[:, None]
    return density(rate * (selection.score(points) + 0.5 * facts.strength * ((points - facts.anchor) ** 2).sum(axis=1)))


def bent(points: Array) -> Array:
    """ρ-weakly convex with ρ = 2: two wells."""
    return np.asarray(0.5 * np.cos(2.0 * points[:, 0]) + 0.1 * points[:, 0])


def bent_slope(x: Array) -> Array:
    return np.asarray(-np.sin(2.0 * x) + 0.1)


@pytest.mark.parametrize("shape", ["affine", "bent"])
def test_regularised_draws_follow_the_density(shape: str) -> None:
    selection = affine(0.4, 0.05, 1.0, 1e-3)
    if shape == "bent":
        facts = Density(UNIT, {"train": 0.05}, 3.0, np.zeros(1), 1.2, 2.0, 1e-12, 1e-12, False, 1e-3)
        selection = RegularisedSelection(facts, bent, bent_slope)
    assert selection.mechanism == "gaussian"
    assert selection.facts.is_certified
    rng, scale = np.random.default_rng(12), 0.3
    drawn = [selection.draw(rng, scale)[0] for _ in range(200)]

    def cdf(at: float) -> Callable[[Any], Any]:
        total = np.cumsum(law_of(selection, at))
        return lambda x: np.interp(x, FINE, total)

    assert stats.kstest(drawn, cdf(scale)).pvalue > 1e-5
    assert stats.kstest(drawn, cdf(2.0 * scale)).pvalue < 1e-5
    least = selection.score(FINE[:, None]) + 0.5 * selection.facts.strength * FINE**2
    assert abs(float(selection.draw(rng, 0.0)[0]) - FINE[least.argmin()]) < 1e-3


def test_a_gaussian_price_holds_and_is_tight() -> None:
    """Two slopes S apart, and the law's minimum inside the box: a Gaussian pair but for the ends."""
    sensitivity, strength, mu = 0.05, 1.0, 0.8
    scale = sensitivity / mu
    pair = [law_of(affine(s, sensitivity, strength, scale), scale) for s in (0.1, 0.1 + sensitivity)]
    allowed = float(gaussian_epsilon(mu, 1e-6))
    found = true_epsilon(*pair, 1e-6)
    assert 0.99 * allowed < found <= allowed * (1.0 + 1e-6)
    planted = [law_of(affine(s, sensitivity, strength, 0.5 * scale), 0.5 * scale) for s in (0.1, 0.1 + sensitivity)]
    assert true_epsilon(*planted, 1e-6) > 1.9 * allowed


def test_weak_convexity_is_paid_for() -> None:
    """With κ left out, two wells tell neighbours apart by more than the price; with it they do not."""
    sensitivity, mu = 0.01, 0.2367

    def pair(strength: float, convex: bool) -> list[Array]:
        facts = Density(UNIT, {"train": sensitivity}, strength, np.zeros(1), 1.2, 2.0, 0.0, 0.0, convex, 0.0)
        sides = [lambda x, s=s: bent(x) - 0.1 * x[:, 0] + s * sensitivity * x[:, 0] for s in (-0.5, 0.5)]
        return [law_of(RegularisedSelection(facts, f, bent_slope), sensitivity / mu) for f in sides]

    assert delta(*pair(2.5, False), 1.0) <= 1e-6
    assert delta(*pair(0.2, True), 1.0) > 1e-3


def test_what_is_not_convex_is_refused() -> None:
    facts = Density(UNIT, {"train": 0.01}, 1.5, np.zeros(1), 1.2, 2.0, 0.0, 0.0, False, 0.1)
    with pytest.raises(InputError, match="convex for every data set"):
        facts.check()


@pytest.mark.parametrize("finest", [1e-2, 1e-4, 3.3e-5])
def test_the_distortion_is_stated_beforehand(finest: float) -> None:
    """No scale from the finest on has a law farther from the ideal one, and the grid of a finer one is refused."""
    selection = affine(0.3, 0.01, 0.7, finest)
    for scale in finest * np.array([1.0, 1.1, 1.7, 2.3, 10.0, 1000.0]):
        assert 2.0 * selection.facts.regularise(float(scale)).error() <= selection.distortion
    with pytest.raises(ValueError, match="distortion"):
        selection.draw(np.random.default_rng(0), 0.9 * finest)
    assert affine(0.3, 0.01, 0.7, 0.0).distortion == 0.0


def test_the_distortion_covers_inexact_scores() -> None:
    """Scores wrong by ±e move the log of the law by no more than stated, and by more than if e were forgotten."""
    scale, error = 0.1, 1e-4
    selection = affine(0.2, 0.01, 1.0, scale)
    honest = replace(selection.facts, inexact=error)
    wrong = replace(
        selection,
        facts=honest,
        coefficients=None,
        score=lambda x: 0.2 * x[:, 0] + np.where(x[:, 0] > -0.2, error, -error),
    )
    found = float(np.abs(np.log(law_of(wrong, scale)) - np.log(law_of(selection, scale))).max())
    assert selection.distortion < found <= wrong.distortion


def test_a_draw_that_would_take_too_long_is_refused() -> None:
    wide = Box(-np.ones(30), np.ones(30))
    facts = Density(wide, {"train": 0.01}, 0.1, np.zeros(30), 1.0, 20.0, 0.0, 0.0, True, 0.1, 600.0)
    with pytest.raises(InputError, match="proposals"):
        facts.check()
    replace(facts, trace=0.5).check()


# ---- Lemma B.6 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kappa", "stated"), [(5.0, 2.11), (10.0, 5.20), (50.0, 40.8)])
def test_what_a_calibration_by_lemma_b6_is_worth(kappa: float, stated: float) -> None:
    """f = y, g = a y²/2 − x y with a ∈ [1, κ]: Φ = x/ā, of whose slope one record of 1000 moves (κ − 1)/(n + κ − 1).

    Claimed (1, 1e-6) with 2/n for it. The ledger's ε, from the sensitivity that holds, and the exact ε of both laws.
    """
    n, strength, target = 1000, 5.0, 0.236704
    scale = 2.0 / n / target
    holds = (kappa - 1.0) / n
    slopes = (1.0, n / (n + kappa - 1.0))
    assert abs(slopes[0] - slopes[1]) <= holds
    one, other = (affine(slope, holds, strength, scale) for slope in slopes)
    exact = true_epsilon(law_of(one, scale), law_of(other, scale), 1e-6)
    assert exact == pytest.approx(stated, rel=0.01)
    listed = float(gaussian_epsilon(one.sensitivity["train"] / scale, 1e-6))
    assert exact <= listed <= 1.15 * exact
    proper = holds / target
    laws = [law_of(selection, proper) for selection in (one, other)]
    assert true_epsilon(*laws, 1e-6) <= 1.0 + 1e-5
