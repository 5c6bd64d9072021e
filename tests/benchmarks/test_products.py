"""A private step of a network, against torch's plain step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from decentral_dp.central.clients import MinimaxClientBlock
from decentral_dp.central.problems.auc import AucObjective
from decentral_dp.central.problems.composite import Composite
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.mlp import mlp
from decentral_dp.privacy.mechanisms import gaussian_integers
from decentral_dp.privacy.randomness import Streams, seeded_root, tag
from tests.benchmarks.timing import fastest, one_thread, report


@pytest.mark.parametrize(("sample", "limit"), [("batch", 3.0), ("poisson", 6.0)])
def test_a_private_step_of_a_network(benchmark: Any, sample: str, limit: float) -> None:
    """784-256-128-1 with noise, against torch's plain step: 256 records, or a Poisson sample of as many of 5000."""
    size, n, share = 256, 5000, 0.4
    rng, model = np.random.default_rng([size, 784]), mlp(784, (256, 128), 1, 0)
    layers = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)]
    module = nn.Sequential(*layers).double()
    nn.utils.vector_to_parameters(torch.tensor(model.start), module.parameters())
    problem, noise = Composite(model, AucObjective(share)), Streams(seeded_root(0, b"models"), "noise", [0])
    x, y = np.concatenate([model.start, [0.6, 0.4]]), np.array([0.9])
    features, labels = rng.normal(size=(n, 784)), (rng.random(n) < share).astype(float)
    weights, (a, b) = list(module.parameters()), (torch.tensor(v, dtype=torch.float64).requires_grad_() for v in x[-2:])
    inputs, positive = torch.from_numpy(features[:size]), torch.from_numpy(labels[:size] == 1.0)
    records = problem.prepare(features[:size], labels[:size], "l2")
    client = MinimaxClientBlock(np.array([0]), problem, [problem.prepare(features, labels, "l2")], noise)
    asked, numbers = {"gx": ClippedQuery("grad_x", x, y, 1.0, rate=size / n)}, itertools.count(1)

    def plain() -> list[torch.Tensor]:
        h = torch.sigmoid(module(inputs)[:, 0])
        squares = torch.where(positive, (1 - share) * (h - a) ** 2, share * (h - b) ** 2)
        loss = (squares + 1.8 * torch.where(positive, (share - 1.0) * h, share * h)).mean()
        return list(torch.autograd.grad(loss, [*weights, a, b]))

    clipped: Callable[[], np.ndarray] = (
        (lambda: problem.sums(records, [ClippedQuery("grad_x", x, y, 1.0)])[0])
        if sample == "batch"
        else (lambda: dict(client.sums_of_agent(0, next(numbers), asked))["gx"])
    )

    def released() -> np.ndarray:
        total, grid = clipped(), np.array([[2.0 / 2**20]])
        normals = noise.generator(0, 1, tag("gx")).standard_normal((1, total.size))
        return grid * gaussian_integers(total[None], grid, 2.0 / grid, normals)

    unclipped = problem.sums(records, [ClippedQuery("grad_x", x, y, np.inf)])[0] / size
    np.testing.assert_allclose(unclipped, torch.cat([g.flatten() for g in plain()]).numpy(), atol=1e-12)
    with one_thread():
        noisy, bare = fastest([released, plain], 12)
    report(benchmark, f"a private step of 784-256-128-1, {sample}, of a plain step", noisy / bare, limit)
