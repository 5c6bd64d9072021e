"""Test the baselines of a run: isolated agents, a trusted server, no noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.errors import Stopped
from decentral_dp.reporting import page
from decentral_dp.reporting.report import compare_with_baselines, read_report
from decentral_dp.simulation.result import RunResult
from tests.support.run_folders import STATEMENT
from tests.support.training import training_on_frame

FEW: dict[str, Any] = {"algorithm.rounds": 20, "run.evaluate_every": 20}


def synthetic_table(shift: float = 0.0) -> pd.DataFrame:
    """Return 60 records of three agents, with those of agent 0 moved by `shift`."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.uniform(-1.0, 1.0, (60, 2)), columns=["a", "b"])
    table["label"] = (table["a"] + 0.3 * rng.standard_normal(60) > 0.0).astype(int)
    table["agent"] = np.arange(60) % 3
    table.loc[table["agent"] == 0, "a"] = (table.loc[table["agent"] == 0, "a"] + shift).clip(-1.0, 1.0)
    return table


SCENARIO = training_on_frame()


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> decentral_dp.Run:
    folder = tmp_path_factory.mktemp("judged") / "run"
    return decentral_dp.run("classification", set=FEW, out=folder, baselines=True)


def test_each_is_a_run_of_its_own_at_the_same_price(judged: decentral_dp.Run) -> None:
    assert list(judged.baselines) == ["alone", "central", "none"]
    mine, jobs = judged.simulation(), {name: run.simulation() for name, run in judged.baselines.items()}
    assert jobs["alone"].topology.edges.size == 0
    assert jobs["alone"].n_agents == mine.n_agents
    assert jobs["central"].n_agents == 1
    for job in jobs.values():
        np.testing.assert_array_equal(job.shards.test, mine.shards.test)
        assert job.shards.train_counts.sum() == mine.shards.train_counts.sum()
    for name in ("alone", "central"):
        assert judged.baselines[name].result.privacy.epsilon_max == pytest.approx(4.0, rel=1e-3)
    assert judged.baselines["none"].result.privacy.epsilon_max == np.inf
    assert judged.folder is not None
    assert (judged.folder / "baselines" / "alone" / "report.html").exists()
    compared = read_report(judged.folder).baselines
    assert compared is not None
    assert len(compared.table.rows) == 2 + len(judged.baselines)


@pytest.mark.parametrize("baselines", [True, False])
def test_an_interrupt_says_that_baselines_do_not_resume(tmp_path: Path, baselines: bool) -> None:
    def interrupt(progress: Any) -> None:
        if progress.done > 2:
            raise KeyboardInterrupt

    with pytest.raises(Stopped) as stopped:
        decentral_dp.run(
            "classification",
            set=FEW | {"run.evaluate_every": 1},
            out=tmp_path / "run",
            callbacks=[interrupt],
            baselines=baselines,
        )
    assert ("Repeat baselines and seeds in a new folder." in str(stopped.value)) == baselines
    assert decentral_dp.resume(tmp_path / "run").result.status == "ok"


def test_alone_nobody_hears_of_another() -> None:
    """A changed record of agent 0 changes no value of another agent, except on a ring."""

    def last(kind: str, shift: float) -> Any:
        changed = {"topology.kind": kind, "privacy": {"guarantee": "none"}}
        return decentral_dp.run(SCENARIO, data=synthetic_table(shift), set=changed).released["y"]

    before, after = last("isolated", 0.0), last("isolated", 0.5)
    np.testing.assert_array_equal(before[1:], after[1:])
    assert np.abs(before[0] - after[0]).max() > 1e-6
    assert np.abs(last("ring", 0.0)[1:] - last("ring", 0.5)[1:]).max() > 1e-9


def test_agents_with_equal_counts_are_one_isolated_run() -> None:
    table = synthetic_table().drop(columns="agent")
    run = decentral_dp.run(SCENARIO, data=table, baselines=True)
    assert list(run.baselines) == ["alone", "central", "none"]
    again = decentral_dp.run(SCENARIO, data=table, set={"topology.kind": "isolated"})
    np.testing.assert_array_equal(run.baselines["alone"].released["y"], again.released["y"])


def test_isolated_agents_with_similar_counts_share_a_run() -> None:
    table = synthetic_table()
    table = table.drop(index=[*table.index[table["agent"] == 0][:1], *table.index[table["agent"] == 2][:10]])
    run = decentral_dp.run(SCENARIO, data=table, baselines=True)
    counts = run.simulation().shards.train_counts
    fewest, similar = counts.min(), counts[:2].min()
    assert counts[2] == fewest < similar < counts[:2].max()
    assert sorted(run.baselines) == sorted([f"alone_{fewest}", f"alone_{similar}", "central", "none"])
    members = [run.baselines[f"alone_{n}"].scenario.problem.members for n in (fewest, similar)]
    assert members == [[2], [0, 1]]
    assert len(run.result.sites) == 3


