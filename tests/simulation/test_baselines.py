"""Majority-class baseline of a run."""

from __future__ import annotations

import numpy as np

import decentral_dp
from decentral_dp.simulation.result import RunResult


def test_the_commonest_class_of_the_agents_scored_on_held_out_records() -> None:
    draw = np.random.default_rng(0)
    data = {
        "features": draw.uniform(-1.0, 1.0, (20, 2)),
        # Six of ten of the agents' records are of class 1, of the held-out ones three of ten.
        "labels": np.array([-1] * 4 + [1] * 6 + [-1] * 7 + [1] * 3),
        "split": np.array(["train", "validation"] * 5 + ["test"] * 10),
        "classes": [-1, 1],
    }
    content = {
        "seed": 1,
        "problem": {"kind": "logistic_hyperparameter", "data": "breast_cancer", "classes": [-1, 1], "normalise": "l1"},
        "topology": {"kind": "complete", "agents": 1},
        "algorithm": {"kind": "ldp_dsbo", "rounds": 2, "x": {"scale": 0.1}, "y": {"scale": 0.1}, "z": {"scale": 0.1}},
        "privacy": {"epsilon": 4.0, "clip": {"x": 1.0, "y": 1.0, "z": 1.0}},
    }
    run = decentral_dp.run(content, data=data)
    assert run.result.baselines == {"test_accuracy": 0.3}
    assert RunResult.from_json(run.result.to_json()).baselines == {"test_accuracy": 0.3}
