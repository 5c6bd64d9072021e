"""Results of an experiment: a tidy table of measurements, and verdicts on claims.

A slope is fitted by least squares on logarithms for each seed. Its interval is Student's 95 % interval over seeds. A
claim is reproduced if the whole interval lies in its window, and not reproduced if the whole interval lies outside.
Otherwise it is undecided: a noisy experiment neither reproduces nor refutes a claim.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from decentral_dp.bounded import Array
from decentral_dp.simulation.statistics import Interval, over_seeds

# Largest half-width of a window around a theoretical exponent.
WIDEST = 0.1
# Numbers of significant digits to try until the rounded numbers are on the correct side of the window's ends.
_DIGITS = (3, 6, 9, 12, 17)
COLUMNS = ("panel", "series", "axis", "point", "measure", "seed", "value")


class Row(NamedTuple):
    """One measurement.

    Attributes:
        panel: plot that contains the measurement.
        series: curve of the plot.
        axis: name of the independent variable.
        point: value of the independent variable.
        measure: name of the measured quantity.
        seed: repetition, 0 for an exact number.
        value: the measured number.
    """

    panel: str
    series: str
    axis: str
    point: float
    measure: str
    seed: int
    value: float


def exactly(number: float) -> Interval:
    """Return an interval of width 0, for an exact number.

    Example:
        >>> exactly(2.0)
        Interval(value=2.0, low=2.0, high=2.0)
    """
    return Interval(number, number, number)


class Check(NamedTuple):
    """A claim that one number lies in a window.

    Attributes:
        statement: the claim in words.
        measured: the number with its interval.
        window: low and high end of the window.
        curve: (panel, series) if the number is the slope of a curve, else None.
    """

    statement: str
    measured: Interval
    window: tuple[float, float]
    curve: tuple[str, str] | None = None

    @property
    def holds(self) -> bool:
        """Whether the whole interval lies in the window. False for NaN."""
        return self.window[0] <= self.measured.low and self.measured.high <= self.window[1]

    @property
    def fails(self) -> bool:
        """Whether the whole interval lies outside the window."""
        return self.measured.high < self.window[0] or self.measured.low > self.window[1]

    @property
    def verdict(self) -> str:
        return "reproduced" if self.holds else "not reproduced" if self.fails else "undecided"

    @property
    def comparison(self) -> str:
        """The number, its interval and the window, with enough digits to distinguish them."""
        digits = next((d for d in _DIGITS if self._is_faithful(d)), _DIGITS[-1])
        value, low, high = (short(number, digits) for number in self.measured)
        spread = f" (95 % of [{low}, {high}])" if self.measured.high > self.measured.low else ""
        name = "slope " if self.curve is not None else ""
        sign = "∈" if self.holds else "∉" if self.fails else "partly in"
        return f"{name}{value}{spread} {sign} {_window(self.window)}"

    def _is_faithful(self, digits: int) -> bool:
        """Return whether every number, rounded, stays on its side of both ends of the window."""
        return all(
            np.sign(float(f"{number:.{digits}g}") - end) == np.sign(number - end)
            for number in self.measured
            for end in self.window
            if math.isfinite(number) and math.isfinite(end)
        )


@dataclass(frozen=True)
class Finding:
    """Result of one experiment.

    Attributes:
        name: name of the experiment.
        title: title of the experiment.
        source: paper and statement with the claim.
        rows: table of `Row`s.
        checks: claims with their verdicts.
        sentences: remarks on the results.
        seconds: wall-clock time of the run.
    """

    name: str
    title: str
    source: str
    rows: pd.DataFrame
    checks: tuple[Check, ...]
    sentences: tuple[str, ...]
    seconds: float

    @property
    def reproduced(self) -> bool:
        """Whether every claim holds."""
        return bool(self.checks) and all(check.holds for check in self.checks)

    @property
    def verdict(self) -> str:
        if self.reproduced:
            return "reproduced"
        outcome = "not reproduced" if any(check.fails for check in self.checks) else "undecided"
        return f"{outcome}: {sum(check.holds for check in self.checks)} of {len(self.checks)} claims reproduced"


def table(rows: Iterable[Row]) -> pd.DataFrame:
    """Convert measurements into a table.

    Args:
        rows: result of `measure`.

    Returns:
        One row for each measurement, with the columns `COLUMNS`.
    """
    return pd.DataFrame(list(rows), columns=list(COLUMNS))


def around(exponent: float, *rivals: float) -> tuple[float, float]:
    """Return the window of an exponent: half the distance to the nearest rival, at most 0.1, on either side."""
    half = min([WIDEST, *(0.5 * abs(exponent - rival) for rival in rivals)])
    return exponent - half, exponent + half


def slope(rows: pd.DataFrame, panel: str, series: str) -> Interval:
    """Fit the exponent of `value` as a power of `point` along one curve, for each seed.

    Args:
        rows: see `table`.
        panel: panel of the plot.
        series: name of the curve.

    Returns:
        An interval over the seeds.
    """
    return over_seeds([fit(seed_rows)[0] for _, seed_rows in curve(rows, panel, series).groupby("seed")])


def fit(rows: pd.DataFrame) -> tuple[float, float]:
    """Fit log `value` linearly in log `point`.

    Args:
        rows: rows of one curve and one seed, see `table`.

    Returns:
        (slope, intercept). NaN if a value is not positive or there is only one point.
    """
    x, y = rows["point"].to_numpy(dtype=np.float64), rows["value"].to_numpy(dtype=np.float64)
    if np.unique(x).size < 2 or not bool((np.isfinite(y) & (y > 0.0) & (x > 0.0)).all()):
        return math.nan, math.nan
    inclination, intercept = np.polyfit(np.log(x), np.log(y), 1)
    return float(inclination), float(intercept)


def curve(rows: pd.DataFrame, panel: str, series: str) -> pd.DataFrame:
    """Select the rows of one curve.

    Args:
        rows: see `table`.
        panel: panel of the plot.
        series: name of the curve.
    """
    return rows[(rows["panel"] == panel) & (rows["series"] == series)]


def values(rows: pd.DataFrame, panel: str, series: str, point: float | None = None) -> Array:
    """Return the values of one curve for all seeds.

    Args:
        rows: see `table`.
        panel: panel of the plot.
        series: name of the curve.
        point: one point of the curve; None (the default) means all points.

    Returns:
        Values (n,) in the order of the table.
    """
    selected = curve(rows, panel, series)
    if point is not None:
        selected = selected[np.isclose(selected["point"], point)]
    return selected["value"].to_numpy(dtype=np.float64)


def slope_check(rows: pd.DataFrame, statement: str, curve_name: tuple[str, str], window: tuple[float, float]) -> Check:
    """Compare the exponent of a curve with a window.

    Args:
        rows: see `table`.
        statement: the claim in words.
        curve_name: panel and series of the curve.
        window: low and high end of the window.
    """
    return Check(statement, slope(rows, *curve_name), window, curve_name)


def _window(window: tuple[float, float]) -> str:
    low, high = window
    if math.isinf(low):
        return f"(−∞, {short(high)}]"
    if math.isinf(high):
        return f"[{short(low)}, ∞)"
    return f"[{short(low)}, {short(high)}]"


def short(value: float, digits: int = 3) -> str:
    """Format a number, with 1e-6 instead of 1e-06.

    Args:
        value: number to format.
        digits: number of significant digits.
    """
    return f"{value:.{digits}g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e").replace("-", "−")
