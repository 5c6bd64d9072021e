"""Custom losses on a CUDA device, or an emulated one, return the numbers of the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError, Stopped
from decentral_dp.models.autodiff import PATIENCE, rows_or_nan
from decentral_dp.models.devices import tensor
from decentral_dp.models.row_locality import COUNTS, row_dependence, trials
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel import losses as loss_problem
from decentral_dp.problems.bilevel.losses import LossProblem, LossRecords, from_losses, on_device
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.jobs import build, gossip_setup
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

    with emulated_cuda(), pytest.raises(InputError, match="the losses depend on other arguments than on the processor"):
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


def small_run(device: str) -> dict[str, Any]:
    step = {"scale": 0.1}
    content: dict[str, Any] = {
        "seed": 1,
        "problem": {"kind": "from_losses", "data": "synthetic_classification", "normalise": "l2"},
        "topology": {"kind": "ring", "agents": 3},
        "algorithm": {"kind": "ldp_dsbo", "rounds": 2, "x": step, "y": step, "z": step},
        "privacy": {"guarantee": "none"},
        "run": {"device": device},
    }
    content["problem"]["synthetic"] = {"dimension": D, "records": 8, "test_records": 8}
    return content


def test_a_run_on_a_device_learns_what_one_on_the_processor_learns(cuda: list[str]) -> None:
    problem, states = made(), []
    for device in ("cpu", "cuda"):
        run = decentral_dp.run(small_run(device), problem=problem)
        assert run.simulation().problem.device == device
        states.append(run.state)
    assert any(np.abs(value).max() > 0.0 for value in states[0].values())
    compare(*states)


def test_a_run_that_was_cut_off_goes_on_on_the_same_device_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one might release the round under way with other last bits."""

    def cut(at: Progress) -> None:
        if at.done:
            raise KeyboardInterrupt

    problem = made()
    with emulated_cuda():
        with pytest.raises(Stopped):
            decentral_dp.run(small_run("cuda"), problem=problem, out=tmp_path / "run", callbacks=[cut])
        with monkeypatch.context() as there:
            there.setattr(torch.cuda, "get_device_name", lambda: "another device")
            with pytest.raises(InputError, match=r"begun with device an emulated device.* \(here another device"):
                decentral_dp.resume(tmp_path / "run", problem=problem)
        assert decentral_dp.resume(tmp_path / "run", problem=problem).result.status == "ok"


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


def test_a_device_costs_the_same_and_no_run_is_resumed_on_another(cuda: list[str]) -> None:
    """It rounds differently: repeated rounds would be a second release under the same noise."""
    text = {device: ["algorithm.rounds=3", f'run.device="{device}"'] for device in ("cpu", "cuda")}
    here, there = (build.build_job(load("own_losses", change)) for change in text.values())
    np.testing.assert_allclose(there.budget.epsilon, here.budget.epsilon, rtol=1e-12)
    assert build.run_digest(here) != build.run_digest(there)
    plans = [decentral_dp.plan(load("own_losses", change)) for change in text.values()]
    np.testing.assert_allclose(plans[1].epsilon, plans[0].epsilon, rtol=1e-12)


# Machines without one.


@needs_none
def test_a_device_that_is_not_there_is_refused_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gossip_setup, "deal", lambda *a: pytest.fail("something was computed"))
    with pytest.raises(InputError, match=r"^run\.device: .*no CUDA device"):
        decentral_dp.plan("own_losses", set={"run.device": "cuda"})


def test_a_device_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match=r'^from_losses: device: got "mps"'):
        made(device="mps")


# Machines with one.


@needs_a_gpu
def test_rows_keep_their_bits_on_a_gpu() -> None:
    """Assumption of proof 27, for typical losses."""
    there = made(device="cuda")
    draw = np.random.default_rng(3)
    point = [draw.normal(size=d) for d in (P, Q, Q)]
    for function in ("lower_loss", "upper_loss"):
        assert row_dependence(there._oracle(function, *point), tuple(trials(COUNTS, D, 2))) is None


@needs_a_gpu
def test_graphs_on_a_gpu_give_the_bits_of_the_function() -> None:
    used, fresh = made(device="cuda"), made(device="cuda")
    for turn in range(PATIENCE + 2):
        answers(used, turn)
    assert any(not isinstance(kept, int) for one in used._captures.values() for kept in one._kept.values())
    for name, value in answers(fresh, 100).items():
        np.testing.assert_array_equal(answers(used, 100)[name], value, err_msg=name)
