"""KL-DRO in compositional form: terms, intervals, sensitivities, the value and its gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from decentral_dp.central.problems.composite import Labelled
from decentral_dp.central.problems.kl_dro import KlDro, kl_robust
from decentral_dp.central.problems.losses import capped_loss
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.build import LinearModel
from decentral_dp.problems import SOLVED, ProblemFacts
from tests.support.robust_oracle import context_of, furthest, in_ball, linear_losses, slope

CAP, STRENGTH, RADIUS = 2.0, 0.25, 0.4
CLASSES = {"cross_entropy": 3, "squared": 0}


def make_problem(loss: str = "cross_entropy", strength: float = STRENGTH, cap: float = CAP, d: int = 2) -> KlDro:
    capped = capped_loss(loss, cap, CLASSES[loss])
    return kl_robust(LinearModel(d, capped.loss.outputs), capped, strength, RADIUS)


def records(loss: str, n: int, seed: int, size: float = 1.0) -> Labelled:
    draw, classes = np.random.default_rng(seed), CLASSES[loss]
    labels = draw.integers(classes, size=n).astype(np.float64) if classes else draw.normal(size=n)
    return Labelled(size * draw.normal(size=(n, 2)), labels)


def value(problem: KlDro, loss: str, data: Labelled, x: np.ndarray, strength: float) -> float:
    """Compute Ψ as published, without a shift."""
    losses = linear_losses(loss, CAP, problem.model.outputs, x, data)
    return strength * math.log(np.mean(np.exp(losses / strength))) + strength * RADIUS


def queries(terms: tuple[str, ...], x: np.ndarray, y: float, bound: float = np.inf, **more: Any) -> list[ClippedQuery]:
    return [ClippedQuery(t, x, np.array([y]), bound, **more) for t in terms]


TERMS = ("inner", "inner_x", "inner_y")


# Terms ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", CLASSES)
@pytest.mark.parametrize("strength", [0.3, 1.0, 7.0])
def test_terms_and_their_slopes(loss: str, strength: float) -> None:
    problem, data = make_problem(loss), records(loss, 8, 2)
    x = 0.6 * np.random.default_rng(1).normal(size=problem.p)

    def h(v: np.ndarray, y: float = strength) -> float:
        return float(np.sum(np.exp((linear_losses(loss, CAP, problem.model.outputs, v, data) - CAP) / y)))

    inner, by_x, by_y = problem.sums(data, queries(TERMS, x, strength))
    assert inner[0] == pytest.approx(h(x), rel=1e-12)
    np.testing.assert_allclose(by_x, slope(h, x), atol=1e-6)
    np.testing.assert_allclose(by_y, slope(lambda v: h(x, float(v[0])), np.array([strength])), atol=1e-6)


@pytest.mark.parametrize("strength", [0.3, 1.9, 2.1, 30.0])
@pytest.mark.parametrize("term", ["inner", "inner_y"])
def test_intervals_are_tight(term: str, strength: float) -> None:
    """A fine grid of losses attains the whole interval, and one replaced record attains the sensitivity."""
    problem = make_problem("squared", d=1)
    x, y = np.array([1.0, 0.0]), np.array([strength])
    inputs = np.sqrt(np.linspace(0, CAP, 4001))[:, None]
    context = context_of(problem, 5)
    question = context.query(term, x, y)
    rows = [problem.sums(Labelled(i[None], np.zeros(1)), queries((term,), x, strength))[0][0] for i in inputs]
    ends = inputs[[int(np.argmin(rows)), int(np.argmax(rows))]]
    data_sets = [Labelled(np.vstack([[e], np.ones((4, 1))]), np.zeros(5)) for e in ends]
    assert furthest(context, question, data_sets) == pytest.approx(context.sensitivity_of(question), rel=1e-5)


def test_nothing_overflows() -> None:
    """λ = 0.001 with losses far above the cap, below the accepted strengths; Ψ and its gradient are exact."""
    problem = make_problem("squared", strength=1e-3, cap=500.0)
    data = Labelled(np.array([[0.0, 1.0], [30.0, 0.0], [1e5, 3.0]]), np.array([1.0, 11.0, 0.0]))
    x = np.array([1.0, 1.0, 0.0])
    for total in problem.sums(data, queries(TERMS, x, 1e-3)):
        assert np.isfinite(total).all()
    losses = np.array([0.0, 361.0, 500.0])
    assert problem.value(losses, 1e-3) == pytest.approx(500.0 + 1e-3 * (RADIUS - math.log(3)), rel=1e-12)
    by_x, by_strength = problem.gradient(x, 1e-3, Labelled(data.inputs[:2], data.labels[:2]))
    # All weight is on the second record, whose gradient is 2·19·(30, 0, 1).
    np.testing.assert_allclose(by_x, [1140.0, 0.0, 38.0], rtol=1e-12)
    assert by_strength == pytest.approx(RADIUS - math.log(2), rel=1e-12)


# The value ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [0.25, 0.6, 2.0])
def test_outer_gradient_from_means(strength: float) -> None:
    problem, data = make_problem(), records("cross_entropy", 9, 1)
    x = np.random.default_rng(3).normal(size=problem.p)
    means = [t / 9 for t in problem.sums(data, queries(TERMS, x, strength))]
    by_x, up = problem.outer(np.array([strength]), *means)
    np.testing.assert_allclose(by_x, slope(lambda v: value(problem, "cross_entropy", data, v, strength), x), atol=1e-6)
    down = slope(lambda v: value(problem, "cross_entropy", data, x, float(v[0])), np.array([strength]))
    np.testing.assert_allclose(-up, down, atol=1e-6)
    exact = problem.gradient(x, strength, data)
    np.testing.assert_allclose(exact[0], by_x, atol=1e-12)
    assert exact[1] == pytest.approx(-up[0], abs=1e-12)


@given(inner=st.floats(-5, 5), inner_y=st.floats(-5, 5), strength=st.floats(STRENGTH, 3.0))
def test_outer_is_finite_for_any_noise(inner: float, inner_y: float, strength: float) -> None:
    problem, y = make_problem(), np.array([strength])
    by_x, up = problem.outer(y, np.array([inner]), np.ones(problem.p), np.array([inner_y]))
    largest = math.exp(CAP / strength)
    assert np.all(by_x <= strength * largest * (1 + 1e-9))
    assert np.all(by_x >= strength * (1 - 1e-9))
    assert abs(up[0]) <= CAP / strength + RADIUS + largest


def test_scores() -> None:
    """Compute Ψ and its minimum over λ by a general minimiser, the gradient by differences, the worst mean by SLSQP."""
    loss = "cross_entropy"
    problem, data, test = make_problem(), records(loss, 9, 5), records(loss, 30, 6)
    x, strength = 1.5 * np.random.default_rng(2).normal(size=problem.p), 0.5
    scores = problem.scores(x, np.array([strength]), data, test)
    assert scores["objective"] == pytest.approx(value(problem, loss, data, x, strength))
    minimum = minimize_scalar(
        lambda v: value(problem, loss, data, x, v), bounds=(STRENGTH, 40), method="bounded", options={"xatol": 1e-10}
    )
    assert scores["primal"] == pytest.approx(minimum.fun, abs=1e-8)
    assert scores["best_strength"] == pytest.approx(minimum.x, abs=1e-4)

    def joint_value(v: np.ndarray) -> float:
        return value(problem, loss, data, v[:-1], float(v[-1]))

    norm = float(np.linalg.norm(slope(joint_value, np.append(x, strength))))
    assert scores["gradient_norm"] == pytest.approx(norm, rel=1e-6)
    for name, part in (("", data), ("test_", test)):
        losses = linear_losses(loss, CAP, 3, x, part)
        assert scores[f"{name}robust_loss"] == pytest.approx(in_ball(losses, RADIUS), abs=1e-5)
        assert scores[f"{name}loss"] == pytest.approx(losses.mean())
    assert {"test_accuracy", "test_f1", "test_worst_class_accuracy"} <= set(scores)


@pytest.mark.parametrize("seed", range(8))
def test_interval_of_strengths_contains_the_minimum(seed: int) -> None:
    """The best λ is at most B/√(8ρ), nearly attained by two groups of losses 0 and B."""
    draw = np.random.default_rng(seed)
    losses = draw.uniform(0, CAP, 8) if seed else np.repeat([0.0, CAP], 4)
    for radius in (0.01, 0.3, 1.0):
        problem = kl_robust(LinearModel(1, 1), make_problem("squared").loss, 0.05, radius)

        def psi(v: float, r: float = radius) -> float:
            return v * math.log(np.mean(np.exp((losses - CAP) / v))) + CAP + v * r

        grid = np.geomspace(0.05, 400 * problem.objective.highest, 4000)
        best = grid[int(np.argmin([psi(float(v)) for v in grid]))]
        assert best <= problem.objective.highest * 1.01
        if seed == 0 and radius == 0.01:
            assert best >= 0.95 * problem.objective.highest
        assert problem.value(losses, problem.best(losses)) <= min(psi(float(v)) for v in grid) + 1e-9
        assert problem.robust(losses) == pytest.approx(in_ball(losses, radius), abs=1e-5)
        assert problem.project_y(np.array([1e9]))[0] == problem.objective.highest == problem.start["y"][0]
        assert problem.project_y(np.array([-1.0]))[0] == 0.05


# Refusals -------------------------------------------------------------------------------------------------------------


def build(**options: Any) -> Any:
    keys = {"cap": 5.0, "strength": 1.0, "radius": 0.5} | options
    return SOLVED["minimax"]["kl_dro"].build(keys, ProblemFacts(4, 3))
