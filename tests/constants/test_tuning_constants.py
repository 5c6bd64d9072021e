"""The constants and solutions that tuning one strength rests on, against neighbours that try to break them."""

from __future__ import annotations

import math
from typing import NamedTuple

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from decentral_dp.central.pooled import Pooled, PooledBounds
from decentral_dp.central.selection import SelectionBounds
from decentral_dp.central.tuner import project
from decentral_dp.constants import family_of, logistic_loss
from decentral_dp.problems.bilevel.linear import logistic_regularisation, ridge_regularisation

LOSSES = ("logistic", "squared")
ROLES = ("train", "validation")


class Records(NamedTuple):
    """features (n, d), labels (n,): within their bounds."""

    features: np.ndarray
    labels: np.ndarray


def records(loss: str, a: np.ndarray, b: np.ndarray, radius: float = 1.0, bound: float = 1.0) -> Records:
    return Records(*project(np.atleast_2d(a).astype(float), np.atleast_1d(b).astype(float), loss, radius, bound))  # type: ignore[arg-type] # parametrised over both


def pooled(loss: str, train: Records, validation: Records, radius: float = 1.0, bound: float = 1.0) -> Pooled:
    d = train.features.shape[1]
    problem = ridge_regularisation(d) if loss == "squared" else logistic_regularisation(d, (-1.0, 1.0))
    return Pooled(family_of(problem, radius, bound), *(problem.prepare(*r, "l2") for r in (train, validation)))


def bounds(loss: str, n: dict[str, int], radius: float = 1.0, bound: float = 1.0, d: int = 3) -> PooledBounds:
    problem = ridge_regularisation(d) if loss == "squared" else logistic_regularisation(d, (-1.0, 1.0))
    return PooledBounds(family_of(problem, radius, bound), n["train"], n["validation"])


def at(w: float) -> np.ndarray:
    return np.array([math.log(w)])


def minimise(loss: str, train: Records, validation: Records, w: float, lam: float | None = None) -> np.ndarray:
    return pooled(loss, train, validation).minimiser(at(w), lam).value[0]


def exact(loss: str, parts: list[tuple[Records, float]], w: float) -> np.ndarray:
    """The minimiser by another road: normal equations, or scipy's trust region."""
    d = parts[0][0].features.shape[1]
    if loss == "squared":
        left = w * np.eye(d) + sum(s * r.features.T @ r.features / len(r.labels) for r, s in parts)
        return np.linalg.solve(left, sum(s * r.features.T @ r.labels / len(r.labels) for r, s in parts))

    def value(t: np.ndarray) -> float:
        return 0.5 * w * t @ t + sum(s * np.logaddexp(0, -r.labels * (r.features @ t)).mean() for r, s in parts)

    def sigma(r: Records, t: np.ndarray) -> np.ndarray:
        return 0.5 * (1.0 - np.tanh(0.5 * r.labels * (r.features @ t)))

    def gradient(t: np.ndarray) -> np.ndarray:
        return w * t - sum(s * (sigma(r, t) * r.labels) @ r.features / len(r.labels) for r, s in parts)

    def hessian(t: np.ndarray) -> np.ndarray:
        out = w * np.eye(d)
        for r, s in parts:
            p = sigma(r, t)
            out += s * (r.features * (p * (1 - p))[:, None]).T @ r.features / len(r.labels)
        return out

    t = minimize(value, np.zeros(d), jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-9}).x
    for _ in range(3):
        t = t - np.linalg.solve(hessian(t), gradient(t))
    return t


# Neighbours ----------------------------------------------------------------------------------------------------------


def swapped(r: Records, loss: str, a: np.ndarray, b: float, radius: float, bound: float) -> Records:
    features, labels = r.features.copy(), r.labels.copy()
    features[0], labels[0] = a, b
    return records(loss, features, labels, radius, bound)


