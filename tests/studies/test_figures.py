"""Figures of studies: size, panels, bands, order and colours of lines, axes, captions and settings of matplotlib."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from decentral_dp.errors import InputError
from decentral_dp.reporting.style import package_style, tex, write_figure
from decentral_dp.simulation.metrics import MEASURES, metric_words
from decentral_dp.studies.figures import SIGNS, study_figures
from decentral_dp.studies.schema import axes, load_study, to_toml
from decentral_dp.studies.study import check_study, conduct
from decentral_dp.studies.tables import Measured
from tests.support.run_folders import Page, smallest_letters

GAP = {"name": "gap", "x": "round", "y": "optimality_gap", "lines": "algorithm.kind", "panels": "privacy.guarantee"}
BITS = {"name": "bits", "x": "bits", "y": "test_loss", "where": {"algorithm.kind": "extra"}, "panels": GAP["panels"]}
CONTENT: dict[str, Any] = {
    "scenario": "classification",
    "seeds": 4,
    "rounds": "all",
    "measure": ["optimality_gap", "bits", "test_loss"],
    "unset": ["algorithm.momentum", "algorithm.centring"],
    "set": {
        "problem": {"data": "synthetic_classification", "scale": "none"},
        "problem.synthetic": {"records": 30, "dimension": 3, "test_records": 30},
        "algorithm": {"rounds": 6, "learning_rate": 0.5},
        "privacy.clip": 1.0,
        "run": {"evaluate_every": 2, "average": 1},
    },
    "grid": {"algorithm.kind": ["dp_dsgd", "extra"], "privacy.guarantee": ["none", "certified"]},
    "plots": [GAP],
}
LABELS = {"extra": {"label": "EXTRA", "colour": "#123456"}, "dp_dsgd": "D-SGD", "certified": "noise"}


Draw = Callable[..., tuple[Mapping[str, Figure], pd.DataFrame]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that keeps the cells of all tests."""
    return tmp_path_factory.mktemp("figures") / "study"


