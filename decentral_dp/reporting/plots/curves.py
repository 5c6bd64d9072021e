"""Figures of a run: its metrics and ε over rounds, its noise, and the published x."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from decentral_dp.bounded import Array
from decentral_dp.formatting import capitalise, delta_text, epsilon_text, power_text, spans
from decentral_dp.reporting.folder import OVERFLOW, Curve, Drawing, curve
from decentral_dp.reporting.plots import style
from decentral_dp.reporting.plots.style import BLUE, CHANNEL_COLOURS, GREY, OTHER_COLOURS, flat_axis, log_axis, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Shares that differ by less lie on one line.
_VISIBLE = 0.003


class Level(NamedTuple):
    """A budget that does not change over rounds, drawn as a horizontal line."""

    value: float
    colour: str
    style: str
    name: str


def _all_values(curves: Iterable[Curve]) -> Array:
    return np.concatenate([part for c in curves for part in (c.mean, c.low, c.high)])


def losses(figure: Figure, d: Drawing) -> bool:
    """Losses on train, validation and held-out records, by round; False where none was measured."""
    upper = (("upper loss (validation)", "upper_loss", style.BLUE),) if d.result.tunes_x else ()
    named = (
        *upper,
        ("train loss" if d.result.is_one_level else "lower loss (train)", "lower_loss", style.VERMILLION),
        ("test loss (held out)", "test_loss", style.GREEN),
    )
    curves = {label: (c, colour, "-") for label, name, colour in named if (c := d.score(name))}
    if not curves:
        return False
    label, (first, *_) = next(iter(curves.items()))
    axis = (
        "loss of the exact lower solution"
        if d.result.solves_lower
        else ("loss" if d.is_trusted else "loss, mean over agents")
    )
    ax = _draw_panel(figure, curves, axis, style.change(label.split(" (")[0].capitalize(), first))
    style.value_axis(ax, _all_values(c for c, *_ in curves.values()))
    return True


def accuracy(figure: Figure, d: Drawing) -> bool:
    """Share of held-out records that are classified correctly, by round; False where none was measured."""
    main, last = d.score("test_accuracy"), curve(d.metrics, "test_accuracy_last")
    if main is None:
        return False
    # Of two lines that coincide one would hide the other.
    differ = last is not None and bool(np.nanmax(np.abs(last.mean - main.mean), initial=0.0) >= _VISIBLE)
    curves = {"last released values": (last, style.ORANGE, "--")} if last is not None and differ else {}
    curves[d.result.evaluated_on or "test accuracy"] = (main, style.BLUE, "-")
    spread = f" (agents {main.low[-1]:.2f} to\u00a0{main.high[-1]:.2f})" if main.high[-1] > main.low[-1] else ""
    when = f"Held-out accuracy at round {main.rounds[-1]:.0f}:" if d.result.has_diverged else "Final held-out accuracy"
    ax = _draw_panel(figure, curves, f"accuracy {d.score_suffix} (share)", f"{when} {main.ends[1]:.2f}{spread}")
    style.flat_axis(ax, _all_values(c for c, *_ in curves.values()))
    ax.set_ylim(top=min(1.005, ax.get_ylim()[1]))
    return True


def explained(figure: Figure, d: Drawing) -> bool:
    """R² on held-out records of a problem whose labels are numbers."""
    main, error = d.score("test_r2"), d.score("test_rmse")
    if main is None:
        return False
    when = f"Held-out R² at round {main.rounds[-1]:.0f}:" if d.result.has_diverged else "Final held-out R²"
    off = "" if error is None else f", root mean squared error {power_text(error.ends[1])}"
    score = f"{main.ends[1]:.2f}".replace("-", "−")
    label = "mean over agents" if main.high[-1] > main.low[-1] else d.result.evaluated_on
    ax = _draw_panel(figure, {label: (main, style.BLUE, "-")}, f"R² {d.score_suffix}", f"{when} {score}{off}")
    ax.axhline(0.0, color=style.GREY, linewidth=1.0, linestyle=":")
    style.flat_axis(ax, _all_values([main]))
    # Early values may be far below 0, where one of them says as much as another; the last one is always seen.
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, min(-1.0, 1.1 * float(main.low[-1]))), min(max(high, 0.05), 1.005))
    return True


def hypergradient(figure: Figure, d: Drawing) -> bool:
    """Nothing where it stays what it was: the table says that."""
    c, gap = curve(d.metrics, "hypergradient_norm"), curve(d.metrics, "hypergradient_gap")
    if c is None or (gap is None and style.is_constant(c)):
        return False
    curves = {"hypergradient": (c, style.BLUE, "-")}
    if gap is not None:
        curves["its distance to that on held-out records"] = (gap, style.ORANGE, "--")
    ax = _draw_panel(
        figure,
        curves,
        f"‖∇F‖₂ at the {'published' if d.is_trusted else 'average'} x",
        style.change("Hypergradient norm", c),
    )
    if np.any(c.mean > 0):
        style.log_axis(ax, "y", _all_values(of for of, *_ in curves.values()))
    return True


def consensus(figure: Figure, d: Drawing) -> bool:
    """Nothing where no agent ever differs from the average, as with one agent."""
    distances = {name: curve(d.metrics, f"consensus_{name}") for name in style.CHANNEL_COLOURS}
    curves = {name: (c, style.CHANNEL_COLOURS[name], "-") for name, c in distances.items() if c and np.any(c.mean > 0)}
    if not curves:
        return False
    ends = ", ".join(f"{name}\u00a0{power_text(float(f'{c.ends[1]:.2g}'))}" for name, (c, *_) in curves.items())
    broken = any(c.overflow is not None for c, *_ in curves.values())
    title = "Consensus breaks: distances overflow" if broken else f"Final distance to average: {ends}"
    ax = _draw_panel(figure, curves, "distance to the network average (ℓ2)", title)
    style.log_axis(ax, "y", _all_values(c for c, *_ in curves.values()))
    return True


def epsilon(figure: Figure, d: Drawing) -> bool:
    """Certified ε spent by the worst agent, beside target, cap and the paper's claim."""
    spent, privacy = curve(d.metrics, "epsilon_spent"), d.result.privacy
    claimed = privacy.claimed_epsilon
    certified = privacy.epsilon_max
    if not privacy.is_noisy or not certified:
        return False
    proven = spent is not None and bool(np.any(spent.mean > 0))
    levels = [Level(value, style.GREY, "--", name) for name, value in d.limits.items() if 0 < value < math.inf]
    if claimed is not None and 0 < claimed < math.inf:
        levels.append(Level(claimed, style.VERMILLION, ":", "claimed by the paper, not certified"))
    if not proven and not levels:
        return False
    if d.is_trusted and claimed is None and spent is not None and spent.rounds[-1] <= 1:  # All in one round.
        return False
    ax = figure.subplots()
    values = [level.value for level in levels]
    if proven and spent is not None:
        style.draw_curves(ax, {privacy.certainty: (spent, style.BLUE, "-")})
        values += [v for v in spent.mean if v > 0]
    else:
        ax.set_xticks([])
        ax.set_xlabel("every round")
    style.log_axis(ax, "y", values)
    if math.isinf(certified):
        ax.annotate(
            "ε = ∞, above every axis",
            (0.99, 0.98),
            xycoords="axes fraction",
            color=style.BLUE,
            ha="right",
            va="top",
        )
    _draw_levels(ax, levels)
    ax.set_ylabel(f"ε spent{'' if d.is_trusted else ' by the worst agent'}, δ\u00a0=\u00a0{delta_text(privacy.delta)}")
    style.title(ax, _verdict(d, certified, claimed))
    return True


