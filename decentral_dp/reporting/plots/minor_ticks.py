"""The minor ticks of logarithmic axes as one collection of lines each: as ticks, each of them is five artists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS_PER_INCH = 72.0
# Axis → where its ticks stand.
_SIDE = {"x": "bottom", "y": "left"}


def draw_minor_ticks_at_once(figure: Figure) -> None:
    """Replace minor ticks by lines where they are, and as long: limits of axes must be final."""
    from matplotlib.ticker import NullLocator

    axes = [(ax, axis) for ax in figure.axes if ax.axison for axis in (ax.xaxis, ax.yaxis) if _has_any(axis)]
    for ax, axis in axes:
        low, high = sorted(axis.get_view_interval())
        _draw(ax, axis.axis_name, [float(at) for at in axis.get_minorticklocs() if low <= at <= high])
    # Only now: axes that share a scale share its locators.
    for _, axis in axes:
        axis.set_minor_locator(NullLocator())


def _has_any(axis: Any) -> bool:
    return axis.get_scale() == "log" and bool(axis.get_tick_params(which="minor").get(_SIDE[axis.axis_name], True))


def _draw(ax: Axes, name: str, places: list[float]) -> None:
    from matplotlib import rcParams
    from matplotlib.collections import LineCollection
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    settings: Any = rcParams
    length = -settings[f"{name}tick.minor.size"] / POINTS_PER_INCH
    # In inches from the corner of the axes, outwards.
    corner: Any = ax.transAxes
    outwards = ax.figure.dpi_scale_trans + ScaledTranslation(0.0, 0.0, corner)
    lines = [((at, 0.0), (at, length)) if name == "x" else ((0.0, at), (length, at)) for at in places]
    directions = (ax.transData, outwards) if name == "x" else (outwards, ax.transData)
    ticks = LineCollection(
        lines,
        colors=settings[f"{name}tick.color"],
        linewidths=settings[f"{name}tick.minor.width"],
        transform=blended_transform_factory(*directions),
        clip_on=False,
        zorder=2.0,
    )
    ticks.set_in_layout(False)
    ax.add_collection(ticks, autolim=False)
