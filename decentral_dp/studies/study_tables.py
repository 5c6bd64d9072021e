"""The tables of a study: every measured value, and means with confidence intervals over the seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import ValidationError

from decentral_dp.config.schema import PrivacyTable
from decentral_dp.studies.grid import Cell
from decentral_dp.studies.intervals import cell_mean
from decentral_dp.studies.measures import OF_EVERY_CELL
from decentral_dp.studies.study_runs import GOOD, Record, cuts_of, value_of


def results(
    cells: Sequence[Cell],
    keys: Sequence[str],
    records: Sequence[Record],
    rounds: Literal["last", "all"] | list[int],
) -> pd.DataFrame:
    """Tabulate every measured value.

    Args:
        cells: of the study.
        keys: name of each cell.
        records: of each cell.
        rounds: at which curves are kept.

    Returns:
        Columns cell, seed, one per axis, round, last, name, value; `last` marks what was measured at the end. A value
        that is missing (a claim that is undefined, say) has no row.
    """
    columns: dict[str, list[Any]] = {c: [] for c in ("which", "cell", "round", "last", "name", "value")}

    def add(which: int, round_: int, last: bool, name: str, stored: Any) -> None:
        value = value_of(stored)
        if not math.isnan(value):
            for column, entry in zip(columns.values(), (which, keys[which], round_, last, name, value), strict=True):
                column.append(entry)

    for which, record in enumerate(records):
        for name, stored in record["finals"].items():
            add(which, record["round"], True, name, stored)
        for name, (at, values) in record["curves"].items():
            wanted = set(_kept_rounds(rounds, at))
            for round_, stored in zip(at, values, strict=True):
                if round_ in wanted:
                    add(which, round_, False, name, stored)
    frame = pd.DataFrame(columns)
    of = frame.pop("which").to_numpy(dtype=np.int64)
    frame.insert(1, "seed", np.array([c.seed for c in cells], dtype=np.int64)[of])
    for place, axis in enumerate(cells[0].labels, start=2):
        frame.insert(place, axis, pd.Series([c.labels[axis] for c in cells]).to_numpy()[of])
    return frame.astype({"round": np.int64, "last": bool, "value": np.float64})


def _kept_rounds(rounds: Literal["last", "all"] | list[int], known: Sequence[int]) -> Sequence[int]:
    return known if rounds == "all" else cuts_of(rounds, max(known, default=0))


def summary(frame: pd.DataFrame, axes: Sequence[str], confidence: float, cells: pd.DataFrame) -> pd.DataFrame:
    """Tabulate means with intervals over the seeds of each combination.

    What was measured at the end is taken together even where runs ended at different rounds; `round` is the latest.
    Scores are means over the cells that ended ok. Prices and facts (`OF_EVERY_CELL`) are means over all that have them.

    Args:
        frame: of `results`.
        axes: names of the axes.
        confidence: level of the intervals.
        cells: of `cell_table`.

    Returns:
        Columns: the axes, round, last, name, n (cells that the mean is over), cells (of the combination), failed (of
        these), mean, low, high, interval. Where all cells failed, a name that others have measured has n = 0.
    """
    counted = counted_rows(frame, cells)
    counts = counts_of(cells, axes)
    rows: list[dict[str, Any]] = []
    for last in (True, False):
        part = counted[counted["last"] == last]
        by = [*axes, "name"] if last else [*axes, "name", "round"]
        for named, group in part.groupby(by, sort=False):
            at: dict[str, Any] = dict(zip(by, named if isinstance(named, tuple) else (named,), strict=True))
            total, failed = counts[tuple(at[a] for a in axes)]
            mean, low, high, kind = cell_mean(at["name"], group["value"].to_numpy(), confidence)
            found: dict[str, Any] = {"round": int(group["round"].max()), "last": last, "n": len(group), "cells": total}
            found |= {"failed": failed, "mean": mean, "low": low, "high": high, "interval": kind}
            rows.append({**at, **found})
    nothing = {"round": 0, "last": True, "n": 0, **dict.fromkeys(("mean", "low", "high"), math.nan), "interval": "none"}
    there = {(*(row[a] for a in axes), row["name"]) for row in rows if row["last"]}
    measured = list(dict.fromkeys(counted.loc[counted["last"], "name"]))
    for labels, (total, failed) in counts.items():
        at = {**dict(zip(axes, labels, strict=True)), "cells": total, "failed": failed}
        missing = [name for name in measured if (*labels, name) not in there] if failed == total else []
        rows += [{**at, **nothing, "name": name} for name in missing]
    columns = [*axes, "round", "last", "name", "n", "cells", "failed", "mean", "low", "high", "interval"]
    return pd.DataFrame(rows, columns=columns)


def counted_rows(frame: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Select the values that means are over: scores of the cells that ended ok, prices and facts of all.

    Args:
        frame: of `results`.
        cells: of `cell_table`.
    """
    ended = set(cells.loc[cells["status"].isin(GOOD), "cell"])
    return frame[frame["cell"].isin(ended) | frame["name"].isin(OF_EVERY_CELL)]


def counts_of(cells: pd.DataFrame, axes: Sequence[str]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Count the cells of every combination, and those of them that failed.

    Example:
        >>> cells = pd.DataFrame({"graph": ["ring", "ring", "star"], "status": ["ok", "diverged", "refused"]})
        >>> counts_of(cells, ["graph"])
        {('ring',): (2, 1), ('star',): (1, 1)}
    """
    failed = (~cells["status"].isin(GOOD)).tolist()
    counts: dict[tuple[Any, ...], tuple[int, int]] = {}
    labels = list(zip(*(cells[a] for a in axes), strict=True)) if axes else [()] * len(cells)
    for at, bad in zip(labels, failed, strict=True):
        total, lost = counts.get(at, (0, 0))
        counts[at] = total + 1, lost + bad
    return counts


def cell_table(cells: Sequence[Cell], keys: Sequence[str], records: Sequence[Record]) -> pd.DataFrame:
    """Tabulate one row per cell: cell, seed, the axes, guarantee, mechanism, delta, status, reason, round, seconds."""
    rows: list[Mapping[str, Any]] = [
        {
            "cell": key,
            "seed": cell.seed,
            **cell.labels,
            **_privacy(cell),
            "status": record["status"],
            "reason": record["reason"],
            "round": record["round"],
            "seconds": record["seconds"],
        }
        for cell, key, record in zip(cells, keys, records, strict=True)
    ]
    return pd.DataFrame(rows)


def _privacy(cell: Cell) -> dict[str, Any]:
    """What its ε is: the guarantee, the mechanism and δ of its scenario, as they stand there or by default."""
    table, wanted = cell.content.get("privacy"), ("guarantee", "mechanism", "delta")
    named = table if isinstance(table, Mapping) else {}
    try:
        valid = PrivacyTable.model_validate({key: named[key] for key in wanted if key in named})
    except ValidationError:  # Such a cell is refused, and has no ε.
        return {"guarantee": None, "mechanism": None, "delta": math.nan}
    return {key: getattr(valid, key) for key in wanted} | {"mechanism": valid.mechanism_kind}
