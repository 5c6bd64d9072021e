"""Estimators that agents train together: scikit-learn's checks, what they learn, refuse, and keep."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import TunedThresholdClassifierCV, cross_val_score, train_test_split
from sklearn.utils.estimator_checks import check_estimator

from decentral_dp.config.arrays import PrivacyWarning, ScaleWarning
from decentral_dp.errors import InputError
from decentral_dp.estimators import DecentralisedClassifier, DecentralisedRegressor

BOTH = [DecentralisedClassifier, DecentralisedRegressor]
USUAL: dict[str, Any] = {"rounds": 60, "epsilon": 8.0, "random_state": 1}
DECLARED: dict[Any, dict[str, Any]] = {
    DecentralisedClassifier: {"classes": ("no", "yes")},
    DecentralisedRegressor: {"label_range": (-2.0, 2.0)},
}


def _records(kind: Any, n: int = 600, seed: int = 0) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    features = draw.uniform(-1, 1, size=(n, 3))
    score = features @ [0.9, -0.6, 0.0] + 0.1 * draw.normal(size=n)
    return features, score if kind is DecentralisedRegressor else np.where(score > 0, "yes", "no")


@pytest.mark.parametrize("kind", BOTH)
def test_it_is_an_estimator_of_scikit_learn(kind: Any) -> None:
    with warnings.catch_warnings():
        # Its checks declare no classes, no ranges.
        warnings.simplefilter("ignore")
        found = check_estimator(kind(rounds=10, random_state=1), on_fail=None, on_skip=None)
    assert len(found) > 40
    assert [(r["check_name"], str(r["exception"])) for r in found if r["status"] not in ("passed", "skipped")] == []
    assert {r["check_name"] for r in found if r["status"] == "skipped"} <= {"check_array_api_input"}


@pytest.mark.parametrize("classes", [2, 3])
def test_a_score_near_that_of_one_place(classes: int) -> None:
    features, labels = make_classification(4000, 8, n_informative=5, n_classes=classes, random_state=3)
    train, test, known, hidden = train_test_split(features, labels, random_state=0)
    ours = DecentralisedClassifier(
        epsilon=8.0, delta=1e-5, data_range=(-7, 7), classes=range(classes), random_state=0
    ).fit(train, known)
    assert ours.score(test, hidden) > LogisticRegression().fit(train, known).score(test, hidden) - 0.04
    assert ours.score(test, hidden) > 0.6
    assert 7.9 < ours.epsilon_ <= 8.0
    assert ours.coef_.shape == ((1 if classes == 2 else 3), 8)
    outputs = np.clip(test, -7, 7) @ ours.coef_.T + ours.intercept_
    if classes > 2:
        np.testing.assert_array_equal(ours.predict(test), outputs.argmax(axis=1))
        np.testing.assert_array_equal(ours.decision_function(test).argmax(axis=1), outputs.argmax(axis=1))
        assert cross_val_score(ours, test, hidden, cv=2, scoring="roc_auc_ovr").min() > 0.7
    else:
        # The clip is allowed for: odds of the bare weights are up to twice as far from 1.
        odds = ours.decision_function(test)
        np.testing.assert_array_equal(np.sign(odds), np.sign(outputs[:, 0]))
        assert (np.abs(outputs[:, 0]) - np.log(2.0) - 1e-9 <= np.abs(odds)).all()
        assert (np.abs(odds) <= np.abs(outputs[:, 0]) + 1e-9).all()
        assert cross_val_score(ours, test, hidden, cv=2, scoring="roc_auc").min() > 0.7
        tuned = TunedThresholdClassifierCV(ours, cv="prefit", refit=False, scoring="f1").fit(test, hidden)
        assert tuned.best_score_ > 0.6
        np.testing.assert_allclose(1.0 / (1.0 + np.exp(-odds)), ours.predict_proba(test)[:, 1])


def test_a_regression_near_that_of_one_place() -> None:
    features, labels = make_regression(4000, 5, n_informative=5, noise=20, random_state=0)
    train, test, known, hidden = train_test_split(features, labels, random_state=0)
    ours = DecentralisedRegressor(epsilon=8.0, data_range=(-4, 4), label_range=(-500, 500), random_state=0)
    ours.fit(train, known)
    assert ours.score(test, hidden) > LinearRegression().fit(train, known).score(test, hidden) - 0.04
    np.testing.assert_allclose(np.clip(test, -4, 4) @ ours.coef_ + ours.intercept_, ours.predict(test))


@pytest.mark.parametrize("kind", BOTH)
def test_what_it_cost_is_said_and_no_record_is_kept(kind: Any) -> None:
    # Each kind has its records: a further fit on the same records is warned of.
    features, labels = _records(kind, seed=5 + BOTH.index(kind))
    features[17] = [0.7310091283746, -0.1234987612345, 0.998877665544 if kind is DecentralisedRegressor else 0.5]
    model = kind(**USUAL | DECLARED[kind]).fit(features, labels)
    assert model.epsilon_ <= 8.0
    assert model.delta_ == 1e-5
    assert "each of 5 agents" in model.statement_
    assert "simulation" in model.statement_
    assert "inferred from y" not in model.statement_
    assert set(model.ledger_.to_frame()["agent"]) == set(range(5))
    content = pickle.dumps(model)
    for value in (*features[17], *features[3], *(labels[:9] if kind is DecentralisedRegressor else ())):
        assert np.float64(value).tobytes() not in content
    again = pickle.loads(content)  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(again.predict(features), model.predict(features))
    np.testing.assert_array_equal(clone(model).fit(features, labels).predict(features), model.predict(features))
    secret = clone(model).set_params(random_state=None)
    first = secret.fit(features, labels).coef_
    with pytest.warns(PrivacyWarning, match=r"2 fits on these records"):
        assert not np.array_equal(first, secret.fit(features, labels).coef_)
    assert "simulation" not in secret.statement_


@pytest.mark.parametrize("kind", BOTH)
def test_what_was_read_off_the_records_is_said(kind: Any) -> None:
    features, labels = _records(kind)
    with pytest.warns(PrivacyWarning, match="inferred from y"):
        model = kind(**USUAL).fit(features, labels)
    assert model.statement_.startswith("Apart from the ")
    with pytest.warns(ScaleWarning, match="Most values of b lie outside data_range"):
        kind(**USUAL | DECLARED[kind]).fit(pd.DataFrame(features * [1, 1000, 1], columns=["a", "b", "c"]), labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wide = ([-1, -1000, -1], [1, 1000, 1])
        model = kind(**USUAL | DECLARED[kind], data_range=wide).fit(features * [1, 1000, 1], labels)
    same = kind(**USUAL | DECLARED[kind]).fit(features, labels)
    assert np.corrcoef(np.ravel(model.coef_) * [1, 1000, 1], np.ravel(same.coef_))[0, 1] > 0.9


@pytest.mark.parametrize("kind", BOTH)
def test_the_model_reads_columns_by_name_and_speaks_in_labels(kind: Any) -> None:
    features, labels = _records(kind)
    frame = pd.DataFrame(features, columns=["age", "x0", "mass"])
    model = kind(**USUAL | DECLARED[kind]).fit(frame, labels)
    assert model.model_.features == ("age", "x0", "mass")
    np.testing.assert_array_equal(model.model_.predict(frame[["mass", "age", "x0"]]), model.predict(frame))
    each = [np.ravel(model.model_.of_agent(k).weights["weight"]) for k in range(5)]
    np.testing.assert_allclose(np.mean(each, axis=0), np.ravel(model.model_.weights["weight"]))


@pytest.mark.parametrize("kind", BOTH)
def test_weights_of_records_and_shared_noise_raise_the_score(kind: Any) -> None:
    features, labels = _records(kind)
    owner = np.repeat([0, 1, 2, 3], [400, 120, 60, 20])
    options = USUAL | DECLARED[kind] | {"epsilon": 1.0}
    plain = kind(**options).fit(features, labels, agents=owner)
    for changed in ({"weights": "records"}, {"weights": "records", "colluders": 1}):
        model = kind(**options, **changed).fit(features, labels, agents=owner)
        assert model.score(features, labels) > plain.score(features, labels) + 0.02
        assert 0.9 < model.epsilon_ <= 1.0
        assert ("if at most 1 agent may collude" in model.statement_) == ("colluders" in changed)
    fixed = options | {"clip": 0.1, "algorithm": {"kind": "dp_dsgd", "learning_rate": {"scale": 0.1}}}
    noise = [kind(**fixed, colluders=q).fit(features, labels).ledger_.to_frame()["scale"].max() for q in (0, 1, 2)]
    assert noise[0] < noise[1] < noise[2]


def test_class_weights_multiply_the_probabilities_and_nothing_else() -> None:
    features, labels = _records(DecentralisedClassifier)
    plain = DecentralisedClassifier(**USUAL, classes=("no", "yes")).fit(features, labels)
    weighted = DecentralisedClassifier(**USUAL, classes=("no", "yes"), class_weight={"yes": 9}).fit(features, labels)
    np.testing.assert_array_equal(weighted.coef_, plain.coef_)
    np.testing.assert_array_equal(weighted.class_weight_, [1.0, 9.0])
    odds = plain.decision_function(features) + np.log(9.0)
    np.testing.assert_allclose(weighted.decision_function(features), odds, atol=1e-9)
    np.testing.assert_array_equal(weighted.predict(features) == "yes", odds > 0.0)
    np.testing.assert_allclose(weighted.predict_proba(features).sum(axis=1), 1.0)
    for value, problem in {
        "balanced": "counts, which are private",
        (1, 2): "expected {label",
        0.5: "expected {label",
    }.items():
        with pytest.raises(InputError, match=f"^class_weight: .*{problem}"):
            weighted.set_params(class_weight=value).fit(features, labels)
    for table, problem in (({"yes": 0}, "above 0"), ({"maybe": 1}, r"unknown labels \(got \['maybe'\]")):
        with pytest.raises(InputError, match=f"^class_weight: .*{problem}"):
            weighted.set_params(class_weight=table).fit(features, labels)


@pytest.mark.parametrize("kind", BOTH)
def test_owners_and_graphs(kind: Any) -> None:
    features, labels = _records(kind)
    usual = USUAL | DECLARED[kind]
    owners = np.repeat(["Bern", "Chur", "Genf", "Zug"], [90, 110, 200, 200])
    model = kind(**usual).fit(features, labels, agents=owners)
    assert len(model.model_.published) == 4
    np.testing.assert_array_equal(model.model_.of_agent("Genf").published, model.model_.of_agent(2).published)
    assert model.model_.of_agent("Genf").agent == 2
    graph = nx.star_graph(6)
    for topology, agents, wanted in (
        ("complete", 3, 3),
        ({"kind": "torus", "agents": 9}, None, 9),
        (graph, None, 7),
        ("ring", 2, 2),
        ("ring", 1, 1),
        ("ring", None, 5),
    ):
        made = kind(**usual, topology=topology, agents=agents).fit(features, labels)
        assert len(made.model_.published) == wanted
        assert f"each of {wanted} agents" in made.statement_


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": -1.0},
        {"epsilon": None},
        {"delta": 0},
        {"rounds": 0},
        {"clip": -1.0},
        {"colluders": 9},
        {"weights": "no_such"},
        {"l2": -1.0},
        {"agents": 0},
        {"agents": 700},
        {"topology": "no_such"},
        {"topology": "isolated"},
        {"algorithm": "no_such"},
        {"model": "no_such"},
        {"data_range": (1, -1)},
        {"data_range": ([0, 0], [1, 1])},
        {"classes": ("no",)},
        {"classes": ("a", "b")},
    ],
)
def test_parameters_that_cannot_be_used_are_refused_by_name(changed: dict[str, Any]) -> None:
    ((key, _),) = changed.items()
    with pytest.raises(InputError, match=rf"(?<!\.)\b{key}\b") as refused:
        DecentralisedClassifier(**USUAL | {"classes": ("no", "yes")} | changed).fit(*_records(DecentralisedClassifier))
    assert "privacy.guarantee" not in str(refused.value)


def test_a_table_of_options_needs_no_kind_of_algorithm() -> None:
    usual = USUAL | {"classes": ("no", "yes")}
    features, labels = _records(DecentralisedClassifier)
    tables = ({"learning_rate": 0.5}, {"kind": "dp_dsgd", "learning_rate": 0.5})
    one, other = (DecentralisedClassifier(**usual, algorithm=table).fit(features, labels) for table in tables)
    np.testing.assert_array_equal(one.coef_, other.coef_)


@pytest.mark.parametrize("limits", [3, (2, 1), ("a", "b"), (0, np.inf)])
def test_ranges_of_labels_that_cannot_be_used_are_refused(limits: Any) -> None:
    with pytest.raises(InputError, match="label_range"):
        DecentralisedRegressor(**USUAL, label_range=limits).fit(*_records(DecentralisedRegressor))


def test_labels_and_owners_that_cannot_be_used_are_refused() -> None:
    features, labels = _records(DecentralisedClassifier)
    with pytest.raises(InputError, match="one class"):
        DecentralisedClassifier(**USUAL).fit(features, np.full(len(features), "no"))
    declared = DecentralisedClassifier(**USUAL, classes=("no", "yes"))
    gaps = [np.array([gap, "a" if gap is None else 1.0] * (len(features) // 2)) for gap in (np.nan, None)]
    masked = np.ma.masked_array(np.arange(len(features)) % 5, mask=np.arange(len(features)) == 3)
    for owners, words in (
        ([0, 1], "wrong shape"),
        *((gap, "agents: has missing values") for gap in gaps),
        (masked, "masked array"),
    ):
        with pytest.raises(InputError, match=words):
            declared.fit(features, labels, agents=owners)
    with pytest.raises(InputError, match="expected 3"):
        clone(declared).set_params(agents=4).fit(features, labels, agents=np.arange(len(features)) % 3)
    with pytest.raises(TypeError, match="sample_weight"):
        declared.fit(features, labels, sample_weight=np.ones(len(features)))
