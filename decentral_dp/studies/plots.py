"""Pictures of a study: means with their confidence intervals over the values of an axis, a measured name, or rounds.

The legend says what colours and dashes mean. The foot says what the means are over, and how many cells failed.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from decentral_dp.bounded import Array
from decentral_dp.reporting.plots import style
from decentral_dp.studies.intervals import counts_text, described_intervals
from decentral_dp.studies.measures import axis_label, label_text, metric_stem
from decentral_dp.studies.runs import GOOD
from decentral_dp.studies.schema import VARIANT, Axis, Label, Plot, Study
from decentral_dp.studies.tables import Measured, counts_of, different_threat_models, failures_text
from decentral_dp.studies.verdicts import select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Labels: TypeAlias = "tuple[Label, ...]"
FAILED_LABEL = "all cells failed"
# Where failures are marked, in heights of the axes.
_MARK_HEIGHT = 0.035
_GID = "failed"
# Combinations that a caption names.
_MOST_NAMES = 4


def is_lost(cells: pd.DataFrame) -> bool:
    """Say whether there are cells, and all of them failed.

    Example:
        >>> is_lost(pd.DataFrame({"status": ["diverged", "ok"]})), is_lost(pd.DataFrame({"status": ["diverged"]}))
        (False, True)
    """
    return len(cells) > 0 and not cells["status"].isin(GOOD).any()


def places(value: str, cells: pd.DataFrame, over_rounds: bool) -> str:
    """Name a line in the legend; over rounds, where its points cannot say it, with how many cells ended ok.

    Example:
        >>> places("ring", pd.DataFrame({"status": ["ok", "diverged"]}), over_rounds=True)
        'ring (1 of 2 ended ok)'
    """
    ok = int(cells["status"].isin(GOOD).sum())
    return f"{value} ({ok} of {len(cells)} ended ok)" if over_rounds and ok < len(cells) else value


def failed_handle() -> Any:
    """The cross that stands for a combination without any cell that ended ok."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=style.GREY, marker="x", linestyle="none", markersize=6, markeredgewidth=1.6)


def mark_failed(
    ax: Axes,
    colour: str,
    cells: pd.DataFrame,
    axes: Sequence[str],
    means: pd.DataFrame,
    placed: Callable[[pd.DataFrame], Array],
) -> list[Labels]:
    """Put a cross at the foot where all cells failed, and "3/5" beside the mean of those that ended ok.

    Args:
        ax: the panel.
        colour: of the line.
        cells: of the line in this panel.
        axes: names of the axes.
        means: the line's means here.
        placed: labels of combinations → their places along x.

    Returns:
        The combinations that failed and have no place, since what x measures is not known of them.
    """
    by_labels = {tuple(row[a] for a in axes): row for row in means.to_dict("records")}
    unplaced = []
    for labels, (total, failed) in counts_of(cells, axes).items():
        row = by_labels.get(labels)
        if row is not None and (row["n"] == total or not math.isfinite(row["mean"])):
            continue
        at = float(placed(pd.DataFrame([labels], columns=list(axes)))[0]) if failed else math.nan
        if row is not None and failed:
            words, offset = f"{row['n']}/{total}", (4, 4)
            ax.annotate(
                words, (at, row["mean"]), xytext=offset, textcoords="offset points", fontsize=7, color=style.GREY
            )
        elif failed == total and math.isnan(at):
            unplaced.append(labels)
        elif failed == total:
            _cross(ax, at, colour, ax.get_xaxis_transform())
    return unplaced


def _cross(ax: Axes, at: float, colour: str, transform: Any) -> None:
    (cross,) = ax.plot([at], [_MARK_HEIGHT], "x", color=colour, transform=transform, markersize=6, zorder=5)
    cross.set(markeredgewidth=1.6, clip_on=False, gid=_GID)


def are_marked(axes: Iterable[Axes]) -> bool:
    """Say whether there is a cross on any of these."""
    return any(line.get_gid() == _GID for ax in axes for line in ax.lines)


