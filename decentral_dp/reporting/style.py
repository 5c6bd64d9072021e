"""Style of figures: colours, settings of matplotlib, axes, curves and titles."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import printable
from decentral_dp.files.durable import write_whole
from decentral_dp.formatting import power_text
from decentral_dp.reporting.report import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: distinct under every common colour-vision deficiency, and in grey.
BLUE, VERMILLION, GREEN, ORANGE, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#555555"


# Colours of curves in their order.
SERIES_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PINK, "#56B4E9", GREY, "black")
# Letters of a label per inch, and inches of a figure's height for its title and the x axis.
_LETTERS_PER_INCH, _AROUND_AXES = 14.5, 0.85
Format = Literal["png", "svg", "pdf"]
FORMATS: tuple[Format, ...] = ("png", "svg", "pdf")
# Without software and date, so that equal figures are equal files.
_SAVE_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "png": {"metadata": {"Software": None}},
    "svg": {"metadata": {"Creator": None, "Date": None, "Format": None, "Type": None}},
    "pdf": {"metadata": {"CreationDate": None, "Producer": None, "Creator": None}},
}


@contextmanager
def package_style(settings: Any = None) -> Iterator[None]:
    """Draw in the style of this package inside `with`. The caller's matplotlib settings are restored afterwards.

    Args:
        settings: settings of matplotlib, name → value, that replace those of the package; default none.
    """
    # matplotlib is slow to import and only drawing needs it.
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        path = Path(__file__).with_name("package.mplstyle")
        matplotlib.rcParams.update(matplotlib.rc_params_from_file(path, use_default_template=False))
        matplotlib.rcParams.update(settings or {})
        yield


def letter_size(element: Literal["font", "axes.title"]) -> float:
    """Return the size in points of "font" or "axes.title" in the current style."""
    import matplotlib

    return float(matplotlib.rcParams["font.size" if element == "font" else "axes.titlesize"])


# Characters of labels → LaTeX.
_TEX: Mapping[str, str] = {
    **{"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", **{sign: f"\\{sign}" for sign in "&%#_${}"}},
    **{"x̄": r"$\bar{x}$", "ȳ": r"$\bar{y}$", "≤": r"$\le$", "‖": r"$\|$", "∇": r"$\nabla$", "∞": r"$\infty$"},
    **{"→": r"$\to$", "−": "$-$", "·": r"$\cdot$", "±": r"$\pm$", "ℓ": r"$\ell$", "₁": "$_1$", "₂": "$_2$"},
    **{"Φ": r"$\Phi$", "δ": r"$\delta$", "ε": r"$\varepsilon$", "λ": r"$\lambda$", "μ": r"$\mu$", "ρ": r"$\rho$"},
    **{"ζ": r"$\zeta$", "×": r"$\times$", "≠": r"$\neq$"},
    **{"⁻": "$^-$", **{sign: f"$^{k}$" for k, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}},
}


def tex(text: str) -> str:
    """Return a text for LaTeX if the current style uses it.

    Example:
        >>> with package_style({"text.usetex": True}):
        ...     print(tex("ε at 95 %, 10⁻³"), tex("test_accuracy"))
        $\\varepsilon$ at 95 \\%, 10$^-$$^3$ test\\_accuracy
        >>> tex("test_accuracy")
        'test_accuracy'
    """
    import matplotlib

    if not matplotlib.rcParams["text.usetex"]:
        return text
    return re.sub("|".join(map(re.escape, _TEX)), lambda sign: _TEX[sign[0]], text)


def new_figure(width: float, height: float) -> Figure:
    """Make a figure with the given width and height in inches, without pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def side_label(text: str, figure: Figure) -> str:
    """Wrap the label of a y axis to the height of the figure's axes."""
    legend = 0.45 if figure.legends else 0.0
    return textwrap.fill(text, max(12, int((figure.get_figheight() - _AROUND_AXES - legend) * _LETTERS_PER_INCH)))


