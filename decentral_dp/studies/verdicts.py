"""Claims of a study, compared with what was measured.

Every combination of the axes that neither side fixes is decided by itself, by differences over the seeds that both
sides have (`intervals.decide`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from decentral_dp.config.loading import nearest_of
from decentral_dp.errors import InputError, quoted
from decentral_dp.formatting import power_text, round_up_to
from decentral_dp.studies.intervals import (
    COUNTS,
    HOLDS,
    MISSING,
    REFUTED,
    UNDECIDED,
    Decision,
    Outcome,
    decide,
    spread_text,
)
from decentral_dp.studies.measures import is_epsilon, require_axis
from decentral_dp.studies.runs import GOOD
from decentral_dp.studies.schema import Axis, Cell, Claim, Label, Side, Study, Where
from decentral_dp.topology import GENERATORS

# Where a comparison holds, and where it does not: what is printed is true either way.
_SIGNS = {"less": ("<", "≥"), "greater": (">", "≤"), "within": ("≈", "≉")}
# A mean is printed in the first of so many digits that shows what holds; 17 tell every float64 from its neighbours.
_DIGITS = (3, 6, 9, 12, 17)
# What a run has of its plan: no noise enters. All of a plan is such.
_PLANNED_MEASURES = ("spectral_gap", "neighbour_weight", "agents")
# The least certain comparison is printed: one that fails before one that is open, and this before one that holds.
_RANKS = {REFUTED: 0, UNDECIDED: 1, HOLDS: 2}


class Point(NamedTuple):
    """A mean over seeds.

    Args:
        labels: axis → label.
        n: seeds.
        mean: over them.
        low: end of the interval, NaN for a single seed.
        high: end of the interval, NaN for a single seed.
        values: seed → value.
        is_epsilon: whether it is a budget or a claimed one, which is never printed smaller than it is.
    """

    labels: Mapping[str, Label]
    n: int
    mean: float
    low: float
    high: float
    values: Mapping[int, float] = MappingProxyType({})
    is_epsilon: bool = False


class Comparison(NamedTuple):
    """A left mean beside a right one, and what the seeds tell of them."""

    left: Point
    right: Point
    decision: Decision
    n_lacking: int


class Verdict(NamedTuple):
    """A claim compared with the numbers, combination by combination.

    Args:
        statement: the claim in words.
        pairs: combinations.
        held: how many hold.
        refuted: how many do not.
        missing: how many have nothing measured on a side; what is left of the pairs is undecided.
        seeds: of those that are undecided, the fewest that both sides have.
        numbers: of the combination that holds least.

    Example:
        >>> verdict = Verdict("A ring is slower", pairs=3, held=2, refuted=0, missing=0, seeds=5, numbers="")
        >>> verdict.outcome, verdict.description
        ('undecided', 'holds in 2 of 3, undecided in 1 (5 seeds)')
    """

    statement: str
    pairs: int
    held: int
    refuted: int
    missing: int
    seeds: int
    numbers: str

    @property
    def undecided(self) -> int:
        """How many combinations are undecided."""
        return self.pairs - self.held - self.refuted - self.missing

    @property
    def outcome(self) -> Outcome:
        """Whether the claim holds: nowhere refuted, nowhere undecided, and measured everywhere."""
        if self.refuted:
            return REFUTED
        if self.undecided:
            return UNDECIDED
        return HOLDS if self.pairs and not self.missing else MISSING

    @property
    def description(self) -> str:
        """The verdict: "holds", "undecided at 3 seeds", "does not hold", "holds in 2 of 3, …" or "not measured"."""
        if self.missing == self.pairs:
            return MISSING
        if self.held == self.pairs:
            return HOLDS if self.pairs == 1 else f"holds in all {self.pairs}"
        if self.refuted == self.pairs:
            return REFUTED if self.pairs == 1 else f"does not hold in any of {self.pairs}"
        seeds = f"{self.seeds} {'seed' if self.seeds == 1 else 'seeds'}"
        if self.undecided == self.pairs:
            return f"undecided at {seeds}" if self.pairs == 1 else f"undecided in all {self.pairs} ({seeds})"
        said = [f"holds in {self.held} of {self.pairs}"]
        said += [f"does not hold in {self.refuted}"] if self.refuted else []
        said += [f"undecided in {self.undecided} ({seeds})"] if self.undecided else []
        said += [f"{self.missing} not measured"] if self.missing else []
        return ", ".join(said)

    def to_dict(self) -> dict[str, Any]:
        """As `claims.json` has it; "reproduced" is what versions before 1.0 called a claim that holds."""
        before = {HOLDS: True, REFUTED: False}.get(self.outcome)
        said = {"verdict": self.description, "outcome": self.outcome, "undecided": self.undecided}
        return self._asdict() | said | {"reproduced": before}


def check_where(where: Where, axes: Sequence[Axis], place: str) -> None:
    """Refuse an axis or a value that the study does not have.

    Raises:
        InputError: the message has the nearest one.
    """
    known = {axis.name: axis for axis in axes}
    for name, labels in where.items():
        require_axis(f"{place}.where", name, known)
        for label in labels if isinstance(labels, list) else [labels]:
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
            if side.best is not None:
                left = [axis.name for axis in axes if axis.name not in side.where]
                require_axis(f"claims ({claim.statement}).best", side.best, left)


def _sides(claim: Claim) -> list[Side]:
    return [s for s in (claim.left, claim.right) if isinstance(s, Side)]


def select(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Select the rows where the axes have these values.

    Example:
        >>> table = pd.DataFrame({"topology": ["ring", "star", "path"]})
        >>> select(table, {"topology": ["ring", "star"]})["topology"].tolist()
        ['ring', 'star']
    """
    for name, labels in where.items():
        frame = frame[frame[name].isin(labels if isinstance(labels, list) else [labels])]
    return frame


