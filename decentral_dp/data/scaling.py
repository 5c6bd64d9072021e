"""Scaling and normalisation of features, one record at a time.

Replacing a record must not change any other record. Declared ranges and per-record norms satisfy this. A mean and
standard deviation fitted to the data would not, so no such scaling is offered.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, ValidationError

from decentral_dp.data.dataset import Dataset, FloatArray, near_name
from decentral_dp.errors import InputError, converting
from decentral_dp.files.tables import Checks, Finite, Table, first_complaint

Normalisation = Literal["none", "l1", "l2", "box"]

# Bundled data sets with public ranges.
PUBLIC_RANGES = ("breast_cancer", "digits", "wine")


class Ranges(NamedTuple):
    """Declared ranges of the d features.

    Args:
        low: lower ends, (d,).
        high: upper ends, (d,), above `low`.
        log: whether a feature is scaled by its logarithm, (d,).
    """

    low: FloatArray
    high: FloatArray
    log: NDArray[np.bool_]


ScaleSpec: TypeAlias = str | Mapping[str, Any] | Ranges


class Normalised(NamedTuple):
    """Features, with bounds on the norm of every possible record.

    Args:
        features: feature matrix, (n, d).
        l1: bound on ‖a‖₁, or None.
        l2: bound on ‖a‖₂, or None.
    """

    features: FloatArray
    l1: float | None
    l2: float | None


def apply_ranges(features: FloatArray, ranges: Ranges) -> FloatArray:
    """Clip values v to [low, high] and map them to [−1, 1].

        2(v − low)/(high − low) − 1, with log v, log low, log high if `log`

    Args:
        features: feature matrix, (n, d).
        ranges: declared ranges; with `log`, low > 0.

    Returns:
        Scaled features, (n, d), computed elementwise.

    Limits:
        With `log`, values of at most 0 are mapped to low.

    Example:
        >>> limits = Ranges(np.array([0.0, 1.0]), np.array([10.0, 100.0]), np.array([False, True]))
        >>> apply_ranges(np.array([[5.0, 10.0], [20.0, 0.0]]), limits).round(6).tolist()
        [[0.0, 0.0], [1.0, -1.0]]
    """
    v = np.clip(features, ranges.low, ranges.high)
    low, high = ranges.low.copy(), ranges.high.copy()
    v[:, ranges.log] = np.log(v[:, ranges.log])
    low[ranges.log], high[ranges.log] = np.log(low[ranges.log]), np.log(high[ranges.log])
    return np.clip(2.0 * ((v - low) / (high - low)) - 1.0, -1.0, 1.0)


def scale(dataset: Dataset, spec: ScaleSpec) -> Dataset:
    """Scale the features of a data set.

    Args:
        dataset: records.
        spec: scale specification: "none", "public_ranges" (the declared ranges of bundled data and images), a table of
            feature → [low, high] or {low, high, log}, in which "*" means every other feature, or the result of
            `declared_ranges`.

    Returns:
        The data set with scaled features and their bounds. Features whose range is declared by a public rule need no
        entry. They are clipped to this range even if nothing is scaled.

    Raises:
        InputError: the specification is unknown or invalid.
    """
    if spec == "none":
        if not dataset.ranges:
            return dataset
        limits = declared_ranges(dataset, spec)
        return replace(dataset, features=np.clip(dataset.features, limits.low, limits.high))
    scaled_features = apply_ranges(dataset.features, declared_ranges(dataset, spec))
    return replace(dataset, features=scaled_features, bounds=(-1.0, 1.0))


def shares_cut(dataset: Dataset, spec: ScaleSpec) -> dict[str, float]:
    """Return, for every feature, the fraction of values outside its declared range. This reads all records.

    Args:
        dataset: records before `scale`.
        spec: scale specification, as in `scale`.

    Returns:
        Feature → fraction, largest first and without zeros. The result is empty if no ranges are declared.
    """
    if dataset.bounds is not None or (spec == "none" and not dataset.ranges):
        return {}
    limits = declared_ranges(dataset, spec)
    outside = ((dataset.features < limits.low) | (dataset.features > limits.high)).mean(axis=0)
    order = np.argsort(-outside, kind="stable")
    return {dataset.feature_names[k]: float(outside[k]) for k in order if outside[k] > 0.0}


def placeholder_sentence(spec: ScaleSpec, label_range: Sequence[float] | None = None) -> str:
    """Return a sentence that names the ranges that are still placeholders, or "" if there are none.

    Args:
        spec: scale specification, as in `scale`. A range { low, high, placeholder = true } is a placeholder.
        label_range: public range (low, high) of the labels; `new` writes [0, 1].

    Example:
        >>> placeholder_sentence({"age": {"low": 0, "high": 1, "placeholder": True}})[:49]
        'Ranges that are still placeholders, [0, 1]: age. '
    """
    table = spec if isinstance(spec, Mapping) else {}
    names = [str(name) for name, entry in table.items() if isinstance(entry, Mapping) and entry.get("placeholder")]
    names = [*names[:5], f"{len(names) - 5} more"] if len(names) > 5 else names
    names += ["problem.label_range"] if label_range is not None and tuple(label_range) == (0, 1) else []
    if not names:
        return ""
    return (
        f"Ranges that are still placeholders, [0, 1]: {', '.join(names)}. Values outside are clipped. Fix: declare "
        "public ranges from the meaning of the columns."
    )


def scale_labels(dataset: Dataset, label_range: Sequence[float]) -> Dataset:
    """Scale numeric labels from [low, high] to [−1, 1], clipping values outside.

    Args:
        dataset: records.
        label_range: public range (low, high) of the labels.

    Returns:
        The data set with labels in [−1, 1].

    Raises:
        InputError: labels are classes, or the range is invalid.
    """
    if dataset.classes:
        raise InputError(
            f"problem.label_range: the labels of {dataset.source!r} are the classes {list(dataset.classes)}, "
            "and only numeric targets have a range. Fix: remove it, or declare classes = []."
        )
    bounds = _range_of(list(label_range), "problem.label_range")
    limits = Ranges(np.array([bounds.low]), np.array([bounds.high]), np.zeros(1, dtype=np.bool_))
    return replace(dataset, labels=apply_ranges(np.asarray(dataset.labels, dtype=np.float64)[:, None], limits)[:, 0])


def declared_ranges(dataset: Dataset, spec: ScaleSpec) -> Ranges:
    """Return the declared ranges of the features without reading records.

    For a feature log(1 + v), the declared range is that of v, and the returned range is that of log(1 + v).

    Raises:
        InputError: the specification is unknown or invalid.
    """
    if isinstance(spec, Ranges):
        return spec
    if spec == "none":
        # Only features with a public rule have a range.
        ends = np.array([dataset.ranges.get(name, (-math.inf, math.inf)) for name in dataset.feature_names])
        return Ranges(ends[:, 0], ends[:, 1], np.zeros(len(ends), dtype=np.bool_))
    if not isinstance(spec, str):
        return _ranges(spec, dataset, "problem.scale")
    if spec == "public_ranges" and dataset.bounds is not None:
        low, high = (np.full(dataset.features.shape[1], bound) for bound in dataset.bounds)
        return Ranges(low, high, np.zeros(low.size, dtype=np.bool_))
    if spec != "public_ranges" or dataset.source not in PUBLIC_RANGES:
        raise InputError(
            f'problem.scale: got {spec!r} for {dataset.source!r}, expected "none", a table, or "public_ranges" (for '
            f"{', '.join(PUBLIC_RANGES)} and images). Fix: declare public ranges; none is fitted on the records."
        )
    text = files("decentral_dp.data").joinpath("ranges", f"{dataset.source}.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    table = {row.pop("feature"): {key: cell for key, cell in row.items() if cell} for row in rows}
    return _ranges(table, dataset, f"ranges of {dataset.source}")


def normalise(features: FloatArray, kind: Normalisation, radius: float = 1.0) -> Normalised:
    """Normalise every record separately.

    Args:
        features: feature matrix, (n, d).
        kind: kind of normalisation. "l1" and "l2" divide by the norm and multiply by `radius`, and leave a zero record
            unchanged. "box" clips coordinates to [−radius, radius]. "none" changes nothing.
        radius: radius of the ball or box, above 0.

    Returns:
        The features, and bounds on their exact norms. The factor is reduced by (d + 8)·2⁻⁵³ to account for the rounding
        of division and summation.

    Example:
        >>> unit = normalise(np.array([[3.0, 4.0], [0.0, 0.0]]), "l2")
        >>> unit.features.round(6).tolist(), unit.l2
        ([[0.6, 0.8], [0.0, 0.0]], 1.0)
    """
    d = features.shape[1]
    if kind == "none":
        return Normalised(features, None, None)
    if kind == "box":
        return Normalised(np.clip(features, -radius, radius), d * radius, math.sqrt(d) * radius)
    largest = np.abs(features).max(axis=1, keepdims=True)
    # Dividing by the largest coordinate first prevents overflow and underflow.
    unit = features / np.where(largest > 0, largest, 1.0)
    norms = np.abs(unit).sum(axis=1) if kind == "l1" else np.sqrt((unit**2).sum(axis=1))
    factor = radius * (1.0 - (d + 8) * 2.0**-53) / np.where(norms > 0, norms, 1.0)
    scaled_features = unit * factor[:, None]
    return Normalised(scaled_features, radius if kind == "l1" else math.sqrt(d) * radius, radius)


def _ranges(table: Mapping[str, Any], dataset: Dataset, location: str) -> Ranges:
    names, ranges, logs = dataset.feature_names, dataset.ranges, dataset.logs
    unused = [name for name in table if name != "*" and (name not in names or name in ranges)]
    lacking = [k for k, name in enumerate(names) if not {name, "*"} & table.keys() and name not in ranges]
    problem = ""
    if unused:
        by_rule = unused[0] in ranges or any(key.startswith(f"{unused[0]}=") for key in ranges)
        missing = f"the data have no feature {unused[0]!r}{near_name(unused[0], names, 'feature')}"
        rule = f"by its rule in problem.columns {unused[0]!r} needs no range"
        problem = f"{rule if by_rule else missing}. Fix: remove it"
    elif lacking:
        # Without a header line, the name would be a cell of the first record.
        problem = (
            f"no range for feature {lacking[0] + 1} of {len(names)}, in the order of the data. Fix: add it, or "
            '"*" for all features not named'
        )
    if problem:
        raise InputError(f"{location}: {problem}.")
    limits = []
    for name in names:
        subject = f"{location}: the range of {name if name in table or name in ranges else '*'!r}"
        entry = _range_of(ranges.get(name, table.get(name, table.get("*"))), subject)
        low, high, log = entry.low, entry.high, entry.log
        if name in logs and (log or low < 0):
            raise InputError(
                f"{subject} is {'on a log scale' if log else f'{low:g} to {high:g}'}, but problem.columns.log "
                "takes log(1 + v) of nonnegative values. Fix: set [low, high] with low ≥ 0, or remove the "
                "column from problem.columns.log."
            )
        limits.append((math.log1p(low), math.log1p(high), False) if name in logs else (low, high, log))
    return Ranges(*(np.array(part) for part in zip(*limits, strict=True)))


class _Range(Table):
    """Declared range of a feature."""

    # Cells of a CSV file are text.
    model_config = ConfigDict(strict=False)

    low: Finite
    high: Finite
    log: bool = False
    placeholder: bool = False

    checks: ClassVar[Checks] = {
        "expected low < high, with a finite difference, and low > 0 for a log scale": lambda ends: (
            not ends.low < ends.high or not math.isfinite(ends.high - ends.low) or (ends.log and ends.low <= 0)
        )
    }


def _range_of(entry: Any, subject: str) -> _Range:
    """Parse a declared range, which is a table or a pair. Raises InputError."""
    if isinstance(entry, list | tuple) and len(entry) == 2:
        entry = {"low": entry[0], "high": entry[1]}
    fix = "use [low, high] or {low, high, log}"
    with converting(ValidationError, lambda error: f"{subject}: {first_complaint(error)}. Fix: {fix}."):
        return _Range.model_validate(entry)
