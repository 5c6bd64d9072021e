"""The command line: output, files, refusals and exit codes."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.cli.describe import registries
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.config.templates import algorithm_tables
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.commands import Command, Said

SMALL = ["--set", "algorithm.rounds=4", "--set", "run.evaluate_every=2", "--set", "run.average=2"]
MAIN = "ring_breast_cancer"


@pytest.fixture
def command(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the entry point in this process, in an empty folder, on 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    return command


def assert_one_sentence(said: Said) -> None:
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("Error: ")
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of the main job, four rounds long."""
    folder = tmp_path_factory.mktemp("runs") / "main"
    overrides = [SMALL[k] for k in range(1, len(SMALL), 2)]
    decentral_dp.run(load(MAIN, overrides), out=folder)
    return folder


# Help and descriptions.


def test_the_version_is_that_of_the_package(command: Command) -> None:
    said = command("--version")
    assert (said.code, said.out) == (0, f"decentral_dp {importlib.metadata.version('decentral_dp')}\n")


# Reads all scenarios.
named = functools.cache(registries)


@pytest.mark.parametrize("what", registries(titles=False))
def test_every_name_that_is_listed_is_described(command: Command, what: str) -> None:
    listed = command("list", what)
    assert listed.code == 0
    assert all(len(line) <= 80 for line in listed.out.splitlines())
    names = named()[what]
    assert names
    for name, line in names.items():
        assert f"  {name} " in listed.out
        assert line, f"{name} has no summary"
        shown = command("list", name)
        assert shown.code == 0, shown.err
        assert len(shown.out.splitlines()) >= 3, f"list {name} prints next to nothing"


def test_a_target_below_what_float64_costs_is_refused_by_plan_and_run(command: Command) -> None:
    for name in ("pp_ift", "warm_start"):
        for verb in ("plan", "run"):
            said = command(verb, name, "--set", "privacy.epsilon=1e-6")
            assert said.code == 2
            assert "rounding and sampling in float64" in said.err
    # Its integer draws have no smallest ε.
    assert command("run", "exponential_mechanism", "--set", "privacy.epsilon=1e-6").code == 0


@pytest.mark.parametrize("name", sorted(n for n, e in ALGORITHMS.items() if not e.trusts_coordinator))
def test_the_tables_shown_for_an_algorithm_work(command: Command, tmp_path: Path, name: str) -> None:
    """A copy with the tables of a problem and a graph can be planned."""
    tables = algorithm_tables(ALGORITHMS[name]).replace("rounds = 100", "rounds = 3")
    assert "[algorithm]" in command("list", name).out
    problem = 'kind = "logistic_hyperparameter"\ndata = "breast_cancer"\nscale = "public_ranges"\nnormalise = "l2"'
    if ALGORITHMS[name].solves == "minimax":
        problem = problem.replace("logistic_hyperparameter", "auc_maximisation") + "\npositive_share = 0.6"
    elif name == "adassp":
        problem = problem.replace("logistic_hyperparameter", "regression")
    elif "clip.x" in tables:
        problem = 'kind = "hyper_cleaning"\ndata = "wine"\nscale = "public_ranges"\nnormalise = "l2"'
    text = f'[problem]\n{problem}\n\n[topology]\nkind = "ring"\nagents = 4\n\n{tables}'
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    said = command("plan", "mine.toml")
    assert said.code == 0, said.err
    # A random walk of three rounds does not reach all agents.
    assert any(f"certified: {what}" in said.out for what in ("ε = 4", "ε = 3.99", "at most ε = 4"))
    if name == "adassp":
        # Its clipping norm has a default.
        return
    # Every clipping norm is needed.
    clips = tomllib.loads(tables)["privacy"]["clip"]
    assert clips
    for key in (
        [f"privacy.clip.{channel}" for channel in sorted(clips)] if isinstance(clips, dict) else ["privacy.clip"]
    ):
        without = command("plan", "mine.toml", "--set", f"{key}=null")
        assert key in without.err, (key, without.out, without.err)


def test_list_prints_json(command: Command) -> None:
    assert json.loads(command("list", "algorithms", "--json").out) == {"algorithms": registries()["algorithms"]}
    assert json.loads(command("list", "--json").out).keys() == registries().keys()
    (component,) = json.loads(command("list", "dp_dsgd", "--json").out)["components"]
    assert (component["registry"], component["keys"][0]["name"]) == ("algorithms", "learning_rate")
    scenario = json.loads(command("list", MAIN, "--json").out)["files"]["scenario"]
    assert tomllib.loads(scenario)["title"] == load(MAIN).title
    assert command("list", "zzzzqq", "--json").code == 2


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "a", "b"], ["--wrong"], ["wrong"], ["list", "a", "b"], ["report"]]
)
def test_usage_errors_are_the_usual_ones(command: Command, arguments: list[str]) -> None:
    said = command(*arguments)
    assert said.code == 2
    assert "Usage: decentral-dp" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["run", MAIN, "--epsilon", "3"], "Fix: use --set KEY=VALUE with the key privacy.epsilon."),
        (["run", MAIN, "--seeds", "5"], "with baselines. Fix: add baselines, or repeat the scenario in a study."),
        (["list", "learning_rate"], 'unknown name "learning_rate". Fix: use a name'),
        (["plan", MAIN, "--epochs", "3"], "key algorithm.rounds: rounds = epochs"),
    ],
)
def test_names_of_other_libraries_get_advice(command: Command, arguments: list[str], advice: str) -> None:
    said = command(*arguments)
    assert_one_sentence(said)
    assert advice in said.err


