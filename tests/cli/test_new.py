"""New scenarios: accepted at once, explained, and blind to the records of a CSV file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_wine

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.cli import main as cli
from decentral_dp.cli.new import (
    Options,
    carry_out,
    complete,
    parse_classes,
    parse_ranges,
    placeholders,
    scenario_content,
)
from decentral_dp.cli.new_template import scenario_text
from decentral_dp.config.loading import load, toml_value
from decentral_dp.errors import InputError
from decentral_dp.files.package import shipped_folder

SHIPPED = shipped_folder("scenarios")
RECORDS = SHIPPED / "own_records.csv"
RANGES = {"age": (18, 98), "weight": (40, 140), "pressure": (80, 200), "pulse": (40, 120)}
MINE = Options(csv=RECORDS, label="outcome", classes=["no", "yes"], ranges=RANGES, agents=4)
# It reads trajectories, and a CSV file has none.
UNFIT = ("dptd",)
# Algorithms that have no problem of three classes, and none of numbers.
TWO_CLASSES = (
    "exponential_mechanism",
    "gradient_norm_exponential_mechanism",
    "grid_walk",
    "regularisation_tuner",
    "warm_start",
)
NO_NUMBERS = ("dp_sgda", "gossip_sgda", "privatediff", "privatediff_xy")


def test_neighbours_share_noise_where_few_agents_may_tell(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    carry_out(path, replace(MINE, colluders=1))
    plan = decentral_dp.plan(path)
    assert (plan.privacy.colluders, plan.privacy.shared.epsilon["1"]) == (1, plan.privacy.epsilon_max)
    with pytest.raises(InputError, match=r"^--colluders: the noise of dp_bilevel is its"):
        carry_out(tmp_path / "other.toml", replace(MINE, colluders=1, algorithm="dp_bilevel"))


@pytest.mark.parametrize(
    ("options", "method"),
    [
        ({}, "D-SGD + momentum 0.9, centred features, tail average"),
        ({"topology": "torus", "agents": 16, "epsilon": 50.0}, "D-SGD + centred features, tail average"),
        ({"model": "mlp", "epsilon": 200.0}, "D-SGD + momentum 0.9, tail average"),
        ({"algorithm": "ldp_single_level"}, "D-SGD, combine then adapt + tail average"),
    ],
)
def test_what_is_on_beside_the_algorithm_is_a_key_of_the_file(
    options: dict[str, Any], method: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    carry_out(path, replace(MINE, **options) if "topology" not in options else Options(**options))
    assert decentral_dp.plan(path).method == method
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    for key in ("heavy_ball", "centring"):
        written["algorithm"].pop(key, None)
    del written["run"]["average"]
    if "topology" not in options:
        written["problem"]["data"] = str(RECORDS)
    assert " + " not in decentral_dp.plan(written).method


@pytest.mark.parametrize("kind", [kind for kind in ALGORITHMS if kind not in UNFIT])
def test_what_is_written_of_a_csv_is_planned_at_once(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine" / "new.toml"
    carry_out(path, Options(**{**vars(MINE), "algorithm": kind}))
    scenario = load(path)
    assert (scenario.algorithm.kind, scenario.topology.agents, scenario.seed) == (kind, 4, None)
    plan = decentral_dp.plan(path)
    private = scenario.privacy.guarantee == "certified" and kind != "grid_walk"
    assert (max(plan.epsilon) <= (scenario.privacy.epsilon or 0.0)) == private


def test_it_runs_at_once_and_says_what_every_key_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.toml"
    wanted = {"epsilon": 2.5, "delta": 1e-6, "rounds": 2, "topology": "complete", "algorithm": "ldp_dsbo"}
    carry_out(path, Options(**{**vars(MINE), **wanted}))
    run = decentral_dp.run(path)
    assert run.result.status == "ok"
    assert run.result.privacy.epsilon_max == pytest.approx(2.5, abs=1e-3)
    assert (run.result.privacy.delta, run.result.rounds, run.result.topology["kind"]) == (1e-6, 2, "complete")
    lines = path.read_text().splitlines()
    keys = [k for k, line in enumerate(lines) if " = " in line and not line.startswith(("#", "title"))]
    ranges = lines.index("[problem.scale]")
    told = [k for k in keys if lines[k - 1].startswith("# ") or ranges < k <= ranges + len(RANGES)]
    assert told == keys != []
    assert "PLACEHOLDER" not in path.read_text()
    said = capsys.readouterr().out
    title = tomllib.loads(path.read_text())["title"]
    assert said == f"Written: {path} ({title})\nNext: decentral-dp plan {path}, then decentral-dp run {path}\n"


def test_without_a_wish_it_says_that_all_is_a_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    carry_out(None, Options())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Written: scenario.toml ({tomllib.loads(Path('scenario.toml').read_text())['title']})"
    assert lines[1].startswith("Nothing was asked for, so all of it is a default: --csv FILE --label COLUMN takes")
    assert lines[-1] == "Next: decentral-dp plan scenario.toml, then decentral-dp run scenario.toml"


def test_records_are_not_looked_at(tmp_path: Path) -> None:
    header = RECORDS.read_text().splitlines()[0]
    texts = set()
    for name, record in (("a", "0,train,53,67.8,114,73,no"), ("b", "7,test,999,-1,0,5e9,maybe"), ("c", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.csv").write_text(f"{header}\n{record}\n")
        options = Options(csv=tmp_path / name / "mine.csv", label="outcome")
        content, notes = scenario_content(options, tmp_path / name)
        texts.add(scenario_text(content, notes))
    (text,) = texts
    assert text.count("# PLACEHOLDER: put the public range here") == 4
    assert text.count("PLACEHOLDER: put all labels") == 1
    table = tomllib.loads(text)["problem"]
    assert table["scale"]["age"] == {"low": 0, "high": 1, "placeholder": True}
    assert (table["classes"], table["data"]) == ([0, 1], "mine.csv")


def test_bundled_records_need_no_more(tmp_path: Path) -> None:
    content, notes = scenario_content(Options(agents=5), tmp_path)
    assert set(notes) == {"algorithm", "run.average"}
    assert content["problem"] == {"kind": "classification", "data": "breast_cancer", "scale": "public_ranges"}
    assert (content["algorithm"], content["topology"]) == (
        {"kind": "dp_dsgd", "heavy_ball": 0.9, "centring": True},
        {"kind": "ring", "agents": 5},
    )
    bilevel, notes = scenario_content(Options(agents=5, algorithm="ldp_dsbo"), tmp_path)
    assert notes == {}
    assert (bilevel["problem"]["data"], bilevel["topology"]["agents"]) == ("breast_cancer", 5)
    wine, _ = scenario_content(Options(data="wine", problem="softmax_hyperparameter", agents=5, epsilon=1.0), tmp_path)
    assert decentral_dp.plan(wine).epsilon[0] <= 1.0
    # Keys that a generator or a problem needs besides are filled in.
    regular, _ = scenario_content(Options(topology="random_regular", agents=6), tmp_path)
    assert len(decentral_dp.plan(regular).epsilon) == 6


def test_more_than_two_labels_and_numbers_have_a_problem_that_fits(tmp_path: Path) -> None:
    three, _ = scenario_content(
        Options(csv=RECORDS, label="outcome", classes=["a", "b", "c"], algorithm="ldp_dsbo"), tmp_path
    )
    assert three["problem"]["kind"] == "softmax_hyperparameter"
    options = Options(csv=RECORDS, label="pulse", problem="ridge_hyperparameter", columns={"drop": ["outcome"]})
    numbers, notes = scenario_content(options, tmp_path)
    assert numbers["problem"]["classes"] == []
    assert "problem.classes" not in notes
    assert (numbers["problem"]["label_range"], numbers["problem"]["intercept"]) == ([0, 1], True)
    assert "[0, 1] is a placeholder, and labels are cut." in " ".join(placeholders(notes))


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        ("ridge_hyperparameter", "ldp_dsbo"),
        ("quadratic", "biased"),
        ("ridge_regularisation", "exponential_mechanism"),
    ],
)
def test_a_label_with_a_range_is_a_number_to_predict(kind: str, algorithm: str, tmp_path: Path) -> None:
    ranges = {name: ends for name, ends in RANGES.items() if name != "pulse"}
    # The column of words is left out of the records.
    records = [line.rpartition(",")[0] for line in RECORDS.read_text().splitlines()]
    mine = tmp_path / "mine.csv"
    mine.write_text("\n".join(records) + "\n")
    options = Options(csv=mine, label="pulse", ranges=ranges, label_range=(40, 120), agents=4)
    wanted = {"problem": kind} if algorithm == "biased" else {"algorithm": algorithm}
    path = tmp_path / "new.toml"
    carry_out(path, Options(**{**vars(options), **wanted}))
    scenario = load(path)
    assert (scenario.problem.kind, scenario.problem.classes) == (kind, [])
    assert (scenario.problem.label_range, scenario.problem.intercept) == ([40, 120], True)
    assert "PLACEHOLDER" not in path.read_text()
    run = decentral_dp.run(load(path, ["algorithm.rounds=3"] if algorithm != "exponential_mechanism" else []))
    ending = "" if "test_rmse" in run.result.metrics else "_unreleased"
    # In the unit of the label: the pulse lies between 40 and 120, and nobody is off by less than a beat.
    assert 1.0 < run.result.metrics[f"test_rmse{ending}"] < 80.0
    assert run.result.metrics[f"test_r2{ending}"] < 1.0
    assert set(run.result.baselines) == {"test_rmse", "test_r2"}


@pytest.mark.parametrize("problem", ["logistic_hyperparameter", "softmax_hyperparameter", "ridge_hyperparameter"])
def test_the_step_is_a_tenth_of_the_inverse_smoothness(problem: str, tmp_path: Path) -> None:
    """With an intercept a record has length at most √2; losses have curvature 1/4, 1/2 and 1 along it."""
    label, ranges = ("outcome", {})
    if "ridge" in problem:
        label, ranges = "pulse", {"label_range": (40, 120), "columns": {"binary": ["outcome"]}}
    content, _ = scenario_content(Options(csv=RECORDS, label=label, problem=problem, **ranges), tmp_path)
    curvature = {"logistic": 0.25, "softmax": 0.5, "ridge": 1.0}[problem.partition("_")[0]]
    assert content["algorithm"]["y"]["scale"] == pytest.approx(0.1 / (2.0 * curvature), rel=0.02)
    assert (content["algorithm"]["init"], content["problem"]["intercept"]) == ({"x": -6.0}, True)
    assert content["run"]["average"] == 30
    short, _ = scenario_content(Options(csv=RECORDS, label=label, problem=problem, rounds=20, **ranges), tmp_path)
    assert short["run"]["average"] == 4


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of two classes, of three, and with a number to predict, by the same line."""
    folder = tmp_path_factory.mktemp("labelled")
    draw = np.random.default_rng(0)
    features = draw.uniform(size=(400, 4))
    number = features @ [3.0, -2.0, 1.0, 0.0]
    labels = {
        "two": (number > np.median(number)).astype(int),
        "three": np.digitize(number, np.quantile(number, [1 / 3, 2 / 3])),
        "number": number,
    }
    for name, label in labels.items():
        rows = (",".join(map(str, [*row, y])) for row, y in zip(features.tolist(), label.tolist(), strict=True))
        (folder / f"{name}.csv").write_text("a,b,c,d,target\n" + "\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize("labels", ["two", "three", "number"])
@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a not in UNFIT])
def test_what_is_written_for_any_labels_runs_to_its_end(
    algorithm: str, labels: str, labelled: Path, tmp_path: Path
) -> None:
    about: dict[str, Any] = {
        "two": {"classes": [0, 1]},
        "three": {"classes": [0, 1, 2]},
        "number": {"label_range": (-3.0, 5.0)},
    }[labels]
    ranges = dict.fromkeys("abcd", (0.0, 1.0))
    options = Options(csv=labelled / f"{labels}.csv", label="target", ranges=ranges, algorithm=algorithm, **about)
    if (labels == "three" and algorithm in TWO_CLASSES) or (labels == "number" and algorithm in NO_NUMBERS):
        with pytest.raises(InputError, match=r"^--(classes|label-range): .*Take --"):
            carry_out(tmp_path / "new.toml", options)
        assert not (tmp_path / "new.toml").exists()
        return
    carry_out(tmp_path / "new.toml", options)
    run = decentral_dp.run(load(tmp_path / "new.toml", ["seed=1", "run.evaluate_every=1000"]))
    assert run.result.status == "ok"
    scores = run.metrics[run.metrics["name"].str.startswith("test_")]
    assert len(scores)
    assert np.isfinite(scores["value"]).all()


