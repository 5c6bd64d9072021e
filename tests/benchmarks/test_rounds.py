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
import scipy.sparse as sp
import torch
from torch import nn

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.engines.local import LocalEngine
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.benchmarks.rings import arithmetic, ring_job, seconds_of
from tests.benchmarks.timing import one_thread, report

AGENTS, RECORDS, WIDTH, ROUNDS, CLASSES = 500, 20, 64, 20, 3


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


# Other problems and algorithms ----------------------------------------------------------------------------------------

PROBLEMS = {
    "softmax_hyperparameter": {},
    "ridge_hyperparameter": {},
    "biased_regularisation": {"ridge": 0.05},
    "hyper_cleaning": {"groups": 2, "corrupt": 0.25},
}
ALGORITHMS = ("ma_dsbo", "vrdsbo", "spdb", "ldp_single_level", "dp_dsgd")


def _data(kind: str) -> dict[str, Any]:
    draw, n = np.random.default_rng(0), 2 * AGENTS * RECORDS
    classes = CLASSES if kind == "softmax_hyperparameter" else 2
    labels: Any = draw.integers(0, classes, n)
    data = {
        "features": draw.uniform(-1.0, 1.0, (n, WIDTH)),
        "labels": draw.uniform(-1.0, 1.0, n) if kind.startswith("ridge") else labels,
        "agent": np.repeat(np.arange(AGENTS), 2 * RECORDS),
        "split": np.tile(np.repeat(["train", "validation"], RECORDS), AGENTS),
        "classes": [] if kind.startswith("ridge") else list(range(classes)),
    }
    return data


def _job(problem: str, algorithm: str, rounds: int) -> Job:
    content = decentral_dp.load(algorithm).model_dump(exclude_unset=True)
    data = _data(problem)
    content["seed"] = 1
    options = PROBLEMS.get(problem, {})
    content["problem"] = {"kind": problem, "data": "breast_cancer", "classes": data["classes"], "normalise": "l1"}
    content["problem"] |= options
    content["topology"] = {"kind": "ring", "agents": AGENTS}
    content["algorithm"]["rounds"] = rounds
    if algorithm == "dp_dsgd":
        content["algorithm"]["learning_rate"] = {"scale": 0.1}
    content["privacy"] = {"epsilon": 4.0, "clip": {"x": 1.0, "y": 1.0, "z": 1.0}}
    content["run"] = {"evaluate_every": rounds}
    return build(decentral_dp.load(content), data=data)


def _terms(job: Job, monkeypatch: pytest.MonkeyPatch) -> float:
    """Terms that an agent evaluates in a round."""
    kind, asked = type(job.problem), 0
    whole: Callable[..., Any] = kind.stacked_terms  # type: ignore[attr-defined]

    def counting(self: Any, x: Any, y: Any, z: Any, records: Any, clip: Any, wanted: Any) -> Any:
        nonlocal asked
        asked += len(x) * sum(term in self.reads_records for term in wanted)
        return whole(self, x, y, z, records, clip, wanted)

    monkeypatch.setattr(kind, "stacked_terms", counting)
    job.start(LocalEngine())
    monkeypatch.undo()
    return asked / job.n_agents / job.rounds


def _arithmetic(job: Job, terms: int) -> Callable[[], None]:
    draw, outputs = np.random.default_rng(0), max(1, job.problem.q // WIDTH)
    shards, points = draw.normal(size=(AGENTS, RECORDS, WIDTH)), draw.normal(size=(AGENTS, WIDTH, outputs))
    sent = sum(c.dimension * c.rounds.size for c in job.ledger.charged_channels) // job.rounds
    around = np.arange(AGENTS)
    ends = (np.tile(around, 2), np.concatenate([(around + 1) % AGENTS, (around - 1) % AGENTS]))
    mix = sp.csr_array((np.full(2 * AGENTS, 0.25), ends))
    messages = draw.normal(size=(AGENTS, sent))

    def once() -> None:
        for _ in range(terms):
            if outputs > 1:
                np.matmul(shards.transpose(0, 2, 1), np.matmul(shards, points))
            else:
                np.einsum("gn,gnd->gd", np.einsum("gnd,gd->gn", shards, points[..., 0]), shards)
        mix @ (messages + draw.laplace(size=messages.shape))

    return once


@pytest.mark.parametrize(
    ("problem", "algorithm", "limit"),
    [*((p, "ldp_dsbo", 4.0) for p in PROBLEMS), *(("logistic_regularisation", a, 3.5) for a in ALGORITHMS)],
)
def test_a_round_of_another_system(
    problem: str, algorithm: str, limit: float, benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _job(problem, algorithm, ROUNDS)
    terms = round(_terms(job, monkeypatch))
    once = _arithmetic(job, terms)
    ours, floor = seconds_of(job, once, ROUNDS)
    report(benchmark, f"{algorithm} on {problem}, {terms} terms a round, of its arithmetic", ours / floor, limit)


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


# Custom losses --------------------------------------------------------------------------------------------------
