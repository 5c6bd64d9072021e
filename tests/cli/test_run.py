"""Runs on the command line: names of folders, printed scores, `--log`, `--or-resume`, and a lack of memory."""

from __future__ import annotations

import fcntl
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import typer
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli import main as cli
from decentral_dp.cli import run as printed
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.privacy.releasers import ScheduledReleaser
from decentral_dp.reporting import page
from decentral_dp.simulation.events import Progress, Reporter
from tests.support.commands import Command

Make = Callable[..., dict[str, Any]]


# Names of folders.


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["privacy.epsilon=2.0", "privacy.epsilon=3.0"], "a b-privacy.epsilon=3.0"),
        (["topology={kind='random', agents=6}"], "a b-topology=kind=random,agents=6"),
        (["problem.classes=['no', 'yes']", "run.average=null"], "a b-problem.classes=no,yes-run.average=null"),
        (
            ["topology.kind=complete", f"problem.data={'d' * 60}", "privacy.epsilon=2.0"],
            "a b-privacy.epsilon=2.0-topology.kind=complete",
        ),
        # Nothing leaves the folder of runs.
        (["problem.data=../../etc/passwd"], "a b-problem.data=.._.._etc_passwd"),
    ],
)
def test_a_run_is_named_by_its_changes(overrides: list[str], name: str) -> None:
    assert printed.run_name("a b", overrides) == name
    assert printed.run_name("a b", ["problem.seed=1"]) != printed.run_name("a b", ["topology.seed=1"])
    assert len(printed.run_name("ring", [f"title='{'ε' * 300}'"]).encode()) <= 80


# Scores.


@pytest.mark.parametrize("name", ["ring_breast_cancer", "dp_sgda"])
def test_scores_are_labelled_as_not_covered(name: str) -> None:
    """The note follows all scores."""
    lines = str(decentral_dp.run(name, set={"algorithm.rounds": 2})).splitlines()
    notes = [k for k, line in enumerate(lines) if "ε does not cover them" in line]
    private = [k for k, line in enumerate(lines) if line.startswith("test_a")]
    assert len(notes) == 1
    assert private
    assert max(private) < notes[0]


# Logs.


@pytest.fixture
def scenario_file(scenario: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page, "draw_run", lambda *_: None)
    path = tmp_path / "given.toml"
    path.write_text(tomli_w.dumps(scenario(algorithm={"rounds": 12}, run={"evaluate_every": 3})))
    return path


def invoke(*words: object) -> Any:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def test_a_log_has_every_evaluation_and_the_end(scenario_file: Path, tmp_path: Path) -> None:
    log, folder = tmp_path / "run.jsonl", tmp_path / "run"
    done = invoke("run", scenario_file, "--out", folder, "--log", log)
    assert done.exit_code == 0, done.output
    *events, end = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(event["event"], event["round"], event["rounds"]) for event in events] == [
        ("progress", t, 12) for t in (0, 3, 6, 9, 12)
    ]
    assert [e["epsilon"] for e in events] == sorted(e["epsilon"] for e in events)
    assert events[0]["rounds_per_second"] is events[0]["seconds_left"] is None
    assert all(event["rounds_per_second"] > 0.0 and event["seconds_left"] >= 0.0 for event in events[1:])
    result = json.loads((folder / "result.json").read_text())
    assert (end["event"], end["status"], end["round"], end["folder"]) == ("end", "ok", 12, str(folder))
    assert end["epsilon"] == result["privacy"]["epsilon_max"]
    # On stderr there is nothing else.
    done = invoke("run", scenario_file, "--out", tmp_path / "other", "--log", "jsonl")
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["progress"] * 5 + ["end"]


