"""Scores of the common model and of each agent's own model on the held-out records of each agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w

import decentral_dp
from decentral_dp import InputError
from decentral_dp.reporting.report import read_report, tabulate_sites
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statistics import paired_interval
from tests.support.training import training_on_frame

SIZES = (300, 60, 40)
SCENARIO = training_on_frame(
    problem={"partition": {"kind": "column", "name": "site", "agents": ["a", "b", "c"]}},
    topology={"kind": "complete"},
    algorithm={"rounds": 40},
    privacy={"epsilon": 6.0},
)
NOISELESS: dict[str, Any] = {"privacy": {"guarantee": "none"}}


def frame(numbers: bool = False) -> pd.DataFrame:
    """Return records of three unequal sites. The last one has labels of the opposite rule."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.uniform(-1.0, 1.0, (sum(SIZES), 4)), columns=list("pqrs"))
    table["site"] = np.repeat(["a", "b", "c"], SIZES)
    score = np.where(table["site"] == "c", -1.0, 1.0) * (table["p"] - table["q"]) + 0.2 * rng.standard_normal(
        len(table)
    )
    table["label"] = score if numbers else (score > 0.0).astype(int)
    return table.sample(frac=1.0, random_state=1).reset_index(drop=True)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> decentral_dp.Run:
    out = tmp_path_factory.mktemp("sites") / "run"
    return decentral_dp.run(SCENARIO, data=frame(), out=out, baselines=True, seeds=2)


def held_out(run: decentral_dp.Run, site: int) -> pd.DataFrame:
    table, shards = frame(), run.simulation().shards
    return table.loc[[k for k in shards.test.tolist() if table["site"][k] == "abc"[site]]]


def isolated(run: decentral_dp.Run, site: int) -> decentral_dp.Run:
    """Return the run of an isolated site."""
    return next(each for each in run.baselines.values() if each.scenario.problem.members == [site])


@pytest.mark.parametrize(
    "rule", [None, "iid", {"kind": "dirichlet", "alpha": 0.5}, {"kind": "by_class", "share": 0.8}], ids=str
)
def test_every_held_out_record_has_one_owner(rule: Any) -> None:
    problem = SCENARIO["problem"] | ({} if rule is None else {"partition": rule})
    table = frame() if rule is None else frame().drop(columns="site")
    shards = decentral_dp.build(SCENARIO | {"problem": problem}, data=table).simulation().shards
    np.testing.assert_array_equal(np.sort(np.concatenate(shards.test_parts)), shards.test)
    if rule is None:
        owners = [set(frame()["site"][part]) for part in shards.test_parts]
        assert owners == [{"a"}, {"b"}, {"c"}]
    elif rule == "iid":
        assert np.ptp([part.size for part in shards.test_parts]) <= 1
    else:
        # The shares of each class are those of the train records, up to rounding.
        for train, test in zip(shards.train, shards.test_parts, strict=True):
            for label in (0, 1):
                wanted = (shards.labels[train] == label).sum() / (
                    shards.labels[np.concatenate(shards.train)] == label
                ).sum()
                got = (shards.labels[test] == label).sum() / (shards.labels[shards.test] == label).sum()
                assert abs(wanted - got) < 0.05


def test_a_function_gives_held_out_records_no_owner() -> None:
    problem = {key: value for key, value in SCENARIO["problem"].items() if key != "partition"}
    scenario = SCENARIO | {"problem": problem}
    halves = lambda labels, agents, **_: np.arange(len(labels)) % agents  # noqa: E731
    run = decentral_dp.run(scenario, data=frame().drop(columns="site"), partition=halves, baselines=True)
    assert run.simulation().sites is None
    assert run.result.sites == ()


def test_scores_are_those_of_the_published_models(compared: decentral_dp.Run) -> None:
    """`Run.predict` reads raw tables, and takes no part in the scores."""
    runs = [compared, *compared.repeats]
    for number, site in enumerate(compared.result.sites):
        table = held_out(compared, number)
        assert (site.agent, site.records) == (number, len(table))
        common = [np.mean(run.predict(table) == table["label"]) for run in runs]
        own = [np.mean(isolated(run, number).predict(table, agent="abc"[number]) == table["label"]) for run in runs]
        assert site.score == pytest.approx(np.mean(common))
        assert site.alone == pytest.approx(np.mean(own))
        assert site.gain == pytest.approx(np.mean(common) - np.mean(own))
        low, gain, high = (float(number or 0.0) for number in (site.low, site.gain, site.high))
        assert low < high
        assert low <= gain <= high


