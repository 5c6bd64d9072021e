"""Paired comparisons of a study: claims about two means, and gains of one variant over another, seed by seed.

Both sides have the same seeds, so their difference per seed varies less than either side. Student's t gives the
interval of the mean difference.

The margin of a claim is factor · right − left for "less", left − factor · right for "greater", and the distance to the
nearer bound for "within". A claim holds if the whole interval of the mean margin is above 0, does not hold if it is
below 0, and is undecided otherwise. Every combination of the axes that neither side fixes is decided separately.

Both sides of a gain have the same problem, records, seed and privacy target, and the same graph or algorithm. A level
pays if the whole interval of the mean gain is above 0, both sides have the same certified ε, and no cell failed. A mean
over the other pairs would be biased.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from decentral_dp.bounded import Array
from decentral_dp.formatting import epsilon_text, power_text
from decentral_dp.simulation.statistics import Interval, over_seeds
from decentral_dp.studies.measures import is_epsilon, label_text, metric_stem
from decentral_dp.studies.runs import GOOD
from decentral_dp.studies.schema import VARIANT, Axis, Band, Claim, Gain, Label, Side, Study


def interval(values: Array | Sequence[float], band: Band = "t") -> Interval:
    """Compute a mean with its interval.

    Args:
        values: values of the seeds, (n,).
        band: "t": 95 % confidence interval, mean ± t·s/√n with Student's t of n − 1 degrees of freedom; "sd": mean ± s;
            "quantiles": median and quartiles.

    Limits:
        The ends are NaN for a single value or an infinite value.

    Example:
        >>> [round(v, 3) for v in interval([1.0, 2.0, 3.0])]
        [2.0, -0.484, 4.484]
    """
    v = np.asarray(values, dtype=np.float64)
    # Sums may overflow, and infinities of both signs have no mean.
    with np.errstate(over="ignore", invalid="ignore"):
        mean, low, high = over_seeds(v) if np.isfinite(v).all() else (float(v.mean()), math.nan, math.nan)
    if not math.isfinite(high - low):
        return Interval(mean, math.nan, math.nan)
    if band == "sd":
        deviation = float(v.std(ddof=1))
        low, high = mean - deviation, mean + deviation
    elif band == "quantiles":
        low, mean, high = np.quantile(v, [0.25, 0.5, 0.75]).tolist()
    return Interval(mean, low, high)


def spread_text(mean: float, low: float, high: float) -> str:
    """Return the interval of a mean as " ± half", or "" if it is too small to print.

    Example:
        >>> spread_text(2.0, 1.5, 2.5), spread_text(2.0, 2.0, 2.0)
        (' ± 0.5', '')
    """
    is_visible = high - mean >= 1e-3 * abs(mean) and high > low
    return f" ± {power_text(float(f'{(high - low) / 2:.2g}'))}" if is_visible else ""


Outcome: TypeAlias = "Literal['holds', 'undecided', 'does not hold', 'not measured']"
HOLDS: Outcome = "holds"
UNDECIDED: Outcome = "undecided"
REFUTED: Outcome = "does not hold"
MISSING: Outcome = "not measured"
# Outcomes in order, the least certain first; its combination is printed.
_RANKS = (REFUTED, UNDECIDED, HOLDS, MISSING)

# Labels of a combination → seed → value.
Values: TypeAlias = "dict[tuple[Label, ...], dict[int, float]]"


class ClaimVerdict(NamedTuple):
    """Verdict on a claim.

    Args:
        statement: claim in words.
        pairs: number of combinations.
        held: number of combinations for which the claim holds.
        refuted: number of combinations for which it does not hold.
        missing: number of combinations in which a side was not measured. All other combinations are undecided.
        numbers: means and margin of the least certain combination.

    Example:
        >>> found = ClaimVerdict("A ring is slower", pairs=3, held=2, refuted=0, missing=0, numbers="")
        >>> found.outcome, found.description
        ('undecided', 'holds in 2, undecided in 1')
    """

    statement: str
    pairs: int
    held: int
    refuted: int
    missing: int
    numbers: str

    @property
    def undecided(self) -> int:
        """Number of undecided combinations."""
        return self.pairs - self.held - self.refuted - self.missing

    @property
    def outcome(self) -> Outcome:
        """Verdict over all combinations."""
        if self.refuted:
            return REFUTED
        if self.undecided:
            return UNDECIDED
        return HOLDS if self.pairs and not self.missing else MISSING

    @property
    def description(self) -> str:
        """Verdict in words: "holds", "holds in all 3", or "holds in 2, undecided in 1"."""
        counts = {HOLDS: self.held, REFUTED: self.refuted, UNDECIDED: self.undecided, MISSING: self.missing}
        outcomes = {outcome: n for outcome, n in counts.items() if n} or {MISSING: 1}
        if len(outcomes) > 1:
            return ", ".join(f"{outcome} in {n}" for outcome, n in outcomes.items())
        return f"{self.outcome} in all {self.pairs}" if self.pairs > 1 else self.outcome

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `claims.json`."""
        return {**self._asdict(), "verdict": self.description, "outcome": self.outcome, "undecided": self.undecided}


