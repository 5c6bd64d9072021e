"""DPTD: averages of released gradients, at the privacy cost of DP-SGDA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.exchange import ClippedQuery

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


def run(made: dict[str, Any]) -> decentral_dp.Run:
    found = decentral_dp.run(decentral_dp.load(made))
    assert found.result["status"] == "ok", found.result["reason"]
    return found


@pytest.mark.parametrize("averaging", [{"scale": 0.3}, {"scale": 0.9, "decay": 0.5}, {"scale": 7.0, "decay": 1.0}])
def test_without_noise_it_is_the_recursion_on_all_records(averaging: dict[str, float]) -> None:
    found = run(content(TRAJECTORIES, "none", averaging=averaging))
    problem, records = found.simulation().problem, found.simulation().records["train"]
    n = sum(len(r.lengths) for r in records)
    x, y = problem.start["x"], problem.start["y"]
    v, w = 0.0 * x, 0.0 * y
    for t in range(6):
        g, h = (
            sum(problem.sums(r, [ClippedQuery(term, x, y, np.inf)])[0] for r in records) / n
            for term in ("grad_x", "grad_y")
        )
        a = min(1.0, averaging["scale"] * (t + 1.0) ** -averaging.get("decay", 0.0))
        v, w = (1.0 - a) * v + a * g, (1.0 - a) * w + a * (h - 0.1 * y)
        x, y = x - 0.5 * (t + 1.0) ** -0.1 * v, y + 0.2 * w
    np.testing.assert_allclose(found.released["x"][0], x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.released["y"][0], y, rtol=1e-9, atol=1e-12)


def test_with_a_weight_of_one_it_is_dp_sgda() -> None:
    mine = run(content(TRAJECTORIES, "none", averaging={"scale": 1.0}))
    theirs = run(content(TRAJECTORIES, "none", "dp_sgda"))
    for name in ("x", "y"):
        np.testing.assert_allclose(mine.released[name], theirs.released[name], rtol=1e-12, atol=1e-14)
