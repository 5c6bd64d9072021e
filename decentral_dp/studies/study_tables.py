"""The tables of a study: every measured value, and means with confidence intervals over the seeds."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import ValidationError
from scipy.stats import t as student

from decentral_dp.bounded import Array
from decentral_dp.config.schema import PrivacyTable
from decentral_dp.studies.grid import Cell
from decentral_dp.studies.study_runs import Record, cuts_of, value_of


def interval(values: Array | Sequence[float], confidence: float) -> tuple[float, float, float]:
    """Compute mean and confidence interval, mean ± t·s/√n with Student's t of n − 1 degrees of freedom.

    Args:
        values: (n,).
        confidence: level, such as 0.95.

    Returns:
        (mean, low, high).

    Limits:
        The ends are NaN for a single value. Where a value is infinite the mean is too, without an interval.

    Example:
        >>> [round(v, 3) for v in interval([1.0, 2.0, 3.0], confidence=0.95)]
        [2.0, -0.484, 4.484]
        >>> interval([1.0], confidence=0.95)
        (1.0, nan, nan)
    """
    v = np.asarray(values, dtype=np.float64)
    if v.size == 0:
        return math.nan, math.nan, math.nan
    if not np.isfinite(v).all():
        # Infinities of both signs have no mean.
        total = float(v[~np.isfinite(v)][0])
        return (total if (v[~np.isfinite(v)] == total).all() else math.nan), math.nan, math.nan
    mean = float(v.mean())
    if v.size == 1:
        return mean, math.nan, math.nan
    half = _quantile(confidence, v.size) * float(v.std(ddof=1)) / math.sqrt(v.size)
    return mean, mean - half, mean + half


@functools.cache
def _quantile(confidence: float, n: int) -> float:
    return float(student.ppf(0.5 + confidence / 2, n - 1))


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


def summary(frame: pd.DataFrame, axes: Sequence[str], confidence: float) -> pd.DataFrame:
    """Tabulate means with intervals over the seeds of each combination.

    What was measured at the end is taken together even where runs ended at different rounds; `round` is the latest.

    Args:
        frame: of `results`.
        axes: names of the axes.
        confidence: level of the intervals.

    Returns:
        Columns: the axes, round, last, name, n, mean, low, high.
    """
    rows = []
    for last in (True, False):
        part = frame[frame["last"] == last]
        by = [*axes, "name"] if last else [*axes, "name", "round"]
        for named, group in part.groupby(by, sort=False):
            at: dict[str, Any] = dict(zip(by, named if isinstance(named, tuple) else (named,), strict=True))
            mean, low, high = interval(group["value"].to_numpy(), confidence)
            found = {"round": int(group["round"].max()), "last": last, "n": len(group)}
            rows.append({**at, **found, "mean": mean, "low": low, "high": high})
    columns = [*axes, "round", "last", "name", "n", "mean", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


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