def caption(
    rows: pd.DataFrame,
    cells: pd.DataFrame,
    confidence: float,
    over_rounds: bool,
    unplaced: Sequence[Labels],
    more: Sequence[str] = (),
) -> str:
    """Say what the points are means of, with which intervals, and how many cells failed.

    Args:
        rows: means that are drawn.
        cells: of the picture.
        confidence: level of the intervals.
        over_rounds: whether the means are along lines, not single points.
        unplaced: combinations that failed and are not drawn.
        more: sentences on what is drawn otherwise than a reader would expect.
    """
    n, total = counts_text(rows["n"]), int(rows["cells"].max())
    of = "" if (rows["n"] == total).all() else f" of {total}"
    noun = "cell" if n == "1" and not of else "cells"
    ended = ", those that ended ok" if of else ""
    parts = [f"n = {n}{of} {noun} a {'line' if over_rounds else 'point'}{ended}"]
    parts.append(described_intervals(rows["interval"], confidence) or "No intervals")
    if not cells["status"].isin(GOOD).all():
        parts.append(failures_text(cells).removesuffix("."))
    if unplaced:
        names = [" ".join(map(label_text, labels)) for labels in dict.fromkeys(unplaced)]
        others = f" and {len(names) - _MOST_NAMES} others" if len(names) > _MOST_NAMES else ""
        parts.append(f"Failed, and without a place here: {', '.join(names[:_MOST_NAMES])}{others}")
    return ". ".join([*parts, *more]) + "."


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
    """

    value: str
    measure: str
    where: Mapping[str, Label]
    colour: str
    marker: str
    dash: Any
    fill: Any


class PlotData(NamedTuple):
    """What a picture is drawn from, or a panel of it.

    Args:
        plot: its declaration in the study.
        axes: name → axis, of what varied.
        means: with intervals; those of a measured x among them.
        cells: status of each.
        labels: of all that is drawn, one column an axis: of what was measured, and of what failed.
    """

    plot: Plot
    axes: Mapping[str, Axis]
    means: pd.DataFrame
    cells: pd.DataFrame
    labels: pd.DataFrame

    @property
    def over_rounds(self) -> bool:
        return self.plot.x == "round"

    @property
    def is_categorical(self) -> bool:
        """Whether x is an axis of names."""
        return self.plot.x in self.axes and not self.axes[self.plot.x].is_numeric

    @property
    def is_joined(self) -> bool:
        """Whether points are joined: along rounds and numbers, where x is measured those of `points`; else not."""
        along = self.plot.x if self.plot.points is None else self.plot.points
        return along == "round" or (along in self.axes and self.axes[along].is_numeric)

    @property
    def drawn_means(self) -> pd.DataFrame:
        """The means that are points."""
        return self.means[self.means["name"].isin(self.plot.measures)]

    @property
    def is_barred(self) -> bool:
        """Whether an interval of what is drawn is wide enough to be seen as a bar."""
        return bool(
            (self.drawn_means["high"] - self.drawn_means["low"] > _LEAST_GAP * self.drawn_means["mean"].abs()).any()
        )

    def values(self, axis: str | None) -> list[Label]:
        """The values of an axis that are drawn, in the order of the study; one that is empty where there is none."""
        if axis is None:
            return [""]
        present = set(self.labels[axis])
        return [label for label in self.axes[axis].labels if label in present]

    def select(self, where: Mapping[str, Label]) -> PlotData:
        """What of it a panel shows."""
        means, cells, labels = (select(frame, where) for frame in (self.means, self.cells, self.labels))
        return self._replace(means=means, cells=cells, labels=labels)


def plot_data(plot: Plot, measured: Measured, over: pd.DataFrame) -> PlotData:
    """What a picture is drawn from. over: the means that it may show."""
    axes, cells = {axis.name: axis for axis in measured.axes}, select(measured.cells, plot.where)
    means = select(over, plot.where)
    means = means[means["last"] != (plot.x == "round")]
    lost = [labels for labels, (total, failed) in counts_of(cells, list(axes)).items() if failed == total]
    labels = pd.concat([means[list(axes)], pd.DataFrame(lost, columns=list(axes), dtype=object)])
    return PlotData(plot, axes, means, cells, labels)


def _with_method(text: str, rows: pd.DataFrame, axis: str | None) -> str:
    """The name of a line, with the parts of its algorithm where its name does not state them."""
    parts = [method for method in dict.fromkeys(rows.get("method", ())) if " + " in method]
    # What is centred may depend on ε, so that a line has two.
    named = 0 < len(parts) <= 2 and axis in (VARIANT, "algorithm.kind")
    return f"{text}: {' or '.join(parts)}" if named else text


def legend(figure: Figure, data: PlotData, lines: Sequence[Line]) -> None:
    """Say what colours mean and, where there are several measures for each, what dashes or fillings mean.

    Args:
        figure: the picture, to which the legend is added.
        data: what it is drawn from.
        lines: all of its lines.
    """
    from matplotlib.lines import Line2D

    # Where points are joined dashes tell measures apart, else fillings do.
    plot, cells, joined = data.plot, data.cells, data.is_joined
    values, measures = {n.value: n for n in lines}, {n.measure: n for n in lines}
    entries: list[tuple[str, str, str, Any, Any]] = []
    heading = "" if plot.lines is None else axis_label(plot.lines, cells)
    if len(values) > 1:
        drawn = {value: select(cells, n.where) for value, n in values.items()}
        named = {
            value: _with_method(places(value, rows, data.over_rounds), rows, plot.lines)
            for value, rows in drawn.items()
        }
        entries += [(named[value], n.colour, n.marker, "-", "full") for value, n in values.items()]
        if len(measures) > 1:
            heading = f"{heading} (colour), measured ({'dash' if joined else 'filling'})"
            entries += [
                (axis_label(m, cells, most=1), style.GREY, "none" if joined else "o", n.dash, n.fill)
                for m, n in measures.items()
            ]
    elif len(measures) > 1:
        heading = "measured"
        entries = [(axis_label(m, cells, most=1), n.colour, n.marker, n.dash, n.fill) for m, n in measures.items()]
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
    size = max(_LEAST_LETTERS, _LEGEND_SIZE * style.letter_size("font"))
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


def panels_across(panels: int, width: float | None, least: float, beside: float = 0.0) -> int:
    """How many panels stand side by side.

    Args:
        panels: of the figure.
        width: of the figure in inches, where it is given.
        least: inches that a panel needs then.
        beside: inches that something beside the panels takes.
    """
    across = 2 if panels == 4 else min(_PANEL_COLUMNS, panels)
    return across if width is None else min(across, max(1, int((width - beside) / least)))


def panel_axes(figure: Figure, panels: int, across: int) -> list[Axes]:
    """Axes of so many panels, row by row, which share both scales."""
    grid = figure.subplots(math.ceil(panels / across), across, sharex=True, sharey=True, squeeze=False)
    for ax in grid.flat[panels:]:
        ax.set_visible(False)
    return list(grid.flat[:panels])


def label_lowest(axes: Sequence[Axes], across: int, words: str) -> None:
    """Write the label of x below the lowest panel of each column."""
    for ax in axes[-across:]:
        ax.set_xlabel(words)
        ax.tick_params(labelbottom=True)


def finish(figure: Figure, study: Study, title: str, note: str, own_height: Callable[[float], float]) -> None:
    """Write the title above a picture, and make room at its foot for the legend and for what the means are over.

    Args:
        figure: with all else drawn.
        study: says whether there are words at the foot.
        title: "" for none.
        note: on what the means are over.
        own_height: width of the figure → inches that each panel is high, where the study gives a width.
    """
    if title:
        words = textwrap.fill(title, int(figure.get_figwidth() * _TITLE_LETTERS_PER_INCH))
        figure.suptitle(words, x=0.01, ha="left", fontweight="bold", fontsize=style.letter_size("axes.title"))
    _reserve_footer(figure, note if study.foot else "", None if study.width is None else own_height(study.width))


def _reserve_footer(figure: Figure, said: str, panel: float | None) -> None:
    """Make room at the foot.

    Args:
        figure: with all else drawn.
        said: on what the means are over; "" for a picture without a foot.
        panel: inches that each panel is to be high, whatever the words around it take; None: as it comes.
    """
    size = min(_CAPTION_SIZE, style.letter_size("font"))
    words = textwrap.fill(said, int(figure.get_figwidth() * _CAPTION_LETTERS_PER_INCH))
    below = _CAPTION_LINE * (words.count("\n") + 1) + _CAPTION_PAD if words else 0.0
    note = figure.text(0.01, 0.0, words, va="top", fontsize=size, color=style.GREY)
    layout: Any = figure.get_layout_engine()

    def place(height: float) -> None:
        figure.set_figheight(height)
        note.set_y((below - _CAPTION_PAD) / height)
        taken = below
        for box in figure.legends:
            box.set_bbox_to_anchor((0.5, below / height))
            # It stands half a letter above its anchor.
            taken += (
                box.get_window_extent().height / figure.dpi + 0.5 * style.letter_size("font") / style.POINTS_PER_INCH
            )
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


MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", ":", "-.")
FILLS = ("full", "none", "left", "right")
_PANEL_COLUMNS = 3
# The least width of a panel in inches, where a width is given.
_LEAST_PANEL = 1.9
# Beyond so many letters in an inch, the names below a categorical axis are turned.
_LETTERS_ACROSS = 10.5
_TITLE_LETTERS_PER_INCH = 10.5
# An interval that is narrower than this share of its mean is not seen as a bar.
_LEAST_GAP = 0.004
# Values of a numeric axis that are few enough to be marked each.
_MOST_TICKS = 8
# Names of points are at least so far apart, in inches.
_NAME_GAP = 0.18
_NAMES_HIGH = 1.2


def study_figures(measured: Measured) -> Iterator[tuple[str, Figure]]:
    """Draw the study's pictures, each with its name; one without a single number is left out."""
    with style.package_style(paper=measured.study.width is not None):
        for plot in measured.study.plots:
            figure = _draw(plot, measured)
            if figure is not None:
                yield plot.name, figure


