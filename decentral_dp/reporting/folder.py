"""A run folder, as far as the page and the figures read it: its scenario, its curves, its ledger, and the last x."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.files.exports import Columns
from decentral_dp.files.regular import own
from decentral_dp.simulation.result import RunResult, published_values, read_result

if TYPE_CHECKING:
    import pandas as pd


def scenario_text(folder: Path) -> str:
    """The scenario of a run folder as text; "" where there is none."""
    path = folder / "scenario.toml"
    return own(path, folder, str(folder)).read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def read_scenario(folder: Path) -> dict[str, Any]:
    """The resolved scenario; empty where there is none that can be read, for the page can do without."""
    try:
        return tomllib.loads(scenario_text(folder))
    except tomllib.TOMLDecodeError:
        return {}


def published_x(folder: Path) -> Array | None:
    """(m, p), last published; None where the folder has none. Raises InputError for a broken file."""
    there = (folder / "state.npz").exists()
    return published_values(folder, str(folder), ["x"]).get("x") if there else None


def broken(path: Path, error: Exception) -> InputError:
    """What is said of a file that cannot be read."""
    why = " ".join(str(error).split()).rstrip(".")
    return InputError(f"{path}: cannot be read ({why}); run the scenario again to write the folder anew.")


OVERFLOW = 1e100  # Beyond this a curve is drawn as overflown: axes in float64 cannot hold it.
DRAWN_ROUNDS = 120


class Drawing(NamedTuple):
    """The content of a run folder that the page and the figures show.

    Args:
        result: of the run.
        scenario: fully resolved.
        metrics: columns round, agent, name, value.
        ledger: columns as of `Ledger.to_frame`, at the drawn rounds.
        x: (m, p), last published; None if the run has none.
    """

    result: RunResult
    scenario: Mapping[str, Any]
    metrics: Columns
    ledger: Columns
    x: Array | None

    @property
    def limits(self) -> dict[str, float]:
        """ε that the scenario aims at ("target") or must not pass ("cap")."""
        values = {"target": self.scenario.get("privacy", {}).get("epsilon"), "cap": self.result.privacy.cap}
        return {name: float(value) for name, value in values.items() if value is not None}

    @property
    def start(self) -> float | None:
        """The value at which every coordinate of x starts; None if it is unknown."""
        if self.result.algorithm:
            # A coordinator projects the start onto its domain.
            value = self.result.algorithm["start"]["x"]
        elif "x" in (self.scenario.get("problem", {}).get("start") or {}):
            return None
        else:
            value = (self.scenario.get("algorithm", {}).get("init") or {}).get("x", 0.0)
        return float(value) if isinstance(value, int | float) else None

    @property
    def is_trusted(self) -> bool:
        """Whether a trusted coordinator publishes one value for all agents."""
        return self.result.privacy.is_trusted

    def score(self, name: str) -> Curve | None:
        """A score over rounds, of what was published or else of the exact lower solution there."""
        return curve(self.metrics, f"{name}_unreleased" if self.result.solves_lower else name)


class Curve(NamedTuple):
    """A metric by round, (T,): mean, lowest, highest over agents; NaN where one overflowed, first at `overflow`."""

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
    """Read a run folder.

    Raises:
        InputError: the folder holds no result.json, or a file that is broken.
    """
    result = read_result(folder)
    ledger = read_ledger(folder / "ledger.parquet", drawn_rounds(result))
    return Drawing(result, read_scenario(folder), read_metrics(folder / "metrics.parquet"), ledger, published_x(folder))


def drawn_rounds(result: RunResult) -> Array:
    """(k,) the rounds at which a ledger is drawn, evenly spaced on a log axis."""
    last = max(1, result.rounds, result.rounds_planned or 0)
    return np.unique(np.geomspace(1, last, DRAWN_ROUNDS).round())


# Columns of what was measured.
_COLUMNS = {"round": "int64", "agent": "str", "name": "str", "value": "float64"}


def nothing_measured() -> pd.DataFrame:
    """Make the table of a run that measured nothing."""
    # Slow to import, and a run that ends is drawn from what is in memory.
    import pandas as pd

    return pd.DataFrame(columns=list(_COLUMNS)).astype(_COLUMNS)


def read_metrics(path: Path) -> pd.DataFrame:
    """Read what was measured: rows (round, agent, name, value), none where nothing was or the file is missing.

    Raises:
        InputError: for a file that is broken, or holds something else.
    """
    import pandas as pd

    try:
        frame = pd.read_parquet(own(path, path.parent, str(path)))
        if not set(_COLUMNS) <= set(frame):
            return nothing_measured()
        kinds = {n: pd.api.types.infer_dtype(frame[n], skipna=False) for n in ("agent", "name")}
        if wrong := [n for n, kind in kinds.items() if kind not in ("string", "empty") or frame[n].isna().any()]:
            raise ValueError(f"its column {wrong[0]} has other values than text")
        if wrong := [n for n in ("round", "value") if not pd.api.types.is_numeric_dtype(frame[n])]:
            raise ValueError(f"its column {wrong[0]} has other values than numbers")
        return frame.astype({"round": "int64", "value": "float64"})
    except InputError:
        raise
    except FileNotFoundError:
        return nothing_measured()
    except (ValueError, TypeError, RuntimeError, OSError) as error:  # Arrow's errors are among these.
        raise broken(path, error) from None


def read_ledger(path: Path, rounds: Array) -> pd.DataFrame:
    """Read a ledger at some rounds, part by part: it may be longer than memory.

    Args:
        path: of `ledger.parquet`; where it is missing nothing is read.
        rounds: (k,) whole numbers.

    Raises:
        InputError: for a file that is broken.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.parquet import ParquetFile

    if not own(path, path.parent, str(path)).exists():
        return pd.DataFrame()
    numbers = pa.array(rounds.astype(np.int64))
    try:
        with ParquetFile(path) as file:
            # A run without any release has a ledger without columns.
            if "round" not in file.schema_arrow.names:
                return pd.DataFrame()
            # A mask: filters that are expressions keep memory from part to part.
            parts = (file.read_row_group(k) for k in range(file.num_row_groups))
            chosen = (part.filter(pc.is_in(part["round"], value_set=numbers)) for part in parts)
            read = [part for part in chosen if part.num_rows] or [file.schema_arrow.empty_table()]
        ledger: pd.DataFrame = pa.concat_tables(read).unify_dictionaries().to_pandas()
        return ledger
    except (ValueError, OSError) as error:
        raise broken(path, error) from None