def test_an_interrupt_ends_a_log_and_a_resumed_run_continues_it(
    scenario_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, folder = tmp_path / "run.jsonl", tmp_path / "run"
    call = Reporter.__call__

    def interrupt(self: Reporter, done: int, total: int, **more: Any) -> None:
        call(self, done, total, **more)
        if done == 6:
            raise KeyboardInterrupt

    with monkeypatch.context() as here:
        here.setattr(Reporter, "__call__", interrupt)
        assert invoke("run", scenario_file, "--out", folder, "--log", log).exit_code != 0
    first = [json.loads(line) for line in log.read_text().splitlines()]
    assert (first[-1]["event"], first[-1]["status"]) == ("end", "interrupted")
    assert "may have been released" in first[-1]["reason"]
    assert invoke("resume", folder, "--log", log).exit_code == 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert events[: len(first)] == first
    assert (events[-1]["status"], events[-1]["round"]) == ("ok", 12)


@pytest.mark.parametrize("log", ["json", "", "folder.jsonl", "none/a.jsonl"])
def test_logs_that_cannot_be_written_are_refused_before_the_run(
    scenario_file: Path, tmp_path: Path, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.jsonl").mkdir()
    done = invoke("run", scenario_file, "--out", tmp_path / "run", "--log", log)
    assert isinstance(done.exception, InputError | OSError)
    assert not (tmp_path / "run").exists()


def test_speed_and_time_left_are_of_this_start_only() -> None:
    seconds, seen = iter([5.0, 5.0, 9.0, 13.0]), list[Progress]()
    report = Reporter(seen.append, "rounds", clock=lambda: next(seconds))
    for done, epsilon in ((40, 1.0), (40, float("nan")), (48, 1.5), (80, float("nan"))):
        report(done, 100, loss=0.5, epsilon=epsilon)
    assert [event.per_second for event in seen] == [None, None, 2.0, 5.0]
    assert [event.seconds_left for event in seen] == [None, None, 26.0, 4.0]
    assert [event.epsilon for event in seen] == [1.0, 1.0, 1.5, 1.5]


# `--or-resume`.

RUN = ["run", "ring_breast_cancer", "--set", "algorithm.rounds=12", "--set", "run.evaluate_every=4", "--quiet"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page, "draw_run", lambda folder, *_: (folder / "report.html").touch())
    return tmp_path / "run"


def interrupt_run(command: Command, folder: Path, index: int) -> None:
    """Interrupt the run of `RUN` before a release."""
    whole = ScheduledReleaser.release

    def release(self: ScheduledReleaser, at: int, *arguments: Any) -> Any:
        if at == index:
            raise KeyboardInterrupt
        return whole(self, at, *arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ScheduledReleaser, "release", release)
        assert command(*RUN, "--out", folder, "--or-resume").code != 0


def released(folder: Path) -> np.ndarray:
    with np.load(folder / "state.npz") as arrays:
        return np.asarray(arrays["released_x"])


def test_one_command_begins_resumes_and_confirms_a_run(command: Command, folder: Path, tmp_path: Path) -> None:
    assert command(*RUN, "--or-resume").code == 2
    assert command(*RUN, "--out", tmp_path / "whole").code == 0
    interrupt_run(command, folder, 7)
    (lock,) = (folder / "in_progress").glob("*lock*")
    with lock.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        said = command(*RUN, "--out", folder, "--or-resume")
    assert said.code == 2
    assert "this run is in progress" in " ".join(said.err.split())
    assert command(*RUN, "--out", folder, "--or-resume").code == 0
    np.testing.assert_array_equal(released(folder), released(tmp_path / "whole"))
    # Complete: nothing is computed again, and a missing page is drawn.
    (folder / "report.html").unlink()
    written = (folder / "result.json").stat().st_mtime_ns
    assert command(*RUN, "--out", folder, "--or-resume").code == 0
    assert (folder / "result.json").stat().st_mtime_ns == written
    assert (folder / "report.html").is_file()


def test_a_run_that_released_nothing_begins_anew(command: Command, folder: Path) -> None:
    # As SIGKILL leaves it before the scenario is written.
    (folder / "in_progress").mkdir(parents=True)
    (folder / "in_progress" / "root.json").write_text("{")
    assert command(*RUN, "--out", folder, "--or-resume").code == 0
    assert json.loads((folder / "result.json").read_text())["status"] == "ok"


def test_a_folder_with_a_run_of_another_scenario_is_refused(command: Command, tmp_path: Path) -> None:
    """Its ε and its records are others than those that were asked for."""
    few = ["--set", "algorithm.rounds=2", "--out", str(tmp_path / "run"), "--quiet", "--or-resume"]
    assert command("run", "quadratic", *few).code == 0
    said = command("run", "quadratic", "--set", "algorithm.x.scale=0.01", *few)
    assert said.code == 2
    assert "another scenario" in said.err
    other = tmp_path / "own"
    (other / "in_progress").mkdir(parents=True)
    (other / "code").mkdir()
    (other / "code" / "mine.py").write_text("x = 1")
    assert command("run", "quadratic", "--or-resume", "--out", str(other)).code == 2
    assert (other / "code" / "mine.py").is_file()


def test_the_job_of_kuberay_gives_this_command() -> None:
    yaml = pytest.importorskip("yaml")
    job, volume = yaml.safe_load_all(Path("deploy/rayjob.yaml").read_text())
    name, command, *words = shlex.split(job["spec"]["entrypoint"])
    options = typer.main.get_command(cli.app).commands[command].make_context(command, words).params  # type: ignore[attr-defined]
    assert (name, options["or_resume"], options["engine"]) == ("decentral-dp", True, "ray")
    assert load(options["scenario"], options["override"] or ()).topology.agents == 10
    # No node starts without a token, and none has an image that a push may replace.
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "RAY_AUTH_MODE", "value": "token"} in container["env"]
        assert re.fullmatch(r"[\w-]+:\d+\.\d+\.\d+", container["image"])
        assert group["template"]["spec"]["securityContext"]["runAsNonRoot"]
    # A retry finds the folder of the previous attempt.
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (mount,) = head["containers"][0]["volumeMounts"]
    assert Path(options["out"]).is_relative_to(mount["mountPath"])
    assert head["volumes"][0]["persistentVolumeClaim"]["claimName"] == volume["metadata"]["name"]
    assert job["spec"]["backoffLimit"] > 0


# Memory.


def test_a_lack_of_memory_is_one_sentence(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def app(**_: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(cli, "app", app)
    said = command("run")
    assert said.code == 1
    assert said.err.count("\n") == 1
    assert "not enough memory (no room)" in said.err