def _draw(plot: Plot, measured: Measured) -> Figure | None:
    study, data = measured.study, plot_data(plot, measured, measured.summary[measured.summary["n"] > 0])
    across_measured = not data.over_rounds and plot.x not in data.axes
    if not len(data.drawn_means) or (across_measured and plot.x not in set(data.means["name"])):
        return None
    panels = data.values(plot.panels)
    wide = data.is_categorical and len(data.values(plot.x)) > 6
    across = 1 if wide else panels_across(len(panels), study.width, _LEAST_PANEL)
    down = math.ceil(len(panels) / across)
    width = 7.6 if wide else 5.8 if across == 1 else (3.8 if across == 2 else 3.5) * across
    height = 2.0 * down + 1.4 if wide and down > 1 else 0.9 + (3.4 if across == 1 else 2.9) * down
    if study.width is not None:
        width = study.width
    height += 0.0 if plot.points is None or data.is_joined else _NAMES_HIGH
    figure = style.new_figure(width, height)
    each = panel_axes(figure, len(panels), across)
    also = unnamed_axes(plot, measured)
    lines = [n for n in lines_of(data) if len(rows_of(data.means, n)) or is_lost(select(data.cells, n.where))]
    unplaced = []
    for ax, panel in zip(each, panels, strict=True):
        part = data.select({} if plot.panels is None else {plot.panels: panel})
        unplaced += _panel(ax, data, part, lines)
        if plot.panels is not None:
            ax.set_title(panel_title(plot.panels, panel), fontweight="normal")
        # Where panels lie side by side; below each other they share the lowest one's, which may be long names.
        if across > 1:
            ax.tick_params(labelbottom=True)
    beside = plot.y_label or (axis_label(plot.measures[0], data.cells) if len(plot.measures) == 1 else "")
    figure.supylabel(style.side_label(beside, figure), fontsize=style.letter_size("font"))
    label_lowest(each, across, axis_label(plot.x, data.cells))
    more = [unnamed_axes_words(plot, measured).removesuffix(".")] if also else []
    more += [
        f"Do not compare ε: its {column} differs (see the table)" for column in different_threat_models(data.cells)
    ]
    if plot.x in data.axes and not data.is_categorical and len(lines) > 1 and data.is_barred:
        more.append("Points of one place stand side by side")
    text = caption(data.drawn_means, data.cells, study.confidence, data.over_rounds, unplaced, more)
    legend(figure, data, lines)
    finish(figure, study, plot.title, text, lambda width: panel_height(width, across, down))
    return figure