def test_metrics_have_a_row_for_each_site(compared: decentral_dp.Run) -> None:
    last = compared.metrics[compared.metrics["round"] == 40]
    rows = last[last["name"] == "site_accuracy"].set_index("agent")["value"]
    tables = [held_out(compared, number) for number in range(3)]
    wanted = [float(np.mean(compared.predict(table) == table["label"])) for table in tables]
    assert rows[["0", "1", "2"]].tolist() == pytest.approx(wanted)
    metrics = compared.result.metrics
    assert metrics["site_accuracy"] == pytest.approx(np.mean(wanted))
    assert metrics["worst_site"] == metrics["site_accuracy_min"] == pytest.approx(min(wanted))


def test_seeds_change_the_noise_and_keep_the_records(compared: decentral_dp.Run) -> None:
    (other,) = compared.repeats
    assert other.scenario.seed == 5
    assert not np.array_equal(other.published["y"], compared.published["y"])
    for name in ("train", "test_parts"):
        pairs = zip(*(getattr(run.simulation().shards, name) for run in (compared, other)), strict=True)
        assert all(np.array_equal(*pair) for pair in pairs)
    assert compared.result.seeds == 2
    assert set(other.baselines) == set(compared.baselines)


def test_the_folder_has_all_of_it(compared: decentral_dp.Run) -> None:
    assert compared.folder is not None
    loaded = decentral_dp.Run.load(compared.folder)
    assert loaded.result.sites == compared.result.sites
    assert [run.scenario.seed for run in loaded.repeats] == [5]
    assert json.loads(compared.result.to_json())["sites"][2]["verdict"] == compared.result.sites[2].verdict
    assert RunResult.from_json(loaded.result.to_json()).sites == compared.result.sites
    table = read_report(compared.folder).sites
    assert table is not None
    assert [row[0] for row in table.rows] == ["a", "b", "c"]
    assert "ε does not cover" in table.note
    page = (compared.folder / "report.html").read_text(encoding="utf-8")
    assert 'id="sites"' in page
    assert compared.result.sites[2].verdict in page


def test_a_site_of_another_rule_is_hurt_and_one_seed_decides_nothing() -> None:
    """Without noise all seeds give the same models."""
    run = decentral_dp.run(SCENARIO | NOISELESS, data=frame(), baselines=True, seeds=2, set={"algorithm.rounds": 200})
    assert run.result.sites[2].verdict == "hurts"
    assert run.result.sites[2].gain < -0.5  # type: ignore[operator]
    one = decentral_dp.run(SCENARIO | NOISELESS, data=frame(), baselines=True)
    assert {site.verdict for site in one.result.sites} == {"one seed"}
    table = tabulate_sites(one.result)
    assert table is not None
    assert "--seeds 3" in table.note


def test_numbers_have_absolute_errors_in_their_unit() -> None:
    problem = SCENARIO["problem"] | {"kind": "regression", "label_range": [-4.0, 4.0]}
    del problem["classes"]
    table = frame(numbers=True)
    run = decentral_dp.run(SCENARIO | {"problem": problem}, data=table, baselines=True, seeds=2)
    (first, *_, last), metrics = run.result.sites, run.result.metrics
    own = table.loc[[k for k in run.simulation().shards.test.tolist() if table["site"][k] == "a"]]
    runs = [run, *run.repeats]
    errors = [np.mean(np.abs(each.predict(own) - own["label"])) for each in runs]
    alone = [np.mean(np.abs(isolated(each, 0).predict(own) - own["label"])) for each in runs]
    assert first.score == pytest.approx(np.mean(errors))
    # A smaller error is a gain.
    assert first.gain == pytest.approx(np.mean(alone) - np.mean(errors))
    assert metrics["worst_site"] == metrics["site_absolute_error_max"]
    assert last.records > 0


def test_personal_models_are_scored_on_their_own_records() -> None:
    algorithm = {"kind": "mr_mtl", "rounds": 100, "learning_rate": 1.0, "strength": 0.02}
    run = decentral_dp.run(SCENARIO | NOISELESS | {"algorithm": algorithm}, data=frame())
    assert run.result.personal
    for number, site in enumerate(run.result.sites):
        table = held_out(run, number)
        assert site.score == pytest.approx(np.mean(run.predict(table, agent=number) == table["label"]))
    # The site of the other rule keeps it, and the common model does not have it.
    assert run.result.sites[2].score > 0.7  # type: ignore[operator]
    common = decentral_dp.run(SCENARIO | NOISELESS, data=frame(), set={"algorithm.rounds": 200})
    assert common.result.sites[2].score < 0.3  # type: ignore[operator]


