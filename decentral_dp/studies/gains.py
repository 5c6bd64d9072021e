"""Gains: differences between two variants, seed by seed, with an interval at every level, and their pictures.

Both sides of a pair are given the same problem, records, seed and privacy target, and the same graph, so that a
difference is of the programs alone; or the same program, so that it is of the networks alone. A level pays where the
whole interval of the mean gain lies above 0, both sides cost the same certified ε, and no cell of either side failed: a
mean over the pairs that are left would flatter. A picture is a phase diagram over two axes, or the gain with its
interval over one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from decentral_dp.config.loading import nearest_of
from decentral_dp.errors import InputError, quoted
from decentral_dp.formatting import power_text
from decentral_dp.reporting.plots import style
from decentral_dp.studies.intervals import counts_text, described_intervals, interval, spread_text
from decentral_dp.studies.measures import axis_label, check_measure, label_text, metric_stem
from decentral_dp.studies.plots import MARKERS, finish, label_lowest, panel_axes, panel_height, panels_across
from decentral_dp.studies.runs import GOOD
from decentral_dp.studies.schema import VARIANT, Axis, Cell, Gain, Pair, Study, are_numbers
from decentral_dp.studies.verdicts import check_where, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What a level of a pair is called.
PAYS, COSTS, OPEN, FAILED, UNEQUAL = "pays", "costs", "open", "failed", "unequal ε"
# What a pair shares: tables of the scenario, by what it is between, and keys of its [privacy].
_SHARED_TABLES = {"programs": ("problem", "topology"), "networks": ("problem", "algorithm")}
_SHARED_PRIVACY = ("guarantee", "mechanism", "epsilon", "delta", "cap", "unit", "neighbours")
# One side may cost so much more than the other: a calibration leaves less than this of its target unspent.
_SAME_EPSILON = 1.002
COLUMNS = ("gain", "pair", "name", "n", "pairs", "failed", "mean", "low", "high", "epsilon_of", "epsilon_over")


def check_gains(study: Study, axes: Sequence[Axis], cells: Sequence[Cell]) -> None:
    """Refuse a gain that names no variant, axis or measure of this study, or that compares what differs otherwise.

    Raises:
        InputError: one sentence on what is wrong.
    """
    known = {axis.name: axis for axis in axes}
    variants = known[VARIANT].labels if VARIANT in known else ()
    for gain in study.gains:
        place = f"gains ({gain.name})"
        check_measure(f"{place}.measure", gain.measure, study.kind, over_rounds=False)
        for key, name in (("x", gain.x), ("y", gain.y)):
            if name is not None and (name == VARIANT or name not in known):
                raise InputError(f"{place}.{key}: {quoted(name)} is no axis of the grid; name a key of it.")
            if name is not None and gain.y is not None and not known[name].is_numeric:
                raise InputError(f"{place}.{key}: {quoted(name)} is no axis of numbers; leave out y, and make it x.")
        check_where(gain.where, axes, place)
        left = [a.name for a in axes if a.name not in (VARIANT, gain.x, gain.y, *gain.where) and len(a.values) > 1]
        if left:
            raise InputError(f"{place}: {left[0]} varies too; make it x or y, or fix it in where.")
        for pair in gain.pairs:
            for name in (pair.of, pair.over):
                if name not in variants:
                    raise InputError(
                        f"{place}.pairs: {quoted(name)} is no variant{nearest_of(name, [str(v) for v in variants])}."
                    )
            run = [cell for cell in cells if all(cell.labels[axis] == label for axis, label in gain.where.items())]
            _check_alike(f"{place}.pairs ({pair.name})", pair, run, gain.between)


def _check_alike(place: str, pair: Pair, cells: Sequence[Cell], between: str) -> None:
    """The same records and target on both sides, cell by cell; the same graph, or the same program."""

    def shared(cell: Cell) -> dict[str, Any]:
        out = {name: cell.content.get(name) for name in _SHARED_TABLES[between]}
        privacy = cell.content.get("privacy") or {}
        return out | {f"privacy.{key}": privacy.get(key) for key in _SHARED_PRIVACY}

    sides: list[dict[Any, Cell]] = [{}, {}]
    for cell in cells:
        for side, name in zip(sides, (pair.of, pair.over), strict=True):
            if cell.labels[VARIANT] == name:
                side[(cell.seed, *(v for a, v in cell.labels.items() if a != VARIANT))] = cell
    both = [at for at in sides[0] if at in sides[1]]
    if not both:
        raise InputError(f"{place}: there is no cell of both sides. Name variants that are run at the same values.")
    for at in both:
        left, right = shared(sides[0][at]), shared(sides[1][at])
        unlike = next((key for key in left if left[key] != right[key]), None)
        if unlike is not None:
            raise InputError(
                f"{place}: {quoted(pair.of)} and {quoted(pair.over)} differ in {unlike}, so that their difference is "
                f"not of the {between} alone. Give both the same."
            )


def gain_table(study: Study, results: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the paired gains of a study, a row for every pair and level.

    Args:
        study: with its gains.
        results: of `tables.results`.
        cells: of `tables.cell_table`.

    Returns:
        Columns: gain, pair, the axes x and y of its gain, name (the measure), n (pairs that ended ok on both sides),
        pairs, failed, mean, low, high, epsilon_of and epsilon_over (the largest certified ε of either side), verdict.
    """
    rows = [row for gain in study.gains for pair in gain.pairs for row in _levels(study, gain, pair, results, cells)]
    named = [axis for gain in study.gains for axis in gain.axes]
    columns = [*COLUMNS[:2], *dict.fromkeys(named), *COLUMNS[2:], "verdict"]
    return pd.DataFrame(rows, columns=columns)


