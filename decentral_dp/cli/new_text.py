"""What a user of `new` writes: ranges, and labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from decentral_dp.config.loading import nearest_of
from decentral_dp.errors import InputError, quoted


def parsed_range(text: str, columns: Sequence[str]) -> tuple[str, tuple[float, float]]:
    """Read "column=low:high". Raises InputError for what is none, or for a column that is not there."""
    name, equals, ends = text.rpartition("=")
    if not equals:
        raise InputError(f"--range: got {quoted(text)}, wanted COLUMN=LOW:HIGH, for example age=0:120.")
    if name not in columns:
        raise InputError(f"--range: {quoted(name)} is no feature column{nearest_of(name, columns)}.")
    return name, parsed_ends(ends, f"--range {name}")


def parsed_ranges(texts: Sequence[str], columns: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Read every "column=low:high". Raises InputError, also for a column that is named twice."""
    found: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, ends = parsed_range(text, columns)
        if name in found:
            raise InputError(f"--range: {quoted(name)} has two ranges. Give one of them.")
        found[name] = ends
    return found


def parsed_ends(text: str, where: str) -> tuple[float, float]:
    """Read "low:high". where: begins a refusal. Raises InputError."""
    try:
        low, high = (_number(part) for part in text.split(":"))
    except ValueError:
        low, high = math.nan, math.nan
    if not (low < high and math.isfinite(low) and math.isfinite(high)):
        raise InputError(f"{where}: got {quoted(text)}, wanted LOW:HIGH, two numbers of which the first is smaller.")
    return low, high


def parsed_classes(text: str) -> list[Any]:
    """Labels separated by commas; those that are numbers as numbers. Raises InputError for an empty one."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if "" in parts:
        raise InputError(f"--classes: got {quoted(text)}, in which a label is empty. Write them as in no,yes.")
    return [_label(part) for part in parts]


def _number(text: str) -> float:
    """A whole number stays one. Raises ValueError."""
    return int(text) if text.strip().lstrip("+-").isdecimal() else float(text)


def _label(text: str) -> Any:
    try:
        return _number(text)
    except ValueError:
        return text
