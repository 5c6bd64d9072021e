"""How figures become pictures, and where axes stand."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from decentral_dp.reporting.plots.style import (
    Format,
    log_axis,
    new_figure,
    package_style,
    picture_of,
    write_figure,
)

INCHES = (5.6, 3.5)


def pixels(figure: Any) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(picture_of(figure))).convert("RGBA"))


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_control_characters_are_written_out(tmp_path: Path, ending: Format) -> None:
    """A font has none of them, and matplotlib's warning would bring them to the terminal."""
    with package_style():
        figure = new_figure(*INCHES)
        figure.subplots().set_xlabel("a ring\x1b[2J\nof two lines")
        write_figure(figure, tmp_path / "a", [ending])
        assert figure.axes[0].get_xlabel() == "a ring\\x1b[2J\nof two lines"


def test_labels_stand_clear_of_ticks_and_axes_of_each_other() -> None:
    """Two axes side by side, names of ticks that are long, and a label of two lines."""
    with package_style():
        figure = new_figure(*INCHES)
        left, right = figure.subplots(1, 2)
        for ax, wide in ((left, 1.0), (right, 123456.0)):
            ax.plot([0.0, 1.0], [0.0, wide])
            ax.set_xlabel("a label")
            ax.set_ylabel("two\nlines")
            # Ticks beyond the axes are not drawn, but would be found below.
            ax.set_xlim(0.0, 1.0)
            ax.set_ylim(0.0, wide)
            ax.set_yticks([0.0, wide])
        right.set_xticks([0.0, 1.0], ["zero", "one hundred"], rotation=90)
        figure.suptitle("A heading", x=0.02, ha="left")
        figure.draw_without_rendering()
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        rim, (width, height) = 0.09 * figure.dpi, figure.bbox.size
        boxes = []
        for ax in (left, right):
            labels = [ax.xaxis.label.get_window_extent(renderer), ax.yaxis.label.get_window_extent(renderer)]
            assert labels[0].y1 < min(t.get_window_extent(renderer).y0 for t in ax.get_xticklabels())
            assert labels[1].x1 < min(t.get_window_extent(renderer).x0 for t in ax.get_yticklabels())
            assert labels[0].y0 >= rim - 1.0
            assert labels[1].x0 >= rim - 1.0
            boxes.append(ax.get_tightbbox(renderer))
        assert boxes[0].x1 < boxes[1].x0
        assert boxes[1].x1 <= width - rim + 1.0
        assert boxes[0].x0 == pytest.approx(rim, abs=1.0)
        heading = figure.texts[0].get_window_extent(renderer)
        assert height - heading.y1 == pytest.approx(rim, abs=2.0)
        assert heading.y0 > max(b.y1 for b in boxes)
        assert left.bbox.width == pytest.approx(right.bbox.width, abs=1.0)


@pytest.mark.parametrize("rounds", [15, 60, 100, 20_000, 1_000_000])
def test_rounds_below_a_narrow_panel_do_not_run_into_each_other(rounds: int) -> None:
    """100 and 20,000 rounds had "50100" and "100010000" below panels of a third of a figure's width."""
    with package_style():
        figure = new_figure(4.7, 3.3)
        ax, _ = figure.subplots(1, 2)
        ax.set_ylabel("noise: standard deviation")
        log_axis(ax, "x", np.arange(1, rounds + 1), narrow=True)
        figure.draw_without_rendering()
        renderer, (low, high) = figure.canvas.get_renderer(), ax.get_xlim()  # type: ignore[attr-defined]
        shown = [t for t, at in zip(ax.get_xticklabels(), ax.get_xticks(), strict=True) if low <= at <= high]
        boxes = [label.get_window_extent(renderer) for label in shown]
        assert len(boxes) >= 2
        assert all(a.x1 + 3.0 < b.x0 for a, b in itertools.pairwise(boxes))
