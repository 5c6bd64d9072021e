"""Networks that change, given in Python: a list of graphs or a function of the round, run again, cut off, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.topology import build_topology, time_varying

DAY, NIGHT = nx.Graph([(0, 1), (2, 3)]), nx.Graph([(1, 2), (3, 0)])
HALVES = [np.array([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]])]
HALVES += [np.roll(np.roll(HALVES[0], 1, axis=0), 1, axis=1)]
SHORT = {"algorithm.rounds": 6, "seed": 5}


def pairs(t: int, seed: int) -> nx.Graph:
    """A random matching, drawn from the round and the seed."""
    order = np.random.default_rng([seed, t]).permutation(6).reshape(3, 2)
    graph = nx.empty_graph(6)
    graph.add_edges_from(order.tolist())
    return graph


def ring(t: int) -> Any:
    """One link of a ring a round, as a matrix."""
    matrix = np.zeros((4, 4))
    matrix[t % 4, (t + 1) % 4] = matrix[(t + 1) % 4, t % 4] = 1.0
    return matrix


GIVEN: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "list": ([DAY, NIGHT], {}, True),
    "lossy list": ([DAY, NIGHT], {"topology.drop": 0.3, "topology.delay": 1}, True),
    "matrices": (HALVES, {"topology.weights": "file"}, True),
    "an array of matrices": (np.array(HALVES), {"topology.weights": "file"}, True),
    "an empty round": ([DAY, NIGHT, nx.empty_graph(4)], {}, True),
    "topologies": ([build_topology("ring", 4), build_topology("complete", 4)], {}, True),
    "one graph": (nx.petersen_graph(), {"topology.drop": 0.3, "topology.over_time": "matching"}, True),
    "topology": (time_varying(build_topology("ring", 5), "matching", seed=3), {}, False),
    "function": (pairs, {"topology.agents": 6}, False),
    "function of matrices": (ring, {"topology.agents": 4, "topology.offline": 0.2}, False),
}


@pytest.mark.parametrize("what", GIVEN)
def test_a_run_folder_draws_the_same_again(what: str, tmp_path: Path) -> None:
    given, changes, _ = GIVEN[what]
    first = decentral_dp.run("quadratic", set=SHORT | changes, topology=given, out=tmp_path / "run")
    path = tmp_path / "run" / "scenario.toml"
    assert "topology" in load(path).objects
    again = decentral_dp.run(path, topology=given)
    cut = decentral_dp.run("quadratic", set=SHORT | changes | {"run.blocks": 2}, topology=given)
    for channel, value in first.released.items():
        np.testing.assert_array_equal(again.released[channel], value)
        np.testing.assert_array_equal(cut.released[channel], value)


def test_graphs_follow_one_another() -> None:
    made = decentral_dp.build("quadratic", set=SHORT, topology=[DAY, NIGHT]).topology
    assert made.over_time is not None
    for t in range(6):
        wanted = 0.5 * nx.to_numpy_array((DAY, NIGHT)[t % 2], nodelist=range(4))
        np.testing.assert_array_equal(made.over_time.received_weights(t).toarray(), wanted)
    assert made.edges.tolist() == [[0, 1], [0, 3], [1, 2], [2, 3]]
    assert made.over_time.period == 2
    given = decentral_dp.build("quadratic", set={**SHORT, "topology.weights": "file"}, topology=HALVES).topology
    for t in range(2):
        np.testing.assert_array_equal(
            given.over_time.received_weights(t).toarray(), made.over_time.received_weights(t).toarray()
        )


def test_a_function_is_asked_for_the_graph_of_every_round() -> None:
    six = SHORT | {"topology.agents": 6}
    made = decentral_dp.build("quadratic", set=six, topology=pairs).topology
    assert made.over_time is not None
    for t in range(6):
        np.testing.assert_array_equal(
            made.over_time.received_weights(t).toarray(), 0.5 * nx.to_numpy_array(pairs(t, 5))
        )
    plan = decentral_dp.plan("quadratic", set=six, topology=pairs)
    assert plan.communication is not None


def test_a_list_is_called_what_it_is_and_an_empty_one_is_refused() -> None:
    assert "sequence of 2 graphs" in str(decentral_dp.plan("quadratic", set=SHORT, topology=[DAY, NIGHT]))
    for empty in ([], np.zeros((0, 0))):
        with pytest.raises(InputError, match=rf"topology: {type(empty).__name__} is empty\. Give a graph"):
            decentral_dp.plan("quadratic", topology=empty)


def test_nodes_are_known_by_their_names() -> None:
    """A graph that lists its nodes in another order is not another network."""
    one = nx.Graph([("Bern", "Genf"), ("Genf", "Chur")])
    other = nx.Graph([("Chur", "Bern"), ("Bern", "Genf")])
    made = decentral_dp.build("quadratic", set=SHORT, topology=[one, other]).topology
    assert made.labels == ("Bern", "Genf", "Chur")
    heard = made.over_time.received_weights(1).toarray() > 0
    np.testing.assert_array_equal(heard, nx.to_numpy_array(other, nodelist=made.labels) > 0)


def test_a_function_of_the_round_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "graphs.py").write_text(
        "import networkx as nx\n\n\n"
        "def meetings(t: int, agents: int, hops: int = 1) -> nx.Graph:\n"
        "    graph = nx.empty_graph(agents)\n"
        "    graph.add_edge(t % agents, (t + hops) % agents)\n"
        "    return graph\n"
    )
    monkeypatch.chdir(tmp_path)
    table = {"kind": "graphs:meetings", "agents": 4, "hops": 3, "drop": 0.1}
    first = decentral_dp.run("quadratic", set=SHORT | {"topology": table}, out=tmp_path / "run")
    assert first.simulation().topology.over_time.received_weights(1).nonzero()[0].size in (0, 1, 2)
    (tmp_path / "graphs.py").unlink()
    again = decentral_dp.run(tmp_path / "run" / "scenario.toml")
    for channel, value in first.released.items():
        np.testing.assert_array_equal(again.released[channel], value)
    with pytest.raises(InputError, match=r"topology\.hop: unknown key; did you mean \"hops\""):
        decentral_dp.plan(
            "quadratic", set=SHORT | {"topology": {**table, "hop": 1}, "code_folders": [str(tmp_path / "run" / "code")]}
        )


@pytest.mark.parametrize(
    ("given", "changes", "words"),
    [
        ([DAY, nx.path_graph(5)], {}, r'one of 5 has "4", which the first lacks, which has 4'),
        ([nx.path_graph(5), DAY], {}, r"one of 4 lacks agents of the first, which has 5"),
        ([DAY, DAY], {}, "2 graphs in turn leave 2 groups of agents that never communicate"),
        ([DAY, NIGHT], {"topology.over_time": "matching"}, "sequence of 2 graphs says the graph of every round itself"),
        (lambda t: nx.empty_graph(4), {"topology.agents": 4}, "6 graphs in turn leave 4 groups"),
        (
            lambda t: nx.gnp_random_graph(12, 0.5),
            {"topology.agents": 12},
            "another graph of round 0 when it is called again",
        ),
        (lambda t: nx.cycle_graph(3 + t), {"topology.agents": 3}, r"graph 2 gives 4 agents, and 3 were asked for"),
        (lambda t: 7, {"topology.agents": 4}, "expected a networkx.Graph"),
    ],
)
def test_what_is_no_network_is_refused(given: Any, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        decentral_dp.plan("quadratic", set=SHORT | changes, topology=given)
