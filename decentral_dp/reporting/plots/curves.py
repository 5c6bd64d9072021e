"""Figures of a run: its metrics and ε over rounds, its noise, and the published x."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pandas as pd

from decentral_dp.formatting import capitalise, delta_text, epsilon_text, power_text, spans
from decentral_dp.reporting.folder import OVERFLOW, Drawing, curve
from decentral_dp.reporting.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lines that coincide let those below them be seen.
_DASHES = ("-", "-", "--", "-.", ":")


class Metrics(NamedTuple):
    """A figure of metrics over rounds.

    Args:
        axis: label of the y axis.
        scale: of the y axis: "log", "share" (at most 1, never stretched), or by its values.
        labels: metric → its label; a metric that a run has not measured is left out.
    """

    axis: str
    scale: Literal["values", "log", "share"]
    labels: Mapping[str, str]


METRICS: Mapping[str, Metrics] = {
    "losses": Metrics(
        "loss",
        "values",
        {
            "upper_loss": "upper loss (validation)",
            "lower_loss": "lower loss (train)",
            "test_loss": "test loss (held out)",
            "test_robust_loss": "robust loss (held out)",
            "test_mspbe": "MSPBE (held out)",
            "test_distance": "distance to held-out records",
        },
    ),
    "accuracy": Metrics(
        "score on held-out records",
        "share",
        {
            "test_accuracy": "accuracy",
            "test_auc": "AUC",
            "test_f1": "F1",
            "test_accuracy_last": "accuracy of the last released values",
            "test_worst_class_accuracy": "accuracy on the worst class",
            "test_critic_auc": "AUC of a fresh critic",
        },
    ),
    "explained": Metrics("R² on held-out records", "share", {"test_r2": "R²"}),
    "hypergradient": Metrics(
        "‖∇F(x)‖₂",
        "log",
        {"hypergradient_norm": "hypergradient norm", "hypergradient_gap": "its distance to that on held-out records"},
    ),
    "consensus": Metrics(
        "distance to the network average (ℓ2)",
        "log",
        {f"consensus_{channel}": f"consensus error of {channel}" for channel in "xyz"},
    ),
    "primal": Metrics("Φ(x) on the train records", "values", {"primal": "Φ"}),
    "gradient": Metrics("‖∇Φ(x)‖₂ on the train records", "log", {"gradient_norm": "gradient norm"}),
}


def metrics_figure(name: str) -> Callable[[Figure, Drawing], bool]:
    """Return what draws a figure of `METRICS`, and returns False if the run measured none of its metrics."""
    axis, scale, labels = METRICS[name]

    def draw(figure: Figure, d: Drawing) -> bool:
        curves = {}
        for k, (metric, label) in enumerate(labels.items()):
            # Where x is not tuned, it stays what it was.
            if not d.result.tunes_x and metric.startswith(("upper_loss", "hypergradient")):
                continue
            if metric == "lower_loss" and d.result.is_one_level:
                label = "train loss"
            c = d.score(metric) or curve(d.metrics, metric)
            if c is not None and (np.any(c.mean > 0) if scale == "log" else np.isfinite(c.mean).any()):
                curves[label] = (c, style.SERIES_COLOURS[k], _DASHES[k % len(_DASHES)])
        if not curves:
            return False
        ax = figure.subplots()
        style.draw_curves(ax, curves)
        ax.set_ylabel(f"{axis}, exact lower solution" if d.result.solves_lower else axis)
        (label, (first, *_)), *_ = curves.items()
        style.title(ax, style.change(label if label[1:2].isupper() else capitalise(label), first))
        values = np.concatenate([part for c, *_ in curves.values() for part in (c.mean, c.low, c.high)])
        if scale == "log":
            style.log_axis(ax, "y", values)
        elif scale == "values":
            style.value_axis(ax, values)
        else:
            style.flat_axis(ax, values)
            # Early R² may be far below 0, where one value says as much as another; the last one is always seen.
            low, high = ax.get_ylim()
            lowest = min(float(c.low[-1]) for c, *_ in curves.values())
            ax.set_ylim(max(low, min(-1.0, 1.1 * lowest)), min(high, 1.005))
        return True

    return draw


def epsilon(figure: Figure, d: Drawing) -> bool:
    """Certified ε spent by the worst agent, with target, cap and the paper's claim.

    False if nothing is spent, no axis can hold it, or all is spent in one round.
    """
    spent, privacy = curve(d.metrics, "epsilon_spent"), d.result.privacy
    if not privacy.is_noisy or spent is None or not np.any(spent.mean > 0) or spent.rounds[-1] <= 1:
        return False
    ax = figure.subplots()
    claim = {"claimed by the paper, not certified": privacy.claimed_epsilon or 0.0}
    levels = {name: value for name, value in (d.limits | claim).items() if 0 < value < math.inf}
    for (name, value), dash in zip(levels.items(), ("--", "-.", ":"), strict=False):
        colour = style.VERMILLION if name in claim else style.GREY
        ax.axhline(value, color=colour, linestyle=dash, label=f"{name}: {epsilon_text(value)}")
    style.draw_curves(ax, {privacy.certainty: (spent, style.BLUE, "-")})
    style.log_axis(ax, "y", [*levels.values(), *spent.mean])
    ax.set_ylabel(f"ε spent{'' if d.is_trusted else ' by the worst agent'}, δ\u00a0=\u00a0{delta_text(privacy.delta)}")
    word = "Provable" if privacy.guarantee == "as_published" else "Certified"
    planned = " by the end of the plan" if d.result.has_diverged else ""
    style.title(ax, f"{word} ε per agent reaches {epsilon_text(privacy.epsilon_max)}{planned}")
    return True


_DRAWN_COORDINATES = 100
# So many coordinates have their names below the axis, where features name them.
_NAMED_COORDINATES = 40
# Inches that these names take below the axis, of which a figure has half anyway.
_NAMES_BELOW = 0.9


def upper_variable(figure: Figure, d: Drawing) -> bool:
    """The published x per coordinate: mean over agents, lowest to highest, and its start; False if x is not tuned."""
    from matplotlib.ticker import MaxNLocator

    if not d.result.tunes_x or d.x is None or not np.all(np.abs(d.x) < OVERFLOW):
        return False
    # The page lists the only number of a coordinator.
    if d.x.size == 1 or not 0 < d.x.shape[1] <= _DRAWN_COORDINATES:
        return False
    ax = figure.subplots()
    index, mean = np.arange(d.x.shape[1]), d.x.mean(axis=0)
    ax.vlines(index, d.x.min(axis=0), d.x.max(axis=0), color=style.BLUE, alpha=0.35, linewidth=3.0)
    ax.plot(index, mean, "o", color=style.BLUE, markersize=4.0)
    values, started = d.x, ""
    if d.start is not None:
        ax.axhline(d.start, color=style.GREY, linestyle="--", linewidth=1.2, zorder=1)
        values, started = np.append(values, d.start), f"; it started at {d.start:.3g}"
    style.flat_axis(ax, values)
    ax.grid(visible=False, axis="x")
    ax.set_xlim(-0.7, index.size - 0.3)
    names = [str(name) for name in d.result.problem.get("x_names") or ()]
    if len(names) == index.size <= _NAMED_COORDINATES:
        figure.set_figheight(figure.get_figheight() + _NAMES_BELOW)
        ax.set_xticks(index, [textwrap.shorten(name, 24, placeholder="…") for name in names], rotation=90, fontsize=7.5)
        ax.set_xlabel("feature whose strength x is the logarithm of")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
        ax.set_xlabel("coordinate of x")
    ax.set_ylabel("published x")
    ends = f"x ends between {mean.min():.3g} and {mean.max():.3g}" if mean.size > 1 else f"x ends at {mean[0]:.3g}"
    style.title(ax, f"{ends}{started}".replace("-", "−"))
    return True


def noise(figure: Figure, d: Drawing) -> bool:
    """Noise scale of every channel, and how far one replaced record can move the release that it hides."""
    if "scale" not in d.ledger:
        return False
    columns = ("channel", "round", "release", "mechanism", "records", "scale", "sensitivity")
    rows = pd.DataFrame({name: np.asarray(d.ledger[name]) for name in columns})
    rows = rows[(rows["scale"] > 0) & ~rows["mechanism"].isin(["free", "none", "uncertified"])]
    # One release of a coordinator is a line of the page.
    if rows.empty or (d.is_trusted and np.unique(rows["release"]).size == 1):
        return False
    left, right = figure.subplots(1, 2, sharex=True)
    moving = rows[(rows["sensitivity"] > 0) & np.isfinite(rows["sensitivity"])]
    colours = dict(zip("xyz", style.SERIES_COLOURS, strict=False))
    others = (channel for channel in dict.fromkeys(rows["channel"]) if channel not in colours)
    colours |= dict(zip(others, itertools.cycle(style.OTHER_COLOURS), strict=False))
    for channel, part in rows.groupby("channel", sort=False):
        _draw_range(left, part, "scale", str(channel), colours[str(channel)], "-")
    for (channel, kind), part in moving.groupby(["channel", "records"], sort=False):
        dash = "--" if kind == "validation" else "-"
        _draw_range(right, part, "sensitivity", f"{channel}, {kind}", colours[channel], dash)
    style.log_axis(left, "x", rows["round"].to_numpy(), narrow=True)
    style.log_axis(left, "y", rows["scale"].to_numpy())
    style.log_axis(right, "y", rows["sensitivity"].to_numpy())
    left.set_ylabel("scale of the noise")
    right.set_ylabel("sensitivity")
    for ax in (left, right):
        ax.set_xlabel("round")
    figure.legend(handles=[*right.lines] or [*left.lines], loc="outside lower center", ncols=3)
    unbounded = [*dict.fromkeys(rows.loc[np.isinf(rows["sensitivity"]), "channel"])]
    message = f"Nothing bounds the sensitivity of {', '.join(spans(unbounded, least=3))}"
    if not unbounded and not moving.empty:
        ratio = moving["scale"] / moving["sensitivity"]
        if d.is_trusted:  # One number for all kinds of records, by the one that can do most.
            ratio = ratio.groupby([moving["channel"], moving["release"]]).min()
        low, high = (power_text(float(f"{r:.2g}")) for r in (ratio.min(), ratio.max()))
        message = f"Noise is {low if low == high else f'{low} to {high}'} times the sensitivity"
    figure.suptitle(message, x=0.02, ha="left", fontsize=10.5, fontweight="bold", wrap=True)
    return True


def _draw_range(ax: Axes, rows: pd.DataFrame, name: str, label: str, colour: str, dash: str) -> None:
    """Draw a column over rounds: its median as a line, least to largest as a band."""
    of = rows.groupby("round")[name].agg(["median", "min", "max"])
    ax.fill_between(of.index, of["min"], of["max"], color=colour, alpha=0.16, linewidth=0)
    ax.plot(of.index, of["median"], dash, color=colour, marker="o" if len(of) <= 25 else None, label=label)
