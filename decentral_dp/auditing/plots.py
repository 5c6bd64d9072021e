"""Figures of audits, of their trade-off curves, and of what agents learn of each other's records.

Pairs of agents are drawn from the certified ε, which holds for float64 messages. Thin lines are exact in real
arithmetic, and of training the price of linear gossip, which is no bound.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.files.durable import OWNERS, write_whole
from decentral_dp.formatting import capitalise, cut_name, delta_text, epsilon_text, power_text, topology_name
from decentral_dp.reporting.plots import style
from decentral_dp.reporting.plots.style import BLUE, GREY, PINK, VERMILLION, new_figure, package_style

if TYPE_CHECKING:
    import pandas as pd
if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from decentral_dp.auditing.network_attacks import NetworkAudit
    from decentral_dp.auditing.network_view import NetworkView

# ε below the first are drawn there, those above the second at the edge.
_LEAST, _MOST, _EDGE = 1e-2, 1e3, 1e4

_MARKS = (
    ("claimed", "D", GREY, "claimed"),
    ("refuted", "D", PINK, "claimed, and refuted"),
    ("certified", "|", VERMILLION, "certified"),
    ("shown", ">", BLUE, "shown"),
)
_TITLES = {"none": "Without noise", "as_published": "As published", "certified": "Certified"}


def write_curve(curve: Sequence[tuple[float, float]], certified: float, delta: float, path: Path) -> Path:
    """Draw what is shown of the trade-off curve of two data sets, beside what the certified (ε, δ) allows.

    The file is for its owner only: the audit may be of a run with secret noise.
    """
    alpha = np.linspace(0.0, 1.0, 401)
    with package_style():
        figure = new_figure(4.6, 4.4)
        axes = figure.add_subplot()
        axes.plot(alpha, 1.0 - alpha, ":", color=GREY, label="nothing told")
        if np.isfinite(certified):
            steep, flat = 1.0 - delta - np.exp(certified) * alpha, 1.0 - delta - alpha
            bound = np.maximum(0.0, np.maximum(steep, np.exp(-certified) * flat))
            axes.plot(alpha, bound, color=VERMILLION, label="certified: at or above")
        if curve:
            false, missed = np.array(curve).T
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


# Of a figure, in inches, where none is asked for.
_WIDTH = 5.6
# More agents, or observers, than this are not named beside the map; longer names are cut off.
MOST_NAMED = 40
LONGEST_NAME = 18
# Below this part of what every message tells, colours and the axis of ε end: there is nothing left to see.
LEAST_DRAWN = 1e-3
ATTACKS = ("attacks.parquet", "attacks.png")
THIN: Mapping[str, Any] = {"linewidth": 0.8, "linestyle": ":", "color": BLUE}


def write_pairs(view: NetworkView, folder: Path) -> list[Path]:
    """Draw "pairs" and "distance" into a folder, and return the paths that were written."""
    figures: dict[str, tuple[float, Callable[[Figure, NetworkView], None]]] = {
        "pairs": (0.82 if len(view.pairs.observers) > 6 else 0.61, heat_map),
        "distance": (0.63, by_distance),
    }
    paths = []
    with style.package_style(), warnings.catch_warnings():
        # Names come from the user: one without glyphs, or too long for its place, is drawn as well as it can be.
        warnings.simplefilter("ignore", UserWarning)
        for name, (height, draw) in figures.items():
            figure = style.new_figure(_WIDTH, height * _WIDTH)
            draw(figure, view)
            paths += style.write_figure(figure, folder / name, ("png",))
    return paths


def write_attacks(audit: NetworkAudit, folder: Path) -> list[Path]:
    """Write ATTACKS into a folder: a row for each attack, and claimed, shown, certified and everything in μ.

    Returns:
        The paths that were written.
    """
    from matplotlib.ticker import FuncFormatter

    marks = (
        ("claimed", "D", style.PINK, "claimed"),
        ("everything", "|", style.GREY, "every message"),
        ("certified", "|", style.VERMILLION, "certified"),
        ("shown", ">", style.BLUE, "shown"),
    )
    heights = -np.arange(len(audit.attacks))
    with style.package_style():
        figure = style.new_figure(7.0, 1.2 + 0.3 * len(audit.attacks))
        axes = figure.add_subplot()
        for field, marker, colour, label in marks:
            values = [getattr(attack, field) for attack in audit.attacks]
            size = 11 if marker == "|" else 5
            axes.plot(values, heights, marker, color=colour, label=label, markersize=size, mew=1.8)
        axes.set_yticks(heights, [attack.case for attack in audit.attacks])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: power_text(value)))
        axes.set_xlabel("μ of one record, noise of standard deviation 1")
        figure.legend(loc="outside upper center", ncols=len(marks))
        figure.savefig(folder / ATTACKS[1], dpi=150)
    audit.to_frame().to_parquet(folder / ATTACKS[0], index=False)
    return [folder / name for name in ATTACKS]


def heat_map(figure: Figure, view: NetworkView) -> None:
    """The certified ε of every pair on a logarithmic colour scale; grey: the observer itself."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator

    victims = np.flatnonzero(~np.isnan(view.certified).all(axis=0))
    values = view.certified[:, victims]
    least, most = _colour_limits(view)
    ax = figure.subplots()
    ax.set_facecolor("#DDDDDD")
    ax.grid(visible=False)
    shown = ax.imshow(values, cmap="viridis", norm=LogNorm(least, most), aspect="auto", interpolation="nearest")
    beyond = "min" if np.nanmin(values) < least else "neither"
    bar = figure.colorbar(shown, ax=ax, label=f"certified ε, δ = {delta_text(view.delta)}", extend=beyond)
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if most / least < 200 else (1.0,), numticks=9))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_text(value)))
    bar.ax.minorticks_off()
    named = [cut_name(view.labels[i], LONGEST_NAME) for i in victims]
    _name_ticks(ax.xaxis, named)
    rows = range(len(view.pairs.observers))
    _name_ticks(
        ax.yaxis,
        [
            cut_name(view.labels[k], LONGEST_NAME) if view.observes_single_agents else _observer(view, k, "\n")
            for k in rows
        ],
    )
    if len(named) > 24 or any(len(name) > 3 for name in named):
        ax.tick_params("x", rotation=90)
    ax.set_xlabel(_wrap(ax, f"agent whose record it is ({_graph(view)})", "font", 0.8))
    ax.set_ylabel("agent that observes" if view.observes_single_agents else "observer")
    _title(ax, _summary(view))


