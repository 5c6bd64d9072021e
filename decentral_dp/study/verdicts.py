"""Claims of a study, compared with what was measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from decentral_dp.errors import InputError, quoted
from decentral_dp.report.text import power_text
from decentral_dp.scenario import nearest_of
from decentral_dp.study.grid import Axis, Label
from decentral_dp.study.schema import Claim, Side, Study, Where

_SIGNS = {"less": "<", "greater": ">", "within": "≈"}


class Point(NamedTuple):
    """A mean over seeds. labels: axis → label; low and high are NaN for a single seed."""

    labels: Mapping[str, Label]
    n: int
    mean: float
    low: float
    high: float


class Verdict(NamedTuple):
    """A claim held against the numbers: of so many pairs of means some hold, and some miss a side.

    numbers: of the pair that holds least.
    """

    statement: str
    reproduced: bool
    pairs: int
    held: int
    missing: int
    numbers: str


def check_where(where: Where, axes: Sequence[Axis], place: str) -> None:
    """Refuse an axis or a value that the study does not have."""
    known = {axis.name: axis for axis in axes}
    for name, wanted in where.items():
        if name not in known:
            raise InputError(f"{place}.where: {quoted(name)} does not vary here{nearest_of(name, sorted(known))}.")
        for label in wanted if isinstance(wanted, list) else [wanted]:
            if label not in known[name].labels:
                labels = [str(v) for v in known[name].labels]
                raise InputError(f"{place}.where.{name}: {quoted(label)} is no value{nearest_of(str(label), labels)}.")


def check_claims(study: Study, axes: Sequence[Axis]) -> None:
    for claim in study.claims:
        for side in _sides(claim):
            check_where(side.where, axes, f"claims ({claim.statement})")


def _sides(claim: Claim) -> list[Side]:
    return [s for s in (claim.left, claim.right) if isinstance(s, Side)]


def selected(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """The rows where the axes have these values."""
    for name, wanted in where.items():
        frame = frame[frame[name].isin(wanted if isinstance(wanted, list) else [wanted])]
    return frame


def verdict(claim: Claim, summary: pd.DataFrame, axes: Sequence[Axis]) -> Verdict:
    """Every left mean against every right one that agrees with it on the axes that neither side fixes.

    A pair of which one side was not measured, since its cells failed, does not hold.
    """
    fixed = {name for side in _sides(claim) for name in side.where}
    shared = [axis.name for axis in axes if axis.name not in fixed]
    left = _points(claim.left, summary, axes)
    if isinstance(claim.right, Side):
        right = _points(claim.right, summary, axes)
        pairs = [(a, b) for a in left for b in right if all(a.labels[s] == b.labels[s] for s in shared)]
    else:
        pairs = [(a, Point({}, 1, claim.right, math.nan, math.nan)) for a in left]
    known = [pair for pair in pairs if pair[0].n and pair[1].n]
    held = sum(_margin(claim, pair) > 0.0 for pair in known)
    numbers = "nothing to compare: it was not measured there"
    if known:
        numbers = _numbers(claim, min(known, key=lambda pair: _margin(claim, pair)), shared)
    return Verdict(claim.statement, held == len(pairs), len(pairs), held, len(pairs) - len(known), numbers)


def _points(side: Side, summary: pd.DataFrame, axes: Sequence[Axis]) -> list[Point]:
    """One for each combination of the axes' values that `where` leaves; n = 0 where nothing was measured."""
    rows = summary[summary["name"] == side.measure]
    rows = rows[rows["last"]] if side.round is None else rows[~rows["last"] & (rows["round"] == side.round)]
    found = {tuple(row[a.name] for a in axes): row for row in selected(rows, side.where).to_dict("records")}
    points = []
    for labels in itertools.product(*(_left(axis, side.where) for axis in axes)):
        row = found.get(labels, {"n": 0, "mean": math.nan, "low": math.nan, "high": math.nan})
        named = {axis.name: label for axis, label in zip(axes, labels, strict=True)}
        points.append(Point(named, int(row["n"]), float(row["mean"]), float(row["low"]), float(row["high"])))
    return points


def _left(axis: Axis, where: Where) -> Sequence[Label]:
    wanted = where.get(axis.name, list(axis.labels))
    return [label for label in axis.labels if label in (wanted if isinstance(wanted, list) else [wanted])]


def _margin(claim: Claim, pair: tuple[Point, Point]) -> float:
    """Above 0 where the comparison holds; the smaller, the harder. NaN never holds."""
    left, right = pair[0].mean, pair[1].mean
    if claim.compare == "within":
        low, high = sorted((right / claim.factor, right * claim.factor))
        inside = min(left - low, high - left) if math.isfinite(left) else -math.inf
        # The ends belong to it.
        return math.nextafter(inside, math.inf)
    bound = claim.factor * right
    if left == bound or math.isnan(left) or math.isnan(bound):
        return 0.0
    gap = bound - left if claim.compare == "less" else left - bound
    return gap / max(abs(left), abs(bound)) if math.isfinite(gap) else gap


def _numbers(claim: Claim, pair: tuple[Point, Point], shared: Sequence[str]) -> str:
    factor = "" if claim.factor == 1.0 or claim.compare == "within" else f"{claim.factor:g} · "
    width = f" up to a factor {claim.factor:g}" if claim.compare == "within" else ""
    there = ", ".join(f"{name} {pair[0].labels[name]}" for name in shared)
    sides = f"{_mean(pair[0])} {_SIGNS[claim.compare]} {factor}{_mean(pair[1])}{width}"
    return f"{sides}{f' at {there}' if there else ''}"


def _mean(point: Point) -> str:
    half = (point.high - point.low) / 2
    # Less than a thousandth is not seen in the mean either.
    wide = half >= 1e-3 * abs(point.mean)
    spread = f" ± {power_text(float(f'{half:.2g}'))} (n = {point.n})" if wide else ""
    return f"{power_text(point.mean)}{spread}"
