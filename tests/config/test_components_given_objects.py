"""Components that were Python objects: the run folder names them, and its scenario does not run without them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms.gossip.single_level import LdpSingleLevel
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError

FEW = ["algorithm.rounds=2"]


@dataclass(frozen=True)
class Descent(LdpSingleLevel):
    """The lower level alone, by another name."""


@dataclass(frozen=True)
class Rounded:
    """Laplace noise, rounded to the grid."""

    name, norm, deviation = "rounded", "l1", 2.0**0.5

    def cost(self, sensitivity: Any, scale: Any, width: int) -> Any:
        return sensitivity / scale

    def sample(self, generator: Any, query: Any, grid: Any, scale: Any) -> Any:
        return np.rint((query + generator.laplace(0.0, scale, query.shape)) / grid) * grid


def dealt(labels: Any, agents: int) -> Any:
    return np.arange(len(labels)) % agents


GIVEN: dict[str, tuple[str, Any, str]] = {
    "algorithm": ("ring_breast_cancer", Descent(StepSize(0.1)), "Descent"),
    "mechanism": ("ring_breast_cancer", Rounded(), "Rounded"),
    "partition": ("ring_breast_cancer", dealt, "dealt"),
}


@pytest.mark.parametrize("what", GIVEN)
def test_a_run_folder_names_what_no_file_holds(what: str, tmp_path: Path) -> None:
    name, given, kind = GIVEN[what]
    first = decentral_dp.run(load(name, FEW), out=tmp_path / "run", **{what: given})
    path = tmp_path / "run" / "scenario.toml"
    assert load(path).objects == {what: kind}
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    assert f"Given as Python objects: {what} ({kind}). They are in no file, so the scenario alone does not run" in page
    with pytest.raises(InputError) as refused:
        decentral_dp.plan(path)
    assert f"whose {what} was a Python object ({kind}), which no file holds" in str(refused.value)
    assert f"decentral_dp.run(scenario, {what}=…)" in str(refused.value)
    again = decentral_dp.run(path, **{what: given})
    for channel, value in first.released.items():
        np.testing.assert_array_equal(again.released[channel], value)


def test_a_run_without_objects_names_none(tmp_path: Path) -> None:
    decentral_dp.run(load("quadratic", FEW), out=tmp_path / "run")
    assert load(tmp_path / "run" / "scenario.toml").objects == {}
    assert "Given as Python objects" not in (tmp_path / "run" / "report.html").read_text()
    assert decentral_dp.plan(tmp_path / "run" / "scenario.toml").rounds == 2


GRAPH = nx.cycle_graph(7)


@pytest.mark.parametrize("table", [None, {}, {"weights": "lazy_metropolis"}, {"kind": "ring", "agents": 3}])
def test_a_scenario_need_not_name_a_graph_that_is_given(table: Any) -> None:
    scenario = load("quadratic", FEW).model_dump(exclude_unset=True)
    scenario.pop("topology")
    scenario |= {} if table is None else {"topology": table}
    assert decentral_dp.plan(scenario, topology=GRAPH).topology["agents"] == 7
    if table is None or "kind" not in table:
        with pytest.raises(InputError, match=r"topology"):
            decentral_dp.plan(scenario)


@pytest.mark.parametrize(
    ("graph", "sentence"),
    [
        (nx.DiGraph([(0, 1), (1, 2), (2, 0)]), "topology: DiGraph is directed, and ldp_dsbo averages"),
        (nx.Graph([(0, 1), (2, 3)]), "topology: this graph has 2 components"),
        (nx.Graph([(0, 1), (1, 1)]), 'topology: Graph: edge 1 – 1: a self loop at "1"'),
        (nx.Graph(), "topology: Graph has no nodes"),
        ({0: [1], 1: [0]}, "topology: dict gives dict"),
        (
            "petersen",
            'topology: got the text "petersen"; wanted an object. A registered name goes into the scenario: set={',
        ),
    ],
)
def test_a_given_graph_is_refused_without_lines_of_the_library_it_comes_from(graph: Any, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        decentral_dp.plan(load("quadratic", FEW), topology=graph)
    assert str(refused.value).startswith(sentence)
    assert "(line" not in str(refused.value)
    assert ".py" not in str(refused.value)


def test_a_run_takes_overrides_beside_records_that_are_given() -> None:
    scenario = load("ring_breast_cancer", FEW).model_dump(exclude_unset=True)
    one = decentral_dp.run(scenario, set={"privacy.epsilon": 1.0})
    other = decentral_dp.run(load("ring_breast_cancer", [*FEW, "privacy.epsilon=1.0"]))
    assert one.result.privacy.epsilon_max == other.result.privacy.epsilon_max <= 1.0
    np.testing.assert_array_equal(one.released["y"], other.released["y"])
    graph = decentral_dp.run(load("quadratic", FEW), topology=GRAPH)
    assert graph.result.topology["agents"] == 7
    assert graph.result.rounds == 2


def test_a_key_that_one_of_its_table_begins_with_is_suggested() -> None:
    with pytest.raises(InputError, match=r"privacy\.eps: unknown key; use privacy\.epsilon"):
        load("ring_breast_cancer", ["privacy.eps=1"])


def test_records_for_a_scenario_say_which_command_makes_one(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"not valid TOML .* decentral-dp new --data \S*mine\.csv writes one\."):
        load(tmp_path / "mine.csv")
