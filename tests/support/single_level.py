"""Build small single-level scenarios with clip and noise on y only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support import naive
from tests.support.naive import CLIPS, squares

CLIP = CLIPS["y"]


def table(name: str) -> dict[str, Any]:
    return {"kind": name, "rounds": 5, "learning_rate": {"scale": 0.3, "decay": 0.2}}


def base(name: str, *guarantee: str, **changes: Any) -> dict[str, Any]:
    """Return a small scenario with clip and noise on y only; keyword tables change it."""
    content = naive.base({**table(name), **changes.pop("algorithm", {})}, *guarantee, **changes)
    return content | {"privacy": only_y(content["privacy"])}


def only_y(privacy: Mapping[str, Any]) -> dict[str, Any]:
    out = {key: value for key, value in privacy.items() if key not in ("x", "z")}
    return out | ({"clip": CLIP} if "clip" in out else {})


def moments(job: Job) -> list[tuple[np.ndarray, np.ndarray]]:
    """(H_i, c_i) with ∇_y g_i = H_i y − c_i at x = 0.7."""
    return [(s.hessian, s.linear + 0.5 * 0.7) for s in squares(job)]
