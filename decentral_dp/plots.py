"""Figures of a run folder, one PNG each; a figure whose numbers are missing is not drawn.

The only place that imports matplotlib, and only when something is drawn. Figures are made without pyplot and inside an
rc context, so neither the caller's settings nor his backend change. Curves and ledger are read from the run folder:
they show the simulator's view, not what an adversary sees.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist

from decentral_dp.privacy.sensitivity import Array
from decentral_dp.report import (
    capitalised,
    delta_text,
    epsilon_text,
    number,
    power_text,
    read_result,
    read_scenario,
    topology_name,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: distinct under every common colour-vision deficiency, and in grey.
BLUE, VERMILLION, GREEN, ORANGE, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#555555"
CHANNEL_COLOURS = {"x": BLUE, "y": VERMILLION, "z": GREEN}
STYLE: Mapping[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "figure.constrained_layout.w_pad": 0.09,
    "figure.constrained_layout.h_pad": 0.09,
    "lines.markersize": 3.5,
    # Names come from the user: a dollar sign in one must not start a formula.
    "text.parse_math": False,
    "savefig.dpi": 220,
}
OVERFLOW = 1e100  # Beyond this a curve is drawn as overflown: axes in float64 cannot hold it.
DRAWN_ROUNDS = 120
DRAWN_AGENTS = 1000
NUMBERED_AGENTS = 30


class Drawing(NamedTuple):
    """What the figures are drawn from. limits: ε that the scenario aims at ("target") or must not pass ("cap")."""

    result: Mapping[str, Any]
    metrics: pd.DataFrame
    ledger: pd.DataFrame
    limits: Mapping[str, float]


class Curve(NamedTuple):
    """A metric over rounds: mean, lowest and highest over agents; NaN where one overflowed, first at `overflow`."""

    rounds: Array
    mean: Array
    low: Array
    high: Array
    overflow: int | None

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last finite mean."""
        finite = self.mean[np.isfinite(self.mean)]
        return (float(finite[0]), float(finite[-1])) if finite.size else (math.nan, math.nan)


def write_plots(folder: Path) -> list[Path]:
    """Draw every figure that the run folder has numbers for into `folder/plots`, and return the paths.

    A figure of an earlier run that this run has no numbers for is removed. Raises InputError where `folder` holds no
    readable result.json.
    """
    # matplotlib is slow to import and only this function needs it.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = read_drawing(folder)
    (folder / "plots").mkdir(exist_ok=True)
    written = []
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        for name, draw in FIGURES.items():
            path = folder / "plots" / f"{name}.png"
            figure = Figure(figsize=(5.6, 3.5), layout="constrained")
            FigureCanvasAgg(figure)
            if draw(figure, drawing):
                figure.savefig(path, metadata={"Software": None})
                written.append(path)
            else:
                path.unlink(missing_ok=True)
    return written


def read_drawing(folder: Path) -> Drawing:
    """What `write_plots` draws. Raises InputError where `folder` holds no readable result.json."""
    result = read_result(folder)
    stated = {"target": read_scenario(folder).get("privacy", {}).get("epsilon"), **(result.get("privacy") or {})}
    limits = {name: value for name in ("target", "cap") if (value := number(stated.get(name))) is not None}
    return Drawing(result, _read_metrics(folder), _read_ledger(folder, result), limits)


def _read_metrics(folder: Path) -> pd.DataFrame:
    path = folder / "metrics.parquet"
    frame = pd.read_parquet(path) if path.exists() else pd.DataFrame()
    return frame if "value" in frame else pd.DataFrame({"round": [], "agent": [], "name": [], "value": []})


def _read_ledger(folder: Path, result: Mapping[str, Any]) -> pd.DataFrame:
    """The ledger at no more than DRAWN_ROUNDS rounds, evenly spaced on a log axis."""
    path = folder / "ledger.parquet"
    if not path.exists():
        return pd.DataFrame()
    last = max(1, int(result.get("rounds", 0)), int(result.get("rounds_planned", 0)))
    keep = np.unique(np.geomspace(1, last, DRAWN_ROUNDS).round().astype(int))
    try:
        return pd.read_parquet(path, filters=[("round", "in", keep.tolist())])
    except ValueError:  # A run without any release has a ledger without columns; arrow's errors are ValueErrors.
        return pd.DataFrame()


