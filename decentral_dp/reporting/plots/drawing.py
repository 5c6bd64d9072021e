"""What the figures are drawn from, as read from a run folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetFile

from decentral_dp.bounded import Array
from decentral_dp.reporting.folder import broken, published_x, read_scenario
from decentral_dp.reporting.setting_words import WORDS, SettingWords
from decentral_dp.simulation.result import RunResult, read_result
from decentral_dp.simulation.statements.statement import number

OVERFLOW = 1e100  # Beyond this a curve is drawn as overflown: axes in float64 cannot hold it.
DRAWN_ROUNDS = 120


class Drawing(NamedTuple):
    """What the figures are drawn from.

    limits: ε that the scenario aims at ("target") or must not pass ("cap"). x: (m, p), last published; None where the
    folder has none. start: the value that every coordinate of x had first, where it is known.
    """

    result: RunResult
    metrics: pd.DataFrame
    ledger: pd.DataFrame
    limits: Mapping[str, float]
    x: Array | None
    start: float | None

    @property
    def diverged(self) -> bool:
        return self.result.has_diverged

    @property
    def trusted(self) -> bool:
        """Whether one value is published for all, by a coordinator whom all trust."""
        return self.result.privacy.is_trusted

    @property
    def words(self) -> SettingWords:
        """What is said differently by setting."""
        return WORDS[self.result.setting]

    @property
    def minimax(self) -> bool:
        return self.result.is_minimax

    @property
    def solved(self) -> bool:
        """Whether x alone is published, so that scores are those of an exact lower solution that nobody sees."""
        return self.trusted and self.result.solves_lower

    def score(self, name: str) -> Curve | None:
        """A score over rounds, of what was published or else of the exact lower solution there."""
        return curve(self.metrics, f"{name}_unreleased" if self.solved else name)


class Curve(NamedTuple):
    """A metric over rounds: mean, lowest and highest over agents; NaN where one overflowed, first at `overflow`."""

    rounds: Array
    mean: Array
    low: Array
    high: Array
    overflow: int | None

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last finite mean."""
        finite = self.mean[np.isfinite(self.mean)]
        return (float(finite[0]), float(finite[-1])) if finite.size else (math.nan, math.nan)


def read_drawing(folder: Path) -> Drawing:
    """What `write_plots` draws. Raises InputError where `folder` holds no result.json, or a file that is broken."""
    result = read_result(folder)
    metrics, ledger = _read_metrics(folder), read_ledger(folder / "ledger.parquet", drawn_rounds(result))
    return drawing_of(result, read_scenario(folder), metrics, ledger, published_x(folder))


def drawing_of(
    result: RunResult, scenario: Mapping[str, Any], metrics: pd.DataFrame, ledger: pd.DataFrame, x: Array | None
) -> Drawing:
    """What figures are drawn from, of a run that is in memory.

    Args:
        result: its numbers.
        scenario: fully resolved.
        metrics: rows (round, agent, name, value).
        ledger: at as many rounds as are to be drawn.
        x: (m, p), last published, or None.
    """
    stated = {"target": scenario.get("privacy", {}).get("epsilon"), **(result.get("privacy") or {})}
    limits = {name: value for name in ("target", "cap") if (value := number(stated.get(name))) is not None}
    start = number((scenario["algorithm"].get("init") or {}).get("x", 0.0)) if "algorithm" in scenario else None
    if "x" in (scenario.get("problem", {}).get("start") or {}):
        # Coordinates start apart.
        start = None
    if "algorithm" in result:
        # A coordinator brings the start into its domain.
        start = number((result.algorithm.get("start") or {}).get("x"))
    return Drawing(result, metrics, ledger, limits, x, start)


def drawn_rounds(result: RunResult) -> Array:
    """The rounds at which a ledger is drawn, evenly spaced on a log axis."""
    last = max(1, result.rounds, result.rounds_planned or 0)
    return np.unique(np.geomspace(1, last, DRAWN_ROUNDS).round())


def _read_metrics(folder: Path) -> pd.DataFrame:
    path = folder / "metrics.parquet"
    try:
        frame = pd.read_parquet(path) if path.exists() else pd.DataFrame()
    except (ValueError, OSError) as error:  # Arrow's errors are among these.
        raise broken(path, error) from None
    return frame if "value" in frame else pd.DataFrame({"round": [], "agent": [], "name": [], "value": []})


def read_ledger(path: Path, rounds: Array) -> pd.DataFrame:
    """Read a ledger at some rounds, part by part: it may be longer than memory.

    Args:
        path: of `ledger.parquet`; where it is missing nothing is read.
        rounds: whole numbers.

    Raises:
        InputError: for a file that is broken.
    """
    if not path.exists():
        return pd.DataFrame()
    wanted = pa.array(rounds.astype(np.int64))
    try:
        with ParquetFile(path) as file:
            # A run without any release has a ledger without columns.
            if "round" not in file.schema_arrow.names:
                return pd.DataFrame()
            # A mask: filters that are expressions keep memory from part to part.
            parts = (file.read_row_group(k) for k in range(file.num_row_groups))
            found_in = (part.filter(pc.is_in(part["round"], value_set=wanted)) for part in parts)
            kept = [part for part in found_in if part.num_rows] or [file.schema_arrow.empty_table()]
        found: pd.DataFrame = pa.concat_tables(kept).unify_dictionaries().to_pandas()
        return found
    except (ValueError, OSError) as error:
        raise broken(path, error) from None


def curve(metrics: pd.DataFrame, name: str) -> Curve | None:
    """The metric over rounds, its band from `…_min`/`…_max` or else from rows per agent; None if it is missing."""
    stem, last = (name.removesuffix("_last"), "_last") if name.endswith("_last") else (name, "")
    sides = {side: (f"{name}_{side}", f"{stem}_{side}{last}") for side in ("min", "max")}
    # Of the many metrics of a run few are drawn together: they are looked for once.
    near = metrics[metrics["name"].isin([name, *sides["min"], *sides["max"]])]
    of_all = near["agent"] == "mean"
    means = {str(n): part.groupby("round")["value"].last() for n, part in near[of_all].groupby("name")}
    rows = near[~of_all & (near["name"] == name)]
    by_agent = None if rows.empty else rows.groupby("round")["value"]
    mean = means.get(name, None if by_agent is None else by_agent.mean())
    if mean is None:
        return None
    band = []
    for side, names in sides.items():
        found = next((means[n] for n in names if n in means), mean if by_agent is None else by_agent.agg(side))
        band.append(found.reindex(mean.index).to_numpy(dtype=np.float64))
    rounds, values = mean.index.to_numpy(dtype=np.float64), mean.to_numpy(dtype=np.float64)
    drawable = [np.where(np.abs(v) < OVERFLOW, v, np.nan) for v in (values, *band)]
    bad = rounds[~np.isfinite(drawable[0])]
    return Curve(rounds, drawable[0], drawable[1], drawable[2], int(bad[0]) if bad.size else None)
