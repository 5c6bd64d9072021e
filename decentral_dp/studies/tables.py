"""Tables of a study: all measured values, means with intervals over seeds, and the table that is printed.

The table on the terminal and on the page has one row per combination of the axes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from pydantic import ValidationError

from decentral_dp.config.schema import PrivacyTable
from decentral_dp.formatting import delta_text, epsilon_text, power_text
from decentral_dp.reporting.report import TextTable
from decentral_dp.simulation.statistics import CONFIDENCE
from decentral_dp.studies import measures
from decentral_dp.studies.comparisons import interval, spread_text
from decentral_dp.studies.runs import GOOD, Record, list_cuts
from decentral_dp.studies.schema import Axis, Band, Cell, Study
from decentral_dp.studies.tasks import number


def results(
    cells: Sequence[Cell],
    keys: Sequence[str],
    records: Sequence[Record],
    rounds: Literal["last", "all"] | list[int],
    names: Collection[str] = (),
) -> pd.DataFrame:
    """Tabulate every measured value.

    Args:
        cells: cells of the study.
        keys: key of each cell.
        records: record of each cell.
        rounds: rounds at which curves are kept.
        names: measures of the study, including numbers of rounds until a level is reached.

    Returns:
        Columns cell, seed, one per axis, round, last (whether it was measured at the end), name, value. Missing values
        have no row.
    """
    rows: list[tuple[int, str, int, bool, str, float]] = []

    def add(which: int, round_: int, last: bool, name: str, stored: Any) -> None:
        value = number(stored)
        if not math.isnan(value):
            rows.append((which, keys[which], round_, last, name, value))

    for which, record in enumerate(records):
        for name, stored in record["finals"].items():
            add(which, record["round"], True, name, stored)
        for name in sorted(filter(measures.is_to, names)):
            add(which, record["round"], True, name, measures.first_reaching(name, record["curves"]))
        for name, (rounds_of_curve, values) in record["curves"].items():
            kept_rounds = set(
                rounds_of_curve if rounds == "all" else list_cuts(rounds, max(rounds_of_curve, default=0))
            )
            for round_, stored in zip(rounds_of_curve, values, strict=True):
                if round_ in kept_rounds:
                    add(which, round_, False, name, stored)
    frame = pd.DataFrame(rows, columns=["which", "cell", "round", "last", "name", "value"])
    cell_of = frame.pop("which").to_numpy(dtype=np.int64)
    frame.insert(1, "seed", np.array([c.seed for c in cells], dtype=np.int64)[cell_of])
    for place, axis in enumerate(cells[0].labels, start=2):
        frame.insert(place, axis, pd.Series([c.labels[axis] for c in cells]).to_numpy()[cell_of])
    return frame.astype({"round": np.int64, "last": bool, "value": np.float64})


def summary(frame: pd.DataFrame, axes: Sequence[str], cells: pd.DataFrame, band: Band = "t") -> pd.DataFrame:
    """Tabulate means with intervals over the seeds of each combination.

    Values at the end are averaged even if runs ended at different rounds; `round` is the last of these rounds. Scores
    are averaged over the cells that ended ok, all other measures (`OF_EVERY_CELL`) over all cells that have them.

    Args:
        frame: table of `results`.
        axes: names of the axes.
        cells: table of `cell_table`.
        band: interval, see `comparisons.interval`; default Student's t.

    Returns:
        Columns of the axes, round, last, name, n (cells of the mean), cells (of the combination), failed (of these),
        mean, low, high. A combination whose cells all failed has n = 0.
    """
    counted = rows_of_means(frame, cells)
    counts = count_cells(cells, axes)
    rows: list[dict[str, Any]] = []
    for last in (True, False):
        part = counted[counted["last"] == last]
        by = [*axes, "name"] if last else [*axes, "name", "round"]
        for named, group in part.groupby(by, sort=False):
            total, failed = counts[named[: len(axes)]]
            mean, low, high = interval(group["value"].to_numpy(), band)
            if band == "t" and len(group) == 2:
                # t = 12.7 with one degree of freedom: the interval of a share would exceed [0, 1].
                low = high = math.nan
            entry = dict(zip(by, named, strict=True)) | {"round": int(group["round"].max()), "last": last}
            entry |= {"n": len(group), "cells": total, "failed": failed}
            rows.append(entry | {"mean": mean, "low": low, "high": high})
    nothing = {"round": 0, "last": True, "n": 0, **dict.fromkeys(("mean", "low", "high"), math.nan)}
    measured_rows = {(*(row[a] for a in axes), row["name"]) for row in rows if row["last"]}
    measured = list(dict.fromkeys(counted.loc[counted["last"], "name"]))
    for labels, (total, failed) in counts.items():
        missing = [name for name in measured if (*labels, name) not in measured_rows] if failed == total else []
        entry = dict(zip(axes, labels, strict=True)) | nothing | {"cells": total, "failed": failed}
        rows += [entry | {"name": name} for name in missing]
    columns = [*axes, "round", "last", "name", "n", "cells", "failed", "mean", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def rows_of_means(frame: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Select the values that are averaged: scores of cells that ended ok, and all other measures of all cells.

    Args:
        frame: table of `results`.
        cells: table of `cell_table`.
    """
    ended = set(cells.loc[cells["status"].isin(GOOD), "cell"])
    return frame[frame["cell"].isin(ended) | frame["name"].isin(measures.OF_EVERY_CELL)]