def _verdict(d: Drawing, certified: float, claimed: float | None) -> str:
    word = "Provable" if d.result.privacy.guarantee == "as_published" else "Certified"
    if math.isinf(certified):
        text = f"{word} ε is ∞"
    else:
        planned = " by the end of the plan" if d.result.has_diverged else ""
        text = f"{word} ε per agent reaches {epsilon_text(certified)}{planned}"
    return text + (f"; the published formula claims {epsilon_text(claimed)}" if claimed is not None else "")


def _draw_levels(ax: Axes, levels: Sequence[Level]) -> None:
    """Horizontal lines, named above or, where the next one is close above, below."""
    if not levels:
        return
    low, high = ax.get_ylim()
    room = 0.07 * math.log(high / low)
    ordered = sorted(levels, key=lambda level: level.value)
    for level, above in zip(ordered, [*(o.value for o in ordered[1:]), math.inf], strict=True):
        below = math.log(above / level.value) < room
        ax.axhline(level.value, color=level.colour, linestyle=level.style, linewidth=1.4)
        ax.annotate(
            f"{level.name}: {epsilon_text(level.value)}",
            (0.01, level.value),
            xycoords=("axes fraction", "data"),
            xytext=(0, -3 if below else 3),
            textcoords="offset points",
            va="top" if below else "baseline",
            color=level.colour,
        )


