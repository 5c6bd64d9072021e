"""Robust problems with a ψ-divergence: derivatives, bounds, scores and runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from decentral_dp import InputError
from decentral_dp.central.problems.composite import Composite, Labelled
from decentral_dp.central.problems.dro import DroObjective
from decentral_dp.central.problems.losses import capped_loss
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.build import LinearModel
from decentral_dp.problems import SOLVED, ProblemFacts
from tests.support.robust_oracle import CASES, Case, context_of, furthest, linear_losses, penalised, slope

CAP = 2.0
# Loss → number of classes, 0 for numbers.
CLASSES = {"cross_entropy": 3, "logistic": 2, "squared": 0}
cases = pytest.mark.parametrize("case", CASES, ids=str)


STRENGTH = 0.8


def make_problem(case: Case, loss: str = "cross_entropy", cap: float = CAP, d: int = 2) -> Composite:
    capped = capped_loss(loss, cap, CLASSES[loss])
    return Composite(LinearModel(d, capped.loss.outputs), DroObjective(capped, case.made(), STRENGTH))


def records(loss: str, n: int, seed: int, d: int = 2, size: float = 1.0) -> Labelled:
    draw, classes = np.random.default_rng(seed), CLASSES[loss]
    labels = draw.integers(classes, size=n).astype(np.float64) if classes else draw.normal(size=n)
    return Labelled(size * draw.normal(size=(n, d)), labels)


def value_by_record(case: Case, problem: Composite, loss: str, data: Labelled) -> Callable[[np.ndarray, float], float]:
    """Compute F record by record."""

    def value(x: np.ndarray, eta: float) -> float:
        losses = linear_losses(loss, CAP, problem.model.outputs, x, data)
        return float(np.mean([STRENGTH * star(case, (v - eta) / STRENGTH) for v in losses])) + eta

    return value


def star(case: Case, s: float) -> float:
    if case.name == "kl":
        return math.exp(s) - 1
    return ((s + 1) ** 2 - 1) / 2 if s > -1 else -0.5


# Divergences ----------------------------------------------------------------------------------------------------------


@cases
@given(s=st.floats(-50, 50), t=st.floats(0, 50), step=st.floats(1e-6, 5))
def test_fenchel_and_young(case: Case, s: float, t: float, step: float) -> None:
    """ts ≤ ψ(t) + ψ*(s), with equality at t = w(s); w is monotone and Lipschitz with the stated constant."""
    divergence = case.made()
    top, w = divergence.conjugate(np.array([s]))[0], divergence.weight(np.array([s]))[0]
    later = divergence.weight(np.array([s + step]))[0]
    assert t * s <= case.psi(t) + top + 1e-9 * (1 + abs(t * s))
    assert later >= w >= 0
    if w < 1e9:
        assert w * s == pytest.approx(case.psi(float(w)) + top, rel=1e-6, abs=1e-6)
    if math.isfinite(case.smoothness):
        assert later - w <= case.smoothness * step * (1 + 1e-9) + 1e-12


@cases
@pytest.mark.parametrize("seed", range(3))
def test_strong_duality(case: Case, seed: int) -> None:
    draw = np.random.default_rng(seed)
    losses, strength = np.clip(draw.exponential(1.0, size=7), 0, 3.0), float(draw.uniform(0.5, 2.0))
    objective = DroObjective(capped_loss(None, 3.0, 0), case.made(), strength)
    assert losses.min() <= objective.best(losses) <= losses.max()
    assert objective.robust(losses) == pytest.approx(penalised(case, losses, strength), rel=2e-6, abs=2e-6)


def test_published_chi2_dual_is_wrong() -> None:
    """−1 + ¼(s + 2)² allows negative weights: its dual exceeds the primal of (t − 1)²; ours equals it."""
    losses = np.array([0.0, 0.0, 0.0, 0.0, 20.0])
    strength = 1.0

    def dual(star: object) -> float:
        def value(eta: float) -> float:
            return float(np.mean(strength * star((losses - eta) / strength)) + eta)  # type: ignore[operator]

        return float(minimize_scalar(value, bounds=(-50, 50), method="bounded", options={"xatol": 1e-10}).fun)

    exact = penalised(Case("chi2", lambda t: (t - 1) ** 2), losses, strength)
    published = dual(lambda s: -1 + (s + 2) ** 2 / 4)
    right = DroObjective(capped_loss(None, 20.0, 0), CASES[0].made(), 2 * strength).robust(losses)
    assert right == pytest.approx(exact, rel=1e-5)
    assert published > exact + 0.5


# Slopes ---------------------------------------------------------------------------------------------------------------


@cases
@pytest.mark.parametrize("loss", CLASSES)
def test_slopes(case: Case, loss: str) -> None:
    problem, data = make_problem(case, loss), records(loss, 9, seed=3)
    f, draw = value_by_record(case, problem, loss, data), np.random.default_rng(1)
    for eta in (0.3, 0.9):
        x, y = 0.7 * draw.normal(size=problem.p), np.array([eta])
        by_x, by_y = problem.sums(data, [ClippedQuery(t, x, y, np.inf) for t in ("grad_x", "grad_y")])
        np.testing.assert_allclose(by_x / 9, slope(lambda v: f(v, y[0]), x), atol=2e-7)  # noqa: B023 # called at once
        down = slope(lambda v: f(x, float(v[0])), y)  # noqa: B023 # called at once
        np.testing.assert_allclose(-by_y / 9, down, atol=2e-7)


# Sensitivities -------------------------------------------------------------------------------------------------------


@cases
@given(seed=st.integers(0, 10_000), eta=st.floats(0.0, CAP))
def test_records_lie_in_the_known_ball(case: Case, seed: int, eta: float) -> None:
    problem, data = make_problem(case, "squared"), records("squared", 5, seed, size=10.0)
    x, y = np.random.default_rng(seed).normal(size=problem.p), np.array([eta])
    ball = problem.public_ball("grad_y", x, y)
    assert ball is not None
    assert ball.centre is not None
    for k in range(5):
        record = Labelled(data.inputs[k : k + 1], data.labels[k : k + 1])
        (row,) = problem.sums(record, [ClippedQuery("grad_y", x, y, np.inf)])
        assert np.linalg.norm(row - ball.centre) <= ball.radius * (1 + 1e-12) + 1e-12


@cases
def test_known_ball_is_tight(case: Case) -> None:
    """Records with losses 0 and B lie on its boundary."""
    problem = make_problem(case, "squared")
    data = Labelled(np.array([[0.0, 0.0], [100.0, 0.0]]), np.zeros(2))
    x, y = np.array([1.0, 0.0, 0.0]), np.array([0.9])
    context = context_of(problem, 10)
    query = context.query("grad_y", x, y)
    data_sets = [Labelled(data.inputs[[k] + [0] * 9], data.labels[[k] + [0] * 9]) for k in (0, 1)]
    assert furthest(context, query, data_sets) == pytest.approx(context.sensitivity_of(query), rel=1e-9)


# Best values ----------------------------------------------------------------------------------------------------------


@cases
def test_scores(case: Case) -> None:
    """Compute Φ by a general minimiser over η, its gradient by differences, and test measures by counting."""
    loss = "cross_entropy"
    problem, data, test = make_problem(case, loss), records(loss, 11, 5), records(loss, 30, 6)
    f, x = value_by_record(case, problem, loss, data), 0.5 * np.random.default_rng(2).normal(size=problem.p)

    def phi(v: np.ndarray) -> float:
        grid = np.linspace(0, CAP, 81)
        near = grid[int(np.argmin([f(v, e) for e in grid]))]
        minimum = minimize_scalar(
            lambda e: f(v, e), bounds=(near - 0.03, near + 0.03), method="bounded", options={"xatol": 1e-12}
        )
        return float(minimum.fun)

    scores = problem.scores(x, np.array([0.3]), data, test)
    assert scores["primal"] == pytest.approx(phi(x), abs=1e-8)
    assert scores["gradient_norm"] == pytest.approx(float(np.linalg.norm(slope(phi, x, 1e-4))), rel=1e-4)
    predicted = np.argmax(test.inputs @ x.reshape(3, 3)[:, :2].T + x.reshape(3, 3)[:, 2], axis=1)
    correct = predicted == test.labels
    assert scores["test_accuracy"] == pytest.approx(correct.mean())
    assert scores["test_worst_class_accuracy"] == pytest.approx(min(correct[test.labels == k].mean() for k in range(3)))
    test_losses = linear_losses(loss, CAP, 3, x, test)
    assert scores["test_loss"] == pytest.approx(test_losses.mean())
    assert scores["loss"] == pytest.approx(linear_losses(loss, CAP, 3, x, data).mean())
    assert scores["loss"] <= scores["primal"] + 1e-12
    assert test_losses.mean() <= scores["test_robust_loss"] <= test_losses.max() + 1e-12


# Refusals -------------------------------------------------------------------------------------------------------------


def build(classes: int = 3, **options: Any) -> Any:
    return SOLVED["minimax"]["dro"].build(
        {"divergence": "chi2", "cap": 2.0, "strength": 1.0} | options, ProblemFacts(4, classes)
    )


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"divergence": "kl", "strength": 0.1}, "problem.strength"),
        ({"loss": "squared"}, "problem.loss"),
        ({"loss": "logistic"}, "problem.loss"),
        ({"loss": "cross_entropy", "classes": 0}, "problem.loss"),
    ],
)
def test_refusals(options: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=f"^{key}: "):
        build(**options)
