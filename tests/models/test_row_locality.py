"""Row locality: the test itself, and custom modules that mix records or have hooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decentral_dp.errors import InputError
from decentral_dp.models.build import ModelTable, build_model
from decentral_dp.models.module import TorchModel
from decentral_dp.models.protocol import Slope
from decentral_dp.models.row_locality import COUNTS, RowDependence, row_dependence, trials
from decentral_dp.user_code import component


def found(rows: Any, counts: tuple[int, ...] = COUNTS, width: int = 3, classes: int = 0) -> RowDependence | None:
    return row_dependence(lambda a, b: {"rows": rows(a, b)}, trials(counts, width, classes))


def test_rows_of_one_record_pass() -> None:
    weights = np.random.default_rng(0).normal(size=(3, 4))
    assert found(lambda a, b: np.exp(a @ weights) * b[:, None]) is None
    assert found(lambda a, b: a @ weights, counts=(500,)) is None
    # NaN that depends on one record only is valid.
    assert found(lambda a, b: np.log(a)) is None


MIXING = {
    "a mean": lambda a, b: a - a.mean(axis=0),
    "one bit of a mean": lambda a, b: a * (1.0 + 1e-15 * np.sign(a.sum())),
    "the first record": lambda a, b: a + a[:1],
    "a label": lambda a, b: a + (b == b[0])[:, None] * 1.0,
}


@pytest.mark.parametrize("case", MIXING)
def test_rows_that_read_other_records_are_found(case: str) -> None:
    moved = found(MIXING[case])
    assert moved is not None
    assert moved.place is not None
    assert moved.row != moved.place
    assert "mixes records" in moved.text


def test_mixing_in_large_batches_alone_is_found_where_they_are_tried() -> None:
    def rows(a: Any, b: Any) -> Any:
        return a - a.mean(axis=0) if len(a) > 30 else a

    assert found(rows) is None
    assert found(rows, counts=(40,)) is not None


def test_what_counts_its_calls_is_found() -> None:
    calls = []

    def rows(a: Any, b: Any) -> Any:
        calls.append(1)
        return a * len(calls)

    moved = found(rows)
    assert moved is not None
    assert moved.place is None
    assert "two results" in moved.text


# Modules from files.

HEAD = """
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, weight_norm


class Mean(torch.autograd.Function):
    # Subtracts the mean of a batch only under vmap; evaluations on a batch and on one record do not show it.
    generate_vmap_rule = False
    least = 0

    @staticmethod
    def forward(a):
        return a.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return Mean.apply(g)

    @staticmethod
    def vmap(info, in_dims, a):
        a = a.movedim(in_dims[0], 0)
        return a - a.mean(0) if len(a) > Mean.least else a.clone(), 0


class Backward(Mean):
    # Subtracts it only from the gradient.
    @staticmethod
    def vmap(info, in_dims, a):
        return Backward.apply(a), in_dims[0]


class Net(nn.Module):
    def __init__(self, n_features, outputs):
        super().__init__()
        self.first, self.last = nn.Linear(n_features, 8), nn.Linear(8, outputs)

    def forward(self, a):
        return self.last(self.inner(torch.tanh(self.first(a))))

    def inner(self, h):
        return h


class Sign(nn.Module):
    def forward(self, w):
        return w + 0.5 * w.abs()


def build(n_features, outputs):
    net = Net(n_features, outputs)
"""


def load(folder: Path, *lines: str) -> TorchModel:
    body = "".join(f"    {line}\n" for line in (*lines, "return net"))
    (folder / "net.py").write_text(HEAD + body, encoding="utf-8")
    module = component("net:build", [folder], "problem.model")
    model: Any = build_model(ModelTable(kind="net:build"), 5, 2, None, 0, "cpu", module)
    return model


VMAP_RULES = {
    "forwards": "net.inner = Mean.apply",
    "backwards": "net.inner = Backward.apply",
    "unwrapped": "net.inner = lambda h: h - (torch._C._functorch.get_unwrapped(h).sum() "
    "if torch._C._functorch.is_batchedtensor(h) else 0.0)",
}


@pytest.mark.parametrize("case", VMAP_RULES)
def test_a_module_that_mixes_records_under_vmap_is_refused(tmp_path: Path, case: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, VMAP_RULES[case])
    text = str(caught.value)
    assert "net:build" in text
    assert any(told in text for told in ("other records of its batch", "gradients of torch.func"))
    assert text.count("\n") == 0


@pytest.mark.parametrize(("name", "term"), [("Mean", "the output"), ("Backward", "the gradient")])
def test_a_module_is_tried_for_as_many_records_as_there_are(tmp_path: Path, name: str, term: str) -> None:
    model = load(tmp_path, f"net.inner = {name}.apply", "Mean.least = 30")
    assert isinstance(model, TorchModel)
    model.check_rows_apart((20,))
    with pytest.raises(InputError, match=f"mixes records: of 40 synthetic ones, {term} of number"):
        model.check_rows_apart((40,))


REFUSED_HOOKS = [
    "net.first.register_full_backward_hook(lambda m, i, o: None)",
    "net.last.register_full_backward_pre_hook(lambda m, o: None)",
    "net.first.weight.register_hook(lambda g: 7 * g)",
]


@pytest.mark.parametrize("line", REFUSED_HOOKS)
def test_hooks_on_gradients_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"torch\.func|functorch"):
        load(tmp_path, line)


HONOURED = {
    "a forward hook": "net.first.register_forward_hook(lambda m, i, o: 2.0 * o)",
    "a forward pre-hook": "net.last.register_forward_pre_hook(lambda m, i: (3.0 * i[0],))",
    "a hook on an activation": "net.inner = lambda h: (h.register_hook(lambda g: 3.0 * g), h)[1] "
    "if h.requires_grad else h",
    "a parametrization": "parametrize.register_parametrization(net.first, 'weight', Sign())",
    "weight norm": "parametrizations.weight_norm(net.first)",
    "weight norm by a hook": "weight_norm(net.last)",
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("case", HONOURED)
def test_what_belongs_to_the_forward_pass_is_honoured(tmp_path: Path, case: str) -> None:
    """A clipped sum is the gradient of the module with its hooks and parametrizations."""
    model = load(tmp_path, HONOURED[case])
    assert isinstance(model, TorchModel)
    rng = np.random.default_rng(0)
    records, cotangents = rng.random((4, 5)), rng.normal(size=(4, 2))
    outputs, tape = model.forward(model.start, records)
    total, _ = model.clipped_sum(Slope(tape, cotangents), np.zeros((4, 0)), np.inf)
    out = model.module(torch.tensor(records))
    np.testing.assert_allclose(outputs, out.detach().numpy(), rtol=1e-12)
    plain = torch.autograd.grad((out * torch.tensor(cotangents)).sum(), list(model.module.parameters()))
    np.testing.assert_allclose(total, np.concatenate([g.numpy().ravel() for g in plain]), rtol=1e-9, atol=1e-12)
