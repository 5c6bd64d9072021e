"""Graphs from functions: what may be returned, and keys that the function does not take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import tomli_w

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.topology import Topology

SQUARE = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
LINKS = [[0, 1], [0, 3], [1, 2], [2, 3]]


def built(graph: Any) -> Topology:
    return build(load("quadratic", ["algorithm.rounds=1"]), topology=graph).topology


@pytest.mark.parametrize(
    "graph",
    [SQUARE, SQUARE.tolist(), SQUARE.astype(float), SQUARE.astype(bool), scipy.sparse.csr_array(SQUARE), LINKS],
    ids=["integers", "lists", "floats", "booleans", "sparse", "pairs"],
)
def test_a_matrix_of_links_is_read_as_one(graph: Any) -> None:
    assert built(graph).edges.tolist() == LINKS
    assert built(graph).n_agents == 4


def test_pairs_of_two_links_are_pairs() -> None:
    assert built([[0, 1], [1, 2]]).edges.tolist() == [[0, 1], [1, 2]]
    assert built([[0, 1], [1, 0]]).n_agents == 2


@pytest.mark.parametrize(
    ("graph", "sentence"),
    [
        (0.5 * SQUARE, "gives a 4 × 4 array, which is no matrix of links: wanted .* topology.weights"),
        (np.triu(SQUARE), "gives a 4 × 4 array, which is no matrix of links"),
        (SQUARE + np.eye(4), "gives a 4 × 4 array, which is no matrix of links"),
        (
            SQUARE[:3],
            "gives ndarray, expected",
        ),
        (np.array([[0.5, 1.0], [1.0, 2.0]]), "gives ndarray, expected"),
        ([["a", "b"]], "gives list, expected"),
    ],
)
def test_what_is_no_graph_is_refused(graph: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        built(graph)


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[..., list[Any]]:
    """Path of a scenario whose graph is that of a function, as an argument for `plan`."""
    (tmp_path / "graphs.py").write_text(
        "import numpy as np\n\n\n"
        "def hops(agents, reach: int = 1):\n"
        "    return [(i, (i + k) % agents) for i in range(agents) for k in range(1, reach + 1)]\n\n\n"
        "def small(agents):\n    return 1 - np.eye(agents - 1)\n"
    )
    content = load("quadratic", ["algorithm.rounds=1"]).model_dump(exclude_unset=True, exclude_none=True)
    content["topology"] = {"kind": "graphs:hops", "agents": 6, "reach": 2}
    path = tmp_path / "scenario.toml"
    path.write_text(tomli_w.dumps(content))
    return lambda *overrides: [path, [f"topology.{o}" for o in overrides]]


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("agent=5", "topology.agent: unknown key"),
        ("reech=5", 'topology.reech: unknown key; did you mean "reach"'),
        ('kind="star"', 'topology (kind "star"): got "reach", which is not known'),
        ('kind="graphs:small"', "topology.reach: unknown key"),
    ],
)
def test_a_key_that_a_graph_does_not_take(override: str, sentence: str, scenario: Callable[..., list[Any]]) -> None:
    with pytest.raises(InputError) as refused:
        decentral_dp.plan(load(*scenario(override)))
    assert sentence in str(refused.value)


def test_a_matrix_of_another_size_is_refused(scenario: Callable[..., list[Any]]) -> None:
    path, _ = scenario()
    with pytest.raises(InputError, match=r"graphs:small gives a matrix of 5 agents, and 6 were asked for"):
        decentral_dp.plan(path, set={"topology": {"kind": "graphs:small", "agents": 6}})
