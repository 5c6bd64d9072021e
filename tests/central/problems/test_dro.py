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
from tests.support.robust_oracle import CASES, Case, context_of, furthest, linear_losses, penalised, slope

CAP = 2.0
# Loss → number of classes, 0 for numbers.
CLASSES = {"cross_entropy": 3, "logistic": 2, "squared": 0}
cases = pytest.mark.parametrize("case", CASES, ids=str)


STRENGTH = 0.8


def problem_of(case: Case, loss: str = "cross_entropy", cap: float = CAP, d: int = 2) -> Composite:
    capped = capped_loss(loss, cap, CLASSES[loss])
    return Composite(LinearModel(d, capped.loss.outputs), DroObjective(capped, case.made(), STRENGTH))


def records(loss: str, n: int, seed: int, d: int = 2, size: float = 1.0) -> Labelled:
    draw, classes = np.random.default_rng(seed), CLASSES[loss]
    labels = draw.integers(classes, size=n).astype(np.float64) if classes else draw.normal(size=n)
    return Labelled(size * draw.normal(size=(n, d)), labels)


def naive(case: Case, problem: Composite, loss: str, data: Labelled) -> Callable[[np.ndarray, float], float]:
    """F, record by record."""

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
    """ts ≤ ψ(t) + ψ*(s), with equality at t = w(s); w does not fall, and no faster than its constant."""
    found = case.made()
    top, w = found.conjugate(np.array([s]))[0], found.weight(np.array([s]))[0]
    later = found.weight(np.array([s + step]))[0]
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
    found = DroObjective(capped_loss(None, 3.0, 0), case.made(), strength)
    assert losses.min() <= found.best(losses) <= losses.max()
    assert found.robust(losses) == pytest.approx(penalised(case, losses, strength), rel=2e-6, abs=2e-6)


def test_the_printed_chi2_is_wrong() -> None:
    """−1 + ¼(s + 2)² lets weights be negative: its dual exceeds the primal of (t − 1)², which the right one meets."""
    losses = np.array([0.0, 0.0, 0.0, 0.0, 20.0])
    strength = 1.0

    def dual(star: object) -> float:
        def value(eta: float) -> float:
            return float(np.mean(strength * star((losses - eta) / strength)) + eta)  # type: ignore[operator]

        return float(minimize_scalar(value, bounds=(-50, 50), method="bounded", options={"xatol": 1e-10}).fun)

    truth = penalised(Case("chi2", lambda t: (t - 1) ** 2), losses, strength)
    printed = dual(lambda s: -1 + (s + 2) ** 2 / 4)
    right = DroObjective(capped_loss(None, 20.0, 0), CASES[0].made(), 2 * strength).robust(losses)
    assert right == pytest.approx(truth, rel=1e-5)
    assert printed > truth + 0.5


def test_the_printed_kl_cvar_has_no_minimum() -> None:
    """min(e^s, (1 + s + log α)/α) − 1 is the tangent everywhere, so that the dual falls without end in η."""
    level, s = 0.3, np.linspace(-30, 30, 2001)
    tangent = (1 + s + math.log(level)) / level
    np.testing.assert_array_equal(np.minimum(np.exp(s), tangent) <= np.exp(s), True)
    np.testing.assert_allclose(np.minimum(np.exp(s), tangent), tangent, atol=1e-12)

    def printed(eta: float) -> float:
        v = 1.0 - eta
        return min(math.exp(v), (1 + v + math.log(level)) / level) - 1 + eta

    assert printed(1e5) < -1e5


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


# Sensitivities -------------------------------------------------------------------------------------------------------


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


# Refusals -------------------------------------------------------------------------------------------------------------


def build(classes: int = 3, **options: Any) -> Any:
    return MINIMAX["dro"].build({"divergence": "chi2", "cap": 2.0, "strength": 1.0} | options, ProblemFacts(4, classes))


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


@cases
@pytest.mark.parametrize("cap", [0.1, 3.0, 41.0])
def test_the_strength_that_a_refusal_names_works(case: Case, cap: float) -> None:
    """And the known ball at every η is finite there; a hundredth less is refused."""
    given = {"divergence": case.name, "cap": cap}
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
