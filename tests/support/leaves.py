"""All numbers, texts and arrays that an object holds, by their place, and the places where two objects differ."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel


def leaves(value: Any, place: str, skipped: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Place → number, text or array, of everything that an object holds; the type of a function and the like.

    skipped: names of fields and keys that are left out.
    """
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        inner: Any = [(f.name, getattr(value, f.name)) for f in fields(value)]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        inner = zip(value._fields, value, strict=True)
    elif isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list | tuple):
        inner = enumerate(value)
    elif isinstance(value, pd.DataFrame):
        inner = [(name, value[name].to_numpy()) for name in value]
    elif hasattr(value, "toarray"):
        inner = [("matrix", value.toarray())]
    else:
        known = isinstance(value, bool | int | float | str | bytes | np.ndarray | np.generic | None)
        yield place, value if known else type(value)
        return
    for name, part in inner:
        if name not in skipped:
            yield from leaves(part, f"{place}.{name}", skipped)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return bool(a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    if isinstance(a, float) and a != a:
        return bool(b != b)
    return bool(a == b)


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Places that only one has, or whose values are not identical."""
    shared = one.keys() & other.keys()
    return sorted(one.keys() ^ other.keys()) + [p for p in one if p in shared and not same(one[p], other[p])]
