"""Below the pictures of a study: what colours and dashes mean, and what the means are over."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from decentral_dp.reporting.plots.minor_ticks import POINTS_PER_INCH
from decentral_dp.reporting.plots.style import GREY, letter_size
from decentral_dp.studies.axis_labels import axis_label
from decentral_dp.studies.failed_cells import FAILED_LABEL, are_marked, failed_handle, places
from decentral_dp.studies.grid import Label
from decentral_dp.studies.study_schema import Plot
from decentral_dp.studies.verdicts import selected

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# An inch holds about so many letters of a legend; a handle takes the room of some more.
_LETTERS_PER_INCH, _HANDLE_LETTERS = 17, 7
# A legend's letters beside all others, and what stands between its entries, in them.
_LEGEND_SIZE = 0.88
_LEGEND_SPACES: Mapping[str, float] = {
    **{"labelspacing": 0.25, "handlelength": 1.6, "handletextpad": 0.5},
    **{"columnspacing": 1.2, "borderpad": 0.2, "borderaxespad": 0.2},
}
_MOST_COLUMNS = 6
_LEAST_LETTERS = 6.5
_CAPTION_SIZE, _CAPTION_LETTERS_PER_INCH, _CAPTION_LINE, _CAPTION_PAD = 8.0, 15.5, 0.15, 0.08


class Line(NamedTuple):
    """One line of a picture, in its colour and style.

    Args:
        value: of the axis that colours tell apart.
        measure: what is drawn.
        where: axis → label of its points.
        colour: of the line.
        marker: of the points.
        dash: of the line.
        fill: of the markers.
        also: what else markers tell apart; "" where nothing else varies at one place.
    """

    value: str
    measure: str
    where: Mapping[str, Label]
    colour: str
    marker: str
    dash: Any
    fill: Any
    also: str = ""


def legend(figure: Figure, plot: Plot, lines: Sequence[Line], cells: pd.DataFrame, joined: bool) -> None:
    """Say what colours mean and, where there are several measures for each, what dashes or fillings mean.

    Args:
        figure: the picture, to which the legend is added.
        plot: its declaration in the study.
        lines: all of its lines.
        cells: the table of the study's cells.
        joined: whether points are joined, so that dashes tell measures apart; else fillings do.
    """
    from matplotlib.lines import Line2D

    values, measures = {n.value: n for n in lines}, {n.measure: n for n in lines}
    entries: list[tuple[str, str, str, Any, Any]] = []
    heading = "" if plot.lines is None else axis_label(plot.lines, cells)
    if len(values) > 1:
        named = {value: places(value, selected(cells, n.where), plot.x == "round") for value, n in values.items()}
        # Where markers tell something else apart, a stroke has the colour alone.
        entries += [
            (named[value], n.colour, "none" if n.also else n.marker, "-", "full") for value, n in values.items()
        ]
        if len(measures) > 1:
            heading = f"{heading} (colour), measured ({'dash' if joined else 'filling'})"
            entries += [
                (axis_label(m, cells, most=1), GREY, "none" if joined else "o", n.dash, n.fill)
                for m, n in measures.items()
            ]
    elif len(measures) > 1:
        heading = "measured"
        entries = [(axis_label(m, cells, most=1), n.colour, n.marker, n.dash, n.fill) for m, n in measures.items()]
    if len(others := {n.also: n for n in lines if n.also}) > 1:
        heading = f"{heading} (colour)" if heading and not heading.endswith(")") else heading
        entries += [(also, GREY, n.marker, "none", "full") for also, n in others.items()]
    handles: list[Any] = [
        Line2D(
            [],
            [],
            color=colour,
            marker=marker,
            fillstyle=fill,
            linestyle=dash if joined or marker == "none" else "none",
        )
        for _, colour, marker, dash, fill in entries
    ]
    labels = [label for label, *_ in entries]
    if are_marked(figure.axes):
        handles, labels = [*handles, failed_handle()], [*labels, FAILED_LABEL]
    if not labels:
        return
    room = int(figure.get_figwidth() * _LETTERS_PER_INCH) - _HANDLE_LETTERS
    labels = [textwrap.fill(label, room) for label in labels]
    heading = textwrap.fill(heading, room)
    longest = max(len(label) for label in labels) + _HANDLE_LETTERS
    columns = max(1, min(len(labels), _MOST_COLUMNS, int(figure.get_figwidth() * _LETTERS_PER_INCH / longest)))
    # Rows that are nearly full are made even: seven entries in six columns would leave a row to one.
    columns = math.ceil(len(labels) / math.ceil(len(labels) / columns))
    size = max(_LEAST_LETTERS, _LEGEND_SIZE * letter_size("font"))
    figure.legend(
        handles,
        labels,
        loc="lower center",
        ncols=columns,
        title=heading or None,
        fontsize=size,
        title_fontsize=size,
        **_LEGEND_SPACES,
    )


def panel_height(width: float, across: int, down: int) -> float:
    """Inches that a panel is high in a figure of a given width: less where others are below it."""
    return (0.52 if down == 1 else 0.36) * min(width / across, 6.0)


def set_foot(figure: Figure, said: str, panel: float | None = None) -> None:
    """Make room at the foot for the legend and, below it, for the words on what the means are over.

    Args:
        figure: with all else drawn.
        said: on what the means are over; "" for a picture without a foot.
        panel: inches that each panel is to be high, whatever the words around it take; as it comes if left out.
    """
    size = min(_CAPTION_SIZE, letter_size("font"))
    words = textwrap.fill(said, int(figure.get_figwidth() * _CAPTION_LETTERS_PER_INCH))
    below = _CAPTION_LINE * (words.count("\n") + 1) + _CAPTION_PAD if words else 0.0
    note = figure.text(0.01, 0.0, words, va="top", fontsize=size, color=GREY)
    layout: Any = figure.get_layout_engine()

    def place(height: float) -> None:
        figure.set_figheight(height)
        note.set_y((below - _CAPTION_PAD) / height)
        taken = below
        for box in figure.legends:
            box.set_bbox_to_anchor((0.5, below / height))
            # It stands half a letter above its anchor.
            taken += box.get_window_extent().height / figure.dpi + 0.5 * letter_size("font") / POINTS_PER_INCH
        layout.set(rect=(0.0, taken / height, 1.0, 1.0 - taken / height))

    place(figure.get_figheight() + below)
    if panel is not None:
        rows = max(spec.rowspan.stop for ax in figure.axes if (spec := ax.get_subplotspec()) is not None)
        # What is around the axes grows with their number alone: it is known once they have been laid out.
        place(figure.get_figheight() + rows * panel)
        figure.draw_without_rendering()
        place(figure.get_figheight() + rows * (panel - figure.axes[0].bbox.height / figure.dpi))
    _centre_side_label(figure)


def _centre_side_label(figure: Figure) -> None:
    """Put the label beside all panels at the middle of theirs: matplotlib takes that of the figure, with its foot."""
    # The only words of the figure itself that are turned.
    labels = [text for text in figure.texts if text.get_rotation() and text.get_text()]
    if not labels:
        return
    figure.draw_without_rendering()
    places = [ax.get_position() for ax in figure.axes if ax.get_visible()]
    middle = (min(p.y0 for p in places) + max(p.y1 for p in places)) / 2
    for label in labels:
        half = label.get_window_extent().height / figure.bbox.height / 2
        label.set_y(min(max(middle, half), 1.0 - half))
