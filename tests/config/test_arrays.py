"""Training on arrays without a scenario, and components as objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp import algorithms
from decentral_dp.algorithms import DpDsgd
from decentral_dp.config.arrays import PrivacyWarning, ScaleWarning
from decentral_dp.errors import InputError

AGENTS, SIZE = 4, 30
FEATURES = np.random.default_rng(0).uniform(-1.0, 1.0, (AGENTS, SIZE, 3))
LABELS = (FEATURES[:, :, 0] > 0).astype(int)
OWNER = np.repeat(np.arange(AGENTS), SIZE)
COMMON: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "rounds": 5, "set": {"seed": 1}}
DECLARED: dict[str, Any] = {"classes": (0, 1)}


def released(**options: Any) -> Any:
    return decentral_dp.run(**COMMON | DECLARED | options).released["y"]


def test_arrays_with_owners_equal_lists_of_one_array_for_each_agent() -> None:
    flat = released(X=FEATURES.reshape(-1, 3), y=LABELS.reshape(-1), agents=OWNER)
    np.testing.assert_array_equal(released(X=list(FEATURES), y=list(LABELS)), flat)
    frame = pd.DataFrame(FEATURES.reshape(-1, 3), columns=["x0", "x1", "x2"])
    frame = frame.assign(label=LABELS.reshape(-1), site=np.array(list("abcd"))[OWNER])
    np.testing.assert_array_equal(released(X=frame, y="label", agents="site"), flat)
    job = decentral_dp.build(X=frame, y="label", agents="site", **COMMON, **DECLARED)
    assert job.topology.labels == ("a", "b", "c", "d")
    frames = [part.drop(columns=["label", "site"]) for _, part in frame.groupby("site")]
    np.testing.assert_array_equal(released(X=frames, y=list(LABELS)), flat)


def test_a_scenario_reads_lists_of_one_array_for_each_agent() -> None:
    keys = {"problem.scale": {"*": [-1.0, 1.0]}, "problem.classes": [0, 1], "problem.test": 0.0}
    sizes = (30, 20, 10, 25)
    parts = [part[:n] for part, n in zip(FEATURES, sizes, strict=True)]
    labels = [part[:n] for part, n in zip(LABELS, sizes, strict=True)]
    job = decentral_dp.build("dp_dsgd", set=keys, rounds=2, data=(parts, labels))
    assert job.simulation().counts["train"].tolist() == list(sizes)


def test_objects_are_the_components_of_the_job() -> None:
    algorithm = DpDsgd(learning_rate=0.5)
    graph = decentral_dp.graphs.circular_ladder(8)
    job = decentral_dp.build(
        X=FEATURES.reshape(-1, 3),
        y=LABELS.reshape(-1),
        agents=8,
        algorithm=algorithm,
        topology=graph,
        **COMMON,
        **DECLARED,
    )
    assert (job.topology.name, job.n_agents, job.rounds) == ("circular_ladder", 8, 5)
    assert job.algorithm.learning_rate(3) == 0.5
    assert job.algorithm.momentum == 0.0
    assert job.scenario.privacy.epsilon == 4.0
    with pytest.raises(AttributeError, match="no attribute 'spiral'"):
        _ = decentral_dp.graphs.spiral
    with pytest.raises(InputError, match=r"^graphs\.ring: 'str' object .*as in ring\(16\)\.$"):
        decentral_dp.graphs.ring("x")
    with pytest.raises(AttributeError, match="no attribute 'Dsgd'"):
        _ = algorithms.Dsgd


@pytest.mark.parametrize(
    ("labels", "declared", "kind"),
    [
        (LABELS, {}, "classification"),
        (np.where(LABELS > 0, "yes", "no"), {}, "classification"),
        (FEATURES[:, :, 1], {}, "regression"),
        (np.arange(AGENTS * SIZE), {}, "regression"),
        (LABELS, {"label_range": (0.0, 1.0)}, "regression"),
        (np.arange(AGENTS * SIZE), {"classes": range(AGENTS * SIZE)}, "classification"),
    ],
)
def test_labels_decide_the_problem_unless_it_is_declared(labels: Any, declared: Any, kind: str) -> None:
    arrays: dict[str, Any] = {"X": FEATURES.reshape(-1, 3), "y": labels.reshape(-1), "agents": OWNER}
    if declared:
        assert decentral_dp.build(**COMMON, **arrays, **declared).scenario.problem.kind == kind
    else:
        with pytest.warns(PrivacyWarning, match="inferred from y") as warned:
            assert decentral_dp.build(**COMMON, **arrays).scenario.problem.kind == kind
        assert warned[0].filename == __file__


def test_predictions_are_classes_of_raw_features() -> None:
    words = np.where(LABELS > 0, "yes", "no").reshape(-1)
    arrays: dict[str, Any] = {"X": 50.0 + 50.0 * FEATURES.reshape(-1, 3), "y": words, "agents": OWNER}
    run = decentral_dp.run(**COMMON | {"rounds": 100}, **arrays, classes=("no", "yes"), data_range=(0, 100))
    assert np.mean(run.predict(arrays["X"]) == words) > 0.8


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"X": 100.0 * FEATURES}, "Most values of x[012] lie outside data_range"),
        ({"y": 9.0 + LABELS, "classes": None, "label_range": (0, 5)}, "Most values of y lie outside label_range"),
    ],
)
def test_values_outside_the_declared_range_raise_a_warning(arguments: dict[str, Any], text: str) -> None:
    with pytest.warns(ScaleWarning, match=text):
        decentral_dp.build(**{"X": FEATURES, "y": LABELS, **DECLARED, **COMMON, **arguments})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, r"^scenario: missing\. Fix"),
        ({"scenario": "dp_dsgd", "X": FEATURES}, r"^X: cannot be combined with a scenario\. Fix: pass data"),
        ({"X": FEATURES[0], "agents": 3}, r"^y: missing"),
        ({"X": FEATURES[0], "y": LABELS[0]}, r"^agents: missing\. Fix"),
        ({"X": FEATURES.tolist(), "y": LABELS[0]}, r"^y: wrong lengths"),
        ({"X": pd.DataFrame({"a": [1.0], "b": ["x"]}), "y": [0], "agents": 1}, "not numeric in column 2 of the feat"),
        ({"X": list(FEATURES), "y": LABELS[0]}, r"^y: wrong lengths"),
        ({"X": list(FEATURES), "y": 1}, r"^y: wrong lengths"),
        ({"X": list(FEATURES), "y": [0, 1]}, r"^y: wrong lengths"),
        ({"X": [FEATURES[0], FEATURES[1, :, :1]], "y": list(LABELS[:2])}, r"^X, y: shapes differ between agents\. Fix"),
        ({"X": list(FEATURES), "y": list(LABELS), "agents": 4}, r"^agents: cannot be combined with one array"),
        ({"X": FEATURES[0], "y": LABELS[1, :3], "agents": 3}, r"^X, y: wrong shapes"),
        ({"X": FEATURES[0], "y": "label", "agents": 3}, r"^X: no column 'label'"),
        ({"X": FEATURES[0], "y": LABELS[0], "agents": OWNER}, r"^agents: wrong shape"),
        (
            {"X": FEATURES[0], "y": LABELS[0], "agents": 4, "topology": decentral_dp.graphs.ring(5)},
            r"^agents: number of agents differs from the graph \(got 4, expected 5\)\. Fix",
        ),
        ({"X": FEATURES[0], "y": LABELS[0], "agents": 3, "data_range": (1, 0)}, r"^data_range: invalid"),
    ],
)
def test_wrong_arrays_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        decentral_dp.plan(**arguments | DECLARED if "scenario" not in arguments else arguments)


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"X": np.where(FEATURES > 0.9, np.nan, FEATURES)}, "X: row "),
        ({"epsilon": -1.0}, "epsilon: got -1.0"),
        ({"delta": 2}, "delta: got 2"),
        ({"rounds": 2.5}, "rounds: got 2.5"),
        ({"X": FEATURES.reshape(-1, 3), "y": LABELS.reshape(-1), "agents": 0}, "agents: got 0"),
        ({"classes": None, "label_range": (1.0, 0.0)}, "label_range: "),
        ({"mechanism": object()}, "mechanism: "),
        ({"partition": len}, "partition: "),
        # Keys that the caller wrote keep their names.
        ({"set": {"algorithm.learning_rate": -1.0}}, "algorithm.learning_rate.scale: got -1.0"),
    ],
)
@pytest.mark.parametrize("function", [decentral_dp.build, decentral_dp.plan])
def test_errors_name_the_parameter(function: Any, options: dict[str, Any], start: str) -> None:
    with pytest.raises(InputError) as refused:
        function(**{"X": FEATURES, "y": LABELS, **COMMON, **DECLARED, **options})
    assert str(refused.value).startswith(start)


def test_a_sweep_has_a_row_for_every_combination_and_seed() -> None:
    arrays: dict[str, Any] = {"X": list(FEATURES), "y": list(LABELS), **DECLARED}
    graphs = [decentral_dp.graphs.ring(AGENTS), decentral_dp.graphs.star(AGENTS)]
    algorithm = {"small": DpDsgd(learning_rate=0.1), "large": DpDsgd(learning_rate=1.0)}
    table = decentral_dp.sweep(
        **arrays,
        delta=1e-5,
        rounds=3,
        grid={"topology": graphs, "algorithm": algorithm, "privacy.epsilon": [1.0, 4.0]},
        seeds=range(2),
        measure={"norm": lambda run: float(np.linalg.norm(run.released["y"]))},
    )
    assert len(table) == 16
    axes = ["topology", "algorithm", "privacy.epsilon", "seed"]
    assert not table.duplicated(axes).any()
    cell: Any = ("star", "large", 4.0, 1)
    row = table.set_index(axes).loc[cell]
    single = decentral_dp.run(**arrays, **COMMON | {"rounds": 3}, topology=graphs[1], algorithm=algorithm["large"])
    assert row["norm"] == np.linalg.norm(single.released["y"])
    assert row["epsilon_max"] == single.result.privacy.epsilon_max <= 4.0
    with pytest.raises(InputError, match="two values of topology have the same label"):
        decentral_dp.sweep(**arrays, grid={"topology": graphs[:1] * 2}, measure={})


def test_a_sweep_over_sets_of_keys_and_data() -> None:
    records = [(FEATURES[0], labels) for labels in (LABELS[0], 1 - LABELS[0])]
    options: dict[str, Any] = {"rounds": 2, "measure": {"delta": lambda run: run.scenario.privacy.delta}}
    sets = {"strict": {"privacy.delta": 1e-6}, "loose": {"privacy.delta": 1e-4}}
    table = decentral_dp.sweep("dp_dsgd", grid={"set": sets}, seeds=2, **options)
    assert table["delta"].tolist() == [1e-6, 1e-6, 1e-4, 1e-4]
    assert table["seed"].tolist() == [1, 2, 1, 2]
    with pytest.raises(InputError, match=r"^measure: invalid \(expected a dict of name → function"):
        decentral_dp.sweep("dp_dsgd", grid={"set": sets}, **options | {"measure": ["test_accuracy"]})
    with pytest.raises(InputError, match=r"^grid: a value of data has no label\. Fix: pass labels"):
        decentral_dp.sweep("dp_dsgd", grid={"data": records}, **options)
    with pytest.raises(InputError, match=r"^grid: seed cannot be an axis"):
        decentral_dp.sweep("dp_dsgd", grid={"seed": [1, 2]}, **options)
