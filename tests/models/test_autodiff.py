"""Captured graphs: identical bits, no values of records, and the exceptions of the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import decentral_dp
from decentral_dp.models import autodiff
from decentral_dp.models.autodiff import PATIENCE, Captured, capture, columns, directions, over_grid, quiet_torch
from decentral_dp.models.devices import tensor
from decentral_dp.problems.bilevel.losses import from_losses

P, Q, D, N = 3, 12, 4, 7
softplus = torch.nn.functional.softplus


def logistic(x: Any, y: Any, features: Any, label: Any) -> Any:
    return softplus(-(2.0 * label - 1.0) * (features @ y[:D])) + (x.exp() * y[:P] ** 2).sum()


def network(x: Any, y: Any, features: Any, label: Any) -> Any:
    hidden = torch.tanh(y.reshape(3, D) @ features + x)
    return torch.nn.functional.cross_entropy(hidden, label.long())


def inverse(x: Any, y: Any, features: Any, label: Any) -> Any:
    return (torch.linalg.inv(torch.outer(features, features) + torch.eye(D).double()) @ y[:D]).sum() ** 2 * x.sum()


def changes_its_own(x: Any, y: Any, features: Any, label: Any) -> Any:
    squares = y[:D] * features
    squares[0] *= 2.0
    return squares.add_(1.0).pow(2).sum() + x.sum() * y.sum()


def closes_over(x: Any, y: Any, features: Any, label: Any) -> Any:
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    return torch.log1p((weights * features * y[:D]).square().sum()) * x.sum()


LOSSES = [logistic, network, inverse, changes_its_own, closes_over]


def rows_of(loss: Callable[..., Any]) -> Callable[..., dict[str, torch.Tensor]]:
    def per_record(x: Any, y: Any, z: Any, *record: Any) -> dict[str, Any]:
        units = torch.eye(Q, dtype=torch.float64)
        whole = columns(loss, x, y, units, *record)
        return directions(loss, x, y, z, *record)._asdict() | {"hessian": whole.hvp}

    rows = torch.func.vmap(per_record, in_dims=(None, None, None, 0, 0))
    grid = over_grid(loss, 2)
    return lambda x, y, z, *r: rows(x, y, z, *r) | {"value": grid(x[None], y[None], *r)[0]}


def arguments(seed: int, n: int = N) -> tuple[torch.Tensor, ...]:
    draw = np.random.default_rng(seed)
    labels = torch.as_tensor(draw.integers(0, 2, n))
    return (*(tensor(draw.normal(size=s)) for s in ((P,), (Q,), (Q,), (n, D))), labels)


def same(here: Any, there: Any) -> None:
    assert list(here) == list(there)
    for name in here:
        np.testing.assert_array_equal(here[name].numpy(), there[name].numpy(), err_msg=name)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_a_graph_gives_the_bits_of_the_function(loss: Any) -> None:
    function = rows_of(loss)
    with quiet_torch():
        graph = capture(function, arguments(0))
        assert graph is not None
        assert graph is not function
        for seed in range(5):
            same(graph(*arguments(seed)), function(*arguments(seed)))
        huge = tuple(a * 1e200 if a.is_floating_point() else a for a in arguments(1))
        same(graph(*huge), function(*huge))


def test_the_function_is_not_called_any_more_once_its_shapes_recurred() -> None:
    calls = 0

    def function(x: torch.Tensor) -> dict[str, torch.Tensor]:
        nonlocal calls
        calls += 1
        return {"square": x * x}

    captured = Captured(function)
    for _ in range(PATIENCE + 1):
        captured(tensor(np.arange(3.0)))
    before = calls
    assert captured(tensor(np.arange(3.0)))["square"].tolist() == [0.0, 1.0, 4.0]
    assert calls == before
    captured(tensor(np.arange(4.0)))
    assert calls == before + 1


def test_what_is_captured_never_sees_a_record() -> None:
    """While it is captured, the function is called with synthetic numbers only."""
    given, seen = arguments(3), []

    def function(*some: torch.Tensor) -> dict[str, torch.Tensor]:
        seen.append(some)
        return {"sum": some[3].sum() + some[0].sum()}

    assert capture(function, given) is not None
    assert seen
    assert not any(torch.equal(a, b) for some in seen for a, b in zip(some[:4], given[:4], strict=True))


def test_a_function_that_no_graph_repeats_goes_on_being_called() -> None:
    def branches(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": x * 2.0 if float(x.sum()) > 1.0 else x * 3.0}

    captured = Captured(branches)
    for _ in range(PATIENCE + 3):
        assert captured(tensor(np.ones(3)))["out"].tolist() == [2.0] * 3
        assert captured(tensor(np.zeros(3) - 1.0))["out"].tolist() == [-3.0] * 3


def test_a_graph_with_another_rounding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit apart is apart."""
    compiled = autodiff._compile
    monkeypatch.setattr(
        autodiff, "_compile", lambda *a: lambda *x: {k: v * (1 + 2**-52) for k, v in compiled(*a)(*x).items()}
    )
    with quiet_torch():
        assert capture(rows_of(logistic), arguments(0)) is None


def test_a_singular_record_raises_from_the_graph_too() -> None:
    """TorchScript would drop the check, so the graph must be called in Python."""

    def singular(features: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"inverse": torch.func.vmap(lambda f: torch.linalg.inv(torch.outer(f, f) * 0.0 + f.diag()))(features)}

    graph = capture(singular, (tensor(np.ones((N, D))),))
    assert graph is not None
    same(graph(tensor(np.ones((N, D)))), singular(tensor(np.ones((N, D)))))
    with pytest.raises(RuntimeError, match="singular"):
        graph(tensor(np.eye(N, D)))


def test_a_graph_keeps_no_tape_of_a_module_that_its_function_holds() -> None:
    """A graph is called outside of `no_grad`; the module itself stays as it was."""
    layer = torch.nn.Linear(D, 1, dtype=torch.float64)
    given = (tensor(np.ones((N, D))),)
    captured = Captured(lambda features: {"out": layer(features)})
    for _ in range(PATIENCE + 1):
        captured(*given)
    (graph,) = captured._kept.values()
    assert isinstance(graph, torch.jit.ScriptFunction)
    found = captured(*given)["out"]
    assert not found.requires_grad
    np.testing.assert_array_equal(found.numpy(), layer(*given).detach().numpy())
    assert layer.weight.requires_grad


def test_a_run_releases_the_same_bits_with_graphs_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    step = {"scale": 0.1, "decay": 0.5}
    content: dict[str, Any] = {
        "seed": 1,
        "problem": {"kind": "from_losses", "data": "synthetic_classification", "normalise": "l2"},
        "topology": {"kind": "ring", "agents": 3},
        "algorithm": {"kind": "ldp_dsbo", "rounds": 6, "x": step, "y": step, "z": step},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "clip": {"x": 1.0, "y": 1.0, "z": 1.0}},
    }
    made = from_losses(network, network, p=P, q=Q, n_features=D, classes=2, regulariser=lambda x, y: x.exp().sum())
    content["problem"]["synthetic"] = {"dimension": D, "records": 10}
    seen = []
    for patience in (0, 10**9):
        monkeypatch.setattr(autodiff, "PATIENCE", patience)
        made._captures.clear()
        run = decentral_dp.run(decentral_dp.load(content), problem=made)
        seen.append(run)
    graphs, plain = seen
    assert graphs.state.keys() == plain.state.keys()
    assert graphs.state
    for name in graphs.state:
        np.testing.assert_array_equal(graphs.state[name], plain.state[name], err_msg=name)
