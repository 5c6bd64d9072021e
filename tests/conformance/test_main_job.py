"""The main job keeps its promise: a certified budget of 4 per agent, and models worth having."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load, scenario_names, shipped_names

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_five_seeds_reach_the_accuracy_at_the_budget() -> None:
    accuracy = []
    for seed in range(1, 6):
        run = decentral_dp.run(load("ring_breast_cancer", [f"seed={seed}"]))
        assert run.result["status"] == "ok"
        assert run.result["privacy"]["guarantee"] == "certified"
        assert (run.job.budget.epsilon <= 4.0).all()
        assert run.records.same_releases(run.job.ledger)
        accuracy.append(run.result["metrics"]["test_accuracy"])
    assert np.mean(accuracy) >= 0.85
    assert np.std(accuracy) > 0, "five seeds must be five runs"


def test_without_privacy_the_ceiling_is_higher() -> None:
    accuracy = [
        decentral_dp.run(load("ring_breast_cancer_no_privacy", [f"seed={seed}", "run.evaluate_every=4000"]))
        for seed in range(1, 6)
    ]
    assert np.mean([r.result["metrics"]["test_accuracy"] for r in accuracy]) >= 0.96
    assert all(np.isinf(r.job.budget.epsilon).all() for r in accuracy)


def test_ten_times_less_budget_is_visible() -> None:
    """The accuracy is bought with ε: at a hundredth of it the model is close to a coin."""
    poor = [decentral_dp.run(load("ring_breast_cancer", [f"seed={s}", "privacy.epsilon=0.04"])) for s in (1, 2, 3)]
    assert np.mean([r.result["metrics"]["test_accuracy"] for r in poor]) < 0.7


def test_readme_commands_are_one_line_each_and_name_what_exists() -> None:
    commands = re.findall(r"^python3 -m venv \.venv && .*$", README, flags=re.MULTILINE)
    assert len(commands) == 2
    assert commands[0].endswith("decentral-dp run ring_breast_cancer")
    assert "-m pytest -n 2" in commands[1]
    named = re.findall(r"decentral-dp (?:run|plan|network|show) (\w+)", README)
    assert set(named) <= {*scenario_names(), *shipped_names("study")}


def test_readme_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 2
    text = (Path(decentral_dp.__file__).parent.parent / "scenarios" / "own_csv.toml").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_records.csv").write_text(
        (Path(decentral_dp.__file__).parent.parent / "scenarios" / "own_records.csv").read_text(encoding="utf-8")
    )
    text = text.replace("clip = { y", "clip = { x = 1.0, y").replace("rounds = 40", "rounds = 3")
    (tmp_path / "my_scenario.toml").write_text(text, encoding="utf-8")
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
