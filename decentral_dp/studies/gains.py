"""Gains: differences between two variants, taken seed by seed, with an interval over the seeds at every level.

Both sides of a pair are given the same problem, records, graph, seed and privacy target, so that a difference is of the
programs alone. A level pays where the whole interval of the mean gain lies above 0, both sides cost the same certified
ε, and no cell of either side failed: a mean over the pairs that are left would flatter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from decentral_dp.config.loading import nearest_of
from decentral_dp.errors import InputError, quoted
from decentral_dp.reporting.words import power_text
from decentral_dp.studies.grid import VARIANT, Axis, Cell
from decentral_dp.studies.intervals import interval, spread_text
from decentral_dp.studies.measures import names_of
from decentral_dp.studies.runs import GOOD
from decentral_dp.studies.schema import Gain, Pair, Study
from decentral_dp.studies.words import metric_stem, words_of

# What a level of a pair is called.
PAYS, COSTS, OPEN, FAILED, UNEQUAL = "pays", "costs", "open", "failed", "unequal ε"
# What a pair shares: the scenario's tables, and keys of its [privacy].
_SHARED_TABLES, _SHARED_PRIVACY = ("problem", "topology"), ("guarantee", "mechanism", "epsilon", "delta", "cap")
# One side may cost so much more than the other: a calibration leaves less than this of its target unspent.
_SAME_EPSILON = 1.002
COLUMNS = ("gain", "pair", "name", "n", "pairs", "failed", "mean", "low", "high", "epsilon_of", "epsilon_over")


class Start(NamedTuple):
    """Where a pair begins to pay.

    Args:
        pair: its name.
        levels: least values (x, y) of those that pay; of a gain without y, (x,).
        best: the level with the largest mean gain, of those that pay if there are any, as a row of `gain_table`; None
            where nothing was measured.
        tried: how many levels.
        paying: how many of them pay.
    """

    pair: str
    levels: Sequence[tuple[float, ...]]
    best: Mapping[Any, Any] | None
    tried: int
    paying: int


def check_gains(study: Study, axes: Sequence[Axis], cells: Sequence[Cell]) -> None:
    """Refuse a gain that names no variant, axis or measure of this study, or that compares what differs otherwise.

    Raises:
        InputError: one sentence on what is wrong.
    """
    known = {axis.name: axis for axis in axes}
    variants = known[VARIANT].labels if VARIANT in known else ()
    for gain in study.gains:
        place = f"gains ({gain.name})"
        if gain.measure not in names_of(study.kind, over_rounds=False):
            valid = names_of(study.kind, over_rounds=False)
            raise InputError(
                f"{place}.measure: {quoted(gain.measure)} is not measured{nearest_of(gain.measure, valid)}."
            )
        for key, name in (("x", gain.x), ("y", gain.y)):
            if name is not None and not (name in known and _is_numeric(known[name])):
                raise InputError(f"{place}.{key}: {quoted(name)} is no axis of numbers; name a key of the grid.")
        left = [a.name for a in axes if a.name not in (VARIANT, gain.x, gain.y) and len(a.values) > 1]
        if left:
            raise InputError(f"{place}: {left[0]} varies too; make it x or y, or take it out of the grid.")
        for pair in gain.pairs:
            for name in (pair.of, pair.over):
                if name not in variants:
                    raise InputError(
                        f"{place}.pairs: {quoted(name)} is no variant{nearest_of(name, [str(v) for v in variants])}."
                    )
            _check_alike(f"{place}.pairs ({pair.name})", pair, cells)


def _is_numeric(axis: Axis) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in axis.labels)


def _check_alike(place: str, pair: Pair, cells: Sequence[Cell]) -> None:
    """The same records, graph and target on both sides, cell by cell."""

    def shared(cell: Cell) -> dict[str, Any]:
        out = {name: cell.content.get(name) for name in _SHARED_TABLES}
        privacy = cell.content.get("privacy") or {}
        return out | {f"privacy.{key}": privacy.get(key) for key in _SHARED_PRIVACY}

    sides: list[dict[Any, Cell]] = [{}, {}]
    for cell in cells:
        for side, name in zip(sides, (pair.of, pair.over), strict=True):
            if cell.labels[VARIANT] == name:
                side[(cell.seed, *(v for a, v in cell.labels.items() if a != VARIANT))] = cell
    for at, one in sides[0].items():
        left, right = shared(one), shared(sides[1][at])
        unlike = next((key for key in left if left[key] != right[key]), None)
        if unlike is not None:
            raise InputError(
                f"{place}: {quoted(pair.of)} and {quoted(pair.over)} differ in {unlike}, so that their difference is "
                "not of the programs alone. Give both the same."
            )


def gain_table(study: Study, results: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the paired gains of a study, a row for every pair and level.

    Args:
        study: with its gains.
        results: of `study_tables.results`.
        cells: of `study_tables.cell_table`.

    Returns:
        Columns: gain, pair, the axes x and y of its gain, name (the measure), n (pairs that ended ok on both sides),
        pairs, failed, mean, low, high, epsilon_of and epsilon_over (the largest certified ε of either side), verdict.
    """
    rows = [row for gain in study.gains for pair in gain.pairs for row in _levels(study, gain, pair, results, cells)]
    named = [axis for gain in study.gains for axis in (gain.x, gain.y) if axis is not None]
    columns = [*COLUMNS[:2], *dict.fromkeys(named), *COLUMNS[2:], "verdict"]
    return pd.DataFrame(rows, columns=columns)


