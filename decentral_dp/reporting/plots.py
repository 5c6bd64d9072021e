"""Figures of a run, drawn from its report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.files.regular import own
from decentral_dp.formatting import capitalise, cut_name, delta_text, epsilon_text, topology_name
from decentral_dp.reporting import style
from decentral_dp.reporting.privacy import certainty_text
from decentral_dp.reporting.report import OVERFLOW, Report, curve, read_report
from decentral_dp.simulation.metrics import JUDGES
from decentral_dp.simulation.result import mode_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from decentral_dp.simulation.statement import PrivacyStatement


# Lines that coincide stay visible.
_DASHES = ("-", "-", "--", "-.", ":")


# Figure → label of its y axis, its scale ("values", "log", or "share": at most 1), and its metrics.
METRICS: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "losses": (
        "loss",
        "values",
        ("upper_loss", "lower_loss", "test_loss", "test_robust_loss", "test_mspbe", "test_distance"),
    ),
    "accuracy": (
        "score on held-out records",
        "share",
        ("test_accuracy", "test_auc", "test_f1", "test_accuracy_last", "test_worst_class_accuracy"),
    ),
    "explained": ("R² on held-out records", "share", ("test_r2",)),
    "optimality": ("optimality gap on the train records", "log", ("optimality_gap",)),
    "stationarity": ("squared norm of the gradient", "log", ("stationarity",)),
    "consensus": ("consensus error (ℓ2)", "log", ("consensus_x", "consensus_y", "consensus_z")),
    "primal": ("Φ(x) on the train records", "values", ("primal",)),
    "gradient": ("‖∇Φ(x)‖₂ on the train records", "log", ("gradient_norm",)),
}


def draw_metrics(name: str, figure: Figure, r: Report) -> bool:
    """Draw a figure of `METRICS`; return False if the run has none of its metrics."""
    axis, scale, metrics = METRICS[name]
    curves = {}
    for k, metric in enumerate(metrics):
        # A fixed x has no upper level.
        if not r.result.tunes_x and metric == "upper_loss":
            continue
        c = r.curve(metric) or curve(r.metrics, metric)
        if c is not None and scale == "log":
            c = c._replace(mean=np.where(c.mean > 0, c.mean, np.nan))
        if c is not None and np.isfinite(c.mean).any():
            curves[metric] = (c, style.SERIES_COLOURS[k], _DASHES[k % len(_DASHES)])
    if not curves:
        return False
    ax = figure.subplots()
    if name == "accuracy":
        draw_baselines(ax, r, ["test_accuracy"])
    style.draw_curves(ax, curves)
    ax.set_ylabel(f"{axis}, exact lower solution" if r.result.solves_lower else axis)
    (metric, (first, *_)), *_ = curves.items()
    style.title(ax, style.change(metric, first))
    values = np.concatenate([part for c, *_ in curves.values() for part in (c.mean, c.low, c.high)])
    style.scale_axis(ax, scale, values)
    if scale == "share":
        # Early values of R² may be far below 0; the last one stays visible.
        low, high = ax.get_ylim()
        lowest = min(float(c.low[-1]) for c, *_ in curves.values())
        ax.set_ylim(max(low, min(-1.0, 1.1 * lowest)), min(high, 1.005))
    return True


def epsilon(figure: Figure, r: Report) -> bool:
    """Draw ε spent by the worst agent, with target and the paper's claim.

    Returns:
        Whether the figure is drawn. It is not drawn if no ε is spent, or if all of it is spent in one round.
    """
    spent, privacy = curve(r.metrics, "epsilon_spent"), r.result.privacy
    if not privacy.is_noisy or spent is None or not np.any(spent.mean > 0) or spent.rounds[-1] <= 1:
        return False
    ax = figure.subplots()
    claim = {"claimed by the paper, not certified": privacy.claimed_epsilon or 0.0}
    # The target of an adversary of published models is not a level of ε of all messages.
    every = privacy.view == "all_messages"
    target = {"target": r.scenario.get("privacy", {}).get("epsilon") or 0.0} if every else {}
    levels = {name: value for name, value in (target | claim).items() if 0 < value < math.inf}
    for (name, value), dash in zip(levels.items(), ("--", "-.", ":"), strict=False):
        colour = style.VERMILLION if name in claim else style.GREY
        ax.axhline(value, color=colour, linestyle=dash, label=f"{name}: {epsilon_text(value)}")
    style.draw_curves(ax, {certainty_text(privacy): (spent, style.BLUE, "-")})
    style.log_axis(ax, "y", [*levels.values(), *spent.mean])
    ax.set_ylabel(_label_spent(privacy))
    word = "Provable" if privacy.guarantee == "as_published" else "Certified"
    planned = " by the end of the plan" if r.result.has_diverged else ""
    style.title(
        ax,
        f"{word} ε {'' if every else 'of all messages '}per agent reaches {epsilon_text(privacy.epsilon_max)}{planned}",
    )
    return True


def _label_spent(p: PrivacyStatement) -> str:
    return f"ε spent{'' if p.is_trusted else ' by the worst agent'}, δ\u00a0=\u00a0{delta_text(p.delta)}"


def utility(figure: Figure, r: Report) -> bool:
    """Draw the main score against the ε spent so far.

    Returns:
        Whether the figure is drawn. It needs noise, a score and several rounds, and an adversary that observes all
        messages, since ε of published models holds only at the end.
    """
    spent, privacy = curve(r.metrics, "epsilon_spent"), r.result.privacy
    score = None if r.judge is None else r.curve(r.judge["name"])
    if r.judge is None or score is None or spent is None or not privacy.is_noisy or privacy.view != "all_messages":
        return False
    score = style.thin(score)
    _, at_score, at_spent = np.intersect1d(score.rounds, spent.rounds, return_indices=True)
    epsilon_spent = spent.mean[at_spent]
    shown = np.isfinite(epsilon_spent) & (epsilon_spent > 0)
    if np.count_nonzero(shown) < 2:
        return False
    ax = figure.subplots()
    mean, low, high = (part[at_score][shown] for part in (score.mean, score.low, score.high))
    ax.fill_between(epsilon_spent[shown], low, high, color=style.BLUE, alpha=0.16, linewidth=0)
    marker = "o" if mean.size <= 25 else None
    ax.plot(epsilon_spent[shown], mean, "-", color=style.BLUE, marker=marker, label="this run")
    draw_baselines(ax, r, [r.judge["name"]])
    if len(ax.get_legend_handles_labels()[1]) > 1:
        ax.legend(loc="best")
    ax.set_xlabel(_label_spent(privacy))
    ax.set_ylabel(r.judge["name"])
    ax.margins(x=0.02)
    style.title(ax, f"{r.judge['name']} {r.judge['text']} at ε = {epsilon_text(float(epsilon_spent[shown][-1]))}")
    return True


def draw_baselines(ax: Axes, r: Report, names: Sequence[str]) -> None:
    """Draw reference lines of the majority class, and of the run without noise if there is one."""
    lines = {"majority class": r.result.baselines, "non-private": r.non_private}
    for (label, scores), dash in zip(lines.items(), (":", "--"), strict=True):
        known = [(name, value) for name in names if (value := scores.get(name)) is not None and math.isfinite(value)]
        for name, value in known[:1]:
            text = f"{label}: {value:.{JUDGES[name]}f}"
            ax.axhline(value, color=style.GREY, linestyle=dash, linewidth=1.2, label=text)


# Up to the second number of coordinates, the names of features are below the axis.
_DRAWN_COORDINATES, _NAMED_COORDINATES = 100, 30
# Additional inches for these names.
_NAMES_BELOW = 1.2


def upper_variable(figure: Figure, r: Report) -> bool:
    """Draw the published x per coordinate (mean, range over agents, start); return False if x is not tuned."""
    from matplotlib.ticker import MaxNLocator

    if not r.result.tunes_x or r.x is None or not np.all(np.abs(r.x) < OVERFLOW):
        return False
    # The page lists a single coordinate.
    if r.x.size == 1 or not 0 < r.x.shape[1] <= _DRAWN_COORDINATES:
        return False
    ax = figure.subplots()
    index, mean = np.arange(r.x.shape[1]), r.x.mean(axis=0)
    ax.vlines(index, r.x.min(axis=0), r.x.max(axis=0), color=style.BLUE, alpha=0.35, linewidth=3.0)
    ax.plot(index, mean, "o", color=style.BLUE, markersize=4.0)
    values, started = r.x, ""
    if r.result.algorithm:
        start = r.result.algorithm["start"]["x"]
    else:
        start = (r.scenario.get("algorithm", {}).get("init") or {}).get("x", 0.0)
        start = None if "x" in (r.scenario.get("problem", {}).get("start") or {}) else start
    if isinstance(start, int | float):
        ax.axhline(start, color=style.GREY, linestyle="--", linewidth=1.2, zorder=1)
        values, started = np.append(values, start), f"; it started at {start:.3g}"
    style.flat_axis(ax, values)
    ax.grid(visible=False, axis="x")
    ax.set_xlim(-0.7, index.size - 0.3)
    names = [str(name) for name in r.result.problem.get("x_names") or ()]
    if len(names) == index.size <= _NAMED_COORDINATES:
        figure.set_figheight(figure.get_figheight() + _NAMES_BELOW)
        ax.set_xticks(index, [cut_name(name) for name in names], rotation=90, fontsize=9.2)
        ax.set_xlabel("feature whose strength x is the logarithm of")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
        ax.set_xlabel("coordinate of x")
    ax.set_ylabel("published x")
    ends = f"x ends between {mean.min():.3g} and {mean.max():.3g}" if mean.size > 1 else f"x ends at {mean[0]:.3g}"
    style.title(ax, f"{ends}{started}".replace("-", "−"))
    return True


_DRAWN_AGENTS, _NUMBERED_AGENTS = 200, 30
# Letters of equally long names of all agents that fit around a ring; the page lists longer ones.
_MOST_LETTERS = 96
# Above this number, edges are drawn as pixels, since their paths would make a page too large.
_DRAWN_EDGES = 1000


def topology(figure: Figure, r: Report) -> bool:
    """Draw the graph, with agents coloured by ε if budgets differ; return False if there is no graph."""
    from matplotlib.collections import LineCollection

    graph, privacy = r.result.topology, r.result.privacy
    m = int(graph.get("agents") or 0)
    # With a coordinator the graph plays no part.
    if not 1 <= m <= _DRAWN_AGENTS or r.result.privacy.is_trusted:
        return False
    edges = np.asarray([e[:2] for e in graph.get("edges") or []], dtype=np.int64).reshape(-1, 2)
    positions = circle(m) if graph.get("kind") in ("ring", "complete") else layout(m, edges)
    ax = figure.subplots()
    ax.set_axis_off()
    faint = min(0.7, 400 / (len(edges) + 1))
    lines: list[Any] = [LineCollection(list(positions[edges]), colors=style.GREY, linewidths=1.1, alpha=faint)]
    ax.add_collection(lines[0])
    if graph.get("directed"):
        # An arrow head beyond the middle of each edge, which no agent hides.
        (x, y), (dx, dy) = positions[edges[:, 0]].T, 0.6 * (positions[edges[:, 1]] - positions[edges[:, 0]]).T
        heads = ax.quiver(x, y, dx, dy, angles="xy", scale_units="xy", scale=1.0, width=0.003, headwidth=6.0)
        heads.set(color=style.GREY, alpha=faint)
        lines.append(heads)
    for drawn in lines:
        drawn.set_rasterized(len(edges) > _DRAWN_EDGES)
    epsilon = privacy.agents.per_agent([budget.epsilon for budget in privacy.agents.different])
    label = f"at δ\u00a0=\u00a0{delta_text(privacy.delta)}, {certainty_text(privacy)}"
    differs = epsilon.size == m and bool(np.isfinite(epsilon).all()) and np.ptp(epsilon) > 1e-3 * epsilon.max()
    size = float(np.clip(9000 / m, 6, 330))
    nodes = ax.scatter(positions[:, 0], positions[:, 1], s=size, c=epsilon if differs else style.BLUE, zorder=3)
    nodes.set_cmap("cividis")
    nodes.set_edgecolor("white")
    numbers = f": ρ = {graph['rho']:.3f}" if graph["rho"] is not None and m > 1 else ""
    if differs:
        figure.colorbar(nodes, ax=ax, shrink=0.75, label=f"ε {label}").outline.set_visible(False)
    elif epsilon.size and epsilon.max() > 0:
        numbers += f"; ε = {epsilon_text(epsilon.max())}{' each' if m > 1 else ''} {label}"
    # Bright agents have the largest ε.
    bright = (epsilon - epsilon.min()) / np.ptp(epsilon) > 0.6 if differs else np.zeros(m, dtype=bool)
    names = [cut_name(str(name)) for name in graph.get("labels") or ()]
    fits = len(names) == m and m * max(map(len, names)) <= _MOST_LETTERS
    for agent, place in enumerate(positions if m <= _NUMBERED_AGENTS else ()):
        ink = "black" if bright[agent] else "white"
        ax.text(float(place[0]), float(place[1]), str(agent), color=ink, ha="center", va="center", zorder=4)
        if fits and names[agent] != str(agent):
            below: dict[str, Any] = {"xytext": (0, -10), "textcoords": "offset points", "ha": "center", "va": "top"}
            ax.annotate(names[agent], (float(place[0]), float(place[1])), zorder=5, **below)
    # As wide as the figure, so that the title has room.
    middle, (wide, high) = (positions.min(axis=0) + positions.max(axis=0)) / 2, 0.56 * np.ptp(positions, axis=0) + 1e-9
    wide, high = max(wide, 1.55 * high), max(wide / 1.55, high)
    ax.set(xlim=(middle[0] - wide, middle[0] + wide), ylim=(middle[1] - high, middle[1] + high), aspect="equal")
    style.title(ax, capitalise(topology_name(graph)) + numbers)
    return True


def circle(m: int) -> Array:
    """Return positions (m, 2) on a circle, in the order of the agents."""
    angles = 2.0 * np.pi * np.arange(m) / m
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def layout(m: int, edges: NDArray[np.int64]) -> Array:
    """Compute positions (m, 2) with distances close to hop counts; a disconnected graph is drawn on a circle.

    Kamada & Kawai, "An algorithm for drawing general undirected graphs", Information Processing Letters 31 (1989).
    """
    # Slow to import, and only figures of graphs need it.
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(m))
    graph.add_edges_from(edges.tolist())
    if not nx.is_connected(graph):
        return circle(m)
    places = nx.kamada_kawai_layout(graph)
    return np.array([places[agent] for agent in range(m)], dtype=np.float64)


# Inches, narrow enough to be read on a telephone.
SIZE = (4.2, 3.1)
Draw = Callable[["Figure", Report], bool]


FIGURES: Mapping[str, Draw] = {
    **{name: partial(draw_metrics, name) for name in METRICS},
    "utility": utility,
    "upper_variable": upper_variable,
    "epsilon": epsilon,
    "topology": topology,
}


def write_plots(folder: Path, formats: Sequence[style.Format] = (), report: Report | None = None) -> list[Path]:
    """Draw all figures of a run into `folder/plots`, and return their paths.

    Figures without numbers are removed.

    Args:
        folder: folder of the run.
        formats: formats of further files. The page shows the SVG files.
        report: report of the run; by default it is read from the folder.

    Raises:
        InputError: `folder` has no readable result.json.
    """
    report = read_report(folder) if report is None else report
    own(folder / "plots", folder, "report").mkdir(exist_ok=True)
    paths = []
    with style.package_style():
        for name, draw in FIGURES.items():
            figure = style.new_figure(*SIZE)
            endings = ("svg", *formats) if draw(figure, report) else ()
            paths += style.write_figure(figure, folder / "plots" / name, endings, mode_of(folder))
    return paths


@dataclass(frozen=True)
class Picture:
    """Figure that notebooks show.

    Args:
        figure: matplotlib figure.
    """

    figure: Figure

    def save(self, path: str | Path) -> Path:
        """Write the figure to a file that ends in .png, .svg or .pdf, and return its path."""
        with style.package_style():
            self.figure.savefig(path)
        return Path(path)

    @property
    def svg(self) -> bytes:
        """Content of the SVG file."""
        with style.package_style():
            return style.picture_of(self.figure)

    def _repr_png_(self) -> bytes:
        with style.package_style():
            return style.picture_of(self.figure, "png")


def draw(name: str, report: Report) -> Picture | None:
    """Draw a figure of a run; return None if the run has no numbers for it.

    Args:
        name: key of `FIGURES`.
        report: report of the run.
    """
    with style.package_style():
        figure = style.new_figure(*SIZE)
        return Picture(figure) if FIGURES[name](figure, report) else None
