"""Code blocks of the how-to pages for new parts, run by module and as objects."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from decentral_dp.studies.schema import load_study
from decentral_dp.studies.study import conduct
from tests.support.pages import DOCS, EXAMPLES, code_blocks, write_files

# Scenario → page, and (table, key, "module:Name") of its custom components.
CASES: dict[str, tuple[str, tuple[tuple[str, str, str], ...]]] = {
    "huber": ("add_a_problem", (("problem", "kind", "my_problem:HuberPull"),)),
    "worse_class": ("add_a_problem", (("problem", "kind", "my_objective:WorseClass"),)),
    "caveman": ("add_a_topology", (("topology", "kind", "my_graph:caveman"),)),
    "clouds": (
        "add_data",
        (
            ("problem", "data", "my_data:load"),
            ("problem", "partition", "my_split:deal"),
        ),
    ),
}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with the files of all pages."""
    return write_files(tmp_path, code_blocks(*sorted({page for page, _ in CASES.values()})))


def budget(job: Job) -> list[float]:
    return [float(e) for e in job.budget.epsilon]


@pytest.mark.parametrize("name", CASES)
def test_modules_run_and_are_unverified(written: Path, name: str) -> None:
    done = decentral_dp.run(written / f"{name}.toml", out=written / "out")
    assert done.result["status"] == "ok"
    assert done.result["privacy"]["epsilon_max"] <= 4.0
    assert np.isfinite(done.metrics["value"]).all()
    for *_, place in CASES[name][1]:
        assert any(place in name for name in done.result.privacy.unverified.values())
    # The scenario of the folder runs again.
    again = decentral_dp.run(written / "out" / "scenario.toml")
    for channel, value in done.released.items():
        np.testing.assert_array_equal(again.released[channel], value)


def test_workers_of_a_study_import_modules(written: Path) -> None:
    """Run one study of the scenarios of all pages, since its workers are slow to start."""
    content = 'scenario = "huber.toml"\nseeds = 2\nmeasure = ["epsilon_max"]\n[grid]\n"algorithm.rounds" = [2, 3]\n'
    variants = [f'[[variants]]\nname = "{name}"\nscenario = "{name}.toml"\n' for name in CASES]
    (written / "study.toml").write_text(content + "".join(variants))
    found = conduct(load_study(written / "study.toml"), written / "study", 2)
    assert found.failed.empty
    assert found.cells["variant"].value_counts().to_dict() == dict.fromkeys(CASES, 4)


def test_custom_graphs_are_the_values_of_an_axis(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The scenario is a shipped one, so that modules are in the working directory.
    monkeypatch.chdir(written)
    found = conduct(load_study(written / "graphs.toml"), written / "graphs", 1)
    assert found.failed.empty
    assert found.cells["topology"].tolist() == ["my_graphs:petersen", "my_graph:caveman", "ring"]
    assert (written / "graphs" / "plots" / "gap.png").is_file()


def test_the_study_of_the_page_runs_with_its_figure(tmp_path: Path) -> None:
    overrides = ["seeds=2", "set.algorithm.rounds=20", "set.run.evaluate_every=20"]
    study = load_study(write_files(tmp_path, code_blocks("studies")) / "first_sweep.toml", overrides)
    found = conduct(study, tmp_path / "out", 1)
    assert len(found.cells) == 16
    assert set(found.cells["status"]) == {"ok"}
    named = {"report.html", "cells.parquet", "results.parquet", "summary.csv", "plots"}
    assert named <= {path.name for path in (tmp_path / "out").iterdir()}
    assert (tmp_path / "out" / "plots" / "accuracy.png").is_file()


def test_the_algorithm_of_the_page_equals_the_built_in_one(tmp_path: Path) -> None:
    study = load_study(write_files(tmp_path, EXAMPLES) / "against_ours.toml")
    means = conduct(study, tmp_path / "out", 1).summary.query("name == 'test_accuracy' and last")
    mine, ours = (means[means["variant"] == name]["mean"].to_numpy() for name in ("mine", "LDP-DSBO"))
    np.testing.assert_allclose(mine, ours, atol=0.01)
    # The larger class has 0.63 of the records.
    assert mine[-1] > 0.8


@pytest.mark.parametrize(
    ("page", "command", "line"),
    [
        ("index", "plan ring_breast_cancer", "agents, δ = 1e-5"),
        ("published_models", "plan dp_dsgd_published", "for an adversary that"),
        ("tutorials/private_dsgd", "run dp_dsgd", "test_auc"),
        ("tutorials/private_dsgd", "run dp_dsgd --set privacy.epsilon=1.0", "noise multiplier x 29.3"),
        ("what_epsilon_means", "plan stream_laplace", "pure ε of y"),
        ("your_records", "run classification --baselines", "each agent alone"),
    ],
)
def test_shown_outputs_are_printed(page: str, command: str, line: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```text\n(.*?)```", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)
    shown = next(block for block in blocks if line in block)
    out = ["--out", str(tmp_path / "run")] if command.startswith("run") else []
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*command.split(), *out])
    printed = [words.split() for words in done.output.splitlines()]
    assert [words for words in shown.splitlines() if "…" not in words and words.split() not in printed] == []
