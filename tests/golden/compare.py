"""Compare a measurement with its record: the differences are a list of sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

# Relative tolerances: of privacy costs; of privacy costs after a search for the noise of a target ε (error below 1e-8);
# of noiseless runs on another processor; of a minimum found from values (the square root of their rounding error).
EXACT = 1e-12
CALIBRATED = 1e-8
ELSEWHERE = 1e-9
FROM_VALUES = 1e-7


def differences(found: Any, recorded: Any, tolerance: float = EXACT, place: str = "") -> list[str]:
    """List differences: of floats if above the tolerance relative to the larger, of other values always."""
    if isinstance(found, Mapping) and isinstance(recorded, Mapping):
        out = [f"{place}{key}: new" for key in found.keys() - recorded.keys()]
        out += [f"{place}{key}: gone" for key in recorded.keys() - found.keys()]
        for key in sorted(found.keys() & recorded.keys()):
            out += differences(found[key], recorded[key], tolerance, f"{place}{key}.")
        return sorted(out)
    if _is_list(found) and _is_list(recorded):
        if len(found) != len(recorded):
            return [f"{place[:-1]}: {len(found)} entries, recorded {len(recorded)}"]
        pairs = enumerate(zip(found, recorded, strict=True))
        return [d for k, (f, r) in pairs for d in differences(f, r, tolerance, f"{place}{k}.")]
    same = _close(found, recorded, tolerance) if _is_float(found) and _is_float(recorded) else found == recorded
    return [] if same else [f"{place[:-1]}: {found!r}, recorded {recorded!r}"]


def array_differences(found: Mapping[str, Any], recorded: Mapping[str, Any], tolerance: float, name: str) -> list[str]:
    """List differences of two arrays measured by `measure.array`, relative to the largest entry."""
    if any(found[key] != recorded[key] for key in ("dtype", "shape")):
        return [f"{name}: {found['dtype']} {found['shape']}, recorded {recorded['dtype']} {recorded['shape']}"]
    largest = float(recorded["largest"])
    allowed = tolerance * largest if math.isfinite(largest) else 0.0
    # A projection adds up as many errors as there are entries; those of rounding are independent.
    allowed_in_sum = allowed * math.sqrt(math.prod(recorded["shape"]))
    out = _beyond(found, recorded, ("largest", "entries"), allowed, name)
    return out + _beyond(found, recorded, ("projections", "norm"), allowed_in_sum, name)


def _beyond(
    found: Mapping[str, Any], recorded: Mapping[str, Any], keys: Sequence[str], allowed: float, name: str
) -> list[str]:
    out = []
    for key in keys:
        values, wanted = (v if isinstance(v, list) else [v] for v in (found.get(key, []), recorded.get(key, [])))
        if len(values) != len(wanted):
            return [f"{name}.{key}: {len(values)} numbers, recorded {len(wanted)}"]
        for k, (f, r) in enumerate(zip(values, wanted, strict=True)):
            # Values that are not finite are texts.
            same = f == r if isinstance(f, str) or isinstance(r, str) else abs(f - r) <= allowed
            if not same:
                out.append(f"{name}.{key}.{k}: {f!r}, recorded {r!r}")
    return out


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_float(value: Any) -> bool:
    return isinstance(value, float)


def _close(found: float, recorded: float, tolerance: float) -> bool:
    return abs(found - recorded) <= tolerance * max(abs(found), abs(recorded))
