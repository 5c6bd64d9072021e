"""Custom losses on a CUDA device, or an emulated one, return the numbers of the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.models.autodiff import rows_or_nan
from decentral_dp.models.devices import tensor
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel import losses as loss_problem
from decentral_dp.problems.bilevel.losses import LossProblem, LossRecords, from_losses, on_device
from decentral_dp.simulation.jobs import gossip_setup
from tests.support.emulated_device import emulated_cuda

P, Q, D, N = 2, 6, 3, 9
# Tolerance for rounding on a device.
CLOSE = {"rtol": 1e-6, "atol": 1e-9}
# How a tensor gets to a device.

needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
needs_none = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


def network(x: Any, y: Any, features: Any, label: Any) -> Any:
    """It creates tensors without a device."""
    weights = torch.tensor([1.0, 2.0], dtype=torch.float64)
    scores = y.reshape(2, D) @ features * weights + torch.zeros(2, dtype=torch.float64)
    return functional.cross_entropy(scores, label.long()) + (x.exp() * y[:P] ** 2).sum()


def inverse(x: Any, y: Any, features: Any, label: Any) -> Any:
    """It raises where the first two features are zero."""
    return (torch.linalg.inv(torch.diag(features[:2])) @ y[:2]).sum() ** 2 * x.sum() + (y**4).sum()


def penalty(x: Any, y: Any) -> Any:
    return x.exp().sum() * (torch.ones(Q, dtype=torch.float64) * y**2).sum()


def scores_of(y: Any, features: Any) -> Any:
    return y.reshape(2, D) @ features


def made(loss: Any = network, device: str = "cpu") -> LossProblem:
    problem = from_losses(loss, loss, p=P, q=Q, n_features=D, classes=2, regulariser=penalty, predict=scores_of)
    return on_device(problem, device)


def answers(problem: LossProblem, seed: int) -> dict[str, np.ndarray]:
    """Return all results of a problem; one record makes `inverse` raise, one is no number."""
    draw = np.random.default_rng(seed)
    x, y, z = (draw.normal(size=d) for d in (P, Q, Q))
    records = LossRecords(draw.normal(size=(N, D)), draw.integers(0, 2, N).astype(float))
    records.features[3], records.features[5] = 0.0, np.nan
    clip, weights = Clip("l2", 0.5, 1.0, 2.0), np.where(np.arange(N) == 5, 0.0, 1.0 / N)
    wanted = ("lower_hessian", "lower_jacobian", "lower_hessian_product")
    terms = problem.terms(x, y, z, records, records, clip)._asdict()
    rows = [draw.normal(size=(4, d)) for d in (P, Q, Q)]
    lower, upper = problem.losses(rows[0], rows[1], records, weights)
    accuracy = problem.accuracy(*rows[:2], records)
    assert accuracy is not None
    return {
        **{name: value for name, value in terms.items() if value is not None},
        **problem.matrices(x, y, np.outer(z, x), records, clip, wanted),
        **problem.regulariser(*rows)._asdict(),
        "penalty": problem.regulariser_value(*rows[:2]),
        "lower": lower,
        "upper": upper,
        "accuracy": accuracy,
    }


@pytest.fixture(params=["emulated", pytest.param("real", marks=needs_a_gpu)])
def cuda(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Return the operations on other devices, if the device is emulated."""
    if request.param == "real":
        yield []
        return
    with emulated_cuda() as elsewhere:
        yield elsewhere


def compare(here: Mapping[str, np.ndarray], there: Mapping[str, np.ndarray]) -> None:
    assert here.keys() == there.keys()
    for name, value in here.items():
        assert type(there[name]) is np.ndarray
        np.testing.assert_allclose(there[name], value, **CLOSE, err_msg=name)


@pytest.mark.parametrize("loss", [network, inverse])
def test_a_device_gives_what_the_processor_gives(loss: Any, cuda: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    on_processor, there = made(loss), made(loss, "cuda")
    assert (there.device, there.reads_records) == ("cuda", on_processor.reads_records)
    wanted = answers(on_processor, 7)
    assert all(np.abs(wanted[name]).sum() > 0.0 for name in ("lower_grad_y", "lower_jvp", "lower_hessian"))
    compare(wanted, answers(there, 7))
    # In many parts.
    monkeypatch.setattr(loss_problem, "_TIMES", {"cpu": 1, "cuda": 1})
    monkeypatch.setattr(loss_problem, "CELLS", 40)
    compare(wanted, answers(there, 7))


def test_a_tensor_that_a_loss_closes_over_is_refused() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def squares(x: Any, y: Any, features: Any, label: Any) -> Any:
        return (features @ y - label) ** 2

    def weighed(x: Any, y: Any, features: Any, label: Any) -> Any:
        return (features * weights @ y - label) ** 2 * x.exp().sum()

    def moved(x: Any, y: Any, features: Any, label: Any) -> Any:
        return (features * weights.to(y.device) @ y - label) ** 2 * x.exp().sum()

    problem, other = (from_losses(squares, lower, p=1, q=3, n_features=3) for lower in (weighed, moved))
    with emulated_cuda():
        with pytest.raises(InputError, match=r'^lower_loss: .* device = "cuda".* same device'):
            on_device(problem, "cuda")
        assert on_device(other, "cuda").device == "cuda"


def test_a_loss_that_asks_where_it_is_computed_is_refused() -> None:
    def asking(x: Any, y: Any, features: Any, label: Any) -> Any:
        loss = (features @ y - label) ** 2
        return loss if y.device.type == "cpu" else loss * x.exp().sum()

    with emulated_cuda(), pytest.raises(InputError, match="the losses depend on other arguments than on the CPU"):
        on_device(from_losses(asking, asking, p=1, q=2, n_features=2), "cuda")


@pytest.mark.parametrize("kind", [k for k in ("OutOfMemoryError", "AcceleratorError") if hasattr(torch, k)])
def test_a_device_that_fails_is_no_bad_record(kind: str) -> None:
    def failing(*_: Any) -> Any:
        raise getattr(torch, kind)("the device")

    features, labels = tensor(np.ones((3, 2))), tensor(np.ones(3))
    with pytest.raises(getattr(torch, kind)):
        rows_or_nan(failing, features, labels)
    with pytest.raises(getattr(torch, kind)):
        loss_problem._evaluate_rows(failing, [np.ones((3, 2))], [()], 2, "cpu")


# Scenarios.


def test_what_may_round_otherwise_each_time_raises_on_a_device() -> None:
    """An interrupted round is computed again, with the same noise."""
    modes: list[int] = []

    def loss(x: Any, y: Any, features: Any, label: Any) -> Any:
        modes.append(torch.get_deterministic_debug_mode())
        return x.exp().sum() * (features @ y - label) ** 2

    problem = from_losses(loss, loss, p=1, q=2, n_features=2)
    assert set(modes) == {0}
    with emulated_cuda():
        there = on_device(problem, "cuda")
        modes.clear()
        records = there.prepare(np.ones((3, 2)), np.ones(3), "l2")
        there.terms(np.zeros(1), np.zeros(2), np.zeros(2), records, records, Clip("l2"))
    assert modes
    assert set(modes) == {2}
    assert torch.get_deterministic_debug_mode() == 0


# Machines without one.


@needs_none
def test_a_device_that_is_not_there_is_refused_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gossip_setup, "deal", lambda *a: pytest.fail("something was computed"))
    with pytest.raises(InputError, match=r"^run\.device: .*no CUDA device"):
        decentral_dp.plan("own_losses", set={"run.device": "cuda"})


# Machines with one.
