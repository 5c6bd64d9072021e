"""Claimed, certified and shown ε of audited scenarios, one row each."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import NullLocator

from decentral_dp.adversaries.audit.result import AuditResult
from decentral_dp.files.durable import OWNERS, write_whole
from decentral_dp.reporting.plots.style import BLUE, GREY, PINK, VERMILLION, new_figure, package_style

if TYPE_CHECKING:
    import pandas as pd

# ε below the first are drawn there, those above the second at the edge.
_LEAST, _MOST, _EDGE = 1e-2, 1e3, 1e4

_MARKS = (
    ("claimed", "D", GREY, "claimed"),
    ("refuted", "D", PINK, "claimed, and refuted"),
    ("certified", "|", VERMILLION, "certified"),
    ("shown", ">", BLUE, "shown"),
)
_TITLES = {"none": "Without noise", "as_printed": "As printed", "certified": "Certified"}


def write_curve(result: AuditResult, path: Path) -> Path:
    """Draw what is shown of the trade-off curve of two data sets, beside what the certified (ε, δ) allows.

    The file is for its owner only: the audit may be of a run with secret noise.
    """
    alpha = np.linspace(0.0, 1.0, 401)
    with package_style():
        figure = new_figure(4.6, 4.4)
        axes = figure.add_subplot()
        axes.plot(alpha, 1.0 - alpha, ":", color=GREY, label="nothing told")
        if np.isfinite(result.certified):
            steep, flat = 1.0 - result.delta - np.exp(result.certified) * alpha, 1.0 - result.delta - alpha
            bound = np.maximum(0.0, np.maximum(steep, np.exp(-result.certified) * flat))
            axes.plot(alpha, bound, color=VERMILLION, label="certified: at or above")
        if result.curve:
            false, missed = np.array(result.curve).T
            axes.plot(false, missed, "o-", color=BLUE, label="shown: at or below")
        axes.set_xlabel("second data set taken for the first, α")
        axes.set_ylabel("first data set taken for the second, β")
        axes.set_xlim(-0.01, 1.01)
        axes.set_ylim(-0.01, 1.01)
        axes.legend(loc="upper right")
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=150)
    write_whole(path, content.getvalue(), OWNERS)
    return path


def write_audits(table: pd.DataFrame, folder: Path) -> Path:
    """Draw audits.png into `folder`: a panel for each guarantee, a row for each scenario.

    What is infinite, or too large, stands at the right edge; what is 0 has no mark.
    """
    refuted = table["shown"] > table["claimed"]
    table = table.assign(refuted=table["claimed"].where(refuted), claimed=table["claimed"].mask(refuted))
    names = list(dict.fromkeys(table["scenario"]))
    there = [g for g in _TITLES if (table["guarantee"] == g).any()]
    with package_style():
        figure = new_figure(2.4 + 2.4 * len(there), 1.3 + 0.22 * len(names))
        panels = figure.subplots(1, len(there), sharey=True, squeeze=False)[0]
        for axes, guarantee in zip(panels, there, strict=True):
            rows = table[table["guarantee"] == guarantee]
            heights = np.array([len(names) - 1 - names.index(n) for n in rows["scenario"]])
            for column, marker, colour, label in _MARKS:
                values = rows[column].to_numpy(dtype=np.float64)
                drawn = values > 0.0
                at = np.where(values[drawn] > _MOST, _EDGE, np.maximum(values[drawn], _LEAST))
                size = 9 if marker == "|" else 5
                axes.plot(at, heights[drawn], marker, color=colour, label=label, markersize=size, mew=1.5)
            axes.set_title(_TITLES[guarantee])
            axes.set_xscale("log")
            axes.set_xlim(0.5 * _LEAST, 3.0 * _EDGE)
            ticks = [_LEAST, 1.0, 100.0]
            axes.set_xticks([*ticks, _EDGE], [f"≤{_LEAST:g}", "1", "100", "∞"])
            axes.xaxis.set_minor_locator(NullLocator())
        panels[0].set_yticks(np.arange(len(names)), names[::-1])
        panels[0].set_ylim(-0.7, len(names) - 0.3)
        figure.supxlabel(f"ε of one replaced record, shortened runs (∞: or more than {_MOST:g})")
        handles, labels = panels[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(_MARKS))
        figure.savefig(folder / "audits.png", dpi=150)
    return folder / "audits.png"
