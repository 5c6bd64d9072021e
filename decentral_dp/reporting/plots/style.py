"""The look of figures: colours that can be told apart, matplotlib's settings, and axes, curves and titles."""

from __future__ import annotations

import io
import math
import struct
import textwrap
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import printable
from decentral_dp.files.durable import write_whole
from decentral_dp.formatting import power_text
from decentral_dp.reporting.folder import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS_PER_INCH = 72.0

# Okabe and Ito's palette: distinct under every common colour-vision deficiency, and in grey.
BLUE, VERMILLION, GREEN, ORANGE, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#555555"


CHANNEL_COLOURS = {"x": BLUE, "y": VERMILLION, "z": GREEN}


# Of channels with other names, in the order of the ledger.
OTHER_COLOURS = (ORANGE, PINK, "#56B4E9", "#000000", "#7A5C00", "#6A3D9A", "#8C8C8C")


# Of curves one after another, where nothing else gives them a colour.
SERIES_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PINK, "#56B4E9", GREY, "black")
# Letters of a label in an inch, and inches of a figure's height that its title and the x axis take.
LETTERS_PER_INCH, _AROUND_AXES = 14.5, 0.85
# Letters of a title, which stands above the axes alone, in an inch of a figure.
TITLE_LETTERS_PER_INCH = 9.4
Format = Literal["png", "svg", "pdf"]
FORMATS: tuple[Format, ...] = ("png", "svg", "pdf")
# Nothing of the software and the day is written: the same picture is the same file.
_SAVE_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None, "Producer": None, "Creator": None}},
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
        for name in ("package", "paper") if paper else ("package",):
            path = Path(__file__).with_name(f"{name}.mplstyle")
            matplotlib.rcParams.update(matplotlib.rc_params_from_file(path, use_default_template=False))
        yield


def letter_size(element: Literal["font", "axes.title"]) -> float:
    """The size in points of "font" or "axes.title" in the style that is drawn in."""
    import matplotlib

    return float(matplotlib.rcParams["font.size" if element == "font" else "axes.titlesize"])


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


def picture_of(figure: Figure, ending: Format = "png") -> bytes:
    """Return the content of a figure's file in one format."""
    from matplotlib import rcParams

    _write_out(figure)
    if ending != "png":
        content = io.BytesIO()
        figure.savefig(content, format=ending, **_SAVE_OPTIONS[ending])
        return content.getvalue()
    # savefig draws everything twice, first for the layout alone, which each drawing makes.
    canvas: Any = figure.canvas
    shown, dpi = figure.get_dpi(), rcParams["savefig.dpi"]
    figure.set_dpi(shown if dpi == "figure" else dpi)
    canvas.draw()
    png = _png(np.asarray(canvas.buffer_rgba()), figure.get_dpi())
    figure.set_dpi(shown)
    return png


# Of 0 to 9. Six, the usual one, makes files smaller by a tenth, and takes twice as long.
_COMPRESSION = 3


def _png(pixels: Array, dpi: float) -> bytes:
    """The opaque pixels (h, w, 4) of a figure as a PNG whose rows are not filtered.

    Pillow tries five filters on every row, for photographs: that takes three times as long, and figures get larger.
    """
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), dtype=np.uint8)
    rows[:, 1:] = pixels[..., :3].reshape(height, -1)
    per_metre = round(dpi / 0.0254)
    chunks = {
        b"IHDR": struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0),
        b"pHYs": struct.pack(">2IB", per_metre, per_metre, 1),
        b"IDAT": zlib.compress(rows.data, _COMPRESSION),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )


def write_figure(figure: Figure, path: Path, formats: Sequence[Format] = ("png",), mode: int = 0o666) -> list[Path]:
    """Write a figure in each of these formats, and return the paths.

    Args:
        figure: to write.
        path: without an ending.
        formats: endings.
        mode: of the files, less the umask.
    """
    files = {ending: path.with_name(f"{path.name}.{ending}") for ending in FORMATS if ending in formats}
    for ending, file in files.items():
        write_whole(file, picture_of(figure, ending), mode)
    return list(files.values())


