"""Budgets over several runs: what is charged, what is refused, and what their files contain."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner

import decentral_dp
from decentral_dp import Budget, InputError
from decentral_dp.cli.main import app
from decentral_dp.simulation.budget import digest_features
from tests.support.interruptions import interrupt

SETTINGS: dict[str, Any] = {"algorithm.rounds": 6, "run.evaluate_every": 2, "privacy.epsilon": 2.0}
ONE, TWO = 1.999, 2.95  # ε of one run, and of two by composition at δ = 1e-5


def _job(**changes: Any) -> decentral_dp.Job:
    return decentral_dp.build("classification", set=SETTINGS | changes)


def _entries(file: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["entries"]
    return entries


@pytest.mark.parametrize("in_file", [False, True])
def test_runs_draw_from_one_budget_until_it_is_spent(in_file: bool, tmp_path: Path) -> None:
    budget = Budget(TWO + 0.1, 1e-5, tmp_path / "budget.json" if in_file else None)
    job = _job()
    assert job.run(budget=budget).result.status == "ok"
    second = decentral_dp.run(job, out=tmp_path / "second", budget=budget)
    assert second.result.status == "ok"
    quote = decentral_dp.plan(job, budget=budget).quote
    assert quote is not None
    assert quote.runs == 2
    assert quote.cost == pytest.approx(float(job.budget.epsilon.max()), rel=1e-9)
    assert quote.cost < quote.before < 2.0 * quote.cost < 1.5 * quote.after
    with pytest.raises(InputError, match=r"^budget: the run exceeds the budget .* spent by 2 runs, .* left of .*Fix: "):
        job.run(tmp_path / "third", budget=budget)
    assert not (tmp_path / "third").exists()
    assert decentral_dp.plan(job, budget=budget).quote == quote


def test_scaling_partition_order_and_target_keep_the_account_and_other_records_do_not() -> None:
    table = load_breast_cancer(as_frame=True).frame.iloc[:300]
    names = [name for name in table.columns if name != "target"]
    scenario = {
        "problem": {
            "kind": "classification",
            "label": "target",
            "classes": [0, 1],
            "scale": {name: [0.0, 1000.0] for name in names},
        },
        "algorithm": {"kind": "dp_dsgd", "rounds": 2},
        "privacy": {"epsilon": 1.0, "mechanism": "gaussian"},
        "topology": {"kind": "ring", "agents": 3},
    }
    budget = Budget(2.0, 1e-5)

    def account(data: pd.DataFrame, **changes: Any) -> str:
        quote = decentral_dp.plan(scenario, budget=budget, data=data, set=changes).quote
        assert quote is not None
        return quote.dataset

    first = account(table)
    other_scale = {f"problem.scale.{name}": [0.0, 500.0] for name in names[:3]}
    assert account(table, **other_scale, **{"topology.agents": 5, "problem.partition": "iid", "seed": 4}) == first
    assert account(table.sample(frac=1.0, random_state=1)) == first
    assert account(table.assign(target=1 - table["target"])) == first
    changed = table.copy()
    changed.iloc[7, 0] += 1e-9
    assert account(changed) != first
    assert account(table.iloc[1:]) != first


def test_a_file_contains_no_record_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "budget.json"
    decentral_dp.run(_job(), budget=Budget(5.0, 1e-5, file))
    assert file.stat().st_mode & 0o777 == 0o600
    content, (entry,) = json.loads(file.read_text("utf-8")), _entries(file)
    features = load_breast_cancer().data
    assert entry["dataset"] == digest_features(features, bytes.fromhex(content["key"]))
    # The digest needs the key: in another file it differs.
    assert entry["dataset"] != digest_features(features, b"\0" * 32)

    def numbers(value: Any) -> set[float]:
        if isinstance(value, dict):
            return numbers(list(value.values()))
        return set().union(*map(numbers, value)) if isinstance(value, list) else {value}

    assert not {n for n in numbers(content) if isinstance(n, float)} & set(features[features % 1.0 > 0.0].tolist())


def test_steps_are_charged_for_all_rounds_before_the_first(tmp_path: Path) -> None:
    file = tmp_path / "budget.json"
    budget = Budget(ONE + 0.1, 1e-5, file)
    steps = _job().steps(every=3, budget=budget)
    assert next(steps).round == 0
    steps.close()
    assert [entry["epsilon"] for entry in _entries(file)] == [pytest.approx(ONE, abs=1e-3)]
    with pytest.raises(InputError, match="exceeds the budget"):
        next(_job().steps(budget=budget))


def test_a_system_without_locks_has_no_budget_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("decentral_dp.files.durable.HAS_LOCKS", False)
    with pytest.raises(InputError, match=r"^budget: budget files need file locks"):
        Budget(1.0, 1e-5, tmp_path / "budget.json")


def test_a_killed_run_stays_charged_and_its_resumption_costs_nothing(tmp_path: Path) -> None:
    file, folder = tmp_path / "budget.json", tmp_path / "run"
    settings = {**SETTINGS, "seed": None}
    code = (
        "import decentral_dp, os\n"
        f"budget = decentral_dp.Budget(2.0, 1e-5, {str(file)!r})\n"
        f"decentral_dp.run('classification', set={settings!r}, out={str(folder)!r}, budget=budget,\n"
        "    callbacks=[lambda at: os._exit(9) if at.done >= 2 else None])\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert len(_entries(file)) == 1
    budget = Budget(2.0, 1e-5, file)
    with pytest.raises(InputError, match="exceeds the budget"):
        _job().run(budget=budget)
    assert decentral_dp.resume(folder, budget=budget).result.status == "ok"
    assert len(_entries(file)) == 1


def test_the_resumption_of_an_uncharged_run_is_charged(tmp_path: Path) -> None:
    interrupt("classification", tmp_path / "run", 2, set=SETTINGS | {"seed": None})
    with pytest.raises(InputError, match="exceeds the budget"):
        decentral_dp.resume(tmp_path / "run", budget=Budget(1.0, 1e-5))
    budget = Budget(2.0, 1e-5, tmp_path / "budget.json")
    decentral_dp.resume(tmp_path / "run", budget=budget)
    assert len(_entries(tmp_path / "budget.json")) == 1


def test_two_processes_do_not_overspend(tmp_path: Path) -> None:
    file = tmp_path / "budget.json"
    Budget(ONE + 0.1, 1e-5, file)
    code = (
        "import decentral_dp, sys\n"
        f"budget = decentral_dp.Budget.open({str(file)!r})\n"
        f"job = decentral_dp.build('classification', set={SETTINGS!r})\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "job.run(budget=budget)\n"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    errors = [process.communicate()[1] for process in processes]
    assert sorted(process.returncode for process in processes) == [0, 1]
    assert sum("exceeds the budget" in error for error in errors) == 1
    assert len(_entries(file)) == 1


def test_the_command_line_creates_charges_plans_and_refuses(tmp_path: Path) -> None:
    file, command = tmp_path / "budget.json", CliRunner()
    file.write_text('{"epsilon": 2.5, "delta": 1e-5}', "utf-8")
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    options = ["classification", *settings, "--budget", str(file)]
    planned = command.invoke(app, ["plan", *options])
    assert planned.exit_code == 0
    assert "The run fits the budget" in " ".join(planned.output.split())
    done = command.invoke(app, ["run", *options, "--quiet", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert len(_entries(file)) == 1
    planned = command.invoke(app, ["plan", *options, "--json"])
    assert json.loads(planned.output)["budget"]["runs"] == 1
    refused = command.invoke(app, ["run", *options, "--quiet", "--out", str(tmp_path / "again")])
    assert isinstance(refused.exception, InputError)
    assert not (tmp_path / "again").exists()
    missing = command.invoke(app, ["plan", "classification", "--budget", str(tmp_path / "none.json")])
    assert "no file" in str(missing.exception)


def test_copies_share_a_budget_or_are_refused(tmp_path: Path) -> None:
    budget = Budget(2.5, 1e-5)
    assert copy.deepcopy(budget) is budget
    with pytest.raises(InputError, match="create the budget with a file"):
        pickle.dumps(budget)
    filed = Budget(2.5, 1e-5, tmp_path / "budget.json")
    job = _job()
    job.run(budget=pickle.loads(pickle.dumps(filed)))  # noqa: S301 # pickled here
    with pytest.raises(InputError, match="exceeds the budget"):
        job.run(budget=filed)
    # Another machine lacks the file.
    sent = pickle.dumps(filed)
    (tmp_path / "budget.json").unlink()
    with pytest.raises(InputError, match=r"no file .* .removed, or on another machine."):
        pickle.loads(sent)  # noqa: S301 # pickled here
    assert not (tmp_path / "budget.json").exists()


def test_unfit_arguments_files_and_runs_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "budget.json"
    for epsilon, delta in ((0.0, 1e-5), (np.inf, 1e-5), (np.nan, 1e-5), (1.0, 1.0), (1.0, -0.1)):
        with pytest.raises(InputError, match=r"^(epsilon|delta): out of range .* Fix: use for example \1="):
            Budget(epsilon, delta)
    budget = Budget(9.0, 1e-5, file)
    with pytest.raises(InputError, match="has another budget"):
        Budget(8.0, 1e-5, file)
    job = _job()
    named = Budget(9.0, 1e-5, dataset="measurements of Bern")
    assert "data set measurements of Bern (" in str(job.plan(budget=named))
    with pytest.raises(InputError, match=r"^baselines: "):
        job.run(baselines=True, budget=budget)
    with pytest.raises(InputError, match="exceeds the budget"):
        _job(**{"privacy.guarantee": "none", "privacy.epsilon": None}).run(budget=budget)
    job.run(budget=budget)
    other = _job(**{"privacy.neighbours": "zero_out"})
    for spend in (other.run, other.plan):
        with pytest.raises(InputError, match="runs with different adjacencies do not compose"):
            spend(budget=budget)
    file.write_text(file.read_text("utf-8")[:-20], "utf-8")
    with pytest.raises(InputError, match="is damaged"):
        job.run(budget=budget)
    file.unlink()
    with pytest.raises(InputError, match=r"no file .* Fix: restore it"):
        job.run(budget=budget)


def test_the_cells_of_a_study_draw_from_one_budget(tmp_path: Path) -> None:
    study = {
        "scenario": "classification",
        "set": {key: value for key, value in SETTINGS.items() if key != "algorithm.rounds"},
        "grid": {"algorithm.rounds": [4, 5, 6]},
        "measure": ["epsilon_max"],
    }
    with pytest.raises(InputError, match=r"^budget: has no file, which the processes of a study share"):
        decentral_dp.study(study, budget=Budget(9.0, 1e-5))
    file = tmp_path / "budget.json"
    found = decentral_dp.study(study, workers=1, out=tmp_path / "out", budget=Budget(TWO + 0.1, 1e-5, file))
    assert sorted(found.cells["status"]) == ["failed", "ok", "ok"]
    assert len(_entries(file)) == 2
    # A cell that the budget refused is computed later, the others are kept.
    assert decentral_dp.study(study, workers=1, out=tmp_path / "out").computed == 1
