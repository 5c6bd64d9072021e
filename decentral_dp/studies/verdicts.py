"""Claims of a study, compared with what was measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from decentral_dp.config.loading import nearest_of
from decentral_dp.errors import InputError, quoted
from decentral_dp.formatting import rounded_up
from decentral_dp.reporting.text import power_text
from decentral_dp.studies.epsilons import BUDGETS, CLAIMS
from decentral_dp.studies.grid import Axis, Label
from decentral_dp.studies.intervals import spread_text
from decentral_dp.studies.study_schema import Claim, Side, Study, Where

# Where a comparison holds, and where it does not: what is printed is true either way.
_SIGNS = {"less": ("<", "≥"), "greater": (">", "≤"), "within": ("≈", "≉")}
# A mean is printed in the first of so many digits that shows what holds; 17 tell every float64 from its neighbours.
_DIGITS = (3, 6, 9, 12, 17)


class Point(NamedTuple):
    """A mean over seeds.

    Args:
        labels: axis → label.
        n: seeds.
        mean: over them.
        low: end of the interval, NaN for a single seed.
        high: end of the interval, NaN for a single seed.
        is_epsilon: whether it is a budget or a claimed one, which is never printed smaller than it is.
    """

    labels: Mapping[str, Label]
    n: int
    mean: float
    low: float
    high: float
    is_epsilon: bool = False


class Verdict(NamedTuple):
    """A claim compared with the numbers: of so many pairs of means some hold, and some miss a side.

    Args:
        statement: the claim in words.
        reproduced: whether all pairs hold; None where those that were measured do, but not all were.
        pairs: how many.
        held: how many hold.
        missing: how many miss a side.
        numbers: of the pair that holds least.

    Example:
        >>> Verdict("A ring is slower", reproduced=False, pairs=3, held=2, missing=0, numbers="").words
        'holds in 2 of 3'
    """

    statement: str
    reproduced: bool | None
    pairs: int
    held: int
    missing: int
    numbers: str

    @property
    def words(self) -> str:
        """The verdict: "reproduced", "not reproduced", "holds in 2 of 3" or "not measured"."""
        if self.missing == self.pairs:
            return "not measured"
        if self.held == self.pairs:
            return "reproduced" if self.pairs == 1 else f"reproduced in all {self.pairs}"
        if self.held == self.missing == 0:
            return "not reproduced" if self.pairs == 1 else f"not reproduced in any of {self.pairs}"
        unknown = f", {self.missing} not measured" if self.missing else ""
        return f"holds in {self.held} of {self.pairs}{unknown}"


def check_where(where: Where, axes: Sequence[Axis], place: str) -> None:
    """Refuse an axis or a value that the study does not have.

    Raises:
        InputError: the message has the nearest one.
    """
    known = {axis.name: axis for axis in axes}
    for name, wanted in where.items():
        if name not in known:
            raise InputError(f"{place}.where: {quoted(name)} does not vary here{nearest_of(name, sorted(known))}.")
        for label in wanted if isinstance(wanted, list) else [wanted]:
            if label not in known[name].labels:
                labels = [str(v) for v in known[name].labels]
                raise InputError(f"{place}.where.{name}: {quoted(label)} is no value{nearest_of(str(label), labels)}.")


def check_claims(study: Study, axes: Sequence[Axis]) -> None:
    """Refuse claims about axes or values that the study does not have.

    Raises:
        InputError: the message has the nearest one.
    """
    for claim in study.claims:
        for side in _sides(claim):
            check_where(side.where, axes, f"claims ({claim.statement})")
            known = sorted(axis.name for axis in axes if axis.name not in side.where)
            if side.best is not None and side.best not in known:
                hint = nearest_of(side.best, known)
                raise InputError(f"claims ({claim.statement}).best: {quoted(side.best)} does not vary here{hint}.")


def _sides(claim: Claim) -> list[Side]:
    return [s for s in (claim.left, claim.right) if isinstance(s, Side)]


def selected(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Select the rows where the axes have these values.

    Example:
        >>> table = pd.DataFrame({"topology": ["ring", "star", "path"]})
        >>> selected(table, {"topology": ["ring", "star"]})["topology"].tolist()
        ['ring', 'star']
    """
    for name, wanted in where.items():
        frame = frame[frame[name].isin(wanted if isinstance(wanted, list) else [wanted])]
    return frame


def verdict(claim: Claim, summary: pd.DataFrame, axes: Sequence[Axis]) -> Verdict:
    """Compare every left mean with every right one that agrees with it on the axes that neither side fixes.

    A pair of which one side was not measured, since its cells failed, say, tells nothing.

    Args:
        claim: of the study.
        summary: means with intervals.
        axes: what varied.
    """
    fixed = {name for side in _sides(claim) for name in (*side.where, side.best)}
    shared = [axis.name for axis in axes if axis.name not in fixed]
    left = _points(claim.left, summary, axes)
    if isinstance(claim.right, Side):
        right = _points(claim.right, summary, axes)
        pairs = [(a, b) for a in left for b in right if all(a.labels[s] == b.labels[s] for s in shared)]
    else:
        pairs = [(a, Point({}, 1, claim.right, math.nan, math.nan)) for a in left]
    known = [pair for pair in pairs if not (math.isnan(pair[0].mean) or math.isnan(pair[1].mean))]
    held = sum(_margin(claim, pair) > 0.0 for pair in known)
    missing = len(pairs) - len(known)
    numbers = _nothing(claim, left)
    if known:
        numbers = _numbers(claim, min(known, key=lambda pair: _margin(claim, pair)), shared)
    reproduced = False if held < len(known) else None if missing or not pairs else True
    return Verdict(claim.statement, reproduced, len(pairs), held, missing, numbers)