def panel_title(axis: str, value: Label) -> str:
    """Words above a panel; a variant is named by itself.

    Example:
        >>> panel_title("privacy.epsilon", 4.0), panel_title("topology", "small_world"), panel_title("variant", "ours")
        ('target ε: 4', 'topology: small world', 'ours')
    """
    return label_text(value) if axis == VARIANT else f"{metric_stem(axis)}: {label_text(value)}"


def unnamed_axes(plot: Plot, measured: Measured) -> list[str]:
    """List the axes that vary among a picture's points and that it does not name, where x is measured."""
    names = [axis.name for axis in measured.axes]
    if plot.x == "round" or plot.x in names:
        # Such a picture is refused.
        return []
    rows = select(measured.summary[measured.summary["last"]], plot.where)
    rows = rows[rows["name"].isin(plot.measures)]
    used = (plot.lines, plot.panels, plot.points)
    return [name for name in names if name not in used and len(set(rows[name])) > 1]


def unnamed_axes_words(plot: Plot, measured: Measured) -> str:
    """Say which axes vary among a picture's points that it does not name; "" where it names all."""
    also = unnamed_axes(plot, measured)
    return f"Also varies: {', '.join(map(metric_stem, also))}." if also else ""


def lines_of(data: PlotData) -> list[Line]:
    """Colours tell the values of `lines`, dashes the measures; without `lines` colours tell the measures."""
    plot, values, coloured, lines = data.plot, data.values(data.plot.lines), data.plot.lines is not None, []
    for m, measure in enumerate(plot.measures):
        for k, value in enumerate(values):
            hue, place = (k, m) if coloured else (m, 0)
            where = {} if plot.lines is None else {plot.lines: value}
            # Where colours come again, their markers are others.
            again, colour = hue // len(style.SERIES_COLOURS), style.SERIES_COLOURS[hue % len(style.SERIES_COLOURS)]
            marker = MARKERS[(hue + again) % len(MARKERS)]
            dash, fill = DASHES[place % len(DASHES)], FILLS[place % len(FILLS)]
            name = label_text(value) if coloured else ""
            lines.append(Line(name, measure, where, colour, marker, dash, fill))
    return lines


