"""Clipped per-record gradients of models, against loops over records with plain autograd."""

import contextlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from decentral_dp.problems.models import module as rows_of
from decentral_dp.problems.models.build import build_model
from decentral_dp.problems.models.mlp import Dense, Mlp, mlp
from decentral_dp.problems.models.module import TorchModel, as_model, weights_of
from decentral_dp.problems.models.protocol import Slope
from decentral_dp.problems.models.resnet import residual_network, resnet

# What float64 leaves open of a norm that is as large as its bound.
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


def stack():
    return nn.Sequential(
        nn.Flatten(), nn.Sequential(nn.Linear(5, 7, bias=False), nn.Tanh()), nn.Linear(7, 4), nn.Linear(4, 2), nn.Tanh()
    )


SMALL_IMAGE = (4, 4, 1)
# Name → (module to compare with, features).
CASES = {
    "mlp": (relu_net, 5),
    "stack": (stack, 5),
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
        model = resnet(SMALL_IMAGE, 2, 1, 2, 3, device)
    else:
        model = as_model(drawn(make(), 1).to(device), d, 2, device)
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


def with_beside(rows, beside):
    return np.linalg.norm(np.concatenate([rows, beside], axis=1), axis=1)


def slope(model, x, records, cotangents):
    outputs, tape = model.forward(x, records)
    assert outputs.shape == cotangents.shape
    return Slope(tape, cotangents)


def data(d, n=6, seed=0, k=3):
    rng = np.random.default_rng([seed, d])
    records, cotangents, beside = rng.normal(size=(n, d)), rng.normal(size=(n, 2)), rng.normal(size=(n, k))
    if n:
        # A black picture: only biases move.
        records[0] = 0.0
    return records, cotangents, beside


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_size(name):
    oracle, model, d = case(name)
    records, _, _ = data(d)
    x = nn.utils.parameters_to_vector(oracle.parameters()).detach().numpy()
    assert (model.p, model.outputs, model.start.shape) == (x.size, 2, x.shape)
    with torch.no_grad():
        np.testing.assert_allclose(model.forward(x, records)[0], oracle(torch.tensor(records)).numpy(), atol=1e-12)
    assert model.forward(x, records, keep=False)[1] is None
    assert isinstance(model, TorchModel if name in ("torch", "resnet") else Mlp)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bound", [0.0, 1e-9, 0.5, 3.0, np.inf])
def test_clipped_sums(name, bound):
    oracle, model, d = case(name)
    records, cotangents, beside = data(d)
    x = np.random.default_rng(2).normal(size=model.p) * 0.7
    total, factors = model.clipped(slope(model, x, records, cotangents), beside, bound)
    rows = rows_at(oracle, x, records, cotangents)
    norms = with_beside(rows, beside)
    expected = np.minimum(1.0, bound / norms)
    np.testing.assert_allclose(factors, expected, rtol=1e-10)
    np.testing.assert_allclose(total, expected @ rows, rtol=1e-9, atol=1e-12 * min(bound, 10.0))
    assert (factors * norms <= bound * ROOM).all()


@pytest.mark.parametrize("name", CASES)
def test_unclipped_sum_is_the_gradient_of_the_batch(name):
    oracle, model, d = case(name)
    records, cotangents, beside = data(d, n=40)
    x = np.random.default_rng(2).normal(size=model.p) * 0.7
    total, factors = model.clipped(slope(model, x, records, cotangents), beside, np.inf)
    nn.utils.vector_to_parameters(torch.tensor(x), oracle.parameters())
    oracle.zero_grad()
    (oracle(torch.tensor(records)) * torch.tensor(cotangents)).sum().backward()
    np.testing.assert_array_equal(factors, 1.0)
    np.testing.assert_allclose(total, torch.cat([p.grad.flatten() for p in oracle.parameters()]).numpy(), atol=1e-9)


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    bound=st.sampled_from([1e-6, 0.03, 1.0, 50.0]),
    size=st.sampled_from([1e-8, 1e-2, 1.0, 1e3]),
    slopes=st.sampled_from([1e-8, 1.0, 1e4]),
    n=st.integers(1, 3),
)
def test_no_contribution_is_longer_than_its_bound(name, seed, bound, size, slopes, n):
    """Every record's own contribution, beside included, at any weights and any scale of records and cotangents."""
    _, model, d = case(name)
    rng = np.random.default_rng(seed)
    records, cotangents, beside = data(d, n, seed)
    x, far = rng.normal(size=(2, model.p))
    records, cotangents, beside = records * size, cotangents * slopes, beside * rng.choice([0.0, 1e-3, 1.0])
    then = Slope(model.forward(far, records)[1], rng.permuted(cotangents))
    for k in range(n):
        one = slice(k, k + 1)
        here = slope(model, x, records[one], cotangents[one])
        there = Slope(model.forward(far, records[one])[1], then.cotangents[one])
        for total, factor in (
            model.clipped(here, beside[one], bound),
            model.clipped_change(here, there, beside[one], bound),
        ):
            whole = np.concatenate([total, factor[0] * beside[k]])
            assert np.linalg.norm(whole) <= bound * ROOM
            assert 0.0 <= factor[0] <= 1.0


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("step", [1.0, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("share", [0.3, 0.9, np.inf])
def test_clipped_changes(name, step, share):
    """The sum is that of the differences, each scaled by its factor, which keeps it within the bound."""
    oracle, model, d = case(name)
    records, cotangents, beside = data(d)
    rng = np.random.default_rng(4)
    x = rng.normal(size=model.p) * 0.7
    before = x - step * rng.normal(size=model.p)
    then = cotangents - step * rng.normal(size=cotangents.shape)
    beside = step * beside
    here, there = slope(model, x, records, cotangents), slope(model, before, records, then)
    rows = rows_at(oracle, x, records, cotangents) - rows_at(oracle, before, records, then)
    norms = with_beside(rows, beside)
    bound = share * float(np.median(norms))
    total, factors = model.clipped_change(here, there, beside, bound)
    # Two gradients are known to 1e-15 of their size, and so is their difference.
    room = 1e-11 + 1e-14 / step
    assert (factors * norms <= bound * (1.0 + room)).all()
    assert (factors > 0.0).all()
    np.testing.assert_allclose(total, factors @ rows, atol=room * norms.sum())
    if name in ("torch", "resnet") or share == np.inf:
        np.testing.assert_allclose(factors, np.minimum(1.0, bound / norms), rtol=room)
    else:
        # The norm of a stack's change is bounded by two parts for each layer.
        assert (factors >= np.minimum(1.0, bound / (2.0 * norms))).all()


def test_change_of_one_layer_is_exact():
    """There the records are what the layer reads, at both points."""
    model = mlp(5, (), 2, 0)
    records, cotangents, beside = data(5)
    before = cotangents[::-1].copy()
    here, there = (slope(model, model.start, records, c) for c in (cotangents, before))
    norms = with_beside(np.einsum("ni,nj->nij", cotangents - before, np.c_[records, np.ones(6)]).reshape(6, -1), beside)
    np.testing.assert_allclose(model.clipped_change(here, there, beside, 0.7)[1], np.minimum(1.0, 0.7 / norms))


def test_the_bias_of_the_first_layer_counts_for_a_record_of_zeros():
    """‖a‖‖δ‖ without the bias's 1 would be 0 in the first layer, and would let its gradient through whole."""
    model = mlp(4, (6,), 1, 0)
    black, cotangent = np.zeros((1, 4)), np.array([[3.0]])
    x = np.random.default_rng(0).normal(size=model.p)
    x[24:30], x[30:36] = 1.0, 5.0
    total, _ = model.clipped(slope(model, x, black, cotangent), np.zeros((1, 0)), 1e-3)
    assert np.linalg.norm(total[24:30]) > 1e-4
    assert np.linalg.norm(total) <= 1e-3 * ROOM
    forgotten = 3.0 * math.hypot(1.0, np.linalg.norm(x[24:30]))
    assert np.linalg.norm(rows_at(relu_like(model), x, black, cotangent)) > 2.0 * forgotten
    before = x.copy()
    before[30:36] -= 1e-5
    here, there = (slope(model, at, black, cotangent) for at in (x, before))
    change, _ = model.clipped_change(here, there, np.zeros((1, 0)), 1e-9)
    assert np.linalg.norm(change[24:30]) > 1e-10
    assert np.linalg.norm(change) <= 1e-9 * ROOM


def relu_like(model):
    layers = []
    for layer in model.layers:
        layers += [nn.Linear(layer.fan_in, layer.fan_out), *([nn.ReLU()] if layer.activation else [])]
    return nn.Sequential(*layers).double()


def gram_norms(here, there):
    """‖δaᵀ − δ'a'ᵀ‖ by squares and inner products, in the numbers that are given."""
    total = 0.0
    for (delta, a), (before, b) in zip(here, there, strict=True):
        squares = (delta**2).sum(1) * ((a**2).sum(1) + 1) + (before**2).sum(1) * ((b**2).sum(1) + 1)
        total = total + squares - 2.0 * (delta * before).sum(1) * ((a * b).sum(1) + 1)
    return np.sqrt(np.maximum(total, 0.0))


def outer_parts(model, module, x, records, cotangents):
    """(δ, a) of both layers of a network with one hidden layer, by hand."""
    nn.utils.vector_to_parameters(torch.tensor(x), module.parameters())
    with torch.no_grad():
        hidden = torch.relu(module[0](torch.tensor(records))).numpy()
        delta = cotangents @ module[2].weight.numpy() * (hidden > 0.0)
    return [(delta, records), (cotangents, hidden)]


@pytest.mark.parametrize("step", [1e-4, 1e-6, 1e-9])
def test_squares_and_inner_products_lose_a_small_change_and_products_of_differences_do_not(step):
    rng = np.random.default_rng(7)
    model = mlp(20, (30,), 1, 0)
    module = relu_like(model)
    records, cotangents = rng.normal(size=(200, 20)), rng.normal(size=(200, 1))
    x = model.start + 0.1 * rng.normal(size=model.p)
    before = x + step * rng.normal(size=model.p) * np.abs(x)
    here, there = (outer_parts(model, module, at, records, cotangents) for at in (x, before))
    exact = np.sqrt(
        sum(
            np.sum((np.einsum("ni,nj->nij", d, a) - np.einsum("ni,nj->nij", e, b)) ** 2, axis=(1, 2))
            + np.sum((d - e) ** 2, axis=1)
            for (d, a), (e, b) in zip(here, there, strict=True)
        )
    )
    bound = 0.5 * float(np.median(exact))
    floats = [[(d.astype(np.float32), a.astype(np.float32)) for d, a in side] for side in (here, there)]
    with np.errstate(divide="ignore"):
        escaped = np.minimum(1.0, bound / gram_norms(*floats)) * exact > 1.01 * bound
    assert escaped.mean() > 0.1
    none = np.zeros((200, 0))
    _, factors = model.clipped_change(*(slope(model, at, records, cotangents) for at in (x, before)), none, bound)
    assert (factors * exact <= bound * (1.0 + 1e-11 + 1e-14 / step)).all()
    # The bound on the norm is near it.
    assert (factors * exact >= 0.6 * np.minimum(exact, bound)).all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("where", ["record", "cotangent", "beside"])
def test_what_is_not_finite_counts_as_nothing(name, bad, where):
    _, model, d = case(name)
    records, cotangents, beside = data(d)
    spoilt = {"record": records.copy(), "cotangent": cotangents.copy(), "beside": beside.copy()}
    spoilt[where][2] = bad
    rest = np.arange(6) != 2
    x = np.random.default_rng(5).normal(size=model.p)
    before = x - 0.1
    for bound in (0.0, 0.7, np.inf):
        with np.errstate(all="ignore"):
            here, there = (slope(model, at, spoilt["record"], spoilt["cotangent"]) for at in (x, before))
            total, factors = model.clipped(here, spoilt["beside"], bound)
            change, others = model.clipped_change(here, there, spoilt["beside"], bound)
        if not (name == "resnet" and where == "record" and bad == 1e200):
            # Group normalisation takes any finite picture.
            assert factors[2] == others[2] == 0.0 or (math.isfinite(bad) and bound > 0.0)
        if factors[2] == 0.0:
            here = slope(model, x, records[rest], cotangents[rest])
            there = slope(model, before, records[rest], cotangents[rest])
            kept, _ = model.clipped(here, beside[rest], bound)
            np.testing.assert_allclose(total, kept, atol=1e-10)
            if others[2] == 0.0:
                moved, _ = model.clipped_change(here, there, beside[rest], bound)
                np.testing.assert_allclose(change, moved, atol=1e-10)
        assert np.isfinite(total).all()
        assert np.isfinite(change).all()


def test_a_record_whose_evaluation_raises_counts_as_nothing():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Embedding(4, 2)

        def forward(self, a):
            return self.rows(a[:, 0].long())

    model = as_model(Table().double(), 1, 2, "cpu")
    at = slope(model, model.start, np.array([[1.0], [9.0], [3.0]]), np.ones((3, 2)))
    total, factors = model.clipped(at, np.zeros((3, 0)), 10.0)
    np.testing.assert_array_equal(factors, [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(total, [0, 0, 1, 1, 0, 0, 1, 1])
    alone = slope(model, model.start, np.array([[9.0]]), np.ones((1, 2)))
    np.testing.assert_array_equal(model.clipped(alone, np.zeros((1, 0)), 10.0)[0], 0.0)
    assert np.isnan(model.forward(model.start, np.array([[9.0]]))[0]).all()


@pytest.mark.parametrize("name", CASES)
def test_no_records(name):
    _, model, d = case(name)
    records, cotangents, beside = data(d, n=0)
    at = slope(model, model.start, records, cotangents)
    for total, factors in (model.clipped(at, beside, 1.0), model.clipped_change(at, at, beside, 1.0)):
        np.testing.assert_array_equal(total, np.zeros(model.p))
        assert factors.shape == (0,)


@pytest.mark.parametrize("bias", [True, False])
def test_clipping_in_l1(bias):
    layers = (Dense(5, 4, bias, "relu"), Dense(4, 2, bias))
    model = Mlp(layers, np.random.default_rng(0).normal(size=sum(layer.size for layer in layers)))
    oracle = nn.Sequential(nn.Linear(5, 4, bias=bias), nn.ReLU(), nn.Linear(4, 2, bias=bias)).double()
    records, cotangents, beside = data(5)
    x, before = model.start, model.start - 1e-3
    here, there = (slope(model, at, records, cotangents) for at in (x, before))
    now, then = (rows_at(oracle, at, records, cotangents) for at in (x, before))
    norms = np.abs(np.concatenate([now, beside], axis=1)).sum(axis=1)
    total, factors = model.clipped(here, beside, 2.0, "l1")
    np.testing.assert_allclose(factors, np.minimum(1.0, 2.0 / norms))
    np.testing.assert_allclose(total, factors @ now)
    changes = np.abs(np.concatenate([now - then, 1e-3 * beside], axis=1)).sum(axis=1)
    _, factors = model.clipped_change(here, there, 1e-3 * beside, 1e-3, "l1")
    assert (factors * changes <= 1e-3 * (1.0 + 1e-9)).all()
    assert (factors * changes >= 0.4e-3).all()


def test_squares_that_underflow_let_nothing_through():
    """δ² is 0 in float64 here, and the gradient is ten times the bound."""
    model = Mlp((Dense(2, 2, False),), np.zeros(4))
    records, cotangents = np.array([[1e150, 0.0]]), np.array([[1e-163, 1e-163]])
    at = slope(model, np.zeros(4), records, cotangents)
    assert np.linalg.norm(np.outer(cotangents, records)) > 1e-13
    assert np.linalg.norm(model.clipped(at, np.zeros((1, 0)), 1e-14)[0]) <= 1e-14 * ROOM


def test_start_is_drawn_from_the_public_seed():
    model = mlp(400, (300,), 2, 5)
    first, biases = model.start[: 300 * 400], model.start[300 * 400 : 300 * 401]
    assert abs(first.std() - math.sqrt(2.0 / 400)) < 1e-3
    np.testing.assert_array_equal(biases, 0.0)
    np.testing.assert_array_equal(model.start, mlp(400, (300,), 2, 5).start)
    assert not np.array_equal(model.start, mlp(400, (300,), 2, 6).start)
    pictures = [resnet((8, 8, 3), 4, 1, 2, seed).start for seed in (5, 5, 6)]
    np.testing.assert_array_equal(*pictures[:2])
    assert not np.array_equal(pictures[0], pictures[2])


def test_a_stack_of_torch_layers_goes_by_ghost_norms_and_gives_what_rows_give():
    module = drawn(stack(), 3)
    ghost = as_model(module, 5, 2, "cpu")
    rows = TorchModel(module, 5, 2, weights_of(module), 1000)
    assert isinstance(ghost, Mlp)
    records, cotangents, beside = data(5)
    (a, s), (b, t) = (m.clipped(slope(m, m.start, records, cotangents), beside, 0.8) for m in (ghost, rows))
    np.testing.assert_allclose(a, b, atol=1e-12)
    np.testing.assert_allclose(s, t)


def hooked():
    module = nn.Sequential(nn.Linear(5, 2))
    module[0].register_forward_hook(lambda layer, inputs, out: 2.0 * out)
    return module


def tied():
    shared = nn.Linear(5, 5)
    return nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(5, 2))


def tied_weight():
    module = nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 5), nn.Linear(5, 2))
    module[2].weight = module[0].weight
    return module


def frozen():
    module = nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 2))
    module[0].requires_grad_(False)
    return module


