"""Runs against an adversary of published models: both ε everywhere, the folder of the model, scores of the average."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import decentral_dp
from decentral_dp.config.components import load_components
from decentral_dp.formatting import epsilon_text
from decentral_dp.reporting.comparison import compare, comparison_tables
from decentral_dp.reporting.page import write_report
from decentral_dp.reporting.privacy import assumptions_text, stated_epsilons, summary_text
from decentral_dp.reporting.report import compare_with_baselines, tabulate_budgets
from decentral_dp.simulation.baselines import baseline_jobs
from decentral_dp.simulation.metrics import average_agents
from decentral_dp.simulation.model import load_model
from decentral_dp.simulation.plan import print_privacy_plan
from decentral_dp.simulation.run import Run, run_job
from decentral_dp.simulation.statement import PrivacyStatement, without_bound
from decentral_dp.studies.runs import _plan as plan_cell

SMALL: dict[str, Any] = {
    "problem.data": "breast_cancer",
    "topology.kind": "ring",
    "topology.agents": 4,
    "algorithm.rounds": 6,
    "privacy.epsilon": 2.0,
    "run.evaluate_every": 3,
}


def make_run(view: str, out: Path | None = None, **keys: Any) -> Run:
    settings = {**SMALL, "privacy.adversary": view, **keys}
    return run_job(decentral_dp.build("dp_dsgd_published", set=settings).simulation(), out)


@pytest.fixture(scope="module")
def average(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_run("final_average", tmp_path_factory.mktemp("average") / "run")
    write_report(folder_of(run))
    return run


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run("final_models", tmp_path_factory.mktemp("models") / "run")


def folder_of(run: Run) -> Path:
    assert run.folder is not None
    return run.folder


class TestStatement:
    def test_both_epsilons_are_in_one_sentence_each(self, average: Run) -> None:
        privacy = average.result.privacy
        published, every = map(epsilon_text, (privacy.epsilon_published, privacy.epsilon_max))
        assert published != every
        assert (
            f"ε = {published} at δ = 1e-5 for an adversary that receives only the average of the 4 final models, "
            "if agents follow the protocol and keep all else secret. "
        ) in summary_text(privacy)
        assert f"ε = {every} for agents and observers of messages. " in summary_text(privacy)

    def test_epsilon_of_all_messages_with_correlated_noise_is_without_colluders(self) -> None:
        keys = {**SMALL, "privacy.correlation": {"between_agents": "pairwise", "ratio": 1.0}}
        privacy = decentral_dp.plan("dp_dsgd_published", set=keys).privacy
        every = epsilon_text(privacy.epsilon_max)
        assert f"ε = {every} for one that observes every message, no agent colludes. " in summary_text(privacy)

    def test_epsilons_are_those_of_the_job(self, average: Run) -> None:
        job: Any = average.simulation()
        privacy = average.result.privacy
        assert privacy.epsilon_published == job.published.max() < privacy.epsilon_max == job.budget.epsilon.max()
        assert [agent.epsilon_published for agent in privacy.agents] == job.published.tolist()
        assert [agent.epsilon for agent in privacy.agents] == job.budget.epsilon.tolist()

    def test_the_target_is_met_if_the_rounding_changes_with_the_noise(self) -> None:
        changes = {"algorithm.rounds": 300, "privacy.epsilon": 0.5}
        published = decentral_dp.plan("dp_dsgd_published", set=changes).privacy.epsilon_published
        assert published is not None
        assert 0.4995 <= published <= 0.5

    def test_all_messages_have_one_epsilon(self) -> None:
        privacy = decentral_dp.plan("dp_dsgd").privacy
        assert (privacy.view, privacy.epsilon_published, assumptions_text(privacy)) == ("all_messages", None, "")
        assert [name for name, _ in stated_epsilons(privacy)] == ["ε"]
        assert all(agent.epsilon_published is None for agent in privacy.agents)

    def test_result_json_has_both(self, models: Run) -> None:
        privacy = json.loads((folder_of(models) / "result.json").read_text(encoding="utf-8"))["privacy"]
        assert privacy["view"] == "final_models"
        assert 0.0 < privacy["epsilon_published"] < privacy["epsilon_max"]
        assert PrivacyStatement.from_dict(privacy) == models.result.privacy

    def test_unplanned_releases_have_no_bound_for_either(self, models: Run) -> None:
        unbounded = without_bound(models.result.privacy)
        assert [epsilon for _, epsilon in stated_epsilons(unbounded)] == [math.inf, math.inf]
        assert {agent.epsilon_published for agent in unbounded.agents} == {math.inf}

    def test_tables_have_a_column_of_each(self, average: Run) -> None:
        budgets = tabulate_budgets(average.result.privacy, average.result.topology)
        assert budgets is not None
        assert [column.head for column in budgets.columns[:2]] == ["ε of the final average", "ε of all messages"]

    def test_comparisons_have_both(self, average: Run, models: Run) -> None:
        comparison = compare(folder_of(average), folder_of(models))
        rows = dict(next(table for table in comparison_tables(comparison) if table.title == "Budgets").rows)
        for run, text in zip((average, models), rows["ε of the published models, worst agent"], strict=True):
            assert text == epsilon_text(run.result.privacy.epsilon_published)
        assert rows["ε of all messages, worst agent"][0] == epsilon_text(average.result.privacy.epsilon_max)
        assert any("different adversaries" in remark for remark in comparison.remarks)

    def test_the_page_has_both_and_a_warning(self, average: Run) -> None:
        page = (folder_of(average) / "report.html").read_text(encoding="utf-8")
        for name, value in stated_epsilons(average.result.privacy):
            assert f"<dt>Certified {name}</dt><dd>{epsilon_text(value)}</dd>" in page
        assert "Everything outside the folder <code>published/</code>" in page

    def test_studies_measure_both(self) -> None:
        record = plan_cell(decentral_dp.load("dp_dsgd_published", set=SMALL), "last", False)
        finals = record["finals"]
        assert 0.0 < finals["epsilon_published"] < finals["epsilon_max"]
        assert record["threat_model"][1] == "receives only the average of the 4 final models"


PLAIN: dict[str, Any] = {"algorithm.momentum": 0.0, "algorithm.centring": False, "run.average": 1}


class TestPlan:
    @pytest.mark.parametrize(
        ("overrides", "eligible"),
        [
            (PLAIN, True),
            ({}, False),
            (PLAIN | {"problem.weights": "records"}, False),
            (PLAIN | {"attack": {"kind": "sign_flip", "agents": [0]}}, False),
            (PLAIN | {"topology.aggregation": {"kind": "trimmed_mean"}}, False),
        ],
    )
    def test_a_verbose_plan_names_the_adversary_of_an_eligible_job(
        self, overrides: dict[str, Any], eligible: bool, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = decentral_dp.plan("dp_dsgd", set=overrides)
        print_privacy_plan(plan, verbose=True)
        assert ('privacy.adversary = "final_average" states ε' in capsys.readouterr().out) == eligible
        print_privacy_plan(plan)
        assert "final_average" not in capsys.readouterr().out


class TestFolder:
    FILES = ("metadata.json", "model.npz", "scenario.toml", "statement.json")

    def test_published_has_the_model_and_nothing_else(self, average: Run) -> None:
        folder = folder_of(average)
        assert sorted(path.name for path in (folder / "published").iterdir()) == list(self.FILES)
        assert "shows more than the published model" in (folder / "README.txt").read_text(encoding="utf-8")
        digests = average.result["files"]
        assert {"README.txt", *(f"published/{name}" for name in self.FILES)} <= digests.keys()

    def test_the_statement_is_that_of_the_run(self, average: Run) -> None:
        content = json.loads((folder_of(average) / "published/statement.json").read_text(encoding="utf-8"))
        assert PrivacyStatement.from_dict(content) == average.result.privacy

    def test_the_average_is_an_exact_sum_divided_once(self, average: Run) -> None:
        with np.load(folder_of(average) / "published/model.npz") as arrays:
            (published,) = arrays["y"]
        agents = average.published["y"]
        exact = [float(sum(map(Fraction, column))) / len(agents) for column in agents.T.tolist()]
        assert published.tolist() == exact
        for order in ([3, 1, 0, 2], [2, 3, 1, 0]):
            assert average_agents({"y": agents[order]})["y"][0].tolist() == exact

    def test_the_average_of_other_floats_depends_on_the_order(self) -> None:
        values = np.array([[1.0], [1e-17], [-1.0], [1e-17]])
        assert average_agents({"y": values})["y"] != average_agents({"y": values[[0, 2, 1, 3]]})["y"]

    @pytest.mark.parametrize("name", ["average", "models"])
    def test_the_model_is_loaded_without_the_run(
        self, name: str, request: pytest.FixtureRequest, tmp_path: Path
    ) -> None:
        run: Run = request.getfixturevalue(name)
        alone = tmp_path / "published"
        (folder_of(run) / "published").rename(alone)
        try:
            loaded = load_model(alone)
        finally:
            alone.rename(folder_of(run) / "published")
        rows = load_breast_cancer().data[:7]
        assert np.array_equal(loaded.predict_proba(rows), run.predict_proba(rows))
        assert len(loaded.published) == (1 if name == "average" else 4)

    def test_final_models_has_the_weights_of_every_agent(self, models: Run) -> None:
        with np.load(folder_of(models) / "published/model.npz") as arrays:
            assert arrays["weight"].shape == (4, 1, 30)
            for agent in range(4):
                assert np.array_equal(arrays["bias"][agent], models.model.of_agent(agent).weights["bias"])

    def test_a_run_for_all_messages_has_no_such_folder(self, tmp_path: Path) -> None:
        make_run("all_messages", tmp_path / "run")
        assert not {"published", "README.txt"} & {path.name for path in (tmp_path / "run").iterdir()}


def test_a_centred_average_follows_from_two_averages(tmp_path: Path) -> None:
    """The average of the agents' intercepts for features that are not centred would show more."""
    keys = {
        **SMALL,
        "algorithm.centring": True,
        "algorithm.learning_rate": 1.0,
        "privacy.epsilon": None,
        "privacy.clip": {"x": 1.0, "y": 0.1},
        "privacy.x": {"scale": 0.3},
        "privacy.y": {"scale": 0.01},
    }
    run = decentral_dp.run("dp_dsgd_published", set=keys, out=tmp_path / "run")
    x, y = (run.published[name] for name in ("x", "y"))
    problem: Any = run.simulation().problem
    expected = problem.predicting(x.mean(axis=0, keepdims=True), y.mean(axis=0, keepdims=True))
    assert np.array_equal(run.model.published, expected)
    assert np.abs(problem.predicting(x, y).mean(axis=0) - expected).max() > 1e-6
    rows = load_breast_cancer().data[:7]
    loaded = load_model(tmp_path / "run" / "published")
    assert np.array_equal(loaded.predict_proba(rows), run.predict_proba(rows))