def rows_of(means: pd.DataFrame, line: Line) -> pd.DataFrame:
    """Select the means that are points of a line."""
    return select(means[means["name"] == line.measure], line.where)


def _panel(ax: Axes, data: PlotData, part: PlotData, lines: Sequence[Line]) -> list[Labels]:
    """Draw what one panel shows, part of the data; returns the combinations that failed and have no place in it."""
    plot, axes, unplaced = data.plot, data.axes, []
    categories = data.values(plot.x) if data.is_categorical else None
    span = np.ptp(data.labels[plot.x].to_numpy(dtype=np.float64)) if plot.x in axes and categories is None else 0.0
    # Points of numbers stay at theirs where no bars would hide each other.
    barred = data.is_barred
    for k, line in enumerate(lines):
        # Side by side, so that the bars of one value do not hide each other.
        aside = (k + 0.5) / len(lines) - 0.5

        def x_positions(points: pd.DataFrame, aside: float = aside) -> Array:
            x = positions(part, points, categories)
            if categories is not None:
                return x + 0.5 * aside
            if plot.x not in axes or not barred:
                return x
            return x * (1 + 0.08 * aside) if "x" in plot.log else x + 0.05 * aside * span

        points = rows_of(part.means, line)
        if len(points):
            _draw_line(ax, line, points, x_positions(points), data.is_joined, band=data.over_rounds)
        own = select(part.cells, line.where)
        if not data.over_rounds:
            unplaced += mark_failed(ax, line.colour, own, list(axes), points, x_positions)
        elif is_lost(own):
            # Over rounds it has no place among them: at the foot, on the right.
            _cross(ax, 0.98 - 0.035 * k, line.colour, ax.transAxes)
    if "y" in plot.log:
        drawable = data.drawn_means[["mean", "low", "high"]].to_numpy()
        style.log_axis(ax, "y", np.concatenate([drawable / 1.1, drawable * 1.1]))
    if categories is not None:
        ax.set_xticks(range(len(categories)), [label_text(c) for c in categories])
        ax.set_xlim(-0.6, len(categories) - 0.4)
        ax.grid(False, axis="x")
        if sum(len(str(c)) for c in categories) > _LETTERS_ACROSS * _inches(ax):
            for name in ax.get_xticklabels():
                name.set(rotation=35, rotation_mode="anchor", horizontalalignment="right")
        return unplaced
    if "x" in plot.log:
        at = np.concatenate([positions(data, rows_of(data.means, line), None) for line in lines])
        style.log_axis(ax, "x", at if plot.x not in axes else data.labels[plot.x].to_numpy(dtype=np.float64))
    if plot.x in axes and len(values := data.values(plot.x)) <= _MOST_TICKS:
        ax.set_xticks([float(v) for v in values], [label_text(v) for v in values])
        ax.minorticks_off()
    if plot.points is not None and not data.is_joined:
        _name_points(ax, data, plot.points)
    return unplaced


