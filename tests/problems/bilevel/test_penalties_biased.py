"""The losses of one problem under another's regulariser: biased regularisation and the ridge hyperparameter."""

import numpy as np

from decentral_dp.config.loading import load_scenario as load
from decentral_dp.problems.bilevel.linear import (
    LogisticHyperparameter,
    Pull,
    Quadratic,
    SoftmaxHyperparameter,
    biased_regularisation,
    ridge_hyperparameter,
)
from decentral_dp.problems.lower_level import solve_lower
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.hypergradients import solve_inverse_hvp, true_hypergradient

D = 3
RIDGE = 0.4
PROBLEMS = {
    "logistic": biased_regularisation(D, (0.0, 1.0), RIDGE),
    "intercept": biased_regularisation(D, (0.0, 1.0), RIDGE, intercept=True),
    "softmax": biased_regularisation(D, (0.0, 1.0, 2.0), RIDGE),
    "ridge": ridge_hyperparameter(D),
}
MODELS = {
    "logistic": LogisticHyperparameter(D, (0.0, 1.0)),
    "intercept": LogisticHyperparameter(D, (0.0, 1.0), intercept=True),
    "softmax": SoftmaxHyperparameter(D, (0.0, 1.0, 2.0)),
    "ridge": Quadratic(D),
}


def raw(name, rng, n, scale=1.0):
    features = scale * rng.normal(size=(n, D))
    if name == "ridge":
        return features, rng.normal(size=n)
    return features, rng.integers(3 if name == "softmax" else 2, size=n).astype(float)


def raw_agents(name, seed, counts=((8, 5), (8, 5), (6, 9))):
    rng = np.random.default_rng(seed)
    return [tuple(raw(name, rng, n) for n in pair) for pair in counts]


def prepared(problem, agents):
    return [tuple(problem.prepare(*part, "l1") for part in pair) for pair in agents]


def test_ridge_solutions_in_closed_form():
    problem, raw_pairs = PROBLEMS["ridge"], raw_agents("ridge", 5)
    agents = prepared(problem, raw_pairs)
    x = np.random.default_rng(6).normal(size=D)
    a = np.mean([f.T @ f / len(b) for (f, b), _ in raw_pairs], axis=0)
    c = np.mean([f.T @ b / len(b) for (f, b), _ in raw_pairs], axis=0)
    y = np.linalg.solve(a + np.diag(np.exp(x)), c)
    np.testing.assert_allclose(solve_lower(problem, x, agents), y, rtol=1e-8)
    gradient = np.mean([f.T @ (f @ y - b) / len(b) for _, (f, b) in raw_pairs], axis=0)
    z = np.linalg.solve(a + np.diag(np.exp(x)), gradient)
    np.testing.assert_allclose(solve_inverse_hvp(problem, x, y, agents), z, rtol=1e-7)
    np.testing.assert_allclose(true_hypergradient(problem, x, agents), -np.exp(x) * y * z, rtol=1e-7)


def test_the_registry_chooses_the_loss_by_the_number_of_classes(scenario):
    two = build(load(scenario(problem={"kind": "biased_regularisation", "ridge": 0.5, "intercept": True}))).problem
    assert isinstance(two, LogisticHyperparameter)
    assert (two.p, two.penalty) == (31, Pull(0.5))
    many = build(load(scenario(problem={"kind": "biased_regularisation", "data": "wine"}))).problem
    assert isinstance(many, SoftmaxHyperparameter)
    assert (many.p, many.penalty) == (39, Pull(0.1))