def curve(metrics: Columns, name: str) -> Curve | None:
    """The metric over rounds, its band from `…_min`/`…_max` or else from rows per agent; None if it is missing."""
    stem, last = (name.removesuffix("_last"), "_last") if name.endswith("_last") else (name, "")
    agents, names = np.asarray(metrics["agent"]), np.asarray(metrics["name"])
    every_round, every_value = np.asarray(metrics["round"]), np.asarray(metrics["value"], dtype=np.float64)

    def means(of: str) -> dict[float, float]:
        rows = np.flatnonzero((names == of) & (agents == "mean"))
        return dict(zip(every_round[rows].tolist(), every_value[rows].tolist(), strict=True))

    rows = np.flatnonzero((names == name) & (agents != "mean"))
    rows = rows[np.argsort(every_round[rows], kind="stable")]
    times, first = np.unique(every_round[rows], return_index=True)
    # Not strict: no rows are split into one part, which is empty.
    by_agent = dict(zip(times.tolist(), np.split(every_value[rows], first[1:]), strict=False))
    mean = means(name) or {t: float(np.mean(values)) for t, values in by_agent.items()}
    if not mean:
        return None
    lines = [mean]
    for side, extreme in (("min", np.min), ("max", np.max)):
        extremes = means(f"{name}_{side}") or means(f"{stem}_{side}{last}")
        lines.append(extremes or {t: float(extreme(values)) for t, values in by_agent.items()} or mean)
    rounds = np.array(sorted(mean), dtype=np.float64)
    values = np.array([[line.get(t, np.nan) for t in rounds.tolist()] for line in lines])
    drawable = np.where(np.abs(values) < OVERFLOW, values, np.nan)
    bad = rounds[~np.isfinite(drawable[0])]
    return Curve(rounds, drawable[0], drawable[1], drawable[2], int(bad[0]) if bad.size else None)
