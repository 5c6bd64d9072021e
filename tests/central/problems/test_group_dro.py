"""Group DRO: derivatives, the smallest ball around segments, the best weights, and sensitivities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from decentral_dp import InputError
from decentral_dp.central.problems.composite import Composite, Labelled
from decentral_dp.central.problems.group_dro import GroupDroObjective, enclose_segments
from decentral_dp.central.problems.losses import capped_loss
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.build import LinearModel
from decentral_dp.problems import SOLVED, ProblemFacts
from tests.support.robust_oracle import Array, linear_losses, slope

CAP, STRENGTH = 2.0, 0.7
SHARES = np.array([0.5, 0.2, 0.3])


def make_problem(shares: Array = SHARES, cap: float = CAP) -> Composite:
    capped = capped_loss(None, cap, shares.size)
    return Composite(LinearModel(2, shares.size), GroupDroObjective(capped, STRENGTH, shares))


def records(n: int, seed: int, classes: int = 3, size: float = 1.0) -> Labelled:
    draw = np.random.default_rng(seed)
    return Labelled(size * draw.normal(size=(n, 2)), draw.integers(classes, size=n).astype(np.float64))


def value(x: Array, y: Array, data: Labelled) -> float:
    """Compute F record by record."""
    losses = linear_losses("cross_entropy", CAP, 3, x, data)
    total = sum(y[int(g)] * v / SHARES[int(g)] for v, g in zip(losses, data.labels, strict=True))
    return float(total / len(losses) - STRENGTH / 2 * y @ y)


def maximise_on_simplex(f: Any, k: int) -> Array:
    """Maximise f over the simplex by SLSQP."""
    solution = minimize(
        lambda y: -f(y),
        np.full(k, 1.0 / k),
        bounds=[(0.0, 1.0)] * k,
        constraints={"type": "eq", "fun": lambda y: y.sum() - 1.0},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return np.asarray(solution.x)


# Slopes and best weights ----------------------------------------------------------------------------------------------


def test_slopes() -> None:
    problem, data, draw = make_problem(), records(9, 1), np.random.default_rng(0)
    for _ in range(3):
        x, y = 0.6 * draw.normal(size=problem.p), draw.dirichlet(np.ones(3))
        by_x, by_y = problem.sums(data, [ClippedQuery(t, x, y, np.inf) for t in ("grad_x", "grad_y")])
        np.testing.assert_allclose(by_x / 9, slope(lambda v: value(v, y, data), x), atol=1e-7)  # noqa: B023 # at once
        up = by_y / 9 + problem.public("grad_y", x, y, 0)
        np.testing.assert_allclose(up, slope(lambda v: value(x, v, data), y), atol=1e-7)  # noqa: B023 # at once


def test_best_weights_match_general_solver() -> None:
    problem, data, draw = make_problem(), records(11, 2), np.random.default_rng(0)
    for scale in (0.0, 1.0, 4.0):
        x = scale * draw.normal(size=problem.p)
        (total,) = problem.sums(data, [ClippedQuery("dual", x, np.zeros(3), np.inf)])
        best = problem.dual(total / 11)
        np.testing.assert_allclose(best, maximise_on_simplex(lambda y: value(x, y, data), 3), atol=1e-4)  # noqa: B023 # at once
        scores = problem.scores(x, np.full(3, 1 / 3), data, None)
        assert scores["primal"] == pytest.approx(value(x, best, data))
        norm = np.linalg.norm(slope(lambda v: value(v, best, data), x))  # noqa: B023 # at once
        assert scores["gradient_norm"] == pytest.approx(float(norm), abs=1e-6)


@given(y=arrays(np.float64, st.integers(2, 6), elements=st.floats(-3, 3)), shift=st.sampled_from([0.0, 1e9, 1e17]))
def test_projection_on_the_simplex(y: Array, shift: float) -> None:
    """The result is the nearest point of the simplex, and does not change with a constant shift."""
    objective = make_problem(np.full(y.size, 1.0 / y.size)).objective
    projected = objective.project_y(y + shift)
    assert projected.sum() == pytest.approx(1.0)
    assert (projected >= 0).all()
    if shift == 0.0:
        # The angle to every corner is at least a right angle.
        assert all((y - projected) @ (corner - projected) <= 1e-9 for corner in np.eye(y.size))


def test_scores_of_classes() -> None:
    problem, test = make_problem(), records(40, 3)
    x = np.random.default_rng(1).normal(size=problem.p)
    # A class without records has no score.
    train = Labelled(test.inputs, np.where(test.labels == 2, 1.0, test.labels))
    scores = problem.scores(x, np.full(3, 1 / 3), train, test)
    predicted = np.argmax(test.inputs @ x.reshape(3, 3)[:, :2].T + x.reshape(3, 3)[:, 2], axis=1)
    for name, part, classes in (("", train, 2), ("test_", test, 3)):
        losses = linear_losses("cross_entropy", CAP, 3, x, part)
        worst = max(losses[part.labels == k].mean() for k in range(classes))
        assert scores[f"{name}worst_group_loss"] == pytest.approx(worst)
    by_class = [float(np.mean(predicted[test.labels == k] == k)) for k in range(3)]
    assert scores["test_worst_class_accuracy"] == pytest.approx(min(by_class))


# The smallest ball ----------------------------------------------------------------------------------------------------


@given(ends=arrays(np.float64, st.integers(1, 6), elements=st.floats(0.05, 20)))
def test_ball_is_the_smallest(ends: Array) -> None:
    """Compare with SLSQP over centre and radius; the diameter with all pairs of points."""
    ball, k = enclose_segments(ends), ends.size
    assert ball.centre is not None
    points = np.vstack([np.zeros(k), np.diag(ends)])
    assert np.linalg.norm(points - ball.centre, axis=1).max() <= ball.radius
    solution = minimize(
        lambda v: v[-1],
        np.append(ends / (k + 1), ends.sum()),
        constraints={"type": "ineq", "fun": lambda v: v[-1] ** 2 - np.sum((points - v[:-1]) ** 2, axis=1)},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    smallest = np.linalg.norm(points - solution.x[:-1], axis=1).max()
    assert ball.radius <= smallest * (1 + 1e-12)
    longest = max(np.linalg.norm(a - b) for a in points for b in points)
    assert ball.diameter == pytest.approx(longest, rel=1e-12)
    # Both are rounded up.
    assert ball.diameter <= 2 * ball.radius * (1 + 1e-15)


# Sensitivities -------------------------------------------------------------------------------------------------------


def test_group_shares_are_public_constants() -> None:
    """The contribution of a record does not depend on other records."""
    problem, record, x, y = make_problem(), records(1, 5), np.ones(9) * 0.3, np.array([0.2, 0.3, 0.5])
    queries = [ClippedQuery(t, x, y, 1.0) for t in ("grad_x", "grad_y", "dual")]
    alone = problem.sums(record, queries)
    for others in (records(4, 6), Labelled(record.inputs.repeat(4, 0), np.zeros(4))):
        together = problem.sums(Labelled(*(np.concatenate(c) for c in zip(record, others, strict=True))), queries)
        for a, b, c in zip(alone, together, problem.sums(others, queries), strict=True):
            np.testing.assert_allclose(b - c, a, atol=1e-12)


# Refusals and runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "options", "key"),
    [
        (0, {}, "problem.kind"),
        (3, {"group_shares": [0.5, 0.5]}, "problem.group_shares"),
        (3, {"group_shares": [0.5, 0.5, 0.5]}, "problem.group_shares"),
    ],
)
def test_refusals(classes: int, options: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=f"^{key}: "):
        SOLVED["minimax"]["group_dro"].build({"cap": 1.0, "strength": 1.0} | options, ProblemFacts(4, classes))