def count_cells(cells: pd.DataFrame, axes: Sequence[str]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Count the cells and the failed cells of every combination.

    Example:
        >>> cells = pd.DataFrame({"graph": ["ring", "ring", "star"], "status": ["ok", "diverged", "refused"]})
        >>> count_cells(cells, ["graph"])
        {('ring',): (2, 1), ('star',): (1, 1)}
    """
    parts = _group_cells(cells, axes).items()
    return {labels: (len(part), int((~part["status"].isin(GOOD)).sum())) for labels, part in parts}


# Columns of the threat model.
THREAT_MODEL = ("adjacency", "adversary")


def different_threat_models(cells: pd.DataFrame) -> dict[str, list[str]]:
    """Return the values of adjacency and adversary if the cells differ in them."""
    values = {column: [text for text in dict.fromkeys(cells[column]) if text] for column in THREAT_MODEL}
    return {column: texts for column, texts in values.items() if len(texts) > 1}


def cell_table(cells: Sequence[Cell], keys: Sequence[str], records: Sequence[Record]) -> pd.DataFrame:
    """Tabulate one row per cell.

    Returns:
        Columns cell, seed, one per axis, guarantee, mechanism, delta, adjacency and adversary ("" without noise),
        method, status, reason, round, seconds.
    """
    rows, wanted = [], ("guarantee", "mechanism", "delta")
    for cell, key, record in zip(cells, keys, records, strict=True):
        table = cell.content.get("privacy")
        named = table if isinstance(table, Mapping) else {}
        try:
            valid = PrivacyTable.model_validate({k: named[k] for k in wanted if k in named})
            privacy = {k: getattr(valid, k) for k in wanted} | {"mechanism": valid.mechanism_kind}
        except ValidationError:  # A refused cell has no ε.
            privacy = {"guarantee": None, "mechanism": None, "delta": math.nan}
        row: dict[str, Any] = {"cell": key, "seed": cell.seed, **cell.labels, **privacy}
        row |= zip(THREAT_MODEL, record["threat_model"], strict=True)
        rows.append(row | {name: record[name] for name in ("method", "status", "reason", "round", "seconds")})
    return pd.DataFrame(rows)


class Measured(NamedTuple):
    """Tables of a finished study.

    Args:
        study: loaded study.
        axes: axes of the study.
        summary: table of `summary`.
        cells: table of `cell_table`.
    """

    study: Study
    axes: Sequence[Axis]
    summary: pd.DataFrame
    cells: pd.DataFrame


# Default measures, for a study that names none.
_DEFAULT_MEASURES = ("test_accuracy", "test_auc", "test_r2", "upper_loss", "primal", "epsilon_max", "claimed")
FAILED = "failed"


def study_table(measured: Measured) -> TextTable:
    """Build the table of means at the end, with a column of failures if there are any."""
    study, axes, summary, cells = measured
    names = [axis.name for axis in axes]
    last = summary[summary["last"]]
    available = set(last["name"])
    # If all cells failed, every column shows it.
    columns = [name for name in study.measure if name in available] or study.measure
    columns = columns or [name for name in _DEFAULT_MEASURES if name in available]
    row_of = {(*[row[n] for n in names], row["name"]): row for row in last.to_dict("records")}
    # The header of an axis is the last part of its key, if unique.
    short = [measures.key_name(name) for name in names]
    heads_of_axes = [
        part if [*short, *columns].count(part) == 1 else name for part, name in zip(short, names, strict=True)
    ]
    below = [measures.epsilon_words(name, cells) for name in (*names, *columns)]
    heads = list(zip([*heads_of_axes, *columns], below, strict=True))
    parts = _group_cells(cells, names)
    privacy_columns = _make_guarantee_columns(cells, parts, columns)
    lost = bool(_count_failures(cells))
    between = [*((name, "") for name in privacy_columns), *([("ended ok", "")] if lost else [])]
    heads = [*heads[: len(names)], *between, *heads[len(names) :]]
    rows, keys = [], []
    for labels, part in parts.items():
        values = [row_of.get((*labels, column)) for column in columns]
        texts = [*map(str, labels), *(privacy_columns[name][labels] for name in privacy_columns)]
        texts += [success_text(part)] if lost else []
        rows.append([*texts, *(_format_mean(row, c, part) for row, c in zip(values, columns, strict=True))])
        by = [float(v) if isinstance(v, int | float) and not isinstance(v, bool) else None for v in labels]
        ok = float(part["status"].isin(GOOD).mean())
        means = [math.nan if row is None else float(row["mean"]) for row in values]
        keys.append([*by, *(None for _ in privacy_columns), *([ok] if lost else []), *means])
    text = note(study, cells, last[last["name"].isin(columns)], names)
    return TextTable(heads, [k >= len(names) + len(between) for k in range(len(heads))], rows, keys, text)


def note(study: Study, cells: pd.DataFrame, means: pd.DataFrame, axes: Sequence[str]) -> str:
    """Describe the means and intervals, the failed cells, and the parts of algorithms."""
    text = "Means over the cells that ended ok"
    if not _count_failures(cells):
        n = len(study.seed_list)
        text = "One cell each" if n == 1 else f"Means over {n} cells each"
    if (cells["status"] == "diverged").any():
        text += "; privacy and facts also over those that diverged"
    methods = methods_text(cells, axes)
    methods = methods if " + " in methods else ""
    return " ".join(filter(None, [f"{text}.", intervals_text(means), failures_text(cells), methods]))


def methods_text(cells: pd.DataFrame, axes: Sequence[str]) -> str:
    """Name the algorithms of the cells, each with the values of the axes to which it is restricted.

    Example:
        >>> cells = pd.DataFrame({"privacy.epsilon": [0.5, 2.0, 8.0], "method": ["D-SGD", *["D-SGD + momentum"] * 2]})
        >>> methods_text(cells, ["privacy.epsilon"])
        'Algorithms: D-SGD (target ε: 0.5); D-SGD + momentum (target ε: 2.0, 8.0).'
    """
    # A refused cell has no method.
    cells, texts = cells[cells["method"] != ""], []
    for method, part in cells.groupby("method", sort=False):
        text = {a: ", ".join(map(str, part[a].unique())) for a in axes if set(part[a]) < set(cells[a])}
        where = "; ".join(f"{measures.metric_stem(axis)}: {values}" for axis, values in text.items())
        texts.append(f"{method} ({where})" if where else str(method))
    return f"Algorithms: {'; '.join(texts)}." if texts else ""


def intervals_text(means: pd.DataFrame, band: Band = "t") -> str:
    """Name the intervals of means, or state that two cells have none; "" for one cell.

    Example:
        >>> [intervals_text(pd.DataFrame({"n": [n], "low": [low]})) for n, low in ((3, 0.1), (2, math.nan))]
        ["95 % intervals: Student's t.", 'Intervals need 3 seeds.']
    """
    words = {
        "t": f"{100 * CONFIDENCE:g} % intervals: Student's t.",
        "sd": "Mean ± standard deviation.",
        "quantiles": "Median and quartiles.",
    }
    return words[band] if means["low"].notna().any() else "Intervals need 3 seeds." * int(means["n"].max() == 2)


def failures_text(cells: pd.DataFrame) -> str:
    """Count the cells, and the failed cells by status.

    Example:
        >>> failures_text(pd.DataFrame({"status": ["ok", "diverged", "refused", "diverged"]}))
        '3 of 4 cells failed (2 diverged, 1 refused).'
        >>> failures_text(pd.DataFrame({"status": ["ok", "ok"]}))
        'All 2 cells ended ok.'
    """
    lost = _count_failures(cells)
    if not lost:
        return f"All {len(cells)} cells ended ok." if len(cells) > 1 else "The cell ended ok."
    return f"{sum(lost.values())} of {len(cells)} cells failed ({_list_statuses(lost)})."


def success_text(cells: pd.DataFrame) -> str:
    """Count the cells of a combination that ended ok, and the other cells by status.

    Example:
        >>> success_text(pd.DataFrame({"status": ["ok", "ok", "diverged"]}))
        '2 of 3 (1 diverged)'
    """
    lost = _count_failures(cells)
    counted = f"{len(cells) - sum(lost.values())} of {len(cells)}"
    return f"{counted} ({_list_statuses(lost)})" if lost else counted


def failures(cells: pd.DataFrame) -> list[tuple[int, str]]:
    """List the reasons why cells failed, each with its number of cells, starting with the most common.

    Reasons that differ only in their numbers count as one. The first of them represents the others.
    """
    lost = cells[~cells["status"].isin(GOOD)]
    kinds: dict[str, list[str]] = {}
    for status, reason in zip(lost["status"], lost["reason"], strict=True):
        kinds.setdefault(re.sub(r"\d+", "0", f"{status}: {reason}"), []).append(f"{status}: {reason}")
    return sorted(((len(same), same[0]) for same in kinds.values()), key=lambda kind: -kind[0])


def _count_failures(cells: pd.DataFrame) -> Counter[str]:
    return Counter(str(status) for status in cells["status"] if status not in GOOD)


def _list_statuses(lost: Counter[str]) -> str:
    return ", ".join(f"{n} {status}" for status, n in lost.most_common())


def _group_cells(cells: pd.DataFrame, names: Sequence[str]) -> dict[tuple[Any, ...], pd.DataFrame]:
    """Return the cells of every combination, in the order of the study."""
    return dict(iter(cells.groupby(list(names), sort=False))) if names else {(): cells}


def _make_guarantee_columns(
    cells: pd.DataFrame, parts: Mapping[tuple[Any, ...], pd.DataFrame], columns: Sequence[str]
) -> dict[str, dict[tuple[Any, ...], str]]:
    """Return the columns of guarantee, adjacency, adversary and δ that differ, as name → combination → text."""
    texts: dict[str, dict[tuple[Any, ...], str]] = {}
    if any(name in measures.BUDGETS for name in columns) and len(measures.guarantees(cells)) > 1:
        texts["guarantee"] = {row: "".join(measures.guarantees(part.tail(1))) for row, part in parts.items()}
    for column in different_threat_models(cells):
        texts[column] = {row: " or ".join(dict.fromkeys(part[column])) or "–" for row, part in parts.items()}
    measure = next((name for name in columns if len(measures.deltas(name, cells)) > 1), None)
    if measure is not None and "privacy.delta" not in cells:
        texts["δ"] = {
            row: delta_text(next(iter(measures.deltas(measure, part.tail(1))), None)) for row, part in parts.items()
        }
    return texts


def _format_mean(row: Mapping[Any, Any] | None, name: str, part: pd.DataFrame) -> str:
    ok = int(part["status"].isin(GOOD).sum())
    if row is None or not row["n"]:
        return "–" if ok else FAILED
    spread = spread_text(row["mean"], row["low"], row["high"])
    # A mean with an interval has three digits, since 0.5 next to 0.502 would look less precise.
    mean = epsilon_text(row["mean"]) if measures.is_epsilon(name) else power_text(row["mean"], pad=bool(spread))
    # Some cells lack the measure.
    fewer = "" if row["n"] in (ok, len(part)) else f" (n = {row['n']})"
    return f"{mean}{spread}{fewer}"
