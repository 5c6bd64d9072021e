"""Rounds, certified and recorded, against the arithmetic that they cannot do without.

Calls of the problem are counted, so the arithmetic follows the algorithm: for every term two products of
records with vectors, for every number sent one Laplace draw and one mix. In small networks a round is a few thousand
numbers, and costs calls of Python and of numpy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from threadpoolctl import threadpool_limits
from torch import nn

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.engines.local import LocalEngine
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.benchmarks.rings import arithmetic, ring_job, seconds_of
from tests.benchmarks.timing import fastest, one_thread, report

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

# Enough rounds for all runs except the first to call only captured graphs.
OWN_AGENTS, OWN_RECORDS, OWN_WIDTH, OWN_ROUNDS = 10, 20, 10, 100
LOSSES = """
import torch

import decentral_dp


def lower_loss(x, y, features, label):
    return torch.nn.functional.softplus(-(2.0 * label - 1.0) * (features @ y))


def regulariser(x, y):
    return 0.5 * torch.exp(x[0]) * (y**2).sum()


def problem(n_features):
    return decentral_dp.from_losses(
        lower_loss, lower_loss, p=1, q=n_features, n_features=n_features, classes=2, regulariser=regulariser
    )
"""


def _own_job(kind: str, **problem: Any) -> Job:
    made_up = {"dimension": OWN_WIDTH, "records": 2 * OWN_RECORDS}
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
        "topology": {"kind": "ring", "agents": OWN_AGENTS},
        "algorithm": {"kind": "ldp_dsbo", "rounds": OWN_ROUNDS, "x": step, "y": step, "z": step},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "clip": {"x": 1.0, "y": 1.0, "z": 1.0}},
        "run": {"evaluate_every": OWN_ROUNDS},
    }
    return build(decentral_dp.load(content))


def _by_hand() -> Callable[[], object]:
    """Gradients and products of every record of all agents in two calls, in float64, without clips, noise or ledger."""
    from torch.func import grad, jvp, vmap

    def loss(y: Any, features: Any, label: Any) -> Any:
        return torch.nn.functional.softplus(-(2.0 * label - 1.0) * (features @ y))

    def lower(y: Any, z: Any, *record: Any) -> Any:
        return jvp(lambda v: grad(loss)(v, *record), (y,), (z,))

    draw = np.random.default_rng(0)
    y, z = (torch.tensor(draw.normal(size=(OWN_AGENTS, OWN_WIDTH))) for _ in range(2))
    features = torch.tensor(draw.normal(size=(OWN_AGENTS, OWN_RECORDS, OWN_WIDTH)))
    labels = torch.tensor(draw.integers(2, size=(OWN_AGENTS, OWN_RECORDS)), dtype=torch.float64)
    train = vmap(vmap(lower, in_dims=(None, None, 0, 0)))
    validation = vmap(vmap(grad(loss), in_dims=(None, 0, 0)))

    def once() -> object:
        with torch.no_grad():
            return train(y, z, features, labels), validation(y, features, labels)

    return once


def test_custom_losses(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "losses.py"
    path.write_text(LOSSES)
    monkeypatch.chdir(tmp_path)
    theirs, ours, once = _own_job("losses:problem"), _own_job("logistic_regularisation"), _by_hand()
    with threadpool_limits(limits=1):
        derived, analytic, batched = fastest(
            [
                lambda: theirs.start(LocalEngine()),
                lambda: ours.start(LocalEngine()),
                lambda: [once() for _ in range(OWN_ROUNDS)],
            ],
            3,
            time.process_time,
        )
    report(benchmark, "custom losses, of our formulas", derived / analytic, 8.0)
    report(benchmark, "custom losses, of derivatives batched by hand", derived / batched, 2.5)
