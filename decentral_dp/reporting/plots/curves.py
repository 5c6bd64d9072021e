"""Metrics and spent budget over rounds.

Curves of runs on minimax problems.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.reporting.folder import Curve, Drawing, curve
from decentral_dp.reporting.plots import style
from decentral_dp.reporting.words import capitalised, power_text

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


def _all_of(curves: Iterable[Curve]) -> Array:
    return np.concatenate([part for c in curves for part in (c.mean, c.low, c.high)])


def losses(figure: Figure, d: Drawing) -> bool:
    upper = (("upper loss (validation)", "upper_loss", style.BLUE),) if d.result.tunes_x else ()
    named = (
        *upper,
        ("lower loss (train)", "lower_loss", style.VERMILLION),
        ("test loss (held out)", "test_loss", style.GREEN),
    )
    curves = {label: (c, colour, "-") for label, name, colour in named if (c := d.score(name))}
    if not curves:
        return False
    ax = figure.subplots()
    style.draw_curves(ax, curves)
    style.value_axis(ax, _all_of(c for c, *_ in curves.values()))
    ax.set_ylabel("loss of the exact lower solution" if d.result.solves_lower else d.words.loss)
    label, (first, *_) = next(iter(curves.items()))
    style.title(ax, style.change(label.split(" (")[0].capitalize(), first))
    return True


def accuracy(figure: Figure, d: Drawing) -> bool:
    main, last = d.score("test_accuracy"), curve(d.metrics, "test_accuracy_last")
    if main is None:
        return False
    ax = figure.subplots()
    # Of two lines that coincide one would hide the other.
    apart = last is not None and bool(np.nanmax(np.abs(last.mean - main.mean), initial=0.0) >= _VISIBLE)
    curves = {"last released values": (last, style.ORANGE, "--")} if last is not None and apart else {}
    curves[d.result.evaluated_on or "test accuracy"] = (main, style.BLUE, "-")
    style.draw_curves(ax, curves)
    ax.set_ylabel(f"accuracy {d.whose} (share)")
    style.flat_axis(ax, _all_of(c for c, *_ in curves.values()))
    ax.set_ylim(top=min(1.005, ax.get_ylim()[1]))
    spread = f" (agents {main.low[-1]:.2f} to\u00a0{main.high[-1]:.2f})" if main.high[-1] > main.low[-1] else ""
    when = f"Held-out accuracy at round {main.rounds[-1]:.0f}:" if d.result.has_diverged else "Final held-out accuracy"
    style.title(ax, f"{when} {main.ends[1]:.2f}{spread}")
    return True


def explained(figure: Figure, d: Drawing) -> bool:
    """R² on held-out records of a problem whose labels are numbers."""
    main, error = d.score("test_r2"), d.score("test_rmse")
    if main is None:
        return False
    ax = figure.subplots()
    style.draw_curves(
        ax, {"mean over agents" if main.high[-1] > main.low[-1] else d.result.evaluated_on: (main, style.BLUE, "-")}
    )
    ax.axhline(0.0, color=style.GREY, linewidth=1.0, linestyle=":")
    ax.set_ylabel(f"R² {d.whose}")
    style.flat_axis(ax, _all_of([main]))
    # Early values may be far below 0, where one of them says as much as another; the last one is always seen.
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, min(-1.0, 1.1 * float(main.low[-1]))), min(max(high, 0.05), 1.005))
    when = f"Held-out R² at round {main.rounds[-1]:.0f}:" if d.result.has_diverged else "Final held-out R²"
    off = "" if error is None else f", root mean squared error {power_text(error.ends[1])}"
    score = f"{main.ends[1]:.2f}".replace("-", "−")
    style.title(ax, f"{when} {score}{off}")
    return True


def hypergradient(figure: Figure, d: Drawing) -> bool:
    """Nothing where it stays what it was: the table says that."""
    c, gap = curve(d.metrics, "hypergradient_norm"), curve(d.metrics, "hypergradient_gap")
    if c is None or (gap is None and style.stays(c)):
        return False
    curves = {"hypergradient": (c, style.BLUE, "-")}
    if gap is not None:
        curves["its distance to that on held-out records"] = (gap, style.ORANGE, "--")
    ax = figure.subplots()
    style.draw_curves(ax, curves)
    if np.any(c.mean > 0):
        style.log_axis(ax, "y", _all_of(of for of, *_ in curves.values()))
    ax.set_ylabel(d.words.hypergradient)
    style.title(ax, style.change("Hypergradient norm", c))
    return True


def consensus(figure: Figure, d: Drawing) -> bool:
    """Nothing where no agent ever differs from the average, as with one agent."""
    distances = {name: curve(d.metrics, f"consensus_{name}") for name in style.CHANNEL_COLOURS}
    curves = {name: (c, style.CHANNEL_COLOURS[name], "-") for name, c in distances.items() if c and np.any(c.mean > 0)}
    if not curves:
        return False
    ax = figure.subplots()
    style.draw_curves(ax, curves)
    style.log_axis(ax, "y", _all_of(c for c, *_ in curves.values()))
    ax.set_ylabel("distance to the network average (ℓ2)")
    ends = ", ".join(f"{name}\u00a0{power_text(float(f'{c.ends[1]:.2g}'))}" for name, (c, *_) in curves.items())
    broken = any(c.overflow is not None for c, *_ in curves.values())
    style.title(ax, "Consensus breaks: distances overflow" if broken else f"Final distance to average: {ends}")
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
    if not d.words.many and claimed is None and spent is not None and spent.rounds[-1] <= 1:  # All in one round.
        return False
    ax = figure.subplots()
    values = [level.value for level in levels]
    if proven and spent is not None:
        style.draw_curves(ax, {"certified": (spent, style.BLUE, "-")})
        values += [v for v in spent.mean if v > 0]
    else:
        ax.set_xticks([])
        ax.set_xlabel("every round")
    style.log_axis(ax, "y", values)
    if math.isinf(certified):
        ax.annotate(
            "certified: ε = ∞, above every axis",
            (0.99, 0.98),
            xycoords="axes fraction",
            color=style.BLUE,
            ha="right",
            va="top",
        )
    _draw_levels(ax, levels)
    ax.set_ylabel(f"{d.words.spent}, δ\u00a0=\u00a0{delta_text(privacy.delta)}")
    style.title(ax, _verdict(d, certified, claimed))
    return True


def _verdict(d: Drawing, certified: float, claimed: float | None) -> str:
    word = "Provable" if d.result.privacy.guarantee == "as_printed" else "Certified"
    if math.isinf(certified):
        text = f"{word} ε is ∞"
    else:
        planned = " by the end of the plan" if d.result.has_diverged else ""
        text = f"{word} ε per agent reaches {epsilon_text(certified)}{planned}"
    return text + (f"; the printed formula claims {epsilon_text(claimed)}" if claimed is not None else "")


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
    ("test_critic_auc", "AUC of a fresh critic"),
)


def primal(figure: Figure, d: Drawing) -> bool:
    """Φ(x) = max_y F(x, y) by round."""
    c = d.score("primal")
    if c is None or not np.isfinite(c.mean).any():
        return False
    style.value_axis(_one(figure, c, "Φ", "Φ(x) on the train records", "Φ"), c.mean)
    return True


def gradient(figure: Figure, d: Drawing) -> bool:
    """‖∇Φ(x)‖ on all train records by round."""
    c = d.score("gradient_norm")
    if c is None or not np.any(c.mean > 0):
        return False
    ax = _one(figure, c, "gradient", "‖∇Φ(x)‖₂ on the train records", "True gradient norm")
    style.log_axis(ax, "y", c.mean[np.isfinite(c.mean)])
    return True


# Held-out scores of which less is better, one picture each run: the first that there is.
HELD_OUT = (
    ("test_mspbe", "MSPBE"),
    ("test_robust_loss", "robust loss"),
    ("test_distance", "distance to the records"),
    ("test_loss", "loss"),
)


def held_out(figure: Figure, d: Drawing) -> bool:
    """A loss on held-out records by round."""
    score = next(((label, c) for name, label in HELD_OUT if (c := d.score(name)) is not None), None)
    if score is None or not np.isfinite(score[1].mean).any():
        return False
    label, c = score
    style.value_axis(_one(figure, c, label, f"{label} on held-out records", capitalised(label)), c.mean)
    return True


def shares(figure: Figure, d: Drawing) -> bool:
    """AUC, accuracy and the like on held-out records by round."""
    scores = [(label, c) for name, label in SHARES if (c := d.score(name)) is not None]
    if not scores:
        return False
    ax = figure.subplots()
    # Shares of the same records may coincide: broken lines let those below them be seen.
    drawn = zip(scores, _COLOURS, _STYLES, strict=False)
    curves = {label: (c, colour, style) for (label, c), colour, style in drawn}
    style.draw_curves(ax, curves)
    style.flat_axis(ax, np.concatenate([c.mean for _, c in scores]))
    ax.set_ylabel("on held-out records")
    when = f"at round {scores[0][1].rounds[-1]:.0f}" if d.result.has_diverged else "at the end"
    style.title(ax, f"Held-out {', '.join(f'{label} {c.ends[1]:.2f}' for label, c in scores[:2])} {when}")
    return True


def _one(figure: Figure, c: Curve, label: str, axis: str, name: str) -> Axes:
    """One curve with its label; axis: what is measured; name: of the curve in the title."""
    ax = figure.subplots()
    style.draw_curves(ax, {label: (c, style.BLUE, "-")})
    ax.set_ylabel(axis)
    style.title(ax, style.change(name, c))
    return ax