def find_seedless(cells: Sequence[Cell], statuses: Sequence[str]) -> set[tuple[Label, ...]]:
    """Find the combinations whose prices no seed enters: graph and deal are none that it draws, and none diverged.

    Args:
        cells: of the study.
        statuses: how each ended.

    Returns:
        Their labels. A function of one's own that deals records counts as drawing, one that makes a graph does not.
    """
    drawn = {
        tuple(cell.labels.values())
        for cell, status in zip(cells, statuses, strict=True)
        if status not in GOOD or _is_drawn(cell.content)
    }
    return {tuple(cell.labels.values()) for cell in cells} - drawn


def _is_drawn(content: Mapping[str, Any]) -> bool:
    """Whether the seed of the run draws the graph, or how many records an agent has."""
    topology, problem = (t if isinstance(t, Mapping) else {} for t in (content.get("topology"), content.get("problem")))
    generator = GENERATORS.get(str(topology.get("kind")))
    if generator is not None and generator.random and "seed" not in topology:
        return True
    dealt = problem.get("partition", "iid")
    kind = dealt.get("kind") if isinstance(dealt, Mapping) else dealt
    return kind not in ("iid", "column") and "seed" not in problem


def verdict(
    claim: Claim,
    study: Study,
    summary: pd.DataFrame,
    counted: pd.DataFrame,
    axes: Sequence[Axis],
    fixed: Collection[tuple[Label, ...]] = (),
) -> Verdict:
    """Decide a claim for every left side and every right one that agrees with it on the axes that neither fixes.

    A pair of which one side was not measured, since its cells failed, say, tells nothing. Where some seeds of a side
    are lacking it is undecided: those that are left would flatter.

    Args:
        claim: of the study.
        study: its kind, seeds and confidence.
        summary: means with intervals.
        counted: the values that they are means of, of `tables.rows_of_means`.
        axes: what varied.
        fixed: combinations whose prices no seed enters, of `find_seedless`.
    """
    sides = _sides(claim)
    named = {name for side in sides for name in (*side.where, side.best)}
    shared = [axis.name for axis in axes if axis.name not in named]
    left = _points(claim.left, study, summary, counted, axes)
    if isinstance(claim.right, Side):
        right = _points(claim.right, study, summary, counted, axes)
        pairs = [(a, b) for a in left for b in right if all(a.labels[s] == b.labels[s] for s in shared)]
    else:
        pairs = [(a, Point({}, 1, claim.right, math.nan, math.nan)) for a in left]
    exact = study.kind == "plan" or all(side.measure in _PLANNED_MEASURES or is_epsilon(side.measure) for side in sides)
    known = [
        _compare(claim, study, pair, exact and all(tuple(p.labels.values()) in fixed for p in pair[: len(sides)]))
        for pair in pairs
        if not (math.isnan(pair[0].mean) or math.isnan(pair[1].mean))
    ]
    count = {outcome: sum(one.decision.outcome == outcome for one in known) for outcome in _RANKS}
    numbers = _missing_words(claim, left)
    if known:
        least = min(known, key=lambda one: (_RANKS[one.decision.outcome], _margin(claim, one.left, one.right)))
        numbers = _numbers(claim, least, shared)
    seeds = min((one.decision.n for one in known if one.decision.outcome == UNDECIDED), default=0)
    missing = len(pairs) - len(known)
    return Verdict(claim.statement, len(pairs), count[HOLDS], count[REFUTED], missing, seeds, numbers)


