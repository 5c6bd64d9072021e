"""Work on records against bare products over the same records: an oracle, a question, scores and a private step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from decentral_dp.central.clients import MinimaxClientBlock
from decentral_dp.central.context import CoordinatorContext, Domain
from decentral_dp.central.pooled import Pooled
from decentral_dp.central.problems.auc import AucObjective
from decentral_dp.central.problems.composite import Composite
from decentral_dp.constants.families import family_of
from decentral_dp.exchange import ClippedQuery, ClippedSum
from decentral_dp.models.mlp import mlp
from decentral_dp.participants.clients import ClientBlock
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.mechanisms.gaussian import gaussian_integers
from decentral_dp.privacy.randomness import Streams, seeded_root, tag
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.regularised_losses import logistic_regularisation
from tests.benchmarks.timing import fastest, one_thread, report

CLIP = Clip("l2", 1.0, 1.0, 1.0)


def test_logistic_oracle(benchmark: Any) -> None:
    """All terms of a round, against X·[y z] and [r s]ᵀ·X on the train records, X·y and rᵀ·X on the validation."""
    n, d = 20_000, 200
    rng = np.random.default_rng([n, d])
    problem = LogisticHyperparameter(d)
    train, validation = (
        problem.prepare(rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], size=n), "l2") for _ in range(2)
    )
    x, y, z = rng.normal(size=(3, d)) / d
    right, left = np.stack([y, z], axis=1), rng.normal(size=(2, n))

    def products() -> object:
        return train.signed @ right, left @ train.signed, validation.signed @ y, left[0] @ validation.signed

    with one_thread():
        ours, bare = fastest([lambda: problem.terms(x, y, z, train, validation, CLIP), products], 15)
    report(benchmark, f"logistic oracle {n} x {d}, of two bare passes", ours / bare, 1.3)


def test_a_question_of_a_coordinator(benchmark: Any) -> None:
    """A clipped gradient over ten agents' records, against X·y and rᵀ·X over the same records."""
    agents, n, d = 10, 100_000, 64
    rng, problem = np.random.default_rng([n, d]), LogisticHyperparameter(d)
    parts = [
        problem.prepare(rng.normal(size=(n // agents, d)), rng.choice([-1.0, 1.0], size=n // agents), "l2")
        for _ in range(agents)
    ]
    coins = Streams(seeded_root(1, b"ask"), "coins", range(agents))
    block = ClientBlock(np.arange(agents), problem, {"train": parts, "validation": parts}, CLIP, coins)
    context = CoordinatorContext(problem, {"train": n, "validation": n}, agents, CLIP, Domain())
    x, y = rng.normal(size=(2, d)) / d
    question = {"g": ClippedSum("lower_grad_y", x, y)}
    rows, left = [p[0] for p in parts], [rng.normal(size=n // agents) for _ in parts]

    def products() -> object:
        return [a @ y for a in rows], [r @ a for r, a in zip(left, rows, strict=True)]

    with one_thread():
        ours, bare = fastest([lambda: context.combine(1, question, block.answer(1, question)), products], 15)
    report(benchmark, f"a question for a gradient, {n} x {d}, of two bare passes", ours / bare, 1.5)


def test_certified_scores(benchmark: Any) -> None:
    """65 scores of a logistic regression, each a solve, against three passes a score: gradient, back, and losses."""
    n, d, rng = 100_000, 20, np.random.default_rng(3)
    problem = logistic_regularisation(d, [0.0, 1.0])
    features = rng.normal(size=(n, d))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = features[:, 0] + 0.5 * rng.normal(size=n) > 0
    records, family = problem.prepare(features, labels.astype(float), "l2"), family_of(problem, 1.0, 1.0)
    points, coefficients = np.linspace([0.0], [-5.0], 65), rng.normal(size=n)

    def passes() -> None:
        for at in rng.normal(size=(len(points), d)):
            (features @ at, coefficients @ features, features @ at)

    with one_thread():
        # A pool of its own each time: moments that are kept are part of the price of the first look.
        solved, bare = fastest(
            [lambda: Pooled.from_agents(family, [(records, records)]).scores_along(points), passes], 3
        )
    report(benchmark, f"65 certified scores, n = {n}, of three passes each", solved / bare, 4.0)


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
