"""Links in a run folder are neither followed nor written through."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.reporting.page import write_report
from decentral_dp.reporting.plots import write_plots

TEXT = "a file of its owner"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    scenario = load("quadratic", ["topology.agents=4", "algorithm.rounds=3", "seed=null", "privacy.epsilon=4.0"])
    decentral_dp.run(scenario, out=tmp_path / "run")
    (tmp_path / "outside").write_text(TEXT)
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["report.html", "plots/consensus.svg", ".report.html.part"])
def test_a_link_is_replaced_and_not_followed(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(folder.parent / "outside")
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 0, done.exception
    assert (folder.parent / "outside").read_text() == TEXT
    assert not (folder / name).is_symlink()


def test_a_folder_of_figures_that_leads_outside_is_refused(folder: Path) -> None:
    (folder.parent / "other").mkdir()
    for path in (folder / "plots").iterdir():
        path.unlink()
    (folder / "plots").rmdir()
    (folder / "plots").symlink_to(folder.parent / "other")
    for write in (write_plots, write_report):
        with pytest.raises(InputError, match="points outside its folder"):
            write(folder)
    assert not list((folder.parent / "other").iterdir())


@pytest.mark.parametrize(
    "name", ["scenario.toml", "result.json", "metrics.parquet", "state.npz", "plots/consensus.svg"]
)
def test_an_input_that_leads_outside_is_refused(folder: Path, name: str) -> None:
    """A page is published, so it must not contain a private file."""
    copy = folder.parent / "copy"
    os.replace(folder / name, copy)
    (folder / name).symlink_to(copy)
    write = write_plots if name.endswith((".parquet", ".npz")) else write_report
    with pytest.raises(InputError, match="points outside its folder"):
        write(folder)
    if "/" not in name:
        for command in (["report", str(folder)], ["compare", str(folder), str(folder)]):
            refused = CliRunner().invoke(app, command)
            assert isinstance(refused.exception, InputError), command


def test_files_of_a_run_with_secret_noise_are_its_owners(folder: Path) -> None:
    CliRunner().invoke(app, ["report", str(folder), "--format", "pdf"])
    CliRunner().invoke(app, ["audit", str(folder), "--runs", "20"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    public = {"scenario.toml", "ledger.parquet"}
    modes = {p.relative_to(folder).as_posix(): stat.S_IMODE(p.stat().st_mode) for p in folder.rglob("*") if p.is_file()}
    assert {"report.html", "result.json", "metrics.parquet", "audit.json", "plots/consensus.pdf"} <= modes.keys()
    assert {name for name, mode in modes.items() if mode != 0o600} == public


def test_logs_and_audits_outside_the_folder_are_their_owners(tmp_path: Path) -> None:
    log, numbers = tmp_path / "log.jsonl", tmp_path / "audit.json"
    sets = [
        "--set",
        "topology.agents=4",
        "--set",
        "algorithm.rounds=2",
        "--set",
        "seed=null",
        "--set",
        "privacy.epsilon=4.0",
    ]
    before = os.umask(0o022)
    try:
        ran = CliRunner().invoke(app, ["run", "quadratic", *sets, "--out", str(tmp_path / "run"), "--log", str(log)])
        CliRunner().invoke(app, ["audit", str(tmp_path / "run"), "--runs", "20", "--out", str(numbers)])
    finally:
        os.umask(before)
    assert ran.exit_code == 0, ran.exception
    assert "loss" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == stat.S_IMODE(numbers.stat().st_mode) == 0o600


def test_files_of_a_seeded_run_are_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        decentral_dp.run(load("quadratic", ["algorithm.rounds=2"]), out=tmp_path / "run")
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "run").iterdir() if p.is_file()}
    assert modes.pop("state.npz") == 0o600
    assert set(modes.values()) == {0o644}
