"""Axes side by side, placed so that their labels, ticks and titles end at the rim of the figure.

Ticks are measured once. Labels and titles are then put where they belong, which matplotlib would find out anew in
every pass: two passes over the ticks are left of about a dozen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from decentral_dp.reporting.plots.minor_ticks import POINTS_PER_INCH, draw_minor_ticks_at_once

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

# Inches between what is drawn and the rim of a figure.
RIM = 0.09


class Margins(NamedTuple):
    """What stands around axes, in pixels. below, beside: where the labels of x and y begin."""

    left: float
    right: float
    bottom: float
    top: float
    below: float
    beside: float


def in_a_row(figure: Figure) -> bool:
    """Whether the figure holds axes side by side, a title above all of them, and nothing else, such as colour bars."""
    grids = [ax.get_subplotspec() for ax in figure.axes]
    alike = all(g is not None and g.get_gridspec().nrows == 1 for g in grids)
    titles = 1 if figure.get_suptitle() else 0
    return bool(grids) and alike and not figure.legends and not figure.subfigs and len(figure.texts) == titles


def fill(figure: Figure, renderer: Any) -> None:
    """Place the axes of a figure that are `in_a_row`, from left to right and equally wide."""
    figure.set_layout_engine("none")
    draw_minor_ticks_at_once(figure)
    rim, (width, height) = RIM * figure.dpi, figure.bbox.size
    above = 0.0
    for heading in figure.texts:
        heading.set_y(1.0 - rim / height)
        above = heading.get_window_extent(renderer).height + rim
    around = [_margins(ax, renderer) for ax in figure.axes]
    bottom, top = max(m.bottom for m in around) + rim, height - max(m.top for m in around) - above - rim
    inside = (width - sum(m.left + m.right + 2.0 * rim for m in around)) / len(around)
    at = 0.0
    for ax, m in zip(figure.axes, around, strict=True):
        at += rim + m.left
        ax.set_position((at / width, bottom / height, inside / width, (top - bottom) / height))
        ax.xaxis.set_label_coords(0.5, -m.below / (top - bottom))
        ax.yaxis.set_label_coords(-m.beside / inside, 0.5)
        at += inside + m.right + rim


def _margins(ax: Axes, renderer: Any) -> Margins:
    from matplotlib.legend import Legend
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    ax.apply_aspect()
    rows, columns = _ticks(ax, ax.xaxis, renderer), _ticks(ax, ax.yaxis, renderer)
    text = ax.get_title(loc="left")
    # Above the axes there is nothing but a power of ten, where numbers have one.
    if text and not ax.yaxis.get_offset_text().get_text():
        ax.set_title(text, loc="left", y=1.0)
    point = ax.figure.dpi / POINTS_PER_INCH
    below = ax.bbox.y0 - rows.y0 + ax.xaxis.labelpad * point
    beside = ax.bbox.x0 - columns.x0 + ax.yaxis.labelpad * point
    boxes = [rows, columns]
    if ax.axison and ax.get_xlabel():
        low = ax.bbox.y0 - below - ax.xaxis.label.get_window_extent(renderer).height
        boxes.append(Bbox.from_extents(ax.bbox.x0, low, ax.bbox.x1, ax.bbox.y1))
    if ax.axison and ax.get_ylabel():
        left = ax.bbox.x0 - beside - ax.yaxis.label.get_window_extent(renderer).width
        boxes.append(Bbox.from_extents(left, ax.bbox.y0, ax.bbox.x1, ax.bbox.y1))
    for child in ax.get_children():
        if isinstance(child, Legend):
            boxes.append(child.get_window_extent(renderer))
        elif isinstance(child, Text) and child.get_text():
            box = child.get_window_extent(renderer)
            # A title may be longer than its axes.
            boxes.append(Bbox.from_extents(ax.bbox.x0, box.y0, ax.bbox.x1, box.y1))
    around = Bbox.union(boxes)
    return Margins(
        ax.bbox.x0 - around.x0,
        around.x1 - ax.bbox.x1,
        ax.bbox.y0 - around.y0,
        around.y1 - ax.bbox.y1,
        below,
        beside,
    )


def _ticks(ax: Axes, axis: Any, renderer: Any) -> Bbox:
    """The axes with the names of ticks along one axis."""
    from matplotlib.transforms import Bbox

    if not ax.axison or not axis.get_visible():
        return Bbox.union([ax.bbox])
    # The label is placed by these numbers, and must not look for a place of its own.
    axis.set_label_coords(0.5, 0.5)
    axis.label.set_visible(False)
    named = axis.get_tightbbox(renderer)
    axis.label.set_visible(True)
    return Bbox.union([ax.bbox] if named is None else [ax.bbox, named])