class TestScores:
    def test_scores_are_those_of_the_averaged_model(self, average: Run) -> None:
        job: Any = average.simulation()
        y = average.published["y"].mean(axis=0, keepdims=True)
        accuracy = job.problem.accuracy(np.empty((1, 0)), y, job.test)[0]
        assert average.result.metrics["test_accuracy"] == accuracy
        assert average.result.evaluated_on == "final_average"
        assert "of the averaged model" in average.report.score

    def test_consensus_is_that_of_the_agents(self, average: Run, models: Run) -> None:
        job: Any = average.simulation()
        y = average.published["y"]
        errors = np.linalg.norm(y - y.mean(axis=0), axis=1)
        assert average.result.metrics["consensus_y"] == pytest.approx(errors.mean())
        assert (
            models.result.metrics["test_accuracy"]
            == job.problem.accuracy(np.empty((4, 0)), models.published["y"], job.test).mean()
        )


class TestBaselines:
    def test_baselines_have_the_stated_epsilon_and_no_hidden_messages(self) -> None:
        components = load_components(decentral_dp.load("dp_dsgd_published", set=SMALL))
        job = decentral_dp.build("dp_dsgd_published", set=SMALL).simulation()
        jobs = baseline_jobs(components, job)
        assert jobs.keys() == {"alone", "central", "none"}
        for name in jobs.keys() - {"none"}:
            assert jobs[name].scenario.privacy.adversary == "all_messages"
            assert jobs[name].budget.epsilon == pytest.approx(2.0, rel=1e-6)

    def test_the_table_has_both_epsilons(self, average: Run) -> None:
        plain = run_job(
            decentral_dp.build("dp_dsgd_published", set={**SMALL, "privacy.adversary": "all_messages"}).simulation()
        )
        compared = compare_with_baselines([(average.result, {"central": plain.result})])
        assert compared is not None
        assert [head for head, _ in compared.table.heads[-2:]] == ["ε of the final average", "ε of all messages"]
        assert compared.table.rows[-2][-2:] == list(
            map(epsilon_text, (e for _, e in stated_epsilons(average.result.privacy)))
        )
