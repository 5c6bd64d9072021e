"""Reference solutions: optimality gaps and distances agree with scikit-learn, closed forms and brute force."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import decentral_dp
from decentral_dp.problems import reference

REFERENCE = ["optimality_gap", "distance_to_solution", "stationarity", "heterogeneity", "heterogeneity_at_solution"]
RIDGE = 0.05
FEW: dict[str, Any] = {"algorithm.rounds": 6, "run.evaluate_every": 3}


def _ends(run: Any) -> dict[str, float]:
    rows = run.metrics[run.metrics["agent"] == "mean"]
    return dict(rows[rows["round"] == rows["round"].max()].set_index("name")["value"])


def _join(job: Any, split: str = "train") -> tuple[Any, Any, Any]:
    """Return features with the constant of the intercept, labels, and weights that count agents equally."""
    parts = job.records[split]
    features = np.concatenate([part.features for part in parts])
    features = np.hstack([features, np.full((len(features), 1), job.problem.model.bias)])
    weights = np.concatenate([np.full(len(part.label), 1 / (len(parts) * len(part.label))) for part in parts])
    return features, np.concatenate([part.label for part in parts]), weights


def test_an_algorithm_that_keeps_x_is_measured_at_the_lower_level() -> None:
    scenario = {
        "seed": 1,
        "topology": {"kind": "complete", "agents": 3},
        "problem": {
            "kind": "logistic_hyperparameter",
            "data": "synthetic_classification",
            "synthetic": {"dimension": 3, "records": 20, "test_records": 8},
        },
        "algorithm": {"kind": "exact_diffusion", "rounds": 200, "learning_rate": 0.3},
        "privacy": {"guarantee": "none"},
        "run": {"evaluate_every": 100, "average": 1, "measures": [*REFERENCE, "value_function"]},
    }
    run = decentral_dp.run(scenario)
    ends = _ends(run)
    assert np.linalg.norm(run.published["y"]) > 0.1
    assert ends["distance_to_solution_max"] < 1e-6
    assert abs(ends["optimality_gap"]) < 1e-12
    assert ends["stationarity"] < 1e-12
    assert "value_function" not in ends


def test_stationarity_needs_no_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference.ReferenceObjective, "solution", None)
    run = decentral_dp.run("classification", set=FEW | {"run.measures": ["stationarity"]})
    assert _ends(run)["stationarity"] > 0.0


def test_gap_of_logistic_regression_is_that_of_scikit_learn() -> None:
    """f = (1/m) Σ_i mean log-loss of agent i + l2/2 ‖y‖²."""
    changes = FEW | {"problem.l2": RIDGE, "algorithm.centring": False, "run.measures": REFERENCE}
    job = decentral_dp.build("classification", set=changes).simulation()
    features, labels, weights = _join(job)
    solver = LogisticRegression(C=1.0 / RIDGE, fit_intercept=False, tol=1e-12, max_iter=10_000)
    solution = solver.fit(features, labels, sample_weight=weights).coef_[0]

    def f(y: Any) -> float:
        return float(weights @ np.logaddexp(0.0, features @ y * (1 - 2 * labels)) + 0.5 * RIDGE * y @ y)

    run = decentral_dp.run("classification", set=changes)
    ends, y = _ends(run), run.published["y"]
    mean = y.mean(axis=0)
    assert ends["optimality_gap"] == pytest.approx(f(mean) - f(solution), rel=1e-6)
    assert ends["distance_to_solution"] == pytest.approx(np.linalg.norm(mean - solution), rel=1e-5)
    assert ends["distance_to_solution_max"] == pytest.approx(np.linalg.norm(y - solution, axis=1).max(), rel=1e-5)

    def slopes(y: Any) -> Any:
        return features * (1 / (1 + np.exp(-features @ y)) - labels)[:, None]

    gradient = weights @ slopes(mean) + RIDGE * mean
    assert ends["stationarity"] == pytest.approx(gradient @ gradient, rel=1e-9)
    ends_of_agents = np.cumsum([len(part.label) for part in job.records["train"]])[:-1]
    for name, y in (("heterogeneity", mean), ("heterogeneity_at_solution", solution)):
        gradients = np.stack([part.mean(axis=0) for part in np.split(slopes(y), ends_of_agents)])
        wanted = np.square(gradients - gradients.mean(axis=0)).sum(axis=1).mean()
        assert ends[name] == pytest.approx(wanted, rel=1e-5)


def test_gap_of_a_centred_model_is_that_at_the_released_centre() -> None:
    changes = FEW | {"problem.l2": RIDGE, "run.measures": REFERENCE, "run.average": 1}
    features, labels, weights = _join(decentral_dp.build("classification", set=changes).simulation())
    run = decentral_dp.run("classification", set=changes)
    features = features - np.append(run.published["x"].mean(axis=0), 0.0)
    solver = LogisticRegression(C=1.0 / RIDGE, fit_intercept=False, tol=1e-12, max_iter=10_000)
    solution = solver.fit(features, labels, sample_weight=weights).coef_[0]
    distance = np.linalg.norm(run.published["y"].mean(axis=0) - solution)
    assert _ends(run)["distance_to_solution"] == pytest.approx(distance, rel=1e-5)


def test_value_function_and_gap_of_a_bilevel_problem_with_a_closed_form() -> None:
    """Lower level ½ mean (a·y − b)² + ½ ridge ‖y − x‖²: every y is y*(x) of one x, so F* is the least-squares fit."""
    asked, ridge = [*REFERENCE, "value_function"], 0.5
    changes = {"algorithm.rounds": 20, "run.evaluate_every": 20, "run.measures": asked}
    job = decentral_dp.build("quadratic", set=changes).simulation()
    lower, upper = (
        (
            np.concatenate([r.features for r in job.records[split]]),
            np.concatenate([r.label for r in job.records[split]]),
        )
        for split in ("train", "validation")
    )
    (a, b), (v, w) = lower, upper
    second, cross = a.T @ a / len(a) + ridge * np.eye(a.shape[1]), a.T @ b / len(a)
    best = np.linalg.lstsq(v, w)[0]
    solution = (second @ best - cross) / ridge

    def f(x: Any) -> float:
        return float(0.5 * np.square(v @ np.linalg.solve(second, cross + ridge * x) - w).mean())

    run = decentral_dp.run("quadratic", set=changes)
    ends, x = _ends(run), run.published["x"]
    mean = x.mean(axis=0)
    assert ends["value_function"] == pytest.approx(f(mean), rel=1e-8)
    assert ends["optimality_gap"] == pytest.approx(f(mean) - f(solution), rel=1e-6)
    assert ends["distance_to_solution"] == pytest.approx(np.linalg.norm(mean - solution), rel=1e-5)
    assert ends["distance_to_solution_max"] == pytest.approx(np.linalg.norm(x - solution, axis=1).max(), rel=1e-5)
    jacobian = ridge * np.linalg.inv(second)
    gradient = jacobian.T @ v.T @ (v @ np.linalg.solve(second, cross + ridge * mean) - w) / len(v)
    assert ends["stationarity"] == pytest.approx(gradient @ gradient, rel=1e-6)


def test_every_seed_and_number_of_agents_has_its_own_solution() -> None:
    """No gap is below 0, also if the solution of other records was computed before."""
    for change in ({"seed": 1}, {"seed": 2}, {"seed": 2, "topology.agents": 4}):
        changes = FEW | {"problem.l2": RIDGE, "algorithm.centring": False, "run.measures": REFERENCE}
        run = decentral_dp.run("classification", set=changes | {"run.average": 1} | change)
        features, labels, weights = _join(decentral_dp.build("classification", set=changes | change).simulation())
        solver = LogisticRegression(C=1.0 / RIDGE, fit_intercept=False, tol=1e-12, max_iter=10_000)
        solution = solver.fit(features, labels, sample_weight=weights).coef_[0]
        distance = np.linalg.norm(run.published["y"].mean(axis=0) - solution)
        assert _ends(run)["distance_to_solution"] == pytest.approx(distance, rel=1e-5)


def test_reference_measures_are_computed_only_if_asked_for() -> None:
    plain = decentral_dp.run("classification", set=FEW).metrics
    assert not plain["name"].str.startswith(tuple(REFERENCE)).any()
    study = {"scenario": "classification", "set": FEW, "seeds": [1], "measure": ["rounds_to_optimality_gap_0.5"]}
    found = decentral_dp.study(study, workers=1).results
    assert found.loc[found["last"], "value"].between(0, 6).all()


def test_label_skew_is_the_mean_total_variation_of_the_agents_labels() -> None:
    changes = FEW | {"problem.partition": {"kind": "dirichlet", "alpha": 0.3}, "topology.agents": 4}
    run = decentral_dp.run("classification", set=changes)
    shards = run.simulation().shards
    labels = [np.array([shards.labels[k] for k in part]) for part in shards.train]
    pooled = np.concatenate(labels).mean()
    # With two classes the total variation is the distance of the shares of one.
    wanted = np.mean([abs(part.mean() - pooled) for part in labels])
    assert run.result.label_skew == pytest.approx(wanted)
    assert f"by {wanted:.2f} in total variation" in re.sub("<[^>]*>", "", run._repr_html_())
    study = {"scenario": "classification", "set": changes, "seeds": [1], "kind": "plan", "measure": ["label_skew"]}
    found = decentral_dp.study(study, workers=1).results
    assert found["value"].to_numpy() == pytest.approx(wanted)
