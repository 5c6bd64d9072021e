"""The look of figures: colours that can be told apart, matplotlib's settings, and axes, curves and titles.

The minor ticks of logarithmic axes are one collection of lines each: as ticks, each of them is five artists.

Axes side by side are placed so that their labels, ticks and titles end at the rim of the figure. Ticks are measured
once. Labels and titles are then put where they belong, which matplotlib would find out anew in every pass: two passes
over the ticks are left of about a dozen.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import printable
from decentral_dp.reporting.folder import Curve
from decentral_dp.reporting.words import power_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

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


# Okabe and Ito's palette: distinct under every common colour-vision deficiency, and in grey.
BLUE, VERMILLION, GREEN, ORANGE, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#555555"


CHANNEL_COLOURS = {"x": BLUE, "y": VERMILLION, "z": GREEN}


# Of channels with other names, in the order of the ledger.
OTHER_COLOURS = (ORANGE, PINK, "#56B4E9", "#000000", "#7A5C00", "#6A3D9A", "#8C8C8C")


# Of curves one after another, where nothing else gives them a colour.
SERIES_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PINK, "#56B4E9", GREY, "black")
# Of 0 to 9. Six, the usual one, makes files smaller by a fifth, and takes three times as long.
_COMPRESSION = 3
# Letters of a label in an inch, and inches of a figure's height that its title and the x axis take.
LETTERS_PER_INCH, _AROUND_AXES = 14.5, 0.85
# Letters of a title, which stands above the axes alone, in an inch of a figure.
TITLE_LETTERS_PER_INCH = 9.4
STYLE: dict[Any, Any] = {
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
    "figure.constrained_layout.w_pad": RIM,
    "figure.constrained_layout.h_pad": RIM,
    "lines.markersize": 3.5,
    # Names come from the user: a dollar sign in one must not start a formula.
    "text.parse_math": False,
    "savefig.dpi": 220,
    # Letters stay letters in a PDF, and the same picture is the same SVG.
    "pdf.fonttype": 42,
    "svg.hashsalt": "decentral_dp",
}
# In a paper letters have eight points, as its captions have.
PAPER_STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.titlepad": 6.0,
    "axes.linewidth": 0.6,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.constrained_layout.h_pad": 0.03,
}
Format = Literal["png", "svg", "pdf"]
FORMATS: tuple[Format, ...] = ("png", "svg", "pdf")
# What a file would say of the software and the day: the same picture is the same file.
_UNSAID: Mapping[str, Mapping[str, None]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}


@contextmanager
def package_style(paper: bool = False) -> Iterator[None]:
    """Draw in the style of this package, whatever the caller's settings of matplotlib; they come back afterwards.

    Args:
        paper: whether letters and lines have the sizes of a paper's figure.
    """
    # matplotlib is slow to import and only drawing needs it.
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE | PAPER_STYLE if paper else STYLE)
        yield


def letter_size(of: Literal["font", "axes.title"]) -> float:
    """The size in points of "font" or "axes.title" in the style that is drawn in."""
    import matplotlib

    return float(matplotlib.rcParams["font.size" if of == "font" else "axes.titlesize"])


def new_figure(width: float, height: float) -> Figure:
    """Make a figure of this size in inches, without pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def side_label(text: str, figure: Figure, taken: float = 0.0) -> str:
    """Wrap the label of a y axis, so that it is no longer than the figure's axes are high.

    Args:
        text: the label.
        figure: where it stands.
        taken: inches of the height that a legend takes.
    """
    return textwrap.fill(text, max(12, int((figure.get_figheight() - _AROUND_AXES - taken) * LETTERS_PER_INCH)))


def save_png(figure: Figure, path: Path | BinaryIO) -> None:
    """Write a figure as a PNG, in a fraction of the time of `savefig`, which draws it a first time to lay it out.

    Args:
        figure: of `new_figure`. One with axes side by side is laid out by their size alone.
        path: of the PNG, or where its bytes go.
    """
    import matplotlib
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    _write_out(figure)
    figure.set_dpi(matplotlib.rcParams["savefig.dpi"])
    canvas: Any = figure.canvas
    if in_a_row(figure):
        fill(figure, canvas.get_renderer())
    canvas.draw()
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba()))
    if drawn.getchannel("A").getextrema() == (255, 255):
        # What is opaque everywhere is three channels, and written in three quarters of the time.
        drawn = drawn.convert("RGB")
    # Without matplotlib's version, so that equal figures are equal files.
    dpi = (figure.dpi, figure.dpi)
    drawn.save(path, format="png", dpi=dpi, pnginfo=PngInfo(), compress_level=_COMPRESSION)


def save_figure(figure: Figure, path: Path, formats: Sequence[Format] = ("png",)) -> list[Path]:
    """Write a figure in each of these formats, and remove files of the others.

    Args:
        figure: as drawn.
        path: without an ending.
        formats: none of them removes what there is.

    Returns:
        The paths that were written.
    """
    remove_figure(path, formats)
    return write_figure(figure, path, formats)