def picture_of(figure: Figure, ending: Format = "svg") -> bytes:
    """Return the content of a figure's file in one format."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.text import Text

    # A font has no control characters, and matplotlib's warning would print them.
    for text in figure.findobj(Text):
        words = text.get_text()
        if not words.isprintable():
            text.set_text(printable(words))
    content, engine = io.BytesIO(), figure.get_layout_engine()
    if ending == "svg" and engine is not None:
        # `savefig` draws a figure twice unless its layout is fixed. Layout needs the sizes of texts in an SVG file.
        dpi = figure.dpi
        FigureCanvasSVG(figure)
        engine.execute(figure)
        figure.set(dpi=dpi, layout_engine=None)
    figure.savefig(content, format=ending, **_SAVE_OPTIONS[ending])
    figure.set(layout_engine=engine)
    return content.getvalue()


def write_figure(figure: Figure, path: Path, formats: Sequence[Format] = ("svg",), mode: int = 0o666) -> list[Path]:
    """Write a figure in some formats, remove it in all others, and return the paths.

    Args:
        figure: figure to write.
        path: path without an ending.
        formats: endings of the files.
        mode: file mode before the umask is applied.
    """
    paths = []
    for ending in FORMATS:
        file = path.with_name(f"{path.name}.{ending}")
        if ending in formats:
            write_whole(file, picture_of(figure, ending), mode)
            paths.append(file)
        else:
            file.unlink(missing_ok=True)
    return paths


# Largest number of steps between ticks; placing ticks takes most of the time of a figure.
_TICKS = 5
# Largest number of points of a line. More points enlarge pages, and no screen shows them.
MOST_POINTS = 400


def thin(c: Curve) -> Curve:
    """Return at most `MOST_POINTS` points of a curve: every k-th mean, with the extremes up to the next point.

    The last point is kept.
    """
    starts = np.unique(np.linspace(0, c.rounds.size - 1, min(MOST_POINTS, c.rounds.size)).round().astype(int))
    low, high = np.fmin.reduceat(c.low, starts), np.fmax.reduceat(c.high, starts)
    return Curve(c.rounds[starts], c.mean[starts], low, high, c.overflow)


def draw_curves(ax: Axes, curves: Mapping[str, tuple[Curve, str, str]]) -> None:
    """Draw label → (curve, colour, line style), with the mean as a line and the range over agents as a band."""
    from matplotlib.ticker import MaxNLocator

    curves = {label: (thin(c), colour, dash) for label, (c, colour, dash) in curves.items()}
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
    first = min(c.rounds[np.isfinite(c.mean)].min(initial=c.rounds[-1]) for c, *_ in curves.values())
    last = max(c.rounds[-1] for c, *_ in curves.values())
    # Markers at the ends stay whole.
    margin = 0.015 * (last - first) if last > first else 0.5
    ax.set_xlim(first - margin, last + margin)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=_TICKS, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    labels = ax.get_legend_handles_labels()[1]
    if len(labels) > 1:
        figure: Any = ax.get_figure(root=True)
        figure.legend(loc="outside lower center", ncols=2 if max(map(len, labels)) > 12 else len(labels))


def log_axis(ax: Axes, axis_name: str, values: Array | Sequence[float], narrow: bool = False) -> None:
    """Make an axis logarithmic over at least one decade.

    Args:
        ax: axes of the figure.
        axis_name: name of the axis, "x" or "y".
        values: values on the axis, of any shape.
        narrow: whether there is room for four labels instead of nine.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    numbers = np.ravel(np.asarray(values, dtype=np.float64))
    positive = numbers[np.isfinite(numbers) & (numbers > 0)]
    low, high = (float(positive.min()), float(positive.max())) if positive.size else (1.0, 1.0)
    widen = max(1.2, math.sqrt(10.0 / (high / low)))
    limits = low / widen, high * widen
    if axis_name == "x":
        axis: Any = ax.xaxis
        ax.set_xscale("log")
        ax.set_xlim(limits)
    else:
        axis = ax.yaxis
        # Zeros are masked: a line to 0 would look like a collapse.
        ax.set_yscale("log", nonpositive="mask")
        ax.set_ylim(limits)
    dense = high / low * widen**2 < (20 if narrow else 200)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if dense else (1.0,), numticks=4 if narrow else 9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tex(power_text(value))))
    # Minor ticks take a sixth of the time of all figures.
    axis.set_minor_locator(NullLocator())


def title(ax: Axes, text: str) -> None:
    """Set the title, and wrap the label of the y axis."""
    ax.set_title(text, loc="left", wrap=True)
    figure: Any = ax.get_figure(root=True)
    ax.set_ylabel(side_label(ax.get_ylabel(), figure))


def flat_axis(ax: Axes, values: Array) -> None:
    """Make the y axis linear, with a range of at least 2 % of the largest value, so that rounding is not magnified."""
    ax.locator_params(axis="y", nbins=_TICKS)
    finite = values[np.isfinite(values)]
    least = 0.02 * float(np.abs(finite).max(initial=0.0)) or 1.0
    if finite.size and np.ptp(finite) < least:
        middle = (float(finite.min()) + float(finite.max())) / 2
        ax.set_ylim(middle - least / 2, middle + least / 2)


def scale_axis(ax: Axes, scale: str, values: Array) -> None:
    """Scale the y axis.

    Args:
        ax: axes of the figure.
        scale: kind of scale: "log", "flat" (linear), or "values", which is logarithmic if all values are positive and
            differ by a factor of 30.
        values: values on the axis, of any shape.
    """
    finite = values[np.isfinite(values)]
    if scale == "log" or (scale == "values" and finite.size and finite.max() > 30 * finite.min() > 0):
        log_axis(ax, "y", finite)
    else:
        flat_axis(ax, finite)


def change(name: str, c: Curve) -> str:
    """Return a sentence about the first and the last value of a curve."""
    first, last = c.ends
    if c.overflow is not None:
        return f"{name} overflows at round {c.overflow}"
    drawn = c.rounds[np.isfinite(c.mean)]
    if drawn.size == 1:
        return f"{name} at round {drawn[0]:.0f}: {power_text(last)}"
    if abs(last - first) <= 0.01 * abs(first):
        return f"{name} starts and ends at {power_text(last)}"
    return f"{name} {'falls' if last < first else 'rises'} from {power_text(first)} to {power_text(last)}"