def _levels(study: Study, gain: Gain, pair: Pair, results: pd.DataFrame, cells: pd.DataFrame) -> list[dict[str, Any]]:
    last, sign = results[results["last"]], 1.0 if gain.better == "higher" else -1.0
    known = cells[[*dict.fromkeys(("cell", "seed", "status", VARIANT, *gain.axes, *gain.where))]]
    for column, name in (("score", gain.measure), ("epsilon", "epsilon_max")):
        by_cell = last[last["name"] == name].groupby("cell")["value"].first()
        known = known.assign(**{column: known["cell"].map(by_cell)})
    sides = [select(known, gain.where | {VARIANT: name}) for name in (pair.of, pair.over)]
    both = sides[0].merge(sides[1], on=["seed", *gain.axes], suffixes=("_of", "_over"))
    ended = both[both["status_of"].isin(GOOD) & both["status_over"].isin(GOOD)]
    both["gain"] = sign * (ended["score_of"] - ended["score_over"])
    rows = []
    for level, part in both.groupby(gain.axes, sort=False):
        each, spent = (
            part["gain"].dropna(),
            part.loc[part.index.isin(ended.index), ["epsilon_of", "epsilon_over"]].max(),
        )
        mean, low, high = interval(each.to_numpy(), study.confidence)
        row: dict[str, Any] = {"gain": gain.name, "pair": pair.name, **dict(zip(gain.axes, level, strict=True))}
        row |= {"name": gain.measure, "n": len(each), "pairs": len(part), "failed": len(part) - len(each)}
        row |= {"mean": mean, "low": low, "high": high, **spent}
        rows.append(row | {"verdict": _verdict(row)})
    return rows


def _verdict(row: Mapping[str, Any]) -> str:
    """What is said of a level; nothing good where a cell failed or the two sides did not cost the same."""
    if row["failed"]:
        return FAILED
    if math.isfinite(row["epsilon_over"]) and not row["epsilon_of"] <= _SAME_EPSILON * row["epsilon_over"]:
        return UNEQUAL
    if row["low"] > 0.0:
        return PAYS
    return COSTS if row["high"] < 0.0 else OPEN


