"""`run.measures`: what is not asked for is neither computed nor written, and what is asked for keeps its numbers."""

from __future__ import annotations

from typing import Any

import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.problems.training.problem import CLASS_MEASURES, Training

FEW: dict[str, Any] = {"algorithm.rounds": 10, "run.evaluate_every": 5}


def test_those_that_are_chosen_have_the_numbers_that_they_have_beside_others() -> None:
    every = decentral_dp.run("classification", set=FEW).metrics
    some = decentral_dp.run("classification", set=FEW | {"run.measures": ["test_auc", "consensus_y"]}).metrics
    names = {name for name in every["name"] if name.startswith(("test_auc", "consensus_y", "epsilon_spent"))}
    assert set(some["name"]) == names
    kept = every[every["name"].isin(names)].reset_index(drop=True)
    assert kept.equals(some.reset_index(drop=True))


def test_train_losses_are_not_computed_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    losses = Training.losses

    def counted(self: Training, x: Any, y: Any, records: Any, weights: Any) -> Any:
        sizes.append(len(weights))
        return losses(self, x, y, records, weights)

    monkeypatch.setattr(Training, "losses", counted)
    decentral_dp.run("classification", set=FEW | {"run.measures": ["test_auc"]})
    assert set(sizes) == {114}
    decentral_dp.run("classification", set=FEW | {"run.measures": ["train_loss"]})
    assert 455 in sizes


def test_the_hypergradient_is_left_out_with_its_exact_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    from decentral_dp.simulation import metrics

    def never(*_: Any) -> Any:
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr(metrics, "hypergradient_of_joined", never)
    run = decentral_dp.run("ring_breast_cancer", set={"algorithm.rounds": 2, "run.measures": ["upper_loss"]})
    assert {name.removesuffix("_min").removesuffix("_max") for name in run.metrics["name"]} == {
        "upper_loss",
        "epsilon_spent",
    }


def test_minimax_and_coordinators_have_theirs() -> None:
    pytest.importorskip("torch")
    run = decentral_dp.run("auc_digits", set={"algorithm.rounds": 2, "run.measures": ["test_auc"]})
    assert set(run.metrics["name"]) == {"test_auc", "epsilon_spent"}


def test_a_name_that_nothing_has_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match=r'run\.measures: no measure "test_acuracy"; did you mean "test_accuracy"'):
        decentral_dp.plan("classification", set={"run.measures": ["test_acuracy"]})


def test_a_name_that_problems_of_two_levels_do_not_have_is_refused() -> None:
    with pytest.raises(InputError, match=r'run\.measures: logistic_hyperparameter has no "test_auc"\. Take "test_acc'):
        decentral_dp.plan("ring_breast_cancer", set={"run.measures": ["upper_loss", "test_auc"]})
    measured = decentral_dp.run("classification", set=FEW).metrics["name"]
    assert {f"test_{name}" for name in CLASS_MEASURES} <= set(measured)
