"""Components given as Python objects: records, graphs, algorithms, mechanisms and partitions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.algorithms.gossip.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.gossip.ldp_single_level import LdpSingleLevel
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.files.package import shipped_folder
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.topology import build_topology, time_varying

RECORDS = shipped_folder("scenarios") / "own_records.csv"
FEW = ["algorithm.rounds=2"]


def shards(**objects: Any) -> Any:
    return build(load("own_csv", FEW), **objects).shards


# Records.


def test_a_data_frame_equals_its_csv_file() -> None:
    frame = pd.read_csv(RECORDS)
    from_file, from_frame = shards(), shards(data=frame)
    assert from_frame.digest == from_file.digest
    assert (from_frame.classes, from_frame.feature_names) == (from_file.classes, from_file.feature_names)
    # Order of columns, index and type of text change nothing.
    turned = frame[frame.columns[::-1]].set_index(np.arange(len(frame)) + 7).astype({"outcome": "category"})
    again = shards(data=turned)
    assert sorted(again.feature_names) == sorted(from_frame.feature_names)
    assert np.array_equal(again.labels, from_frame.labels)


def test_a_scenario_without_records_takes_those_given() -> None:
    frame, graph = pd.read_csv(RECORDS), nx.path_graph(4)
    # Without noise: its draws depend on the whole scenario.
    named = load("own_csv", [*FEW, "privacy.guarantee=none"])
    content = named.model_dump(exclude_unset=True)
    del content["problem"]["data"]
    expected = decentral_dp.run(named, data=frame)
    assert np.array_equal(decentral_dp.run(content, data=frame).released["y"], expected.released["y"])
    with pytest.raises(InputError, match=r"problem\.data: missing"):
        decentral_dp.run(content)
    plan = decentral_dp.plan(load("own_csv", FEW), data=frame, topology=graph)
    assert plan.epsilon == decentral_dp.plan(load("own_csv", FEW)).epsilon


def test_a_single_class_is_refused_only_without_a_guarantee() -> None:
    frame = pd.read_csv(RECORDS).assign(outcome="no")
    with pytest.raises(InputError, match="all records have the same label"):
        build(load("own_csv", [*FEW, "privacy.guarantee=none"]), data=frame)
    # How a certified run ends must not reveal records.
    assert decentral_dp.run(load("own_csv", FEW), data=frame).result.status == "ok"


def test_classes_may_be_truth_values_and_columns_have_other_names() -> None:
    frame = pd.read_csv(RECORDS)
    named = load("own_csv", [*FEW, "problem.classes=[false, true]"])
    boolean = build(named, data=frame.assign(outcome=frame["outcome"] == "yes")).shards
    assert boolean.classes == (0, 1)
    assert np.array_equal(boolean.labels, shards().labels)
    named = load("own_csv", [*FEW, 'problem.partition.name="clinic"', 'problem.validation="part"'])
    renamed = build(named, data=frame.rename(columns={"agent": "clinic", "split": "part"})).shards
    assert np.array_equal(renamed.features, shards().features)


def test_features_of_a_frame_keep_their_names() -> None:
    frame = pd.read_csv(RECORDS)
    content = load("own_csv", FEW).model_dump(exclude_unset=True)
    with pytest.raises(InputError, match=r"^problem\.label"):
        build(content, data=(np.ones((3, 4)), np.ones(3)))
    content["problem"] = {k: v for k, v in content["problem"].items() if k not in ("label", "partition", "validation")}
    with pytest.raises(InputError, match=r"problem\.label: missing"):
        build(content, data=frame)
    names = ["age", "weight", "pressure", "pulse"]
    assert build(content, data=(frame[names], frame["outcome"])).shards.feature_names == tuple(names)


def test_a_frame_with_two_columns_of_one_name_is_refused() -> None:
    frame = pd.read_csv(RECORDS)
    with pytest.raises(InputError, match="two columns with the same name"):
        shards(data=frame.set_axis([*frame.columns[:-2], "age", "outcome"], axis=1))


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
    result = decentral_dp.audit("network_view", set={"algorithm.rounds": integer(2)}, runs=integer(20))
    assert result.shown is not None


# Graphs.

DAY, NIGHT = nx.Graph([(0, 1), (2, 3)]), nx.Graph([(1, 2), (3, 0)])
HALVES = [np.array([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]])]
HALVES += [np.roll(np.roll(HALVES[0], 1, axis=0), 1, axis=1)]
SQUARE = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
EDGES = [[0, 1], [0, 3], [1, 2], [2, 3]]
SHORT = {"algorithm.rounds": 6, "seed": 5}


def random_pairs(t: int, seed: int) -> nx.Graph:
    """A random matching, drawn from the round and the seed."""
    order = np.random.default_rng([seed, t]).permutation(6).reshape(3, 2)
    graph = nx.empty_graph(6)
    graph.add_edges_from(order.tolist())
    return graph


def ring_edge(t: int) -> Any:
    """Return one edge of a ring in each round, as a matrix."""
    matrix = np.zeros((4, 4))
    matrix[t % 4, (t + 1) % 4] = matrix[(t + 1) % 4, t % 4] = 1.0
    return matrix


def wheel(nodes: int) -> Any:
    return nx.wheel_graph(nodes)


def petersen() -> Any:
    return nx.petersen_graph()


GRAPHS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lossy list": ([DAY, NIGHT], {"topology.drop": 0.3, "topology.delay": 1}),
    "an array of matrices": (np.array(HALVES), {"topology.weights": "file"}),
    "an empty round": ([DAY, NIGHT, nx.empty_graph(4)], {}),
    "topologies": ([build_topology("ring", 4), build_topology("complete", 4)], {}),
    "one graph": (nx.petersen_graph(), {"topology.drop": 0.3, "topology.over_time": "matching"}),
    "topology": (time_varying(build_topology("ring", 5), "matching", seed=3), {}),
    "function": (random_pairs, {"topology.agents": 6}),
    "function of matrices": (ring_edge, {"topology.agents": 4, "topology.offline": 0.2}),
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("kind", GRAPHS)
def test_a_run_folder_runs_again_with_its_graph(kind: str, tmp_path: Path) -> None:
    graph, changes = GRAPHS[kind]
    first = decentral_dp.run("quadratic", set=SHORT | changes, topology=graph, out=tmp_path / "run")
    path = tmp_path / "run" / "scenario.toml"
    assert "topology" in load(path).objects
    again = decentral_dp.run(path, topology=graph)
    in_blocks = decentral_dp.run("quadratic", set=SHORT | changes | {"run.blocks": 2}, topology=graph)
    for channel, value in first.released.items():
        np.testing.assert_array_equal(again.released[channel], value)
        np.testing.assert_array_equal(in_blocks.released[channel], value)


def test_graphs_follow_one_another() -> None:
    topology = decentral_dp.build("quadratic", set=SHORT, topology=[DAY, NIGHT]).topology
    weighted = decentral_dp.build("quadratic", set={**SHORT, "topology.weights": "file"}, topology=HALVES).topology
    assert topology.over_time is not None
    assert weighted.over_time is not None
    for t in range(6):
        expected = 0.5 * nx.to_numpy_array((DAY, NIGHT)[t % 2], nodelist=range(4))
        for made in (topology, weighted):
            np.testing.assert_array_equal(made.over_time.received_weights(t).toarray(), expected)
    assert topology.edges.tolist() == EDGES
    assert topology.over_time.period == 2


def test_a_function_gives_the_graph_of_every_round() -> None:
    topology = decentral_dp.build("quadratic", set=SHORT | {"topology.agents": 6}, topology=random_pairs).topology
    assert topology.over_time is not None
    for t in range(6):
        expected = 0.5 * nx.to_numpy_array(random_pairs(t, 5))
        np.testing.assert_array_equal(topology.over_time.received_weights(t).toarray(), expected)


def test_nodes_of_several_graphs_are_matched_by_name() -> None:
    one = nx.Graph([("Bern", "Genf"), ("Genf", "Chur")])
    other = nx.Graph([("Chur", "Bern"), ("Bern", "Genf")])
    topology = decentral_dp.build("quadratic", set=SHORT, topology=[one, other]).topology
    assert topology.labels == ("Bern", "Genf", "Chur")
    heard = topology.over_time.received_weights(1).toarray() > 0
    np.testing.assert_array_equal(heard, nx.to_numpy_array(other, nodelist=topology.labels) > 0)


def test_a_function_without_agents_gives_a_graph_of_any_size(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import networkx as nx\ndef petersen() -> nx.Graph:\n    return nx.petersen_graph()\n"
        "def barbell(half: int):\n    return nx.barbell_graph(half, 0)\n"
        "def pairs(agents: int):\n    return [(k, k + 1) for k in range(agents - 1)]\n"
        "def meetings(t: int, agents: int, hops: int = 1):\n"
        "    return [(t % agents, (t + hops) % agents)]\n"
    )
    content = load("quadratic", FEW).model_dump(exclude_unset=True)
    for table, agents in (
        ({"kind": "mine:petersen"}, 10),
        ({"kind": "mine:barbell", "half": 3}, 6),
        ({"kind": "mine:pairs", "agents": 3}, 3),
    ):
        assert build(load({**content, "topology": table}, folder=tmp_path)).n_agents == agents
    for table, problem in (
        ({"kind": "mine:barbell"}, r"^topology\.half: missing.*an option of mine:barbell"),
        ({"kind": "mine:pairs"}, r"^topology\.agents: missing"),
        ({"kind": "mine:petersen", "agents": 5}, r"^topology\.agents: .* expected 10"),
        ({"kind": "mine:meetings", "agents": 4, "hop": 1}, 'topology.hop: unknown key; did you mean "hops"'),
        ({"kind": "ring"}, "a generator needs agents"),
    ):
        with pytest.raises(InputError, match=problem):
            build(load({**content, "topology": table}, folder=tmp_path))


@pytest.mark.parametrize(
    ("graph", "changes", "problem"),
    [
        ([DAY, nx.path_graph(5)], {}, r'of 5 agents has "4", which the first lacks, which has 4'),
        ([nx.path_graph(5), DAY], {}, r"of 4 agents lacks agents of the first, which has 5"),
        ([DAY, DAY], {}, "2 graphs in turn leave 2 groups of agents that never communicate"),
        ([DAY, NIGHT], {"topology.over_time": "matching"}, "topology.over_time: list already changes over the rounds"),
        ([], {}, "topology: list is empty"),
        (np.zeros((0, 0)), {}, "topology: ndarray is empty"),
        (lambda t: nx.empty_graph(4), {"topology.agents": 4}, "6 graphs in turn leave 4 groups"),
        (lambda t: nx.gnp_random_graph(12, 0.5), {"topology.agents": 12}, "another graph for round 0"),
        (lambda t: nx.cycle_graph(3 + t), {"topology.agents": 3}, "graph 2 .got 3, expected 4"),
        (lambda t: 7, {"topology.agents": 4}, "expected a networkx.Graph"),
        (wheel, {}, r"^topology\.nodes: missing"),
        (petersen, {"topology.agents": 5}, r"^topology\.agents: differs from the number of agents in petersen"),
        (nx.path_graph(5), {"topology.weights": "file"}, '"file" needs a file, or a graph, with one weight above 0'),
        (0.5 * SQUARE, {}, "has a 4 × 4 array, which is not a matrix of edges: expected .* topology.weights"),
        (SQUARE[:3], {}, r"gives no graph \(got ndarray, expected"),
        (np.array([[0.5, 1.0], [1.0, 2.0]]), {}, r"gives no graph \(got ndarray, expected"),
        ([["a", "b"]], {}, r"gives no graph \(got list, expected"),
        ({0: [1], 1: [0]}, {}, r"topology: dict gives no graph \(got dict"),
        (nx.DiGraph([(0, 1), (1, 2), (2, 0)]), {}, "requires an undirected graph .got the directed DiGraph"),
        (nx.Graph([(0, 1), (2, 3)]), {}, "topology: this graph has 2 components"),
        (nx.Graph(), {}, "topology: Graph has no nodes"),
        ("petersen", {}, 'topology: got the text "petersen", expected an object'),
    ],
)
def test_unusable_graphs_are_refused(graph: Any, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem) as refused:
        decentral_dp.plan("quadratic", set=SHORT | changes, topology=graph)
    assert "(line" not in str(refused.value)
    assert ".py" not in str(refused.value)


@pytest.mark.parametrize("table", [None, {"weights": "lazy_metropolis"}, {"kind": "ring", "agents": 3}])
def test_a_scenario_without_a_graph_takes_the_one_given(table: Any) -> None:
    scenario = load("quadratic", FEW).model_dump(exclude_unset=True)
    scenario.pop("topology")
    scenario |= {} if table is None else {"topology": table}
    assert decentral_dp.plan(scenario, topology=nx.cycle_graph(7)).topology["agents"] == 7
    if table is None or "kind" not in table:
        with pytest.raises(InputError, match=r"topology"):
            decentral_dp.plan(scenario)


# Run folders of runs with objects.


@dataclass(frozen=True)
class Descent(LdpSingleLevel):
    """The lower level only, by another name."""


@dataclass(frozen=True)
class Rounded:
    """Laplace noise, rounded to the grid."""

    name, norm, deviation = "rounded", "l1", 2.0**0.5

    def cost(self, sensitivity: Any, scale: Any, width: int) -> Any:
        return sensitivity / scale

    def sample(self, generator: Any, query: Any, grid: Any, scale: Any) -> Any:
        return np.rint((query + generator.laplace(0.0, scale, query.shape)) / grid) * grid


def deal(labels: Any, agents: int) -> Any:
    return np.arange(len(labels)) % agents


OBJECTS: dict[str, tuple[Any, str]] = {
    "algorithm": (Descent(StepSize(0.1)), "Descent"),
    "mechanism": (Rounded(), "Rounded"),
    "partition": (deal, "deal"),
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("role", OBJECTS)
def test_a_run_folder_names_its_objects_and_needs_them_again(role: str, tmp_path: Path) -> None:
    given, kind = OBJECTS[role]
    changes = [*FEW, "privacy.clip=1.0"] if role == "algorithm" else FEW
    first = decentral_dp.run(load("ring_breast_cancer", changes), out=tmp_path / "run", **{role: given})
    path = tmp_path / "run" / "scenario.toml"
    assert load(path).objects == {role: kind}
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    assert f"Python objects: {role} ({kind})." in page
    with pytest.raises(InputError, match=rf"^objects\.{role}: "):
        decentral_dp.plan(path)
    again = decentral_dp.run(path, **{role: given})
    for channel, value in first.released.items():
        np.testing.assert_array_equal(again.released[channel], value)


def test_a_class_in_place_of_an_object_is_refused() -> None:
    with pytest.raises(InputError, match=r"^algorithm: got the class LdpDsbo"):
        decentral_dp.plan("quadratic", algorithm=LdpDsbo)
