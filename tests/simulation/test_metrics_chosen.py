"""`run.measures` selects metrics and does not change their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.metrics
from scipy import special

import decentral_dp
from decentral_dp import InputError

FEW: dict[str, Any] = {"algorithm.rounds": 10, "run.evaluate_every": 5}


def test_those_that_are_chosen_have_the_numbers_that_they_have_beside_others() -> None:
    every = decentral_dp.run("classification", set=FEW).metrics
    some = decentral_dp.run("classification", set=FEW | {"run.measures": ["test_auc", "consensus_y"]}).metrics
    names = {name for name in every["name"] if name.startswith(("test_auc", "consensus_y", "epsilon_spent"))}
    assert set(some["name"]) == names
    kept = every[every["name"].isin(names)].reset_index(drop=True)
    assert kept.equals(some.reset_index(drop=True))


def test_a_name_that_nothing_has_is_refused_before_anything_runs() -> None:
    with pytest.raises(
        InputError, match=r'run\.measures: unknown measure "test_acuracy"; did you mean "test_accuracy"'
    ):
        decentral_dp.plan("classification", set={"run.measures": ["test_acuracy"]})


@pytest.mark.parametrize(
    ("scenario", "asked", "message"),
    [
        ("quadratic", "test_auc", r'"test_auc" requires probabilities of classes, but quadratic has none'),
        (
            "digits_softmax",
            "test_recall",
            r'"test_recall" requires probabilities of two classes, but softmax_.* has 10',
        ),
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