def _nothing(claim: Claim, left: Sequence[Point]) -> str:
    """What there would have to be for a comparison."""
    sides = _sides(claim)
    side = sides[-1] if any(not math.isnan(point.mean) for point in left) else sides[0]
    where = ", ".join(
        f"{name} {' or '.join(map(str, wanted)) if isinstance(wanted, list) else wanted}"
        for name, wanted in side.where.items()
    )
    when = "" if side.round is None else f" at round {side.round}"
    return f"nothing was compared: there is no {side.measure}{when}{f' of {where}' if where else ''}"


def _points(side: Side, summary: pd.DataFrame, axes: Sequence[Axis]) -> list[Point]:
    """One for each combination of the axes' values that `where` leaves; n = 0 where nothing was measured."""
    rows = summary[summary["name"] == side.measure]
    rows = rows[rows["last"]] if side.round is None else rows[~rows["last"] & (rows["round"] == side.round)]
    found = {tuple(row[a.name] for a in axes): row for row in selected(rows, side.where).to_dict("records")}
    points = []
    for labels in itertools.product(*(_left(axis, side.where) for axis in axes)):
        row = found.get(labels, {"n": 0, "mean": math.nan, "low": math.nan, "high": math.nan})
        named = {axis.name: label for axis, label in zip(axes, labels, strict=True)}
        mean, low, high = (float(row[name]) for name in ("mean", "low", "high"))
        points.append(Point(named, int(row["n"]), mean, low, high, side.measure in (*BUDGETS, *CLAIMS)))
    return points if side.best is None else _best(points, side.best)


def _best(points: Sequence[Point], axis: str) -> list[Point]:
    """Of points that differ along one axis alone the highest; missing ones lose."""
    alike: dict[tuple[Label, ...], list[Point]] = {}
    for point in points:
        alike.setdefault(tuple(v for name, v in point.labels.items() if name != axis), []).append(point)
    return [max(of, key=lambda p: -math.inf if math.isnan(p.mean) else p.mean) for of in alike.values()]


def _left(axis: Axis, where: Where) -> Sequence[Label]:
    wanted = where.get(axis.name, list(axis.labels))
    return [label for label in axis.labels if label in (wanted if isinstance(wanted, list) else [wanted])]


def _margin(claim: Claim, pair: tuple[Point, Point]) -> float:
    """Above 0 where the comparison holds; the smaller, the harder."""
    left, right = pair[0].mean, pair[1].mean
    if claim.compare == "within":
        low, high = sorted((right / claim.factor, right * claim.factor))
        inside = 0.0 if left == right else min(left - low, high - left) if math.isfinite(left) else -math.inf
        # The ends belong to it.
        return math.nextafter(inside, math.inf)
    bound = claim.factor * right
    if left == bound:
        return 0.0
    gap = bound - left if claim.compare == "less" else left - bound
    return gap / max(abs(left), abs(bound)) if math.isfinite(gap) else gap


def _numbers(claim: Claim, pair: tuple[Point, Point], shared: Sequence[str]) -> str:
    """Both sides with the sign that is true of them, in as many digits as it takes to be true of what is printed."""
    scale = f"{claim.factor:.15g}"
    factor = "" if claim.factor == 1.0 or claim.compare == "within" else f"{scale} · "
    width = f" up to a factor {scale}" if claim.compare == "within" and claim.factor != 1.0 else ""
    there = ", ".join(f"{name} {pair[0].labels[name]}" for name in shared)
    holds = _margin(claim, pair) > 0.0
    sign = _SIGNS[claim.compare][not holds]
    shown = {d: (_rounded(pair[0], d), _rounded(pair[1], d)) for d in _DIGITS}
    digits = next(d for d in _DIGITS if d == _DIGITS[-1] or (_margin(claim, shown[d]) > 0.0) == holds)
    sides = f"{_mean(pair[0], digits)} {sign} {factor}{_mean(pair[1], digits)}{width}"
    return f"{sides}{f' at {there}' if there else ''}"


def _rounded(point: Point, digits: int) -> Point:
    """The point as `_mean` prints it: an ε rounded up, all else to the nearest."""
    whole = digits == _DIGITS[0] and 999.5 <= abs(point.mean) < 1e5
    if point.is_epsilon:
        return point._replace(mean=float(math.ceil(point.mean)) if whole else rounded_up(point.mean, digits))
    return point._replace(mean=float(f"{point.mean:.{0 if whole else digits}{'f' if whole else 'g'}}"))


def _mean(point: Point, digits: int) -> str:
    spread = spread_text(point.mean, point.low, point.high)
    counted = f"{spread} (n = {point.n})" if spread else ""
    mean = _rounded(point, digits).mean
    return f"{power_text(mean) if digits == _DIGITS[0] else f'{mean:.{digits}g}'}{counted}"