def by_distance(figure: Figure, view: NetworkView) -> None:
    """Draw the certified ε of every pair over the links between them, and that of an observer of every message.

    Points: pairs. Thick line: the largest at each distance. Thin line: the largest that is exact in real arithmetic.
    """
    from matplotlib.ticker import MaxNLocator

    ax = figure.subplots()
    known = ~np.isnan(view.certified)
    # Apart enough to show how many there are; a fixed pattern, so that the same numbers give the same figure.
    aside = 0.24 * ((np.arange(known.sum()) * 0.618) % 1.0 - 0.5)
    ax.scatter(view.distance[known] + aside, view.certified[known], s=9, color=BLUE, alpha=0.35, linewidths=0)
    largest = _largest(view.certified, view.distance)
    ax.plot(*largest, color=BLUE, marker="o", label=f"{_observer_words(view)}: largest certified")
    thin = "largest exact, in real arithmetic" if view.linear is None else "largest of linear gossip: no bound"
    ax.plot(*_largest(view.reference, view.distance), **THIN, label=thin if view.has_exact_epsilon else None)
    total = float(view.certified_total.max())
    every = f"all messages: {epsilon_text(total)} at δ = {view.delta:g}, certified"
    ax.axhline(total, color=GREY, linestyle="--", linewidth=1.4, label=every)
    values = np.concatenate([part.ravel() for part in (view.certified, view.reference, view.certified_total)])
    style.log_axis(ax, "y", values[np.nan_to_num(values) >= LEAST_DRAWN * total])
    ax.set_xlim(0.5, int(view.distance.max()) + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
    ax.legend(loc="best", fontsize=8.0, frameon=True, edgecolor="none")
    ax.set_xlabel(_wrap(ax, f"links between observer and agent ({_graph(view)})", "font", 0.8))
    ax.set_ylabel(f"ε of one record, δ = {delta_text(view.delta)}")
    _title(ax, _summary(view))


def _largest(epsilon: Array, distance: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array]:
    """Distances, and the largest ε of the pairs at each, where any is above zero."""
    links = np.unique(distance[epsilon > 0.0])
    return links, np.asarray([np.nanmax(epsilon[distance == k]) for k in links])


def _colour_limits(view: NetworkView) -> tuple[float, float]:
    """The ends of the colour scale, at least a factor of 2 apart; the upper one is what a full view would give."""
    most = float(view.certified_total.max())
    return min(max(float(np.nanmin(view.certified)), LEAST_DRAWN * most), most / 2.0), most


def _graph(view: NetworkView) -> str:
    return topology_name({"kind": view.name, "agents": len(view.labels)})


def _observer_words(view: NetworkView) -> str:
    """Whose view it is: that of an agent like any other, of the only observer, or of the best of several."""
    if view.observes_single_agents:
        return "one agent"
    several = len(view.pairs.observers)
    return _observer(view, 0, " ") if several == 1 else f"the best of {several} observers"


def _observer(view: NetworkView, row: int, between: str) -> str:
    """The observer's name, wrapped between words and each part cut off where it is long."""
    return between.join(cut_name(line, 30) for line in textwrap.wrap(view.observer(row), 20)[:3])


def _summary(view: NetworkView) -> str:
    """Whose view, and the largest certified ε of neighbours and of agents far away."""
    who = capitalise(_observer_words(view))
    links, largest = _largest(view.certified, view.distance)
    if links.size == 0:
        return f"{who}: nothing"
    places = [f"at {k} {'link' if k == 1 else 'links'}" for k in links]
    first = f"{who}: ε at most {epsilon_text(float(largest[0]))} {places[0]}"
    return first if links.size == 1 else f"{first}, {epsilon_text(float(largest[-1]))} {places[-1]}"


def _title(ax: Any, text: str) -> None:
    # Across the figure: above the axes alone it would run into the colour bar.
    ax.figure.suptitle(_wrap(ax, text, "axes.title"), x=0.02, ha="left", fontsize=style.letter_size("axes.title"))


def _wrap(ax: Any, text: str, kind: Literal["font", "axes.title"], share: float = 1.0) -> str:
    """Break lines that are longer than this share of the figure's width."""
    # A letter is about half as wide as it is high, and 72 points are an inch.
    letters = int(share * ax.figure.get_figwidth() * 72 / (0.53 * style.letter_size(kind)))
    return textwrap.fill(text, letters)


def _name_ticks(axis: Any, names: Sequence[str]) -> None:
    if len(names) <= MOST_NAMED:
        axis.set_ticks(range(len(names)), names, fontsize=7 if len(names) > 12 else min(8.5, style.letter_size("font")))
