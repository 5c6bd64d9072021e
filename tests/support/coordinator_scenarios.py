"""Small scenarios of a trusted coordinator, and of the same problem without one."""

from __future__ import annotations

import copy
from typing import Any

from tests.support.published import as_published

BOX = {"low": -4.0, "high": 1.0}

RANKING: dict[str, Any] = {
    "seed": 1,
    "problem": {
        "kind": "auc_maximisation",
        "data": "breast_cancer",
        "scale": "public_ranges",
        "normalise": "l2",
        "positive_share": 0.6,
    },
    "topology": {"kind": "star", "agents": 5},
    "algorithm": {"kind": "dp_sgda", "rounds": 2, "rate": 0.2, "x": {"scale": 2.0}, "y": {"scale": 0.5}},
    "privacy": {"epsilon": 2.0, "delta": 1e-4, "clip": {"x": 1.0}},
}
"""A minimax problem of a trusted coordinator."""

GOSSIP_RANKING: dict[str, Any] = {
    **RANKING,
    "topology": {"kind": "ring", "agents": 5},
    "algorithm": {"kind": "gossip_sgda", "rounds": 2, "x": {"scale": 2.0}, "y": {"scale": 0.5}},
    "privacy": {"mechanism": "gaussian", "epsilon": 2.0, "delta": 1e-4, "clip": {"x": 1.0, "y": 1.0}},
}
"""The minimax problem without a coordinator."""


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
    return as_published(_changed(made, changes))


def ranking(**changes: Any) -> dict[str, Any]:
    """A copy of RANKING, with changes as those of `content`."""
    return _changed(copy.deepcopy(RANKING), changes)


def _changed(made: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for place, value in changes.items():
        name, key = place.split(".")
        table = made.setdefault(name, {})
        table.pop(key, None)
        if value is not None:
            table[key] = value
    return made
