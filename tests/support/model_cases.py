"""Define small models and their gradients by plain autograd, record by record."""

import numpy as np
import torch
from torch import nn

from decentral_dp.models.mlp import mlp
from decentral_dp.models.module import as_model
from decentral_dp.models.networks import network_model, residual_network
from decentral_dp.models.protocol import Slope

# Float64 tolerance of a norm at its bound.
ROOM = 1.0 + 1e-12


class Smooth(nn.Module):
    """A module that is no stack: two branches, layer normalisation, a constant buffer, and a parameter by itself."""

    def __init__(self, n_features, outputs):
        super().__init__()
        self.left, self.right = nn.Linear(n_features, 6), nn.Linear(n_features, 6, bias=False)
        self.norm, self.last = nn.LayerNorm(6), nn.Linear(6, outputs)
        self.times = nn.Parameter(torch.tensor(0.7))
        self.register_buffer("shift", torch.linspace(-1.0, 1.0, 6))

    def forward(self, a):
        h = torch.tanh(self.left(a)) * self.times + torch.nn.functional.gelu(self.right(a) + self.shift)
        return self.last(self.norm(h))


def drawn(module, seed):
    """The module with weights that no default made."""
    draw = torch.Generator().manual_seed(seed)
    module = module.double()
    with torch.no_grad():
        for value in module.parameters():
            value.copy_(torch.randn(value.shape, generator=draw, dtype=torch.float64) * 0.5)
    return module


def relu_net():
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, 2))


SMALL_IMAGE = (4, 4, 1)
# Name → (module to compare with, features).
CASES = {
    "mlp": (relu_net, 5),
    "torch": (lambda: Smooth(5, 2), 5),
    "resnet": (lambda: residual_network(SMALL_IMAGE, 2, 1, 2, 3), 16),
}


def case(name, device="cpu"):
    """(module on its own, model under test)."""
    make, d = CASES[name]
    oracle = drawn(make(), 1)
    if name == "mlp":
        model = mlp(5, (7, 4), 2, 0, device)
    elif name == "resnet":
        model = network_model(residual_network(SMALL_IMAGE, 2, 1, 2, 3), 16, device)
    else:
        model = as_model(drawn(make(), 1).to(device), d, device)
    return oracle, model, d


def gradient(module, x, record, cotangent):
    """∇⟨module(record), cotangent⟩ at x by one backward pass, (p,)."""
    nn.utils.vector_to_parameters(torch.tensor(x), module.parameters())
    module.zero_grad()
    with torch.enable_grad():
        (module(torch.tensor(record)[None])[0] * torch.tensor(cotangent)).sum().backward()
    none = [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()]
    return torch.cat([g.flatten() for g in none]).numpy().copy()


def rows_at(module, x, records, cotangents):
    pairs = zip(records, cotangents, strict=True)
    return np.array([gradient(module, x, a, c) for a, c in pairs]).reshape(len(records), len(x))


def with_extra(rows, beside):
    return np.linalg.norm(np.concatenate([rows, beside], axis=1), axis=1)


def slope(model, x, records, cotangents):
    outputs, tape = model.forward(x, records)
    assert outputs.shape == cotangents.shape
    return Slope(tape, cotangents)


def data(d, n=6, seed=0, k=3):
    rng = np.random.default_rng([seed, d])
    records, cotangents, beside = rng.normal(size=(n, d)), rng.normal(size=(n, 2)), rng.normal(size=(n, k))
    if n:
        # A black image moves only biases.
        records[0] = 0.0
    return records, cotangents, beside
