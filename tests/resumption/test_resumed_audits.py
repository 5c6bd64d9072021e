"""Audits resume from what they left on the disk, to the same numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.auditing import audit as audits
from decentral_dp.auditing import runs as audit_runs
from decentral_dp.auditing import tables
from decentral_dp.auditing.audit import AuditResult
from decentral_dp.auditing.tables import audit_table
from decentral_dp.cli.main import app
from decentral_dp.config.loading import load
from decentral_dp.errors import InputError, Stopped
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.tasks import outcomes
from tests.support.killed import killed
from tests.support.published import scenario_file
from tests.support.short_run import short_run

FEW = ["algorithm.rounds=2"]
FEW_ROUNDS = {"algorithm.rounds": 2}
RUNS = 20


def interrupted_at(calls: int) -> Callable[[Progress], None]:
    count = [0]

    def progress(at: Progress) -> None:
        count[0] += 1
        if count[0] == calls:
            raise KeyboardInterrupt

    return progress


def cut_off(out: Path, scenario: Any = "bsa", after: int = 12, **options: Any) -> None:
    with pytest.raises(Stopped, match=f'{after} runs of each data set are kept .* "decentral-dp resume {out}" goes on'):
        decentral_dp.audit(scenario, runs=RUNS, set=FEW_ROUNDS, out=out, callbacks=[interrupted_at(after)], **options)


@pytest.fixture
def file(scenario: Callable[..., dict[str, Any]], tmp_path: Path) -> Path:
    """A scenario whose graph is a file."""
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n2,0\n")
    content = scenario()
    content["topology"] = {"file": "edges.csv"}
    (tmp_path / "small.toml").write_text(tomli_w.dumps(content), encoding="utf-8")
    return tmp_path / "small.toml"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return short_run(tmp_path_factory.mktemp("runs") / "run")


# --- an audit ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["python", "command"])
def test_an_audit_goes_on_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    out = tmp_path / "audit.json"
    whole = decentral_dp.audit("bsa", runs=RUNS, set=FEW_ROUNDS, seed=4, confidence=0.9)
    cut_off(out, seed=4, confidence=0.9)
    real, seen = audit_runs.runs_of, []
    monkeypatch.setattr(audit_runs, "runs_of", lambda game, numbers: seen.extend(numbers) or real(game, numbers))
    if how == "python":
        assert decentral_dp.resume(out) == whole
    else:
        done = CliRunner().invoke(app, ["resume", str(out)])
        assert done.exit_code == 0
        assert "certified ε" in done.stdout
    assert seen == list(range(12, RUNS))
    assert json.loads(out.read_text()) == whole.to_dict()
    with pytest.raises(InputError, match=r"the audit in .* is complete"):
        decentral_dp.resume(out)


def test_an_interrupt_between_two_data_sets_of_one_run_counts_it_for_none(tmp_path: Path) -> None:
    out = tmp_path / "audit.json"
    whole = decentral_dp.audit("bsa", runs=RUNS, set=FEW_ROUNDS)
    real, calls = audit_runs.Run, []

    def made(*run: Any) -> audit_runs.Run:
        calls.append(0)
        if len(calls) == 3 * 7 + 2:
            raise KeyboardInterrupt
        return real(*run)

    with pytest.MonkeyPatch.context() as here:
        here.setattr(audit_runs, "Run", made)
        with pytest.raises(Stopped, match="7 runs of each data set"):
            decentral_dp.audit("bsa", runs=RUNS, set=FEW_ROUNDS, out=out)
    kept = json.loads(out.read_text())["outcomes"]
    assert {task: len(runs) for task, runs in kept.items()} == {str(k): 3 for k in range(7)}
    assert decentral_dp.resume(out) == whole


def test_an_audit_that_is_interrupted_twice_and_more_of_it(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "audit.json"
    cut_off(out, file, 3)
    with pytest.raises(Stopped, match="8 runs of each data set"):
        decentral_dp.resume(out, callbacks=[interrupted_at(6)])
    assert decentral_dp.resume(out) == decentral_dp.audit(file, runs=RUNS, set=FEW_ROUNDS)


@pytest.mark.parametrize("changed", ["scenario", "file", "kept scenario"])
def test_an_audit_whose_scenario_has_changed_is_refused(file: Path, tmp_path: Path, changed: str) -> None:
    out = tmp_path / "audit.json"
    cut_off(out, file, 2)
    if changed == "scenario":
        file.write_text(file.read_text().replace("epsilon = 4.0", "epsilon = 3.0"))
        sentence = r"small\.toml has changed since the audit"
    elif changed == "file":
        (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n2,0\n2,3\n")
        sentence = "of another scenario"
    else:
        content = json.loads(out.read_text())
        content["asked"]["scenario"]["privacy"]["epsilon"] = 3.0
        out.write_text(json.dumps(content))
        sentence = "of another scenario"
    before = out.read_bytes()
    with pytest.raises(InputError, match=sentence):
        decentral_dp.resume(out)
    assert out.read_bytes() == before


def test_a_scenario_that_is_gone_is_in_the_file_of_its_audit(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "audit.json"
    whole = decentral_dp.audit(file, runs=RUNS, set=FEW_ROUNDS)
    cut_off(out, file, 2)
    file.unlink()
    assert decentral_dp.resume(out) == whole


def test_an_audit_of_a_run_goes_on_by_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: Callable[..., dict[str, Any]]
) -> None:
    content = scenario(algorithm={"rounds": 2})
    folders = {name: tmp_path / name for name in ("cut", "whole")}
    for folder in folders.values():
        decentral_dp.run(content, out=folder)
    assert CliRunner().invoke(app, ["audit", str(folders["whole"]), "--runs", "20"]).exit_code == 0
    with pytest.MonkeyPatch.context() as here:
        real, calls = audit_runs.runs_of, []

        def runs_of(game: Any, numbers: Any) -> Any:
            calls.append(0)
            if len(calls) == 13:
                raise KeyboardInterrupt
            return real(game, numbers)

        here.setattr(audit_runs, "runs_of", runs_of)
        stopped = CliRunner().invoke(app, ["audit", str(folders["cut"]), "--runs", "20"])
    assert isinstance(stopped.exception, Stopped)
    assert "audit" not in json.loads((folders["cut"] / "result.json").read_text())
    refused = CliRunner().invoke(app, ["resume", str(folders["cut"]), "--log", "jsonl"])
    assert "is of an audit" in str(refused.exception)
    assert CliRunner().invoke(app, ["resume", str(folders["cut"])]).exit_code == 0
    found = [json.loads((folder / "result.json").read_text())["audit"] for folder in folders.values()]
    assert found[0] == found[1]
    assert "<h2>Audit</h2>" in (folders["cut"] / "report.html").read_text()
    # Now the run is what the folder is of.
    with pytest.raises(InputError, match=r"cut is complete"):
        decentral_dp.resume(folders["cut"])


def test_a_job_that_was_handed_over_goes_on_by_the_same_call_alone(tmp_path: Path) -> None:
    out = tmp_path / "audit.json"
    job = build(load("bsa", FEW))
    with pytest.raises(Stopped):
        decentral_dp.audit(job, runs=RUNS, out=out, callbacks=[interrupted_at(2)])
    with pytest.raises(InputError, match="does not say what was audited: a job that was built in Python"):
        decentral_dp.resume(out)
    assert decentral_dp.audit(job, runs=RUNS, out=out) == decentral_dp.audit(job, runs=RUNS)


def test_an_audit_without_any_run_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "audit.json"

    def interrupt(*given: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as here:
        here.setattr(audits, "worst_neighbours", interrupt)
        with pytest.raises(KeyboardInterrupt):
            decentral_dp.audit("bsa", runs=RUNS, set=FEW_ROUNDS, out=out)
    assert not out.exists()
    with pytest.raises(InputError, match="leaves nothing behind"):
        decentral_dp.resume(out)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"status": "running"}', '{"status": "ok"}'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(InputError, match="is not the file of an audit"):
        decentral_dp.resume(tmp_path / "other.json")


@pytest.mark.parametrize("asked", [{}, {"what": "audit"}, {"file": None, "folder": ".", "ends": []}, []])
def test_a_damaged_order_is_refused(tmp_path: Path, asked: Any) -> None:
    out = tmp_path / "audit.json"
    cut_off(out, after=2)
    out.write_text(json.dumps({**json.loads(out.read_text()), "asked": asked}))
    with pytest.raises(InputError, match="is not what was written"):
        decentral_dp.resume(out)


def test_a_killed_audit_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "audit.json"
    patch = (
        "import time, decentral_dp.auditing.audit as b, decentral_dp.auditing.runs as r\n"
        "b._INTERVAL, real = 0.0, r.runs_of\n"
        "r.runs_of = lambda game, numbers: time.sleep(300) if 9 in numbers else real(game, numbers)\n"
    )
    words = ["audit", "bsa", "--runs", RUNS, "--set", FEW[0], "--out", out]
    killed(words, tmp_path, patch, lambda: out.exists() and len(json.loads(out.read_text())["outcomes"]) == 9)
    assert decentral_dp.resume(out) == decentral_dp.audit("bsa", runs=RUNS, set=FEW_ROUNDS)


# --- a table of audits ------------------------------------------------------------------------------------------------


def test_a_table_of_audits_goes_on_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, out = ["bsa", scenario_file("paper_boxed"), "scdro"], tmp_path / "audits"
    whole = audit_table(names, runs=RUNS)
    real, calls = tables.play_game, []

    def play(*given: Any) -> AuditResult:
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(tables, "play_game", play)
    with pytest.raises(Stopped, match=f'"decentral-dp resume {out}" goes on'):
        audit_table(names, runs=RUNS, out=out)
    with pytest.raises(InputError, match="is of a table of audits"):
        decentral_dp.resume(out, rounds=3)
    with pytest.MonkeyPatch.context() as here:
        here.setattr(outcomes, "package_digest", lambda: "another")
        with pytest.raises(InputError, match="decentral_dp has changed since"):
            decentral_dp.resume(out)
    found = decentral_dp.resume(out)
    assert isinstance(found, pd.DataFrame)
    assert len(calls) == 4
    assert found.equals(whole)
    assert pd.read_parquet(out / "audits.parquet").equals(whole)
    with pytest.raises(InputError, match="are complete"):
        decentral_dp.resume(out)
    (out / "audits.json").write_text("{}")
    with pytest.raises(InputError, match="is not what was written"):
        decentral_dp.resume(out)


def test_what_an_earlier_version_left_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "kept.json"
    earlier = {"status": "interrupted", "fingerprint": "0" * 16, "salt": ""}
    cut_off(out, after=2)
    order = json.loads(out.read_text())["asked"]
    scores = {"scores": {"first": [0.5], "second": [0.5], "null": [0.5]}, "sizes": {}}
    content = {**earlier, **scores, "asked": {"what": "audit", **order}}
    out.write_text(json.dumps(content))
    with pytest.raises(InputError, match="or by another state of this package; put back what it was of"):
        decentral_dp.resume(out)
    assert json.loads(out.read_text()) == content


def test_what_is_kept_is_written_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, written = [0.0], []
    real = outcomes.write_json
    monkeypatch.setattr(outcomes.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        outcomes,
        "write_json",
        lambda out, content, *mode: written.append(len(content["outcomes"])) or real(out, content, *mode),
    )

    def progress(at: Progress) -> None:
        now[0] += 0.9

    decentral_dp.audit("bsa", runs=RUNS, set=FEW_ROUNDS, out=tmp_path / "audit.json", callbacks=[progress])
    assert written[0] == 0
    assert written[1:] == list(range(4, RUNS + 1, 3))