_COLOURS = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE)
_STYLES = ("-", "-", "--", "-.", ":")
# Held-out scores that are shares, in the order in which they are drawn, with how they are called.
SHARES = (
    ("test_auc", "AUC"),
    ("test_accuracy", "accuracy"),
    ("test_f1", "F1"),
    ("test_worst_class_accuracy", "accuracy on the worst class"),
)


def primal(figure: Figure, d: Drawing) -> bool:
    """Φ(x) = max_y F(x, y) by round."""
    c = d.score("primal")
    if c is None or not np.isfinite(c.mean).any():
        return False
    style.value_axis(_draw_curve(figure, c, "Φ", "Φ(x) on the train records", "Φ"), c.mean)
    return True


def gradient(figure: Figure, d: Drawing) -> bool:
    """‖∇Φ(x)‖ on all train records by round."""
    c = d.score("gradient_norm")
    if c is None or not np.any(c.mean > 0):
        return False
    ax = _draw_curve(figure, c, "gradient", "‖∇Φ(x)‖₂ on the train records", "True gradient norm")
    style.log_axis(ax, "y", c.mean[np.isfinite(c.mean)])
    return True


# Held-out scores of which less is better, one picture each run: the first that there is.
HELD_OUT = (
    ("test_mspbe", "MSPBE"),
    ("test_robust_loss", "robust loss"),
    ("test_distance", "distance to the records"),
    ("test_loss", "loss"),
)


def held_out_loss(figure: Figure, d: Drawing) -> bool:
    """A loss on held-out records by round."""
    score = next(((label, c) for name, label in HELD_OUT if (c := d.score(name)) is not None), None)
    if score is None or not np.isfinite(score[1].mean).any():
        return False
    label, c = score
    style.value_axis(_draw_curve(figure, c, label, f"{label} on held-out records", capitalise(label)), c.mean)
    return True


def shares(figure: Figure, d: Drawing) -> bool:
    """AUC, accuracy and the like on held-out records by round."""
    scores = [(label, c) for name, label in SHARES if (c := d.score(name)) is not None]
    if not scores:
        return False
    # Shares of the same records may coincide: broken lines let those below them be seen.
    drawn = zip(scores, _COLOURS, _STYLES, strict=False)
    curves = {label: (c, colour, style) for (label, c), colour, style in drawn}
    when = f"at round {scores[0][1].rounds[-1]:.0f}" if d.result.has_diverged else "at the end"
    ends = ", ".join(f"{label} {c.ends[1]:.2f}" for label, c in scores[:2])
    ax = _draw_panel(figure, curves, "on held-out records", f"Held-out {ends} {when}")
    style.flat_axis(ax, np.concatenate([c.mean for _, c in scores]))
    return True


def _draw_curve(figure: Figure, c: Curve, label: str, axis: str, name: str) -> Axes:
    """One curve with its label; axis: what is measured; name: of the curve in the title."""
    return _draw_panel(figure, {label: (c, style.BLUE, "-")}, axis, style.change(name, c))


def _draw_panel(figure: Figure, curves: Mapping[str, tuple[Curve, str, str]], axis: str, title: str) -> Axes:
    """Curves with their legend, the label of the y axis and a title."""
    ax = figure.subplots()
    style.draw_curves(ax, curves)
    ax.set_ylabel(axis)
    style.title(ax, title)
    return ax


DRAWN_COORDINATES = 100
# So many coordinates have their names below the axis, where features name them.
_NAMED_COORDINATES = 40
# Inches that these names take below the axis, of which a figure has half anyway.
_NAMES_BELOW = 0.9


def upper_variable(figure: Figure, d: Drawing) -> bool:
    """The published x per coordinate: mean over agents, lowest to highest, and where it started.

    Nothing where x was not tuned, or ended where it started.
    """
    from matplotlib.ticker import MaxNLocator

    if d.x is None or not 0 < d.x.shape[1] <= DRAWN_COORDINATES or not np.all(np.abs(d.x) < OVERFLOW):
        return False
    if d.is_trusted and d.x.size == 1:  # The page says it in words.
        return False
    if not d.result.tunes_x or {f"{end:.3g}" for end in (d.x.min(), d.x.max())} == {_start_text(d)}:
        return False
    ax = figure.subplots()
    index, mean = np.arange(d.x.shape[1]), d.x.mean(axis=0)
    ax.vlines(index, d.x.min(axis=0), d.x.max(axis=0), color=BLUE, alpha=0.35, linewidth=min(4.0, 160 / index.size))
    ax.plot(index, mean, "o", color=BLUE, markersize=4.5 if index.size <= 50 else 3.0)
    values = d.x
    if d.start is not None:
        ax.axhline(d.start, color=GREY, linestyle="--", linewidth=1.2, zorder=1)
        values = np.append(values, d.start)
    flat_axis(ax, values)
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
    title(
        ax, ends.replace("-", "−") + (f"; it started at {d.start:.3g}".replace("-", "−") if d.start is not None else "")
    )
    return True


