"""Figures of a run folder, a PNG each, and SVG or PDF where asked for; a figure whose numbers are missing is not drawn.

The only place that imports matplotlib, and only when something is drawn. Figures are made without pyplot and inside an
rc context, so neither the caller's settings nor his backend change. Curves and ledger are read from the run folder:
they show the simulator's view, not what an adversary sees.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from decentral_dp.errors import InputError
from decentral_dp.files.regular import own
from decentral_dp.reporting.folder import Drawing, read_drawing
from decentral_dp.reporting.plots import curves, style
from decentral_dp.reporting.plots.network import topology
from decentral_dp.simulation.result import mode_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches: so narrow that letters can be read on a telephone, where a picture is as wide as the screen.
SIZE = (4.7, 3.3)
Draw = Callable[["Figure", Drawing], bool]


FIGURES: Mapping[str, Draw] = {
    **{name: curves.metrics_figure(name) for name in curves.METRICS},
    "upper_variable": curves.upper_variable,
    "epsilon": curves.epsilon,
    "noise": curves.noise,
    "topology": topology,
}


def write_plots(folder: Path, formats: Sequence[style.Format] = ("png",), drawing: Drawing | None = None) -> list[Path]:
    """Draw every figure that the run folder has numbers for into `folder/plots`, and return the paths.

    A figure of an earlier run that this run has no numbers for is removed.

    Args:
        folder: of the run.
        formats: the page shows "png".
        drawing: the numbers; by default they are read from the folder.

    Raises:
        InputError: `folder` holds no readable result.json.
    """
    drawing = read_drawing(folder) if drawing is None else drawing
    own(folder / "plots", folder, "report").mkdir(exist_ok=True)
    paths = []
    with style.package_style():
        for name, draw in FIGURES.items():
            path, figure = folder / "plots" / name, style.new_figure(*SIZE)
            wanted = formats if draw(figure, drawing) else ()
            style.remove_figure(path, wanted)
            paths += style.write_figure(figure, path, wanted, mode_of(folder))
    return paths


@dataclass(frozen=True)
class Picture:
    """A figure, which notebooks show.

    Args:
        figure: of matplotlib, to be changed at will.
    """

    figure: Figure

    def save(self, path: str | Path) -> Path:
        """Write the figure as its file's name ends: .png, .svg, .pdf, or whatever matplotlib writes.

        Raises:
            InputError: matplotlib writes no such files.
        """
        path = Path(path)
        try:
            with style.package_style():
                self.figure.savefig(path)
        except ValueError as error:
            raise InputError(f"{path}: {error}. Give a name that ends in .png, .svg or .pdf.") from None
        return path

    def _repr_png_(self) -> bytes:
        with style.package_style():
            return style.picture_of(self.figure)


def draw(name: str, drawing: Drawing) -> Picture | None:
    """Draw a figure of a run; None if the run has no numbers for it.

    Args:
        name: of `FIGURES`.
        drawing: the numbers.
    """
    with style.package_style():
        figure = style.new_figure(*SIZE)
        return Picture(figure) if FIGURES[name](figure, drawing) else None


def opening_pictures(drawing: Drawing) -> list[Picture]:
    """Draw the first two of losses, accuracy, explained and primal that the run has numbers for."""
    pictures = (draw(name, drawing) for name in ("losses", "accuracy", "explained", "primal"))
    return list(itertools.islice((picture for picture in pictures if picture is not None), 2))
