"""Figures of what agents learn of each other's records.

Pairs of agents are drawn from the certified ε, which holds for float64 messages. Thin lines are exact in real
arithmetic, and of training the price of linear gossip, which is no bound.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.formatting import capitalise, cut_name, delta_text, epsilon_text, power_text, topology_name
from decentral_dp.reporting.plots import style
from decentral_dp.reporting.plots.style import BLUE, GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from decentral_dp.auditing.network_view import NetworkView

# Of a figure, in inches, where none is asked for.
_WIDTH = 5.6
# More agents, or observers, than this are not named beside the map; longer names are cut off.
MOST_NAMED = 40
LONGEST_NAME = 18
# Below this part of what every message tells, colours and the axis of ε end: there is nothing left to see.
LEAST_DRAWN = 1e-3
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


def heat_map(figure: Figure, view: NetworkView) -> None:
    """The certified ε of every pair on a logarithmic colour scale; grey: the observer itself."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator

    victims = np.flatnonzero(~np.isnan(view.certified).all(axis=0))
    values = view.certified[:, victims]
    # The upper end is what a full view would give; the lower one is at least a factor of 2 below.
    most = float(view.certified_total.max())
    least = min(max(float(np.nanmin(view.certified)), LEAST_DRAWN * most), most / 2.0)
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
    ax.plot(*_largest(view.reference, view.distance), **THIN, label=thin)
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
