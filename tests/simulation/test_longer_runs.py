"""`resume` with more rounds than planned: the same noise, the same bits, and a price that is told before."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.config.components import resolve
from decentral_dp.config.loading import load
from decentral_dp.errors import InputError, Stopped
from decentral_dp.reporting import page
from decentral_dp.simulation import run as runner
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.folder import journal, layout
from decentral_dp.simulation.jobs.build import build

Make = Callable[..., dict[str, Any]]
FIRST, ALL = 40, 60
DECLARED = {"epsilon": None, "x": {"scale": 0.5}, "y": {"scale": 0.5, "decay": 0.1}, "z": {"scale": 0.5}}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_INTERVAL", 0.0)
    monkeypatch.setattr(journal, "_SHARE", 1e9)
    monkeypatch.setattr(page, "draw_run", lambda *_: None)


def _given(scenario: Make, **privacy: Any) -> dict[str, Any]:
    made = scenario(algorithm={"rounds": FIRST}, run={"evaluate_every": 2}, privacy=privacy)
    made["privacy"] = {k: v for k, v in made["privacy"].items() if v is not None}
    return made


def _cut_off(given: Any, folder: Path, t: int = 4, **options: Any) -> None:
    def progress(at: Progress) -> None:
        if at.done >= t:
            raise KeyboardInterrupt

    with pytest.raises(Stopped):
        decentral_dp.run(given, out=folder, callbacks=[progress], **options)


def _root(folder: Path) -> bytes:
    return bytes.fromhex(json.loads((folder / "in_progress" / "noise_root.json").read_text())["root"])


def _assert_is(done: Any, job: Any) -> None:
    """The run is, to the bit, that of the job."""
    whole = runner._run(job, None)
    for part in ("released", "published", "state"):
        for channel, value in getattr(whole, part).items():
            np.testing.assert_array_equal(getattr(done, part)[channel], value, strict=True)
    pd.testing.assert_frame_equal(done.metrics, whole.metrics)
    pd.testing.assert_frame_equal(done.ledger, whole.ledger)
    assert done.result.privacy.epsilon_max == whole.result.privacy.epsilon_max


@pytest.mark.parametrize("privacy", [{}, DECLARED, {"guarantee": "none"}], ids=["target", "declared", "none"])
def test_more_rounds_are_a_run_of_so_many_with_the_noise_of_the_first(
    scenario: Make, tmp_path: Path, privacy: dict[str, Any]
) -> None:
    given, folder, plans = _given(scenario, **privacy), tmp_path / "run", []
    _cut_off(given, folder)
    root = _root(folder)
    done = decentral_dp.resume(folder, rounds=ALL, priced=plans.append)
    longer = {**given, "algorithm": {**given["algorithm"], "rounds": ALL}}
    if "epsilon" in given["privacy"]:
        longer["privacy"] = {**given["privacy"], "epsilon_rounds": FIRST}
    _assert_is(done, build(longer).with_root(root))
    assert [plan.rounds for plan in plans] == [ALL]
    assert plans[0].privacy.epsilon_max == done.result.privacy.epsilon_max
    assert done.result.rounds == done.result.rounds_planned == ALL
    kept = tomllib.loads((folder / "scenario.toml").read_text())
    assert kept["algorithm"]["rounds"] == ALL
    assert not (folder / "in_progress").exists()


def test_the_command_prints_the_plan_first(scenario: Make, tmp_path: Path) -> None:
    _cut_off(_given(scenario), tmp_path / "run")
    printed = CliRunner().invoke(app, ["resume", str(tmp_path / "run"), "--rounds", str(ALL), "--quiet"])
    assert printed.exit_code == 0, printed.output
    assert f"({ALL} rounds, " in printed.output
    assert "after the last round" in printed.output


def test_a_passed_target_is_said_and_no_longer_called_one(scenario: Make, tmp_path: Path) -> None:
    given, folder = _given(scenario), tmp_path / "run"
    first = decentral_dp.plan(given).privacy
    _cut_off(given, folder)
    privacy = decentral_dp.resume(folder, rounds=ALL).result.privacy
    assert privacy.epsilon_max > first.epsilon_max
    assert (first.target, privacy.target) == (given["privacy"]["epsilon"], None)
    assert any(f"over {FIRST} rounds" in caution for caution in privacy.cautions)
    assert not any(f"over {FIRST} rounds" in caution for caution in first.cautions)


def test_a_longer_run_that_is_cut_off_again_stays_longer(scenario: Make, tmp_path: Path) -> None:
    given, folder = _given(scenario), tmp_path / "run"
    _cut_off(given, folder)
    root = _root(folder)

    def again(at: Progress) -> None:
        if at.done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(Stopped, match=f"of {ALL} may"):
        decentral_dp.resume(folder, rounds=ALL, callbacks=[again])
    assert json.loads((folder / "result.json").read_text())["rounds_planned"] == ALL
    privacy = {**given["privacy"], "epsilon_rounds": FIRST}
    longer = {**given, "algorithm": {**given["algorithm"], "rounds": ALL + 5}, "privacy": privacy}
    _assert_is(decentral_dp.resume(folder, rounds=ALL + 5), build(longer).with_root(root))


def test_killed_while_its_files_are_put_in_place_it_still_goes_on(
    scenario: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _cut_off(_given(scenario), tmp_path / "run")

    def write(done: Any, folder: Path, parts: Any) -> None:
        (folder / "scenario.toml").write_text(layout.resolved_toml(resolve(done.scenario)))
        shutil.copytree(folder, tmp_path / "killed")
        raise OSError("killed here")

    with monkeypatch.context() as here:
        here.setattr(runner, "write_contents", write)
        with pytest.raises(OSError, match="killed here"):
            decentral_dp.resume(tmp_path / "run", rounds=ALL)
    assert decentral_dp.resume(tmp_path / "killed").result.rounds == ALL


@pytest.mark.parametrize(
    ("privacy", "rounds", "said"),
    [
        ({}, FIRST, "not more than the 40 rounds"),
        ({}, 10**13, "more than"),
        ({"cap": 4.1}, 10 * ALL, "would pass the declared cap ε = 4.1"),
    ],
)
def test_what_cannot_go_on_is_refused_and_goes_on_as_planned(
    scenario: Make, tmp_path: Path, privacy: dict[str, Any], rounds: int, said: str
) -> None:
    given, folder = _given(scenario, **privacy), tmp_path / "run"
    _cut_off(given, folder)
    with pytest.raises(InputError, match=said):
        decentral_dp.resume(folder, rounds=rounds)
    assert decentral_dp.resume(folder).result.rounds == build(given).rounds


def test_after_the_last_release_there_are_no_more_rounds(scenario: Make, tmp_path: Path) -> None:
    given, folder = _given(scenario), tmp_path / "run"
    _cut_off(given, folder, t=FIRST)
    with pytest.raises(InputError, match="may have been released"):
        decentral_dp.resume(folder, rounds=ALL)
    _assert_is(decentral_dp.resume(folder), build(given))


def test_a_coordinator_has_shared_its_budget_out(tmp_path: Path) -> None:
    given = load("dp_bilevel", ["algorithm.rounds=40", "run.evaluate_every=1"])
    _cut_off(given, tmp_path / "run")
    with pytest.raises(InputError, match="whole budget beforehand"):
        decentral_dp.resume(tmp_path / "run", rounds=ALL)


@pytest.mark.parametrize(
    ("privacy", "said"),
    [({"epsilon_rounds": FIRST + 1}, "end before"), ({**DECLARED, "epsilon_rounds": 3}, "no epsilon to spend")],
)
def test_rounds_of_a_target_are_refused_where_they_mean_nothing(
    scenario: Make, privacy: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        decentral_dp.plan(_given(scenario, **privacy))
