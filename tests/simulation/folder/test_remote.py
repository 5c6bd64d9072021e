"""Upload of finished run folders: what is copied, what stays, and what is refused before anything is released."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.errors import InputError
from decentral_dp.reporting import page
from decentral_dp.simulation.result import read_result, require_run_folder

pytest.importorskip("fsspec")
URL = "memory://bucket/one"
RUN = ["run", "quadratic", "--set", "algorithm.rounds=3", "--out", "here"]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    from fsspec.implementations.memory import MemoryFileSystem

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(page, "draw_run", lambda *_: None)
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return MemoryFileSystem()


def test_an_upload_is_a_run_folder_without_noiseless_values(store: Any, tmp_path: Path) -> None:
    assert CliRunner().invoke(app, [*RUN, "--upload", URL]).exit_code == 0
    store.get("/bucket/one", str(tmp_path / "copy"), recursive=True)
    names = {p.relative_to(tmp_path / "here") for p in (tmp_path / "here").rglob("*") if p.is_file()}
    assert {p.relative_to(tmp_path / "copy") for p in (tmp_path / "copy").rglob("*") if p.is_file()} == names
    require_run_folder(tmp_path / "copy", "predict", ("state.npz", "scenario.toml"))
    assert read_result(tmp_path / "copy").metrics == read_result(tmp_path / "here").metrics
    with np.load(tmp_path / "here" / "state.npz") as arrays, np.load(tmp_path / "copy" / "state.npz") as copied:
        assert (
            set(copied.files)
            == {n for n in arrays.files if n.startswith(("released_", "published_"))}
            < set(arrays.files)
        )
        for name in copied.files:
            np.testing.assert_array_equal(copied[name], arrays[name])


def test_baselines_stay(store: Any, tmp_path: Path) -> None:
    """They have noiseless states, and a run without noise."""
    few = ["--set", "algorithm.rounds=2", "--set", "run.evaluate_every=2", "--baselines", "--seeds", "2"]
    command = ["run", "classification", *few, "--out", "here", "--upload", URL]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (tmp_path / "here" / "baselines" / "none" / "state.npz").exists()
    assert (tmp_path / "here" / "seeds" / "2" / "baselines" / "alone" / "result.json").exists()
    copied = store.find("/bucket/one")
    assert "/bucket/one/result.json" in copied
    assert not [name for name in copied if "baselines" in name or "seeds" in name]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (URL, "is not empty"),
        ("nosuch://a/b", "cannot be reached"),
        ("no-package-of-this-name://a", "cannot be reached"),
    ],
)
def test_an_unusable_url_is_refused_before_the_run(store: Any, tmp_path: Path, url: str, message: str) -> None:
    store.pipe_file("/bucket/one/other.txt", b"")
    refused = CliRunner().invoke(app, [*RUN, "--upload", url])
    assert isinstance(refused.exception, InputError)
    assert message in str(refused.exception)
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("out", ["s3://bucket/name", "memory://bucket/one"])
def test_a_url_is_no_folder(store: Any, tmp_path: Path, out: str) -> None:
    with pytest.raises(InputError, match="not a local folder"):
        decentral_dp.run("quadratic", out=out)
    assert not list(tmp_path.iterdir())


def test_a_link_out_of_the_folder_is_not_uploaded(store: Any, tmp_path: Path) -> None:
    assert CliRunner().invoke(app, RUN).exit_code == 0
    (tmp_path / "private.txt").write_text("private")
    (tmp_path / "here" / "notes.txt").symlink_to(tmp_path / "private.txt")
    done = CliRunner().invoke(app, [*RUN, "--or-resume", "--upload", URL])
    assert "points outside its folder" in str(done.exception)
    assert not any(store.cat(path) == b"private" for path in store.find("/bucket"))
