"""Keys that are taken out of a scenario, refusals that name them, and titles that fit what is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError

RING = "ring_breast_cancer"
SHORT = {"algorithm.rounds": 2}


def test_a_key_is_taken_out_before_others_are_set() -> None:
    loaded = load(RING, ["privacy.epsilon=null", "privacy.y.scale=1.0", "privacy.z.scale=1.0"])
    assert loaded.privacy.epsilon is None
    assert loaded.privacy.y is not None
    assert load(RING, ["run=null", "run.average=7"]).run.evaluate_every == 10


def test_plan_and_run_take_keys_out() -> None:
    one_level = {"algorithm.x": None, "algorithm.z": None, "algorithm.kind": "dp_dsgd", **SHORT}
    plan = decentral_dp.plan(RING, set=one_level)
    run = decentral_dp.run(RING, set=one_level)
    assert plan.rounds == run.result.rounds == 2
    assert run.scenario.algorithm.kind == "dp_dsgd"


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("algorithm.w", 'set: the scenario has no key "algorithm.w"; did you mean "algorithm.'),
        ("privacy.clip.k", 'set: the scenario has no key "privacy.clip.k"'),
        ("privcy", 'set: the scenario has no key "privcy"; did you mean "privacy".'),
        ("seed.of", "set: seed.of has seed for a table, but it is a value"),
        ("nothing.here", 'set: the scenario has no key "nothing.here"'),
    ],
)
def test_a_key_that_is_not_there_is_refused(key: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        decentral_dp.load(RING, set={key: None})
    assert str(caught.value).startswith(sentence)


@pytest.mark.usefixtures("undrawn")
def test_the_command_takes_keys_out(tmp_path: Path) -> None:
    asked = ["--set", "algorithm.kind=dp_dsgd", "--set", "algorithm.rounds=2"]
    refused = CliRunner().invoke(app, ["plan", RING, *asked])
    assert refused.exit_code != 0
    assert isinstance(refused.exception, InputError)
    assert "Leave it out (--set algorithm.x=null)." in refused.exception.command
    taken = ["--set", "algorithm.x=null", "--set", "algorithm.z=null"]
    assert CliRunner().invoke(app, ["plan", RING, *asked, *taken]).exit_code == 0
    out = tmp_path / "run"
    assert CliRunner().invoke(app, ["run", RING, *asked, *taken, "--out", str(out)]).exit_code == 0
    assert "(here dp_dsgd)" in (out / "scenario.toml").read_text()


def test_a_split_that_training_has_no_use_for_is_taken_out_so() -> None:
    asked = ["plan", "classification", "--set", "problem.validation=0.2"]
    refused = CliRunner().invoke(app, asked)
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == "problem.validation: classification takes none. Leave it out."
    assert "Leave it out (--set problem.validation=null)." in refused.exception.command


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("network.loss=1", "problem.generator"),
        ("run.delay=2", "privacy.delta"),
        ("problem.lag=0.1", "topology"),
    ],
)
def test_no_key_of_another_table_is_guessed(override: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        load(RING, [override])
    assert f'did you mean "{hint}' not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("watts_strogatz", "small_world"),
        ("watts_strogatz_graph", "small_world"),
        ("barabasi_albert", "preferential_attachment"),
        ("cycle_graph", "ring"),
    ],
)
def test_names_of_networkx_are_told_ours(name: str, ours: str) -> None:
    with pytest.raises(InputError, match=f"use '{ours}'"):
        decentral_dp.plan(RING, set={"topology.kind": name, **SHORT})


@pytest.mark.usefixtures("undrawn")
def test_a_title_says_which_graph_is_run(
    scenario: Callable[..., dict[str, Any]], tmp_path: Path, undrawn: None
) -> None:
    plan = decentral_dp.plan(RING, set={"topology.kind": "star", "topology.agents": 12, **SHORT})
    assert plan.title.endswith("(here another network)")
    assert decentral_dp.plan(RING, set={"topology.agents": 10, **SHORT}).title == decentral_dp.load(RING).title
    wanted = {**scenario(), "title": "Five agents on a ring"}
    run = decentral_dp.run(wanted, topology=nx.path_graph(5), out=tmp_path / "run")
    assert run.result.title.startswith("Five agents on a ring (here another network")
    again = decentral_dp.run(tmp_path / "run" / "scenario.toml", topology=nx.path_graph(5))
    assert again.result.title == run.result.title


def test_at_most_is_said_where_agents_differ() -> None:
    noise = {"privacy.y.scale": 1.0, "privacy.z.scale": 1.0, "algorithm.protocol": "private", **SHORT}
    star = decentral_dp.plan(RING, set={"privacy.epsilon": None, **noise, "topology.kind": "star"})
    target = decentral_dp.plan(RING, set=SHORT)
    assert len(set(star.epsilon)) > 1
    assert "certified: at most ε = " in str(star)
    assert "certified: ε = " in str(target)


def test_public_names_are_listed_and_no_others() -> None:
    listed = dir(decentral_dp)
    assert set(decentral_dp.__all__) <= set(listed)
    assert {"Any", "annotations", "importlib", "TYPE_CHECKING"}.isdisjoint(listed)


def test_what_audits_and_views_find_is_printed_in_a_line() -> None:
    audit = decentral_dp.audit("network_view", set=SHORT, runs=20)
    view = decentral_dp.network_view("network_view", set=SHORT)
    for found in (audit, view):
        assert "\n" not in repr(found)
        assert len(repr(found)) < 160
    assert repr(audit).startswith("<AuditResult ")