def curve(metrics: pd.DataFrame, name: str) -> Curve | None:
    """The metric over rounds, its band from `…_min`/`…_max` or else from rows per agent; None if it is missing."""
    mean = _by_round(metrics, name)
    rows = metrics[(metrics["name"] == name) & (metrics["agent"] != "mean")].groupby("round")["value"]
    if mean.empty:
        mean = rows.mean()
    if mean.empty:
        return None
    stem, last = (name.removesuffix("_last"), "_last") if name.endswith("_last") else (name, "")
    band = []
    for side, spread in (("min", rows.min()), ("max", rows.max())):
        named = [_by_round(metrics, f"{name}_{side}"), _by_round(metrics, f"{stem}_{side}{last}")]
        found = next((s for s in [*named, spread] if not s.empty), mean)
        band.append(found.reindex(mean.index).to_numpy(dtype=np.float64))
    rounds, values = mean.index.to_numpy(dtype=np.float64), mean.to_numpy(dtype=np.float64)
    drawable = [np.where(np.abs(v) < OVERFLOW, v, np.nan) for v in (values, *band)]
    bad = rounds[~np.isfinite(drawable[0])]
    return Curve(rounds, drawable[0], drawable[1], drawable[2], int(bad[0]) if bad.size else None)


def _by_round(metrics: pd.DataFrame, name: str) -> pd.Series[float]:
    return metrics[(metrics["name"] == name) & (metrics["agent"] == "mean")].groupby("round")["value"].last()


def _draw_curves(ax: Axes, curves: Mapping[str, tuple[Curve, str, str]]) -> None:
    """Draw label → (curve, colour, line style): mean as a line, lowest to highest agent as a band."""
    from matplotlib.ticker import MaxNLocator

    for label, (c, colour, style) in curves.items():
        marker = "o" if c.rounds.size <= 25 else None
        ax.fill_between(c.rounds, c.low, c.high, color=colour, alpha=0.16, linewidth=0)
        ax.plot(c.rounds, c.mean, style, color=colour, marker=marker, label=label)
    broken = [c.overflow for c, *_ in curves.values() if c.overflow is not None]
    if broken:
        ax.axvline(min(broken), color=GREY, linestyle=":", linewidth=1.2)
        note = f" overflow from round {min(broken)} "
        ax.annotate(note, (min(broken), 0.97), xycoords=("data", "axes fraction"), color=GREY, ha="right", va="top")
    ax.set_xlabel("round")
    first, last = min(c.rounds[0] for c, *_ in curves.values()), max(c.rounds[-1] for c, *_ in curves.values())
    ax.set_xlim(first - 0.02 * (last - first + 1), last + 0.02 * (last - first + 1))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10]))
    if len(curves) > 1:
        ax.legend(loc="best")