@pytest.mark.parametrize("algorithm", ["ma_dsbo", "dsbo_jhip", "gbdsbo", "vrdsbo"])
def test_steps_fit_records_that_are_few(algorithm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the steps of the scenarios of their names all of them diverge on breast cancer, in every seed."""
    frame = load_breast_cancer(as_frame=True).frame
    frame.to_csv(tmp_path / "mine.csv", index=False)
    ranges = {c: (0.9 * float(frame[c].min()), 1.1 * float(frame[c].max())) for c in frame.columns[:-1]}
    options = Options(
        csv=tmp_path / "mine.csv", label="target", classes=[0, 1], ranges=ranges, algorithm=algorithm, epsilon=4.0
    )
    carry_out(tmp_path / "new.toml", options)
    assert ("vrdsbo learned next to nothing" in capsys.readouterr().out) == (algorithm == "vrdsbo")
    content = load(tmp_path / "new.toml").model_dump(exclude_unset=True)
    content["algorithm"] = load(algorithm).algorithm.model_dump(exclude_unset=True)
    lost = [decentral_dp.run(load({**content, "seed": s}, folder=tmp_path)).result.status for s in (1, 2, 3)]
    assert "diverged" in lost
    scores = []
    for seed in (1, 2, 3):
        metrics = decentral_dp.run(load(tmp_path / "new.toml", [f"seed={seed}"])).metrics
        rows = metrics[(metrics["name"] == "test_accuracy") & (metrics["agent"] == "mean")]
        scores.append(float(rows["value"].iloc[-1]))
    assert np.isfinite(scores).all()
    if algorithm in ("ma_dsbo", "dsbo_jhip"):
        # The commonest class has 0.63 of the records.
        assert np.mean(scores) > 0.7


@pytest.mark.parametrize(
    ("algorithm", "two", "three", "number", "step"),
    [
        ("ma_dsbo", "logistic_regularisation", "softmax_hyperparameter", "ridge_regularisation", 0.1),
        ("dsbo_jhip", "logistic_regularisation", "biased_regularisation", "quadratic", 0.4),
        ("gbdsbo", "logistic_regularisation", "biased_regularisation", "quadratic", 0.5),
    ],
)
def test_problem_and_steps_follow_from_the_algorithm_and_the_labels(
    algorithm: str, two: str, three: str, number: str, step: float, tmp_path: Path
) -> None:
    """A record with its intercept has length at most √2; losses have curvature 1/4, 1/2 and 1 along it."""
    for labels, kind, curvature in (
        ({"classes": [0, 1]}, two, 0.25),
        ({"classes": [0, 1, 2]}, three, 0.5),
        ({"label_range": (0, 200)}, number, 1.0),
    ):
        options = Options(csv=RECORDS, label="pulse", algorithm=algorithm, columns={"drop": ["outcome"]}, **labels)
        content, _ = scenario_content(options, tmp_path)
        made_of, moved = content["problem"], content["algorithm"]
        pulled = kind in ("biased_regularisation", "quadratic")
        assert made_of["kind"] == kind
        assert made_of.get("ridge") == (0.02 if pulled else None)
        smoothness = 2.0 * curvature + (0.02 if pulled else np.exp(-6.0))
        assert moved["y"]["scale"] == pytest.approx(step / smoothness, rel=0.06)
        assert ("init" in moved, moved["inverse"]) == (not pulled, 1)
        assert (content["run"]["average"], content["privacy"]["share"]) == (moved["rounds"] // 2, {"y": 8.0, "z": 1.0})


@pytest.mark.parametrize("algorithm", ["ma_dsbo", "dsbo_jhip", "gbdsbo"])
def test_three_wines_are_told_apart(algorithm: str, tmp_path: Path) -> None:
    """They beat the majority class; with x in exp(x) a matrix's noise let runs at ε = 1 diverge.

    Over 30 seeds gbdsbo, the worst of them, gains 0.28 over the majority class on the same test records, sd 0.14: the
    mean of five seeds is above 0 by 4.6 standard errors.
    """
    frame = load_wine(as_frame=True).frame
    frame.to_csv(tmp_path / "mine.csv", index=False)
    ranges = {c: (0.9 * float(frame[c].min()), 1.1 * float(frame[c].max())) for c in frame.columns[:-1]}
    options = Options(csv=tmp_path / "mine.csv", label="target", classes=[0, 1, 2], ranges=ranges, algorithm=algorithm)
    carry_out(tmp_path / "new.toml", options)
    gains = []
    for seed in range(1, 6):
        run = decentral_dp.run(load(tmp_path / "new.toml", [f"seed={seed}", "privacy.epsilon=4"]))
        gains.append(run.result.metrics["test_accuracy"] - run.result.baselines["test_accuracy"])
        little = decentral_dp.run(load(tmp_path / "new.toml", [f"seed={seed}", "privacy.epsilon=1"]))
        assert (run.result.status, little.result.status) == ("ok", "ok")
    assert np.mean(gains) > 0.0


@pytest.mark.parametrize("algorithm", ["dp_sgda", "privatediff", "privatediff_xy"])
def test_many_classes_have_the_worst_of_them_minimised(algorithm: str, tmp_path: Path) -> None:
    content, _ = scenario_content(
        Options(csv=RECORDS, label="outcome", classes=["a", "b", "c"], algorithm=algorithm), tmp_path
    )
    assert content["problem"]["kind"] == "group_dro"
    assert "positive_share" not in content["problem"]


def test_shares_are_left_out_where_x_has_a_price(tmp_path: Path) -> None:
    for kind in ("hyper_cleaning", "meta_learning"):
        options = Options(csv=RECORDS, label="outcome", classes=["no", "yes"], problem=kind)
        carry_out(tmp_path / f"{kind}.toml", Options(**{**vars(options), "ranges": RANGES}))
        assert load(tmp_path / f"{kind}.toml").privacy.share == {}


@pytest.mark.parametrize("algorithm", ["spdb", "dp_bilevel"])
def test_steps_of_other_algorithms_stay_those_of_their_scenario(algorithm: str, tmp_path: Path) -> None:
    content, _ = scenario_content(Options(csv=RECORDS, label="outcome", algorithm=algorithm), tmp_path)
    assert content["algorithm"].get("y") == load(algorithm).algorithm.model_dump(exclude_unset=True).get("y")


@pytest.mark.parametrize("algorithm", ["spdb", "bsa", "dp_bilevel"])
def test_steps_for_a_logistic_loss_are_shortened_for_squared_errors(algorithm: str, tmp_path: Path) -> None:
    """Along a record these have four times the curvature: with the scenario's own steps y runs away, without noise."""
    draw = np.random.default_rng(2)
    # Features that crowd at one end of their ranges, so that all records point the same way.
    features = draw.uniform(size=(400, 4)) ** 4
    table = np.column_stack([features, features @ [3.0, -2.0, 1.0, 0.0]])
    np.savetxt(tmp_path / "mine.csv", table, delimiter=",", header="a,b,c,d,target", comments="")
    path, ranges = tmp_path / "new.toml", dict.fromkeys("abcd", (0.0, 1.0))
    options = Options(csv=tmp_path / "mine.csv", label="target", label_range=(-3.0, 5.0), ranges=ranges, agents=2)
    carry_out(path, Options(**{**vars(options), "algorithm": algorithm}))
    content = load(path).model_dump(exclude_unset=True)
    steps = load(algorithm).algorithm.model_dump(exclude_unset=True)
    longer = {key: steps[key] for key in ("y", "smoothness") if key in steps}
    scores = []
    for changes in ({}, longer):
        changed = {**content, "seed": 1, "algorithm": {**content["algorithm"], **changes}}
        quiet = load(changed, ["privacy.guarantee=none", "run.evaluate_every=1000"], folder=tmp_path)
        result = decentral_dp.run(quiet).result
        scores.append(result.metrics.get("test_r2", -np.inf) if result.status == "ok" else -np.inf)
    assert scores[0] > 0.0
    assert scores[1] < min(0.0, scores[0] - 0.1)


def made_up(path: Path) -> dict[str, tuple[float, float]]:
    """Two classes apart by a line that does not go through the middle of the ranges."""
    draw = np.random.default_rng(1)
    age, hours = draw.integers(18, 80, 1500), draw.normal(40.0, 12.0, 1500)
    label = 0.05 * (age - 55) + 0.05 * (hours - 40) + 0.5 * draw.logistic(size=1500) > 0.0
    rows = (f"{a},{h:.1f},{int(y)}" for a, h, y in zip(age, hours, label, strict=True))
    path.write_text("age,hours,rich\n" + "\n".join(rows) + "\n")
    return {"age": (18, 90), "hours": (0, 100)}


def test_what_is_written_learns(tmp_path: Path) -> None:
    ranges = made_up(tmp_path / "mine.csv")
    asked = Options(csv=tmp_path / "mine.csv", label="rich", classes=[0, 1], ranges=ranges)
    carry_out(tmp_path / "train.toml", asked)
    trained = decentral_dp.run(load(tmp_path / "train.toml", ["seed=1"])).result
    assert trained.privacy.epsilon_max == pytest.approx(4.0, abs=1e-3)
    assert trained.metrics["test_accuracy"] > trained.baselines["test_accuracy"] + 0.1
    carry_out(tmp_path / "new.toml", replace(asked, algorithm="ldp_dsbo"))
    run = decentral_dp.run(load(tmp_path / "new.toml", ["seed=1"]))
    assert run.result.privacy.epsilon_max == pytest.approx(4.0, abs=1e-3)
    assert run.result.metrics["test_accuracy"] > run.result.baselines["test_accuracy"] + 0.1
    assert run.result.learning == ()
    # As it was written before: short steps, a strong start and no intercept.
    slow = ["algorithm.y.scale=0.0005", "algorithm.init.x=-3", "problem.intercept=false", "run.average=1", "seed=1"]
    result = decentral_dp.run(load(tmp_path / "new.toml", slow)).result
    assert "still fell in the last rounds" in result.learning[0]
    assert "x, hardly moved from its start" in result.learning[1]
    result = decentral_dp.run(load(tmp_path / "new.toml", ["privacy.epsilon=0.02", "seed=1"])).result
    assert result.learning[0].startswith("The run learned little: the test accuracy of 0.")
    assert 'privacy.guarantee = "none" shows it' in result.learning[-1]


def test_placeholders_are_said_by_plan_and_run(tmp_path: Path) -> None:
    made_up(tmp_path / "mine.csv")
    path = tmp_path / "new.toml"
    asked = Options(csv=tmp_path / "mine.csv", label="rich", classes=[0, 1], ranges={"age": (18, 50)})
    carry_out(path, replace(asked, algorithm="ldp_dsbo"))
    said = "The range of hours in problem.scale is still a placeholder"
    assert any(said in note for note in decentral_dp.plan(path).privacy.notes)
    result = decentral_dp.run(load(path, ["algorithm.rounds=2"])).result
    assert any(said in note for note in result.problem["notes"])
    assert list(result.features_cut) == ["hours", "age"]
    assert result.features_cut["hours"] > 0.99
    assert 0.4 < result.features_cut["age"] < 0.6
    mended = load(path, ["problem.scale.hours=[-100, 200]", "problem.scale.age=[0, 120]", "algorithm.rounds=2"])
    result = decentral_dp.run(mended).result
    assert (result.features_cut, result.problem["notes"]) == ({}, [])


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Answers to be given, first to last; an empty one takes what is proposed."""
    answers: list[str] = []

    def prompt(text: str, default: Any = "", type: Any = str, show_default: bool = True) -> Any:
        answer = answers.pop(0)
        return type(answer) if answer else default

    monkeypatch.setattr("typer.prompt", prompt)
    yield answers
    assert answers == []


def test_what_is_not_given_is_asked_for(terminal: list[str]) -> None:
    terminal += [str(RECORDS), "outcome", "no, yes", "18:98", "", "80:200.5", "40:120", "", "star", "7", "2.5"]
    found = complete(Options())
    assert (found.csv, found.label, found.classes) == (RECORDS, "outcome", ["no", "yes"])
    assert found.ranges == {"age": (18, 98), "pressure": (80, 200.5), "pulse": (40, 120)}
    assert (found.algorithm, found.topology, found.agents, found.epsilon) == ("dp_dsgd", "star", 7, 2.5)
    terminal += ["pulse", "40:120", *[""] * 4, "", "", "7", "2.5"]
    assert complete(Options(csv=RECORDS)).label_range == (40, 120)
    # A column of words.
    terminal += ["outcome", "no, yes", "18:98", "", "low, high", "yes,", "", "", "7", "2.5"]
    words = complete(Options(csv=RECORDS))
    assert words.ranges == {"age": (18, 98)}
    assert words.columns["categories"] == {"pressure": ["low", "high"], "pulse": ["yes"]}
    terminal += ["outcome", "no, yes", "18-98"]
    with pytest.raises(InputError, match="wanted LOW:HIGH"):
        complete(Options(csv=RECORDS))
    # What is given is not asked again.
    terminal += ["ma_dsbo", ""]
    again = complete(Options(data="wine", agents=3, epsilon=1.0))
    assert (again.algorithm, again.topology) == ("ma_dsbo", "ring")


COMMON = ["--csv", str(RECORDS), "--label", "outcome"]
MINIMAX = ["--algorithm", "dp_sgda"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["taken.toml", *COMMON], '"taken.toml" exists already, and nothing is written over'),
        (["--csv", str(RECORDS)], '--label: missing. Fix: name the label column of "'),
        (["--csv", "nowhere.csv", "--label", "x"], "cannot be read: No such file"),
        (["--csv", str(RECORDS), "--label", "outcom"], "column 7 has a similar name"),
        ([*COMMON, "--range", "agee=1:2"], 'no feature column; did you mean "age"'),
        ([*COMMON, "--range", "outcome=1:2"], "no feature column"),
        ([*COMMON, "--range", "age=5:2"], "of which the first is smaller"),
        ([*COMMON, "--range", "age=1:inf"], "of which the first is smaller"),
        ([*COMMON, "--range", "age"], '--range: got "age", wanted COLUMN=…, for example "x=0:120"'),
        ([*COMMON, "--classes", "no"], "wanted at least two labels"),
        ([*COMMON, "--classes", "0,1,1.0"], "--classes: got 1.0 more than once"),
        ([*COMMON, "--classes", "no,yes, no"], '--classes: got "no" more than once'),
        ([*COMMON, "--classes", "0,nan"], "--classes: nan is no label"),
        ([*COMMON, "--classes", "0,1,-inf"], "--classes: -inf is no label"),
        ([*COMMON, "--classes", "no,,yes"], "in which a label is empty"),
        ([*COMMON, "--classes", "no,yes", "--problem", "quadratic"], "--classes: quadratic predicts numbers"),
        ([*COMMON, "--classes", "a,b,c", "--problem", "auc_maximisation", *MINIMAX], "Take --problem group_dro"),
        ([*COMMON, "--range", "age=1:2", "--range", "age=1:3"], '--range: "age" is named twice'),
        ([*COMMON, "--algorithm", "ma_dsbo", "--problem", "group_dro"], "for bilevel problems"),
        ([*COMMON, *MINIMAX, "--problem", "quadratic"], "for minimax problems"),
        (["--data", "wine", "--algorithm", "ma_dsbo", "--problem", "dro"], "for bilevel problems"),
        ([*COMMON, "--problem", "from_losses"], 'there is no "losses.py"'),
        ([*COMMON, "--topology", "hypercube", "--agents", "5"], "needs a power of two agents"),
        ([*COMMON, "--agents", "1"], "needs at least 2 agents"),
        (["--csv", str(SHIPPED), "--label", "x"], "cannot be read: Is a directory"),
        ([*COMMON, "--label-range", "5:2"], "of which the first is smaller"),
        ([*COMMON, "--label-range", "1:2", "--classes", "no,yes"], "--classes says that labels are classes"),
        ([*COMMON, "--label-range", "1:2", "--problem", "logistic_hyperparameter"], "predicts classes"),
        ([*COMMON, "--label-range", "1:2", "--algorithm", "privatediff"], "predicts classes"),
        (["--label-range", "1:2"], "--csv: missing"),
        ([*COMMON, "--epsilon", "-1"], "privacy.epsilon: got -1.0"),
        ([*COMMON, "--agents", "0"], "topology.agents: got 0"),
        ([*COMMON, "--classes", "0,1", "--model", "mlp", "--agents", "0"], "topology.agents: got 0"),
        ([*COMMON, "--data", "wine"], "Give one of the two"),
        ([*COMMON, "--algorithm", "dptd"], "reads trajectories"),
        ([*COMMON, "--algorithm", "scdro", "--epsilon", "1"], "adds no noise and has no ε"),
        (["--algorithm", "ldp_dsb"], "the nearest is 'ldp_dsbo'"),
        (["--problem", "quadratik"], "the nearest is 'quadratic'"),
        (["--topology", "rign"], 'did you mean "ring"'),
        (["--data", "wein"], "the nearest is 'wine'"),
        (["--label", "x"], "--csv: missing"),
        (["one.toml", "--out", "two.toml"], "Give one of the two"),
        (["--out", "taken.toml"], "exists already"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken.toml").write_text("mine")
    monkeypatch.setattr("sys.argv", ["decentral-dp", "new", *arguments])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"taken.toml": "mine"}


@pytest.mark.parametrize(
    ("text", "label", "sentence"),
    [
        ("a;b;target\n1;2;0\n", "target", "has semicolons in its first line"),
        ("a;b;target\n1;2;0\n", "a;b;target", "has semicolons in its first line"),
        ("a\tb\n1\t0\n", "b", "has tabs in its first line"),
        ("a|b\n1|0\n", "b", "has vertical bars in its first line"),
        ("target\n1\n0\n", "target", "has no feature columns beside"),
        ("agent,split,target\n1,train,0\n", "target", "has no feature columns beside"),
        ("agent,a,target\n1,2,0\n", "agent", "says who holds a record"),
        ("split,a,target\n1,2,0\n", "split", "says the part"),
        ("17,2.5,1\n18,3.5,0\n", "1", "column 1 has a number in place of a name"),
        ("", "target", "is empty"),
        ("a,a,target\n", "target", "columns 1 and 2 have one name"),
    ],
)
def test_columns_that_cannot_be_meant_are_refused_and_no_record_is_said(
    text: str, label: str, sentence: str, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text(text)
    with pytest.raises(InputError) as refused:
        carry_out(tmp_path / "new.toml", Options(csv=mine, label=label, classes=[0, 1]))
    assert sentence in str(refused.value)
    # The first line is a record where there is no header.
    assert "2.5" not in str(refused.value)
    assert not (tmp_path / "new.toml").exists()


@pytest.mark.parametrize("place", [["mine.toml"], ["--out", "mine.toml"], ["mine.toml", "--out", "mine.toml"]])
def test_the_file_is_an_argument_or_an_option(
    place: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["decentral-dp", "new", "--data", "wine", "--agents", "3", *place])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert [p.name for p in tmp_path.iterdir()] == ["mine.toml"]
    assert load(tmp_path / "mine.toml").topology.agents == 3


def test_labels_and_ranges_are_read_as_numbers_where_they_are() -> None:
    assert parse_classes("0, 1,2.5,no") == [0, 1, 2.5, "no"]
    assert parse_ranges(["a=b=-1:+2e3"]) == {"a=b": (-1, 2000.0)}
    with pytest.raises(InputError, match="wanted LOW:HIGH"):
        parse_ranges(["a=1:2:3"])


TOML = st.recursive(
    st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(TOML)
def test_values_are_written_as_they_are_read(value: Any) -> None:
    line = f"v = {toml_value(value)}"
    assert tomllib.loads(line)["v"] == value


def test_the_picture_of_x_has_the_names_of_the_columns(tmp_path: Path) -> None:
    carry_out(tmp_path / "new.toml", replace(MINE, algorithm="ldp_dsbo"))
    run = decentral_dp.run(load(tmp_path / "new.toml", ["algorithm.rounds=2", "algorithm.x.scale=1e4"]))
    assert run.result.problem["x_names"] == ["age", "weight", "pressure", "pulse", "intercept"]
    (axes,) = run.plot.upper_variable().figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == run.result.problem["x_names"]
    # Made-up features have numbers for names.
    assert "x_names" not in decentral_dp.run(load("paper_synthetic", ["algorithm.rounds=2"])).result.problem


HOSPITAL = "patient_id,hospital,ward,sex,admitted,age,bmi,income,smoker,died\n"
SAID = [
    *("--category", "ward=surgery,icu", "--category", "sex=f", "--fill", "bmi=27", "--log", "income"),
    *("--binary", "smoker", "--date", "admitted=2015-01-01:2025-12-31", "--agents", "hospital=north,south"),
    *("--ranges", "ranges.csv", "--classes", "0,1", "--label", "died", "--csv", "hospital.csv"),
]


def new(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of the command `new`."""
    monkeypatch.setattr("sys.argv", ["decentral-dp", "new", *arguments])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def hospital(folder: Path, records: int = 400) -> None:
    draw = np.random.default_rng(4)
    rows = []
    for k in range(records):
        smoker, age = int(draw.integers(2)), int(draw.integers(18, 95))
        died = int(draw.random() < 1 / (1 + np.exp(2.0 - 2.5 * smoker - 0.05 * (age - 55))))
        cells = [f"p{k}", ["north", "south"][k % 2], str(draw.choice(["surgery", "icu", "eye"])), "mf"[k % 3 == 0]]
        cells += [f"20{draw.integers(10, 24)}-03-0{draw.integers(1, 9)}", str(age), ["", "31.5"][k % 4 > 0], "20000"]
        rows.append(",".join([*cells, str(smoker), str(died)]))
    (folder / "hospital.csv").write_text(HOSPITAL + "\n".join(rows) + "\n")
    (folder / "ranges.csv").write_text("name,low,high\nage,18,100\nbmi,15,50\nincome,0,200000\n")


def test_a_table_with_words_gaps_and_dates_is_written_planned_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    hospital(tmp_path)
    assert new(["new.toml", *SAID], monkeypatch) == 0
    assert "PLACEHOLDER" not in Path("new.toml").read_text()
    table = tomllib.loads(Path("new.toml").read_text())["problem"]
    assert table["columns"] == {
        "categories": {"ward": ["surgery", "icu"], "sex": ["f"]},
        "fill": {"bmi": 27},
        "date": {"admitted": "2015-01-01:2025-12-31"},
        "log": ["income"],
        "binary": ["smoker"],
        # By its name.
        "drop": ["patient_id"],
    }
    assert table["partition"] == {"kind": "column", "name": "hospital", "agents": ["north", "south"]}
    assert table["scale"] == {"age": [18, 100], "bmi": [15, 50], "income": [0, 200000]}
    assert max(decentral_dp.plan("new.toml").epsilon) <= 4.0
    result = decentral_dp.run(load("new.toml", ["seed=1", "algorithm.rounds=200"])).result
    assert result.metrics["test_auc"] > 0.7
    # Where somebody else's hospital is in the file, the refusal names the row, and the place to mend.
    text = Path("hospital.csv").read_text().replace("north", "west", 1)
    Path("hospital.csv").write_text(text)
    with pytest.raises(InputError, match=r"row 1 has an agent that problem\.partition\.agents does not list"):
        decentral_dp.plan("new.toml")


def test_what_names_suggest_is_proposed_and_dates_are_placeholders(tmp_path: Path) -> None:
    hospital(tmp_path)
    options = Options(csv=tmp_path / "hospital.csv", label="died", columns={"categories": {"ward": ["icu"]}})
    with pytest.raises(InputError, match="the first record holds no number in columns 2, 4"):
        scenario_content(options, tmp_path)
    words = {"ward": ["icu"], "sex": ["f"], "hospital": ["north"]}
    options = replace(options, columns={"categories": words})
    content, notes = scenario_content(options, tmp_path)
    assert content["problem"]["columns"]["drop"] == ["patient_id"]
    assert content["problem"]["columns"]["date"] == {"admitted": "0001-01-01:9999-12-31"}
    assert "proposed by the names" in notes["problem.columns.drop"]
    assert "Put public dates into problem.columns.date" in " ".join(placeholders(notes))
    assert set(content["problem"]["scale"]) == {"age", "bmi", "income", "smoker"}
    # What is said of a column goes before what its name suggests.
    ranged = replace(options, ranges={"admitted": (0, 9), "patient_id": (0, 5)})
    assert set(scenario_content(ranged, tmp_path)[0]["problem"]["columns"]) == {"categories"}
    content["problem"] |= {"partition": "iid", "scale": {"*": [0, 1]}}
    content["problem"]["columns"]["fill"] = {"bmi": 27}
    notes_of_plan = decentral_dp.plan(load(content, folder=tmp_path)).privacy.notes
    assert any("The dates of admitted in problem.columns are still" in note for note in notes_of_plan)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            ["--drop", "patient"],
            "problem.columns.drop: 'hospital.csv' has no column \"patient\"; column 1 has a similar",
        ),
        (["--drop", "ward"], '"ward" is listed in categories and drop. Keep one of them'),
        (["--fill", "bmi"], '--fill: got "bmi", wanted COLUMN=…, for example "x=27"'),
        (["--fill", "bmi=28"], '--fill: "bmi" is named twice'),
        (["--binary", "died"], 'problem.columns.binary: "died" says what the label'),
        (["--date", "age=2025-01-01:2015-01-01"], "two dates of which the first is earlier"),
        (["--range", "smoker=0:1"], '--range: "smoker" needs none, by what is said of the column'),
        (["--range", "age=0:1"], '--range: "age" is named twice'),
        (
            ["--agents", "hospitl=a,b"],
            "problem.partition: 'hospital.csv' has no column 'hospitl'; column 2 has a similar",
        ),
        (["--agents", "many"], '--agents: got "many", wanted a number, or COLUMN=NAME,NAME'),
        (["--agents", "hospital=a,,b"], "in which a label is empty"),
        (["--agents", "hospital=a,a"], 'agents lists "a" twice'),
        (["--ranges", "nowhere.csv"], "--ranges: 'nowhere.csv' cannot be read"),
        (["--ranges", "hospital.csv"], "has no column 'feature'"),
    ],
)
def test_wrong_words_on_columns_are_refused(
    changed: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    hospital(tmp_path, 3)
    assert new(["new.toml", *SAID, *changed], monkeypatch) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not Path("new.toml").exists()


@pytest.mark.parametrize(
    "words", [["--drop", "id"], ["--binary", "id"], ["--range", "id=0:1"], ["--fill", "id=1"], ["--log", "id"]]
)
def test_cells_of_a_file_without_a_header_are_not_printed(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nh.csv").write_text("Miller,Berlin,flu,yes\nMoore,Paris,none,no\n")
    assert new(["new.toml", "--csv", "nh.csv", "--label", "yes", *words], monkeypatch) == 2
    said = capsys.readouterr().err
    assert '"id"' in said
    assert not any(cell in said for cell in ("Miller", "Berlin", "flu"))


@pytest.mark.parametrize(("model", "kind"), [("mlp", "mlp"), ("cnn", "cnn"), ("linear", "linear")])
def test_a_network_needs_no_setting_by_hand(tmp_path: Path, model: str, kind: str) -> None:
    path = tmp_path / "mine.toml"
    carry_out(path, Options(data="digits", model=model, agents=5))
    plan = decentral_dp.plan(path)
    given = tomllib.loads(path.read_text())["problem"]["model"]
    assert (given if isinstance(given, str) else given["kind"]) == kind
    assert plan.settings_text.startswith("1000 rounds of step ")


@pytest.mark.parametrize(("epsilon", "kind"), [(1.0, "linear"), (8.0, "mlp")])
def test_a_network_that_noise_leaves_little_of_is_written_as_a_linear_model(
    tmp_path: Path, epsilon: float, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the plan of the network says, which knows the records; `new` counts their lines."""
    names = [f"v{k}" for k in range(14)]
    rows = [f"{','.join(['0.5'] * 14)},{k % 2}" for k in range(4000)]
    (tmp_path / "t.csv").write_text("\n".join([",".join([*names, "y"]), *rows]) + "\n")
    ranges = dict.fromkeys(names, (0.0, 1.0))
    asked = Options(csv=tmp_path / "t.csv", label="y", classes=[0, 1], ranges=ranges, agents=5)
    carry_out(tmp_path / "mine.toml", replace(asked, model="mlp", epsilon=epsilon))
    given = tomllib.loads((tmp_path / "mine.toml").read_text())["problem"]["model"]
    assert (given if isinstance(given, str) else given["kind"]) == kind
    assert ("a linear model may learn more where it fits" in capsys.readouterr().out) == (kind == "linear")
    content = tomllib.loads((tmp_path / "mine.toml").read_text())
    content["problem"] |= {"model": {"kind": "mlp", "widths": [64]}, "data": str(tmp_path / "t.csv")}
    plan = decentral_dp.plan(content)
    assert ("a linear model may learn more" in plan.settings_text) == (kind == "linear")


def test_a_model_is_of_one_level(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--model: it is of problems of one level"):
        carry_out(tmp_path / "mine.toml", Options(data="digits", model="mlp", algorithm="ldp_dsbo"))
