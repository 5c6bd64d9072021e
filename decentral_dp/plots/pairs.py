"""What agents learn of each other's records: every pair, by distance, and on several graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.numbers import delta_text, epsilon_text
from decentral_dp.plots.axes import BLUE, GREEN, GREY, ORANGE, PINK, STYLE, VERMILLION, log_axis, title
from decentral_dp.privacy.sensitivity import Array
from decentral_dp.report.text import power_text, topology_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from decentral_dp.network import NetworkView

# More agents, or observers, than this are not named beside the map.
NAMED = 40
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PINK)
MARKERS = "os^Dv"


def write_pairs(view: NetworkView, folder: Path, others: Mapping[str, NetworkView]) -> list[Path]:
    """Draw pairs.png and distance.png into `folder`, and topologies.png where there are other graphs to compare."""
    # matplotlib is slow to import and only this function needs it.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figures: dict[str, tuple[tuple[float, float], Callable[[Figure], None]]] = {
        "pairs": ((5.6, 4.6 if len(view.pairs.observers) > 6 else 3.4), lambda f: heat_map(f, view)),
        "distance": ((5.6, 3.5), lambda f: by_distance(f, view)),
    }
    if others:
        every = {_graph(view): view, **others}
        figures["topologies"] = ((5.6, 3.5), lambda f: by_topology(f, every))
    written = []
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        for name, (size, draw) in figures.items():
            figure = Figure(figsize=size, layout="constrained")
            FigureCanvasAgg(figure)
            draw(figure)
            figure.savefig(folder / f"{name}.png", metadata={"Software": None})
            written.append(folder / f"{name}.png")
    return written


def heat_map(figure: Figure, view: NetworkView) -> None:
    """ε of every pair on a logarithmic colour scale; grey: the observer itself, and whoever is too far to be heard."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator

    drawn = np.where(view.epsilon > 0.0, view.epsilon, np.nan)
    least, most = _ends(drawn, view)
    ax = figure.subplots()
    ax.set_facecolor("#DDDDDD")
    ax.grid(visible=False)
    shown = ax.imshow(drawn, cmap="viridis", norm=LogNorm(least, most), aspect="auto", interpolation="nearest")
    bar = figure.colorbar(shown, ax=ax, label=f"ε, δ = {delta_text(view.delta)}")
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if most / least < 200 else (1.0,), numticks=9))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_text(value)))
    bar.ax.minorticks_off()
    _name_ticks(ax.xaxis, [view.labels[i] for i in range(len(view.labels))])
    _name_ticks(ax.yaxis, ["+".join(view.labels[i] for i in members) for members in view.pairs.observers])
    if len(view.labels) > 24 or any(len(label) > 3 for label in view.labels):
        ax.tick_params("x", rotation=90)
    ax.set_xlabel(f"agent whose record it is ({_graph(view)})")
    ax.set_ylabel("observer")
    title(ax, _story(view))


def by_distance(figure: Figure, view: NetworkView) -> None:
    """ε of every pair over the links between them, and that of an observer of every message."""
    ax = figure.subplots()
    alone = len(view.pairs.observers) == len(view.labels) or len(view.pairs.observers) > len(COLOURS)
    rows = [slice(None)] if alone else [slice(k, k + 1) for k in range(len(view.pairs.observers))]
    for row, colour, marker in zip(rows, COLOURS, MARKERS, strict=False):
        epsilon, distance = view.epsilon[row], view.distance[row]
        known = epsilon > 0.0
        # Apart enough to show how many there are; a fixed pattern, so that the same numbers give the same figure.
        aside = 0.24 * ((np.arange(known.sum()) * 0.618) % 1.0 - 0.5)
        ax.scatter(distance[known] + aside, epsilon[known], s=9, color=colour, alpha=0.35, linewidths=0)
        links, means = _means(view.epsilon[row], view.distance[row], np.mean)
        members = [] if alone else view.pairs.observers[row.start]
        observer = "one agent, mean over pairs" if alone else "+".join(view.labels[i] for i in members)
        ax.plot(links, means, color=colour, marker=marker, label=observer)
    if alone:
        far, bound = _means(view.certified, view.distance, np.max)
        ax.plot(far, bound, color=VERMILLION, linestyle=":", label="one agent, largest certified")
    total = float(view.epsilon_total.max())
    ax.axhline(total, color=GREY, linestyle="--", linewidth=1.4, label=f"every message: {epsilon_text(total)}")
    _finish(ax, view, [*view.epsilon[view.epsilon > 0.0], total], f"observer ({_graph(view)})")
    title(ax, _story(view))


