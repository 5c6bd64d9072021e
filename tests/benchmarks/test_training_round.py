"""A whole round of training at one level, ledger included, against one stacked pass of torch over the same records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import decentral_dp
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job

from .rings import seconds_of

AGENTS, BATCH, SIDE, CLASSES = 64, 64, 28, 10
MLP = {"kind": "mlp", "widths": [128]}


def _job(model: dict[str, Any], noisy: bool, rounds: int) -> Job:
    """A ring; every round reads all train records of an agent, as many as a batch."""
    draw, n = np.random.default_rng(0), AGENTS * BATCH
    data = {
        "features": draw.uniform(size=(n, SIDE**2)),
        "labels": draw.integers(CLASSES, size=n),
        "agent": np.repeat(np.arange(AGENTS), BATCH),
        "split": np.full(n, "train"),
        "classes": list(range(CLASSES)),
    }
    kept = {"epsilon": 8.0, "delta": 1e-5, "mechanism": "gaussian"} if noisy else {"guarantee": "none"}
    content = {
        "seed": 1,
        "problem": {"kind": "classification", "data": "digits", "model": model},
        "topology": {"kind": "ring", "agents": AGENTS},
        "algorithm": {"kind": "dp_dsgd", "rounds": rounds, "y": {"scale": 0.1}},
        "privacy": {**kept, "clip": {"y": 1.0}},
        "run": {"evaluate_every": rounds, "average": 1},
    }
    return build(decentral_dp.load(content), data=data)


def _dense() -> Callable[[], None]:
    """Forward and backward of one product for each layer, of all agents at once."""
    draw, inputs = torch.Generator().manual_seed(0), torch.rand(AGENTS, BATCH, SIDE**2, dtype=torch.float64)
    shapes = [(AGENTS, SIDE**2, 128), (AGENTS, 128, CLASSES)]
    first, last = (torch.randn(s, generator=draw, dtype=torch.float64).requires_grad_() for s in shapes)
    labels = torch.zeros(AGENTS * BATCH, dtype=torch.int64)

    def once() -> None:
        outputs = torch.bmm(torch.relu(torch.bmm(inputs, first)), last)
        torch.autograd.grad(nn.functional.cross_entropy(outputs.reshape(-1, CLASSES), labels), [first, last])

    return once


def test_round_ratio(benchmark: Any) -> None:
    before, once, rounds = torch.get_num_threads(), _dense(), 12
    torch.set_num_threads(1)
    try:
        for noisy, bar in ((False, 2.0), (True, 3.2)):
            ours, floor = seconds_of(_job(MLP, noisy, rounds + 1), once, rounds, less=_job(MLP, noisy, 1))
            benchmark.extra_info["with_noise" if noisy else "ratio"] = ours / floor
            noise = "with noise" if noisy else "without noise"
            print(f"\n{noise}: a round takes {ours / floor:.2f} of {floor / rounds * 1e3:.0f} ms")
            assert ours <= bar * floor
        benchmark.pedantic(once, rounds=1)
    finally:
        torch.set_num_threads(before)
