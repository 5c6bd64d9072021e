"""`--log`: what a run tells of itself, for programs that read along."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from decentral_dp.cli.main import app
from decentral_dp.errors import InputError
from decentral_dp.reporting import page
from decentral_dp.simulation.events import Progress, Reporter

Make = Callable[..., dict[str, Any]]
ROUNDS = 12


@pytest.fixture
def given(scenario: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page, "draw_run", lambda *_: None)
    path = tmp_path / "given.toml"
    path.write_text(tomli_w.dumps(scenario(algorithm={"rounds": ROUNDS}, run={"evaluate_every": 3})))
    return path


def _called(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_log_has_every_evaluation_and_the_end(given: Path, tmp_path: Path) -> None:
    log, folder = tmp_path / "run.jsonl", tmp_path / "run"
    done = _called("run", given, "--out", folder, "--log", log)
    assert done.exit_code == 0, done.output
    *events, end = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["round"] for event in events] == [0, 3, 6, 9, 12]
    assert {event["event"] for event in events} == {"progress"}
    assert {event["rounds"] for event in events} == {ROUNDS}
    assert [e["epsilon"] for e in events] == sorted(e["epsilon"] for e in events)
    assert events[0]["rounds_per_second"] is events[0]["seconds_left"] is None
    assert all(event["rounds_per_second"] > 0.0 and event["seconds_left"] >= 0.0 for event in events[1:])
    result = json.loads((folder / "result.json").read_text())
    assert (end["event"], end["status"], end["round"]) == ("end", "ok", ROUNDS)
    assert end["epsilon"] == result["privacy"]["epsilon_max"]
    assert end["folder"] == str(folder)


def test_on_stderr_there_is_nothing_else(given: Path, tmp_path: Path) -> None:
    done = _called("run", given, "--out", tmp_path / "run", "--log", "jsonl")
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["progress"] * 5 + ["end"]
    assert "ε" in done.stdout


def test_an_interrupt_is_the_end_and_what_goes_on_is_added(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, folder = tmp_path / "run.jsonl", tmp_path / "run"

    def interrupt(self: Reporter, done: int, total: int, **more: Any) -> None:
        call(self, done, total, **more)
        if done == 6:
            raise KeyboardInterrupt

    call = Reporter.__call__
    with monkeypatch.context() as here:
        here.setattr(Reporter, "__call__", interrupt)
        assert _called("run", given, "--out", folder, "--log", log).exit_code != 0
    first = [json.loads(line) for line in log.read_text().splitlines()]
    assert (first[-1]["event"], first[-1]["status"]) == ("end", "interrupted")
    assert "may have been released" in first[-1]["reason"]
    assert _called("resume", folder, "--log", log).exit_code == 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert events[: len(first)] == first
    assert (events[-1]["status"], events[-1]["round"]) == ("ok", ROUNDS)


@pytest.mark.parametrize("log", ["json", "run.txt", ""])
def test_other_names_are_refused_before_anything_is_run(given: Path, tmp_path: Path, log: str) -> None:
    done = _called("run", given, "--out", tmp_path / "run", "--log", log)
    assert isinstance(done.exception, InputError)
    assert "ends in .jsonl" in str(done.exception)
    assert not (tmp_path / "run").exists()


def test_speed_and_time_left_are_of_this_start_alone() -> None:
    seconds, seen = iter([5.0, 5.0, 9.0, 13.0]), list[Progress]()
    report = Reporter(seen.append, "rounds", clock=lambda: next(seconds))
    for done, epsilon in ((40, 1.0), (40, float("nan")), (48, 1.5), (80, float("nan"))):
        report(done, 100, loss=0.5, epsilon=epsilon)
    assert [event.per_second for event in seen] == [None, None, 2.0, 5.0]
    assert [event.seconds_left for event in seen] == [None, None, 26.0, 4.0]
    assert [event.epsilon for event in seen] == [1.0, 1.0, 1.5, 1.5]