def _log_axis(ax: Axes, which: str, values: Array | Sequence[float]) -> None:
    """Make the x or y axis logarithmic over `values`, at least one decade long, with labels that can be read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    positive = [v for v in np.ravel(values) if np.isfinite(v) and v > 0] or [1.0]
    low, high = float(min(positive)), float(max(positive))
    widen = max(1.2, math.sqrt(10.0 / (high / low)))
    limits = low / widen, high * widen
    if which == "x":
        axis: Any = ax.xaxis
        ax.set_xscale("log")
        ax.set_xlim(limits)
    else:
        axis = ax.yaxis
        # A zero is left out: a line that falls to it would look like a measured collapse.
        ax.set_yscale("log", nonpositive="mask")
        ax.set_ylim(limits)
    dense = high / low * widen**2 < 200
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if dense else (1.0,), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_text(value)))
    axis.set_minor_formatter(NullFormatter())


def _title(ax: Axes, text: str) -> None:
    ax.set_title(textwrap.fill(text, 60), loc="left")


def _change(name: str, c: Curve) -> str:
    """What a curve did, in words."""
    first, last = c.ends
    if c.overflow is not None:
        return f"{name} overflows at round {c.overflow}"
    if abs(last - first) <= 0.01 * abs(first):
        return f"{name} stays at {last:.3g}"
    return f"{name} {'falls' if last < first else 'rises'} from {first:.3g} to {last:.3g}"


def _losses(figure: Figure, d: Drawing) -> bool:
    named = (
        ("upper loss (validation)", "upper_loss", BLUE),
        ("lower loss (train)", "lower_loss", VERMILLION),
        ("test loss (held out)", "test_loss", GREEN),
    )
    curves = {label: (c, colour, "-") for label, name, colour in named if (c := curve(d.metrics, name))}
    if not curves:
        return False
    ax = figure.subplots()
    _draw_curves(ax, curves)
    drawn = np.concatenate([np.concatenate([c.mean, c.low, c.high]) for c, *_ in curves.values()])
    drawn = drawn[np.isfinite(drawn)]
    if drawn.size and drawn.min() > 0 and drawn.max() > 30 * drawn.min():
        _log_axis(ax, "y", drawn)
    ax.set_ylabel("loss, mean over agents")
    label, (first, *_) = next(iter(curves.items()))
    _title(ax, _change(label.split(" (")[0].capitalize(), first))
    return True


def _accuracy(figure: Figure, d: Drawing) -> bool:
    main, last = curve(d.metrics, "test_accuracy"), curve(d.metrics, "test_accuracy_last")
    if main is None:
        return False
    ax = figure.subplots()
    curves = {"last released values": (last, ORANGE, "--")} if last else {}
    curves[str(d.result.get("evaluated_on") or "test accuracy")] = (main, BLUE, "-")
    _draw_curves(ax, curves)
    ax.set_ylabel("accuracy on held-out records (share)")
    ax.set_ylim(top=min(1.0, ax.get_ylim()[1]))
    spread = f" (agents {main.low[-1]:.2f} to {main.high[-1]:.2f})" if main.high[-1] > main.low[-1] else ""
    _title(ax, f"Final held-out accuracy {main.ends[1]:.2f}{spread}")
    return True


def _hypergradient(figure: Figure, d: Drawing) -> bool:
    c = curve(d.metrics, "hypergradient_norm")
    if c is None:
        return False
    ax = figure.subplots()
    _draw_curves(ax, {"hypergradient": (c, BLUE, "-")})
    if np.any(c.mean > 0):
        _log_axis(ax, "y", np.concatenate([c.mean, c.low, c.high]))
    ax.set_ylabel("‖∇F‖₂ at the average x")
    _title(ax, _change("Hypergradient norm", c))
    return True


def _consensus(figure: Figure, d: Drawing) -> bool:
    found = {name: curve(d.metrics, f"consensus_{name}") for name in CHANNEL_COLOURS}
    curves = {name: (c, CHANNEL_COLOURS[name], "-") for name, c in found.items() if c and np.any(c.mean > 0)}
    if not curves:
        return False
    ax = figure.subplots()
    _draw_curves(ax, curves)
    _log_axis(ax, "y", np.concatenate([np.concatenate([c.mean, c.low, c.high]) for c, *_ in curves.values()]))
    ax.set_ylabel("distance to the network average (ℓ2)")
    ends = ", ".join(f"{c.ends[1]:.2g} ({name})" for name, (c, *_) in curves.items())
    broken = any(c.overflow is not None for c, *_ in curves.values())
    _title(ax, "Consensus breaks: distances overflow" if broken else f"Final distance to the average: {ends}")
    return True


def _epsilon(figure: Figure, d: Drawing) -> bool:
    """Certified ε spent by the worst agent, beside target, cap and the paper's claim."""
    spent, privacy = curve(d.metrics, "epsilon_spent"), d.result.get("privacy") or {}
    claimed = number((privacy.get("claimed") or {}).get("epsilon_max"))
    certified = number(privacy.get("epsilon_max"))
    if privacy.get("guarantee") == "none" or certified is None:
        return False
    proven = spent is not None and bool(np.any(spent.mean > 0))
    levels = [(value, GREY, "--", name) for name, value in d.limits.items() if 0 < value < math.inf]
    if claimed is not None and 0 < claimed < math.inf:
        levels.append((claimed, VERMILLION, ":", "claimed by the paper, not certified"))
    if not proven and not levels:
        return False
    ax = figure.subplots()
    values = [value for value, *_ in levels]
    if proven and spent is not None:
        _draw_curves(ax, {"certified": (spent, BLUE, "-")})
        values += [v for v in spent.mean if v > 0]
    else:
        ax.set_xticks([])
        ax.set_xlabel("every round")
        ax.text(0.5, 0.5, "certified ε is ∞ from the first release", transform=ax.transAxes, ha="center", color=BLUE)
    _log_axis(ax, "y", values)
    for value, colour, style, label in levels:
        ax.axhline(value, color=colour, linestyle=style, linewidth=1.4)
        text, frame = f"{label}: {epsilon_text(value)}", ("axes fraction", "data")
        ax.annotate(text, (0.01, value), xycoords=frame, xytext=(0, 3), textcoords="offset points", color=colour)
    ax.set_ylabel(f"ε spent by the worst agent, δ = {delta_text(number(privacy.get('delta')))}")
    end = f"Certified ε per agent reaches {epsilon_text(certified)}" if proven else "Certified ε is ∞"
    _title(ax, end + (f"; the printed formula claims {epsilon_text(claimed)}" if claimed is not None else ""))
    return True


