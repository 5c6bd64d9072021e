"""How figures become pictures: where axes stand, and what minor ticks become."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.ticker import NullLocator
from PIL import Image

from decentral_dp.reporting.plots.style import (
    RIM,
    Format,
    draw_minor_ticks_at_once,
    in_a_row,
    log_axis,
    new_figure,
    package_style,
    save_figure,
    save_png,
    title,
)

INCHES = (5.6, 3.5)


def pixels(figure: Any) -> np.ndarray[Any, Any]:
    drawn = io.BytesIO()
    save_png(figure, drawn)
    return np.asarray(Image.open(drawn).convert("RGBA"))


def test_a_picture_is_what_the_canvas_holds() -> None:
    with package_style():
        figure = new_figure(*INCHES)
        figure.subplots().plot([0.0, 1.0], [0.0, 1.0])
        found = pixels(figure)
        assert np.array_equal(found, pixels(figure))
        canvas: Any = figure.canvas
        assert np.array_equal(found, np.asarray(canvas.buffer_rgba()))
    assert (found != 255).any()


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_control_characters_are_written_out(tmp_path: Path, ending: Format) -> None:
    """A font has none of them, and matplotlib's warning would bring them to the terminal."""
    with package_style():
        figure = new_figure(*INCHES)
        figure.subplots().set_xlabel("a ring\x1b[2J\nof two lines")
        save_figure(figure, tmp_path / "a", [ending])
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
        assert in_a_row(figure)
        pixels(figure)
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        rim, (width, height) = RIM * figure.dpi, figure.bbox.size
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


def test_a_power_of_ten_above_the_axes_stays_clear_of_the_title() -> None:
    with package_style():
        figure = new_figure(*INCHES)
        ax = figure.subplots()
        ax.plot([0.0, 1.0], [1e9, 3e9])
        ax.set_ylabel("y")
        title(ax, "A title")
        pixels(figure)
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        power = ax.yaxis.get_offset_text()
        assert power.get_text() == "1e9"
        heading = next(c for c in ax.get_children() if getattr(c, "get_text", str)() == "A title")
        assert not heading.get_window_extent(renderer).overlaps(power.get_window_extent(renderer))


def test_figures_with_more_than_a_row_keep_their_layout() -> None:
    with package_style():
        for rows, bar, legend in ((2, False, False), (1, True, False), (1, False, True)):
            figure = new_figure(*INCHES)
            axes = figure.subplots(rows, 1, squeeze=False)[:, 0]
            drawn = axes[0].scatter([0.0, 1.0], [0.0, 1.0], c=[0.0, 1.0], label="points")
            if bar:
                figure.colorbar(drawn, ax=axes[0])
            if legend:
                figure.legend()
            assert not in_a_row(figure)
            pixels(figure)
            assert figure.get_layout_engine() is not None
        assert not in_a_row(new_figure(*INCHES))


@pytest.mark.parametrize("which", ["x", "y"])
def test_minor_ticks_are_lines_where_they_were(which: str) -> None:
    """The same ink beside the axes as with ticks, to a pixel: markers and lines are put on the grid differently."""
    with package_style():
        profiles = {}
        for kind in ("ticks", "lines", "neither"):
            figure = new_figure(*INCHES)
            figure.set_layout_engine("none")
            figure.set_dpi(220.0)
            ax = figure.add_axes((0.2, 0.2, 0.7, 0.7))
            log_axis(ax, which, [1.0, 700.0])
            axis = ax.xaxis if which == "x" else ax.yaxis
            if kind == "lines":
                draw_minor_ticks_at_once(figure)
            if kind != "ticks":
                axis.set_minor_locator(NullLocator())
            ink = 255.0 - pixels(figure).astype(float).mean(axis=2)
            height, width = ink.shape
            # Beside the spines, as far as minor ticks reach.
            beside = ink[round(0.8 * height) + 3 : round(0.8 * height) + 7] if which == "x" else ink.T
            if which == "y":
                beside = beside[round(0.2 * width) - 7 : round(0.2 * width) - 3]
            profiles[kind] = np.convolve(beside.sum(axis=0), np.ones(5), "same")
    most = (profiles["ticks"] - profiles["neither"]).max()
    assert most > 100.0
    assert np.abs(profiles["ticks"] - profiles["lines"]).max() < 0.5 * most


def test_axes_that_share_a_scale_both_keep_their_minor_ticks() -> None:
    with package_style():
        figure = new_figure(*INCHES)
        left, right = figure.subplots(1, 2, sharex=True)
        for ax in (left, right):
            ax.plot([1.0, 700.0], [1.0, 2.0])
        log_axis(left, "x", [1.0, 700.0])
        pixels(figure)
        counts = [
            sum(len(c.get_segments()) for c in ax.collections if isinstance(c, LineCollection)) for ax in (left, right)
        ]
        assert counts[0] == counts[1] > 10
