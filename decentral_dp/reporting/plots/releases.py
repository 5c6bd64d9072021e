"""Figures of the releases: their noise and sensitivity, and the values of x."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from decentral_dp.reporting.folder import OVERFLOW, Drawing
from decentral_dp.reporting.plots.style import BLUE, CHANNEL_COLOURS, GREY, OTHER_COLOURS, flat_axis, log_axis, title
from decentral_dp.reporting.words import power_text, spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN_COORDINATES = 100
# So many coordinates have their names below the axis, where features name them.
_NAMED_COORDINATES = 40
# Inches that these names take below the axis, of which a figure has half anyway.
_NAMES_BELOW = 0.9
# Letters in a line of a legend that has half a figure.
_LEGEND_LETTERS = 22


def upper_variable(figure: Figure, d: Drawing) -> bool:
    """The published x per coordinate: mean over agents, lowest to highest, and where it started.

    Nothing where x was not tuned, or ended where it started.
    """
    from matplotlib.ticker import MaxNLocator

    if d.x is None or not 0 < d.x.shape[1] <= DRAWN_COORDINATES or not np.all(np.abs(d.x) < OVERFLOW):
        return False
    if not d.words.many and d.x.size == 1:  # The page says it in words.
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
    rows = d.ledger[(d.ledger["scale"] > 0) & ~d.ledger["mechanism"].isin(["free", "none"])]
    # What one release carries is said in words.
    if rows.empty or (not d.words.many and rows["release"].nunique() == 1):
        return False
    left, right = figure.subplots(1, 2, sharex=True)
    unbounded = [str(c) for c in rows.loc[~np.isfinite(rows["sensitivity"]), "channel"].unique()]
    laplace = bool((rows["mechanism"] == "laplace").any())
    channels = [str(c) for c in rows["channel"].unique()]
    others = [c for c in channels if c not in CHANNEL_COLOURS]
    colours = {**CHANNEL_COLOURS, **{c: OTHER_COLOURS[k % len(OTHER_COLOURS)] for k, c in enumerate(others)}}
    scales = {(str(c), ""): part.groupby("round")["scale"] for c, part in rows.groupby("channel", observed=True)}
    bounded = rows[(rows["sensitivity"] > 0) & np.isfinite(rows["sensitivity"])]
    moves = {
        (str(c), str(kind)): part.groupby("round")["sensitivity"]
        for (c, kind), part in bounded.groupby(["channel", "records"], observed=True)
    }
    _ledger_lines(left, scales, channels, colours)
    _ledger_lines(right, moves, channels, colours)
    log_axis(left, "x", rows["round"].to_numpy(dtype=np.float64))
    log_axis(left, "y", rows["scale"].to_numpy())
    log_axis(right, "y", rows["sensitivity"].to_numpy())
    drawn = set(rows["mechanism"].unique()) - {"laplace", "gaussian"}
    left.set_ylabel("noise: Laplace scale b" if laplace else "noise: standard deviation")
    right.set_ylabel(f"sensitivity to one record ({'ℓ1' if laplace else 'ℓ2'})")
    if drawn:
        left.set_ylabel("scale of noise and of choices")
        right.set_ylabel("sensitivity to one record")
    for ax in (left, right):
        ax.set_xlabel("round")
        if not ax.lines:
            ax.tick_params(axis="y", which="both", left=False, labelleft=False)
            ax.text(0.5, 0.5, "∞", transform=ax.transAxes, ha="center", va="center", fontsize=28, color=GREY)
    _legends(figure, (left, right))
    ratio = (rows["scale"] / rows["sensitivity"])[rows["sensitivity"] > 0]
    if unbounded:
        message = f"Nothing bounds what one record can do to {_listed(unbounded)}: no noise can be enough"
    elif "uncertified" in drawn:
        message = "Nothing is proven of these random choices: ε = ∞, whatever their scale"
    else:
        if not d.words.many:  # One number for all kinds of records, by the one that can do most.
            ratio = ratio.groupby([rows["channel"], rows["release"]]).min()
        low, high = (power_text(float(f"{r:.2g}")) for r in (ratio.min(), ratio.max()))
        what = "Scales are" if drawn else "Noise is"
        message = f"{what} {low if low == high else f'{low} to {high}'} times what one replaced record can move"
    figure.suptitle(
        textwrap.fill(message, int(figure.get_figwidth() * 11.0)), x=0.02, ha="left", fontsize=10.5, fontweight="bold"
    )
    return True


def _legends(figure: Figure, axes: Sequence[Axes]) -> None:
    """Every line named: among the lines where there is room, below them where there are many or long names."""
    labels = [[textwrap.fill(str(line.get_label()), _LEGEND_LETTERS) for line in ax.lines] for ax in axes]
    rows = max(sum(label.count("\n") + 1 for label in of) for of in labels)
    below = rows > 4 or any(len(label) > _LEGEND_LETTERS - 6 for of in labels for label in of)
    if below:
        figure.set_figheight(figure.get_figheight() + 0.2 * rows)
    for ax, of in zip(axes, labels, strict=True):
        if of and below:
            ax.legend(ax.lines, of, loc="upper left", bbox_to_anchor=(-0.2, -0.2), borderaxespad=0.0)
        elif of:
            ax.legend(loc="best")


def _ledger_lines(
    ax: Axes, series: Mapping[tuple[str, str], Any], channels: Sequence[str], colours: Mapping[str, str]
) -> None:
    """Lines by (channel, record kind), each named; those that coincide are one line with all their names."""
    drawn: list[tuple[list[tuple[str, str]], tuple[Any, Any, Any]]] = []
    curves = {key: (of.median(), of.min(), of.max()) for key, of in series.items()}
    # The longest first: a shorter one that runs along it is a part of it.
    for key in sorted(curves, key=lambda key: (-curves[key][0].size, channels.index(key[0]), key[1])):
        curve = curves[key]
        same = next((keys for keys, c in drawn if _coincide(c, curve)), None)
        if same is None:
            drawn.append(([key], curve))
        else:
            same.append(key)
    for keys, (middle, low, high) in drawn:
        colour, style = colours[keys[0][0]], "--" if all(kind == "validation" for _, kind in keys) else "-"
        ax.fill_between(middle.index, low, high, color=colour, alpha=0.16, linewidth=0)
        marker = "o" if middle.size <= 25 else None
        ax.plot(middle.index, middle, style, color=colour, marker=marker, label=_named(keys))


def _named(keys: Sequence[tuple[str, str]]) -> str:
    """ "h, v1–v5, train; z, train and validation": channels of the same record kinds together."""
    kinds: dict[str, list[str]] = {}
    for channel, kind in keys:
        kinds.setdefault(channel, []).append(kind)
    alike: dict[str, list[str]] = {}
    for channel, of in kinds.items():
        alike.setdefault(" and ".join(of), []).append(channel)
    return "; ".join(f"{_listed(names)}, {of}" if of else _listed(names) for of, names in alike.items())


def _listed(names: Sequence[str]) -> str:
    """ "h, v1–v5": numbered channels in a row drawn together."""
    return ", ".join(spans(names, least=3))


def _coincide(longer: tuple[Any, Any, Any], shorter: tuple[Any, Any, Any]) -> bool:
    """Whether two curves, (median, lowest, highest) by round, cannot be told apart where the shorter is."""
    if not shorter[0].index.isin(longer[0].index).all():
        return False
    return all(np.allclose(a[b.index], b, rtol=0.01, atol=0.0) for a, b in zip(longer, shorter, strict=True))