def test_attackers_are_not_scored() -> None:
    attack = {"attack": {"agents": [1], "kind": "sign_flip"}, "topology": {"kind": "complete", "agents": 3}}
    scenario = SCENARIO | attack | {"algorithm": {"kind": "dp_dsgd", "rounds": 20}}
    run = decentral_dp.run(scenario, data=frame(), baselines=True)
    assert [site.agent for site in run.result.sites] == [0, 2]
    table = held_out(run, 2)
    assert run.result.sites[1].alone == pytest.approx(np.mean(isolated(run, 2).predict(table) == table["label"]))


def test_the_largest_site_in_isolation_is_a_run_of_its_records_only() -> None:
    """The settings of the smallest site, which one run of all isolated sites has, give other weights."""
    table, low = frame(), {"privacy.epsilon": 1.0}
    run = decentral_dp.run(SCENARIO, data=table, baselines=True, set=low)
    table["split"] = np.where(np.isin(np.arange(len(table)), run.simulation().shards.test), "test", "train")
    own = table[table["site"] == "a"].drop(columns="site")
    problem = {key: value for key, value in SCENARIO["problem"].items() if key not in ("test", "partition")}
    alone = {"problem": problem, "topology": {"kind": "pooled", "agents": 1}}
    separate = decentral_dp.run(SCENARIO | alone, data=own, set=low)
    np.testing.assert_array_equal(isolated(run, 0).published["y"], separate.published["y"])
    tests = own[own["split"] == "test"].drop(columns="split")
    assert run.result.sites[0].alone == pytest.approx(np.mean(separate.predict(tests) == tests["label"]))
    largest, smallest = (isolated(run, site).simulation().clip.y for site in (0, 2))
    assert largest == separate.simulation().clip.y > smallest
    together = decentral_dp.run(SCENARIO, data=frame(), set=low | {"topology.kind": "isolated"})
    assert together.simulation().clip.y == smallest
    assert not np.allclose(together.published["y"][0], separate.published["y"][0], rtol=0.05)


def test_isolated_sites_read_only_their_records(compared: decentral_dp.Run) -> None:
    """Each record is in one of these runs, so the sum of all costs has their ε once for each seed."""
    runs, mine = [isolated(compared, site) for site in range(3)], compared.simulation().shards
    for site, run in enumerate(runs):
        (train,) = run.simulation().shards.train
        np.testing.assert_array_equal(train, mine.train[site])
        np.testing.assert_array_equal(run.simulation().shards.test, mine.test)
        assert run.result.privacy.epsilon_max == pytest.approx(6.0, rel=1e-3)
        assert run.result.topology["labels"] == ["abc"[site]]
        assert [(each.agent, each.records) for each in run.result.sites] == [(0, mine.test_parts[site].size)]
    comparison = read_report(compared.folder).baselines  # type: ignore[arg-type]
    assert comparison is not None
    assert "at most ε = 36.00 at δ = 6e-5" in comparison.price
    (row,) = [row for row in comparison.table.rows if row[0] == "each agent alone"]
    every = [isolated(run, site) for run in (compared, *compared.repeats) for site in range(3)]
    assert float(row[1]) == pytest.approx(np.mean([run.result.metrics["test_auc"] for run in every]), abs=1e-4)


def test_settings_of_the_scenario_hold_for_every_isolated_site() -> None:
    settings = {"algorithm.learning_rate": {"scale": 0.7}, "privacy.clip": 0.2, "algorithm.rounds": 4}
    run = decentral_dp.run(SCENARIO, data=frame(), baselines=True, set=settings)
    jobs = [isolated(run, site).simulation() for site in range(3)]
    assert [(job.clip.y, job.algorithm.learning_rate.scale) for job in jobs] == [(0.2, 0.7)] * 3


@pytest.mark.parametrize("members", [[1, 1], [1, 0], [0, 3], [-1, 0]], ids=str)
def test_members_are_different_parts(members: list[int]) -> None:
    changes = {"problem.parts": 3, "problem.members": members, "topology.agents": 2}
    with pytest.raises(InputError, match=r"^problem\.members: expected ascending numbers below"):
        decentral_dp.plan(SCENARIO, data=frame(), set=changes)


def test_sites_without_the_others_compare_with_their_own_models() -> None:
    """Sites b and c of three, which have the records that they have with all three."""
    few = {"problem.parts": 3, "problem.members": [1, 2], "topology.agents": 2, "algorithm.rounds": 4}
    run = decentral_dp.run(SCENARIO, data=frame(), baselines=True, set=few)
    mine, every = run.simulation().shards, decentral_dp.build(SCENARIO, data=frame()).simulation().shards
    assert list(map(list, mine.train)) == list(map(list, every.train[1:]))
    assert [site.records for site in run.result.sites] == [part.size for part in every.test_parts[1:]]
    assert run.result.topology["labels"] == ["b", "c"]
    table = held_out(run, 2)
    assert run.result.sites[1].alone == np.mean(isolated(run, 2).predict(table) == table["label"])