def by_topology(figure: Figure, views: Mapping[str, NetworkView]) -> None:
    """The largest ε at each distance, one curve for each graph."""
    ax = figure.subplots()
    curves = [_means(view.epsilon, view.distance, np.max) for view in views.values()]
    values = [v for _, largest in curves for v in largest] + [float(v.epsilon_total.max()) for v in views.values()]
    for k, (name, (links, largest)) in enumerate(zip(views, curves, strict=True)):
        style = "-" if k < len(COLOURS) else ":"
        ax.plot(links, largest, style, color=COLOURS[k % 5], marker=MARKERS[k % 5], label=name)
    total = max(float(view.epsilon_total.max()) for view in views.values())
    ax.axhline(total, color=GREY, linestyle="--", linewidth=1.4, label="every message")
    first = next(iter(views.values()))
    _finish(ax, first, values)
    ax.set_xlim(right=0.5 + max(int(view.distance.max()) for view in views.values()))
    ax.set_ylabel(f"largest ε at that distance, δ = {delta_text(first.delta)}")
    two = [float(largest[links == 2][0]) for links, largest in curves if (links == 2).any()]
    spread = f"Two links away ε is {epsilon_text(min(two))} to {epsilon_text(max(two))}, by graph" if two else ""
    title(ax, spread or "What one agent learns, by graph")


def _finish(ax: Any, view: NetworkView, values: list[float], legend: str = "") -> None:
    from matplotlib.ticker import MaxNLocator

    log_axis(ax, "y", values)
    ax.set_xlabel("links between observer and agent")
    ax.set_ylabel(f"ε of one record, δ = {delta_text(view.delta)}")
    ax.set_xlim(0.5, view.distance.max() + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
    ax.legend(loc="best", title=legend or None)


def _means(epsilon: Array, distance: NDArray[np.int64], of: Callable[[Array], Any]) -> tuple[NDArray[np.int64], Array]:
    """Distances, and the mean (or largest) ε of the pairs at each, where any is above zero."""
    links = np.unique(distance[epsilon > 0.0])
    return links, np.asarray([of(epsilon[(distance == k) & ~np.isnan(epsilon)]) for k in links])


def _ends(drawn: Array, view: NetworkView) -> tuple[float, float]:
    """The ends of the colour scale, at least a decade apart; the upper one is what a full view would give."""
    most = float(view.epsilon_total.max())
    known = drawn[~np.isnan(drawn)]
    least = float(known.min()) if known.size else most
    return min(least, most / 10.0), most


def _graph(view: NetworkView) -> str:
    return topology_name({"kind": view.name, "agents": len(view.labels)})


def _story(view: NetworkView) -> str:
    known = view.epsilon > 0.0
    if not known.any():
        return "nothing reaches an observer"
    near, far = int(view.distance[known].min()), int(view.distance[known].max())
    first, last = (float(view.epsilon[known & (view.distance == k)].max()) for k in (near, far))
    if near == far:
        return f"ε at most {epsilon_text(first)} for one neighbour"
    return f"ε falls from {epsilon_text(first)} next door to {epsilon_text(last)} at {far} links"


def _name_ticks(axis: Any, names: list[str]) -> None:
    if len(names) <= NAMED:
        axis.set_ticks(range(len(names)), names, fontsize=7 if len(names) > 12 else 8.5)