def _start_text(d: Drawing) -> str:
    return "" if d.start is None else f"{d.start:.3g}"


def noise(figure: Figure, d: Drawing) -> bool:
    """Noise scale of every channel, and how far one replaced record can move the release that it hides."""
    if "scale" not in d.ledger:
        return False
    columns = ("channel", "round", "release", "mechanism", "records", "scale", "sensitivity")
    rows = pd.DataFrame({name: np.asarray(d.ledger[name]) for name in columns})
    rows = rows[(rows["scale"] > 0) & ~rows["mechanism"].isin(["free", "none"])]
    # What one release carries is said in words.
    if rows.empty or (d.is_trusted and np.unique(rows["release"]).size == 1):
        return False
    left, right = figure.subplots(1, 2, sharex=True)
    unbounded = [*dict.fromkeys(rows.loc[~np.isfinite(rows["sensitivity"]), "channel"])]
    bounded = rows[(rows["sensitivity"] > 0) & np.isfinite(rows["sensitivity"])]
    laplace = bool((rows["mechanism"] == "laplace").any())
    others = (channel for channel in dict.fromkeys(rows["channel"]) if channel not in CHANNEL_COLOURS)
    colours = {**CHANNEL_COLOURS, **dict(zip(others, itertools.cycle(OTHER_COLOURS), strict=False))}
    for channel, part in rows.groupby("channel", sort=False):
        _draw_range(left, part, "scale", str(channel), colours[channel], "-")
    for (channel, kind), part in bounded.groupby(["channel", "records"], sort=False):
        dash = "--" if kind == "validation" else "-"
        _draw_range(right, part, "sensitivity", f"{channel}, {kind}", colours[channel], dash)
    log_axis(left, "x", rows["round"].to_numpy(), narrow=True)
    log_axis(left, "y", rows["scale"].to_numpy())
    log_axis(right, "y", rows["sensitivity"].to_numpy())
    drawn = set(rows["mechanism"]) - {"laplace", "gaussian"}
    left.set_ylabel("noise: Laplace scale b" if laplace else "noise: standard deviation")
    one = d.result.privacy.protected.removesuffix(" of one agent")
    to_what = f"sensitivity to {one}" if one == "one record" else "sensitivity"
    right.set_ylabel(f"{to_what} ({'ℓ1' if laplace else 'ℓ2'})")
    if drawn:
        left.set_ylabel("scale of noise and of choices")
        right.set_ylabel(to_what)
    for ax in (left, right):
        ax.set_xlabel("round")
        if not ax.lines:
            ax.tick_params(axis="y", which="both", left=False, labelleft=False)
            ax.text(0.5, 0.5, "∞", transform=ax.transAxes, ha="center", va="center", fontsize=28, color=GREY)
    figure.legend(handles=[*right.lines] or [*left.lines], loc="outside lower center", ncols=3)
    if unbounded:
        message = f"Nothing bounds what {one} can do to {', '.join(spans(unbounded, least=3))}: no noise can be enough"
    elif "uncertified" in drawn:
        message = "Nothing is proven of these random choices: ε = ∞, whatever their scale"
    else:
        moving = rows[rows["sensitivity"] > 0]
        ratio = moving["scale"] / moving["sensitivity"]
        if d.is_trusted:  # One number for all kinds of records, by the one that can do most.
            ratio = ratio.groupby([moving["channel"], moving["release"]]).min()
        low, high = (power_text(float(f"{r:.2g}")) for r in (ratio.min(), ratio.max()))
        what = "Scales are" if drawn else "Noise is"
        message = f"{what} {low if low == high else f'{low} to {high}'} times what {one} can move"
    figure.suptitle(message, x=0.02, ha="left", fontsize=10.5, fontweight="bold", wrap=True)
    return True


def _draw_range(ax: Axes, rows: pd.DataFrame, name: str, label: str, colour: str, dash: str) -> None:
    """Draw a column over rounds: its median as a line, least to largest as a band."""
    of = rows.groupby("round")[name].agg(["median", "min", "max"])
    ax.fill_between(of.index, of["min"], of["max"], color=colour, alpha=0.16, linewidth=0)
    ax.plot(of.index, of["median"], dash, color=colour, marker="o" if len(of) <= 25 else None, label=label)
