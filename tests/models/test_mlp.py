"""Clipped per-example gradients of models, compared with loops over records in plain autograd."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from decentral_dp.models import module as rows_of
from decentral_dp.models.mlp import Mlp, mlp
from decentral_dp.models.module import TorchModel, as_model
from decentral_dp.models.protocol import Slope
from tests.support.model_cases import CASES, ROOM, case, data, drawn, rows_at, slope, with_extra


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_size(name):
    oracle, model, d = case(name)
    records, _, _ = data(d)
    x = nn.utils.parameters_to_vector(oracle.parameters()).detach().numpy()
    assert (model.p, model.outputs, model.start.shape) == (x.size, 2, x.shape)
    with torch.no_grad():
        np.testing.assert_allclose(model.forward(x, records)[0], oracle(torch.tensor(records)).numpy(), atol=1e-12)
    assert model.forward(x, records, keep=False)[1] is None
    assert isinstance(model, Mlp if name == "mlp" else TorchModel)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bound", [0.0, 1e-9, 0.5, 3.0, np.inf])
def test_clipped_sums(name, bound):
    oracle, model, d = case(name)
    records, cotangents, beside = data(d)
    x = np.random.default_rng(2).normal(size=model.p) * 0.7
    total, factors = model.clipped_sum(slope(model, x, records, cotangents), beside, bound)
    rows = rows_at(oracle, x, records, cotangents)
    norms = with_extra(rows, beside)
    expected = np.minimum(1.0, bound / norms)
    np.testing.assert_allclose(factors, expected, rtol=1e-10)
    np.testing.assert_allclose(total, expected @ rows, rtol=1e-9, atol=1e-12 * min(bound, 10.0))
    assert (factors * norms <= bound * ROOM).all()


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
    """The contribution of a record, with extra coordinates, at any weights and scales of records and cotangents."""
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
            model.clipped_sum(here, beside[one], bound),
            model.clipped_sum(here, beside[one], bound, there),
        ):
            whole = np.concatenate([total, factor[0] * beside[k]])
            assert np.linalg.norm(whole) <= bound * ROOM
            assert 0.0 <= factor[0] <= 1.0


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e200])
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
            total, factors = model.clipped_sum(here, spoilt["beside"], bound)
            change, others = model.clipped_sum(here, spoilt["beside"], bound, there)
        if not (name == "resnet" and where == "record" and bad == 1e200):
            # Group normalisation takes any finite image.
            assert factors[2] == others[2] == 0.0 or (math.isfinite(bad) and bound > 0.0)
        if factors[2] == 0.0:
            here = slope(model, x, records[rest], cotangents[rest])
            there = slope(model, before, records[rest], cotangents[rest])
            kept, _ = model.clipped_sum(here, beside[rest], bound)
            np.testing.assert_allclose(total, kept, atol=1e-10)
            if others[2] == 0.0:
                sensitivity, _ = model.clipped_sum(here, beside[rest], bound, there)
                np.testing.assert_allclose(change, sensitivity, atol=1e-10)
        assert np.isfinite(total).all()
        assert np.isfinite(change).all()


def test_a_record_whose_evaluation_raises_counts_as_nothing():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Embedding(4, 2)

        def forward(self, a):
            return self.rows(a[:, 0].long())

    model = as_model(Table().double(), 1, "cpu")
    ids = np.array([[1.0], [9.0], [3.0]])
    one_pass = model.clipped_loss_sum(model.start, ids, lambda indices, _: np.eye(3, 2)[indices] + 1.0, 10.0)
    np.testing.assert_array_equal(one_pass, [0, 0, 2, 1, 0, 0, 1, 1])
    at = slope(model, model.start, np.array([[1.0], [9.0], [3.0]]), np.ones((3, 2)))
    total, factors = model.clipped_sum(at, np.zeros((3, 0)), 10.0)
    np.testing.assert_array_equal(factors, [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(total, [0, 0, 1, 1, 0, 0, 1, 1])
    alone = slope(model, model.start, np.array([[9.0]]), np.ones((1, 2)))
    np.testing.assert_array_equal(model.clipped_sum(alone, np.zeros((1, 0)), 10.0)[0], 0.0)
    assert np.isnan(model.forward(model.start, np.array([[9.0]]))[0]).all()


@pytest.mark.parametrize("name", CASES)
def test_no_records(name):
    _, model, d = case(name)
    records, cotangents, beside = data(d, n=0)
    at = slope(model, model.start, records, cotangents)
    for total, factors in (model.clipped_sum(at, beside, 1.0), model.clipped_sum(at, beside, 1.0, at)):
        np.testing.assert_array_equal(total, np.zeros(model.p))
        assert factors.shape == (0,)


def convolutions():
    layers = nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2, bias=False), nn.Flatten()
    return nn.Sequential(nn.Unflatten(1, (1, 4, 4)), *layers, nn.Linear(4, 2))


def attention():
    encoder = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (4, 4)), encoder, nn.Flatten(), nn.Linear(16, 2))


class Constant(nn.Module):
    """A module whose outputs do not depend on the record."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([0.3, -0.4]))

    def forward(self, a):
        return self.bias.expand(len(a), -1)