def _compare(claim: Claim, study: Study, pair: tuple[Point, Point], exact: bool) -> Comparison:
    left, right = pair
    against = right.values if isinstance(claim.right, Side) else right.mean
    counts = not exact and all(side.measure in COUNTS for side in _sides(claim))
    decision = decide(left.values, against, claim.compare, claim.factor, study.confidence, exact, counts)
    lacking = len(study.seed_list) - decision.n
    if lacking and not exact:
        decision = decision._replace(outcome=UNDECIDED)
    return Comparison(left, right, decision, lacking)


def _missing_words(claim: Claim, left: Sequence[Point]) -> str:
    """What there would have to be for a comparison."""
    sides = _sides(claim)
    side = sides[-1] if any(not math.isnan(point.mean) for point in left) else sides[0]
    where = ", ".join(
        f"{name} {' or '.join(map(str, labels)) if isinstance(labels, list) else labels}"
        for name, labels in side.where.items()
    )
    when = "" if side.round is None else f" at round {side.round}"
    return f"nothing was compared: there is no {side.measure}{when}{f' of {where}' if where else ''}"


def _points(
    side: Side, study: Study, summary: pd.DataFrame, counted: pd.DataFrame, axes: Sequence[Axis]
) -> list[Point]:
    """One for each combination that is run and that `where` leaves; n = 0 where nothing was measured."""
    rows = {tuple(row[a.name] for a in axes): row for row in _measured_rows(side, summary).to_dict("records")}
    values: dict[tuple[Label, ...], dict[int, float]] = {}
    for row in _measured_rows(side, counted).to_dict("records"):
        values.setdefault(tuple(row[a.name] for a in axes), {})[int(row["seed"])] = float(row["value"])
    points = []
    for labels in itertools.product(*(_labels_left(axis, side.where) for axis in axes)):
        named = {axis.name: label for axis, label in zip(axes, labels, strict=True)}
        if not study.covers(named):
            continue
        row = rows.get(labels, {"n": 0, "mean": math.nan, "low": math.nan, "high": math.nan})
        mean, low, high = (float(row[name]) for name in ("mean", "low", "high"))
        by_seed, priced = values.get(labels, {}), is_epsilon(side.measure)
        points.append(Point(named, int(row["n"]), mean, low, high, by_seed, priced))
    return points if side.best is None else _best(points, side.best)


