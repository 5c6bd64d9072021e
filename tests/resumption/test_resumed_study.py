"""A study goes on by its folder alone: to the same numbers, and nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.errors import InputError, Stopped
from decentral_dp.simulation.events import Progress
from decentral_dp.studies import runs
from decentral_dp.studies.page import Findings
from decentral_dp.tasks.outcomes import hold_folder
from tests.support.killed import killed

Scenario = Callable[..., dict[str, Any]]
GRID = {"algorithm.rounds": [2, 3], "privacy.epsilon": [1.0, 4.0]}


@pytest.fixture
def file(scenario: Scenario, tmp_path: Path) -> Path:
    """A study of four cells on a scenario beside it."""
    base = scenario(run={"evaluate_every": 1})
    (tmp_path / "base.toml").write_text(tomli_w.dumps(base), encoding="utf-8")
    plot = {"name": "loss", "x": "privacy.epsilon", "y": "upper_loss", "lines": "algorithm.rounds"}
    content = {"title": "Four cells", "scenario": "base.toml", "grid": GRID, "plots": [plot], "rounds": "all"}
    (tmp_path / "four.toml").write_text(tomli_w.dumps(content), encoding="utf-8")
    return tmp_path / "four.toml"


def interrupted_after(cells: int) -> Callable[[Progress], None]:
    def progress(at: Progress) -> None:
        if at.done == cells:
            raise KeyboardInterrupt

    return progress


def cut_off(file: Path, out: Path, after: int = 2, **options: Any) -> None:
    with pytest.raises(Stopped, match=f'{after} finished cells .* "decentral-dp resume {out}" goes on'):
        decentral_dp.study(file, out=out, workers=1, callbacks=[interrupted_after(after)], **options)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the cells that are computed from now on."""
    seen: list[str] = []
    real = runs.compute

    def compute(task: runs.Task) -> runs.Record:
        seen.append(task.key)
        return real(task)

    monkeypatch.setattr(runs, "compute", compute)
    return seen


def assert_same(one: Findings, other: Findings) -> None:
    for name in ("results", "summary"):
        first, second = getattr(one, name), getattr(other, name)
        kept = [frame[frame["name"] != "seconds"].reset_index(drop=True) for frame in (first, second)]
        assert len(kept[0])
        pd.testing.assert_frame_equal(*kept, check_exact=True)
    assert one.verdicts == other.verdicts
    pictures = [{p.name: p.read_bytes() for p in (f.folder or Path()).glob("plots/*")} for f in (one, other)]
    assert pictures[0].keys() == {"loss.png"}
    assert pictures[0] == pictures[1]


