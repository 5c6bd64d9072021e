"""Rounds, certified and recorded, against the arithmetic that they cannot do without.

Calls of the problem are counted, so the arithmetic follows the algorithm: for every term two products of
records with vectors, for every number sent one Laplace draw and one mix. In small networks a round is a few thousand
numbers, and costs calls of Python and of numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.benchmarks.rings import arithmetic, ring_job, seconds_of
from tests.benchmarks.timing import one_thread, report


@pytest.mark.parametrize(
    ("make", "shape", "rounds", "limit"),
    [
        (lambda: ring_job(20, 1000, 20, 64), (1000, 20, 64), 20, 2.2),
        (lambda: ring_job(500, 50, 20, 10), (50, 20, 10), 500, 5.0),
        (lambda: build(load("ring_breast_cancer", ["algorithm.rounds=500"])), (10, 22, 30), 500, 8.0),
    ],
    ids=["1000", "50", "main job"],
)
def test_a_round_of_ldp_dsbo(
    make: Callable[[], Job], shape: tuple[int, int, int], rounds: int, limit: float, benchmark: Any
) -> None:
    ours, floor = seconds_of(make(), arithmetic(*shape), rounds)
    report(benchmark, f"a round of {shape[0]} agents, of its products, noise and mix", ours / floor, limit)


# Training at one level against one stacked pass of torch --------------------------------------------------------------

TRAINERS, BATCH, SIDE, DIGITS = 64, 64, 28, 10
MLP = {"kind": "mlp", "hidden": [128]}


def _training_job(model: dict[str, Any], noisy: bool, rounds: int) -> Job:
    """A ring; every round reads all train records of an agent, one batch."""
    draw, n = np.random.default_rng(0), TRAINERS * BATCH
    data = {
        "features": draw.uniform(size=(n, SIDE**2)),
        "labels": draw.integers(DIGITS, size=n),
        "agent": np.repeat(np.arange(TRAINERS), BATCH),
        "split": np.full(n, "train"),
        "classes": list(range(DIGITS)),
    }
    kept = {"epsilon": 8.0, "delta": 1e-5, "mechanism": "gaussian"} if noisy else {"guarantee": "none"}
    content = {
        "seed": 1,
        "problem": {"kind": "classification", "data": "digits", "model": model},
        "topology": {"kind": "ring", "agents": TRAINERS},
        "algorithm": {"kind": "dp_dsgd", "rounds": rounds, "learning_rate": {"scale": 0.1}},
        "privacy": {**kept, "clip": 1.0},
        "run": {"evaluate_every": rounds, "average": 1},
    }
    return build(decentral_dp.load(content), data=data)


def _dense() -> Callable[[], None]:
    """Forward and backward of one product for each layer, of all agents at once."""
    draw, inputs = torch.Generator().manual_seed(0), torch.rand(TRAINERS, BATCH, SIDE**2, dtype=torch.float64)
    shapes = [(TRAINERS, SIDE**2, 128), (TRAINERS, 128, DIGITS)]
    first, last = (torch.randn(s, generator=draw, dtype=torch.float64).requires_grad_() for s in shapes)
    labels = torch.zeros(TRAINERS * BATCH, dtype=torch.int64)

    def once() -> None:
        outputs = torch.bmm(torch.relu(torch.bmm(inputs, first)), last)
        torch.autograd.grad(nn.functional.cross_entropy(outputs.reshape(-1, DIGITS), labels), [first, last])

    return once


def test_a_round_of_training(benchmark: Any) -> None:
    once, rounds = _dense(), 12
    with one_thread():
        for noise, bar in (("without noise", 2.0), ("with noise", 3.2)):
            jobs = [_training_job(MLP, noise == "with noise", n) for n in (rounds + 1, 1)]
            ours, floor = seconds_of(jobs[0], once, rounds, less=jobs[1])
            report(benchmark, f"a round of a dense network, {noise}, of a stacked pass", ours / floor, bar)
