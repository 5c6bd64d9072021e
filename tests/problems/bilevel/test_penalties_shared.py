"""One strength for all features, and the lower bounds' instance: oracles, closed forms, constants, whole runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp import InputError
from decentral_dp.participants.solve import solve_lower
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.means import MeanLowerBound
from decentral_dp.problems.bilevel.penalties import Strengths
from decentral_dp.problems.protocol import TERMS
from tests.support.hypergradients import true_hypergradient

D = 3
LINEAR = MeanLowerBound(D, ridge=0.7, slope=1.3, stretch=0.6)
CLIPS = [Clip("l1", 1.0, 0.9, 0.5), Clip("l2", 1.0, 0.9, 0.5), Clip("l1"), Clip("l2")]


def raw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(n, D)), rng.integers(2, size=n).astype(float)


def agents(problem: Any, seed: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [tuple(problem.prepare(*raw(rng, n), "l2") for n in (7, 5)) for _ in range(3)]  # type: ignore[misc] # pairs


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
