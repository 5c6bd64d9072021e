"""An attack that is cut off keeps what it has found, and goes on to the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from decentral_dp.auditing import membership as repeats
from decentral_dp.cli.main import app
from decentral_dp.errors import InputError, Stopped
from decentral_dp.simulation.events import Progress
from tests.support.short_run import short_run

RUNS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return short_run(tmp_path_factory.mktemp("runs") / "run")


def _cut_off(folder: Path, out: Path, after: int) -> None:
    def progress(at: Progress) -> None:
        if at.done == after:
            raise KeyboardInterrupt

    with pytest.raises(Stopped, match=f"{after} of {RUNS} runs"):
        repeats.infer([folder], RUNS, progress, out)


def test_what_goes_on_finds_the_same_and_attacks_nothing_twice(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out, again = repeats.infer([folder], RUNS), tmp_path / "attack.json", []
    _cut_off(folder, out, 2)
    assert json.loads(out.read_text())["status"] == "interrupted"
    run = repeats.run_job

    def counted(job: Any) -> Any:
        again.append(job.scenario.seed)
        return run(job)

    monkeypatch.setattr(repeats, "run_job", counted)
    assert repeats.infer([folder], RUNS, None, out).scores == whole.scores
    assert len(set(again)) == len(again) == RUNS - 2


def test_the_command_ends_with_all_numbers_in_the_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "attack.json"
    _cut_off(folder, out, 3)
    words = ["attack", str(folder), "--runs", str(RUNS), "--out", str(out)]
    assert CliRunner().invoke(app, words).exit_code == 0
    told = json.loads(out.read_text())
    assert "status" not in told
    assert told["runs"] == RUNS
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, InputError)
    assert "nothing is written over" in str(refused.exception)


def test_what_was_found_of_other_runs_is_not_taken(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "attack.json"
    _cut_off(folder, out, 1)
    kept = json.loads(out.read_text())
    out.write_text(json.dumps({**kept, "fingerprint": "0" * 16}))
    with pytest.raises(InputError, match="on other runs"):
        repeats.infer([folder], RUNS, None, out)
    for broken in ("", "[]", '{"status": "interrupted"}', json.dumps({**kept, "outcomes": {"0": {"members": "x"}}})):
        out.write_text(broken)
        with pytest.raises(InputError, match="exists already"):
            repeats.infer([folder], RUNS, None, out)
    with pytest.raises(InputError, match="there is no folder"):
        repeats.infer([folder], RUNS, None, tmp_path / "none" / "attack.json")