def write_figure(figure: Figure, path: Path, formats: Sequence[Format] = ("png",)) -> list[Path]:
    """Write a figure in each of these formats, and return the paths; path: without an ending."""
    written = []
    for ending in FORMATS:
        file = path.with_name(f"{path.name}.{ending}")
        if ending == "png" and ending in formats:
            save_png(figure, file)
        elif ending in formats:
            _write_out(figure)
            figure.savefig(file, metadata=dict(_UNSAID[ending]))
        else:
            continue
        written.append(file)
    return written


def _write_out(figure: Figure) -> None:
    """Write control characters of a figure's texts out: a font has none, and the warning would hold them."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        said = text.get_text()
        if not said.isprintable():
            text.set_text(printable(said))


def remove_figure(path: Path, kept: Sequence[Format] = ()) -> None:
    """Remove a figure in all formats but those that are kept; path: without an ending."""
    for ending in FORMATS:
        if ending not in kept:
            path.with_name(f"{path.name}.{ending}").unlink(missing_ok=True)


# Inches of height that a legend below the axes takes.
_LEGEND = 0.35


def draw_curves(ax: Axes, curves: Mapping[str, tuple[Curve, str, str]]) -> None:
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
    margin = 0.02 * (last - first + 1) if last > first else 0.5  # A single round still has whole numbers beside it.
    ax.set_xlim(first - margin, last + margin)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    if len(curves) > 1:
        _legend(ax, curves)


def _legend(ax: Axes, curves: Mapping[str, tuple[Curve, str, str]]) -> None:
    """Say which curve is which: below the axes where there are bands, which may leave no free place inside."""
    if not any(np.any(c.high > c.low) for c, *_ in curves.values()):
        ax.legend(loc="best")
        return
    width = ax.figure.get_figwidth() if hasattr(ax.figure, "get_figwidth") else 0.0
    # A handle takes the room of five letters.
    fits = sum(len(label) + 5 for label in curves) <= width * LETTERS_PER_INCH
    ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.46, -0.22),
        ncols=len(curves) if fits else 2,
        handlelength=1.5,
        handletextpad=0.5,
        columnspacing=1.2,
        borderaxespad=0.0,
    )


def log_axis(ax: Axes, which: str, values: Array | Sequence[float]) -> None:
    """Make the x or y axis logarithmic over `values`, at least one decade long, with labels that can be read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    numbers = np.ravel(np.asarray(values, dtype=np.float64))
    positive = numbers[np.isfinite(numbers) & (numbers > 0)]
    low, high = (float(positive.min()), float(positive.max())) if positive.size else (1.0, 1.0)
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


def title(ax: Axes, text: str) -> None:
    """Set the title, and wrap the label of the y axis, which is set before; both to the size of the figure."""
    figure = ax.get_figure(root=True)
    if figure is not None:
        ax.set_title(textwrap.fill(text, int(figure.get_figwidth() * TITLE_LETTERS_PER_INCH)), loc="left")
        ax.set_ylabel(side_label(ax.get_ylabel(), figure, 0.0 if ax.get_legend() is None else _LEGEND))


def flat_axis(ax: Axes, values: Array) -> None:
    """Keep a linear y axis from magnifying rounding: at least 2 % of the largest value high."""
    finite = values[np.isfinite(values)]
    least = 0.02 * float(np.abs(finite).max(initial=0.0)) or 1.0
    if finite.size and np.ptp(finite) < least:
        middle = (float(finite.min()) + float(finite.max())) / 2
        ax.set_ylim(middle - least / 2, middle + least / 2)


def value_axis(ax: Axes, values: Array) -> None:
    """Make the y axis logarithmic where finite values are positive and span more than a factor 30, else linear."""
    drawn = values[np.isfinite(values)]
    if drawn.size and drawn.min() > 0 and drawn.max() > 30 * drawn.min():
        log_axis(ax, "y", drawn)
    else:
        flat_axis(ax, drawn)


def change(name: str, c: Curve) -> str:
    """What a curve did, in words: its ends, and an extreme in between that lies clearly beyond both."""
    first, last = c.ends
    if c.overflow is not None:
        return f"{name} overflows at round {c.overflow}"
    if c.mean.size == 1:
        return f"{name} at round {c.rounds[0]:.0f}: {power_text(last)}"
    peaks = _peaks(c)
    through = f", through {' and '.join(peaks)}" if peaks else ""
    if _ends_alike(c):
        return f"{name} {'starts and ends' if peaks else 'stays'} at {power_text(last)}{through}"
    return f"{name} {'falls' if last < first else 'rises'} from {power_text(first)} to {power_text(last)}{through}"


def stays(c: Curve) -> bool:
    """Whether a curve over several rounds stays what it was."""
    return c.overflow is None and c.mean.size > 1 and _ends_alike(c) and not _peaks(c)


def _ends_alike(c: Curve) -> bool:
    first, last = c.ends
    return abs(last - first) <= 0.01 * abs(first)


def _peaks(c: Curve) -> list[str]:
    """The extremes in between that lie clearly beyond both ends."""
    first, last = c.ends
    low, high = int(np.argmin(c.mean)), int(np.argmax(c.mean))
    clear = 0.1 * (c.mean[high] - c.mean[low])
    return [
        f"{power_text(c.mean[at])} at round\u00a0{c.rounds[at]:.0f}"
        for at, beyond in ((high, c.mean[high] - max(first, last)), (low, min(first, last) - c.mean[low]))
        if beyond > max(clear, 0.01 * abs(first))
    ]
