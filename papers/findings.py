"""Results of an experiment: a tidy table of measured numbers, and verdicts on claims.

A slope is fitted by least squares on logarithms, seed by seed; its interval is Student's, 95 % over seeds. A claim is
reproduced only where the whole interval lies in its window, and refuted only where all of it lies outside; between them
it is undecided, so that a noisy experiment neither reproduces nor refutes a claim.
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

# No window is wider than this on either side of an exponent of theory.
WIDEST = 0.1
# Numbers of digits to try, until a number's side of its window is visible.
_DIGITS = (3, 6, 9, 12, 17)
COLUMNS = ("panel", "series", "axis", "at", "measure", "seed", "value")


class Row(NamedTuple):
    """One measured number. panel, series: which curve of which plot. axis, at: what varies, and its value.

    measure: what the number is. seed: of which repetition it is; 0 where it is exact.
    """

    panel: str
    series: str
    axis: str
    at: float
    measure: str
    seed: int
    value: float


class Check(NamedTuple):
    """A claim about one measured number: that it lies in `window`.

    curve: (panel, series) whose slope it is; None for other numbers.
    """

    statement: str
    measured: Interval
    window: tuple[float, float]
    curve: tuple[str, str] | None = None

    @property
    def holds(self) -> bool:
        """Whether the whole interval lies in the window; never for what could not be measured."""
        return self.window[0] <= self.measured.low and self.measured.high <= self.window[1]

    @property
    def fails(self) -> bool:
        """Whether the whole interval lies outside the window."""
        return self.measured.high < self.window[0] or self.measured.low > self.window[1]

    @property
    def words(self) -> str:
        return "reproduced" if self.holds else "not reproduced" if self.fails else "undecided"

    @property
    def numbers(self) -> str:
        """The number with its interval and the window, with enough digits to distinguish them."""
        digits = next((d for d in _DIGITS if self._is_faithful(d)), _DIGITS[-1])
        value, low, high = (short(number, digits) for number in self.measured)
        spread = f" (95 % of [{low}, {high}])" if self.measured.high > self.measured.low else ""
        name = "slope " if self.curve is not None else ""
        sign = "∈" if self.holds else "∉" if self.fails else "not wholly in"
        return f"{name}{value}{spread} {sign} {_window(self.window)}"

    def _is_faithful(self, digits: int) -> bool:
        """Whether rounding leaves every number on its side of either end of the window."""
        return all(
            np.sign(float(f"{number:.{digits}g}") - end) == np.sign(number - end)
            for number in self.measured
            for end in self.window
            if math.isfinite(number) and math.isfinite(end)
        )


@dataclass(frozen=True)
class Finding:
    """One experiment's outcome. rows: a table of `Row`s. checks: its claims. sentences: what the numbers mean."""

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
    def words(self) -> str:
        if self.reproduced:
            return "reproduced"
        outcome = "not reproduced" if any(check.fails for check in self.checks) else "undecided"
        return f"{outcome}: {sum(check.holds for check in self.checks)} of {len(self.checks)} claims hold"


def table(rows: Iterable[Row]) -> pd.DataFrame:
    """Put measured numbers into a table.

    Args:
        rows: result of `measure`.

    Returns:
        A row each, with the columns `COLUMNS`.
    """
    return pd.DataFrame(list(rows), columns=list(COLUMNS))


def around(exponent: float, *rivals: float) -> tuple[float, float]:
    """The window of an exponent: half of the way to the nearest rival one, and 0.1 at most, on either side."""
    half = min([WIDEST, *(0.5 * abs(exponent - rival) for rival in rivals)])
    return exponent - half, exponent + half


def slope(rows: pd.DataFrame, panel: str, series: str) -> Interval:
    """Fit the exponent of `value` in `at` along one curve, seed by seed.

    Args:
        rows: see `table`.
        panel: panel of the plot.
        series: name of the curve.

    Returns:
        An interval over the seeds.
    """
    return over_seeds([fit(seed_rows)[0] for _, seed_rows in curve(rows, panel, series).groupby("seed")])


def fit(rows: pd.DataFrame) -> tuple[float, float]:
    """Fit log value against log at.

    Args:
        rows: rows of one curve and one seed, see `table`.

    Returns:
        (slope, intercept); NaN where a value is not positive or there is one point.
    """
    x, y = rows["at"].to_numpy(dtype=np.float64), rows["value"].to_numpy(dtype=np.float64)
    if np.unique(x).size < 2 or not bool((np.isfinite(y) & (y > 0.0) & (x > 0.0)).all()):
        return math.nan, math.nan
    inclination, intercept = np.polyfit(np.log(x), np.log(y), 1)
    return float(inclination), float(intercept)


def curve(rows: pd.DataFrame, panel: str, series: str) -> pd.DataFrame:
    """Take the rows of one curve.

    Args:
        rows: see `table`.
        panel: panel of the plot.
        series: name of the curve.
    """
    return rows[(rows["panel"] == panel) & (rows["series"] == series)]


def values(rows: pd.DataFrame, panel: str, series: str, at: float | None = None) -> Array:
    """Take the numbers of one curve, over all seeds.

    Args:
        rows: the table of measured numbers.
        panel: panel of the plot.
        series: name of the curve.
        at: one point of the curve; default all.

    Returns:
        (n,) the numbers, in the order of the table.
    """
    found = curve(rows, panel, series)
    if at is not None:
        found = found[np.isclose(found["at"], at)]
    return found["value"].to_numpy(dtype=np.float64)


def slope_check(rows: pd.DataFrame, statement: str, place: tuple[str, str], window: tuple[float, float]) -> Check:
    """Check an exponent.

    Args:
        rows: see `table`.
        statement: the claim, in words.
        place: panel and series of the curve.
        window: where its exponent has to lie, low and high.
    """
    return Check(statement, slope(rows, *place), window, place)


def _window(window: tuple[float, float]) -> str:
    low, high = window
    if math.isinf(low):
        return f"(−∞, {short(high)}]"
    if math.isinf(high):
        return f"[{short(low)}, ∞)"
    return f"[{short(low)}, {short(high)}]"


def short(value: float, digits: int = 3) -> str:
    """Format a number with a number of digits: 1e-6, not 1e-06.

    Args:
        value: the number.
        digits: significant ones; default 3.
    """
    return f"{value:.{digits}g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e").replace("-", "−")
