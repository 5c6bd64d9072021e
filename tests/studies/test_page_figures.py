"""Pictures of a given width, as a column of a paper has it."""

from __future__ import annotations

import re
from typing import Any

import pytest

import decentral_dp
from decentral_dp.reporting.plots.style import package_style
from decentral_dp.studies import figures
from decentral_dp.studies.page import Findings

POINTS_PER_INCH = 72.0
GRAPHS = [{"kind": kind, "agents": 12} for kind in ("path", "ring", "star", "circular_ladder", "complete")]
GRAPHS += [{"kind": "preferential_attachment", "agents": 12, "attach": k, "seed": 1} for k in (1, 2, 3)]
STUDY: dict[str, Any] = {
    "title": "What a graph costs",
    "scenario": "quadratic",
    "kind": "plan",
    "set": {"algorithm.rounds": 2},
    "grid": {"topology": GRAPHS, "topology.weights": ["metropolis", "max_degree"]},
    "formats": ["pdf", "png"],
    "plots": [
        {
            "name": "gap",
            "x": "spectral_gap",
            "y": "neighbour_weight",
            "lines": "topology.weights",
            "points": "topology",
        },
        {
            "name": "names",
            "x": "topology",
            "y": ["neighbour_weight", "agents"],
            "panels": "topology.weights",
            "log": "y",
        },
        {
            "name": "many",
            "x": "topology.weights",
            "y": "neighbour_weight",
            "lines": "topology",
            "title": "A title " * 12,
        },
    ],
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return decentral_dp.study({**STUDY, "width": 3.3}, out=tmp_path_factory.mktemp("paper") / "out", workers=1)


def drawn(found: Findings, width: float | None) -> dict[str, Any]:
    study = found.study.model_copy(update={"width": width})
    drawings = {}
    with package_style(paper=width is not None):
        for plot in study.plots:
            figure = figures.draw_plot(plot, found.measurements._replace(study=study))
            assert figure is not None
            figure.draw_without_rendering()
            drawings[plot.name] = figure
    return drawings


def test_a_pdf_is_as_wide_as_it_was_asked_for_and_its_letters_are_letters(found: Findings) -> None:
    assert found.folder is not None
    for plot in found.study.plots:
        content = (found.folder / "plots" / f"{plot.name}.pdf").read_bytes()
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", content)
        assert box is not None
        assert float(box[1]) == pytest.approx(3.3 * POINTS_PER_INCH)
        assert b"/Subtype /Type0" in content  # fonts of outlines, as publishers ask for; none of bitmaps
        assert b"/Subtype /Type3" not in content


@pytest.mark.parametrize("width", [2.5, 3.3, 6.9])
def test_whatever_stands_around_panels_they_keep_their_height_and_nothing_is_cut(width: float, found: Findings) -> None:
    from matplotlib.text import Text

    for figure in drawn(found, width).values():
        assert figure.get_figwidth() == width
        shown = [ax for ax in figure.axes if ax.get_visible()]
        assert all(ax.bbox.height / figure.dpi > 0.25 * width / len({round(a.bbox.x0) for a in shown}) for ax in shown)
        assert all(ax.bbox.width / figure.dpi > 1.2 for ax in shown)
        around = figure.get_tightbbox()
        assert min(around.x0, around.y0) > -0.02
        assert around.x1 < width + 0.02
        assert around.y1 < figure.get_figheight() + 0.02
        sizes = {text.get_fontsize() for text in figure.findobj(Text) if text.get_text()}
        assert min(sizes) >= 6.0
        assert max(sizes) <= 8.5
        # The legend, or the foot, does not run into the axes.
        lowest = min(ax.get_tightbbox().y0 for ax in shown)
        assert all(box.get_window_extent().y1 <= lowest + 1.0 for box in figure.legends)
