"""Agents go by the names of their graph's nodes wherever a table or a file of a run has them, beside their numbers."""

from __future__ import annotations

from pathlib import Path
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
    assert '<th scope="row">hub</th>' in plan._repr_html_()


def test_agents_that_are_numbers_have_no_column_more() -> None:
    star = nx.Graph([(3, k) for k in (0, 1, 2, 4)])
    plan = decentral_dp.plan(_scenario(), topology=star)
    assert "agent_name" not in plan.ledger
    assert any(line.startswith("3 ") for line in str(plan).splitlines())
    assert any(line.startswith("0–2, 4 ") for line in str(plan).splitlines())
    assert '<th scope="row">0–2, 4</th>' in plan._repr_html_()


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


def test_the_page_of_a_run_without_names_says_no_order(tmp_path: Path) -> None:
    run = decentral_dp.run(_scenario(), out=tmp_path / "run", topology=list(nx.star_graph(4).edges))
    assert list(run.metrics.columns) == ["round", "agent", "name", "value"]
    assert "are numbered in the order" not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_agents_that_the_records_name_are_called_so_unless_their_graph_names_them(tmp_path: Path) -> None:
    rows = "\n".join(f"{'nsw'[k % 3]},{k % 7},{k % 2}" for k in range(60))
    (tmp_path / "t.csv").write_text(f"ward,a,sick\n{rows}\n")
    content: dict[str, Any] = {
        "problem": {
            "kind": "classification",
            "data": str(tmp_path / "t.csv"),
            "label": "sick",
            "classes": [0, 1],
            "scale": {"a": [0, 6]},
            "partition": {"kind": "column", "name": "ward", "agents": ["n", "s", "w"]},
        },
        "topology": {"kind": "path", "agents": 3},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5},
    }
    assert list(decentral_dp.plan(content).topology["labels"]) == ["n", "s", "w"]
    graph = nx.relabel_nodes(nx.path_graph(3), dict(enumerate(NAMES)))
    named = decentral_dp.plan({name: of for name, of in content.items() if name != "topology"}, topology=graph)
    assert list(named.topology["labels"]) == NAMES[:3]