def neighbours(rng: np.random.Generator, loss: str, d: int, radius: float, bound: float):
    """A data set whose records pull one way, and its neighbour in one role, which pulls elsewhere."""
    n = {"train": int(rng.choice([1, 2, 5, 30])), "validation": int(rng.choice([1, 3, 20]))}
    axis = rng.normal(size=d)
    axis /= np.linalg.norm(axis)
    data = {}
    for role in ROLES:
        noise = rng.normal(size=(n[role], d)) * rng.choice([0.0, 0.1, 1.0])
        length = radius * rng.choice([0.1, 0.5, 1.0])
        a = axis + noise
        a *= length / np.linalg.norm(a, axis=1, keepdims=True)
        data[role] = records(loss, a, np.full(n[role], bound if loss == "squared" else 1.0), radius, bound)
    away = rng.normal(size=d) * 0.7 + axis * rng.choice([-1.0, 0.0, 1.0])
    away *= radius / np.linalg.norm(away)
    other = dict(data)
    role = str(rng.choice(ROLES))
    other[role] = swapped(data[role], loss, away, -bound if loss == "squared" else -1.0, radius, bound)
    if rng.random() < 0.5:
        # The replaced record against its mirror image.
        mirrored = away - 2 * (away @ axis) * axis
        data[role] = swapped(data[role], loss, mirrored, -bound if loss == "squared" else -1.0, radius, bound)
    return data, other, role, n


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalised", [False, True])
def test_no_neighbour_moves_a_minimiser_further(loss: str, penalised: bool) -> None:
    rng = np.random.default_rng(17 + 2 * LOSSES.index(loss) + penalised)
    worst = 0.0
    for _ in range(80):
        radius, bound = float(rng.choice([0.5, 1.0, 3.0])), float(rng.choice([0.3, 1.0]))
        w, lam = float(10.0 ** rng.uniform(-2.5, 1.5)), float(10.0 ** rng.uniform(-2, 2))
        data, other, role, n = neighbours(rng, loss, 3, radius, bound)
        if not penalised and role == "validation":
            continue
        known = bounds(loss, n, radius, bound)
        sensitivity = [
            exact(loss, [(z["train"], 1.0)] + ([(z["validation"], 1.0 / lam)] if penalised else []), w)
            for z in (data, other)
        ]
        allowed = known.minimiser(at(w), lam if penalised else None)[role]  # type: ignore[index] # one of the roles
        worst = max(worst, float(np.linalg.norm(sensitivity[0] - sensitivity[1])) / allowed)
        assert np.linalg.norm(sensitivity[0]) <= known.constants_at(at(w), lam if penalised else None).radius * (
            1 + 1e-9
        )
    assert 0.5 < worst <= 1.0 + 1e-9


@pytest.mark.parametrize("loss", LOSSES)
def test_strong_regularisation_makes_the_bound_tight(loss: str) -> None:
    """Near the origin a record and its opposite have opposite gradients, and the ridge is nearly all the curvature."""
    w, n = 50.0, 40
    a = np.zeros((n, 2))
    a[0] = [1.0, 0.0]
    data, other = (records(loss, a * s, np.ones(n)) for s in (1.0, -1.0))
    sensitivity = np.linalg.norm(exact(loss, [(data, 1.0)], w) - exact(loss, [(other, 1.0)], w))
    assert 0.97 < sensitivity / bounds(loss, {"train": n, "validation": 1}).minimiser(at(w))["train"] <= 1.0


@pytest.mark.parametrize(("w", "lam", "ratio"), [(3.0, 0.01, 1.6), (3.0, 0.02, 1.3), (10.0, 0.01, 1.3)])
def test_pulled_minimisers_leave_the_ball_of_the_plain_ones(w: float, lam: float, ratio: float) -> None:
    """Refute the constants of g's ball, with which the release of argmin g + f/λ would have too little noise."""
    n, known = 2000, bounds("squared", {"train": 2000, "validation": 2000}, d=2)
    size = min(1.0, math.sqrt(w / (1.0 + 1.0 / lam)))
    validation = records("squared", np.tile([size, 0.0], (n, 1)), np.ones(n))
    tilted = []
    for s in (1.0, -1.0):
        a = np.tile([size, 0.0], (n, 1))
        a[0] = [math.sqrt(0.5), s * math.sqrt(0.5)]
        tilted.append(records("squared", a, np.append(-1.0, np.ones(n - 1))))
    sensitivity = np.linalg.norm(
        np.subtract(*(exact("squared", [(t, 1.0), (validation, 1.0 / lam)], w) for t in tilted))
    )
    plain = known.minimiser(at(w))["train"]
    assert sensitivity > ratio * plain
    assert 0.4 < sensitivity / known.minimiser(at(w), lam)["train"] <= 1.0


@pytest.mark.parametrize("loss", LOSSES)
def test_no_neighbour_moves_the_slope_further(loss: str) -> None:
    rng = np.random.default_rng(5)
    worst = {"train": 0.0, "validation": 0.0}
    for _ in range(150):
        radius, bound = float(rng.choice([0.5, 1.0, 3.0])), float(rng.choice([0.3, 1.0]))
        w = float(10.0 ** rng.uniform(-2.5, 1.5))
        data, other, role, _ = neighbours(rng, loss, 3, radius, bound)
        theta = rng.normal(size=3) * 10.0 ** rng.uniform(-3, 1)
        found = [
            pooled(loss, z["train"], z["validation"], radius, bound).implicit(at(w), theta, pointwise=True)
            for z in (data, other)
        ]
        move = abs(float((found[0].value - found[1].value)[0, 0]))
        worst[role] = max(worst[role], move / float(found[0].sensitivities[role].sensitivity[0]))  # type: ignore[index] # a role
    assert max(worst.values()) <= 1.0 + 1e-9


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("role", ROLES)
def test_the_slope_bound_is_attained(loss: str, role: str) -> None:
    """Near the origin: opposite validation gradients along θ, or one train record of full curvature along θ."""
    w, theta = 0.05, np.array([1e-4, 0.0])
    n = {"train": 3, "validation": 4}
    none = {r: records(loss, np.zeros((k, 2)), np.zeros(k)) for r, k in n.items()}
    one = {r: swapped(none[r], loss, np.array([1.0, 0.0]), 1.0, 1.0, 1.0) for r in ROLES}
    opposite = swapped(none["validation"], loss, np.array([-1.0, 0.0]), 1.0, 1.0, 1.0)
    single = records(loss, [[1.0, 0.0]], [1.0])
    data_sets = (
        [(none["train"], v) for v in (one["validation"], opposite)]
        if role == "validation"
        else [(t, single) for t in (none["train"], one["train"])]
    )
    found = [pooled(loss, *data_set).implicit(at(w), theta, pointwise=True) for data_set in data_sets]
    allowed = float(found[0].sensitivities[role].sensitivity[0])  # type: ignore[index] # one of the roles
    assert 0.999 < abs(float((found[0].value - found[1].value)[0, 0])) / allowed <= 1.0 + 1e-9


