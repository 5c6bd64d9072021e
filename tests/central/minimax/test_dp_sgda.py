"""DPTD: averages of released gradients, equal to DP-SGDA if the last gradient has all the weight."""

from __future__ import annotations

from typing import Any

import numpy as np

import decentral_dp

TRAJECTORIES = {
    "kind": "mspbe",
    "data": "cartpole",
    "discount": 0.9,
    "model": {"kind": "mlp", "hidden": [4]},
    "ridge": 0.1,
    "synthetic": {"records": 8, "test_records": 4, "steps": 10},
}


def released(kind: str, **keys: Any) -> Any:
    steps = {"x": {"scale": 0.5, "decay": 0.1}, "y": {"scale": 0.2}}
    content = {
        "seed": 4,
        "problem": TRAJECTORIES,
        "topology": {"kind": "star", "agents": 3},
        "algorithm": {"kind": kind, "rounds": 6, **steps, **keys},
        "privacy": {"guarantee": "none", "clip": {"x": 1.0, "y": 1.0}},
    }
    run = decentral_dp.run(content)
    assert run.result.status == "ok"
    return run.released


def test_weight_of_one_is_dp_sgda() -> None:
    mine, theirs = released("dptd", averaging={"scale": 1.0}), released("dp_sgda")
    for name in ("x", "y"):
        np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-12, atol=1e-14)
