"""Figures, from run folders written here by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.reporting.page import write_report
from decentral_dp.reporting.plots import FIGURES, layout, write_plots
from decentral_dp.reporting.report import Curve, curve, read_report
from decentral_dp.reporting.style import change, new_figure, package_style, picture_of
from tests.support.run_folders import (
    ALL_FIGURES,
    DOT,
    axes_of,
    figure_of,
    privacy_of,
    read_page,
    rewrite_result,
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
    np.testing.assert_array_equal(lines["test loss (held out)"], expected)
    found = curve(metrics, "test_accuracy_last")
    assert found is not None
    np.testing.assert_array_equal(found.low, metrics[metrics["name"] == "test_accuracy_min_last"]["value"])
    assert curve(metrics, "test_loss_unreleased") is None
    by_agent = pd.DataFrame({"round": [0, 0, 1, 1], "agent": ["0", "1"] * 2, "name": "loss", "value": [1.0, 3, 2, 6]})
    band = curve(by_agent, "loss")
    assert band is not None
    assert [list(v) for v in (band.low, band.mean, band.high)] == [[1, 2], [2, 4], [3, 6]]


def test_titles_say_what_the_curve_does() -> None:
    def words(*values: float) -> str:
        mean = np.array(values)
        return change("Loss", Curve(np.arange(mean.size) * 5.0, mean, mean, mean, None)).replace("\u00a0", " ")

    assert words(0.7, 0.5, 0.4) == "Loss falls from 0.7 to 0.4"
    assert words(0.4, 0.41, 0.7) == "Loss rises from 0.4 to 0.7"
    assert words(0.7, 0.2, 0.4) == "Loss falls from 0.7 to 0.4"
    assert words(0.7, 2.0, 0.1, 0.7) == "Loss starts and ends at 0.7"
    assert words(0.7) == "Loss at round 0: 0.7"


def test_a_single_evaluation_has_readable_axes(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=3, changes={"status": "diverged"})
    frame = pd.read_parquet(folder / "metrics.parquet")
    frame[frame["round"] == 0].to_parquet(folder / "metrics.parquet")
    for name in ("losses", "accuracy"):
        ax = axes_of(name, folder)[0]
        low, high = ax.get_xlim()
        assert [tick for tick in ax.get_xticks() if low <= tick <= high] == [0.0]
        assert np.ptp(ax.get_ylim()) > 5e-3


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
    folder = write_run(tmp_path, changes={"privacy": privacy_of(tmp_path, claimed=claimed, cap=4.5)})
    ax = axes_of("epsilon", folder)[0]
    low, high = ax.get_ylim()
    assert ax.get_yscale() == "log"
    assert low < 4.0 < 320.61 < high
    named = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert named[:3] == ["target: 4.00", "cap: 4.50", "claimed by the paper, not certified: 320.61"]


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


def test_every_line_of_the_noise_figure_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path, agents=2)
    frame = pd.read_parquet(folder / "ledger.parquet")
    y = frame[(frame["channel"] == "y") & (frame["records"] == "train")]
    apart = {"y": 1.0, "h": 2.0, "D": 3.0, "zf": 4.0, "v1": 5.0, "v2": 5.0, "v3": 5.0, "x": 6.0, "gy": 7.0}
    more = [y.assign(channel=c, scale=k * y["scale"], sensitivity=k * y["sensitivity"]) for c, k in apart.items()]
    # A channel that is heard later, or of the other kind of record, at the same numbers.
    more += [more[1].assign(channel="late").query("round > 3"), more[2].assign(records="validation")]
    pd.concat(more).to_parquet(folder / "ledger.parquet")
    left, right = axes_of("noise", folder)
    named = {text.get_text() for text in right.figure.legends[0].get_texts()}
    assert named == {*(f"{channel}, train" for channel in (*apart, "late")), "D, validation"}
    assert {line.get_color() for line in left.lines} == {line.get_color() for line in right.lines}
    frame.assign(sensitivity=0.05, scale=0.4).query("records == 'train'").to_parquet(folder / "ledger.parquet")
    left, _ = axes_of("noise", folder)
    assert left.figure.get_suptitle() == "Noise is 8 times the sensitivity"


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


def test_equal_budgets_are_named_in_the_title_of_the_drawing(tmp_path: Path) -> None:
    entry = {"epsilon_pure": "inf", "epsilon": 3.999999998, "channels": {}, "records": {}}
    privacy = privacy_of(tmp_path, agents=[{"agent": i, **entry} for i in range(10)])
    folder = write_run(tmp_path, changes={"privacy": privacy})
    assert axes_of("topology", folder)[0].get_title(loc="left") == (
        "Ring of 10 agents: ρ = 0.873; ε = 4.00 each at δ = 1e-5, certified"
    )


def test_a_long_ledger_is_thinned_but_keeps_its_ends(tmp_path: Path) -> None:
    drawn = axes_of("noise", write_run(tmp_path, agents=2, rounds=5000))[0].lines[0].get_xdata()
    assert drawn[0] == 1
    assert drawn[-1] == 5000
    assert 50 < len(drawn) <= 120


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


def test_missing_numbers_skip_their_figures_and_remove_old_ones(tmp_path: Path) -> None:
    folder = write_run(tmp_path, agents=1, rounds=1, guarantee="none", metrics=False)
    (folder / "plots").mkdir()
    (folder / "plots" / "losses.png").write_bytes(DOT)
    assert [p.stem for p in write_plots(folder)] == ["topology"]
    assert [p.name for p in (folder / "plots").iterdir()] == ["topology.png"]
    assert "One agent tuned" in read_page(write_report(folder)).text


def test_a_dollar_sign_or_a_strange_letter_in_a_name_is_no_formula(tmp_path: Path) -> None:
    result = json.loads((write_run(tmp_path) / "result.json").read_text(encoding="utf-8"))
    result["topology"]["kind"] = "文 $x^{$"
    result["evaluated_on"] = "$\\frac{$ values"
    rewrite_result(tmp_path, result)
    assert {p.stem for p in write_plots(tmp_path)} == ALL_FIGURES


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


def test_drawing_changes_no_setting_and_is_reproducible(certified: Path) -> None:
    import matplotlib

    matplotlib.rcParams["lines.linewidth"] = 7.5
    try:
        before = dict(matplotlib.rcParams)
        first = {p.name: p.read_bytes() for p in (certified / "plots").iterdir()}
        again = {p.name: p.read_bytes() for p in write_plots(certified)}
        assert dict(matplotlib.rcParams) == before
    finally:
        matplotlib.rcParams["lines.linewidth"] = matplotlib.rcParamsDefault["lines.linewidth"]
    assert again == first


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


def ring(m: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.stack([np.arange(m), (np.arange(m) + 1) % m], axis=1)


def test_layouts_follow_hop_counts() -> None:
    at = layout(12, ring(12))
    radius = np.linalg.norm(at - at.mean(axis=0), axis=1)
    np.testing.assert_allclose(radius, radius.mean(), rtol=0.02)
    np.testing.assert_array_equal(at, layout(12, ring(12)))
    # Two rings, and agents without any link, stand on a circle.
    for m, edges in ((1, ring(1)[:0]), (3, ring(3)[:0]), (8, np.concatenate([ring(4), ring(4) + 4]))):
        assert np.isfinite(layout(m, edges)).all()


def with_graph(folder: Path, **graph: Any) -> Path:
    result = json.loads((write_run(folder) / "result.json").read_text(encoding="utf-8"))
    result["topology"] |= graph
    rewrite_result(folder, result)
    return folder


def test_agents_stand_where_the_graph_says_and_are_called_by_their_names(tmp_path: Path) -> None:
    m = json.loads((write_run(tmp_path / "plain") / "result.json").read_text(encoding="utf-8"))["topology"]["agents"]
    angle = np.linspace(0.0, 3.0, m)
    places = np.stack([40.0 * angle, 5.0 * np.cos(angle)], axis=1)
    names = [f"town {k}" for k in range(m)]
    names[0] = "a name that is far too long for a picture"
    folder = with_graph(tmp_path / "named", positions=places.tolist(), labels=names)
    ax = axes_of("topology", folder)[0]
    drawn = np.asarray(ax.collections[1].get_offsets())
    np.testing.assert_array_equal(drawn, places)
    texts = [text.get_text() for text in ax.texts]
    assert [text for text in texts if text.startswith("town")] == names[1:]
    assert "a name that is fa…" in texts
    # Numbers for names say nothing more than the numbers in the circles; coordinates that are none place nobody.
    folder = with_graph(tmp_path / "numbers", positions=[[0.0, 0.0]] * m, labels=[str(k) for k in range(m)])
    assert sorted(text.get_text() for text in axes_of("topology", folder)[0].texts) == sorted(str(k) for k in range(m))
    plain = np.asarray(axes_of("topology", tmp_path / "plain")[0].collections[1].get_offsets())
    np.testing.assert_array_equal(np.asarray(axes_of("topology", folder)[0].collections[1].get_offsets()), plain)
