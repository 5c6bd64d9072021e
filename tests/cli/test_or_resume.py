"""`run --or-resume`: one command that begins a run, goes on with it, or finds it complete."""

from __future__ import annotations

import fcntl
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from decentral_dp.cli import main as cli
from decentral_dp.cli.main import app
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.privacy.mechanisms.releasers import ScheduledReleaser
from decentral_dp.reporting import page
from decentral_dp.simulation.result import RunResult

RUN = ["run", "ring_breast_cancer", "--set", "algorithm.rounds=12", "--set", "run.evaluate_every=4", "--quiet"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page, "draw_run", lambda folder, *_: (folder / "report.html").touch())
    return tmp_path / "run"


def _called(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["decentral-dp", *map(str, words)])
    try:
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _cut_off(monkeypatch: pytest.MonkeyPatch, folder: Path, index: int) -> None:
    """The run of `RUN`, interrupted before this release."""
    whole = ScheduledReleaser.release

    def release(self: ScheduledReleaser, at: int, *given: Any) -> Any:
        if at == index:
            raise KeyboardInterrupt
        return whole(self, at, *given)

    with monkeypatch.context() as patched:
        patched.setattr(ScheduledReleaser, "release", release)
        assert _called(patched, *RUN, "--out", folder, "--or-resume") != 0


def _released(folder: Path) -> np.ndarray:
    with np.load(folder / "state.npz") as arrays:
        return np.asarray(arrays["released_x"])


def test_one_command_begins_goes_on_and_ends(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _called(monkeypatch, *RUN, "--out", tmp_path / "whole") == 0
    _cut_off(monkeypatch, folder, 7)
    assert (folder / "in_progress").is_dir()
    assert _called(monkeypatch, *RUN, "--out", folder, "--or-resume") == 0
    np.testing.assert_array_equal(_released(folder), _released(tmp_path / "whole"))
    # Complete: nothing is computed again, and a page that is missing is drawn.
    (folder / "report.html").unlink()
    written = (folder / "result.json").stat().st_mtime_ns
    assert _called(monkeypatch, *RUN, "--out", folder, "--or-resume") == 0
    assert (folder / "result.json").stat().st_mtime_ns == written
    assert (folder / "report.html").is_file()


def test_what_released_nothing_begins_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As SIGKILL leaves it before the scenario is written.
    (folder / "in_progress").mkdir(parents=True)
    (folder / "in_progress" / "root.json").write_text("{")
    assert _called(monkeypatch, *RUN, "--out", folder, "--or-resume") == 0
    assert RunResult.from_json((folder / "result.json").read_text()).status == "ok"


def test_a_run_under_way_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _cut_off(monkeypatch, folder, 7)
    (lock,) = (folder / "in_progress").glob("*lock*")
    with lock.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert _called(monkeypatch, *RUN, "--out", folder, "--or-resume") == 2
    assert "this run is under way" in " ".join(capsys.readouterr().err.split())


def test_it_needs_a_folder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _called(monkeypatch, *RUN, "--or-resume") == 2
    assert "--or-resume: it needs the folder" in " ".join(capsys.readouterr().err.split())


def test_the_job_of_kuberay_gives_this_command() -> None:
    yaml = pytest.importorskip("yaml")
    job, volume = yaml.safe_load_all(Path("deploy/rayjob.yaml").read_text())
    name, command, *words = shlex.split(job["spec"]["entrypoint"])
    given = typer.main.get_command(app).commands[command].make_context(command, words).params  # type: ignore[attr-defined]
    assert (name, given["or_resume"], given["engine"]) == ("decentral-dp", True, "ray")
    assert load(given["scenario"], given["override"] or ()).topology.agents == 10
    # No node starts without a token, and none has an image that a push may replace.
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "RAY_AUTH_MODE", "value": "token"} in container["env"]
        assert re.fullmatch(r"[\w-]+:\d+\.\d+\.\d+", container["image"])
        assert group["template"]["spec"]["securityContext"]["runAsNonRoot"]
    # What is tried again finds the folder where the try before has left it.
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (mount,) = head["containers"][0]["volumeMounts"]
    assert Path(given["out"]).is_relative_to(mount["mountPath"])
    assert head["volumes"][0]["persistentVolumeClaim"]["claimName"] == volume["metadata"]["name"]
    assert job["spec"]["backoffLimit"] > 0


def test_a_folder_with_a_run_of_another_scenario_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its ε and its records are others than those that were asked for."""
    few = ["--set", "algorithm.rounds=2", "--out", str(tmp_path / "run"), "--quiet", "--or-resume"]
    assert _called(monkeypatch, "run", "quadratic", *few) == 0
    assert _called(monkeypatch, "run", "quadratic", *few) == 0
    assert _called(monkeypatch, "run", "quadratic", "--set", "algorithm.x.scale=0.01", *few) == 2
    assert "another scenario" in capsys.readouterr().err
    own = tmp_path / "own"
    (own / "in_progress").mkdir(parents=True)
    (own / "code").mkdir()
    (own / "code" / "mine.py").write_text("x = 1")
    assert _called(monkeypatch, "run", "quadratic", "--or-resume", "--out", str(own)) == 2
    assert (own / "code" / "mine.py").is_file()