def _noise(figure: Figure, d: Drawing) -> bool:
    """Noise scale of every channel, and how far one replaced record can move the release that it hides."""
    if "scale" not in d.ledger:
        return False
    rows = d.ledger[(d.ledger["scale"] > 0) & ~d.ledger["mechanism"].isin(["free", "none"])]
    if rows.empty:
        return False
    left, right = figure.subplots(1, 2, sharex=True)
    unbounded = sorted({str(c) for c in rows.loc[~np.isfinite(rows["sensitivity"]), "channel"]})
    laplace = bool((rows["mechanism"] == "laplace").any())
    for channel, part in rows.groupby("channel", observed=True):
        colour = CHANNEL_COLOURS.get(str(channel), PINK)
        _ledger_line(left, part.groupby("round")["scale"], str(channel), colour, "-")
        left.lines[-1].set(linewidth=4.2 - 1.2 * min(len(left.lines), 3), zorder=2 + 0.1 * len(left.lines))
        for kind, of_kind in part.groupby("records", observed=True):
            drawable = of_kind[(of_kind["sensitivity"] > 0) & np.isfinite(of_kind["sensitivity"])]
            if not drawable.empty:
                style = "-" if kind == "train" else "--"
                _ledger_line(right, drawable.groupby("round")["sensitivity"], f"{channel}, {kind}", colour, style)
    _log_axis(left, "x", rows["round"].to_numpy(dtype=np.float64))
    _log_axis(left, "y", rows["scale"].to_numpy())
    _log_axis(right, "y", rows["sensitivity"].to_numpy())
    left.set_ylabel("noise: Laplace scale b" if laplace else "noise: standard deviation")
    right.set_ylabel(f"sensitivity to one replaced record ({'ℓ1' if laplace else 'ℓ2'})")
    for ax in (left, right):
        ax.set_xlabel("index of the release")
        if ax.lines:
            ax.legend(loc="best")
        else:
            ax.tick_params(axis="y", which="both", left=False, labelleft=False)
            ax.text(0.5, 0.5, "∞", transform=ax.transAxes, ha="center", va="center", fontsize=28, color=GREY)
    ratio = (rows["scale"] / rows["sensitivity"])[rows["sensitivity"] > 0]
    if unbounded:
        message = f"Nothing bounds what one record can do to {', '.join(unbounded)}: no noise can be enough"
    else:
        low, high = (power_text(float(f"{r:.2g}")) for r in (ratio.min(), ratio.max()))
        message = f"Noise is {low} to {high} times what one replaced record can move"
    figure.suptitle(textwrap.fill(message, 64), x=0.02, ha="left", fontsize=10.5, fontweight="bold")
    return True


def _ledger_line(ax: Axes, by_round: Any, label: str, colour: str, style: str) -> None:
    middle, low, high = by_round.median(), by_round.min(), by_round.max()
    ax.fill_between(middle.index, low, high, color=colour, alpha=0.16, linewidth=0)
    ax.plot(middle.index, middle, style, color=colour, marker="o" if middle.size <= 25 else None, label=label)


