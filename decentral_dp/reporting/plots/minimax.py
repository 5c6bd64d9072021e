"""Curves of runs on minimax problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from decentral_dp.reporting.plots.axes import change, draw_curves, flat_axis, log_axis, title, value_axis
from decentral_dp.reporting.plots.drawing import Curve, Drawing
from decentral_dp.reporting.plots.style import BLUE, GREEN, ORANGE, VERMILLION
from decentral_dp.reporting.text import capitalised

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE)
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
    value_axis(_one(figure, c, "Φ", "Φ(x) on the train records", "Φ"), c.mean)
    return True


def gradient(figure: Figure, d: Drawing) -> bool:
    """‖∇Φ(x)‖ on all train records by round."""
    c = d.score("gradient_norm")
    if c is None or not np.any(c.mean > 0):
        return False
    ax = _one(figure, c, "gradient", "‖∇Φ(x)‖₂ on the train records", "True gradient norm")
    log_axis(ax, "y", c.mean[np.isfinite(c.mean)])
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
    found = next(((label, c) for name, label in HELD_OUT if (c := d.score(name)) is not None), None)
    if not d.minimax or found is None or not np.isfinite(found[1].mean).any():
        return False
    label, c = found
    value_axis(_one(figure, c, label, f"{label} on held-out records", capitalised(label)), c.mean)
    return True


def shares(figure: Figure, d: Drawing) -> bool:
    """AUC, accuracy and the like on held-out records by round."""
    found = [(label, c) for name, label in SHARES if (c := d.score(name)) is not None]
    if not found:
        return False
    ax = figure.subplots()
    # Shares of the same records may coincide: broken lines let those below them be seen.
    drawn = zip(found, _COLOURS, _STYLES, strict=False)
    curves = {label: (c, colour, style) for (label, c), colour, style in drawn}
    draw_curves(ax, curves)
    flat_axis(ax, np.concatenate([c.mean for _, c in found]))
    ax.set_ylabel("on held-out records")
    when = f"at round {found[0][1].rounds[-1]:.0f}" if d.diverged else "at the end"
    title(ax, f"Held-out {', '.join(f'{label} {c.ends[1]:.2f}' for label, c in found[:2])} {when}")
    return True


def _one(figure: Figure, c: Curve, label: str, axis: str, name: str) -> Axes:
    """One curve with its label; axis: what is measured; name: of the curve in the title."""
    ax = figure.subplots()
    draw_curves(ax, {label: (c, BLUE, "-")})
    ax.set_ylabel(axis)
    title(ax, change(name, c))
    return ax
