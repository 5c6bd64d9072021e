"""Records and graphs in memory where a file would be: the same run as from the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.files.package import shipped_folder
from decentral_dp.simulation.jobs.build import build_job as build

RECORDS = shipped_folder("scenarios") / "own_records.csv"
FEW = ["algorithm.rounds=2"]


def shards(**given: Any) -> Any:
    return build(load("own_csv", FEW), **given).shards


def test_a_data_frame_is_what_its_csv_is() -> None:
    frame = pd.read_csv(RECORDS)
    from_file, given = shards(), shards(data=frame)
    assert np.array_equal(given.features, from_file.features)
    assert np.array_equal(given.labels, from_file.labels)
    assert (given.classes, given.feature_names) == (from_file.classes, from_file.feature_names)
    for part in ("train", "validation"):
        pairs = zip(getattr(given, part), getattr(from_file, part), strict=True)
        assert all(np.array_equal(*pair) for pair in pairs)
    assert np.array_equal(given.test, from_file.test)
    # The order of columns, the index and the type of text are nobody's business.
    turned = frame[frame.columns[::-1]].set_index(np.arange(len(frame)) + 7).astype({"outcome": "category"})
    again = shards(data=turned)
    assert sorted(again.feature_names) == sorted(given.feature_names)
    assert np.array_equal(again.labels, given.labels)
    assert decentral_dp.run(load("own_csv", FEW), data=frame).result.status == "ok"


def test_a_scenario_without_records_takes_those_that_are_given() -> None:
    frame = pd.read_csv(RECORDS)
    # Without noise: its draws depend on the whole scenario, and so on what problem.data says.
    named = load("own_csv", [*FEW, "privacy.guarantee=none"])
    content = named.model_dump(exclude_unset=True)
    del content["problem"]["data"]
    expected = decentral_dp.run(named, data=frame)
    assert np.array_equal(decentral_dp.run(content, data=frame).released["y"], expected.released["y"])
    assert list(decentral_dp.plan(content, data=frame).epsilon) == list(expected.simulation().budget.epsilon)
    assert build(content, data=frame).shards.n_agents == shards().n_agents
    with pytest.raises(InputError, match=r"problem\.data: missing"):
        decentral_dp.run(content)


def test_a_single_class_and_all_columns_of_words_are_refused() -> None:
    frame = pd.read_csv(RECORDS)
    alike = frame.assign(outcome="no")
    with pytest.raises(InputError, match="every record has one label"):
        build(load("own_csv", [*FEW, "privacy.guarantee=none"]), data=alike)
    # A certified run ends as ever: how it ends must not reveal the records.
    assert decentral_dp.run(load("own_csv", FEW), data=alike).result.status == "ok"
    with pytest.raises(InputError, match=r"categories\.NAME"):
        shards(data=frame.assign(age="old", pulse="high"))


def test_classes_may_be_truth_values() -> None:
    frame = pd.read_csv(RECORDS)
    named = load("own_csv", [*FEW, "problem.classes=[false, true]"])
    given = build(named, data=frame.assign(outcome=frame["outcome"] == "yes")).shards
    assert given.classes == (0, 1)
    assert np.array_equal(given.labels, shards().labels)


def test_columns_of_other_names() -> None:
    frame = pd.read_csv(RECORDS).rename(columns={"agent": "clinic", "split": "part"})
    named = load("own_csv", [*FEW, 'problem.partition.name="clinic"', 'problem.validation="part"'])
    given = build(named, data=frame).shards
    assert np.array_equal(given.features, shards().features)


def test_features_of_a_frame_keep_their_names() -> None:
    frame = pd.read_csv(RECORDS)
    content = load("own_csv", FEW).model_dump(exclude_unset=True)
    content["problem"] = {k: v for k, v in content["problem"].items() if k not in ("label", "partition", "validation")}
    names = ["age", "weight", "pressure", "pulse"]
    given = build(content, data=(frame[names], frame["outcome"])).shards
    assert given.feature_names == tuple(names)
    with pytest.raises(InputError, match=r"no feature '[a-z]+'\."):
        build(content, data=(frame[names].to_numpy(), frame["outcome"].to_numpy()))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f.drop(columns="outcome"), "problem.label: .* has no column 'outcome'"),
        (lambda f: f.drop(columns="agent"), "problem.partition: .* has no column 'agent'"),
        (
            lambda f: f.assign(age="old"),
            r"does not hold a finite number\. .*categories\.NAME",
        ),
        (lambda f: f.assign(age=np.nan), r"row 1, column \d does not hold a value\. .*fill\.NAME"),
        (lambda f: f.set_axis([*f.columns[:-2], "age", "outcome"], axis=1), "two columns of one name"),
    ],
)
def test_frames_that_cannot_be_used_are_refused(change: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        shards(data=change(pd.read_csv(RECORDS)))


def test_a_frame_needs_the_name_of_its_label_and_arrays_have_none() -> None:
    content = load("own_csv", FEW).model_dump(exclude_unset=True)
    with pytest.raises(InputError, match=r"^problem\.label"):
        build(content, data=(np.ones((3, 4)), np.ones(3)))
    del content["problem"]["label"]
    with pytest.raises(InputError, match=r"problem\.label: missing"):
        build(content, data=pd.read_csv(RECORDS))


def test_a_graph_is_what_its_edges_are(tmp_path: Any) -> None:
    graph = nx.path_graph(4)
    given = build(load("own_csv", FEW), topology=graph).topology
    named = build(load("own_csv", FEW)).topology
    assert np.array_equal(given.mixing.toarray(), named.mixing.toarray())


def test_a_plan_takes_what_a_run_takes() -> None:
    frame, graph = pd.read_csv(RECORDS), nx.path_graph(4)
    plan = decentral_dp.plan(load("own_csv", FEW), data=frame, topology=graph)
    assert plan.epsilon == decentral_dp.plan(load("own_csv", FEW)).epsilon


def test_what_is_said_of_an_object_names_it_and_no_file() -> None:
    frame = pd.read_csv(RECORDS).assign(agent=-1)
    with pytest.raises(
        InputError,
        match=r"has an agent that is no whole number from 0. Number agents 0, 1, …, or list their names",
    ):
        shards(data=frame)
    with pytest.raises(
        InputError, match='"file" needs a file, or a graph, with one weight above 0 for every link; give them'
    ):
        build(load("quadratic", ['topology.weights="file"']), topology=nx.path_graph(5))
    with pytest.raises(InputError, match="2 strongly connected components"):
        build(load("quadratic"), topology=nx.DiGraph([(0, 1)]))


def test_a_function_is_called_by_its_name() -> None:
    def wheel(nodes: int) -> Any:
        return nx.wheel_graph(nodes)

    def petersen() -> Any:
        return nx.petersen_graph()

    with pytest.raises(InputError, match=r"^topology\.nodes: missing.*wheel says what it takes"):
        build(load("quadratic"), topology=wheel)
    with pytest.raises(InputError, match=r"petersen gives 10 agents, and 5 were asked for"):
        build(load("quadratic", ["topology.agents=5"]), topology=petersen)
    assert build(load("quadratic", ["topology.agents=10"]), topology=petersen).n_agents == 10


def test_a_function_without_agents_gives_a_graph_of_its_own_size(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import networkx as nx\ndef petersen() -> nx.Graph:\n    return nx.petersen_graph()\n"
        "def barbell(half: int):\n    return nx.barbell_graph(half, 0)\n"
        "def pairs(agents: int):\n    return [(k, k + 1) for k in range(agents - 1)]\n"
    )
    content = load("quadratic").model_dump(exclude_unset=True)
    for table, agents in (
        ({"kind": "mine:petersen"}, 10),
        ({"kind": "mine:petersen", "agents": 10}, 10),
        ({"kind": "mine:barbell", "half": 3}, 6),
    ):
        assert build(load({**content, "topology": table}, folder=tmp_path)).n_agents == agents
    for table, said in (
        ({"kind": "mine:barbell"}, r"^topology\.half: missing"),
        ({"kind": "mine:pairs"}, r"^topology\.agents: missing\. Say how many agents the graph is to have"),
        ({"kind": "ring"}, "a generator needs agents"),
    ):
        with pytest.raises(InputError, match=said):
            build(load({**content, "topology": table}, folder=tmp_path))


def test_a_class_in_place_of_an_object_is_refused() -> None:
    from decentral_dp.algorithms.gossip.ldp_dsbo import LdpDsbo

    with pytest.raises(InputError, match=r"^algorithm: got the class LdpDsbo; wanted an object of it, LdpDsbo\(…\)"):
        decentral_dp.plan("quadratic", algorithm=LdpDsbo)


def test_numpy_scalars_and_arrays_are_python_numbers_and_lists() -> None:
    integer, real = np.int64, np.float64
    content = {
        "seed": integer(1),
        "problem": {"kind": np.str_("classification"), "scale": {"*": np.array([-1.0, 1.0])}},
        "topology": {"kind": "ring", "agents": integer(4)},
        "algorithm": {"rounds": integer(2)},
        "privacy": {"mechanism": "gaussian", "epsilon": real(4.0), "delta": real(1e-5)},
    }
    features = np.linspace(-1.0, 1.0, 80).reshape(40, 2)
    records = {"features": features, "labels": np.arange(40) % 2, "classes": np.array([0, 1])}
    made = build(content, data=records | {"feature_names": np.array(["a", "b"]), "image": np.array([1, 2, 1])})
    assert (made.shards.classes, made.shards.feature_names, made.shards.image) == ((0, 1), ("a", "b"), (1, 2, 1))
    assert (made.rounds, made.n_agents, made.scenario.seed) == (2, 4, 1)
    shown = decentral_dp.audit("network_view", set={"algorithm.rounds": integer(2)}, runs=integer(20), seed=integer(1))
    assert shown.shown is not None
