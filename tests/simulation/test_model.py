"""Predictions of a trained model for new records, by the rules of its scenario and from published weights only."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import decentral_dp
from tests.support.run_folders import rewrite_result

N, WARDS = 240, ("surgery", "icu", "garden")
PRIVACY = {"mechanism": "gaussian", "epsilon": 8.0, "delta": 1e-5}
SHORT = {"kind": "dp_dsgd", "rounds": 12}
GRAPH = {"kind": "ring", "agents": 4}


def _frame(seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    age, weight, ward = draw.uniform(0, 110, N), draw.uniform(35, 190, N), draw.choice(WARDS, N)
    score = (age - 55) / 30 + (weight - 110) / 80 + 0.7 * (ward == "icu") + 0.4 * draw.normal(size=N)
    return pd.DataFrame(
        {"age": age, "id": np.arange(N), "weight": weight, "ward": ward, "sick": np.where(score > 0.2, "yes", "no")}
    ).assign(days=np.clip(120 + 60 * score, 0, 350))


RULES = {"drop": ["id"], "categories": {"ward": ["surgery", "icu"]}}
SCALE = {"age": [0, 120], "weight": [30, 200]}
SICK = {
    "kind": "classification",
    "label": "sick",
    "classes": ["no", "yes"],
    "scale": SCALE,
    "columns": {**RULES, "drop": ["id", "days"]},
}
DAYS = {
    "kind": "regression",
    "label": "days",
    "label_range": [0, 350],
    "scale": SCALE,
    "columns": {**RULES, "drop": ["id", "sick"]},
}


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    _frame().to_csv(tmp_path / "records.csv", index=False)
    return tmp_path / "records.csv"


def _scenario(csv: Path | str, problem: Mapping[str, Any], **tables: Any) -> dict[str, Any]:
    content = {"topology": GRAPH, "algorithm": SHORT, "privacy": PRIVACY, "seed": 3}
    return content | {"title": "t", "problem": {"data": str(csv), **problem}} | tables


def _held_out(run: decentral_dp.Run, frame: pd.DataFrame | None = None) -> pd.DataFrame:
    return (_frame() if frame is None else frame).iloc[run.simulation().shards.test]


def _of_agents(run: decentral_dp.Run, name: str) -> NDArray[np.float64]:
    last = run.metrics[(run.metrics["round"] == run.result.rounds) & (run.metrics["name"] == name)].set_index("agent")
    return np.array([float(last["value"][str(agent)]) for agent in range(len(run.published["y"]))])


def _refusal(call: Any, *given: Any) -> str:
    with pytest.raises(decentral_dp.InputError) as caught:
        call(*given)
    text = str(caught.value)
    assert text[-1] == "."
    assert "\n" not in text
    return text


@pytest.mark.parametrize("model", [None, {"kind": "mlp", "hidden": [6]}])
def test_predictions_repeat_the_accuracy_that_the_run_prints(csv: Path, model: Any) -> None:
    own = {} if model is None else {"model": model}
    steps = {} if model is None else {"learning_rate": {"scale": 0.3}}
    clip = {} if model is None else {"clip": 0.5}
    run = decentral_dp.run(
        _scenario(csv, {**SICK, **own}, algorithm=SHORT | steps, privacy=PRIVACY | clip), out=csv.parent / "run"
    )
    rows = _held_out(run)
    truth = rows["sick"].to_numpy()
    each = np.array([(run.predict(rows, agent=agent) == truth).mean() for agent in range(4)])
    np.testing.assert_allclose(each, _of_agents(run, "test_accuracy"), rtol=1e-12)
    assert run.result.metrics["test_accuracy"] == pytest.approx(each.mean(), rel=1e-12)
    said, shares = run.predict(rows), run.predict_proba(rows)
    assert shares.shape == (len(rows), 2)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert run.model.classes == ("no", "yes")
    assert list(said) == [("no", "yes")[k] for k in shares.argmax(axis=1)]
    mean = replace(run.model, published=run.model.published.mean(axis=0)[None])
    np.testing.assert_array_equal(mean.predict_proba(rows), shares)
    # Months later the records are gone.
    csv.unlink()
    later = decentral_dp.load_model(csv.parent / "run")
    np.testing.assert_array_equal(later.predict_proba(rows), shares)
    np.testing.assert_array_equal(later.of_agent(2).predict(rows), run.predict(rows, agent=2))


def test_numbers_come_in_the_unit_of_the_label(csv: Path) -> None:
    run = decentral_dp.run(_scenario(csv, DAYS))
    rows = _held_out(run)
    errors = [np.sqrt(np.square(run.predict(rows, agent=k) - rows["days"]).mean()) for k in range(4)]
    np.testing.assert_allclose(errors, _of_agents(run, "test_rmse"), rtol=1e-9)
    linear = np.mean([run.predict(rows, agent=k) for k in range(4)], axis=0)
    np.testing.assert_allclose(run.predict(rows), linear)
    assert "regression" in _refusal(run.predict_proba, rows)
    assert "numbers" in repr(run.model)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ring_breast_cancer", "logistic_hyperparameter"),
        ("digits_softmax", "softmax_hyperparameter"),
        ("hyper_cleaning", "hyper_cleaning"),
    ],
)
def test_lower_levels_that_are_linear_models_predict(name: str, kind: str) -> None:
    run = decentral_dp.run(name, set={"algorithm.rounds": 3, "run.evaluate_every": 3})
    job = run.simulation()
    assert run.scenario.problem.kind == kind
    loaded = job.components.data.make(job.n_agents, True)
    test, labels = loaded.features[job.shards.test], np.array(job.shards.classes)[job.shards.labels[job.shards.test]]
    said = [(run.predict(test, agent=k) == labels).mean() for k in range(job.n_agents)]
    np.testing.assert_allclose(said, _of_agents(run, "test_accuracy"), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "metric"),
    [("gossip_sgda", "auc"), ("scdro", "accuracy")],
)
def test_models_of_minimax_problems_predict(name: str, metric: str) -> None:
    run = decentral_dp.run(name, set={"algorithm.rounds": 20, "run.evaluate_every": 20, "run.average": 1})
    job = run.simulation()
    loaded = job.components.data.make(job.n_agents, True)
    test, places = loaded.features[job.shards.test], job.shards.labels[job.shards.test].astype(int)
    every, said = range(job.n_agents) if name == "gossip_sgda" else [0], []
    for k in every:
        right = run.predict(test, agent=k) == np.array(job.shards.classes)[places]
        shares = run.predict_proba(test, agent=k)
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
        said.append(roc_auc_score(places, shares[:, 1]) if metric == "auc" else right.mean())
    last = run.metrics.query(f"round == 20 and agent == 'mean' and name == 'test_{metric}'")["value"].item()
    assert np.mean(said) == pytest.approx(last, abs=1e-9)
    assert {n: v.shape for n, v in run.model.weights.items()} == {"weight": (1, 30), "bias": (1,)}


def test_every_form_of_a_table_is_read_alike(csv: Path) -> None:
    run, new = decentral_dp.run(_scenario(csv, SICK)), _frame(7)
    said, folder = run.predict_proba(new), csv.parent
    shuffled = new[["ward", "weight", "age"]].assign(more="words", sick=np.nan)
    np.testing.assert_array_equal(run.predict_proba(shuffled), said)
    np.testing.assert_array_equal(run.predict_proba(new.to_dict("list")), said)
    new.to_csv(folder / "new.csv")
    new.drop(columns="sick").to_parquet(folder / "new.parquet")
    for path in (folder / "new.csv", str(folder / "new.csv"), folder / "new.parquet"):
        np.testing.assert_allclose(run.predict_proba(path), said, rtol=1e-12)
    whole = run.model.predictions(folder / "new.csv")
    assert list(whole.columns) == ["prediction", "probability_no", "probability_yes"]
    np.testing.assert_allclose(whole["probability_yes"], said[:, 1], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "kind", "package"),
    [("quadratic", "mean_estimation", "numpy"), ("dptd", None, "gymnasium"), ("own_losses", None, "torch")],
)
def test_what_predicts_nothing_is_said(name: str, kind: str | None, package: str) -> None:
    pytest.importorskip(package)
    run = decentral_dp.run(name, set={"algorithm.rounds": 2} | ({"problem.kind": kind} if kind else {}))
    assert "has no model that predicts" in _refusal(lambda: run.model)
    assert "has no model that predicts" in _refusal(run.predict, np.zeros((1, 2)))


def test_agents_without_links_have_no_model_in_common(csv: Path) -> None:
    run = decentral_dp.run(_scenario(csv, SICK, topology={"kind": "isolated", "agents": 4}))
    rows = _held_out(run)
    assert "no edges" in _refusal(run.predict, rows)
    each = [(run.predict(rows, agent=k) == rows["sick"]).mean() for k in range(4)]
    np.testing.assert_allclose(each, _of_agents(run, "test_accuracy"))


def test_folders_that_are_none_of_a_finished_run_are_refused(csv: Path) -> None:
    folder = csv.parent / "run"
    decentral_dp.run(_scenario(csv, SICK), out=folder)
    assert "result.json" in _refusal(decentral_dp.load_model, csv.parent / "none")
    result = json.loads((folder / "result.json").read_text())
    old = csv.parent / "old"
    shutil.copytree(folder, old)
    without = {k: v for k, v in result["problem"].items() if k not in ("features", "classes")}
    rewrite_result(old, result | {"problem": without})
    assert "has no model" in _refusal(decentral_dp.load_model, old)
    (old / "result.json").write_text(json.dumps(result | {"status": "interrupted"}))
    assert "not complete" in _refusal(decentral_dp.load_model, old)
    shutil.copy(folder / "result.json", old)
    (old / "state.npz").write_bytes(b"no archive")
    assert "was changed after the run wrote it" in _refusal(decentral_dp.load_model, old)
    rewrite_result(old)
    assert "is not a complete run folder" in _refusal(decentral_dp.load_model, old)
    (old / "state.npz").unlink()
    assert 'state.npz" is missing' in _refusal(decentral_dp.load_model, old)


def test_a_run_of_records_in_memory_predicts_without_them(tmp_path: Path) -> None:
    frame = _frame().drop(columns=["days", "id"])
    frame.loc[5, "age"] = 77.7310091283746
    content = _scenario("none", {k: v for k, v in SICK.items() if k != "columns"})
    content["problem"] |= {"columns": {"categories": RULES["categories"]}}
    content["problem"].pop("data")
    run = decentral_dp.run(content, data=frame, out=tmp_path / "run")
    later = decentral_dp.load_model(tmp_path / "run")
    np.testing.assert_array_equal(later.predict(frame), run.predict(frame))
    copied = pickle.loads(pickle.dumps(later))  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(copied.predict(frame), run.predict(frame))
    there = pickle.loads(pickle.dumps(run))  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(there.predict(frame), run.predict(frame))
    for holder in (later, run.model):
        assert np.float64(77.7310091283746).tobytes() not in pickle.dumps(holder)


def test_agents_have_the_names_in_the_column_of_owners(csv: Path) -> None:
    names = ["Bern", "Zug", "Genf", "Chur"]
    pd.read_csv(csv).assign(canton=[names[k % 4] for k in range(N)]).to_csv(csv, index=False)
    owner = {"kind": "column", "name": "canton", "agents": names}
    model = decentral_dp.run(_scenario(csv, {**SICK, "partition": owner})).model
    np.testing.assert_array_equal(model.of_agent("Genf").predict(csv), model.of_agent(2).predict(csv))
    assert 'such as "Bern"' in _refusal(model.of_agent, "Paris")


def test_a_table_that_does_not_fit_is_refused(csv: Path) -> None:
    model, new = decentral_dp.run(_scenario(csv, SICK)).model, _frame(7)
    gap = new.copy()
    gap.loc[100, "weight"] = np.nan
    gap.to_csv(csv.parent / "gap.csv", index=False)
    refused = {
        'has no column "weight"': new.drop(columns="weight"),
        "row 101, column 'weight'": gap,
        "no records": new[:0],
        "expected a table with the columns age": new[["age", "weight"]].to_numpy(),
        "two columns": pd.concat([new, new[["age"]]], axis=1),
        "cannot be read": csv.parent / "none.csv",
        ".csv or .parquet": csv.parent / "new.xlsx",
    }
    for text, table in refused.items():
        assert text in _refusal(model.predict, table)
    assert "row 101, column 'weight'" in _refusal(model.predictions, csv.parent / "gap.csv")
    for agent in (4, True, "Bern"):
        assert "expected a number from 0 to 3" in _refusal(model.of_agent, agent)
