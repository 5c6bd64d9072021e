"""Claimed, certified and shown ε of audited scenarios, one row each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from decentral_dp.reporting.plots.style import BLUE, GREY, VERMILLION, new_figure, package_style

if TYPE_CHECKING:
    import pandas as pd

_MARKS = (("claimed", "D", GREY, "claimed"), ("certified", "|", VERMILLION, "certified"), ("shown", ">", BLUE, "shown"))


def write_audits(table: pd.DataFrame, folder: Path) -> Path:
    """Draw audits.png into `folder`; what is infinite, or where nothing is shown, has no mark."""
    with package_style():
        figure = new_figure(6.4, 1.2 + 0.24 * len(table))
        axes = figure.add_subplot()
        heights = np.arange(len(table))[::-1]
        for column, marker, colour, label in _MARKS:
            values = table[column].to_numpy(dtype=np.float64)
            drawn = np.isfinite(values) & (values > 0.0)
            axes.plot(values[drawn], heights[drawn], marker, color=colour, label=label, markersize=7)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.set_yticks(heights, list(table["scenario"]))
        axes.set_ylim(-0.7, len(table) - 0.3)
        axes.set_xlabel("ε of one replaced record")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(_MARKS))
        figure.savefig(folder / "audits.png", dpi=150)
    return folder / "audits.png"
