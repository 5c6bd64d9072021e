"""Custom components make ε unverified; components of the package do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.reporting.privacy import unverified_texts
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.summary import statement_of

LOSSES = """
import decentral_dp

def upper_loss(x, y, features, label):
    return (features @ y - label) ** 2 * x.exp().sum()

def problem(n_features):
    return decentral_dp.from_losses(upper_loss, upper_loss, p=1, q=n_features, n_features=n_features)
"""
DEAL = "def deal(labels, agents):\n    return [k % agents for k in range(len(labels))]\n"
GRAPH = "import networkx as nx\n\n\ndef ring(agents):\n    return nx.cycle_graph(agents)\n"
RECORDS = (
    "import numpy as np\n\n\ndef load():\n    return np.random.default_rng(0).random((60, 4)), np.arange(60) % 2\n"
)
MINIMAX: dict[str, Any] = {
    "problem": {"kind": "dro", "data": "breast_cancer", "scale": "public_ranges", "normalise": "l2", "cap": 3.0,
                "divergence": "chi2", "strength": 1.0},
    "topology": {"kind": "star", "agents": 3},
    "algorithm": {"kind": "dp_sgda", "rounds": 2, "rate": 0.2, "x": {"scale": 0.1}, "y": {"scale": 0.1}},
    "privacy": {"epsilon": 2.0, "delta": 1e-5, "clip": {"x": 1.0, "y": 1.0}},
}  # fmt: skip
GOSSIP: dict[str, dict[str, Any]] = {
    "losses": {"problem": {"kind": "losses:problem"}},
    "partition": {"problem": {"partition": "deal:deal"}},
    "data": {"problem": {"data": "records:load", "classes": [0, 1], "scale": "none"}},
    "topology": {"topology": {"kind": "graph:ring", "agents": 5}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {"losses": LOSSES, "deal": DEAL, "graph": GRAPH, "records": RECORDS}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("what", GOSSIP)
def test_a_custom_component_of_agents_is_unverified(scenario: Any, folder: Path, what: str) -> None:
    statement = statement_of(build_job(load(scenario(**GOSSIP[what]), folder=folder)))
    assert statement.rests_on_unverified
    assert unverified_texts(statement.unverified)


def test_objects_are_unverified(scenario: Any) -> None:
    def loss(x: Any, y: Any, a: Any, label: Any) -> Any:
        return (a @ y - label) ** 2 * x.exp().sum()

    def deal(labels: Any, agents: int) -> Any:
        return np.arange(len(labels)) % agents

    problem = decentral_dp.from_losses(loss, loss, p=1, q=30, n_features=30)
    for given in ({"problem": problem}, {"partition": deal}):
        assert statement_of(build_job(scenario(), **given)).rests_on_unverified


def test_a_function_of_records_is_unverified_and_arrays_are_not(scenario: Any) -> None:
    arrays = np.random.default_rng(0).random((60, 4)), np.arange(60) % 2

    def load_arrays() -> Any:
        return arrays

    content = scenario(problem={"classes": [0, 1], "scale": "none"})
    of_function, of_arrays = (statement_of(build_job(content, data=data)) for data in (load_arrays, arrays))
    assert of_function.unverified == {"data": "load_arrays"}
    assert not of_arrays.unverified


def test_components_of_the_package_are_verified(scenario: Any) -> None:
    for job in (build_job(scenario()), build_job(MINIMAX)):
        statement = statement_of(job)
        assert not statement.rests_on_unverified
        assert not unverified_texts(statement.unverified)
