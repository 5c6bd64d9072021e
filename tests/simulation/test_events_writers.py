"""`run.log`: progress for TensorBoard and MLflow, by packages that need not be installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import decentral_dp
from decentral_dp.errors import InputError, Stopped
from decentral_dp.reporting import page
from decentral_dp.simulation.events import Progress, log_progress

Make = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "draw_run", lambda *_: None)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Stand-ins for both packages, with what they were told."""
    seen = SimpleNamespace(board=[], flow=[], ended=[], places=[])

    class SummaryWriter:
        def __init__(self, place: str) -> None:
            seen.places.append(place)
            Path(place).mkdir(parents=True)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            seen.board.append((name, step, value))

        def flush(self) -> None:
            pass

        def close(self) -> None:
            seen.ended.append("closed")

    class MlflowClient:
        def get_experiment_by_name(self, name: str) -> None:
            return None

        def create_experiment(self, name: str) -> str:
            return name

        def create_run(self, number: str, run_name: str, tags: dict[str, str]) -> SimpleNamespace:
            assert tags["folder"].endswith(run_name)
            return SimpleNamespace(info=SimpleNamespace(run_id="one"))

        def log_metric(self, run: str, name: str, value: float, step: int) -> None:
            seen.flow.append((name, step, value))

        def set_terminated(self, run: str, status: str) -> None:
            seen.ended.append(status)

    for name, part in (("tensorboardX", SummaryWriter), ("mlflow", MlflowClient)):
        module = ModuleType(name)
        setattr(module, part.__name__, part)
        monkeypatch.setitem(sys.modules, name, module)
    return seen


def _given(scenario: Make, *log: str) -> dict[str, Any]:
    return scenario(algorithm={"rounds": 6}, run={"evaluate_every": 2, "log": list(log)})


def test_both_are_told_of_every_evaluation(scenario: Make, tmp_path: Path, watched: SimpleNamespace) -> None:
    done = decentral_dp.run(_given(scenario, "tensorboard", "mlflow"), out=tmp_path / "run")
    assert watched.board == watched.flow
    metrics = done.metrics[done.metrics["agent"] == "mean"]
    loss = metrics[metrics["name"] == "upper_loss"]
    assert [(s, v) for n, s, v in watched.board if n == "loss"] == list(zip(loss["round"], loss["value"], strict=True))
    assert [s for n, s, _ in watched.board if n == "epsilon"] == [0, 2, 4, 6]
    spent = [v for n, _, v in watched.board if n == "epsilon"]
    assert spent[-1] == pytest.approx(done.result.privacy.epsilon_max, rel=1e-6)
    assert watched.places == [str(tmp_path / "run" / "tensorboard")]
    assert watched.ended == ["FINISHED", "closed"]


@pytest.mark.parametrize(("t", "kept"), [(0, False), (4, True)])
def test_a_run_that_is_cut_off_says_so(
    scenario: Make, tmp_path: Path, watched: SimpleNamespace, t: int, kept: bool
) -> None:
    def progress(at: Progress) -> None:
        if at.done >= t:
            raise KeyboardInterrupt

    with pytest.raises((Stopped, KeyboardInterrupt)):
        decentral_dp.run(_given(scenario, "tensorboard", "mlflow"), out=tmp_path / "run", progress=progress)
    assert watched.ended == ["KILLED", "closed"]
    # Of a run that has released nothing, nothing stays.
    assert (tmp_path / "run").exists() == kept


@pytest.mark.parametrize(
    ("name", "module", "brings"),
    [
        ("tensorboard", "tensorboardX", "decentral_dp[tensorboard]"),
        ("mlflow", "mlflow", "decentral_dp[mlflow]"),
        ("prometheus", "prometheus_client", "ray[default]"),
    ],
)
def test_a_missing_package_is_refused_before_the_run(
    scenario: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, brings: str
) -> None:
    # As Python finds it where it is not installed.
    monkeypatch.setitem(sys.modules, module, None)
    engine = {"run.engine": "ray"} if name == "prometheus" else {}
    with pytest.raises(InputError, match=re.escape(f'run.log: "{name}" needs {module}') + ".*" + re.escape(brings)):
        decentral_dp.run(_given(scenario, name), set=engine, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_prometheus_is_told_of_every_evaluation(
    scenario: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = pytest.importorskip("ray.util.metrics")
    seen: list[tuple[str, float, dict[str, str]]] = []

    class Gauge:
        def __init__(self, name: str, tag_keys: tuple[str, ...]) -> None:
            assert tag_keys == ("run",)
            self.name = name

        def set(self, value: float, tags: dict[str, str]) -> None:
            seen.append((self.name, value, tags))

    monkeypatch.setattr(metrics, "Gauge", Gauge)
    with log_progress(["prometheus"], tmp_path / "run", "", None) as told:
        assert told is not None
        told(Progress(2, 6, "rounds", loss=0.5))
        told(Progress(4, 6, "rounds", loss=0.4, epsilon=1.5, per_second=8.0))
    run = {"run": "run"}
    assert seen == [
        ("decentral_dp_rounds", 2.0, run),
        ("decentral_dp_loss", 0.5, run),
        ("decentral_dp_rounds", 4.0, run),
        ("decentral_dp_loss", 0.4, run),
        ("decentral_dp_epsilon", 1.5, run),
        ("decentral_dp_rounds_per_second", 8.0, run),
    ]
    # The dashboard shows these, and the count of lost actors.
    shown = set(re.findall(r"ray_(decentral_dp_\w+)", Path("deploy/grafana.json").read_text()))
    assert shown == {name for name, *_ in seen} | {"decentral_dp_actors_lost_total"}


def test_prometheus_is_refused_without_a_cluster(scenario: Make, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the engine is local"):
        decentral_dp.run(_given(scenario, "prometheus"), out=tmp_path / "run")


def test_without_a_folder_nothing_is_written(scenario: Make, watched: SimpleNamespace) -> None:
    decentral_dp.run(_given(scenario, "tensorboard"))
    assert not watched.board


def test_tensorboard_reads_what_is_written(scenario: Make, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    decentral_dp.run(_given(scenario, "tensorboard"), out=tmp_path / "run")
    (events,) = (tmp_path / "run" / "tensorboard").glob("events*")
    assert b"epsilon" in events.read_bytes()


def test_other_names_are_refused(scenario: Make) -> None:
    with pytest.raises(InputError, match=r"run\.log"):
        decentral_dp.load(_given(scenario, "wandb"))