def test_decays_for_each_agent_keep_one_isolated_run() -> None:
    decay = {"privacy.y": {"decay_per_agent": 0.1}, "algorithm.centring": False}
    run = decentral_dp.run(SCENARIO, data=synthetic_table(), baselines=True, set=decay)
    assert list(run.baselines) == ["alone", "central", "none"]


def test_noise_that_is_given_leads_to_the_price_that_it_has() -> None:
    fixed = {"privacy": {"mechanism": "gaussian", "delta": 1e-5, "clip": 0.1, "y": {"scale": 0.05}}}
    settings = fixed | FEW | {"algorithm.learning_rate": {"scale": 1.0}}
    run = decentral_dp.run("classification", set=settings, baselines=True)
    mine = run.result.privacy.epsilon_max
    assert mine is not None
    for name in ("alone", "central"):
        assert run.baselines[name].result.privacy.epsilon_max == pytest.approx(mine, rel=2e-3)


def test_who_has_no_neighbour_shares_no_noise() -> None:
    shared = {"privacy.correlation": {"between_agents": "pairwise"}, "privacy.colluders": 1}
    run = decentral_dp.run("classification", set=FEW | shared, baselines=True)
    assert run.simulation().pairs is not None
    compared = compare_with_baselines(run.compared)
    assert compared is not None
    assert "holds against 1 colluder (" in compared.price
    for name in ("alone", "central"):
        baseline = run.baselines[name]
        assert baseline.simulation().pairs is None
        assert baseline.result.privacy.shared is None
        assert baseline.result.privacy.epsilon_max == pytest.approx(run.result.privacy.epsilon_max, rel=2e-3)


def test_a_server_has_the_very_records_that_the_agents_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synthetic records are drawn agent by agent; the folder of the baseline has the same ones."""
    monkeypatch.setattr(page, "draw_run", lambda *_: None)
    few = {"algorithm.rounds": 2, "run.measures": ["test_loss"]}
    run = decentral_dp.run("dsbo_jhip", set=few, baselines=True, out=tmp_path / "run")
    mine, server = run.simulation(), run.baselines["central"].simulation()
    np.testing.assert_array_equal(server.shards.features, mine.shards.features)
    np.testing.assert_array_equal(server.shards.train[0], np.concatenate(mine.shards.train))
    again = decentral_dp.build(tmp_path / "run" / "baselines" / "central" / "scenario.toml")
    np.testing.assert_array_equal(again.simulation().shards.train[0], server.shards.train[0])
    assert again.ledger.same_releases(server.ledger)
    assert run.baselines["central"].result.title.endswith("(here another network)")


def result(auc: float, epsilon: float, tests: int = 400) -> RunResult:
    return RunResult.from_content(
        {
            **{"title": "", "status": "ok", "reason": None, "engine": "local", "rounds": 1, "rounds_planned": 1},
            **{"topology": {}, "versions": {}},
            "metrics": {"test_auc": auc, "test_loss": 0.5},
            "diagnostics": {"baselines": {"test_auc": 0.5, "test_accuracy": 0.75}},
            "problem": {"records": {"test": tests}},
            "privacy": {
                **STATEMENT,
                "guarantee": "certified" if np.isfinite(epsilon) else "none",
                "delta": 1e-5,
                "epsilon_max": epsilon,
                "agents": [{"agent": 0, "epsilon": epsilon, "epsilon_pure": np.inf, "channels": {}}],
            },
        }
    )


def test_what_all_of_them_released_is_added_up() -> None:
    told = compare_with_baselines([(result(0.9, 2.0), {"alone": result(0.7, 2.0), "none": result(0.95, np.inf)})])
    assert told is not None
    assert "at most ε = 4.00 at δ = 2e-5" in told.price
    assert "is not private" in told.price


def test_differences_are_paired_over_seeds() -> None:
    """Scores 0.9 and 0.8 over 0.7 and 0.58: differences 0.2 and 0.22, with Student's interval of two seeds."""
    seeds = [(result(0.9, 2.0), {"alone": result(0.7, 2.0)}), (result(0.8, 2.0), {"alone": result(0.58, 2.0)})]
    told = compare_with_baselines(seeds)
    assert told is not None
    # t of one degree of freedom is 12.706, and the standard error is 0.01.
    assert "test_auc: +0.210 (95 % interval over seeds +0.083 to +0.337) against each agent alone" in told.sentence
    assert "2 runs each" in told.sentence
    assert [row[1] for row in told.table.rows] == ["0.5000", "0.8500", "0.6400"]
    assert "at most ε = 8.00 at δ = 4e-5" in told.price
    losing = compare_with_baselines([(result(0.7, 2.0), {"alone": result(0.9, 2.0)})] * 2)
    assert losing is not None
    assert "test_auc: −0.200 (95 % interval over seeds −0.200 to −0.200) against" in losing.sentence
