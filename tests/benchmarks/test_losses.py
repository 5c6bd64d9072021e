"""A problem from two torch functions, against our own formulas of it and against its derivatives batched by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import decentral_dp
from decentral_dp.engines.local import LocalEngine
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job

# So many rounds that all but the first of the runs call captured graphs alone.
AGENTS, RECORDS, WIDTH, ROUNDS = 10, 20, 10, 100
LOSSES = """
import torch


def p(n_features, n_classes):
    return 1


def q(n_features, n_classes):
    return n_features


def lower_loss(x, y, features, label):
    return torch.nn.functional.softplus(-(2.0 * label - 1.0) * (features @ y))


upper_loss = lower_loss


def regulariser(x, y):
    return 0.5 * torch.exp(x[0]) * (y**2).sum()
"""


def _job(kind: str, **problem: Any) -> Job:
    made_up = {"dimension": WIDTH, "records": 2 * RECORDS}
    step = {"scale": 0.1, "decay": 0.5}
    content = {
        "seed": 1,
        "problem": {
            "kind": kind,
            "data": "synthetic_classification",
            "synthetic": made_up,
            "normalise": "l2",
            **problem,
        },
        "topology": {"kind": "ring", "agents": AGENTS},
        "algorithm": {"kind": "ldp_dsbo", "rounds": ROUNDS, "x": step, "y": step, "z": step},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "clip": {"x": 1.0, "y": 1.0, "z": 1.0}},
        "run": {"evaluate_every": ROUNDS},
    }
    return build(decentral_dp.load(content))


def _by_hand() -> Callable[[], object]:
    """Gradients and products of every record of all agents in two calls, in float64, without clips, noise or ledger."""
    import torch
    from torch.func import grad, jvp, vmap

    def loss(y: Any, features: Any, label: Any) -> Any:
        return torch.nn.functional.softplus(-(2.0 * label - 1.0) * (features @ y))

    def lower(y: Any, z: Any, *record: Any) -> Any:
        return jvp(lambda v: grad(loss)(v, *record), (y,), (z,))

    draw = np.random.default_rng(0)
    y, z = (torch.tensor(draw.normal(size=(AGENTS, WIDTH))) for _ in range(2))
    features = torch.tensor(draw.normal(size=(AGENTS, RECORDS, WIDTH)))
    labels = torch.tensor(draw.integers(2, size=(AGENTS, RECORDS)), dtype=torch.float64)
    train = vmap(vmap(lower, in_dims=(None, None, 0, 0)))
    validation = vmap(vmap(grad(loss), in_dims=(None, 0, 0)))

    def once() -> object:
        with torch.no_grad():
            return train(y, z, features, labels), validation(y, features, labels)

    return once


def _least(run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        run()
        best = min(best, time.process_time() - started)
    return best


def test_losses_of_ones_own(benchmark: Any, tmp_path: Path) -> None:
    path = tmp_path / "losses.py"
    path.write_text(LOSSES)
    theirs, ours, once = _job("from_losses", losses=str(path)), _job("logistic_regularisation"), _by_hand()
    with threadpool_limits(limits=1):
        derived, analytic = _least(lambda: theirs.start(LocalEngine())), _least(lambda: ours.start(LocalEngine()))
        batched = _least(lambda: [once() for _ in range(ROUNDS)])
    benchmark.extra_info["ratio"] = round(derived / analytic, 1)
    print(
        f"\na round of {AGENTS} agents with losses of one's own: {derived / analytic:.1f} × our formulas (at most 5), "
        f"{derived / batched:.2f} × its derivatives batched by hand (at most 1.5)"
    )
    benchmark.pedantic(once, rounds=1)
    assert derived / analytic <= 5.0
    assert derived / batched <= 1.5
