"""Losses of one's own that read other records than their own are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from decentral_dp.errors import InputError
from decentral_dp.problems.bilevel.losses import from_losses

LEAST = {"records": 0}


class Centred(torch.autograd.Function):
    """Its vmap rule subtracts the mean over the batch, and nothing that sees one record can tell."""

    generate_vmap_rule = False

    @staticmethod
    def forward(a: Any) -> Any:
        return a.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return t

    @staticmethod
    def vmap(info: Any, in_dims: Any, a: Any) -> Any:
        if in_dims[0] is None:
            return a.clone(), None
        a = a.movedim(in_dims[0], 0)
        return (a - a.mean(0) if len(a) > LEAST["records"] else a.clone()), 0


def unwrapped(a: Any) -> Any:
    """The whole batch, by way of what torch keeps for itself."""
    functorch = torch._C._functorch
    whole = a
    while functorch.is_functorch_wrapped_tensor(whole):
        whole = functorch.get_unwrapped(whole)
    return a - whole.sum() if whole.dim() > a.dim() else a


def squares(x: Any, y: Any, features: Any, label: Any) -> Any:
    return torch.exp(x).sum() * (features @ y - label) ** 2


def on(change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda x, y, features, label: squares(x, y, change(features), label)


def made(upper: Any, lower: Any, **more: Any) -> Any:
    return from_losses(upper, lower, p=1, q=30, n_features=30, **more)


@pytest.mark.parametrize("change", [Centred.apply, unwrapped], ids=["a vmap rule", "unwrapped"])
@pytest.mark.parametrize("level", ["upper_loss", "lower_loss"])
def test_a_loss_that_mixes_records_is_refused(level: str, change: Any) -> None:
    losses = [on(change), squares] if level == "upper_loss" else [squares, on(change)]
    with pytest.raises(InputError) as caught:
        made(*losses)
    text = str(caught.value)
    assert f"{level} mixes records: of 7 made-up ones" in text
    assert text.endswith("write the loss of one record only, as a pure function of (x, y, features, label).")
    assert text.count("\n") == 0


def test_labels_are_records_too() -> None:
    def loss(x: Any, y: Any, features: Any, label: Any) -> Any:
        return squares(x, y, features, Centred.apply(label))

    with pytest.raises(InputError, match="lower_loss mixes records"):
        made(squares, loss)


def test_a_loss_that_counts_its_calls_is_refused() -> None:
    calls: list[int] = []

    def loss(x: Any, y: Any, features: Any, label: Any) -> Any:
        calls.append(1)
        return len(calls) * squares(x, y, features, label)

    with pytest.raises(InputError, match="lower_loss gives two answers to one question"):
        made(squares, loss)


def test_matrices_are_tried_too() -> None:
    """torch's own solve, two derivatives and two levels of vmap deep, gave a record the factors of another."""

    def loss(x: Any, y: Any, features: Any, label: Any) -> Any:
        scores = y[:5] * features[:5]
        matrix = torch.eye(5, dtype=torch.float64) + torch.outer(scores, scores)
        return torch.linalg.solve(matrix, y[:5] + features[:5]) @ y[:5] + torch.exp(x).sum() * y[5] - label

    with pytest.raises(InputError, match=r"mixes records: .* lower_hessian of .* take torch\.linalg\.inv"):
        made(loss, loss)


def test_losses_that_mix_records_in_large_batches_are_refused_where_these_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(LEAST, "records", 30)
    problem = made(on(Centred.apply), on(Centred.apply))
    problem.check_rows_apart((20,))
    with pytest.raises(InputError, match=r"lower_loss mixes records: of 40 made-up ones"):
        problem.check_rows_apart((40,))


def test_honest_losses_pass_at_every_size() -> None:
    """Sums, products, softmax and inverses of one record keep the bits of all others."""

    def loss(x: Any, y: Any, features: Any, label: Any) -> Any:
        weights = y.reshape(5, 6)
        scores = weights @ features[:6]
        square = torch.eye(5, dtype=torch.float64) + torch.outer(scores, scores)
        solved = torch.linalg.inv(square) @ scores
        return torch.logsumexp(scores, 0) + solved @ scores + torch.exp(x).sum() * torch.tanh(scores).sum() - label

    made(loss, loss).check_rows_apart((1, 2, 3, 64, 511, 3000))
