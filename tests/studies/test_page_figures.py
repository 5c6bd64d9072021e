"""Layout of the pictures of a study."""

from __future__ import annotations

from typing import Any

import decentral_dp
from decentral_dp.reporting.style import package_style
from decentral_dp.studies import figures

POINTS_PER_INCH = 72.0
GRAPHS = [{"kind": kind, "agents": 12} for kind in ("path", "ring", "star", "circular_ladder", "complete")]
GRAPHS += [{"kind": "preferential_attachment", "agents": 12, "attach": k, "seed": 1} for k in (1, 2, 3)]
STUDY: dict[str, Any] = {
    "title": "What a graph costs",
    "scenario": "quadratic",
    "kind": "plan",
    "set": {"algorithm.rounds": 2},
    "grid": {"topology": GRAPHS, "topology.weights": ["metropolis", "max_degree"]},
    "plots": [
        {
            "name": "gap",
            "x": "spectral_gap",
            "y": "neighbour_weight",
            "lines": "topology.weights",
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


def test_whatever_stands_around_panels_they_keep_their_height_and_nothing_is_cut() -> None:
    found = decentral_dp.study(STUDY, workers=1)
    with package_style():
        for plot in found.study.plots:
            figure = figures.draw_plot(plot, found.measurements)
            assert figure is not None
            figure.draw_without_rendering()
            width, height = figure.get_size_inches()
            shown = [ax for ax in figure.axes if ax.get_visible()]
            columns = len({round(ax.bbox.x0) for ax in shown})
            assert all(ax.bbox.height / figure.dpi > 0.25 * width / columns for ax in shown)
            around = figure.get_tightbbox()
            assert min(around.x0, around.y0) > -0.02
            assert around.x1 < width + 0.02
            assert around.y1 < height + 0.02
            # The legend, or the foot, does not run into the axes.
            lowest = min(ax.get_tightbbox().y0 for ax in shown)
            assert all(box.get_window_extent().y1 <= lowest + 1.0 for box in figure.legends)
