"""Tables and files of a run have the names of the graph's nodes in addition to the numbers of agents."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError

NAMES = ["hub", "ann", "ben", "cai", "dee"]
# With equal noise on a star, the budget of the hub differs.
STAR = nx.relabel_nodes(nx.star_graph(4), dict(enumerate(NAMES)))


def _scenario() -> dict[str, Any]:
    overrides = ['algorithm.protocol="private"', "algorithm.rounds=4", "run.evaluate_every=4"]
    content = load("ring_breast_cancer", overrides).model_dump(exclude_unset=True, exclude_none=True)
    content["privacy"].pop("epsilon")
    content["privacy"] |= {"y": {"scale": 1.0}, "z": {"scale": 1.0}}
    del content["topology"]
    return dict(content)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> decentral_dp.Run:
    folder = tmp_path_factory.mktemp("named") / "run"
    return decentral_dp.run(_scenario(), out=folder, topology=STAR)


def test_files_of_a_run_have_names_beside_numbers(ran: decentral_dp.Run) -> None:
    assert ran.folder is not None
    for name, frame in (("metrics", ran.metrics), ("ledger", ran.ledger)):
        written = pd.read_parquet(ran.folder / f"{name}.parquet")
        assert written.columns[-1] == "agent_name"
        for one in (frame, written):
            numbered = one[one["agent"] != "mean"]
            assert [NAMES[int(a)] for a in numbered["agent"]] == numbered["agent_name"].tolist()
    assert (ran.metrics["agent"] == "mean").sum() == (ran.metrics["agent_name"] == "mean").sum() > 0


def test_more_agents_than_names_of_a_partition_are_refused() -> None:
    data = {"features": np.eye(8), "labels": np.arange(8) % 2, "agent": np.array(["a", "b", "c", "c"] * 2)}
    changes = {
        "problem.classes": [0, 1],
        "problem.scale": {"*": [0, 1]},
        "problem.partition": {"kind": "column", "name": "agent", "agents": ["a", "b", "c"]},
        "topology.agents": 4,
    }
    numbers = r"number of agents differs from topology\.agents \(got 3, expected 4\)\. Fix: set topology\.agents = 3\."
    with pytest.raises(InputError, match=rf"^problem\.partition\.agents: {numbers}$"):
        decentral_dp.build("classification", set=changes, data=data)