@pytest.fixture
def draw(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Draw:
    """Conduct the study; keywords are keys of its style. Return figures and values."""
    figures = {}

    def keep(figure: Figure, path: Path, *more: Any) -> list[Path]:
        figures[path.name] = figure
        return write_figure(figure, path, *more)

    monkeypatch.setattr("decentral_dp.studies.study.write_figure", keep)

    def conduct_with(plots: Any = (GAP,), **style: Any) -> tuple[Mapping[str, Figure], pd.DataFrame]:
        findings = conduct(load_study(CONTENT | {"plots": list(plots), "style": style}), folder, jobs=1)
        return figures, findings.results

    return conduct_with


def _place(figure: Figure) -> tuple[int, int]:
    """Return the numbers of different left and lower ends of the axes."""
    ends = np.array([ax.get_position().p0 for ax in figure.axes]).round(3)
    return len(set(ends[:, 0])), len(set(ends[:, 1]))


def test_panels_are_side_by_side_or_stacked_in_the_given_width(draw: Draw) -> None:
    cases: list[tuple[dict[str, Any], tuple[int, int]]] = [
        ({}, (2, 1)),
        ({"width": 7.0}, (2, 1)),
        ({"width": 3.3}, (1, 2)),
        ({"width": 3.3, "columns": 2}, (2, 1)),
    ]
    for style, places in [*cases, ({"columns": 1}, (1, 2))]:
        figure = draw(**style)[0]["gap"]
        assert _place(figure) == places, style
        if "width" in style:
            assert figure.get_figwidth() == style["width"]
            (legend,) = figure.legends
            assert 0 <= legend.get_window_extent().x0 <= legend.get_window_extent().x1 <= figure.bbox.width


def test_narrow_screens_show_every_figure_with_large_letters(draw: Draw, folder: Path) -> None:
    draw(plots=[GAP, BITS], width=7.0)
    wide, narrow, *rest = re.findall(
        r'<figure class="on-(?:wide|narrow)".*?</figure>', (folder / "report.html").read_text(), re.S
    )
    assert len(rest) == 2
    assert smallest_letters(wide) < 7 < 11 < smallest_letters(narrow)


@pytest.mark.parametrize("band", ["t", "sd", "quantiles"])
def test_bands_are_those_of_numpy_and_scipy(draw: Draw, band: str) -> None:
    figures, values = draw(band=band)
    ax = figures["gap"].axes[1]
    chosen = (values["name"] == "optimality_gap") & ~values["last"] & (values["privacy.guarantee"] == "certified")
    for kind, line, polygon in zip(("dp_dsgd", "extra"), ax.lines, ax.collections, strict=True):
        rows = values[chosen & (values["algorithm.kind"] == kind)]
        v = rows.pivot_table("value", "seed", "round").to_numpy()
        assert v.shape == (4, 4)
        middle, sd = v.mean(axis=0), v.std(axis=0, ddof=1)
        half = sd if band == "sd" else scipy.stats.t.ppf(0.975, 3) * sd / 2
        low, high = middle - half, middle + half
        if band == "quantiles":
            low, middle, high = np.quantile(v, [0.25, 0.5, 0.75], axis=0)
        np.testing.assert_allclose(np.asarray(line.get_ydata()), middle)
        box = np.asarray(polygon.get_paths()[0].vertices)
        for round_, *limits in zip((0, 2, 4, 6), np.maximum(low, 1e-300), high, strict=True):
            y = box[box[:, 0] == round_, 1]
            np.testing.assert_allclose([y.min(), y.max()], limits, atol=1e-290)


def test_names_colours_and_order_are_those_of_the_table(draw: Draw) -> None:
    figure = draw()[0]["gap"]
    assert [text.get_text() for text in figure.legends[0].texts] == ["dp dsgd", "extra"]
    figure = draw(labels=LABELS)[0]["gap"]
    assert [text.get_text() for text in figure.legends[0].texts] == ["EXTRA", "D-SGD"]
    assert to_hex(figure.axes[0].lines[0].get_color()) == "#123456"
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["noise", "guarantee: none"]


def test_study_file_keeps_the_order_of_names() -> None:
    names = {"extra": "EXTRA", "dp_dsgd": {"label": "D-SGD", "colour": "red"}, "none": "no noise"}
    study = load_study(CONTENT | {"style": {"labels": names}})
    assert [line for line in to_toml(study).splitlines() if line.startswith("[style.labels.")] == [
        f"[style.labels.{name}]" for name in names
    ]


def test_x_of_a_measure_follows_the_rounds(draw: Draw) -> None:
    figures, values = draw(plots=[BITS])
    (line,) = figures["bits"].axes[0].lines
    rows = values[(values["algorithm.kind"] == "extra") & (values["privacy.guarantee"] == "none") & ~values["last"]]
    means = rows.pivot_table("value", "round", "name")
    assert len(means) == 4
    np.testing.assert_allclose(np.asarray(line.get_xdata()), means["bits"])
    np.testing.assert_allclose(np.asarray(line.get_ydata()), means["test_loss"])


def test_gap_has_a_logarithmic_axis_unless_the_plot_says_otherwise(draw: Draw) -> None:
    figures, _ = draw(
        plots=[GAP, BITS, GAP | {"name": "linear", "log": ""}, BITS | {"name": "spent", "x": "epsilon_spent"}]
    )
    scales = {name: (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) for name, figure in figures.items()}
    assert scales == {
        "gap": ("linear", "log"),
        "bits": ("linear", "linear"),
        "linear": ("linear", "linear"),
        "spent": ("log", "linear"),
    }


def test_nothing_is_grey_and_notes_are_in_the_caption(draw: Draw, folder: Path) -> None:
    figure = draw(plots=[GAP | {"title": "The gap"}], width=3.3, band="sd")[0]["gap"]
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    assert len(texts) > 10
    assert {to_hex(text.get_color()) for text in texts} == {"#000000"}
    for ax in figure.axes:
        assert {to_hex(spine.get_edgecolor()) for spine in ax.spines.values()} == {"#000000"}
        assert not any(line.get_visible() for line in (*ax.get_xgridlines(), *ax.get_ygridlines()))
    assert not any("n = 4" in text.get_text() for text in texts)
    assert (folder / "plots" / "gap.txt").read_text() == "The gap. n = 4 cells a line. Mean ± standard deviation.\n"
    assert "n = 4 cells a line. Mean ± standard deviation." in Page((folder / "report.html").read_text()).text
    assert (folder / "plots" / "gap.pdf").read_bytes().startswith(b"%PDF")


def test_settings_of_matplotlib_are_drawn(draw: Draw) -> None:
    figure = draw(matplotlib={"font": {"family": "serif", "size": 7.0}})[0]["gap"]
    (label,) = {(ax.xaxis.label.get_fontsize(), *ax.xaxis.label.get_fontfamily()) for ax in figure.axes}
    assert label == (7.0, "serif")


@pytest.mark.parametrize(
    ("style", "error"),
    [
        ({"labels": {"extar": "EXTRA"}}, 'style.labels: "extar" is not a value; did you mean "extra"'),
        ({"labels": {"extra": {"colour": "bleu"}}}, r'style.labels.extra.colour: unknown colour \(got "bleu"\)'),
        ({"matplotlib": {"font.sise": 7}}, 'style.matplotlib: "font.sise" is not a setting; did you mean "font.size"'),
        ({"matplotlib": {"backend": "agg"}}, 'style.matplotlib: "backend" is not a setting'),
        ({"matplotlib": {"font.size": "many"}}, "style.matplotlib.font.size: "),
        ({"matplotlib": {"mathtext.rm": 1.5}}, r"style.matplotlib.mathtext.rm: .* \(got 1.5\)"),
        ({"matplotlib": {"axes.titlelocation": ["left"]}}, r"style.matplotlib.axes.titlelocation: .* \(got \["),
        ({"matplotlib": {"text": {"usetex": True}}}, "style.matplotlib.text.usetex: LaTeX was not found"),
        ({"band": "se"}, "style.band"),
    ],
)
def test_faults_of_the_style_are_errors(style: Any, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(InputError, match=error):
        check_study(load_study(CONTENT | {"style": style}))


def test_usetex_is_used_if_latex_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    check_study(load_study(CONTENT | {"style": {"matplotlib": {"text.usetex": True}}}))
    with package_style({"text.usetex": True}):
        labels = [tex(str(metric_words(f"{name}{end}"))) for name, m in MEASURES.items() for end in m.endings]
        labels += map(tex, SIGNS.values())
    assert [label for label in labels if not label.isascii()] == []


def test_measures_of_different_cells_have_no_figure() -> None:
    content = {"scenario": "quadratic", "grid": {"algorithm.rounds": [1, 2]}, "measure": ["bits", "upper_loss"]}
    study = load_study(content | {"plots": [{"name": "p", "x": "bits", "y": "upper_loss"}]})
    means = pd.DataFrame({"algorithm.rounds": [1, 2], "round": [1, 2], "last": True, "name": ["bits", "upper_loss"]})
    means = means.assign(n=1, cells=1, failed=0, mean=3.0, low=np.nan, high=np.nan)
    cells = pd.DataFrame({"algorithm.rounds": [1, 2], "status": "ok", "method": ""})
    assert list(study_figures(Measured(study, axes(study), means, cells), pd.DataFrame())) == []
