"""Robust problems under a ψ-divergence: slopes, bounds, what one record can do, and runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

import decentral_dp
from decentral_dp import InputError
from decentral_dp.central.problems.composite import Composite, Labelled
from decentral_dp.central.problems.dro import LARGEST_WEIGHT, DroObjective
from decentral_dp.central.problems.losses import capped_loss
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.build import LinearModel
from decentral_dp.problems import MINIMAX, ProblemFacts
from tests.support.robust_oracle import CASES, Case, context_of, furthest, linear_losses, slope

CAP = 2.0
# Loss → number of classes, 0 for numbers.
CLASSES = {"cross_entropy": 3, "logistic": 2, "squared": 0, "absolute": 0, "huber": 0}
cases = pytest.mark.parametrize("case", CASES, ids=str)


def strength_for(case: Case) -> float:
    """CVaR has none, and below order 1 the conjugate ends at 1/(1 − k)."""
    if case.name == "cvar":
        return 1.0
    k = case.parameters.get("order", 2.0)
    return 0.8 if k > 1 else 1.5 * CAP * (1 - k)


def problem_of(case: Case, loss: str = "cross_entropy", cap: float = CAP, d: int = 2) -> Composite:
    capped = capped_loss(loss, cap, CLASSES[loss])
    return Composite(LinearModel(d, capped.loss.outputs), DroObjective(capped, case.made(), strength_for(case)))


def records(loss: str, n: int, seed: int, d: int = 2, size: float = 1.0) -> Labelled:
    draw, classes = np.random.default_rng(seed), CLASSES[loss]
    labels = draw.integers(classes, size=n).astype(np.float64) if classes else draw.normal(size=n)
    return Labelled(size * draw.normal(size=(n, d)), labels)


def naive(case: Case, problem: Composite, loss: str, data: Labelled) -> Callable[[np.ndarray, float], float]:
    """F, record by record, from ψ itself: ψ*(s) is ts − ψ(t) at the t that the slope of a table of numbers gives."""
    strength = strength_for(case)

    def value(x: np.ndarray, eta: float) -> float:
        total = 0.0
        for v in linear_losses(loss, CAP, problem.model.outputs, x, data):
            s = (v - eta) / strength
            k, a = case.parameters.get("order", 2.0), case.parameters.get("level", 1.0)
            if case.name == "chi2":
                star = ((s + 1) ** 2 - 1) / 2 if s > -1 else -0.5
            elif case.name == "kl" or (case.name == "kl_cvar" and s <= -math.log(a)):
                star = math.exp(s) - 1
            elif case.name == "kl_cvar":
                star = (1 + s + math.log(a)) / a - 1
            elif case.name == "cvar":
                star = max(s, 0) / a
            else:
                base = (k - 1) * s + 1
                star = (base ** (k / (k - 1)) - 1) / k if base > 0 else -1 / k
            total += strength * star
        return total / len(data.labels) + eta

    return value


# Slopes ---------------------------------------------------------------------------------------------------------------


@cases
@pytest.mark.parametrize("loss", CLASSES)
def test_slopes(case: Case, loss: str) -> None:
    problem, data = problem_of(case, loss), records(loss, 9, seed=3)
    f, draw = naive(case, problem, loss, data), np.random.default_rng(1)
    for eta in (0.3, 0.9):
        x, y = 0.7 * draw.normal(size=problem.p), np.array([eta])
        by_x, by_y = problem.sums(data, [ClippedQuery(t, x, y, np.inf) for t in ("grad_x", "grad_y")])
        np.testing.assert_allclose(by_x / 9, slope(lambda v: f(v, y[0]), x), atol=2e-7)  # noqa: B023 # called at once
        down = slope(lambda v: f(x, float(v[0])), y)  # noqa: B023 # called at once
        np.testing.assert_allclose(-by_y / 9, down, atol=2e-7)


# What one record can do -----------------------------------------------------------------------------------------------


@cases
@given(seed=st.integers(0, 10_000), eta=st.floats(0.0, CAP))
def test_every_record_lies_in_the_known_ball(case: Case, seed: int, eta: float) -> None:
    problem, data = problem_of(case, "squared"), records("squared", 5, seed, size=10.0)
    x, y = np.random.default_rng(seed).normal(size=problem.p), np.array([eta])
    known = problem.public_ball("grad_y", x, y)
    assert known is not None
    assert known.centre is not None
    for k in range(5):
        one = Labelled(data.inputs[k : k + 1], data.labels[k : k + 1])
        (row,) = problem.sums(one, [ClippedQuery("grad_y", x, y, np.inf)])
        assert np.linalg.norm(row - known.centre) <= known.radius * (1 + 1e-12) + 1e-12


@cases
def test_the_known_ball_is_no_larger_than_it_must_be(case: Case) -> None:
    """Records of losses 0 and B lie at its ends."""
    problem = problem_of(case, "squared")
    data = Labelled(np.array([[0.0, 0.0], [100.0, 0.0]]), np.zeros(2))
    x, y = np.array([1.0, 0.0, 0.0]), np.array([0.9])
    context = context_of(problem, 10)
    asked = context.query("grad_y", x, y)
    data_sets = [Labelled(data.inputs[[k] + [0] * 9], data.labels[[k] + [0] * 9]) for k in (0, 1)]
    assert furthest(context, asked, data_sets) == pytest.approx(context.sensitivity_of(asked), rel=1e-9)


@cases
def test_tiny_strengths_do_not_overflow(case: Case) -> None:
    """Built past the refusal: with λ = 0.001 and losses beyond the cap every sum is finite."""
    capped = capped_loss(None, 5.0, 0)
    problem = Composite(LinearModel(1, 1), DroObjective(capped, case.made(), 1e-3))
    data = Labelled(np.array([[0.0], [1.0], [1e5]]), np.array([0.0, 0.5, -1e5]))
    asked = [ClippedQuery(t, np.ones(2), np.array([0.1]), 1.0, None, None) for t in ("grad_x", "grad_y")]
    with np.errstate(all="ignore"):
        totals = problem.sums(data, asked)
    assert all(np.isfinite(total).all() and np.linalg.norm(total) <= 3.0 for total in totals)


# Best values ----------------------------------------------------------------------------------------------------------


@cases
def test_scores(case: Case) -> None:
    """Φ by a general minimiser over η, its gradient by differences, held-out numbers by counting."""
    loss = "cross_entropy"
    problem, data, test = problem_of(case, loss), records(loss, 11, 5), records(loss, 30, 6)
    f, x = naive(case, problem, loss, data), 0.5 * np.random.default_rng(2).normal(size=problem.p)

    def phi(v: np.ndarray) -> float:
        grid = np.linspace(0, CAP, 81)
        near = grid[int(np.argmin([f(v, e) for e in grid]))]
        found = minimize_scalar(
            lambda e: f(v, e), bounds=(near - 0.03, near + 0.03), method="bounded", options={"xatol": 1e-12}
        )
        return float(found.fun)

    scores = problem.scores(x, np.array([0.3]), data, test)
    assert scores["primal"] == pytest.approx(phi(x), abs=1e-8)
    if case.name != "cvar":
        assert scores["gradient_norm"] == pytest.approx(float(np.linalg.norm(slope(phi, x, 1e-4))), rel=1e-4)
    told = np.argmax(test.inputs @ x.reshape(3, 3)[:, :2].T + x.reshape(3, 3)[:, 2], axis=1)
    right = told == test.labels
    assert scores["test_accuracy"] == pytest.approx(right.mean())
    assert scores["test_worst_class_accuracy"] == pytest.approx(min(right[test.labels == k].mean() for k in range(3)))
    held = linear_losses(loss, CAP, 3, x, test)
    assert scores["test_loss"] == pytest.approx(held.mean())
    assert scores["loss"] == pytest.approx(linear_losses(loss, CAP, 3, x, data).mean())
    assert scores["loss"] <= scores["primal"] + 1e-12
    assert held.mean() <= scores["test_robust_loss"] <= held.max() + 1e-12


def test_eta_stays_among_possible_losses() -> None:
    problem = problem_of(CASES[0])
    assert [float(problem.project_y(np.array([v]))[0]) for v in (-1.0, 0.3, 9.0)] == [0.0, 0.3, CAP]


def test_confidences_and_losses_of_records() -> None:
    problem, data = problem_of(CASES[0], "logistic"), records("logistic", 5, 1)
    x = np.array([3.0, -2.0, 0.5])
    h = 1 / (1 + np.exp(-(data.inputs @ x[:2] + x[2])))
    np.testing.assert_allclose(problem.confidences(x, data), np.maximum(h, 1 - h))
    np.testing.assert_allclose(problem.record_losses(x, data), -np.log(np.where(data.labels == 1, h, 1 - h)))


# Refusals -------------------------------------------------------------------------------------------------------------


def build(classes: int = 3, **options: Any) -> Any:
    return MINIMAX["dro"].build({"divergence": "chi2", "cap": 2.0, "strength": 1.0} | options, ProblemFacts(4, classes))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"strength": None}, "problem.strength: missing. chi2 needs it; give for example strength = 1.0."),
        (
            {"divergence": "cvar", "level": 0.1},
            "problem.strength: cvar takes none, for its level alone says how robust.",
        ),
        ({"divergence": "kl", "strength": 0.1}, "problem.strength: got 0.1, but with the cap 2 one record could then"),
        ({"loss": "squard"}, "problem.loss: no loss 'squard'; the nearest is 'squared'"),
        (
            {"loss": "squared"},
            "problem.loss: squared needs numbers to predict for labels, and the data have 3 classes.",
        ),
        (
            {"loss": "logistic"},
            "problem.loss: logistic needs exactly 2 classes for labels, and the data have 3 classes",
        ),
        (
            {"loss": "cross_entropy", "classes": 0},
            "problem.loss: cross_entropy needs 2 or more classes for labels",
        ),
    ],
)
def test_refusals(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        build(**options)
    assert str(error.value).startswith(sentence)


@cases
@pytest.mark.parametrize("cap", [0.1, 3.0, 41.0])
def test_the_strength_that_a_refusal_names_works(case: Case, cap: float) -> None:
    """And the known ball at every η is finite there; a hundredth less is refused."""
    if "level" in case.parameters:
        # Weights are at most 1/α, whatever the strength.
        strength = None if case.name == "cvar" else 1e-9
        problem = build(divergence=case.name, strength=strength, cap=cap, **case.parameters)
        assert problem.public_ball("grad_y", np.zeros(problem.p), np.zeros(1)).radius <= 0.5 / case.parameters["level"]
        return
    given = {"divergence": case.name, "cap": cap, **case.parameters}
    with pytest.raises(InputError) as error:
        build(**given, strength=1e-60 * cap)
    least = float(str(error.value).split("at least ")[1].split(",")[0])
    problem = build(**given, strength=least)
    for eta in (0.0, cap):
        known = problem.public_ball("grad_y", np.zeros(problem.p), np.array([eta]))
        assert 0.0 <= known.radius <= LARGEST_WEIGHT
    with pytest.raises(InputError):
        build(**given, strength=0.98 * least)


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def regression(tmp_path: Path) -> str:
    draw = np.random.default_rng(0)
    a = draw.normal(size=(120, 3))
    rows = np.column_stack([a, a @ [1.0, -0.5, 0.2] + 0.1 * draw.normal(size=120)])
    path = tmp_path / "numbers.csv"
    path.write_text("a,b,c,target\n" + "\n".join(",".join(map(str, r)) for r in rows))
    return str(path)


def table(tmp_path: Path, **problem: Any) -> dict[str, Any]:
    return {
        "seed": 5,
        "problem": {"kind": "dro", "divergence": "chi2", "cap": 4.0, "strength": 1.0, "test": 0.2, **problem},
        "topology": {"kind": "star", "agents": 4},
        "algorithm": {"kind": "dp_sgda", "rounds": 4, "rate": 0.5, "x": {"scale": 0.5}, "y": {"scale": 0.1}},
        "privacy": {"epsilon": 3.0, "delta": 1e-4, "clip": {"x": 1.0}},
        "run": {"evaluate_every": 2},
    }


@pytest.mark.parametrize(
    ("data", "divergence"),
    [
        ("digits", {}),
        ("breast_cancer", {"divergence": "kl"}),
        ("wine", {"divergence": "cvar", "level": 0.1, "strength": None}),
        ("wine", {"divergence": "kl_cvar", "level": 0.1}),
        ("wine", {"divergence": "cressie_read", "order": 3.0}),
    ],
)
def test_runs_on_classes(tmp_path: Path, data: str, divergence: dict[str, Any]) -> None:
    made = table(tmp_path, data=data, scale="public_ranges", normalise="l2")
    made["problem"] = {k: v for k, v in (made["problem"] | divergence).items() if v is not None}
    run = decentral_dp.run(made)
    assert run.result["status"] == "ok"
    assert 2.9 < run.result["privacy"]["epsilon_max"] <= 3.0
    expected = {"primal", "gradient_norm", "test_accuracy", "test_f1", "test_loss", "test_robust_loss"}
    assert expected <= set(run.result["metrics"])
    assert 0.0 <= run.published["y"][0, 0] <= 4.0


@pytest.mark.parametrize("loss", [None, "absolute", "huber"])
def test_runs_on_numbers(tmp_path: Path, regression: str, loss: str | None) -> None:
    given = {} if loss is None else {"loss": loss}
    run = decentral_dp.run(table(tmp_path, data=regression, label="target", classes=[], **given))
    names = {"primal", "gradient_norm", "loss", "test_loss", "test_robust_loss", "epsilon_spent"}
    assert set(run.result["metrics"]) == names


def test_without_noise_it_finds_the_optimum(tmp_path: Path, regression: str) -> None:
    """Least squares under χ² is convex: descent on both variables ends where a general solver does."""
    made = table(tmp_path, data=regression, label="target", classes=[], cap=50.0)
    made["algorithm"] |= {"rounds": 400, "rate": 1.0, "x": {"scale": 0.2}, "y": {"scale": 0.2}}
    made |= {"privacy": {"guarantee": "none"}, "run": {"evaluate_every": 400}}
    run = decentral_dp.run(made)
    data = run.simulation().records["train"]
    rows = np.concatenate([np.column_stack([r.inputs, np.ones(len(r.labels))]) for r in data])
    labels = np.concatenate([r.labels for r in data])

    def f(z: np.ndarray) -> float:
        w = np.maximum((rows @ z[1:] - labels) ** 2 - z[0] + 1, 0)
        return float(np.mean((w**2 - 1) / 2) + z[0])

    best = minimize(f, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    assert run.result["metrics"]["primal"] == pytest.approx(best.fun, abs=1e-7)
    np.testing.assert_allclose(run.published["x"][0], best.x[1:], atol=1e-4)
