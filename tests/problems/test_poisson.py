"""Poisson regression of counts against scikit-learn, from the loss to predictions of saved models and estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import PoissonRegressor

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.estimators import DecentralisedRegressor
from tests.support.naive import finished
from tests.support.training import changed

AGENTS, D, HIGH = 4, 3, 12.0
NAMES = [f"f{k}" for k in range(D)]
NOISELESS = {"guarantee": "none", "epsilon": None, "delta": None, "mechanism": None}


def counts(n: int = 400, seed: int = 1) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    features = draw.uniform(-1.0, 1.0, (n, D))
    label = np.clip(draw.poisson(np.exp(0.7 + features @ [0.6, -0.4, 0.0])), 0, HIGH)
    split = np.where(np.arange(n) % 4, "train", "test")
    return pd.DataFrame(features, columns=NAMES).assign(label=label, agent=np.arange(n) // 4 % AGENTS, split=split)


def content(**tables: Any) -> dict[str, Any]:
    out: dict[str, Any] = {
        "seed": 1,
        "problem": {
            "kind": "regression",
            "loss": "poisson",
            "label": "label",
            "classes": [],
            "label_range": [0, HIGH],
            "scale": {"*": [-1, 1]},
        },
        "topology": {"kind": "ring", "agents": AGENTS},
        "algorithm": {"kind": "dp_dsgd", "rounds": 20},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5},
    }
    return changed(out, **tables)


@pytest.mark.parametrize("algorithm", [{"kind": "central", "momentum": 0.9}, {"kind": "exact_diffusion"}], ids=str)
def test_without_noise_it_is_the_regression_of_scikit_learn(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    """Predictions of the run, of its saved folder, and their scores are in the unit of the counts."""
    rows = counts()
    source = content(algorithm={**algorithm, "rounds": 6000, "learning_rate": 0.7}, privacy=NOISELESS)
    run = decentral_dp.run(source | {"run": {"evaluate_every": 6000}}, data=rows, out=tmp_path / "run")
    train, test = rows[rows["split"] == "train"], rows[rows["split"] == "test"]
    plain = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=1000).fit(train[NAMES].to_numpy(), train["label"])
    expected = plain.predict(test[NAMES].to_numpy())
    np.testing.assert_allclose(run.predict(test[NAMES]), expected, rtol=1e-4)
    np.testing.assert_allclose(decentral_dp.Run.load(tmp_path / "run").predict(test[NAMES]), expected, rtol=1e-4)
    ends = run.metrics[run.metrics["agent"] == "mean"].groupby("name")["value"].last()
    error = np.mean(np.square(expected - test["label"]))
    assert ends["test_rmse"] == pytest.approx(error**0.5, rel=1e-4)
    assert ends["test_r2"] == pytest.approx(1.0 - error / np.var(test["label"]), rel=1e-3)


def test_planned_is_recorded() -> None:
    for model in (None, {"kind": "mlp", "hidden": [3]}):
        job = decentral_dp.build(content(problem={"model": model}), data=counts()).simulation()
        assert finished(job).ledger.same_releases(job.ledger)
        assert (job.budget.epsilon <= 4.0).all()


def test_coefficients_of_the_estimator_give_its_predictions_by_a_log_link() -> None:
    rows = counts(2000)
    features = rows[NAMES].to_numpy()
    model = DecentralisedRegressor(
        epsilon=8.0, label_range=(0, HIGH), loss="poisson", rounds=200, agents=AGENTS, random_state=1
    ).fit(features, rows["label"].to_numpy())
    rates = np.exp(features @ model.coef_ + model.intercept_)
    np.testing.assert_allclose(model.predict(features), np.minimum(rates, HIGH), rtol=1e-9)
    assert model.score(features, rows["label"].to_numpy()) > 0.1


@pytest.mark.parametrize("limits", [None, [1, 5], [-1, 1]])
def test_counts_have_a_range_from_zero(limits: Any) -> None:
    with pytest.raises(InputError, match=r"^problem.label_range: the Poisson loss is that of counts"):
        decentral_dp.build(content(problem={"label_range": limits}), data=counts())
