"""Agents go by the names of their graph's nodes wherever a table or a file of a run has them, beside their numbers."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.simulation.result import plain

NAMES = ["hub", "ann", "ben", "cai", "dee"]
# Equal noise on a star: the hub's budget is another than that of the rest.
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


def test_budgets_are_told_by_name(ran: decentral_dp.Run) -> None:
    assert ran.folder is not None
    spent = [agent.epsilon for agent in ran.result.privacy.agents]
    assert spent[0] < min(spent[1:])
    page = (ran.folder / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row">hub</th>' in page
    assert '<th scope="row">ann, ben, cai, dee</th>' in page
    assert "0 is hub, 1 is ann, 2 is ben, …, 4 is dee" in page
    plan = decentral_dp.plan(_scenario(), topology=STAR)
    lines = str(plan).splitlines()
    assert any(line.startswith("hub ") for line in lines)
    assert any(line.startswith("ann, ben, cai, dee ") for line in lines)
    assert "agent_name" in plan.ledger


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.float64(1.5), 1.5),
        (np.float64("nan"), None),
        (np.float64("inf"), "inf"),
        (float("-inf"), "-inf"),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        ((1, None, True), [1, None, True]),
        ({1: np.array([1.0, np.nan])}, {"1": [1.0, None]}),
    ],
)
def test_plain_values_of_json(value: Any, wanted: Any) -> None:
    found = plain(value)
    assert found == wanted
    assert type(found) is type(wanted)
