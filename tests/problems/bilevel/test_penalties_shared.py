"""One strength for all features, and the lower bounds' instance: oracles, closed forms, constants, whole runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp import InputError
from decentral_dp.config.loading import load
from decentral_dp.models.linear_terms import blocks
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems import BILEVEL as PROBLEMS
from decentral_dp.problems.bilevel.means import MeanLowerBound
from decentral_dp.problems.bilevel.penalties import Strengths
from decentral_dp.problems.bilevel.regularised_losses import logistic_regularisation, ridge_regularisation
from decentral_dp.problems.lower_level import solve_lower
from decentral_dp.problems.protocol import TERMS
from decentral_dp.problems.records import regulariser_matrices
from decentral_dp.simulation.jobs.build import build
from tests.support.hypergradients import true_hypergradient

D = 3
SHARED = {
    "logistic": logistic_regularisation(D, (0.0, 1.0)),
    "intercept": logistic_regularisation(D, (0.0, 1.0), intercept=True),
    "ridge": ridge_regularisation(D),
}
LINEAR = MeanLowerBound(D, ridge=0.7, slope=1.3, stretch=0.6)
CLIPS = [Clip("l1", 1.0, 0.9, 0.5), Clip("l2", 1.0, 0.9, 0.5), Clip("l1"), Clip("l2")]


def raw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(n, D)), rng.integers(2, size=n).astype(float)


def agents(problem: Any, seed: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [tuple(problem.prepare(*raw(rng, n), "l2") for n in (7, 5)) for _ in range(3)]  # type: ignore[misc] # pairs


@pytest.mark.parametrize("name", SHARED)
def test_there_is_one_upper_variable(name: str) -> None:
    problem = SHARED[name]
    assert (problem.p, problem.q) == (1, 4 if name == "intercept" else 3)
    assert set(problem.reads_records) == {"lower_grad_y", "lower_hvp", "upper_grad_y"}


def test_the_penalty_is_differentiated_rightly() -> None:
    rng = np.random.default_rng(1)
    penalty, h = Strengths(D), 1e-5
    x, dx = rng.normal(size=(2, 4, 1))
    y, z, dy = rng.normal(size=(3, 4, D))

    def slope(f: Callable[[float], Any]) -> Any:
        return (f(h) - f(-h)) / (2 * h)

    np.testing.assert_allclose(penalty.value(x, y), [0.5 * np.exp(a[0]) * b @ b for a, b in zip(x, y, strict=True)])
    got = penalty.terms(x, y, z)
    np.testing.assert_allclose((got.grad_y * dy).sum(axis=1), slope(lambda s: penalty.value(x, y + s * dy)), rtol=1e-7)
    np.testing.assert_allclose(got.hvp, slope(lambda s: penalty.terms(x, y + s * z, z).grad_y), rtol=1e-7)
    mixed = slope(lambda s: (penalty.terms(x + s * dx, y, z).grad_y * z).sum(axis=1))
    assert got.jvp.shape == (4, 1)
    np.testing.assert_allclose((got.jvp * dx)[:, 0], mixed, rtol=1e-7)
    whole = regulariser_matrices(SHARED["ridge"], x, y, None)
    assert whole.jacobian.shape == (4, 1, D)
    np.testing.assert_allclose(np.einsum("bij,bj->bi", whole.jacobian, z), got.jvp)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_no_two_points_move_the_penalty_farther_than_its_constants(seed: int) -> None:
    rng, penalty = np.random.default_rng(seed), Strengths(D)
    box = {"x": 0.6, "y": 0.8, "z": 1.1}
    bound = penalty.lipschitz(box)
    assert bound is not None

    def directions(p: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        t = penalty.terms(*(v[None] for v in p))
        return t.jvp[0], t.grad_y[0], t.hvp[0]

    one = [rng.uniform(-1, 0.6, size=1), *(rng.choice([-1, 1, 0.3], size=D) * box[c] for c in "yz")]
    for u, size in enumerate((1, D, D)):
        other = list(one)
        other[u] = np.clip(one[u] + rng.normal(size=size), -box["xyz"[u]], box["xyz"[u]])
        far = np.abs(other[u] - one[u]).sum()
        for v, (a, b) in enumerate(zip(directions(one), directions(other), strict=True)):
            assert np.abs(a - b).sum() <= bound[v, u] * far * (1 + 1e-9) + 1e-12


def test_the_penaltys_constants_are_attained() -> None:
    penalty, top = Strengths(2), np.array([[0.3]])
    y, z, small = np.full((1, 2), 0.8), np.full((1, 2), 1.1), np.array([[0.3 - 1e-6]])
    bound = penalty.lipschitz({"x": 0.3, "y": 0.8, "z": 1.1})
    assert bound is not None
    a, b = penalty.terms(top, y, z), penalty.terms(small, y, z)
    for v, (one, other) in enumerate(((a.jvp, b.jvp), (a.grad_y, b.grad_y), (a.hvp, b.hvp))):
        assert np.abs(one - other).sum() / 1e-6 == pytest.approx(bound[v, 0], rel=1e-5)
    assert penalty.lipschitz({"x": 0.3, "y": 0.8}) is None
    assert penalty.lipschitz({"x": 701.0, "y": 0.8, "z": 1.0}) is None


@pytest.mark.parametrize("name", SHARED)
def test_the_hypergradient_is_the_slope_of_f(name: str) -> None:
    problem: Any = SHARED[name]
    pairs, x, h = agents(problem, 3), np.array([-0.7]), 1e-4

    def f(at: np.ndarray) -> float:
        y = solve_lower(problem, at, pairs)[None]
        return float(np.mean([problem.losses(at[None], y, v, np.full(5, 0.2))[1][0] for _, v in pairs]))

    got = true_hypergradient(problem, x, pairs)
    assert got.shape == (1,)
    assert got[0] == pytest.approx((f(x + h) - f(x - h)) / (2 * h), rel=1e-5)


def test_ridge_in_closed_form() -> None:
    problem = SHARED["ridge"]
    rng, x = np.random.default_rng(4), np.array([0.3])
    rows = [(raw(rng, 7), raw(rng, 5)) for _ in range(3)]
    pairs: Any = [tuple(problem.prepare(*part, "l2") for part in pair) for pair in rows]
    a = np.mean([f.T @ f / 7 for (f, _), _ in rows], axis=0)
    c = np.mean([f.T @ b / 7 for (f, b), _ in rows], axis=0)
    np.testing.assert_allclose(
        solve_lower(problem, x, pairs), np.linalg.solve(a + np.exp(0.3) * np.eye(D), c), rtol=1e-8
    )


# The lower bounds' instance -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", CLIPS, ids=repr)
def test_only_the_upper_gradient_reads_records(clip: Clip) -> None:
    rng = np.random.default_rng(5)
    train, validation = (LINEAR.prepare(*raw(rng, n), clip.norm) for n in (6, 9))
    x, y, z = rng.normal(size=(3, D))
    got = LINEAR.terms(x, y, z, train, validation, clip)
    total = np.zeros(D)
    for a in validation.features:
        v = -1.3 * a
        size = np.abs(v).sum() if clip.norm == "l1" else np.sqrt(v @ v)
        total += v * min(1.0, clip.z / size)
    np.testing.assert_allclose(got.upper_grad_y, total / 9, rtol=1e-12)
    assert [t for t in TERMS if getattr(got, t) is not None] == ["upper_grad_y"] == list(LINEAR.reads_records)
    assert LINEAR.terms(x, y, z, train, validation, clip, ("lower_grad_y",)) == (None,) * 5
    assert LINEAR.matrices(x, y, None, train, clip, ("lower_hessian",)) == {}
    assert LINEAR.accuracy(x, y, train) is None


def test_blocks_are_summed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    records = LINEAR.prepare(*raw(np.random.default_rng(6), 50), "l2")
    clip, zero = Clip("l2", z=0.8), np.zeros(D)
    whole = LINEAR.terms(zero, zero, zero, records, records, clip).upper_grad_y
    monkeypatch.setattr("decentral_dp.models.linear_terms.blocks", lambda n, d: blocks(n, d * 10**5))
    np.testing.assert_allclose(LINEAR.terms(zero, zero, zero, records, records, clip).upper_grad_y, whole, rtol=1e-12)


def test_closed_forms() -> None:
    pairs = agents(LINEAR, 7)
    x = np.random.default_rng(8).normal(size=D)
    mean = np.mean([v.features.mean(axis=0) for _, v in pairs], axis=0)
    np.testing.assert_allclose(solve_lower(LINEAR, x, pairs), 0.6 * x, rtol=1e-9)
    np.testing.assert_allclose(true_hypergradient(LINEAR, x, pairs), -1.3 * 0.6 * mean, rtol=1e-9)
    losses = [LINEAR.losses(x[None], 0.6 * x[None], v, np.full(5, 0.2)) for _, v in pairs]
    assert np.mean([upper[0] for _, upper in losses]) == pytest.approx(-1.3 * 0.6 * x @ mean)
    assert all(lower[0] == 0.0 for lower, _ in losses)
    y = np.ones((1, D))
    assert LINEAR.regulariser_value(x[None], y)[0] == pytest.approx(0.35 * np.sum((y[0] - 0.6 * x) ** 2))
    got = LINEAR.regulariser(x[None], y, 2 * y)
    np.testing.assert_allclose(got.grad_y[0], 0.7 * (1 - 0.6 * x))
    np.testing.assert_allclose(got.hvp[0], 1.4)
    np.testing.assert_allclose(got.jvp[0], -0.7 * 0.6 * 2)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_no_neighbour_moves_it_farther_than_its_constants(seed: int) -> None:
    """The l1 constants of the private-state recursion."""
    rng = np.random.default_rng(seed)
    constants = LINEAR.constants({}, 1.5)
    assert constants is not None
    assert LINEAR.constants({}, None) is None
    a = rng.normal(size=(2, D))
    a *= 1.5 / np.abs(a).sum(axis=1, keepdims=True)
    one, other = (LINEAR.prepare(row[None], np.zeros(1), "l1") for row in a)
    zero = np.zeros(D)
    grads = [LINEAR.terms(zero, zero, zero, r, r, Clip()).upper_grad_y for r in (one, other)]
    assert grads[0] is not None
    assert grads[1] is not None
    assert np.abs(grads[0] - grads[1]).sum() <= constants.swap["validation"][2] * (1 + 1e-12)
    assert not constants.swap["train"].any()
    x, y, z, dx, dy, dz = rng.normal(size=(6, D))
    before, after = (LINEAR.regulariser(*(v[None] for v in p)) for p in ((x, y, z), (x + dx, y + dy, z + dz)))
    sensitivity = [
        np.abs(v[0] - u[0]).sum()
        for u, v in ((before.jvp, after.jvp), (before.grad_y, after.grad_y), (before.hvp, after.hvp))
    ]
    steps = np.array([np.abs(d).sum() for d in (dx, dy, dz)])
    assert (np.array(sensitivity) <= constants.regulariser @ steps * (1 + 1e-12)).all()


def test_wrong_parameters_are_refused() -> None:
    for name in ("ridge", "slope", "stretch"):
        for value in (0.0, -1.0, np.inf, np.nan):
            with pytest.raises(InputError, match=rf"problem\.{name}: got"):
                MeanLowerBound(D, **{name: value})
    with pytest.raises(InputError, match="at least one"):
        MeanLowerBound(0)


def test_scenarios_build_them(scenario: Callable[..., dict[str, Any]]) -> None:
    built = {
        kind: build(load(scenario(problem={"kind": kind, **more}))).problem
        for kind, more in (("logistic_regularisation", {"intercept": True}), ("mean_lower_bound", {"ridge": 0.3}))
    }
    assert built["logistic_regularisation"].p == 1
    lower: Any = built["mean_lower_bound"]
    assert lower.ridge == 0.3
    assert all(kind in PROBLEMS for kind in (*built, "ridge_regularisation"))