def test_equal_shards_are_compared_only_with_baselines() -> None:
    few = {"algorithm.rounds": 20, "run.evaluate_every": 20}
    assert decentral_dp.run("classification", set=few).result.sites == ()
    asked = decentral_dp.run("classification", set=few | {"run.measures": ["worst_site"]})
    assert set(asked.result.metrics) == {"worst_site", "epsilon_spent"}
    assert len(decentral_dp.run("classification", set=few, baselines=True).result.sites) == 5


def test_seeds_need_baselines() -> None:
    with pytest.raises(InputError, match="seeds: got 2, expected 1, or more with baselines"):
        decentral_dp.run("classification", seeds=2)


def test_secret_noise_is_drawn_again() -> None:
    secret = {key: value for key, value in SCENARIO.items() if key != "seed"}
    run = decentral_dp.run(secret, data=frame(), baselines=True, seeds=2)
    assert not np.array_equal(run.published["y"], run.repeats[0].published["y"])
    np.testing.assert_array_equal(run.simulation().shards.test, run.repeats[0].simulation().shards.test)


def test_a_study_measures_sites(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "sites.csv", index=False)
    scenario = SCENARIO | NOISELESS | {"problem": SCENARIO["problem"] | {"data": str(tmp_path / "sites.csv")}}
    measures = ["worst_site", "share_of_sites_that_gain"]
    (tmp_path / "sites.toml").write_text(tomli_w.dumps(scenario), encoding="utf-8")
    content = {"scenario": str(tmp_path / "sites.toml"), "grid": {"algorithm.rounds": [40]}, "measure": measures}
    results = decentral_dp.study(content, workers=1).results.set_index("name")["value"]
    run = decentral_dp.run(scenario, baselines=True, set={"seed": 1})
    assert results["worst_site"] == pytest.approx(run.result.metrics["worst_site"])
    gains = [site.gain > 0.0 for site in run.result.sites if site.gain is not None]
    assert results["share_of_sites_that_gain"] == pytest.approx(np.mean(gains))


class TestInterval:
    def test_it_is_students_interval_of_one_seed(self) -> None:
        """2.776 is the quantile of four degrees of freedom."""
        interval = paired_interval(np.array([[1.0, 2.0, 3.0, 4.0, 5.0]]))
        half = 2.7764451051977987 * np.sqrt(2.5 / 5)
        assert interval == pytest.approx((3.0, 3.0 - half, 3.0 + half))

    def test_it_has_the_variance_of_seeds(self) -> None:
        differences = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
        half = 4.302652729911275 * np.sqrt(1.0 / 3)
        assert paired_interval(differences) == pytest.approx((1.0, 1.0 - half, 1.0 + half))

    def test_equal_outcomes_of_few_records_decide_nothing(self) -> None:
        assert paired_interval(np.ones((1, 2)), bound=1.0).low < 0.0
        assert np.isnan(paired_interval(np.ones((3, 1))).low)
        assert paired_interval(np.zeros((3, 50)), bound=1.0).high < 0.1

    @pytest.mark.parametrize(("records", "seeds", "noise"), [(10, 3, 0.0), (40, 3, 0.1), (200, 3, 0.3)])
    def test_it_contains_the_mean_as_often_as_it_states(self, records: int, seeds: int, noise: float) -> None:
        """Records and seeds are random: outcomes are −1, 0 and 1 with a mean that noise shifts in each seed."""
        rng, covered, trials = np.random.default_rng(5), 0, 600
        for _ in range(trials):
            level = 0.1 + 0.3 * rng.standard_normal(records) + noise * rng.standard_normal((seeds, 1))
            low, high = paired_interval(np.clip(level, -1.0, 1.0), bound=1.0)[1:]
            covered += low <= 0.1 <= high
        assert covered / trials > 0.93


def test_members_beyond_the_named_agents_are_refused() -> None:
    changes = {"problem.parts": 4, "problem.members": [0, 3], "topology.agents": 2}
    with pytest.raises(InputError, match=r"^problem\.parts: differs from the number of partition\.agents"):
        decentral_dp.build(SCENARIO, data=frame(), set=changes)


def test_parts_beyond_the_records_are_refused_at_once() -> None:
    changes = {"problem.parts": 10**11, "problem.members": [0, 1], "topology.agents": 2}
    with pytest.raises(InputError, match=r"^problem\.parts: too large for"):
        decentral_dp.build(SCENARIO, data=frame().drop(columns="site"), set={"problem.partition": "iid"} | changes)
