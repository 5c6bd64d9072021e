"""What a minimax scenario cannot say: one sentence, and before a record is read wherever it can be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.central import jobs as coordinator_jobs
from decentral_dp.central.problems.auc import AucObjective
from decentral_dp.cli.main import app
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.simulation.jobs import build
from decentral_dp.simulation.summary import statement_of

MINIMAX = sorted(name for name, entry in ALGORITHMS.items() if entry.setting == "coordinator_minimax")
SAMPLED = [n for n in MINIMAX if "rate" in (o.key for o in ALGORITHMS[n].keys)]


def content(**changes: Any) -> dict[str, Any]:
    """A small scenario; changes by "table.key", None leaves the key out."""
    made: dict[str, Any] = {
        "seed": 3,
        "problem": {
            "kind": "auc_maximisation",
            "data": "breast_cancer",
            "scale": "public_ranges",
            "normalise": "l2",
            "positive_share": 0.6,
        },
        "topology": {"kind": "star", "agents": 5},
        "algorithm": {"kind": "dp_sgda", "rounds": 2, "rate": 0.2, "x": {"scale": 1.0}, "y": {"scale": 0.5}},
        "privacy": {"epsilon": 2.0, "delta": 1e-4, "clip": {"x": 1.0}},
        "run": {"evaluate_every": 1},
    }
    for place, value in changes.items():
        table, _, key = place.partition(".")
        made[table].pop(key, None)
        if value is not None:
            made[table][key] = value
    return made


def refusal(made: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        build.build_job(load(made))
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith(".")
    return said


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record may be read."""
    monkeypatch.setattr(coordinator_jobs, "deal", lambda *a: pytest.fail("records were read before it was refused"))


# Before a record is read


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("kind", SAMPLED)
def test_samples_are_poisson_samples_and_no_key_names_others(kind: str) -> None:
    assert refusal(content(**{"algorithm.kind": kind, "algorithm.sampler": "stratified"})).startswith(
        "algorithm.sampler"
    )


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("problem.validation", 0.5),
        ("problem.validation", "split"),
        ("problem.intercept", True),
        ("problem.stream", {"batch": 5}),
        ("problem.stream", {"kind": "minibatch", "batch": 5}),
        ("problem.corrupt", 0.1),
        ("problem.tasks", 3),
        ("problem.ways", 2),
        ("problem.width", 2),
        ("problem.generator", [4]),
        ("problem.ridge", 0.1),
        ("run.average", 2),
        ("privacy.x", {"scale": 1.0}),
        ("privacy.cap", 3.0),
        ("privacy.box", {"x": 1.0}),
        ("privacy.epsilon", None),
    ],
)
def test_what_no_minimax_problem_takes_is_refused_before_a_record_is_read(place: str, value: Any) -> None:
    assert refusal(content(**{place: value})).startswith(f"{place}: ")


@pytest.mark.usefixtures("unread")
def test_what_a_problem_needs_is_asked_for_before_a_record_is_read() -> None:
    said = refusal(content(**{"problem.positive_share": None}))
    assert said.startswith("problem.positive_share: missing")


@pytest.mark.usefixtures("unread")
def test_only_models_of_minimax_problems_compute_on_a_gpu(scenario: Any) -> None:
    said = refusal(scenario(run={"device": "cuda"}))
    assert said.startswith("run.device: logistic_hyperparameter computes in numpy")
    with pytest.raises(InputError, match=r"run\.device: got .*, wanted .*cpu.* or .*cuda"):
        load(content(**{"run.device": "mps"}))


def test_the_spy_sees_a_read(unread: None) -> None:
    with pytest.raises(pytest.fail.Exception, match="records were read"):
        build.build_job(load(content()))


def test_what_is_taken_is_taken() -> None:
    """The scenario that all these are changes of is sound."""
    job = build.build_job(load(content()))
    assert (job.status, {c.sampling for c in job.ledger.channels}) == ("ok", {"poisson"})


# From the records


def own(folder: Path, labels: np.ndarray) -> str:
    path = folder / "own.npz"
    np.savez(path, X=np.random.default_rng(1).normal(size=(labels.size, 4)), y=labels)
    return str(path)


def owned(data: str, **changes: Any) -> dict[str, Any]:
    return content(**{"problem.data": data, "problem.classes": [0, 1], "problem.scale": None, **changes})


def unprotected(made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "privacy": {"guarantee": "none"}}


@pytest.mark.parametrize(("labels", "absent"), [(0, 1), (1, 0)])
def test_a_declared_class_without_a_record_is_refused_unless_certified(
    tmp_path: Path, labels: int, absent: int
) -> None:
    data = own(tmp_path, np.full(60, labels))
    assert "every record has one label" in refusal(unprotected(owned(data)))
    # Which classes have records is private, and refusing would tell.
    assert build.build_job(load(owned(data))).status == "ok"
    one = np.full(60, labels)
    one[::2] = absent
    for made in (owned(own(tmp_path, one)), unprotected(owned(own(tmp_path, one)))):
        assert build.build_job(load(made)).status == "ok"