def _write_out(figure: Figure) -> None:
    """Write control characters of a figure's texts out: a font has none, and the warning would hold them."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        words = text.get_text()
        if not words.isprintable():
            text.set_text(printable(words))


def remove_figure(path: Path, but: Sequence[Format] = ()) -> None:
    """Remove a figure in all formats but some; path: without an ending."""
    for ending in FORMATS:
        if ending not in but:
            path.with_name(f"{path.name}.{ending}").unlink(missing_ok=True)


# Inches of height that a legend below the axes takes.
_LEGEND = 0.35
# Steps between ticks, at most. Making and placing its ticks is what takes the time of a figure.
_TICKS = 5


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
    ax.xaxis.set_major_locator(MaxNLocator(nbins=_TICKS, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
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


def log_axis(ax: Axes, which: str, values: Array | Sequence[float], narrow: bool = False) -> None:
    """Make the x or y axis logarithmic over `values`, at least one decade long, with labels that can be read.

    values: of any shape. narrow: whether there is room for four labels beside each other, not for nine.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

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
    dense = high / low * widen**2 < (20 if narrow else 200)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if dense else (1.0,), numticks=4 if narrow else 9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_text(value)))
    # Ticks without numbers take a sixth of the time of all pictures of a run.
    axis.set_minor_locator(NullLocator())


def title(ax: Axes, text: str) -> None:
    """Set the title, and wrap the label of the y axis, which is set before; both to the size of the figure."""
    figure = ax.get_figure(root=True)
    if figure is not None:
        words = textwrap.fill(text, int(figure.get_figwidth() * TITLE_LETTERS_PER_INCH))
        # Beyond these a power of ten may stand above the axis; to look for one takes longer than to draw the ticks.
        is_plain = 1e-4 < max(map(abs, ax.get_ylim())) < 1e5
        ax.set_title(words, loc="left", y=1.0 if is_plain else None)
        ax.set_ylabel(side_label(ax.get_ylabel(), figure, 0.0 if ax.get_legend() is None else _LEGEND))


def flat_axis(ax: Axes, values: Array) -> None:
    """Keep a linear y axis from magnifying rounding: at least 2 % of the largest value high. values: of any shape."""
    ax.locator_params(axis="y", nbins=_TICKS)
    finite = values[np.isfinite(values)]
    least = 0.02 * float(np.abs(finite).max(initial=0.0)) or 1.0
    if finite.size and np.ptp(finite) < least:
        middle = (float(finite.min()) + float(finite.max())) / 2
        ax.set_ylim(middle - least / 2, middle + least / 2)


def value_axis(ax: Axes, values: Array) -> None:
    """Make the y axis logarithmic where finite values are positive and span more than a factor 30, else linear.

    values: of any shape.
    """
    finite = values[np.isfinite(values)]
    if finite.size and finite.min() > 0 and finite.max() > 30 * finite.min():
        log_axis(ax, "y", finite)
    else:
        flat_axis(ax, finite)


def change(name: str, c: Curve) -> str:
    """What a curve did, in words: its ends, and an extreme in between that lies clearly beyond both."""
    first, last = c.ends
    if c.overflow is not None:
        return f"{name} overflows at round {c.overflow}"
    if c.mean.size == 1:
        return f"{name} at round {c.rounds[0]:.0f}: {power_text(last)}"
    peaks = _peaks(c)
    through = f", through {' and '.join(peaks)}" if peaks else ""
    if _has_equal_ends(c):
        return f"{name} {'starts and ends' if peaks else 'stays'} at {power_text(last)}{through}"
    return f"{name} {'falls' if last < first else 'rises'} from {power_text(first)} to {power_text(last)}{through}"


def is_constant(c: Curve) -> bool:
    """Whether a curve over several rounds stays what it was."""
    return c.overflow is None and c.mean.size > 1 and _has_equal_ends(c) and not _peaks(c)


def _has_equal_ends(c: Curve) -> bool:
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
