"""DPTD: averages of released gradients, at the privacy cost of DP-SGDA."""

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


def content(problem: dict[str, Any], guarantee: str, kind: str = "dptd", **algorithm: Any) -> dict[str, Any]:
    momentum = {"averaging": {"scale": 0.3}} if kind == "dptd" else {}
    steps = {"x": {"scale": 0.5, "decay": 0.1}, "y": {"scale": 0.2}}
    return {
        "seed": 4,
        "problem": problem,
        "topology": {"kind": "star", "agents": 3},
        "algorithm": {"kind": kind, "rounds": 6, **steps, **momentum, **algorithm},
        "privacy": {"guarantee": guarantee, "epsilon": 3.0, "delta": 1e-4, "clip": {"x": 1.0, "y": 1.0}},
        "run": {"evaluate_every": 1},
    }


def run(table: dict[str, Any]) -> decentral_dp.Run:
    result = decentral_dp.run(decentral_dp.load(table))
    assert result.result["status"] == "ok", result.result["reason"]
    return result


def test_weight_of_one_is_dp_sgda() -> None:
    mine = run(content(TRAJECTORIES, "none", averaging={"scale": 1.0}))
    theirs = run(content(TRAJECTORIES, "none", "dp_sgda"))
    for name in ("x", "y"):
        np.testing.assert_allclose(mine.released[name], theirs.released[name], rtol=1e-12, atol=1e-14)
