"""Seeded noise depends on the records: two data sets never share it, however little they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp

# What the loader reads besides is in no file that the scenario names.
LOADER = """
from pathlib import Path

import numpy as np


def load():
    table = np.load(Path(__file__).with_name("records.npy"))
    return table[:, :-1], table[:, -1]
"""
AGENTS, EACH = 4, 10


def released(folder: Path, table: np.ndarray, channel: str, changes: dict[str, Any]) -> np.ndarray:
    """First release of every agent, from the same folder and text with these records, (AGENTS, ·)."""
    (folder / "loader.py").write_text(LOADER)
    np.save(folder / "records.npy", table)
    content: dict[str, Any] = {
        "seed": 1,
        "problem": {
            "kind": "logistic_hyperparameter",
            "data": str(folder / "loader.py:load"),
            "classes": [0, 1],
            "scale": {"*": [-5.0, 5.0]},
            "normalise": "l2",
        },
        "topology": {"kind": "ring", "agents": AGENTS},
        "algorithm": {
            "kind": "ldp_dsbo",
            "rounds": 1,
            "x": {"scale": 0.1},
            "y": {"scale": 0.2},
            "z": {"scale": 0.2},
        },
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5, "clip": {"y": 1.0, "z": 1.0}},
    }
    for section, keys in changes.items():
        content[section] = {**content[section], **keys}
    return np.asarray(decentral_dp.run(content).released[channel])


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_one_changed_value_of_one_record_changes_the_noise_of_every_agent(tmp_path: Path, mechanism: str) -> None:
    """The other agents' messages are the same but for their noise, so equal releases would show equal noise.

    With equal noise the difference of two releases of the first agent would be the record's influence, bare.
    """
    draw = np.random.default_rng(3)
    labels = np.tile([0.0, 1.0], AGENTS * EACH // 2)
    table = np.column_stack([draw.normal(size=(labels.size, 2)), labels])
    changes = {"privacy": {"mechanism": mechanism, "epsilon": 4.0, "delta": 1e-5, "clip": {"y": 1.0, "z": 1.0}}}
    first = released(tmp_path, table, "y", changes)
    np.testing.assert_array_equal(released(tmp_path, table, "y", changes), first)
    other = table.copy()
    other[0, 0] += 1e-9
    second = released(tmp_path, other, "y", changes)
    assert (np.abs(second - first).max(axis=1) > 1e-3).all()
    # A label alone does the same.
    other = table.copy()
    other[0, 2] = 1.0 - other[0, 2]
    assert (np.abs(released(tmp_path, other, "y", changes) - first).max(axis=1) > 1e-3).all()