# Plans.


def test_plan_runs_nothing_and_writes_nothing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decentral_dp.simulation.run._perform", lambda *a: pytest.fail("plan ran the scenario"))
    said = command("plan", MAIN)
    assert said.code == 0
    assert "ε = 4.00 at δ = 1e-5" in said.out
    assert all(len(line) <= 80 for line in said.out.splitlines())
    assert list(tmp_path.iterdir()) == []


# Runs.


def test_run_writes_a_numbered_folder_and_prints_it(command: Command, tmp_path: Path) -> None:
    changed = f"{MAIN}-algorithm.rounds=4-run.evaluate_every=2-run.average=2"
    for name in (changed, f"{changed}-2"):
        said = command("run", MAIN, *SMALL)
        assert said.code == 0
        assert f"runs/{name}/report.html" in said.out
        assert "test_accuracy" in said.out
        assert "tail average" in said.out
        assert "not small" not in said.out
        assert (tmp_path / "runs" / name / "report.html").is_file()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["classification", MAIN, "federated", "dp_sgda", "random_walk", "dp_dsgd_published"])
def test_the_output_has_at_most_fifteen_lines_of_text(command: Command, name: str) -> None:
    few = [] if ALGORITHMS[load(name).algorithm.kind].trusts_coordinator else ["--set", "algorithm.rounds=40"]
    for verb in ("plan", "run"):
        said = command(verb, name, *few)
        assert said.code == 0
        assert 5 < len([line for line in said.out.splitlines() if line.strip()]) <= 15
        assert "clipping norm" in said.out or "envelope clip" in said.out


def test_the_plan_of_unequal_named_sites_has_at_most_fifteen_lines_of_text(command: Command) -> None:
    sites, counts = ["Aachen", "Bern", "Cork", "Delft", "Evora"], [40, 80, 120, 200, 400]
    rng, owner = np.random.default_rng(1), np.repeat(sites, counts)
    table = pd.DataFrame({"site": owner, "age": rng.uniform(18, 90, 840), "sick": rng.integers(0, 2, 840)})
    table.to_csv("hospitals.csv", index=False)
    new = ("new", "mine.toml", "--data", "hospitals.csv", "--label", "sick", "--classes", "0,1", "--range", "age=0:100")
    assert command(*new, "--sites", f"site={','.join(sites)}").code == 0
    assert load("mine.toml").topology.agents == 5
    said = command("plan", "mine.toml")
    assert (said.code, len([line for line in said.out.splitlines() if line.strip()])) == (0, 15)
    assert "Aachen" in command("plan", "mine.toml", "--verbose").out


def test_the_plan_is_the_ledger_of_the_run(finished: Path) -> None:
    planned = build(load(MAIN, [SMALL[k] for k in range(1, len(SMALL), 2)])).ledger.to_frame()
    recorded = pd.read_parquet(finished / "ledger.parquet")
    keys = [c for c in ("agent", "channel", "round", "kind", "record") if c in planned.columns]
    left, right = (f.sort_values(keys).reset_index(drop=True) for f in (planned, recorded))
    pd.testing.assert_frame_equal(left, right, check_like=True, rtol=1e-12)


def test_engine_option_overrides_the_scenario(command: Command, tmp_path: Path) -> None:
    assert 'run.engine: got "spark", expected "local" or "ray"' in command("run", MAIN, "--engine", "spark").err
    assert_one_sentence(command("run", MAIN, "--engine", ""))
    assert_one_sentence(command("run", MAIN, "--engine", '"\n'))
    # Quiet is quiet, and an empty folder may be given.
    (tmp_path / "mine [ü]").mkdir()
    local = ("--engine", "local", "--set", "run.engine=ray")
    assert command("run", MAIN, *local, "--quiet", "--out", "mine [ü]", *SMALL) == Said(0, "", "")
    assert (tmp_path / "mine [ü]" / "result.json").is_file()


def test_report_draws_again(command: Command, finished: Path, tmp_path: Path) -> None:
    import shutil

    copy = shutil.copytree(finished, tmp_path / "copy")
    (copy / "report.html").unlink()
    shutil.rmtree(copy / "plots")
    assert command("report", copy, "--format", "pdf").code == 0
    assert (copy / "report.html").is_file()
    drawn = {ending: sorted(p.stem for p in (copy / "plots").glob(f"*.{ending}")) for ending in ("png", "pdf", "svg")}
    assert drawn["svg"] == drawn["pdf"] != []
    for wrong in ("nowhere", tmp_path, copy / "report.html"):
        assert_one_sentence(command("report", wrong))


# Refusals and failures.