def _topology(figure: Figure, d: Drawing) -> bool:
    from matplotlib.collections import LineCollection

    graph = d.result.get("topology") or {}
    m = int(graph.get("agents") or 0)
    if not 1 <= m <= DRAWN_AGENTS:
        return False
    edges = np.asarray([e[:2] for e in graph.get("edges") or []], dtype=np.int64).reshape(-1, 2)
    at, (values, label) = layout(m, edges), _node_values(d.result, m)
    ax = figure.subplots()
    ax.set_axis_off()
    faint = min(0.7, 400 / (len(edges) + 1))
    ax.add_collection(LineCollection(list(at[edges]), colors=GREY, linewidths=1.1, alpha=faint))
    size, rim = float(np.clip(9000 / m, 6, 330)), 0.8 if m <= 200 else 0.2
    nodes = ax.scatter(at[:, 0], at[:, 1], s=size, c=values if values is not None else BLUE, linewidths=rim, zorder=3)
    nodes.set_cmap("cividis")
    nodes.set_edgecolor("white")
    shade = np.zeros(m)
    if values is not None:
        shade = (values - values.min()) / np.ptp(values)
        bar = figure.colorbar(nodes, ax=ax, shrink=0.75, label=label)
        bar.outline.set_visible(False)
    for agent in range(m if m <= NUMBERED_AGENTS else 0):
        ink = "black" if shade[agent] > 0.6 else "white"
        ax.text(at[agent, 0], at[agent, 1], str(agent), color=ink, ha="center", va="center", fontsize=8, zorder=4)
    centre, (half_width, half_height) = (at.min(axis=0) + at.max(axis=0)) / 2, 0.56 * np.ptp(at, axis=0) + 1e-9
    # As wide as the figure, so that the title has room: a path is flat, a ring is square.
    wide, high = max(half_width, 1.55 * half_height), max(half_width / 1.55, half_height)
    ax.set_xlim(centre[0] - wide, centre[0] + wide)
    ax.set_ylim(centre[1] - high, centre[1] + high)
    ax.set_aspect("equal")
    rho = number(graph.get("rho"))
    numbers = f": ρ = {rho:.3f}" if rho is not None else ""
    _title(ax, capitalised(topology_name(graph)) + numbers + (f"; {label}" if values is None and label else ""))
    return True


def _node_values(result: Mapping[str, Any], m: int) -> tuple[Array | None, str]:
    """ε of every agent where it differs, else |w_ii| where that does, else None; and what it is."""
    agents = (result.get("privacy") or {}).get("agents") or []
    epsilon = np.asarray([number(a.get("epsilon")) or 0.0 for a in agents])
    weight = np.asarray([number(w) or 0.0 for w in (result.get("topology") or {}).get("self_weight") or []])
    for values, label in ((epsilon, "certified ε"), (weight, "self weight |w_ii|")):
        if values.size == m and np.all(np.isfinite(values)) and np.ptp(values) > 1e-3 * np.abs(values).max():
            return values, label
    return None, f"ε = {epsilon_text(epsilon.max())} each" if epsilon.size and epsilon.max() > 0 else ""


def layout(m: int, edges: NDArray[np.int64]) -> Array:
    """(m, 2) places whose distances come close to the hop counts of the graph, by stress majorisation.

    Minimises Σ_{i<j} (‖u_i − u_j‖ − h_ij)² / h_ij² from the classical scaling of the hop counts h (Gansner, Koren &
    North, Graph Drawing 2004). Deterministic; a complete graph, whose hop counts are all one, is put on a circle.
    """
    angle = 2 * np.pi * np.arange(m) / m
    circle = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    if m < 4 or len(edges) >= m * (m - 1) // 2:
        return circle
    ones = np.ones(len(edges))
    hops = shortest_path(coo_array((ones, (edges[:, 0], edges[:, 1])), shape=(m, m)), directed=False, unweighted=True)
    hops = np.where(np.isfinite(hops), hops, hops[np.isfinite(hops)].max() + 1)
    square = hops**2
    centred = -0.5 * (square - square.mean(0) - square.mean(1)[:, None] + square.mean())
    values, vectors = np.linalg.eigh(centred)
    # A star or hypercube scales to coinciding points, from which majorisation cannot part them: hence a little circle.
    at: Array = vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0.0)) + 0.05 * circle
    np.fill_diagonal(hops, 1.0)
    weight = hops**-2.0
    np.fill_diagonal(weight, 0.0)
    laplacian = np.diag(weight.sum(1)) - weight
    if values[-2] > 0.99 * values[-1]:  # No direction is longer than another, so put agent 0 on top.
        u, v = at[0] / max(float(np.linalg.norm(at[0])), 1e-9)
        at = at @ np.array([[v, u], [-u, v]])
    factor = cho_factor(laplacian + 1.0 / m)
    for _ in range(max(20, 60 - m // 10)):
        gaps = cdist(at, at)
        pull = weight * hops / np.maximum(gaps, 1e-9)
        at = cho_solve(factor, pull.sum(1)[:, None] * at - pull @ at)
    return at


FIGURES: Mapping[str, Callable[[Figure, Drawing], bool]] = {
    "losses": _losses,
    "accuracy": _accuracy,
    "hypergradient": _hypergradient,
    "consensus": _consensus,
    "epsilon": _epsilon,
    "noise": _noise,
    "topology": _topology,
}
