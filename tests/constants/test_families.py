"""Analytic constants of problem families: printed numbers, edges that are reached, closed forms, refusals."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from decentral_dp.central.sensitivities import (
    hypergradient_sensitivity,
)
from decentral_dp.constants import (
    Family,
    ProblemConstants,
    SquaredLoss,
    family_of,
    logistic_loss,
    softmax_loss,
    worst_case,
)
from decentral_dp.errors import InputError
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.linear import (
    LogisticHyperparameter,
    Quadratic,
    SoftmaxHyperparameter,
    biased_regularisation,
    logistic_regularisation,
    ridge_hyperparameter,
    ridge_regularisation,
)
from decentral_dp.problems.bilevel.means import MeanEstimation, MeanLowerBound
from decentral_dp.problems.bilevel.meta_learning import MetaLearning

MANY = 10**9
TWO, THREE = (-1.0, 1.0), (0.0, 1.0, 2.0)


def at(p: int, value: float) -> np.ndarray:
    return np.full(p, float(value))


def local(family: Family, value: float, record_mass: float = 1.0) -> ProblemConstants:
    x = at(family.problem.p, value)
    return family.constants(x, x, record_mass)


def shared(w: float, loss: str, record_mass: float = 1.0, bound: float = 1.0) -> ProblemConstants:
    problem = logistic_regularisation(2, TWO) if loss == "logistic" else ridge_regularisation(2)
    return local(family_of(problem, 1.0, bound), math.log(w), record_mass)


# Numbers -------------------------------------------------------------------------------------------------------------


def test_the_logistic_ball() -> None:
    assert shared(0.1, "logistic").radius == pytest.approx(1.6687, abs=5e-5)
    gain = shared(0.01, "logistic").radius ** 2 * 0.01
    assert 0.278464542761 < gain < 0.278464542762
    assert shared(2.0, "logistic").radius == pytest.approx(0.25)
    assert shared(0.1, "logistic", record_mass=3.0).radius == pytest.approx(math.sqrt(3.0) * 1.6687, abs=1e-4)


def test_worst_pieces_are_far_below_the_whole_box() -> None:
    family = family_of(logistic_regularisation(2, TWO), 1.0)
    low, high = at(1, math.log(0.01)), at(1, 0.0)

    def bound(c: ProblemConstants) -> float:
        return hypergradient_sensitivity(c, MANY, MANY)["train"]

    whole, pieces, corner = (
        bound(family.constants(low, high)),
        worst_case(family, low, high, bound),
        local(family, low[0]),
    )
    assert bound(corner) <= pieces < 1.01 * bound(corner) < 0.5 * whole
    many = family_of(LogisticHyperparameter(2, TWO), 1.0)
    assert worst_case(many, at(2, -1), at(2, 1), bound) == bound(many.constants(at(2, -1), at(2, 1)))


# Losses: proofs against numbers --------------------------------------------------------------------------------------

LOSSES = [logistic_loss(1.3), softmax_loss(1.3, 2), softmax_loss(0.7, 5), SquaredLoss(1.3, 0.8)]


def record_loss(loss: Any, y: np.ndarray, a: np.ndarray, b: int) -> float:
    if isinstance(loss, SquaredLoss):
        return 0.5 * float(a @ y[0] - (b or -1) * loss.label_bound) ** 2
    if loss.spread == 1.0:
        return float(np.logaddexp(0.0, -(2 * b - 1) * (a @ y[0])))
    z = y @ a
    return float(np.logaddexp.reduce(z) - z[b])


def rows(loss: Any) -> int:
    return loss.classes if not isinstance(loss, SquaredLoss) and loss.spread > 1.0 else 1


def derivative(loss: Any, y: np.ndarray, a: np.ndarray, b: int, h: float, *along: np.ndarray) -> float:
    """Central differences of record_loss along directions."""
    if not along:
        return record_loss(loss, y, a, b)
    up, down = (derivative(loss, y + s * h * along[0], a, b, h, *along[1:]) for s in (1, -1))
    return (up - down) / (2 * h)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_bounds_of_losses_hold_and_are_near(loss: Any) -> None:
    rng = np.random.default_rng(7)
    size = 4.0
    found = dict.fromkeys(("gradient", "smoothness", "third", "relative"), 0.0)
    for _ in range(2000):
        y, u, v = rng.normal(size=(3, rows(loss), 1))
        y *= size * rng.choice([0.0, 0.5, 1.0]) / np.linalg.norm(y)
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        v = u if rng.random() < 0.5 else v
        a, b = np.array([loss.radius]), int(rng.integers(0, max(rows(loss), 2)))
        second = derivative(loss, y, a, b, 1e-4, u, u)
        third = derivative(loss, y, a, b, 2e-3, u, u, v)
        found["gradient"] = max(found["gradient"], derivative(loss, y, a, b, 1e-6, u) / loss.gradient(size))
        found["smoothness"] = max(found["smoothness"], second / loss.smoothness)
        if loss.third > 0:
            found["third"] = max(found["third"], abs(third) / loss.third)
            found["relative"] = max(found["relative"], abs(third) / (loss.self_concordance * max(second, 1e-3)))
    assert max(found.values()) <= 1 + 1e-4
    least = 0.95 if rows(loss) < 3 else 0.65
    assert min(v for k, v in found.items() if k in ("gradient", "smoothness")) > least


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("out", [0.0, 1.2])
@pytest.mark.parametrize("w", [0.02, 1.0])
def test_minimisers_stay_in_the_ball_and_reach_its_edge(loss: Any, out: float, w: float) -> None:
    """Return one record of the worst norm and label, and the point with the largest gradient."""
    reach, worst_found = loss.reach(w, 1.7, out), 0.0
    shape = (rows(loss), 1)
    for length in np.geomspace(0.03, 1.0, 16):
        for sign in (1.0, -1.0):
            start = np.zeros(shape)
            start[0, 0] = sign
            start[-1, 0] += 0.0 if len(start) == 1 else -sign
            start *= out / np.linalg.norm(start)
            a = np.array([loss.radius * length])

            def objective(v: np.ndarray, a: np.ndarray = a, start: np.ndarray = start) -> float:
                y = v.reshape(shape)
                return 1.7 * record_loss(loss, y, a, 0) + 0.5 * w * float(np.sum((y - start) ** 2))

            best = minimize(objective, start.ravel(), method="BFGS", options={"gtol": 1e-9}).x
            worst_found = max(worst_found, float(np.linalg.norm(best.reshape(shape) - start)) / reach)
    assert worst_found <= 1 + 1e-5
    assert worst_found > 0.5


def test_the_gain_is_lamberts() -> None:
    """max (c − 1)t/(e^{t − ρ} + c − 1) over t, with 30 digits."""
    with mpmath.workdps(30):
        for c, shift in ((2, 0.0), (5, 0.0), (3, 1.3)):
            loss = softmax_loss(1.0, c)
            slope = lambda t, c=c, s=shift: (c - 1) * t / (mpmath.e ** (t - s) + c - 1)  # noqa: E731 # findroot wants one
            top = mpmath.findroot(lambda t, f=slope: mpmath.diff(f, t), 1.5)
            got = loss.reach(1e-9, 1.0, shift / math.sqrt(2)) ** 2 * 1e-9
            assert got == pytest.approx(float(slope(top)), rel=1e-10)


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 50), st.integers(2, 20), st.floats(0, 1e4))
def test_no_bound_leaves_the_floats(radius: float, classes: int, norm: float) -> None:
    for loss in (logistic_loss(radius), softmax_loss(radius, classes), SquaredLoss(radius, 1.0)):
        values = [loss.gradient(norm), loss.loss_range(norm), loss.reach(1e-3, 2.0, norm), loss.smoothness]
        assert all(math.isfinite(v) and v >= 0.0 for v in values)


def test_ranges_of_losses() -> None:
    assert logistic_loss(2.0).loss_range(1.5) == pytest.approx(3.0)
    z = 0.7 * math.sqrt(2) * 1.5
    assert softmax_loss(0.7, 4).loss_range(1.5) == pytest.approx(math.log1p(3 * math.e**z) - math.log1p(3 * math.e**-z))
    assert SquaredLoss(2.0, 0.5).loss_range(1.5) == pytest.approx(0.5 * 3.5**2)


# Families ------------------------------------------------------------------------------------------------------------

FAMILIES = {
    "logistic": logistic_regularisation(2, TWO),
    "ridge": ridge_regularisation(2),
    "logistic features": LogisticHyperparameter(2, TWO),
    "ridge features": ridge_hyperparameter(2),
    "softmax features": SoftmaxHyperparameter(2, THREE),
    "biased logistic": biased_regularisation(2, TWO, 0.3),
    "biased softmax": biased_regularisation(2, THREE, 0.3),
    "biased squares": Quadratic(2, 0.3),
    "groups": HyperCleaning(2, THREE, 2, groups=2, ridge=0.2),
    "mean": MeanEstimation(2, 0.5),
    "linear": MeanLowerBound(2, 0.5, 1.3, 0.7),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_constants_are_consistent(name: str) -> None:
    family = family_of(FAMILIES[name], 1.0, 0.8)
    p = family.problem.p
    low, high = at(p, -1), at(p, 0.5)
    c = family.constants(low, high)
    assert all(math.isfinite(v) and v >= 0.0 for v in c)
    assert c.d_fy <= 2 * c.l_fy * (1 + 1e-9)
    assert c.m <= c.b_gxy / c.mu * (1 + 1e-9)
    # A wider box and more mass only loosen.
    for other in (family.constants(low - 1, high), family.constants(low, high + 1), family.constants(low, high, 3.0)):
        assert other.mu <= c.mu
        assert all(b >= a for field, a, b in zip(c._fields, c, other, strict=True) if field != "mu")
    point = family.constants(low, low)
    assert point.radius <= c.radius
    assert family.centre(low).shape == (family.problem.q,)
    assert family.loss_range(low, high) > 0.0
    assert 0.0 < family.spread(low, high) < math.inf
    assert family.self_concordance < math.inf


def test_the_scale_of_the_softmax_strengths() -> None:
    """R = Σ e^{x_s} Y_rs²/(c p): strengths 2e^{x_s}/q."""
    c = local(family_of(SoftmaxHyperparameter(2, THREE), 1.0), 0.4)
    assert c.mu == pytest.approx(2 * math.exp(0.4) / 6)


def test_groups_of_records_are_weighed() -> None:
    problem = FAMILIES["groups"]
    family = family_of(problem, 1.0)
    low, far = local(family, -5.0), family.constants(at(4, 2.0), at(4, 3.0))
    assert low.d_gy < 0.02 * low.d_fy
    assert far.b_gxy == pytest.approx(math.exp(-2) / (1 + math.exp(-2)) ** 2 * far.l_fy)
    assert local(family, 0.0).b_gxy == pytest.approx(local(family, 0.0).l_fy / 4)


# Refusals ------------------------------------------------------------------------------------------------------------


def test_what_has_no_constants_is_refused() -> None:
    with pytest.raises(InputError, match='"meta_learning" has no analytic constants'):
        family_of(MetaLearning.from_dataset(3, 3, ways=2), 1.0, 1.0)
    # A custom regulariser with a scale of another meaning.
    custom: Any = SimpleNamespace(scale=1.0)
    for problem in (LogisticHyperparameter(2, TWO, penalty_override=custom), Quadratic(2, penalty_override=custom)):
        with pytest.raises(InputError, match="has no analytic constants"):
            family_of(problem, 1.0, 1.0)
    with pytest.raises(InputError, match=r"label_bound: out of range .got inf"):
        family_of(ridge_regularisation(2), 1.0)
    for radius in (0.0, math.inf, math.nan, -1.0):
        with pytest.raises(InputError, match=r"radius: out of range .got"):
            family_of(logistic_regularisation(2, TWO), radius)
    family = family_of(logistic_regularisation(2, TWO), 1.0)
    for low, high in ((-math.inf, 0.0), (1.0, 0.0), (math.nan, 0.0)):
        with pytest.raises(InputError, match="finite bounds with low ≤ high"):
            family.constants(at(1, low), at(1, high))
    with pytest.raises(InputError, match="exp overflows above 700"):
        local(family, -800.0)
