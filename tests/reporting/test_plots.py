"""Figures of handwritten run folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.reporting.plots import FIGURES, write_plots
from decentral_dp.reporting.report import Curve, curve, read_report
from decentral_dp.reporting.style import MOST_POINTS, new_figure, package_style, picture_of, thin
from tests.support.run_folders import (
    ALL_FIGURES,
    axes_of,
    figure_of,
    privacy_of,
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


def test_a_long_curve_is_thinned_with_its_extremes_and_its_end() -> None:
    rounds = np.arange(10_000.0)
    low, high = np.zeros(10_000), np.ones(10_000)
    low[777], high[8888] = -5.0, 7.0
    thinned = thin(Curve(rounds, rounds / 2, low, high, None))
    assert thinned.rounds.size == MOST_POINTS
    assert (thinned.rounds[0], thinned.rounds[-1]) == (0.0, 9999.0)
    np.testing.assert_array_equal(thinned.mean, thinned.rounds / 2)
    assert (thinned.low.min(), thinned.high.max()) == (-5.0, 7.0)
    short = Curve(rounds[:9], rounds[:9], low[:9], high[:9], None)
    assert all(np.array_equal(a, b) for a, b in zip(thin(short)[:4], short[:4], strict=True))


def test_an_axis_of_rounds_begins_where_a_curve_begins(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=40)
    frame = pd.read_parquet(folder / "metrics.parquet")
    is_consensus = frame["name"].str.startswith("consensus")
    frame.loc[is_consensus & (frame["round"] < 10), "value"] = 0.0
    frame.to_parquet(folder / "metrics.parquet")
    low, high = axes_of("consensus", folder)[0].get_xlim()
    assert 9.0 < low <= 10.0
    assert 40.0 <= high < 41.0


def test_a_figure_has_one_legend_with_the_majority_class(tmp_path: Path) -> None:
    folder = write_run(tmp_path, changes={"baselines": {"test_accuracy": 0.5, "test_auc": 0.5}})
    for name in ("accuracy", "utility"):
        (ax,) = axes_of(name, folder)
        legends = [legend for legend in (*ax.figure.legends, ax.get_legend()) if legend is not None]
        assert len(legends) == 1, name
        texts = [text.get_text() for text in legends[0].get_texts()]
        assert sum(text.startswith("majority class") for text in texts) == 1, name


@pytest.mark.parametrize("last", [-126.0, -1.5, 0.4])
def test_the_last_explained_share_is_on_the_axis_however_low_it_is(last: float, tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=3)
    kept = pd.read_parquet(folder / "metrics.parquet")
    rounds, values = [0, 1, 2, 3], [-900.0, -500.0, last + 0.1, last]
    rows = pd.DataFrame({"round": rounds, "agent": "mean", "name": "test_r2", "value": values})
    pd.concat([kept, rows]).to_parquet(folder / "metrics.parquet")
    ax = axes_of("explained", folder)[0]
    low, high = ax.get_ylim()
    # Earlier values that are far lower do not press the last ones together.
    assert max(-900.0, 2.0 * min(last, -1.0)) < low < last < high


def test_the_upper_variable_is_drawn_per_coordinate(tmp_path: Path) -> None:
    folder = write_run(tmp_path, agents=3)
    x = np.array([[-3.2, -2.0], [-3.0, -1.0], [-2.5, -3.0]])
    np.savez(folder / "state.npz", published_x=x)
    ax = axes_of("upper_variable", folder)[0]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [-2.9, -2.0])
    np.testing.assert_allclose([s[:, 1] for s in ax.collections[0].get_segments()], [[-3.2, -2.5], [-3.0, -1.0]])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [-3.0, -3.0])
    assert ax.get_title(loc="left") == "x ends between −2.9 and −2; it started at −3"
    for bad in (np.full((3, 2), np.inf), np.zeros((3, 101))):
        np.savez(folder / "state.npz", published_x=bad)
        assert figure_of("upper_variable", folder) is None


def test_certified_and_claimed_budgets_are_both_on_the_axis(tmp_path: Path) -> None:
    claimed = {"epsilon_max": 320.61, "agents": []}
    folder = write_run(tmp_path, changes={"privacy": privacy_of(tmp_path, claimed=claimed)})
    ax = axes_of("epsilon", folder)[0]
    low, high = ax.get_ylim()
    assert ax.get_yscale() == "log"
    assert low < 4.0 < 320.61 < high
    named = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert named[:2] == ["target: 4.00", "claimed by the paper, not certified: 320.61"]


def test_the_noise_figure_shows_the_ledger(certified: Path) -> None:
    left, right = axes_of("noise", certified)
    t = np.arange(1, 21)
    assert [line.get_label() for line in right.lines] == ["y, train", "z, train", "z, validation"]
    np.testing.assert_allclose(left.lines[0].get_ydata(), 0.4 / (t + 1.0) ** 0.3)
    np.testing.assert_allclose(right.lines[2].get_ydata(), 1.15 * 0.03 / t**0.8)  # Median of factors 1 and 1.3.


def test_an_unbounded_sensitivity_is_said_and_not_drawn(as_published: Path) -> None:
    left, right = axes_of("noise", as_published)
    assert [line.get_label() for line in left.lines] == ["y", "z"]
    assert not right.lines
    assert left.figure.get_suptitle() == "Nothing bounds the sensitivity of y, z"


@pytest.mark.parametrize("name", ["ledger.parquet", "metrics.parquet", "state.npz"])
def test_a_broken_file_is_said_to_be_broken(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path)
    np.savez(folder / "state.npz", published_x=np.zeros((10, 3)))
    whole = (folder / name).read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"PAR1"):
        (folder / name).write_bytes(broken)
        with pytest.raises(InputError, match=f"{name}:? cannot be read|does not hold what a run writes"):
            write_plots(folder)
        assert not (folder / "plots").exists()


def test_overflowing_metrics_are_drawn_up_to_their_end(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=3, changes={"status": "diverged", "reason": "y is not finite"})
    frame = pd.read_parquet(folder / "metrics.parquet")
    late = frame["round"] == 3
    frame.loc[late & frame["name"].str.startswith(("upper_loss", "consensus_y")), "value"] = np.inf
    frame.loc[late & frame["name"].str.startswith("lower_loss"), "value"] = 1e300
    frame.loc[late & frame["name"].str.startswith("test_loss"), "value"] = np.nan
    frame.loc[frame["name"].str.startswith("hypergradient"), "value"] = np.inf
    frame.to_parquet(folder / "metrics.parquet")
    found = curve(frame, "upper_loss")
    assert found is not None
    assert found.overflow == 3
    assert "overflows at round 3" in axes_of("losses", folder)[0].get_title(loc="left")
    assert {p.stem for p in write_plots(folder)} == ALL_FIGURES - {"hypergradient"}


@pytest.mark.parametrize("name", sorted(ALL_FIGURES))
def test_a_figure_is_filled_and_nothing_is_cut(certified: Path, tmp_path: Path, name: str) -> None:
    with package_style():
        figure = new_figure(5.6, 3.5)
        assert FIGURES[name](figure, read_report(certified))
        picture_of(figure)
        drawn = figure.get_tightbbox().padded(-0.01)
    assert drawn.x0 >= 0.0
    assert drawn.y0 >= 0.0
    assert drawn.x1 <= figure.get_figwidth()
    assert drawn.y1 <= figure.get_figheight()
    # Titles begin at the axes and end anywhere; what is above and below reaches the rim.
    assert drawn.height >= 0.8 * figure.get_figheight()
    assert drawn.width >= 0.8 * figure.get_figwidth()


def test_a_run_in_memory_is_drawn_as_its_folder_is(tmp_path: Path) -> None:
    """Bit for bit: agents whose noise differs, a coordinator, and a run of which no release is charged."""
    for number, name in enumerate(("ring_breast_cancer", "dp_bilevel", "quadratic")):
        folder = tmp_path / str(number)
        decentral_dp.run(name, set={"algorithm.rounds": 3}, out=folder)
        first = {p.name: p.read_bytes() for p in (folder / "plots").iterdir()}
        assert first == {p.name: p.read_bytes() for p in write_plots(folder)}


def test_matplotlib_is_imported_only_to_draw_and_pyplot_never(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, decentral_dp.reporting.page, decentral_dp.reporting.plots as plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plots.write_plots(pathlib.Path(sys.argv[1]))\n"
        "assert 'matplotlib' in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    folder = write_run(tmp_path, agents=2, rounds=1, metrics=False)
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(folder)], check=True)