def gain_words(gain: Gain, table: pd.DataFrame) -> list[str]:
    """State for each pair of a gain at how many levels it pays, and its largest gain there, one sentence each."""
    parts = []
    for pair in gain.pairs:
        rows = table[(table["gain"] == gain.name) & (table["pair"] == pair.name)]
        pays = rows["verdict"] == PAYS
        # The largest gain that can be told from 0, where there is one.
        shown = rows[pays] if pays.any() else rows[rows["mean"].notna()]
        if shown.empty:
            parts.append(f"{pair.name}: not measured.")
            continue
        row = max(shown.to_dict("records"), key=lambda one: float(one["mean"]))
        spread = spread_text(row["mean"], row["low"], row["high"])
        at = ", ".join(f"{metric_stem(axis)} {label_text(row[axis])}" for axis in gain.axes)
        largest = f"{power_text(row['mean'])}{spread} (n = {row['n']}) at {at}"
        parts.append(f"{pair.name}: pays at {pays.sum()} of {len(rows)} levels; the largest gain is {largest}.")
    return parts


# Inches that a panel needs at least, and those of the colour bar with its words, where a width is given.
_LEAST_PANEL, _BAR_WIDTH = 1.2, 0.8
# Colours of a diagram: what costs, what changes nothing, what pays.
_COLOURS = "RdBu"
_SIGN_SIZE = 13
# How a verdict is written into its field, and its meaning.
_SIGNS = {PAYS: "+", COSTS: "−", OPEN: "·", FAILED: "×", UNEQUAL: "≠"}
_MEANINGS = {
    PAYS: "+ the interval lies above 0",
    COSTS: "− below 0",
    OPEN: "· it holds 0",
    FAILED: "× cells failed",
    UNEQUAL: "≠ unequal ε",
}


