"""Cost of per-record clipped gradients of a network, as a ratio to the plain batch gradient in the same run."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits
from torch.nn import functional

from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.meta_learning import MetaLearning
from tests.benchmarks.timing import fastest

RECORDS = 50


def tensors(network, x):
    """The weights per layer, kernels as torch has them."""
    out, c, done, o = [], network.image[2], 0, network.channels
    for _ in range(network.depth):
        sizes = [o * 9 * c, o, o, o]
        kernel, *rest = torch.split(torch.tensor(x[done : done + sum(sizes)]), sizes)
        out += [kernel.reshape(o, 3, 3, c).permute(0, 3, 1, 2).contiguous(), *(r.clone() for r in rest)]
        c, done = o, done + sum(sizes)
    return out


def embed(network, weights, h):
    for k in range(network.depth):
        kernel, bias, scale, shift = weights[4 * k : 4 * k + 4]
        h = functional.group_norm(functional.conv2d(h, kernel, bias, padding=1), network.groups, scale, shift)
        h = functional.max_pool2d(torch.relu(h), 2)
    return h.permute(0, 2, 3, 1).flatten(1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("image", "width"), [((8, 8, 1), 8), ((32, 32, 3), 8), ((32, 32, 3), 32)])
def test_clipped_gradients_ratio(benchmark, image, width, threads):
    """∇_x h clipped per record, against torch's gradient of the mean loss in x, both in float64.

    torch's vmap(grad), clipped, stands beside it. Engines give every agent one thread.
    """
    rng = np.random.default_rng([*image, width])
    height, wide, c = image
    features, labels = rng.normal(size=(RECORDS, height * wide * c)), rng.integers(5, size=RECORDS)
    problem = MetaLearning.from_dataset(features.shape[1], 5, image, width=width)
    network, clip, term = problem.network, Clip("l1", 0.1, 0.1, 0.1), "upper_grad_x"
    records = problem.prepare(features, labels.astype(float), "l1")
    x, (y, z) = problem.start["x"], rng.normal(size=(2, problem.q))
    weights = [w.requires_grad_() for w in tensors(network, x)]
    fixed = [w.detach() for w in weights]
    images, target = torch.tensor(features).reshape(-1, c, height, wide), torch.tensor(labels)
    head = torch.tensor(y).reshape(5, -1)

    def loss(weights, images, target):
        return functional.cross_entropy(embed(network, weights, images) @ head[:, :-1].T + head[:, -1], target)

    def plain():
        return torch.autograd.grad(loss(weights, images, target), weights)

    rows = torch.func.vmap(
        torch.func.grad(lambda w, a, b: loss(w, a[None], b[None])), in_dims=(None, 0, 0), randomness="error"
    )

    def by_vmap():
        with torch.no_grad():
            gradients = rows(fixed, images, target)
            flat = [g.flatten(1) for g in gradients]
            factor = (clip.x / sum(g.abs().sum(1) for g in flat)).clamp(max=1.0) / RECORDS
            return [factor @ g for g in flat]

    def ours():
        return problem.terms(x, y, z, records, records, clip, (term,)).upper_grad_x

    def everything():
        return problem.terms(x, y, z, records, records, clip)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        with threadpool_limits(threads):
            # The same numbers: the first kernel's, which only their order tells apart.
            theirs = by_vmap()[0].reshape(width, c, 3, 3).permute(0, 2, 3, 1).flatten().numpy()
            np.testing.assert_allclose(ours()[: theirs.size], theirs, atol=1e-10)
            rounds = 30 if image[0] == 8 else 4
            bare, per_record, vmapped, whole = fastest([plain, ours, by_vmap, everything], rounds)
            benchmark.pedantic(ours, rounds=3, warmup_rounds=1)
    finally:
        torch.set_num_threads(before)
    benchmark.extra_info |= {"ratio": per_record / bare, "vmap": vmapped / bare, "all_terms": whole / bare}
    print(
        f"\n{image} width {width}, {threads} threads: plain {bare * 1e3:.2f} ms, clipped {per_record / bare:.2f}, "
        f"vmap {vmapped / bare:.2f}, all five terms {whole / bare:.2f} of it"
    )
    assert per_record <= 3 * bare
