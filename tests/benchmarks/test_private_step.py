"""Cost of a private step of a network, as a ratio to a plain step of torch in the same run."""

import itertools

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from decentral_dp.central.clients import MinimaxClientBlock
from decentral_dp.central.problems.auc import AucObjective
from decentral_dp.central.problems.composite import Composite
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.mlp import mlp
from decentral_dp.models.module import TorchModel, as_model, weights_of
from decentral_dp.models.networks import residual_network
from decentral_dp.privacy.mechanisms.gaussian import gaussian_integers
from decentral_dp.privacy.randomness import Streams, seeded_root, tag
from tests.benchmarks.timing import fastest

SHARE, CLIP = 0.4, 1.0


def auc(module, features, positive, a, b, y):
    """The mean AUC loss of a batch, in torch."""
    h = torch.sigmoid(module(features)[:, 0])
    squares = torch.where(positive, (1 - SHARE) * (h - a) ** 2, SHARE * (h - b) ** 2)
    return (squares + 2.0 * y * torch.where(positive, (SHARE - 1.0) * h, SHARE * h)).mean()


def noised(total, streams, index):
    """A released sum, as a trusted coordinator noises it."""
    scale = 2.0 * CLIP
    g = np.array([[scale / 2**20]])
    normals = streams.generator(0, index, tag("gx")).standard_normal((1, total.size))
    return g * gaussian_integers(total[None], g, scale / g, normals)


def steps(model, module, n, d):
    """(private sum, private sum with noise, plain step) of n records."""
    rng = np.random.default_rng([n, d])
    features, labels = rng.normal(size=(n, d)), (rng.random(n) < SHARE).astype(float)
    problem = Composite(model, AucObjective(SHARE))
    records = problem.prepare(features, labels, "l2")
    x, y = np.concatenate([model.start, [0.6, 0.4]]), np.array([0.9])
    streams = Streams(seeded_root(0, b"models"), "noise", [0])
    weights, (a, b) = list(module.parameters()), (torch.tensor(v, dtype=torch.float64).requires_grad_() for v in x[-2:])
    inputs, positive = torch.from_numpy(features), torch.from_numpy(labels == 1.0)

    def clipped():
        return problem.sums(records, [ClippedQuery("grad_x", x, y, CLIP)])[0]

    def released():
        return noised(clipped(), streams, 1)

    def plain():
        return torch.autograd.grad(auc(module, inputs, positive, a, b, 0.9), [*weights, a, b])

    unclipped = problem.sums(records, [ClippedQuery("grad_x", x, y, np.inf)])[0] / n
    np.testing.assert_allclose(unclipped, torch.cat([g.flatten() for g in plain()]).numpy(), atol=1e-12)
    return clipped, released, plain


def measured(benchmark, threads, functions, rounds):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        with threadpool_limits(threads):
            best = fastest(functions, rounds)
            benchmark.pedantic(functions[1], rounds=3, warmup_rounds=1)
    finally:
        torch.set_num_threads(before)
    return best


def test_dense_network_ratio(benchmark):
    """784-256-128-1 on 256 records in float64, on one core; torch's vmap over records stands beside it."""
    model = mlp(784, (256, 128), 1, 0)
    layers = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)]
    module = nn.Sequential(*layers).double()
    nn.utils.vector_to_parameters(torch.tensor(model.start), module.parameters())
    clipped, released, plain = steps(model, module, 256, 784)
    rows = TorchModel(module, 784, 1, weights_of(module), 2 * model.p)
    by_rows = steps(rows, module, 256, 784)[0]
    np.testing.assert_allclose(clipped(), by_rows(), atol=1e-10)
    private, noisy, bare, vmapped = measured(benchmark, 1, [clipped, released, plain, by_rows], 10)
    benchmark.extra_info |= {"ratio": noisy / bare, "without_noise": private / bare, "vmap": vmapped / bare}
    print(
        f"\n784-256-128-1, 256 records: plain {bare * 1e3:.2f} ms, clipped {private / bare:.2f}, with noise "
        f"{noisy / bare:.2f}, vmap {vmapped / bare:.1f} of it"
    )
    assert private <= 3 * bare
    assert noisy <= 3 * bare


def test_poisson_sample_ratio(benchmark):
    """784-256-128-1 on a Poisson sample of about 256 of 5000 records, each of which is evaluated at its own place."""
    n, size = 5000, 256
    model = mlp(784, (256, 128), 1, 0)
    layers = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)]
    module = nn.Sequential(*layers).double()
    nn.utils.vector_to_parameters(torch.tensor(model.start), module.parameters())
    plain = steps(model, module, size, 784)[2]
    rng = np.random.default_rng(1)
    problem = Composite(model, AucObjective(SHARE))
    records = problem.prepare(rng.normal(size=(n, 784)), (rng.random(n) < SHARE).astype(float), "l2")
    coins, noise = (Streams(seeded_root(0, name), "noise", [0]) for name in (b"coins", b"models"))
    client_block = MinimaxClientBlock(np.array([0]), problem, [records], coins)
    x, y = np.concatenate([model.start, [0.6, 0.4]]), np.array([0.9])
    asked = {"gx": ClippedQuery("grad_x", x, y, CLIP, rate=size / n)}
    numbers = itertools.count(1)

    def clipped():
        return dict(client_block.sums_of_agent(0, next(numbers), asked))["gx"]

    def released():
        return noised(clipped(), noise, 1)

    private, noisy, bare = measured(benchmark, 1, [clipped, released, plain], 15)
    benchmark.extra_info |= {"ratio": noisy / bare, "without_noise": private / bare}
    print(
        f"\n784-256-128-1, a Poisson sample of 256: plain {bare * 1e3:.2f} ms, clipped {private / bare:.2f}, "
        f"with noise {noisy / bare:.2f} of it"
    )
    assert noisy <= 6 * bare


@pytest.mark.parametrize("n", [8, 64])
def test_residual_network_ratio(benchmark, n):
    """Width 16 and one block for each stage on 32 × 32 × 3 in float64, on one core."""
    module = residual_network((32, 32, 3), 16, 1, 1, 0)
    model = as_model(module, 3072, "cpu")
    clipped, released, plain = steps(model, module, n, 3072)
    private, noisy, bare = measured(benchmark, 1, [clipped, released, plain], 4)
    benchmark.extra_info |= {"ratio": noisy / bare, "without_noise": private / bare}
    print(
        f"\nresidual network, {n} records in groups of {model.group}: plain {bare * 1e3:.0f} ms, clipped "
        f"{private / bare:.2f}, with noise {noisy / bare:.2f} of it"
    )
    assert noisy <= 3 * bare
