"""Clipped changes of per-record gradients between two points."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from decentral_dp.models.mlp import mlp
from tests.support.model_cases import CASES, ROOM, case, data, rows_at, slope, with_extra


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


def test_the_bias_of_the_first_layer_counts_for_a_record_of_zeros():
    """‖a‖‖δ‖ without the bias's 1 would be 0 in the first layer, and would let its gradient through whole."""
    model = mlp(4, (6,), 1, 0)
    black, cotangent = np.zeros((1, 4)), np.array([[3.0]])
    x = np.random.default_rng(0).normal(size=model.p)
    x[24:30], x[30:36] = 1.0, 5.0
    total, _ = model.clipped_sum(slope(model, x, black, cotangent), np.zeros((1, 0)), 1e-3)
    assert np.linalg.norm(total[24:30]) > 1e-4
    assert np.linalg.norm(total) <= 1e-3 * ROOM
    forgotten = 3.0 * math.hypot(1.0, np.linalg.norm(x[24:30]))
    assert np.linalg.norm(rows_at(relu_like(model), x, black, cotangent)) > 2.0 * forgotten
    before = x.copy()
    before[30:36] -= 1e-5
    here, there = (slope(model, at, black, cotangent) for at in (x, before))
    change, _ = model.clipped_sum(here, np.zeros((1, 0)), 1e-9, there)
    assert np.linalg.norm(change[24:30]) > 1e-10
    assert np.linalg.norm(change) <= 1e-9 * ROOM


def relu_like(model):
    first, hidden, last = model.widths
    return nn.Sequential(nn.Linear(first, hidden), nn.ReLU(), nn.Linear(hidden, last)).double()


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
    now, then = (slope(model, at, records, cotangents) for at in (x, before))
    _, factors = model.clipped_sum(now, none, bound, then)
    assert (factors * exact <= bound * (1.0 + 1e-11 + 1e-14 / step)).all()
    # The bound on the norm is near it.
    assert (factors * exact >= 0.6 * np.minimum(exact, bound)).all()