def _sides(claim: Claim) -> list[Side]:
    return [s for s in (claim.left, claim.right) if isinstance(s, Side)]


def select(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Select the rows in which the axes have these values.

    Example:
        >>> table = pd.DataFrame({"topology": ["ring", "star", "path"]})
        >>> select(table, {"topology": ["ring", "star"]})["topology"].tolist()
        ['ring', 'star']
    """
    for name, labels in where.items():
        frame = frame[frame[name].isin(labels if isinstance(labels, list) else [labels])]
    return frame


def decide_claim(claim: Claim, study: Study, counted: pd.DataFrame, axes: Sequence[Axis]) -> ClaimVerdict:
    """Evaluate a claim on all pairs of sides whose labels match on the axes that neither side fixes.

    Args:
        claim: claim of the study.
        study: study, with its kind and seeds.
        counted: values from `tables.rows_of_means`.
        axes: axes of the study.
    """
    named = {name for side in _sides(claim) for name in (*side.where, side.best)}
    shared = [k for k, axis in enumerate(axes) if axis.name not in named]
    left, right = _values(claim.left, study, counted, axes), claim.right
    compared = []
    for labels, values in left.items():
        place = ", ".join(f"{axes[k].name} {labels[k]}" for k in shared)
        others: list[dict[int, float] | float] = [right] if not isinstance(right, Side) else []
        if isinstance(right, Side):
            others = [
                other
                for there, other in _values(right, study, counted, axes).items()
                if all(there[k] == labels[k] for k in shared)
            ]
        compared += [_compare(claim, study, values, other, f" at {place}" if place else "") for other in others]
    count = {outcome: sum(one == outcome for one, _, _ in compared) for outcome in _RANKS}
    # The least certain one.
    _, numbers, _ = min(compared, key=lambda one: (_RANKS.index(one[0]), one[2]), default=(MISSING, "", 0.0))
    return ClaimVerdict(claim.statement, len(compared), count[HOLDS], count[REFUTED], count[MISSING], numbers)


def _compare(
    claim: Claim, study: Study, left: dict[int, float], right: dict[int, float] | float, place: str
) -> tuple[Outcome, str, float]:
    """Compare two sides of the combination named `place` on their common seeds.

    Returns:
        The outcome, a text, and the mean margin relative to the larger side (NaN if there is none). The text has both
        means, and the margin with its interval or the reason for its absence.
    """
    other = right if isinstance(right, dict) else dict.fromkeys(left, right)
    seeds = [seed for seed in left if seed in other]
    means = [interval(list(values.values())) for values in (left, other) if values]
    if len(means) < 2 or any(math.isnan(mean) for mean, *_ in means):
        return MISSING, f"nothing was compared{place}", math.nan
    lacking = len(study.seed_list) - len(seeds)
    if not seeds:
        return UNDECIDED, f"no seed has both sides{place}", math.nan
    a, b = (np.array([side[seed] for seed in seeds]) for side in (left, other))
    margins = [_margin(a, bound, sign, study) for bound, sign in _bounds(claim, b)]
    margin = min(margins, key=lambda one: math.inf if math.isnan(one.value) else one.value)
    outcome = UNDECIDED
    # The ends of a factor belong to "within".
    closed = claim.compare == "within"
    if not lacking and any(one.high < 0.0 or (one.high == 0.0 and not closed) for one in margins):
        outcome = REFUTED
    elif not lacking and all(one.low > 0.0 or (one.low == 0.0 and closed) for one in margins):
        outcome = HOLDS
    priced = is_epsilon(claim.left.measure)
    texts = [(epsilon_text(m) if priced else power_text(m)) + spread_text(m, low, high) for m, low, high in means]
    factor = "" if claim.factor == 1.0 else f"{claim.factor:.15g} · "
    text = f"{texts[0]} against {factor}{texts[1]}{place}; margin {power_text(margin.value).replace('-', '−')}"
    if lacking:
        text += f", and {lacking} of {lacking + len(seeds)} seeds lack a side"
    elif math.isnan(margin.low):
        text += ", without an interval"
    else:
        text += spread_text(*margin)
    largest = max(abs(means[0][0]), abs(claim.factor * means[1][0]))
    return outcome, text, margin.value / largest if 0.0 < largest < math.inf else margin.value


def _bounds(claim: Claim, right: np.ndarray[Any, Any]) -> list[tuple[np.ndarray[Any, Any], float]]:
    """Return the bounds of the left side, each with a sign: 1.0 for a lower bound, −1.0 for an upper bound."""
    with np.errstate(over="ignore"):
        ends = right * claim.factor, right / claim.factor
    if claim.compare != "within":
        return [(ends[0], 1.0 if claim.compare == "greater" else -1.0)]
    return [(np.minimum(*ends), 1.0), (np.maximum(*ends), -1.0)]


def _margin(left: np.ndarray[Any, Any], bound: np.ndarray[Any, Any], sign: float, study: Study) -> Interval:
    with np.errstate(invalid="ignore"):
        margins = np.where(left == bound, 0.0, sign * (left - bound))
    first = float(margins[0])
    # Plans are exact unless seeds draw the graph; one seed of a run has no interval.
    if (margins == first).all() and (margins.size > 1 or study.kind == "plan"):
        return Interval(first, first, first)
    return interval(margins)


def _values(side: Side, study: Study, counted: pd.DataFrame, axes: Sequence[Axis]) -> Values:
    """Return the values of each combination of a side by seed, empty if nothing was measured."""
    rows = counted[counted["name"] == side.measure]
    rows = rows[rows["last"]] if side.round is None else rows[~rows["last"] & (rows["round"] == side.round)]
    labels = []
    for axis in axes:
        allowed = side.where.get(axis.name, list(axis.labels))
        labels.append(
            [label for label in axis.labels if label in (allowed if isinstance(allowed, list) else [allowed])]
        )
    names = [axis.name for axis in axes]
    values: Values = {
        combination: {}
        for combination in itertools.product(*labels)
        if study.covers(dict(zip(names, combination, strict=True)))
    }
    for row in select(rows, side.where).to_dict("records"):
        values[tuple(row[name] for name in names)][int(row["seed"])] = float(row["value"])
    if side.best is None:
        return values
    # Combinations that differ only along the axis `best` compete by their means.
    along = names.index(side.best)
    best: dict[tuple[Label, ...], tuple[Label, ...]] = {}
    means = {one: float(np.mean(list(by_seed.values()))) if by_seed else -math.inf for one, by_seed in values.items()}
    for combination in sorted(values, key=means.__getitem__):
        best[combination[:along] + combination[along + 1 :]] = combination
    return {combination: values[combination] for combination in best.values()}


# Verdicts on a level of a pair.
PAYS, COSTS, OPEN, FAILED, UNEQUAL = "pays", "costs", "open", "failed", "unequal ε"
# Ratio up to which two certified ε count as equal. Calibration is more accurate.
_SAME_EPSILON = 1.002
COLUMNS = ("gain", "pair", "name", "n", "pairs", "failed", "mean", "low", "high", "epsilon_of", "epsilon_over")


def gain_table(study: Study, results: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the paired gains of a study, with a row for every pair and level.

    Args:
        study: study with gains.
        results: table of `tables.results`.
        cells: table of `tables.cell_table`.

    Returns:
        Columns gain, pair, the axes x and y, name (the measure), n (pairs with both sides ok), pairs, failed, mean,
        low, high, epsilon_of and epsilon_over (largest certified ε of each side), verdict.
    """
    last, rows = results[results["last"]], list[dict[str, Any]]()
    for gain in study.gains:
        sides_of_gain = cells[[*dict.fromkeys(("cell", "seed", "status", VARIANT, *gain.axes, *gain.where))]]
        for column, name in (("score", gain.measure), ("epsilon", "epsilon_max")):
            by_cell = last[last["name"] == name].groupby("cell")["value"].first()
            sides_of_gain = sides_of_gain.assign(**{column: sides_of_gain["cell"].map(by_cell)})
        for pair in gain.pairs:
            sides = [select(sides_of_gain, gain.where | {VARIANT: name}) for name in (pair.of, pair.over)]
            both = sides[0].merge(sides[1], on=["seed", *gain.axes], suffixes=("_of", "_over"))
            ended = both[both["status_of"].isin(GOOD) & both["status_over"].isin(GOOD)]
            both["gain"] = ended["score_of"] - ended["score_over"]
            for level, part in both.groupby(gain.axes, sort=False):
                each = part["gain"].dropna()
                mean, low, high = interval(each.to_numpy())
                row: dict[str, Any] = {"gain": gain.name, "pair": pair.name, **dict(zip(gain.axes, level, strict=True))}
                row |= {"name": gain.measure, "n": len(each), "pairs": len(part), "failed": len(part) - len(each)}
                row |= {"mean": mean, "low": low, "high": high}
                row |= part.loc[part.index.isin(ended.index), ["epsilon_of", "epsilon_over"]].max()
                rows.append(row | {"verdict": _decide_level(row)})
    named = [axis for gain in study.gains for axis in gain.axes]
    columns = [*COLUMNS[:2], *dict.fromkeys(named), *COLUMNS[2:], "verdict"]
    return pd.DataFrame(rows, columns=columns)


def _decide_level(row: Mapping[str, Any]) -> str:
    if row["failed"]:
        return FAILED
    if math.isfinite(row["epsilon_over"]) and not row["epsilon_of"] <= _SAME_EPSILON * row["epsilon_over"]:
        return UNEQUAL
    return PAYS if row["low"] > 0.0 else COSTS if row["high"] < 0.0 else OPEN


def gain_words(gain: Gain, table: pd.DataFrame) -> list[str]:
    """Describe each pair of a gain in a sentence: the number of levels that pay, and the largest gain."""
    parts = []
    for pair in gain.pairs:
        rows = table[(table["gain"] == gain.name) & (table["pair"] == pair.name)]
        pays = rows["verdict"] == PAYS
        candidates = rows[pays] if pays.any() else rows[rows["mean"].notna()]
        if candidates.empty:
            parts.append(f"{pair.name}: not measured.")
            continue
        row = max(candidates.to_dict("records"), key=lambda one: float(one["mean"]))
        spread = spread_text(row["mean"], row["low"], row["high"])
        level = ", ".join(f"{metric_stem(axis)} {label_text(row[axis])}" for axis in gain.axes)
        largest = f"{power_text(row['mean'])}{spread} (n = {row['n']}) at {level}"
        parts.append(f"{pair.name}: pays at {pays.sum()} of {len(rows)} levels; the largest gain is {largest}.")
    return parts
