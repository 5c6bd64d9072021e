"""Files of figures and their axes."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from decentral_dp.reporting.style import (
    Format,
    log_axis,
    new_figure,
    package_style,
    picture_of,
    write_figure,
)

INCHES = (5.6, 3.5)


def pixels(figure: Any) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(picture_of(figure, "png"))).convert("RGBA"))


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_control_characters_are_written_out(tmp_path: Path, ending: Format) -> None:
    """A font has no control characters, and matplotlib's warning would print them."""
    with package_style():
        figure = new_figure(*INCHES)
        figure.subplots().set_xlabel("a ring\x1b[2J\nof two lines")
        write_figure(figure, tmp_path / "a", [ending])
        assert figure.axes[0].get_xlabel() == "a ring\\x1b[2J\nof two lines"


@pytest.mark.parametrize("rounds", [15, 60, 100, 20_000, 1_000_000])
def test_rounds_below_a_narrow_panel_do_not_run_into_each_other(rounds: int) -> None:
    """Labels of 100 and 20,000 rounds must not overlap in a narrow panel."""
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