def test_a_class_whose_only_records_are_held_out_is_absent(tmp_path: Path) -> None:
    labels = np.r_[np.zeros(40, int), np.ones(20, int)]
    words = np.where(labels == 1, "test", "train")
    path = tmp_path / "split.npz"
    np.savez(path, X=np.random.default_rng(1).normal(size=(60, 4)), y=labels, split=words)
    assert "has the class 1" in refusal(unprotected(owned(str(path))))


def test_a_class_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    data = own(tmp_path, np.arange(60) % 3)
    assert "has a label that is not one of the declared classes [0, 1]" in refusal(owned(data))
    assert "must not discover" in refusal(owned(data, **{"problem.classes": None}))
    three = owned(data, **{"problem.classes": [0, 1, 2]})
    assert "needs exactly 2 classes, and the data have 3" in refusal(three)
    three["problem"]["construction"] = {"positive": [3]}
    assert "got [3], expected some classes of" in refusal(three)
    three["problem"]["construction"] = {"positive": [2]}
    assert build.build_job(load(three)).shards.classes == (0, 1)
    numbers = owned(data, **{"problem.classes": []})
    assert "needs exactly 2 classes, and the data have numbers" in refusal(numbers)
    numbers["problem"]["construction"] = {"positive": [2]}
    assert "expected some classes of []" in refusal(numbers)


def test_a_construction_is_refused_before_anything_is_released(tmp_path: Path) -> None:
    data = own(tmp_path, np.arange(60) % 2)
    for table, words in (({"share": 0.9}, "too few train records"), ({"keep": {"1": 31}}, "too few train records")):
        made = owned(data, **{"problem.construction": table})
        assert words in refusal(unprotected(made))
        # What is asked for is in the scenario; what there is is private.
        said = refusal(made).replace(data, "")
        assert not set(re.findall(r"[0-9.]*[0-9]", said)) - {"0.9", "31", "1"}
    for table, words in (
        ({"shares": 0.1}, "problem.construction.shares: unknown key"),
        ({"share": 0.0}, "problem.construction.share: got 0"),
        ({"share": 1.0}, "problem.construction.share: got 1"),
        ({"keep": {"1": 0}}, "problem.construction.keep.1: got 0, wanted a number of at least 1"),
        ({"positive": 1}, "problem.construction.positive: got 1"),
    ):
        with pytest.raises(InputError) as caught:
            load(owned(data, **{"problem.construction": table}))
        assert words in str(caught.value)


# Seeds


@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.usefixtures("undrawn")
def test_a_report_says_whether_the_noise_can_be_drawn_again(tmp_path: Path, seed: int | None) -> None:
    made = content()
    if seed is None:
        del made["seed"]
    folder = tmp_path / "run"
    run = decentral_dp.run(load(made), out=folder)
    said = run.result["privacy"]["noise"]
    assert said == statement_of(run.simulation()).to_dict()["noise"]
    assert said == ("secret" if seed is None else "reproducible")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert ("This is a simulation:" in page) == (seed is not None)


# What follows from public numbers ------------------------------------------------------------------------------------


def test_a_sample_that_mostly_holds_nobody_is_refused_and_the_named_rate_is_not() -> None:
    said = refusal(content(**{"algorithm.rate": 1e-4}))
    assert said.startswith("algorithm.rate: got 0.0001")
    least = float(said.split("at least ")[1].rstrip("."))
    assert build.build_job(load(content(**{"algorithm.rate": least}))).budget.epsilon.shape


def test_the_share_of_a_construction_is_the_public_one_unless_another_is_given() -> None:
    thinned = {"problem.data": "digits", "problem.scale": "none"}
    thinned["problem.construction"] = {"positive": [5, 6, 7, 8, 9], "share": 0.2}
    alone = build.build_job(load(content(**thinned, **{"problem.positive_share": None})))
    assert alone.problem.objective.share == 0.2
    both = build.build_job(load(content(**thinned, **{"problem.positive_share": 0.3})))
    assert both.problem.objective.share == 0.3


def test_accuracy_is_that_of_the_cut_that_tells_as_many_positive_as_there_are() -> None:
    objective = AucObjective(0.5)
    outputs, labels = np.array([[-9.0], [-8.0], [-7.0], [-6.0]]), np.array([0.0, 1.0, 0.0, 1.0])
    told = objective.test_scores(outputs, labels)
    assert (told["accuracy"], told["f1"], told["auc"]) == (0.5, 0.5, 0.75)
    right = objective.test_scores(outputs, np.array([0.0, 0.0, 1.0, 1.0]))
    assert (right["accuracy"], right["f1"]) == (1.0, 1.0)


def test_what_is_minimised_and_not_finite_is_no_ok_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AucObjective, "scores", lambda *_: {"primal": np.inf})
    made = content(**{"algorithm.rounds": 1})
    done = decentral_dp.run(load({**made, "privacy": {"guarantee": "none"}}))
    assert (done.result["status"], "not finite" in done.result["reason"]) == ("diverged", True)
    # It was infinite from the start, which says what the records are: no certified run ends by it.
    done = decentral_dp.run(load(made))
    assert (done.result["status"], done.result["reason"], done.result["metrics"]["primal"]) == ("ok", None, np.inf)


def test_prices_of_a_scenario_for_another_machine_are_planned_here() -> None:
    said = CliRunner().invoke(app, ["plan", "auc_mnist_imbalanced_full", "--set", "problem.data=digits"])
    assert said.exit_code == 0, said.output
