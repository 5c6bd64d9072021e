"""Scenarios of a trusted coordinator that are refused, before a record is read where no record is needed to know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.central import jobs as coordinator_jobs
from decentral_dp.central.problems.auc import AucObjective
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.reporting.report import reason_text
from decentral_dp.simulation.jobs import build
from papers.published import FORMS
from tests.support.coordinator_scenarios import content as bilevel
from tests.support.coordinator_scenarios import ranking as minimax

BILEVEL = ("pp_ift", "second_order_dp_bilevel", "dp_bilevel")


def refusal(made: dict[str, Any]) -> str:
    with pytest.raises(InputError) as refused:
        build.build_job(load(made))
    text = str(refused.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record may be read."""
    monkeypatch.setattr(coordinator_jobs, "deal", lambda *a: pytest.fail("records were read before it was refused"))


# Before a record is read.


def test_the_fixture_sees_a_read(unread: None) -> None:
    for made in (bilevel("pp_ift"), minimax()):
        with pytest.raises(pytest.fail.Exception, match="records were read"):
            build.build_job(load(made))


@pytest.mark.usefixtures("unread")
def test_only_models_of_minimax_problems_compute_on_a_gpu(scenario: Any) -> None:
    assert refusal(scenario(run={"device": "cuda"})).startswith("run.device: logistic_hyperparameter")
    with pytest.raises(InputError, match=r"run\.device: got"):
        load(minimax(**{"run.device": "mps"}))


# With public facts of the data.


@pytest.mark.parametrize("data", ["wine", "breast_cancer", "digits"])
def test_labels_of_classes_lie_within_the_certified_bound(data: str) -> None:
    """Classes are numbered from 0 on, and a regression reads their numbers."""
    made = bilevel("second_order_dp_bilevel", **{"problem.kind": "ridge_regularisation", "problem.data": data})
    built = build.build_job(load(made))
    assert built.context is not None
    largest = max(float(np.abs(records[1]).max()) for kind in built.records.values() for records in kind)
    assert built.context.family.loss.label_bound == largest  # type: ignore[union-attr]  # of a least-squares family


def test_every_claim_belongs_to_a_program_with_a_calibration() -> None:
    once = ("exponential_mechanism", "regularised_exponential_mechanism", "gradient_norm_exponential_mechanism")
    for kind in (name for name, e in ALGORITHMS.items() if e.trusts_coordinator and e.solves == "bilevel"):
        changes: dict[str, Any] = {"privacy.guarantee": "as_published"}
        if kind in (*once, "regularisation_tuner"):
            changes["algorithm.rounds"] = 1
        if kind in ("amigo", "saba", "soba", "stocbio"):
            changes |= {"algorithm.x": {"scale": 1.0}, "algorithm.y": {"scale": 1.0}}
            changes |= {"algorithm.z": {"scale": 1.0}} if kind != "stocbio" else {}
            changes |= {"algorithm.inner": 2, "algorithm.inverse": 2} if kind in ("amigo", "stocbio") else {}
            changes |= {"algorithm.blocks": 2} if kind == "saba" else {}
            changes |= {"algorithm.smoothness": 1.0} if kind == "stocbio" else {}
        if kind == "regularised_exponential_mechanism":
            # Its published strength is below the one that keeps the upper level convex.
            assert refusal(bilevel(kind, **changes)).startswith("algorithm.strength")
        elif kind in FORMS:
            assert build.build_job(load(bilevel(kind, **changes))).budget.epsilon.shape == (5,)
        else:
            assert refusal(bilevel(kind, **changes)).startswith("privacy.guarantee")


def test_a_rate_whose_sample_is_mostly_empty_is_refused_with_the_least_one() -> None:
    text = refusal(minimax(**{"algorithm.rate": 1e-4}))
    assert text.startswith("algorithm.rate: ")
    least = float(text.split("at least ")[1].split(")")[0])
    assert build.build_job(load(minimax(**{"algorithm.rate": least}))).budget.epsilon.shape


# Classes.


def write_records(folder: Path, labels: np.ndarray, **arrays: Any) -> str:
    path = folder / "own.npz"
    np.savez(path, X=np.random.default_rng(1).normal(size=(labels.size, 4)), y=labels, **arrays)
    return str(path)


def with_records(data: str, **changes: Any) -> dict[str, Any]:
    return minimax(**{"problem.data": data, "problem.classes": [0, 1], "problem.scale": None, **changes})


def without_guarantee(made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "privacy": {"guarantee": "none"}}


def test_undeclared_classes_are_refused(tmp_path: Path) -> None:
    data = write_records(tmp_path, np.arange(60) % 3)
    assert "not one of the declared classes [0, 1]" in refusal(with_records(data))
    assert "must not read them from the records" in refusal(with_records(data, **{"problem.classes": None}))
    three = with_records(data, **{"problem.classes": [0, 1, 2]})
    assert "requires exactly 2 classes" in refusal(three)
    three["problem"]["construction"] = {"positive": [3]}
    assert "got [3], expected some of" in refusal(three)
    three["problem"]["construction"] = {"positive": [2]}
    assert build.build_job(load(three)).shards.classes == (0, 1)


def test_the_refusal_of_a_construction_reveals_no_count_of_records(tmp_path: Path) -> None:
    data = write_records(tmp_path, np.arange(60) % 2)
    for table in ({"share": 0.9}, {"keep": {"1": 31}}):
        text = refusal(with_records(data, **{"problem.construction": table}))
        assert "too few train records" in text
        assert not set(re.findall(r"[0-9.]*[0-9]", text.replace(data, ""))) - {"0.9", "31", "1"}


def test_the_share_of_a_construction_is_the_public_one_unless_another_is_given() -> None:
    thinned = {"problem.data": "digits", "problem.scale": "none"}
    thinned["problem.construction"] = {"positive": [5, 6, 7, 8, 9], "share": 0.2}
    for share in (None, 0.3):
        job = build.build_job(load(minimax(**thinned, **{"problem.positive_share": share})))
        assert job.problem.objective.share == (share or 0.2)


# How runs end.


def test_an_infinite_objective_ends_only_runs_without_a_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AucObjective, "scores", lambda *_: {"primal": np.inf})
    made = minimax(**{"algorithm.rounds": 1})
    done = decentral_dp.run(load(without_guarantee(made)))
    assert (done.result["status"], "not finite" in reason_text(done.result)) == ("diverged", True)
    # It reads records, so that no certified run ends by it.
    done = decentral_dp.run(load(made))
    assert (done.result["status"], done.result["reason"], done.result["metrics"]["primal"]) == ("ok", None, np.inf)


def test_the_accuracy_of_an_auc_objective_cuts_at_the_number_of_positive_records() -> None:
    objective = AucObjective(0.5)
    outputs, labels = np.array([[-9.0], [-8.0], [-7.0], [-6.0]]), np.array([0.0, 1.0, 0.0, 1.0])
    scores = objective.test_scores(outputs, labels)
    assert (scores["accuracy"], scores["f1"], scores["auc"]) == (0.5, 0.5, 0.75)
    ordered = objective.test_scores(outputs, np.array([0.0, 0.0, 1.0, 1.0]))
    assert (ordered["accuracy"], ordered["f1"]) == (1.0, 1.0)