def gain_figures(study: Study, table: pd.DataFrame, cells: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Draw the gains of a study, each with its name; one without a single number is left out.

    Args:
        study: with its gains.
        table: of `gain_table`.
        cells: a row for each, with what its ε is.
    """
    with style.package_style(paper=study.width is not None):
        for gain in study.gains:
            rows = table[table["gain"] == gain.name]
            if rows["mean"].notna().any():
                figure = (_lines if gain.y is None else _diagram)(gain, rows, cells, study.width)
                finish(figure, study, gain.title, _caption(gain, rows, study.confidence), _panel_height(gain, rows))
                yield gain.name, figure


def _diagram(gain: Gain, rows: pd.DataFrame, cells: pd.DataFrame, width: float | None = None) -> Figure:
    """One panel a pair: fields coloured by the mean gain, with the sign of the verdict."""
    from matplotlib.colors import TwoSlopeNorm

    y = gain.y or ""
    across, upward = (sorted(set(rows[axis])) for axis in (gain.x, y))
    columns = panels_across(len(gain.pairs), width, _LEAST_PANEL, _BAR_WIDTH)
    down = math.ceil(len(gain.pairs) / columns)
    figure = style.new_figure(width or 2.2 + 2.1 * columns, 1.5 + (0.75 + 0.34 * len(upward)) * down)
    each = panel_axes(figure, len(gain.pairs), columns)
    largest = max(float(rows["mean"].abs().max()), 1e-12)
    norm = TwoSlopeNorm(0.0, -largest, largest)
    image = None
    for ax, pair in zip(each, gain.pairs, strict=True):
        part = rows[rows["pair"] == pair.name]
        means = part.pivot_table("mean", y, gain.x, dropna=False).reindex(index=upward, columns=across)
        image = ax.imshow(means.to_numpy(), cmap=_COLOURS, norm=norm, origin="lower", aspect="auto")
        for row in part.to_dict("records"):
            dark = math.isfinite(row["mean"]) and abs(row["mean"]) > 0.6 * largest
            at = across.index(row[gain.x]), upward.index(row[y])
            sign, colour = _SIGNS[row["verdict"]], "white" if dark else "black"
            ax.text(*at, sign, ha="center", va="center", color=colour, fontsize=_SIGN_SIZE, fontweight="bold")
        ax.set_title(pair.name, fontweight="normal")
        ax.set_xticks(range(len(across)), [label_text(v) for v in across])
        ax.set_yticks(range(len(upward)), [label_text(v) for v in upward])
        ax.grid(False)
        ax.tick_params(labelbottom=True)
    label_lowest(each, columns, axis_label(gain.x, cells))
    figure.supylabel(style.side_label(axis_label(y, cells), figure), fontsize=style.letter_size("font"))
    if image is not None:
        bar = figure.colorbar(image, ax=each, shrink=0.9)
        bar.set_label(_gain_label(gain))
    return figure


def _lines(gain: Gain, rows: pd.DataFrame, cells: pd.DataFrame, width: float | None = None) -> Figure:
    """One line a pair: the mean gain with its interval."""
    figure = style.new_figure(*((5.8, 4.0) if width is None else (width, 0.7 * width)))
    ax = figure.subplots()
    ax.axhline(0.0, color=style.GREY, linewidth=1.0)
    values = list(dict.fromkeys(rows[gain.x]))
    ordered = are_numbers(values)
    if ordered:
        values.sort()
    places = {value: k for k, value in enumerate(values)}
    for k, pair in enumerate(gain.pairs):
        part = rows[(rows["pair"] == pair.name) & rows["mean"].notna()]
        aside = (0.12 if ordered else 0.5) * ((k + 0.5) / len(gain.pairs) - 0.5)
        at = np.array([places[v] + aside for v in part[gain.x]])
        mean = part["mean"].to_numpy(dtype=np.float64)
        spread = np.stack([mean - part["low"].to_numpy(), part["high"].to_numpy() - mean])
        colour = style.SERIES_COLOURS[k % len(style.SERIES_COLOURS)]
        joined = "-" if ordered else "none"
        ax.plot(at, mean, color=colour, marker=MARKERS[k % len(MARKERS)], linestyle=joined, label=pair.name)
        ax.errorbar(at, mean, spread, fmt="none", ecolor=colour, elinewidth=1.2, capsize=2)
        for place, row in zip(at, part.to_dict("records"), strict=True):
            if row["verdict"] in (FAILED, UNEQUAL):
                ax.annotate(_SIGNS[row["verdict"]], (place, row["mean"]), (5, 5), textcoords="offset points")
    slant: dict[str, Any] = {} if ordered else {"rotation": 35, "rotation_mode": "anchor", "ha": "right"}
    ax.set_xticks(range(len(values)), [label_text(v) for v in values], **slant)
    ax.set_xlabel(axis_label(gain.x, cells))
    figure.supylabel(style.side_label(_gain_label(gain), figure), fontsize=style.letter_size("font"))
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _gain_label(gain: Gain) -> str:
    words = metric_stem(gain.measure)
    return f"gain in {words}" if gain.better == "higher" else f"fall of {words}"


def _panel_height(gain: Gain, rows: pd.DataFrame) -> Callable[[float], float]:
    if gain.y is None:
        return lambda width: panel_height(width, 1, 1)
    fields = rows[gain.y].nunique()
    return lambda width: 0.5 + 0.2 * fields


def _caption(gain: Gain, rows: pd.DataFrame, confidence: float) -> str:
    parts = [f"Means of n = {counts_text(rows['n'])} differences, seed by seed, at equal ε"]
    intervals = described_intervals(["student"], confidence)
    if gain.y is None:
        parts.append(intervals)
    else:
        there = set(rows["verdict"])
        parts.append(f"{intervals}. {', '.join(words for name, words in _MEANINGS.items() if name in there)}")
    failed, pairs = int(rows["failed"].sum()), int(rows["pairs"].sum())
    if failed:
        parts.append(f"{failed} of {pairs} pairs failed")
    return ". ".join(parts) + "."
