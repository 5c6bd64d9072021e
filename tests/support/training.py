"""Small scenarios of decentralised training. Keyword tables change them, and a value of None leaves its key out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def changed(content: dict[str, Any], **tables: Any) -> dict[str, Any]:
    """Return a scenario with changed tables."""
    merged = {name: content.get(name, {}) | table for name, table in tables.items()}
    return content | {name: {k: v for k, v in table.items() if v is not None} for name, table in merged.items()}


def training(**tables: Any) -> dict[str, Any]:
    """Return training of a linear model by agents on a ring, with constant settings."""
    content = {
        "seed": 5,
        "problem": {"kind": "classification", "data": "breast_cancer", "scale": "public_ranges", "test": 0.2},
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {"kind": "dp_dsgd", "rounds": 12, "learning_rate": {"scale": 0.5}},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5, "clip": 0.1},
        "run": {"average": 1, "measures": ["lower_loss"]},
    }
    return changed(content, **tables)


def training_on_frame(**tables: Any) -> dict[str, Any]:
    """Return training on a given data frame, with default hyper-parameters."""
    content = {
        "seed": 4,
        "problem": {"kind": "classification", "data": "frame", "label": "label", "classes": [0, 1], "test": 0.25}
        | {"scale": {"*": [-1.0, 1.0]}},
        "topology": {"kind": "ring", "agents": 3},
        "algorithm": {"rounds": 20},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5},
        "run": {"evaluate_every": 20},
    }
    return changed(content, **tables)


def gradient_of(job: Any) -> Callable[[int, np.ndarray], np.ndarray]:
    """Return the gradient of an agent's mean logistic loss, by its formula and with an intercept."""
    data = [(job.shards.features[k], job.shards.labels[k]) for k in job.shards.train]

    def gradient(i: int, y: np.ndarray) -> np.ndarray:
        features, labels = data[i]
        rows = np.column_stack([features / np.sqrt(features.shape[1]), np.full(len(features), 0.2)])
        return np.asarray(rows.T @ (1.0 / (1.0 + np.exp(-rows @ y)) - labels) / len(rows))

    return gradient