def test_a_folder_goes_on_to_what_it_would_have_been(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    options = {"set": {"seeds": [3], "privacy.delta": 1e-6}}
    whole = decentral_dp.study(file, out=tmp_path / "whole", workers=1, **options)
    cut_off(file, out, **options)
    before = {p.name for p in (out / "cells").iterdir()}
    # The study's own file is not read again: what was asked is in the folder, what was overridden, too.
    file.unlink()
    monkeypatch.chdir(tmp_path / "whole")
    seen = counted(monkeypatch)
    found = decentral_dp.resume(out)
    assert isinstance(found, Findings)
    assert found.computed == len(seen) == 2
    assert not before & {f"{key}.json" for key in seen}
    assert_same(found, whole)
    assert {p.name for p in out.iterdir()} == {p.name for p in (tmp_path / "whole").iterdir()}
    for name in ("study.toml", "claims.json"):
        texts = [(folder / name).read_text() for folder in (out, tmp_path / "whole")]
        assert texts[0] == texts[1]
    with pytest.raises(InputError, match=r"the study in .* is complete"):
        decentral_dp.resume(out)


def test_the_command_goes_on_with_a_folder(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cut_off(file, out, 3)
    done = CliRunner().invoke(app, ["resume", str(out)])
    assert done.exit_code == 0
    assert "4 cells, 1 of them computed now" in done.stdout
    assert (out / "report.html").is_file()
    again = CliRunner().invoke(app, ["resume", str(out)])
    assert isinstance(again.exception, InputError)
    assert "is complete" in str(again.exception)


@pytest.mark.parametrize("what", ["scenario", "scenario gone"])
def test_a_scenario_that_has_changed_is_refused(
    file: Path, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, base = tmp_path / "out", tmp_path / "base.toml"
    cut_off(file, out)
    before = base.read_text()
    seen = counted(monkeypatch)
    if what == "scenario":
        base.write_text(before.replace("x = -2.0", "x = -1.0"))
        assert base.read_text() != before
    else:
        base.unlink()
    with pytest.raises(InputError, match="has changed since" if what == "scenario" else r"base\.toml"):
        decentral_dp.resume(out)
    assert not seen
    base.write_text(before)
    found = decentral_dp.resume(out)
    assert isinstance(found, Findings)
    assert found.computed == 2


def test_a_file_that_the_scenario_names_has_changed(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n2,0\n")
    base = scenario()
    base["topology"] = {"file": "edges.csv"}
    (tmp_path / "base.toml").write_text(tomli_w.dumps(base), encoding="utf-8")
    study = {"scenario": str(tmp_path / "base.toml"), "kind": "plan", "grid": {"algorithm.rounds": [2, 3]}}
    out = tmp_path / "out"
    with pytest.raises(Stopped):
        decentral_dp.study(study, out=out, workers=1, callbacks=[interrupted_after(1)])
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n2,0\n0,3\n")
    with pytest.raises(InputError, match="or a file that one names has changed since"):
        decentral_dp.resume(out)


def test_cells_of_another_state_of_the_package_are_computed_anew(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    cut_off(file, out)
    monkeypatch.setattr(runs, "package_digest", lambda: "another")
    found = decentral_dp.resume(out)
    assert isinstance(found, Findings)
    assert found.computed == 4


def test_what_a_study_cannot_be_told_is_refused(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    cut_off(file, out)
    seen = counted(monkeypatch)
    refused = CliRunner().invoke(app, ["resume", str(out), "--log", "jsonl"])
    assert isinstance(refused.exception, InputError)
    assert "--log is for a single run" in str(refused.exception)
    with pytest.raises(InputError, match="data is for a single run"):
        decentral_dp.resume(out, data=object())
    with hold_folder(out / "cells", "held"), pytest.raises(InputError, match="this study is under way"):
        decentral_dp.resume(out)
    assert not seen


def test_a_record_that_is_damaged_or_missing_is_refused(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cut_off(file, out)
    record = out / "begun.json"
    for text in ("", "[]", "{}", record.read_text().replace("Four", "Five")):
        record.write_text(text)
        with pytest.raises(InputError, match="is not what was written"):
            decentral_dp.resume(out)
    record.unlink()
    with pytest.raises(InputError, match="does not say which study"):
        decentral_dp.resume(out)
    # As the sentence says.
    assert decentral_dp.study(file, out=out, workers=1).computed == 2


def test_a_killed_study_goes_on_by_its_folder(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    patch = (
        "import time, decentral_dp.studies.runs as c\n"
        "real, done = c.compute, []\n"
        "def compute(task):\n"
        "    done.append(task)\n"
        "    return real(task) if len(done) <= 2 else time.sleep(300)\n"
        "c.compute = compute\n"
    )
    words = ["study", file, "--out", out, "--jobs", 1, "--set", "seeds=2"]
    killed(words, tmp_path, patch, lambda: len(list(out.glob("cells/*.json"))) == 2)
    found = decentral_dp.resume(out)
    assert isinstance(found, Findings)
    assert found.computed == 6
    assert_same(found, decentral_dp.study(file, out=tmp_path / "whole", set={"seeds": 2}, workers=1))
