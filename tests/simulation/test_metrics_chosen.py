"""`run.measures` selects metrics and does not change their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.metrics
from scipy import special

import decentral_dp
from decentral_dp import InputError
from decentral_dp.problems.class_measures import CLASS_MEASURES

FEW: dict[str, Any] = {"algorithm.rounds": 10, "run.evaluate_every": 5}


def test_those_that_are_chosen_have_the_numbers_that_they_have_beside_others() -> None:
    every = decentral_dp.run("classification", set=FEW).metrics
    some = decentral_dp.run("classification", set=FEW | {"run.measures": ["test_auc", "consensus_y"]}).metrics
    names = {name for name in every["name"] if name.startswith(("test_auc", "consensus_y", "epsilon_spent"))}
    assert set(some["name"]) == names
    kept = every[every["name"].isin(names)].reset_index(drop=True)
    assert kept.equals(some.reset_index(drop=True))


def test_a_name_that_nothing_has_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match=r'run\.measures: no measure "test_acuracy"; did you mean "test_accuracy"'):
        decentral_dp.plan("classification", set={"run.measures": ["test_acuracy"]})


# Scenario of agents on a graph, or of a trusted coordinator → number of classes.
BILEVEL = {
    "ring_breast_cancer": 2,
    "digits_softmax": 10,
    "dp_bilevel_breast_cancer": 2,
}
ALL = [f"test_{name}" for name in CLASS_MEASURES]


@pytest.mark.parametrize(("scenario", "classes"), BILEVEL.items())
def test_probabilities_of_problems_of_two_levels_are_judged_where_that_is_asked_for(
    scenario: str, classes: int
) -> None:
    """Oracle: scikit-learn, on probabilities that follow from the published y and the held-out records."""
    few: dict[str, Any] = {"algorithm.rounds": 3}
    asked = [name for name in ALL if classes == 2 or name not in ("test_recall", "test_precision")]
    with_them = few | {"run.measures": asked}
    run, plain = decentral_dp.run(scenario, set=with_them), decentral_dp.run(scenario, set=few)
    for channel, values in plain.published.items():
        np.testing.assert_array_equal(run.published[channel], values)
    assert not plain.metrics["name"].isin(asked).any()

    shards = decentral_dp.build(scenario).simulation().shards
    features, label = shards.features[shards.test], shards.labels[shards.test].astype(int)
    ends = run.metrics[run.metrics["round"] == 3]
    for agent, y in enumerate(run.published["y"]):
        wide = y.size if classes == 2 else y.size // classes
        # There is an intercept where y has a place more than features.
        rows = np.column_stack([features, np.ones(len(features))])[:, :wide]
        scores = rows @ y.reshape(-1, wide).T
        share = special.softmax(np.column_stack([0 * scores, scores]) if classes == 2 else scores, axis=1)
        whose = "coordinator" if len(run.published["y"]) == 1 else str(agent)
        found = ends[ends["agent"] == whose].set_index("name")["value"]
        if classes == 2:
            said = share[:, 1] > 0.5
            wanted = {
                "test_auc": sklearn.metrics.roc_auc_score(label, share[:, 1]),
                "test_brier": sklearn.metrics.brier_score_loss(label, share[:, 1]),
                "test_f1": sklearn.metrics.f1_score(label, said),
                "test_recall": sklearn.metrics.recall_score(label, said),
                "test_precision": sklearn.metrics.precision_score(label, said),
            }
        else:
            said = share.argmax(axis=1)
            wanted = {
                "test_auc": sklearn.metrics.roc_auc_score(label, share, multi_class="ovr"),
                "test_f1": sklearn.metrics.f1_score(label, said, average="macro"),
            }
        wanted["test_balanced_accuracy"] = sklearn.metrics.balanced_accuracy_score(label, said)
        assert set(found.index) >= set(asked)
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value, abs=1e-9), (name, agent)


@pytest.mark.parametrize(
    ("scenario", "asked", "message"),
    [
        ("quadratic", "test_auc", r'"test_auc" needs probabilities of classes, and quadratic has none'),
        ("digits_softmax", "test_recall", r'"test_recall" needs probabilities of two classes, and softmax_.* has 10'),
    ],
)
def test_a_measure_that_a_problem_cannot_have_is_refused(scenario: str, asked: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"^run\.measures: {message}"):
        decentral_dp.plan(scenario, set={"run.measures": ["test_loss", asked]})


def test_robust_classifiers_have_them_and_rankings_say_no_probability() -> None:
    few = {"algorithm.rounds": 2, "run.measures": ["test_brier", "test_auc"]}
    run = decentral_dp.run("dro_digits", set=few)
    shards = decentral_dp.build("dro_digits").simulation().shards
    weights, label = run.model.weights, shards.labels[shards.test].astype(int)
    share = special.softmax(shards.features[shards.test] @ weights["weight"].T + weights["bias"], axis=1)
    wanted = np.square(share - np.eye(10)[label]).sum(axis=1).mean()
    assert run.result.metrics["test_brier"] == pytest.approx(wanted, abs=1e-12)
    auc = sklearn.metrics.roc_auc_score(label, share, multi_class="ovr")
    assert run.result.metrics["test_auc"] == pytest.approx(auc, abs=1e-12)
    assert "test_brier" not in decentral_dp.run("dp_sgda", set=few).result.metrics