@pytest.mark.parametrize(
    "arguments",
    [
        ["no_such_scenario"],
        ["x" * 5000],
        ["noise.toml"],
        [MAIN, "--set", "algorithm.rounds"],
        [MAIN, "--set", "algorithm.rounds=many"],
        [MAIN, "--set", "problem.data=broken.csv", "--set", "problem.label=b", "--set", "problem.classes=[0,1]"],
        [MAIN, "--set", "topology={file='islands.csv'}"],
        [MAIN, "--set", "problem.data=/"],
        [MAIN, "--out", "kept"],
        [MAIN, "--out", "noise.toml"],
        [MAIN, "--out", "noise.toml/below"],
        [MAIN, "--out", "/proc/below"],
        [MAIN, "--out", "y" * 300],
        [MAIN, "--engine", "ray", "--set", "run.address='127.0.0.1:1'"],
    ],
)
def test_mistakes_are_one_sentence_and_change_no_file(command: Command, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "noise.toml").write_bytes(bytes(range(256)))
    (tmp_path / "broken.csv").write_text("a,b\n1,0\ntwo,1\n")
    (tmp_path / "islands.csv").write_text("source,target\n0,1\n2,3\n")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine.txt").write_text("mine")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert_one_sentence(command("run", *arguments))
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert {p.name for p in tmp_path.iterdir()} == {"noise.toml", "broken.csv", "islands.csv", "kept"}


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_an_audit_writes_into_no_pipe_and_no_device(command: Command, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out.json"
    os.mkfifo(path) if kind == "a pipe" else path.symlink_to("/dev/zero")
    said = command("audit", "quadratic", "--runs", "20", "--out", "out.json")
    assert said.code == 2
    assert "--out: out.json already exists" in said.err


def test_an_interrupted_audit_prints_how_to_repeat_it(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("decentral_dp.auditing.terminal.play_game", interrupt)
    said = command("audit", "quadratic", "--runs", "20")
    assert said.code == 130
    assert said.err == "Interrupted; nothing was written. An audit does not resume. Fix: repeat it with fewer --runs.\n"


def test_a_full_disk_while_drawing_keeps_the_run(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from decentral_dp.reporting import plots

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(plots, "write_plots", full)
        said = command("run", MAIN, "--out", "a", *SMALL)
    assert said.code == 1
    assert "The run is complete" in said.err
    assert command("report", "a").code == 0
    assert (tmp_path / "a" / "report.html").is_file()


def test_without_a_terminal_progress_is_a_line_now_and_then(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from decentral_dp.reporting import terminal

    monkeypatch.setattr(terminal, "_BETWEEN_LINES", 0.0)
    said = command("run", MAIN, "--out", "a", *SMALL)
    lines = [line for line in said.err.splitlines() if line.startswith("round ")]
    assert lines
    assert all("ε spent" in line and "rounds/s" in line for line in lines)
    assert command("run", MAIN, "--out", "b", "--quiet", *SMALL).err == ""


def test_two_runs_never_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from decentral_dp.simulation.folder.layout import new_folder

    monkeypatch.chdir(tmp_path)
    with new_folder(None, "ring") as one, new_folder(None, "ring") as other:
        assert [str(p) for p in (one, other)] == ["runs/ring", "runs/ring-2"]
        (other / "result.json").touch()
    assert [str(p) for p in Path("runs").iterdir()] == ["runs/ring-2"], "what stays empty is removed"


def test_an_interrupt_ends_with_130_and_prints_the_released_rounds(tmp_path: Path) -> None:
    changes = ("algorithm.rounds=100000", "algorithm.x.scale=1e-6", "run.evaluate_every=10000")
    long = [word for change in changes for word in ("--set", change)]
    # A shell may start it with SIGINT ignored, as it does with background jobs.
    process = subprocess.Popen(
        [sys.executable, "-m", "decentral_dp.cli.main", "run", MAIN, "--out", "a/b", *long],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    journal = tmp_path / "a" / "b" / "in_progress" / "journal.jsonl"
    while not (journal.is_file() and "leased" in journal.read_text()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "may have been released, and is on record in a/b" in err.strip().splitlines()[-1]
    assert "Traceback" not in err
    result = json.loads((tmp_path / "a" / "b" / "result.json").read_text())
    assert result["status"] == "interrupted"
    assert 0 < result["rounds"] < 100_000


def test_a_terminal_without_greek_letters_prints_a_plan() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "decentral_dp.cli.main", "plan", MAIN],
        capture_output=True,
        env={**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
    )
    assert said.returncode == 0, said.stderr
    assert b"= 4.00 at" in said.stdout


def test_progress_never_reports_less_epsilon_than_spent() -> None:
    from decentral_dp.privacy.accounting.accountants import account

    seen: list[tuple[int, float]] = []
    changes = ["algorithm.rounds=60", "run.evaluate_every=1"]
    run = decentral_dp.run(
        load("ring_breast_cancer", changes), callbacks=[lambda at: seen.append((at.done, at.epsilon))]
    )
    for t, shown in seen[1::7]:
        assert shown >= account(run.simulation().ledger.truncate(t), 1e-5).epsilon.max() * (1 - 1e-9)