def positions(part: PlotData, rows: pd.DataFrame, categories: Sequence[Label] | None) -> Array:
    """(k,) where a line's points are: rounds, the numbers or places of an axis, or the means of a measured name."""
    x = part.plot.x
    if categories is not None:
        return np.array([categories.index(v) for v in rows[x]], dtype=np.float64)
    if part.over_rounds or x in part.axes:
        return rows[x].to_numpy(dtype=np.float64)
    named = part.means[part.means["name"] == x]
    by = list(part.axes)
    means = {tuple(row[a] for a in by): row["mean"] for row in named.to_dict("records")}
    return np.array(
        [means.get(tuple(row[a] for a in by), math.nan) for row in rows.to_dict("records")], dtype=np.float64
    )


def _draw_line(ax: Axes, line: Line, means: pd.DataFrame, x: Array, joined: bool, band: bool) -> None:
    order = np.argsort(x, kind="stable")
    x, mean = x[order], means["mean"].to_numpy()[order]
    low, high = means["low"].to_numpy()[order], means["high"].to_numpy()[order]
    finite = np.isfinite(mean)
    marker = "none" if joined and finite.sum() > 25 else line.marker
    dash = line.dash if joined else "none"
    ax.plot(
        x[finite],
        mean[finite],
        color=line.colour,
        marker=marker,
        linestyle=dash,
        fillstyle="full" if joined else line.fill,
    )
    known = finite & np.isfinite(low)
    if band:
        ax.fill_between(x[known], low[known], high[known], color=line.colour, alpha=0.16, linewidth=0)
    else:
        spread = np.stack([mean - low, high - mean])[:, known]
        ax.errorbar(x[known], mean[known], spread, fmt="none", ecolor=line.colour, elinewidth=1.2, capsize=2)
    for at in x[np.isposinf(mean)]:
        ax.annotate("∞", (at, 0.985), xycoords=("data", "axes fraction"), color=line.colour, ha="center", va="top")


def _inches(ax: Axes) -> float:
    """How wide axes are; before they are laid out, about."""
    return float(ax.bbox.width / ax.figure.dpi)


def _name_points(ax: Axes, data: PlotData, axis: str) -> None:
    """Write the values of an axis above the picture, each joined to where its points are."""
    named: list[tuple[float, Label]] = []
    for value in data.values(axis):
        part = data.select({axis: value})
        shown = positions(part, part.drawn_means, None)
        named += [(float(x), value) for x in np.unique(shown[np.isfinite(shown)])]
    named.sort()
    ax.figure.draw_without_rendering()  # type: ignore[union-attr] # settles the limits; a figure always has it
    here = ax.transAxes.inverted().transform(ax.transData.transform([(x, ax.get_ylim()[0]) for x, _ in named]))[:, 0]
    gap, apart = _NAME_GAP / _inches(ax), here.copy()
    for k in range(1, apart.size):
        apart[k] = max(apart[k], apart[k - 1] + gap)
    apart -= max(0.0, float(apart[-1]) - 1.0)
    for k in range(apart.size - 2, -1, -1):
        apart[k] = min(apart[k], apart[k + 1] - gap, max(here[k], apart[k]))
    for (_, value), start, end in zip(named, here, apart, strict=True):
        ax.plot([start, start, end], [0, 1, 1.04], transform=ax.transAxes, color="#CCCCCC", linewidth=0.6, zorder=0.5)
        ax.lines[-1].set_clip_on(False)
        ax.annotate(
            label_text(value),
            (float(end), 1.05),
            xycoords="axes fraction",
            rotation=90,
            ha="center",
            va="bottom",
            fontsize=0.8 * style.letter_size("font"),
            color=style.GREY,
        )
