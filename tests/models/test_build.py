"""Gradients of tied and frozen parameters, memory of row groups, and devices."""

import numpy as np
import pytest
import torch
from torch import nn

from decentral_dp.models import module as rows_of
from decentral_dp.models.module import TorchModel, as_model
from decentral_dp.models.networks import network_model, residual_network
from tests.support.emulated_device import emulated_cuda
from tests.support.model_cases import CASES, case, data, slope


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


@pytest.mark.parametrize("make", [tied, tied_weight, frozen])
def test_shared_and_frozen_parameters_have_the_gradient_of_the_batch(make):
    module = make().double()
    model = as_model(module, 5, "cpu")
    records, cotangents, beside = data(5)
    total, _ = model.clipped_sum(slope(model, model.start, records, cotangents), beside, np.inf)
    module.zero_grad()
    (module(torch.tensor(records)) * torch.tensor(cotangents)).sum().backward()
    free = [p for p in module.parameters() if p.requires_grad]
    batch = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in free]).numpy()
    np.testing.assert_allclose(total, batch, atol=1e-10)


def test_rows_are_formed_in_groups_of_bounded_size(monkeypatch):
    """However many records there are: group after group, of as many rows as fit."""
    model = network_model(residual_network((8, 8, 1), 4, 1, 1, 0), 64)
    assert model.group * model.row <= rows_of._CELLS["cpu"] < (model.group + 1) * model.row
    assert model.row >= 2 * model.p
    small = TorchModel(model.module, 64, 1, model.start, rows_of._CELLS["cpu"] // 3)
    sizes, plain = [], rows_of.rows_or_nan

    def told(oracle, records, *rest):
        sizes.append(len(records))
        return plain(oracle, records, *rest)

    monkeypatch.setattr(rows_of, "rows_or_nan", told)
    rng = np.random.default_rng(0)
    records, cotangents, beside = rng.normal(size=(8, 64)), rng.normal(size=(8, 1)), np.zeros((8, 0))
    at, there = (slope(small, w, records, cotangents) for w in (small.start, small.start + 0.1))
    total, factors = small.clipped_sum(at, beside, 0.5)
    small.clipped_sum(at, beside, 0.5, there)
    assert set(sizes) == {3, 2}
    here = slope(model, model.start, records, cotangents)
    np.testing.assert_allclose(total, model.clipped_sum(here, beside, 0.5)[0], atol=1e-12)
    assert factors.shape == (8,)


def sums_of(model, d):
    """Clipped sums, and of changes; one record is no number."""
    records, cotangents, beside = data(d)
    records[3] = np.nan
    x = np.random.default_rng(2).normal(size=model.p)
    here, there = (slope(model, at, records, cotangents) for at in (x, x - 1e-6))
    return model.clipped_sum(here, beside, 0.5), model.clipped_sum(here, 1e-6 * beside, 1e-6, there)


def same_sums(wanted, found):
    for (a, s), (b, t) in zip(wanted, found, strict=True):
        np.testing.assert_allclose(s, t, rtol=1e-6)
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(a).max())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CASES)
def test_a_device_gives_the_same_sums(name):
    _, model, d = case(name)
    same_sums(sums_of(model, d), sums_of(case(name, "cuda")[1], d))


# Convolutions of an emulated device have no kernels.
@pytest.mark.parametrize("name", [name for name in CASES if name != "resnet"])
def test_an_emulated_device_gives_the_same_sums_and_nothing_is_computed_elsewhere(name):
    _, model, d = case(name)
    wanted = sums_of(model, d)
    with emulated_cuda() as elsewhere:
        there = case(name, "cuda")[1]
        elsewhere.clear()
        same_sums(wanted, sums_of(there, d))
        assert set(elsewhere) <= {"aten.lift_fresh.default", "aten.detach.default"}
