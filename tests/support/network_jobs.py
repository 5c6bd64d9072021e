"""Small jobs that are seen from inside their network."""

from __future__ import annotations

from typing import Any

from decentral_dp.config.loading import load_scenario as load
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job

LAMBDA, RIDGE, CLIP = 0.25, 0.4, 0.7


SCENARIO: dict[str, Any] = {
    "seed": 5,
    "problem": {
        "kind": "mean_estimation", "data": "wine", "scale": "public_ranges", "normalise": "l2", "ridge": RIDGE,
        "sampling": {"kind": "streaming", "batch_size": 2, "warm_start": 1},
    },
    "topology": {"kind": "small_world", "agents": 9, "degree": 2, "rewire": 0.4, "seed": 3},
    "algorithm": {"kind": "ldp_single_level", "rounds": 7,
                  "learning_rate": {"scale": LAMBDA, "decay": 0.2}, "init": {"x": 0.3}},
    "privacy": {"mechanism": "gaussian", "clip": CLIP, "y": {"scale": 0.5, "decay": 0.1}},
}  # fmt: skip


def job_of(*overrides: str) -> Job:
    return build(load(SCENARIO, overrides))