def _levels(study: Study, gain: Gain, pair: Pair, results: pd.DataFrame, cells: pd.DataFrame) -> list[dict[str, Any]]:
    by = [axis for axis in (gain.x, gain.y) if axis is not None]
    last = results[results["last"]]
    scores, prices = (_by_cell(last, name) for name in (gain.measure, "epsilon_max"))
    sides = [
        {(row["seed"], *(row[a] for a in by)): row for row in cells[cells[VARIANT] == name].to_dict("records")}
        for name in (pair.of, pair.over)
    ]
    rows = []
    for level in dict.fromkeys(key[1:] for key in sides[0]):
        both = [(row, sides[1][key]) for key, row in sides[0].items() if key[1:] == level]
        ended = [(a, b) for a, b in both if a["status"] in GOOD and b["status"] in GOOD]
        sign = 1.0 if gain.better == "higher" else -1.0
        each = [sign * (scores[a["cell"]] - scores[b["cell"]]) for a, b in ended if {a["cell"], b["cell"]} <= {*scores}]
        mean, low, high = interval(each, study.confidence)
        spent = [max((prices.get(p[k]["cell"], math.nan) for p in ended), default=math.nan) for k in (0, 1)]
        row: dict[str, Any] = {"gain": gain.name, "pair": pair.name, **dict(zip(by, level, strict=True))}
        row |= {"name": gain.measure, "n": len(each), "pairs": len(both), "failed": len(both) - len(each)}
        row |= {"mean": mean, "low": low, "high": high, "epsilon_of": spent[0], "epsilon_over": spent[1]}
        rows.append(row | {"verdict": _verdict(row)})
    return rows


def _by_cell(last: pd.DataFrame, name: str) -> dict[str, float]:
    named = last[last["name"] == name]
    return dict(zip(named["cell"], named["value"], strict=True))


def _verdict(row: Mapping[str, Any]) -> str:
    """What is said of a level; nothing good where a cell failed or the two sides did not cost the same."""
    if row["failed"]:
        return FAILED
    if math.isfinite(row["epsilon_over"]) and not row["epsilon_of"] <= _SAME_EPSILON * row["epsilon_over"]:
        return UNEQUAL
    if row["low"] > 0.0:
        return PAYS
    return COSTS if row["high"] < 0.0 else OPEN


def starts(gain: Gain, table: pd.DataFrame) -> list[Start]:
    """Find where each pair of a gain begins to pay.

    Args:
        gain: of the study.
        table: of `gain_table`.

    Returns:
        For each pair the levels that pay and than which none that is no larger in both axes pays.
    """
    by = [axis for axis in (gain.x, gain.y) if axis is not None]
    found = []
    for pair in gain.pairs:
        rows = table[(table["gain"] == gain.name) & (table["pair"] == pair.name)]
        good = [tuple(float(v) for v in row) for row in rows[rows["verdict"] == PAYS][by].to_numpy()]
        least = [a for a in good if not any(b != a and all(m <= n for m, n in zip(b, a, strict=True)) for b in good)]
        known = rows[rows["mean"].notna()]
        # The largest gain that can be told from 0, where there is one.
        shown = known[known["verdict"] == PAYS] if good else known
        best = None if shown.empty else max(shown.to_dict("records"), key=lambda row: float(row["mean"]))
        found.append(Start(pair.name, sorted(least), best, len(rows), len(good)))
    return found


def gain_words(gain: Gain, table: pd.DataFrame) -> list[str]:
    """Say where each pair of a gain begins to pay, or that it does nowhere here, one sentence each."""
    by = [axis for axis in (gain.x, gain.y) if axis is not None]
    names = [metric_stem(axis) for axis in by]
    said = []
    for start in starts(gain, table):
        if start.best is None:
            said.append(f"{start.pair}: not measured.")
            continue
        row = start.best
        at = ", ".join(f"{name} {words_of(row[axis])}" for name, axis in zip(names, by, strict=True))
        largest = (
            f"{power_text(row['mean'])}{spread_text(row['mean'], row['low'], row['high'])} (n = {row['n']}) at {at}"
        )
        if not start.levels:
            said.append(f"{start.pair}: pays at none of {start.tried} levels; the largest gain is {largest}.")
            continue
        where = " or ".join(
            ", ".join(f"{name} {words_of(value)}" for name, value in zip(names, level, strict=True))
            for level in start.levels
        )
        count = f"{start.paying} of {start.tried} levels"
        said.append(f"{start.pair}: pays at {count}, from {where}; the largest gain is {largest}.")
    return said