def _measured_rows(side: Side, frame: pd.DataFrame) -> pd.DataFrame:
    rows = frame[frame["name"] == side.measure]
    rows = rows[rows["last"]] if side.round is None else rows[~rows["last"] & (rows["round"] == side.round)]
    return select(rows, side.where)


def _best(points: Sequence[Point], axis: str) -> list[Point]:
    """Of points that differ along one axis alone the highest; missing ones lose."""
    groups: dict[tuple[Label, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(v for name, v in point.labels.items() if name != axis), []).append(point)
    return [max(some, key=lambda p: -math.inf if math.isnan(p.mean) else p.mean) for some in groups.values()]


def _labels_left(axis: Axis, where: Where) -> Sequence[Label]:
    labels = where.get(axis.name, list(axis.labels))
    return [label for label in axis.labels if label in (labels if isinstance(labels, list) else [labels])]


def _margin(claim: Claim, one: Point, other: Point) -> float:
    """Above 0 where the comparison is true of the means; the smaller, the harder."""
    left, right = one.mean, other.mean
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


def _numbers(claim: Claim, one: Comparison, shared: Sequence[str]) -> str:
    """Both means with the sign that is true of them, in as many digits as it takes, and what was decided by."""
    scale = f"{claim.factor:.15g}"
    factor = "" if claim.factor == 1.0 or claim.compare == "within" else f"{scale} · "
    width = f" up to a factor {scale}" if claim.compare == "within" and claim.factor != 1.0 else ""
    there = ", ".join(f"{name} {one.left.labels[name]}" for name in shared)
    above = _margin(claim, one.left, one.right) > 0.0
    sign = _SIGNS[claim.compare][not above]
    shown = {d: (_round_point(one.left, d), _round_point(one.right, d)) for d in _DIGITS}
    digits = next(d for d in _DIGITS if d == _DIGITS[-1] or (_margin(claim, *shown[d]) > 0.0) == above)
    sides = f"{_mean(one.left, digits)} {sign} {factor}{_mean(one.right, digits)}{width}"
    parts = [f"{sides}{f' at {there}' if there else ''}", *_reasons(claim, one)]
    return "; ".join(parts)


def _reasons(claim: Claim, one: Comparison) -> list[str]:
    """What a comparison was decided by, or why it was not."""
    decision = one.decision
    if decision.exact:
        return ["exact"]
    reasons = []
    if not math.isnan(decision.slack.low):
        mean, low, high = decision.slack
        if claim.compare == "less":
            mean, low, high = -mean, -high, -low
        name = "difference" if claim.compare != "within" else "distance from the nearer end"
        paired = "paired " if isinstance(claim.right, Side) else ""
        spread = spread_text(mean, low, high) if high > low else ""
        reasons.append(f"{paired}{name} " + f"{power_text(mean)}{spread}".replace("-", "−"))
    elif decision.n == 1:
        reasons.append("one seed has no interval")
    elif decision.n:
        reasons.append("infinite at some seeds")
    if one.n_lacking:
        reasons.append(f"{one.n_lacking} of {one.n_lacking + decision.n} seeds lack a side")
    return reasons


def _round_point(point: Point, digits: int) -> Point:
    """The point as `_mean` prints it: an ε rounded up, all else to the nearest."""
    whole = digits == _DIGITS[0] and 999.5 <= abs(point.mean) < 1e5
    if point.is_epsilon:
        return point._replace(mean=float(math.ceil(point.mean)) if whole else round_up_to(point.mean, digits))
    return point._replace(mean=float(f"{point.mean:.{0 if whole else digits}{'f' if whole else 'g'}}"))


def _mean(point: Point, digits: int) -> str:
    spread = spread_text(point.mean, point.low, point.high)
    counted = f"{spread} (n = {point.n})" if spread else ""
    mean = _round_point(point, digits).mean
    return f"{power_text(mean) if digits == _DIGITS[0] else f'{mean:.{digits}g}'}{counted}"
