"""Figures of a run folder, a PNG each, and SVG or PDF where asked for; a figure whose numbers are missing is not drawn.

The only place that imports matplotlib, and only when something is drawn. Figures are made without pyplot and inside an
rc context, so neither the caller's settings nor his backend change. Curves and ledger are read from the run folder:
they show the simulator's view, not what an adversary sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from decentral_dp.reporting.plots.axes import Drawing, read_drawing
from decentral_dp.reporting.plots.curves import (
    accuracy,
    consensus,
    epsilon,
    explained,
    gradient,
    held_out,
    hypergradient,
    losses,
    primal,
    shares,
)
from decentral_dp.reporting.plots.network import topology
from decentral_dp.reporting.plots.releases import noise, upper_variable
from decentral_dp.reporting.plots.style import Format, new_figure, package_style, remove_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches: so narrow that letters can be read on a telephone, where a picture is as wide as the screen.
SIZE = (4.7, 3.3)
FIGURES: Mapping[str, Callable[[Figure, Drawing], bool]] = {
    "losses": lambda figure, d: held_out(figure, d) if d.minimax else losses(figure, d),
    "accuracy": lambda figure, d: shares(figure, d) if d.minimax else accuracy(figure, d),
    "explained": explained,
    "upper_variable": upper_variable,
    "hypergradient": hypergradient,
    "consensus": consensus,
    "primal": primal,
    "gradient": gradient,
    "epsilon": epsilon,
    "noise": noise,
    "topology": topology,
}


def write_plots(folder: Path, formats: Sequence[Format] = ("png",)) -> list[Path]:
    """Draw every figure that the run folder has numbers for into `folder/plots`, and return the paths.

    A figure of an earlier run that this run has no numbers for is removed. formats: the page shows "png". Raises
    InputError where `folder` holds no readable result.json.
    """
    drawing = read_drawing(folder)
    (folder / "plots").mkdir(exist_ok=True)
    written = []
    with package_style():
        for name, draw in FIGURES.items():
            path, figure = folder / "plots" / name, new_figure(*SIZE)
            if draw(figure, drawing):
                written += save_figure(figure, path, formats)
            else:
                remove_figure(path)
    return written