MODULES = {"cnn": (convolutions, 16), "attention": (attention, 16), "constant": (Constant, 16), **CASES}
MODULES.pop("mlp")


@pytest.mark.parametrize(
    ("name", "is_wrong"), [(name, False) for name in MODULES] + [(name, True) for name in ("cnn", "attention", "torch")]
)
def test_one_pass_sums_the_clipped_gradients_of_a_loss(name, is_wrong, monkeypatch):
    """A loop over records in plain autograd, and a planted error: cotangents of another record of the group."""
    make, d = MODULES[name]
    module = drawn(make(), 1)
    model = replace(as_model(module, d, "cpu"), row=rows_of._CELLS["cpu"] // 3)
    assert model.group == 3
    records, targets, _ = data(d, 7)
    rule = rows_of._Cotangents.vmap
    if is_wrong:
        monkeypatch.setattr(rows_of._Cotangents, "vmap", lambda *args: (rule(*args)[0].roll(1, 0), 0))

    def slopes(indices, outputs):
        return np.tanh(outputs) - targets[indices]

    rows = []
    for record, target in zip(torch.tensor(records), torch.tensor(targets), strict=True):
        out = module(record[None])[0]
        rows.append(torch.autograd.grad(out, list(module.parameters()), torch.tanh(out.detach()) - target))
    rows = np.array([nn.utils.parameters_to_vector(row).numpy() for row in rows])
    norms = np.linalg.norm(rows, axis=1)
    for bound in (float(np.median(norms)), np.inf):
        got = model.clipped_loss_sum(model.start, records, slopes, bound)
        wanted = np.minimum(1.0, bound / norms) @ rows
        assert np.allclose(got, wanted, rtol=0.0, atol=1e-10) != is_wrong


@pytest.mark.parametrize("name", MODULES)
def test_no_record_adds_more_than_its_bound_in_one_pass(name):
    make, d = MODULES[name]
    model, draw = as_model(drawn(make(), 1), d, "cpu"), np.random.default_rng(8)
    clipped = 0
    for turn in range(30):
        record, slope = draw.normal(size=(1, d)) * 10.0 ** draw.integers(-8, 150), 10.0 ** draw.integers(-8, 150)
        x = model.start * 10.0 ** draw.integers(-2, 3)
        with np.errstate(all="ignore"):
            total = model.clipped_loss_sum(x, record, lambda _, out, size=slope: size * np.cos(out), 0.3)
        assert np.linalg.norm(total) <= 0.3 * ROOM, turn
        clipped += np.linalg.norm(total) > 0.3 / ROOM
    assert clipped > 3


def test_squares_that_underflow_let_nothing_through():
    """δ² is 0 in float64 here, and the gradient is ten times the bound."""
    model = Mlp((2, 2), np.zeros(6))
    records, cotangents = np.array([[1e150, 0.0]]), np.array([[1e-163, 1e-163]])
    at = slope(model, model.start, records, cotangents)
    assert np.linalg.norm(np.outer(cotangents, records)) > 1e-13
    assert np.linalg.norm(model.clipped_sum(at, np.zeros((1, 0)), 1e-14)[0]) <= 1e-14 * ROOM


# Changes between two points ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("step", [1.0, 1e-6, 1e-9])
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
    norms = with_extra(rows, beside)
    bound = share * float(np.median(norms))
    total, factors = model.clipped_sum(here, beside, bound, there)
    # Two gradients are known to 1e-15 of their size, and so is their difference.
    room = 1e-11 + 1e-14 / step
    assert (factors * norms <= bound * (1.0 + room)).all()
    assert (factors > 0.0).all()
    np.testing.assert_allclose(total, factors @ rows, atol=room * norms.sum())
    if name != "mlp" or share == np.inf:
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
    norms = with_extra(np.einsum("ni,nj->nij", cotangents - before, np.c_[records, np.ones(6)]).reshape(6, -1), beside)
    np.testing.assert_allclose(model.clipped_sum(here, beside, 0.7, there)[1], np.minimum(1.0, 0.7 / norms))