def patched():
    module = nn.Sequential(nn.Linear(5, 2))
    module[0].forward = lambda a: a[:, :2] * module[0].weight.sum()
    return module


@pytest.mark.parametrize(
    "make",
    [
        hooked,
        tied,
        tied_weight,
        frozen,
        patched,
        lambda: nn.Sequential(nn.ReLU(), nn.Linear(5, 2)),
        lambda: nn.Sequential(nn.Linear(5, 2), nn.ReLU(), nn.Tanh()),
        lambda: nn.Sequential(nn.Linear(5, 2), nn.GELU()),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 2)),
    ],
)
def test_what_only_looks_like_a_stack_goes_row_by_row(make):
    module = make().double()
    model = as_model(module, 5, 2, "cpu")
    assert isinstance(model, TorchModel)
    records, cotangents, beside = data(5)
    total, _ = model.clipped(slope(model, model.start, records, cotangents), beside, np.inf)
    module.zero_grad()
    (module(torch.tensor(records)) * torch.tensor(cotangents)).sum().backward()
    free = [p for p in module.parameters() if p.requires_grad]
    batch = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in free]).numpy()
    np.testing.assert_allclose(total, batch, atol=1e-10)


def test_rows_are_formed_in_groups_of_bounded_size(monkeypatch):
    """However many records there are: group after group, of as many rows as fit."""
    model = resnet((8, 8, 1), 4, 1, 1, 0)
    assert model.group * model.row <= rows_of._CELLS["cpu"] < (model.group + 1) * model.row
    assert model.row >= 2 * model.p
    small = TorchModel(model.module, 64, 1, model.start, rows_of._CELLS["cpu"] // 3)
    sizes, plain = [], rows_of._told

    def told(oracle, records, *rest):
        sizes.append(len(records))
        return plain(oracle, records, *rest)

    monkeypatch.setattr(rows_of, "_told", told)
    rng = np.random.default_rng(0)
    records, cotangents, beside = rng.normal(size=(8, 64)), rng.normal(size=(8, 1)), np.zeros((8, 0))
    at, there = (slope(small, w, records, cotangents) for w in (small.start, small.start + 0.1))
    total, factors = small.clipped(at, beside, 0.5)
    small.clipped_change(at, there, beside, 0.5)
    assert set(sizes) == {3, 2}
    here = slope(model, model.start, records, cotangents)
    np.testing.assert_allclose(total, model.clipped(here, beside, 0.5)[0], atol=1e-12)
    assert factors.shape == (8,)


@contextlib.contextmanager
def most_held():
    """The largest tensor, in numbers, that torch makes meanwhile."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        most = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for held in out if isinstance(out, tuple | list) else [out]:
                if isinstance(held, torch.Tensor):
                    self.most = max(self.most, held.numel())
            return out

    with Watch() as watch:
        yield watch


def test_a_stack_forms_no_row():
    """Every tensor is of the size of the records, of the layers' outputs, or of the weights."""
    model = mlp(100, (80, 60), 1, 0)
    rng = np.random.default_rng(0)
    records, cotangents = rng.normal(size=(50, 100)), rng.normal(size=(50, 1))
    with most_held() as watch:
        at, there = (slope(model, w, records, cotangents) for w in (model.start, model.start + 0.1))
        model.clipped(at, np.zeros((50, 0)), 0.5)
        model.clipped_change(at, there, np.zeros((50, 0)), 0.5)
    assert watch.most == model.p < 50 * model.p / 10
    assert model.cells < 1000 < model.p


def test_models_compute_in_float64_and_leave_torch_as_it_was():
    threads = torch.get_num_threads()
    model = mlp(3, (4,), 1, 0)
    records = np.random.default_rng(0).normal(size=(5, 3))
    records.setflags(write=False)
    out, tape = model.forward(model.start, records)
    assert out.dtype == np.float64
    assert all(a.dtype == torch.float64 for a in tape.seen)
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CASES)
def test_a_device_gives_the_same_sums(name):
    _, model, d = case(name)
    device = case(name, "cuda")[1]
    records, cotangents, beside = data(d)
    records[3] = np.nan
    x = np.random.default_rng(2).normal(size=model.p)
    pairs = []
    for m in (model, device):
        here, there = (slope(m, at, records, cotangents) for at in (x, x - 1e-6))
        pairs.append((m.clipped(here, beside, 0.5), m.clipped_change(here, there, 1e-6 * beside, 1e-6)))
    for (a, s), (b, t) in zip(*pairs, strict=True):
        np.testing.assert_allclose(s, t, rtol=1e-6)
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(a).max())


def test_models_by_name():
    image = (8, 8, 3)
    assert build_model(None, 5, 2, None, 0, "cpu").p == 12
    assert build_model({"kind": "linear"}, 5, 2, None, 0, "cpu").p == 12
    assert build_model({"kind": "mlp", "hidden": [4, 3]}, 5, 2, None, 0, "cpu").p == 24 + 15 + 8
    small, wide = (
        build_model({"kind": "resnet", **more}, 192, 2, image, 0, "cpu") for more in ({}, {"width": 32, "depth": 2})
    )
    assert small.p < 80_000 < 300_000 < wide.p
    assert small.forward(small.start, np.zeros((3, 192)))[0].shape == (3, 2)
