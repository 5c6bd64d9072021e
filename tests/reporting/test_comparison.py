"""Comparisons of runs: settings, metrics, incomplete runs and damaged folders."""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import decentral_dp
from decentral_dp.cli.run import print_and_write_comparison, print_comparison
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.reporting.comparison import compare, comparison_tables
from decentral_dp.reporting.privacy import adversary_text
from decentral_dp.simulation.result import read_result
from tests.conftest import BASE
from tests.support.interruptions import interrupt, save_states_often
from tests.support.run_folders import rewrite_result, write_run

COORDINATOR = ["algorithm.rounds=2", "run.evaluate_every=1"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the folders a and b (other ε and rounds), trusted (a coordinator's) and cut (interrupted), undrawn."""
    place = tmp_path_factory.mktemp("runs")
    other = copy.deepcopy(BASE)
    other["algorithm"]["rounds"] = 4
    other["privacy"]["epsilon"] = 1.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("decentral_dp.reporting.plots.write_plots", lambda *_, **_named: [])
        decentral_dp.run(BASE, out=place / "a")
        decentral_dp.run(other, out=place / "b")
        decentral_dp.run(load("dp_bilevel", COORDINATOR), out=place / "trusted")
        save_states_often(patch)
        long = copy.deepcopy(BASE)
        long["algorithm"]["rounds"], long["run"]["evaluate_every"] = 9, 1
        interrupt(long, place / "cut", 6)
    return place


def test_what_was_sent_is_a_table_where_anybody_counts_it(folders: Path) -> None:
    found = compare(folders / "a", folders / "b", folders / "trusted")
    sent = decentral_dp.plan(BASE).communication
    assert sent is not None
    assert found.communication.loc["a"].tolist() == [sent.messages, sent.numbers, sent.bits]
    assert found.communication.loc["trusted"].isna().all()
    (table,) = (t for t in comparison_tables(found) if t.title == "Communication")
    assert table.rows[0] == ("messages", [str(sent.messages), str(sent.messages * 4 // 6), "–"])


def test_only_what_differs_is_listed_by_its_dotted_path(folders: Path) -> None:
    found = compare(folders / "a", folders / "b")
    assert found.settings.to_dict("index") == {
        "algorithm.rounds": {"a": 6, "b": 4},
        "privacy.epsilon": {"a": 4.0, "b": 1.0},
    }
    trusted = compare(folders / "a", str(folders / "trusted")).settings
    assert trusted.loc["algorithm.kind"].tolist() == ["ldp_dsbo", "dp_bilevel"]
    # A key that one run does not have.
    assert trusted.loc["problem.scale"].tolist() == ["public_ranges", "none"]
    assert trusted.loc["algorithm.domain.low", "a"] is None
    assert not [key for key in trusted.index if key.startswith(("versions", "title", "description"))]


def test_settings_that_differ_replace_long_names(folders: Path, tmp_path: Path) -> None:
    names = [f"ring-algorithm.momentum=0.5-topology.weights=metropolis{end}" for end in ("", "-2")]
    for source, name in zip("ab", names, strict=True):
        shutil.copytree(folders / source, tmp_path / name)
    labels = [run.name for run in compare(*(tmp_path / name for name in names)).runs]
    assert labels == ["algorithm.rounds=6-privacy.epsilon=4.0", "algorithm.rounds=4-privacy.epsilon=1.0"]


def test_long_names_are_rows_and_no_column_breaks_them(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"digits-topology.kind={kind}-privacy.epsilon=2.0" for kind in ("ring", "star", "complete", "path")]
    for name in names:
        shutil.copytree(folders / "a", tmp_path / name)
    monkeypatch.setenv("COLUMNS", "80")
    print_comparison(compare(*(tmp_path / name for name in names)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:4]] == [["run", str(k), name] for k, name in enumerate(names, 1)]
    assert ["run", "1", "run", "2", "run", "3", "run", "4"] in [line.split() for line in lines]


def test_earlier_comparisons_are_skipped(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`compare runs/*` can be repeated."""
    compare(folders / "a", folders / "b").write(tmp_path / "compare")
    print_and_write_comparison([tmp_path / "compare", folders / "a", folders / "b"], tmp_path / "out", [])
    assert capsys.readouterr().out.splitlines()[1].split() == ["a", "b"]


def test_budgets_and_metrics_are_those_of_the_runs(folders: Path) -> None:
    found = compare(folders / "a", folders / "trusted")
    for run in found.runs:
        privacy = run.result.privacy
        row = found.budgets.loc[run.name]
        assert (row["guarantee"], row["epsilon"], row["delta"]) == ("certified", privacy.epsilon_max, 1e-5)
        for name, value in run.result.metrics.items():
            if not name.endswith(("_min", "_max")):
                assert found.metrics.loc[name, run.name] == value
    assert pd.isna(found.metrics.loc["consensus_y", "trusted"])
    assert "different adversaries" in " ".join(found.remarks)
    text = {name: dict(table.rows) for table in comparison_tables(found) for name in [table.title]}
    assert text["Last metrics"]["consensus_y"][1] == "–"
    assert text["Budgets"]["guarantee"] == ["certified", "certified"]
    assert [adversary_text(run.result.privacy) for run in found.runs] == [
        "observes all messages",
        "observes all that the trusted coordinator publishes",
    ]


def test_a_claim_is_not_called_certified(folders: Path, tmp_path: Path) -> None:
    published = read_result(write_run(tmp_path / "published", guarantee="as_published"))
    found = compare(folders / "a", tmp_path / "published")
    assert found.budgets.loc["published", "claimed"] == published.privacy.claimed_epsilon == 320.61
    budgets = dict(comparison_tables(found)[1].rows)
    assert budgets["claimed by a paper, not certified"][0] == "–"
    assert budgets["guarantee"][1].startswith("provable for the algorithm as published")
    with pytest.raises(InputError, match="a run was not written to a folder"):
        compare(folders / "a", decentral_dp.run("quadratic", set={"algorithm.rounds": 1}))


def test_a_notebook_has_one_figure_and_a_page_one_for_each_width(folders: Path, tmp_path: Path) -> None:
    found = compare(folders / "a", folders / "b")
    assert found._repr_html_().count("<svg") == 1
    assert found.write(tmp_path).read_text(encoding="utf-8").count("<svg") == 2


def test_a_run_that_was_cut_off_is_shown_as_far_as_it_goes(folders: Path, tmp_path: Path) -> None:
    found = compare(folders / "a", folders / "cut")
    cut = found.runs[1]
    assert not cut.complete
    assert cut.result.status == "interrupted"
    known = cut.metrics[(cut.metrics["name"] == "upper_loss") & (cut.metrics["agent"] == "mean")]
    assert known["round"].tolist() == list(range(len(known)))
    assert cut.measured_to == len(known) - 1 >= 3
    assert len(found.remarks) == 1
    assert re.fullmatch(r"cut is not complete \(interrupted; .*\); measured up to round \d\.", found.remarks[0])
    # A broken part ends the metrics; a folder without any state has none.
    damaged = shutil.copytree(folders / "cut", tmp_path / "damaged")
    parts = sorted((damaged / "in_progress").glob("metrics-*.parquet"))
    parts[1].write_bytes(b"")
    assert compare(folders / "a", damaged).runs[1].metrics["round"].max() < cut.measured_to
    shutil.rmtree(damaged / "in_progress")
    content = json.loads((damaged / "result.json").read_text())
    rewrite_result(damaged, content | {"status": "failed", "reason": "The disk is full."})
    sentence = "damaged is not complete (The disk is full); nothing was measured yet."
    assert compare(folders / "a", damaged).remarks == [sentence]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["a"], "expected at least 2"),
        (["a", "../runs0/a"], "got 1 different run folders"),
        (["a", "nowhere"], "result.json: the file does not exist"),
        (["a", "a/result.json"], "the file does not exist"),
        (["a", "damaged"], "was not written by this version"),
    ],
)
def test_what_is_no_run_is_refused_in_a_sentence(folders: Path, given: list[str], sentence: str) -> None:
    (folders / "damaged").mkdir(exist_ok=True)
    (folders / "damaged" / "result.json").write_text("{")
    with pytest.raises(InputError, match=sentence) as refused:
        compare(*(folders / name.replace("runs0", folders.name) for name in given))
    assert "\n" not in str(refused.value)
