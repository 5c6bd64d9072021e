"""Round trips of results and statements in the three settings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.simulation import statement as written
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.result import FORMAT, read_result, seal, text_of
from decentral_dp.simulation.statement import AgentBudget, AgentBudgets, Cost, PrivacyStatement
from decentral_dp.simulation.summary import statement_of
from tests.support.run_folders import STATEMENT, write_run

SETTINGS = {
    "gossip": ("ring_breast_cancer", ["algorithm.rounds=2"]),
    "coordinator_bilevel": ("regularisation_tuner", ["algorithm.rounds=2"]),
    "coordinator_minimax": ("auc_digits", ["algorithm.rounds=1", "run.evaluate_every=1"]),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_statement_is_read_as_it_was_written(setting: str) -> None:
    job = build_job(load(*SETTINGS[setting]))
    statement = statement_of(job)
    assert job.setting == statement.setting == setting
    written = statement.to_dict()
    assert PrivacyStatement.from_dict(written) == statement
    assert PrivacyStatement.from_dict(json.loads(text_of(written))) == statement


@pytest.mark.parametrize("field", STATEMENT)
def test_a_statement_without_a_field_is_refused(field: str, tmp_path: Path) -> None:
    """The context of ε has no default."""
    content = {key: value for key, value in STATEMENT.items() if key != field}
    with pytest.raises(ValueError, match=rf"privacy: {field} missing"):
        PrivacyStatement.from_dict(content)
    folder = write_run(tmp_path / "run", changes={"privacy": content})
    with pytest.raises(InputError, match="was not written by this version"):
        read_result(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [("setting", "other"), ("guarantee", None), ("unit_records", "one"), ("neighbours", ""), ("neighbours", "add")],
)
def test_a_statement_with_another_meaning_is_refused(field: str, value: str | None) -> None:
    with pytest.raises(ValueError, match=rf"^privacy\.{field}: [^\n]*$"):
        PrivacyStatement.from_dict({**STATEMENT, field: value})


def test_unverified_components_are_a_field() -> None:
    job = build_job("ring_breast_cancer", partition=lambda labels, agents: np.arange(len(labels)) % agents)
    statement = statement_of(job)
    written = statement.to_dict()
    assert statement.rests_on_unverified
    assert PrivacyStatement.from_dict(written) == statement
    assert not PrivacyStatement.from_dict({**written, "unverified": {}}).rests_on_unverified


@pytest.mark.usefixtures("undrawn")
def test_a_result_is_a_mapping_with_attributes(tmp_path: Path) -> None:
    run = decentral_dp.run(load(*SETTINGS["gossip"]), out=tmp_path / "run")
    result, content = run.result, json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    assert list(result) == list(content)
    assert result["privacy"]["epsilon_max"] == result.privacy.epsilon_max == float(content["privacy"]["epsilon_max"])
    assert (result.status, result.rounds, dict(result.metrics)) == ("ok", 2, result["metrics"])
    read = read_result(tmp_path / "run")
    assert read.to_json() == result.to_json()
    assert read.privacy.to_dict() == result.privacy.to_dict()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("change", [{"format": FORMAT + 1}, {"rounds": "many"}])
def test_a_result_of_another_format_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    decentral_dp.run(load(*SETTINGS["gossip"]), out=tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    content = {**json.loads(path.read_text(encoding="utf-8")), **change}
    path.write_text(text_of(seal(content)), encoding="utf-8")
    with pytest.raises(InputError, match="was not written by this version"):
        read_result(tmp_path / "run")


def test_of_many_agents_those_with_equal_budgets_share_an_entry_of_result_json(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = [
        AgentBudget(k, epsilon, math.inf, channels={"y": Cost(epsilon)})
        for k, epsilon in ((0, 2.0), (2, 1.0), (3, 4.0))
    ]
    budgets = AgentBudgets(tuple(costs), np.array([0, 0, 1, 2, 2, 0, 1]))
    each = budgets.entries()
    assert [entry["epsilon"] for entry in each] == [2.0, 2.0, 1.0, 4.0, 4.0, 2.0, 1.0]
    monkeypatch.setattr(written, "MOST_ENTRIES", 6)
    shared = json.loads(text_of({"agents": budgets.entries()}))["agents"]
    assert [entry["alike"] for entry in shared] == [[[0, 1], [5, 5]], [[2, 2], [6, 6]], [[3, 4]]]
    for entries in (each, shared):
        assert AgentBudgets.from_entries(entries) == budgets == budgets[:]
        assert [budget.agent for budget in AgentBudgets.from_entries(entries)] == list(range(7))
    # An agent that has no budget, or two, or is none.
    for wrong in ([[1, 1], [5, 5]], [[0, 2], [5, 5]], [[0, "x"]], [], [[0, 1], [5, 10**12]], [[0, -(10**30)]]):
        with pytest.raises((ValueError, OverflowError)):
            AgentBudgets.from_entries([{**shared[0], "alike": wrong}, *shared[1:]])
