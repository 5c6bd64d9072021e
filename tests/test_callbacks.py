"""Callbacks: TensorBoard, MLflow, and failing callbacks, which never end a run."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import decentral_dp
from decentral_dp.callbacks import MLflow, TensorBoard
from decentral_dp.errors import InputError, Stopped
from decentral_dp.reporting import page
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.folder import journal
from tests.support.commands import Command

Make = Callable[..., dict[str, Any]]
RUN = ["run", "quadratic", "--set", "algorithm.rounds=6", "--set", "run.evaluate_every=2"]


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "draw_run", lambda *_: None)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Stand-ins for both packages with their calls. away: methods of MLflow that fail."""
    seen = SimpleNamespace(board=[], flow=[], ended=[], places=[], away=set())

    class SummaryWriter:
        def __init__(self, place: str) -> None:
            seen.places.append(place)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            seen.board.append((name, step, value))

        def flush(self) -> None:
            pass

    class MlflowClient:
        def get_experiment_by_name(self, name: str) -> None:
            if "create" in seen.away:
                raise RuntimeError("refused")

        def create_experiment(self, name: str) -> str:
            return name

        def create_run(self, number: str, run_name: str, tags: dict[str, str]) -> SimpleNamespace:
            return SimpleNamespace(info=SimpleNamespace(run_id="one"))

        def log_metric(self, run: str, name: str, value: float, step: int) -> None:
            if "log" in seen.away and step >= 2:
                raise OSError("API request refused")
            seen.flow.append((name, step, value))

        def set_terminated(self, run: str, status: str) -> None:
            if "end" in seen.away:
                raise RuntimeError("refused")
            seen.ended.append(status)

    for name, part in (("tensorboardX", SummaryWriter), ("mlflow", MlflowClient)):
        module = ModuleType(name)
        setattr(module, part.__name__, part)
        monkeypatch.setitem(sys.modules, name, module)
    return seen


def _given(scenario: Make) -> dict[str, Any]:
    return scenario(algorithm={"rounds": 6}, run={"evaluate_every": 2})


def test_both_log_every_evaluation(scenario: Make, tmp_path: Path, watched: SimpleNamespace) -> None:
    with MLflow("run") as flow:
        done = decentral_dp.run(_given(scenario), callbacks=[TensorBoard(tmp_path / "board"), flow])
    assert watched.board == watched.flow
    metrics = done.metrics[done.metrics["agent"] == "mean"]
    loss = metrics[metrics["name"] == "upper_loss"]
    assert [(s, v) for n, s, v in watched.board if n == "loss"] == list(zip(loss["round"], loss["value"], strict=True))
    assert [s for n, s, _ in watched.board if n == "epsilon"] == [0, 2, 4, 6]
    spent = [v for n, _, v in watched.board if n == "epsilon"]
    assert spent[-1] == pytest.approx(done.result.privacy.epsilon_max, rel=1e-6)
    assert watched.places == [str(tmp_path / "board")]
    assert watched.ended == ["FINISHED"]


@pytest.mark.parametrize("log", ["tensorboard", "mlflow"])
def test_the_command_logs_to_either(log: str, command: Command, tmp_path: Path, watched: SimpleNamespace) -> None:
    assert command(*RUN, "--out", tmp_path / "run", "--log", log, "--quiet").code == 0
    assert {step for _, step, _ in watched.board + watched.flow} == {0, 2, 4, 6}
    assert watched.places == ([str(tmp_path / "run" / "tensorboard")] if log == "tensorboard" else [])


def test_a_run_that_starts_again_removes_its_scalars_and_follows_no_link(tmp_path: Path) -> None:
    for name in ("own", "linked", "mine"):
        (tmp_path / name / "in_progress").mkdir(parents=True)
    (tmp_path / "own" / "tensorboard").mkdir()
    (tmp_path / "linked" / "tensorboard").symlink_to(tmp_path / "mine")
    for name in ("own", "linked"):
        journal._remove(tmp_path / name)
    assert not (tmp_path / "own").exists()
    assert (tmp_path / "mine" / "in_progress").exists()


def test_a_failing_tracker_is_one_warning(command: Command, tmp_path: Path, watched: SimpleNamespace) -> None:
    watched.away = {"log"}
    with pytest.warns(RuntimeWarning) as warned:
        said = command(*RUN, "--out", tmp_path / "run", "--log", "mlflow")
    assert said.code == 0
    assert len(warned) == 1
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    (failure,) = result["diagnostics"]["failed_callbacks"]
    assert failure["callback"] == "MLflow"
    assert "API request refused" in failure["error"]
    assert "MLflow failed" in said.out
    assert result["status"] == "ok"
    assert not (tmp_path / "run" / "in_progress").exists()
    assert watched.ended == ["FINISHED"]


def test_a_tracker_that_fails_at_the_end_is_one_warning(
    command: Command, tmp_path: Path, watched: SimpleNamespace
) -> None:
    watched.away = {"end"}
    with pytest.warns(RuntimeWarning, match="MLflow failed at the end"):
        assert command(*RUN, "--out", tmp_path / "run", "--log", "mlflow", "--quiet").code == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "ok"


def test_an_unreachable_tracker_is_refused_before_the_run(
    command: Command, tmp_path: Path, watched: SimpleNamespace
) -> None:
    watched.away = {"create"}
    assert command(*RUN, "--out", tmp_path / "run", "--log", "mlflow", "--quiet").code == 2
    assert not (tmp_path / "run").exists()
    watched.away = set()

    def stop(progress: Progress) -> None:
        if progress.done == 4:
            raise KeyboardInterrupt

    given = decentral_dp.load("quadratic", set={"algorithm.rounds": 6, "run.evaluate_every": 2})
    with pytest.raises(Stopped), MLflow("run") as flow:
        decentral_dp.run(given, out=tmp_path / "run", callbacks=[flow, stop])
    assert watched.ended == ["KILLED"]
    watched.away = {"create", "log", "end"}
    assert command("resume", tmp_path / "run", "--quiet").code == 0


def test_a_failing_callback_is_skipped_and_others_are_called(scenario: Make) -> None:
    seen: list[int] = []

    def fail(progress: Progress) -> None:
        seen.append(-1)
        raise ValueError("no room")

    with pytest.warns(RuntimeWarning, match="fail failed at rounds 0 of 6") as warned:
        done = decentral_dp.run(_given(scenario), callbacks=[fail, lambda at: seen.append(at.done)])
    assert len(warned) == 1
    assert seen == [-1, 0, 2, 4, 6]
    whole = decentral_dp.run(_given(scenario))
    assert done.metrics.equals(whole.metrics)
    assert done.records.same_releases(whole.records)
    assert [(failure.done, failure.error) for failure in done.result.failed_callbacks] == [(0, "ValueError: no room")]
    assert whole.result.failed_callbacks == ()


@pytest.mark.parametrize(
    ("make", "module", "extra"), [(TensorBoard, "tensorboardX", "tensorboard"), (MLflow, "mlflow", "mlflow")]
)
def test_a_missing_package_is_named(
    make: Callable[[str], Any], module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if it was not installed.
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"{module} is not installed.*" + re.escape(f"decentral_dp[{extra}]")):
        make("run")


def test_tensorboard_files_have_the_scalars(scenario: Make, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    decentral_dp.run(_given(scenario), callbacks=[TensorBoard(tmp_path / "board")])
    (events,) = (tmp_path / "board").glob("events*")
    assert b"epsilon" in events.read_bytes()
