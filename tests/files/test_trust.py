"""Code of run folders needs consent, unless this machine has run it before."""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.errors import InputError
from decentral_dp.reporting import page
from decentral_dp.user_code import run_file
from tests.support.interruptions import interrupt
from tests.support.pages import write_algorithm

ROOT = Path(__file__).parents[2]
MARK = "\nfrom pathlib import Path as _Path\n_Path({!r}).touch()\n"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(page, "draw_run", lambda *_: None)
    return tmp_path / "state" / "decentral_dp" / "code_digests"


def _scenario(folder: Path) -> Path:
    """Write the scenario of docs/add_an_algorithm.md and its file."""
    folder.mkdir()
    return write_algorithm(folder, "momentum")


def _changed(folder: Path, mark: Path) -> None:
    """Put one more line into the code of a folder, which leaves a mark where it is run."""
    code = folder / "code" / "momentum.py"
    code.write_text(code.read_text(encoding="utf-8") + MARK.format(str(mark)), encoding="utf-8")


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    decentral_dp.run(_scenario(tmp_path / "mine"), out=tmp_path / "run", set={"algorithm.rounds": 3})
    return tmp_path / "run"


def test_what_this_machine_has_run_needs_no_consent(complete: Path, state: Path) -> None:
    assert decentral_dp.plan(complete / "scenario.toml").rounds == 3
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.parent.stat().st_mode) == 0o700
    state.unlink()
    with pytest.raises(InputError, match="code of a run folder"):
        decentral_dp.plan(complete / "scenario.toml")
    # Running it from a run folder, with consent, makes it no known code.
    with decentral_dp.trusting():
        assert decentral_dp.plan(complete / "scenario.toml").rounds == 3
    assert not state.exists()


@pytest.mark.parametrize(
    "command",
    [
        ["plan", "{}/scenario.toml"],
        ["run", "{}/scenario.toml", "--out", "{}-again"],
        ["audit", "{}", "--membership"],
        ["audit", "{}", "--runs", "20"],
        ["network", "{}/scenario.toml"],
        ["check", "{}/scenario.toml"],
        ["check", "momentum:Momentum"],
        ["list", "momentum:Momentum"],
    ],
    ids=lambda command: f"{command[0]} {command[1][3:]}",
)
def test_no_command_runs_code_of_a_folder_from_elsewhere(
    complete: Path, tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(complete / "code")
    mark = tmp_path / "mark"
    # A folder from elsewhere is whole.
    _changed(complete, mark)
    _resealed(complete)
    given = [part.format(complete) for part in command]
    refused = CliRunner().invoke(app, given)
    assert isinstance(refused.exception, InputError)
    assert "--trust" in refused.exception.command
    assert not mark.exists()
    CliRunner().invoke(app, [*given, "--trust"])
    assert mark.exists()


def _resealed(folder: Path) -> None:
    import json

    from decentral_dp.simulation.result import seal, sha256_of_file, text_of

    content = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    content["files"] = {name: sha256_of_file(folder / name) for name in content["files"]}
    (folder / "result.json").write_text(text_of(seal(content)), encoding="utf-8")


@pytest.mark.parametrize("resume", [decentral_dp.resume, decentral_dp.Run.resume])
def test_resume_asks_for_consent(tmp_path: Path, state: Path, resume: Callable[..., Any]) -> None:
    few = {"algorithm.rounds": 6, "run.evaluate_every": 1}
    interrupt(_scenario(tmp_path / "mine"), tmp_path / "run", 2, set=few)
    shutil.copytree(tmp_path / "run", tmp_path / "known")
    assert resume(tmp_path / "known").result.status == "ok"
    state.unlink()
    with pytest.raises(InputError, match="trust=True"):
        resume(tmp_path / "run")
    assert (tmp_path / "run" / "in_progress" / "noise_root.json").exists()
    assert decentral_dp.resume(tmp_path / "run", trust=True).result.status == "ok"


def test_code_outside_that_a_run_folder_names_needs_consent_as_well(complete: Path, tmp_path: Path) -> None:
    elsewhere, mark = tmp_path / "elsewhere.py", tmp_path / "mark"
    elsewhere.write_text((complete / "code" / "momentum.py").read_text() + MARK.format(str(mark)))
    scenario = complete / "scenario.toml"
    changed = scenario.read_text().replace("momentum:", "elsewhere:").replace('"code"', f'"{tmp_path}"')
    scenario.write_text(changed)
    with pytest.raises(InputError, match=r"elsewhere\.py. is code of a run folder"):
        decentral_dp.plan(scenario)
    assert not mark.exists()


def test_an_installed_module_that_a_run_folder_names_needs_consent_as_well(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which function of a package is called, and with which keys, is in the scenario."""
    scenario, site = _scenario(tmp_path / "mine"), tmp_path / "site"
    (site / "my_moves").mkdir(parents=True)
    (scenario.parent / "momentum.py").rename(site / "my_moves" / "__init__.py")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "my_moves", raising=False)
    scenario.write_text(scenario.read_text().replace("momentum:", "my_moves:"))
    decentral_dp.run(scenario, out=tmp_path / "run", set={"algorithm.rounds": 2})
    known = tmp_path / "run" / "scenario.toml"
    assert decentral_dp.plan(known).rounds == 2
    state.unlink()
    del sys.modules["my_moves"]
    with pytest.raises(InputError, match=r"my_moves:Momentum. is code of a run folder"):
        decentral_dp.plan(known)
    assert "my_moves" not in sys.modules
    with decentral_dp.trusting():
        assert decentral_dp.plan(known).rounds == 2
    del sys.modules["my_moves"]


def test_a_module_in_a_run_folder_on_pythons_path_is_not_imported(
    complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Emulate `python -m decentral_dp` in such a folder: Python would import it without consent, and from a cache."""
    mark = tmp_path / "mark"
    (complete / "hidden").mkdir()
    (complete / "hidden" / "moves.py").write_text(MARK.format(str(mark)))
    monkeypatch.syspath_prepend(str(complete))
    scenario = _scenario(tmp_path / "own")
    scenario.write_text(scenario.read_text().replace("momentum:", "hidden.moves:"))
    with pytest.raises(InputError, match="in a run folder on Python's path"):
        decentral_dp.plan(scenario)
    assert not mark.exists()


def test_consent_to_code_outside_a_run_folder_is_given_once(complete: Path, tmp_path: Path, state: Path) -> None:
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text((complete / "code" / "momentum.py").read_text())
    scenario = complete / "scenario.toml"
    changed = scenario.read_text().replace("momentum:", "elsewhere:").replace('"code"', f'"{tmp_path}"')
    scenario.write_text(changed)
    state.unlink(missing_ok=True)
    with decentral_dp.trusting():
        assert decentral_dp.plan(scenario).rounds == 3
    assert not state.exists()
    with pytest.raises(InputError, match="code of a run folder"):
        decentral_dp.plan(scenario)


@pytest.mark.parametrize("way", ["link", "deep"])
def test_where_code_lies_is_asked_of_its_name_and_of_its_target(complete: Path, tmp_path: Path, way: str) -> None:
    elsewhere, mark = tmp_path / "elsewhere.py", tmp_path / "mark"
    elsewhere.write_text(MARK.format(str(mark)))
    place = complete / "code" / "linked.py" if way == "link" else complete / "a" / "b" / "c" / "deep.py"
    place.parent.mkdir(parents=True, exist_ok=True)
    if way == "link":
        place.symlink_to(elsewhere)
    else:
        shutil.copy(elsewhere, place)
    with pytest.raises(InputError, match="is code of a run folder"):
        run_file(place)
    assert not mark.exists()
