"""Every fact of a result is on the page, on the terminal and in the notebook; those of a column are compared."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import decentral_dp
from decentral_dp.cli import run as printed
from decentral_dp.config.loading import load
from decentral_dp.reporting.comparison import compare, comparison_tables
from decentral_dp.reporting.facts import Fact, facts
from decentral_dp.reporting.page import run_view, write_report
from decentral_dp.simulation.result import RunResult, read_result
from tests.support.run_folders import Page, read_page

SCENARIOS: Mapping[str, tuple[str, list[str]]] = {
    "gossip": ("ring_breast_cancer", ["algorithm.rounds=20", "privacy.epsilon=0.01"]),
    "gossip as printed": ("figure_1_as_printed", ["algorithm.rounds=2"]),
    "gossip without noise": ("ring_breast_cancer_no_privacy", ["algorithm.rounds=2"]),
    "diverged": ("quadratic", ["algorithm.x.scale=1e300", "algorithm.rounds=9", 'privacy.guarantee="none"']),
    "server": ("bsa", ["algorithm.rounds=2"]),
    "coordinator": ("regularisation_tuner", ["algorithm.rounds=2"]),
    "coordinator as printed": ("dp_bilevel", ["algorithm.rounds=2", 'privacy.guarantee="as_printed"']),
    "minimax": ("dp_sgda", ["algorithm.rounds=2"]),
}
# What an older folder or another run may have besides.
MORE: Mapping[str, Any] = {
    "diagnostics": {
        "baselines": {"test_rmse": 12.5, "test_r2": -0.0001},
        "labels_cut": 0.125,
        "clipped": {"y": 0.5},
        "clip_advice": ["The clips of y cut nearly every record."],
        "features_cut": {"age": 0.25},
        "unmeasured": "The hypergradient is not measured.",
        "learning": ["The run learned little.", "Enlarge algorithm.rounds."],
    },
    "problem": {"notes": ["Made-up records stand in for those."], "solves": "bilevel"},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("facts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("decentral_dp.reporting.plots.write_plots", lambda *_, **_named: [])
        for name, (scenario, overrides) in SCENARIOS.items():
            decentral_dp.run(load(scenario, overrides), out=out / name)
    return {name: out / name for name in SCENARIOS}


def words(text: str) -> str:
    return " ".join(text.split())


def terminal(result: RunResult, monkeypatch: pytest.MonkeyPatch) -> str:
    said = io.StringIO()
    monkeypatch.setattr(printed, "console", lambda: Console(file=said, width=100_000))
    published, scenario = {"x": np.zeros((1, 9))}, SimpleNamespace(run=SimpleNamespace(measures=None))
    run: Any = SimpleNamespace(result=result, published=published, folder=None, baselines={}, scenario=scenario)
    printed.print_run(run)
    return words(said.getvalue())


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_fact_is_told_everywhere(name: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    result = read_result(folders[name])
    known = facts(result)
    assert known
    everywhere(result, read_page(folders[name] / "report.html").text, monkeypatch)


def test_whatever_a_result_may_hold_is_told(
    tmp_path: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {**read_result(folders["gossip"]), **MORE}
    result = RunResult.from_content({**content, "problem": {**content["problem"], **MORE["problem"]}})
    names = {fact.name for fact in facts(result)}
    assert {"Data", "Privacy", "Note", "What to change"} <= names
    (tmp_path / "result.json").write_text(result.to_json(), encoding="utf-8")
    monkeypatch.setattr("decentral_dp.reporting.plots.write_plots", lambda *_, **_named: [])
    everywhere(result, read_page(write_report(tmp_path)).text, monkeypatch)


def everywhere(result: RunResult, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook, printed = Page(run_view(result)).text, terminal(result, monkeypatch)
    for fact in facts(result):
        assert fact.text, fact
        for place, text in (("page", page), ("notebook", notebook), ("terminal", printed)):
            # The page begins the reason of a run that ended early with a capital.
            assert words(fact.text).casefold() in words(text).casefold(), (place, fact)
            # The terminal has no heads below a table of scores.
            if place != "terminal" or fact.topic != "scores":
                assert fact.name.casefold() in text.casefold(), (place, fact)


def test_columns_of_facts_are_rows_of_a_comparison(folders: dict[str, Path]) -> None:
    found = compare(*folders.values())
    rows = dict(comparison_tables(found)[0].rows)
    for column, folder in enumerate(folders.values()):
        for fact in facts(read_result(folder)):
            for row, text in fact.columns.items():
                assert rows[row][column] == text
    claims = rows["claimed by a paper, not certified"]
    assert sum(text == "–" for text in claims) == len(folders) - 2


def test_a_new_fact_is_told_by_being_listed(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the list of facts has to know it."""
    from decentral_dp.reporting import facts as listed

    new = [Fact("privacy", "Weather", "it rained."), Fact("scores", "Luck", "It was luck.", {"luck": "good"})]
    known = listed._score_facts
    monkeypatch.setattr(listed, "_score_facts", lambda result: [*known(result), *new])
    result = read_result(folders["coordinator"])
    assert facts(result)[-2:] == new
    everywhere(result, read_page(write_report(folders["coordinator"])).text, monkeypatch)
    table = dict(comparison_tables(compare(folders["coordinator"], folders["gossip"]))[0].rows)
    assert table["luck"] == ["good", "good"]
