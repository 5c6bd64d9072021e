"""Small scenarios of a trusted coordinator."""

from __future__ import annotations

from typing import Any

from tests.support.published import as_published

BOX = {"low": -4.0, "high": 1.0}


def content(kind: str, **changes: Any) -> dict[str, Any]:
    """A small scenario; changes by "table.key", None leaves the key out."""
    made: dict[str, Any] = {
        "seed": 3,
        "problem": {
            "kind": "logistic_regularisation",
            "data": "breast_cancer",
            "scale": "public_ranges",
            "normalise": "l2",
            "test": 0.2,
        },
        "topology": {"kind": "star", "agents": 5},
        "algorithm": {"kind": kind, "rounds": 3, "domain": BOX},
        "privacy": {"epsilon": 4.0, "delta": 1e-5},
    }
    for place, value in changes.items():
        table, key = place.split(".")
        made[table].pop(key, None)
        if value is not None:
            made[table][key] = value
    return as_published(made)