@pytest.mark.parametrize("loss", LOSSES)
def test_no_neighbour_varies_the_score_further(loss: str) -> None:
    rng = np.random.default_rng(23)
    grid = np.log(np.geomspace(0.02, 30.0, 12))[:, None]
    worst = 0.0
    for _ in range(60):
        data, other, role, n = neighbours(rng, loss, 2, 1.0, 1.0)
        gap = np.subtract(*(pooled(loss, z["train"], z["validation"]).scores(grid[::-1]) for z in (data, other)))
        allowed = SelectionBounds.from_value(bounds(loss, n, d=2), grid[0], grid[-1]).oscillation
        worst = max(worst, float(gap.max() - gap.min()) / allowed[role])  # type: ignore[index] # one of the roles
    assert 0.2 < worst <= 1.0


def test_the_logistic_ball_is_the_smallest() -> None:
    """A record whose margin sits where m/(1 + e^m) is largest reaches the edge."""
    for w in (0.01, 0.1):
        edge = logistic_loss(1.0).reach(w, 1.0, 0.0)
        reached = max(
            np.linalg.norm(exact("logistic", [(records("logistic", [[s, 0.0]], [1.0]), 1.0)], w))
            for s in np.geomspace(0.05, 1.0, 60)
        )
        assert 0.998 < reached / edge <= 1.0


# Against the formulas of one strength --------------------------------------------------------------------------------


# Solver --------------------------------------------------------------------------------------------------------------


def hard_cases() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    a = rng.normal(size=(60, 5))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    return {
        "separable": (a, np.sign(a[:, 0])),
        "one record": (a[:1], np.array([1.0])),
        "all equal": (np.tile(a[:1], (50, 1)), np.ones(50)),
        "contradictory": (np.concatenate([a[:20], a[:20]]), np.append(np.ones(20), -np.ones(20))),
        "zeros": (np.zeros((4, 5)), np.ones(4)),
        "nearly collinear": (a[:1] + 1e-7 * a, np.sign(a[:, 1])),
        "more features than records": (a[:3], np.array([1.0, -1.0, 1.0])),
    }


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case", hard_cases())
@pytest.mark.parametrize("w", [1e-4, 1e-3, 1.0])
def test_the_certificate_holds_in_forty_digits(loss: str, case: str, w: float) -> None:
    """‖∇h‖ ≤ w·a at the returned point, before it is put into the ball, the gradient computed with 40 digits."""
    a, b = hard_cases()[case]
    r = records(loss, a, b)
    n, d = r.features.shape
    known = bounds(loss, {"train": n, "validation": n}, d=d)
    promised = known.facts(at(w)).accuracy
    theta = minimise(loss, r, r, w)
    with mpmath.workdps(40):
        point = [mpmath.mpf(t) for t in theta]
        gradient = [w * t for t in point]
        for row, label in zip(r.features.tolist(), r.labels.tolist(), strict=True):
            m = mpmath.fsum(x * t for x, t in zip(row, point, strict=True))
            link = -label / (1 + mpmath.exp(label * m)) if loss == "logistic" else m - label
            gradient = [g + link * x / n for g, x in zip(gradient, row, strict=True)]
        size = float(mpmath.sqrt(mpmath.fsum(g * g for g in gradient)))
    assert size <= w * promised
    # It must not drown the sensitivity that it is added to.
    assert promised < 1e-3 * bounds(loss, {"train": max(n, 50), "validation": n}, d=d).minimiser(at(w))["train"]


# Records -------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.floats(width=64), min_size=3, max_size=3), min_size=1, max_size=8),
    st.floats(width=64),
    st.sampled_from(LOSSES),
    st.floats(0.01, 100.0),
)
def test_any_record_is_brought_into_its_bounds(rows: list[list[float]], label: float, loss: str, radius: float) -> None:
    labels = np.append(np.ones(len(rows) - 1), label)
    r = records(loss, np.array(rows), labels, radius, 2.0)
    for row in r.features.tolist():
        assert sum(mpmath.mpf(x) ** 2 for x in row) <= mpmath.mpf(radius) ** 2
    assert np.isfinite(r.labels).all()
    assert (np.abs(r.labels) <= 2.0).all()
    if loss == "logistic":
        assert set(r.labels.tolist()) <= {-1.0, 1.0}
    theta = pooled(loss, r, r, radius, 2.0).minimiser(at(0.1 * radius**2)).value
    assert np.isfinite(theta).all()
