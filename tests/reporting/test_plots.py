"""Figures of handwritten run folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.reporting.plots import write_plots
from decentral_dp.reporting.report import curve
from tests.support.run_folders import (
    ALL_FIGURES,
    axes_of,
    page_of,
    privacy_of,
    smallest_letters,
    write_run,
)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("certified"))
    write_plots(folder)
    return folder


@pytest.fixture(scope="module")
def as_published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("as_published"), guarantee="as_published")


def test_curves_and_bands_are_the_metrics(certified: Path) -> None:
    metrics = pd.read_parquet(certified / "metrics.parquet")
    lines = {line.get_label(): line.get_ydata() for line in axes_of("losses", certified)[0].lines}
    expected = metrics[metrics["name"] == "test_loss"]["value"].to_numpy()
    np.testing.assert_array_equal(lines["test_loss"], expected)
    found = curve(metrics, "test_accuracy_last")
    assert found is not None
    np.testing.assert_array_equal(found.low, metrics[metrics["name"] == "test_accuracy_min_last"]["value"])
    assert curve(metrics, "test_loss_unreleased") is None
    by_agent = pd.DataFrame({"round": [0, 0, 1, 1], "agent": ["0", "1"] * 2, "name": "loss", "value": [1.0, 3, 2, 6]})
    band = curve(by_agent, "loss")
    assert band is not None
    assert [list(v) for v in (band.low, band.mean, band.high)] == [[1, 2], [2, 4], [3, 6]]


def test_letters_are_large_enough_on_a_telephone(certified: Path) -> None:
    sizes = {path.stem: smallest_letters(path.read_text()) for path in (certified / "plots").glob("*.svg")}
    assert sizes.keys() == ALL_FIGURES
    assert min(sizes.values()) >= 11


def test_names_of_agents_are_drawn_if_they_fit(tmp_path: Path) -> None:
    graph = json.loads((write_run(tmp_path / "known") / "result.json").read_text())["topology"]
    for name, is_drawn in (("Bern", True), ("University Hospital", False)):
        names = [f"{name} {k}" for k in range(10)]
        page = page_of(tmp_path / name, changes={"topology": {**graph, "labels": names}})
        texts = [text.get_text() for text in axes_of("topology", tmp_path / name)[0].texts]
        assert (names[3] in texts) is is_drawn
        assert f"3: {names[3]};" in page.text


def test_certified_and_claimed_budgets_are_both_on_the_axis(tmp_path: Path) -> None:
    claimed = {"epsilon_max": 320.61, "agents": []}
    folder = write_run(tmp_path, changes={"privacy": privacy_of(tmp_path, claimed=claimed)})
    ax = axes_of("epsilon", folder)[0]
    low, high = ax.get_ylim()
    assert ax.get_yscale() == "log"
    assert low < 4.0 < 320.61 < high
    named = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert named[:2] == ["target: 4.00", "claimed by the paper, not certified: 320.61"]


def test_overflowing_metrics_are_drawn_up_to_their_end(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=3, changes={"status": "diverged", "reason": "y is not finite"})
    frame = pd.read_parquet(folder / "metrics.parquet")
    late = frame["round"] == 3
    frame.loc[late & frame["name"].str.startswith(("upper_loss", "consensus_y")), "value"] = np.inf
    frame.loc[late & frame["name"].str.startswith("lower_loss"), "value"] = 1e300
    frame.loc[late & frame["name"].str.startswith("test_loss"), "value"] = np.nan
    frame.loc[frame["name"].str.startswith("stationarity"), "value"] = np.inf
    frame.to_parquet(folder / "metrics.parquet")
    found = curve(frame, "upper_loss")
    assert found is not None
    assert found.overflow == 3
    assert "overflows at round 3" in axes_of("losses", folder)[0].get_title(loc="left")
    assert {p.stem for p in write_plots(folder)} == ALL_FIGURES - {"stationarity"}


def test_a_run_in_memory_is_drawn_as_its_folder_is(tmp_path: Path) -> None:
    """Bit for bit: agents whose noise differs, a coordinator, and a run of which no release is charged."""
    for number, name in enumerate(("ring_breast_cancer", "dp_bilevel", "quadratic")):
        folder = tmp_path / str(number)
        decentral_dp.run(name, set={"algorithm.rounds": 3}, out=folder)
        first = {p.name: p.read_bytes() for p in (folder / "plots").iterdir()}
        assert first == {p.name: p.read_bytes() for p in write_plots(folder)}
