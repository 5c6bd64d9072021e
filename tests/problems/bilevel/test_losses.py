"""`from_losses` against naive loops, finite differences and hand-written problems; what it refuses; what is free."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from decentral_dp.errors import InputError
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel import losses
from decentral_dp.problems.bilevel.losses import LossRecords, from_losses
from decentral_dp.problems.protocol import TERMS

INF = np.inf


def logistic(x, y, features, label):
    return -functional.logsigmoid((2 * label - 1) * (features @ y))


def everything(x, y, features, label):
    """Every derivative of it, in x and y, depends on the record."""
    return (
        torch.sin(features @ y * x[0]) + label * (y * y).sum() * torch.exp(x[1]) + torch.tanh(features @ x) * y[0] ** 3
    )


def numpy_everything(x, y, features, label):
    return np.sin(features @ y * x[0]) + label * (y * y).sum() * np.exp(x[1]) + np.tanh(features @ x) * y[0] ** 3


def curved(x, y):
    return torch.cos(x.sum() * y[0]) + (y**4).sum() * x[0]


@functools.cache
def shared():
    return from_losses(everything, everything, p=3, q=3, n_features=3, regulariser=curved)


def draw(seed, n, d, labels=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.integers(labels, size=n).astype(np.float64)


def naive_terms(upper, lower, x, y, z, train, validation, clip):
    """Compute gradients one record at a time by autograd, and clip them in numpy."""
    found = {term: [] for term in TERMS}
    for features, label in zip(*map(torch.tensor, train), strict=True):
        u, v = (torch.tensor(a, requires_grad=True) for a in (x, y))
        (slope,) = torch.autograd.grad(lower(u, v, features, label), v, create_graph=True)
        # The zero keeps the tape alive where the slope is constant.
        along = slope @ torch.tensor(z) + 0 * (u.sum() + v.sum())
        jvp, hvp = torch.autograd.grad(along, (u, v))
        found["lower_grad_y"].append(clipped(slope, clip.norm, clip.y))
        found["lower_hvp"].append(clipped(hvp, clip.norm, clip.z))
        found["lower_jvp"].append(clipped(jvp, clip.norm, clip.x))
    for features, label in zip(*map(torch.tensor, validation), strict=True):
        u, v = (torch.tensor(a, requires_grad=True) for a in (x, y))
        by_x, by_y = torch.autograd.grad(
            upper(u, v, features, label), (u, v), allow_unused=True, materialize_grads=True
        )
        found["upper_grad_y"].append(clipped(by_y, clip.norm, clip.z))
        found["upper_grad_x"].append(clipped(by_x, clip.norm, clip.x))
    return {term: np.mean(rows, axis=0) for term, rows in found.items()}


def clipped(row, norm, bound):
    row = row.detach().numpy()
    size = np.linalg.norm(row, 1 if norm == "l1" else 2)
    return np.zeros_like(row) if not np.isfinite(size) else row if size <= bound else row * (bound / size)


def records_of(problem, seed, n, labels=2):
    return problem.prepare(*draw(seed, n, problem.n_features, labels), "l1")


# Agreement


def test_losses_of_a_grid_are_weighted_means_whatever_the_blocks(monkeypatch):
    problem = shared()
    features, labels = draw(14, 6, 3)
    records = problem.prepare(features, labels, "l1")
    x, y = np.random.default_rng(15).normal(size=(2, 5, 3))
    weights = np.array([0.5, 0, 0.25, 0.125, 0.125, 0])
    table = [
        [numpy_everything(u, v, a, b) for a, b in zip(features, labels, strict=True)] for u, v in zip(x, y, strict=True)
    ]
    for cells in (1, 30, 2**21):
        monkeypatch.setattr(losses, "CELLS", cells)
        for got in problem.losses(x, y, records, weights):
            np.testing.assert_allclose(got, np.array(table) @ weights, atol=1e-12)
        for got, z in ((problem.regulariser(x, y, y), y),):
            rows = [problem.regulariser(x[i : i + 1], y[i : i + 1], z[i : i + 1]) for i in range(5)]
            for part, pieces in zip(got, zip(*rows, strict=True), strict=True):
                np.testing.assert_allclose(part, np.concatenate(pieces), atol=1e-14)


@pytest.mark.parametrize(
    ("predict", "classes", "labels", "right"),
    [
        (lambda y, a: a[0], None, [1.0, 1.0, -1.0, -1.0], 0.625),
        (lambda y, a: a[0], 2, [1.0, 1.0, 0.0, 0.0], 0.625),
        (lambda y, a: (a[0] > 0).long(), 2, [1.0, 1.0, 0.0, 0.0], 0.75),
        (lambda y, a: torch.stack([-a[0], a[0], a[0]]), 3, [1.0, 2.0, 0.0, 0.0], (0.5 + 0 + 1 / 3 + 1) / 4),
    ],
)
def test_accuracy_of_scores_labels_and_class_scores(predict, classes, labels, right):
    problem = from_losses(logistic, logistic, p=1, q=1, n_features=1, classes=classes, predict=predict)
    features = np.array([[2.0], [-1.0], [0.0], [-3.0]])
    records = problem.prepare(features, np.array(labels), "l1")
    np.testing.assert_allclose(problem.accuracy(np.ones((3, 1)), np.ones((3, 1)), records), right)


# Clipping is total


def raising(x, y, features, label):
    """torch checks the arguments of both operations, and raises."""
    return functional.binary_cross_entropy(torch.sigmoid(features @ y * x[0]), label) + torch.linalg.inv(
        torch.diag(features[:2])
    ).sum() * (y @ y)


def test_a_record_that_raises_counts_as_zero_and_leaves_the_others_as_they_are():
    problem = from_losses(raising, raising, p=2, q=3, n_features=3)
    features, labels = draw(19, 7, 3)
    x, y, z = np.ones(2), np.ones(3), np.ones(3)
    clip = Clip("l1", 1.0, 1.0, 1.0)
    harmless, harmful = LossRecords(features.copy(), labels), LossRecords(features.copy(), labels)
    # One record has no contribution, once because it is infinite, once because torch refuses to evaluate it.
    harmless.features[3] = [INF, 1, 1]
    harmful.features[3] = [0, 1, 1]
    with pytest.raises(RuntimeError):
        raising(*map(torch.tensor, (x, y, harmful.features[3], 1.0)))
    for got, want in zip(
        problem.terms(x, y, z, harmful, harmful, clip), problem.terms(x, y, z, harmless, harmless, clip), strict=True
    ):
        np.testing.assert_array_equal(got, want)
        assert np.abs(got).sum() > 0
    harmful.features[:] = 0
    for value in problem.terms(x, y, z, harmful, harmful, clip):
        np.testing.assert_array_equal(value, np.zeros_like(value))


def test_evaluation_that_raises_is_nan_in_its_row_only():
    def loss(x, y, features, label):
        return torch.linalg.inv(torch.diag(y)).sum() + features.sum() * x.sum()

    def penalty(x, y):
        return torch.linalg.inv(torch.diag(y)).sum()

    problem = from_losses(loss, loss, p=2, q=2, n_features=2, regulariser=penalty)
    records = records_of(problem, 20, 5)
    x, y = np.ones((3, 2)), np.array([[1.0, 2.0], [0.0, 1.0], [2.0, 2.0]])
    for value in (*problem.losses(x, y, records, np.full(5, 0.2)), problem.regulariser_value(x, y)):
        np.testing.assert_array_equal(np.isnan(value), [False, True, False])
    for value in problem.regulariser(x, y, y):
        np.testing.assert_array_equal(np.isnan(value).any(axis=1), [False, True, False])


# Terms that read no data


def with_x(x, y, features, label):
    return logistic(x, y, features, label) * torch.exp(x.sum())


def apart(x, y, features, label):
    """Uses x, but its y-gradient does not."""
    return logistic(x, y, features, label) + (x * features).sum() ** 2


def vanishing(x, y, features, label):
    """Uses x with weight zero: the derivative is zero at every point, which the graph cannot know."""
    return logistic(x, y, features, label) + 0 * (x @ y)


def linear_in_y(x, y, features, label):
    return features @ y * label


def cut(x, y, features, label):
    return logistic(x, y, features, label) * (1 + x.detach() @ x.detach())


LOWER_FREE = {
    logistic: {"lower_jvp"},
    with_x: set(),
    apart: {"lower_jvp"},
    vanishing: set(),
    linear_in_y: {"lower_jvp", "lower_hvp"},
    cut: {"lower_jvp"},
}
UPPER_FREE = {logistic: {"upper_grad_x"}, with_x: set(), apart: set(), vanishing: set(), linear_in_y: {"upper_grad_x"}}


@pytest.mark.parametrize("lower", LOWER_FREE)
@pytest.mark.parametrize("upper", UPPER_FREE)
def test_terms_are_free_only_where_the_graph_has_no_derivative(upper, lower):
    problem = from_losses(upper, lower, p=3, q=3, n_features=3)
    free = LOWER_FREE[lower] | UPPER_FREE[upper]
    assert set(TERMS) - set(problem.reads_records) == free
    assert all(
        kind == ("train" if term.startswith("lower") else "validation") for term, kind in problem.reads_records.items()
    )
    records = records_of(problem, 23, 5)
    x, y, z = np.random.default_rng(24).normal(size=(3, 3))
    got = problem.terms(x, y, z, records, records, Clip())
    want = naive_terms(upper, lower, x, y, z, records, records, Clip())
    for term in TERMS:
        if term in free:
            assert getattr(got, term) is None
            np.testing.assert_array_equal(want[term], 0.0)
        else:
            np.testing.assert_allclose(getattr(got, term), want[term], atol=1e-12)


# Each would hide from a trace at one point that the loss uses x elsewhere.
HIDING: dict[str, Any] = {
    "branch": lambda x, y, a, b: with_x(x, y, a, b) if x.sum() > 100 else logistic(x, y, a, b),
    "branch on the record": lambda x, y, a, b: with_x(x, y, a, b) if a[0] > 100 else logistic(x, y, a, b),
    "item": lambda x, y, a, b: logistic(x, y, a, b) * x.sum().item(),
    "data": lambda x, y, a, b: logistic(x, y, a, b) * x.data.sum(),
    "shape": lambda x, y, a, b: logistic(x, y, a, b) * x.nonzero().shape[0],
    "random": lambda x, y, a, b: logistic(x, y, a, b) * torch.rand(()),
    "dropout": lambda x, y, a, b: functional.dropout(a * y, 0.5).sum(),
    "in place": lambda x, y, a, b: a.mul_(2) @ y,
    "batch norm": lambda x, y, a, b: functional.batch_norm(a[None] * y, RUNNING, RUNNING, training=True).sum(),
}
RUNNING = torch.ones(3, dtype=torch.float64)


@pytest.mark.parametrize("loss", HIDING.values(), ids=HIDING.keys())
@pytest.mark.parametrize("level", ["upper", "lower"])
def test_a_loss_that_could_hide_or_couple_is_refused(loss, level):
    with pytest.raises(InputError, match=f"^{level}_loss: .*write it in torch"):
        from_losses(*((loss, logistic) if level == "upper" else (logistic, loss)), p=3, q=3, n_features=3)


# Refusals


WRONG_LOSSES = [
    (lambda x, y, a, b: a * y, "shape"),
    (lambda x, y, a, b: (a @ y).float(), "torch.float32"),
    (lambda x, y, a, b: a @ x, "does not depend on y"),
    (lambda x, y, a: a @ y, "TypeError"),
    (lambda x, y, a, b: y.clone().add_(a).sum() * y[0], "RuntimeError"),
    (5, "not callable"),
]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        *(({level: loss}, f"{level}: .*{why}") for level in ("upper_loss", "lower_loss") for loss, why in WRONG_LOSSES),
        # The upper level is differentiated once.
        ({"lower_loss": lambda x, y, a, b: torch.cdist(y[None], a[None]).sum()}, "lower_loss: NotImplementedError"),
        ({"p": 0}, r"p out of range \(got 0"),
        ({"classes": 1}, r"classes out of range \(got 1"),
        ({"regulariser": lambda x, y: x}, "regulariser: .*shape"),
        ({"regulariser": lambda x, y: y.sum() if x[0] > 0 else x.sum()}, "regulariser: RuntimeError"),
        ({"predict": lambda y, a: a}, "predict: .*one number"),
        ({"predict": lambda y, a: a, "classes": 2}, "predict: .*2 scores"),
    ],
)
def test_wrong_arguments_are_refused(wrong, why):
    with pytest.raises(InputError, match=why) as caught:
        from_losses(**({"upper_loss": logistic, "lower_loss": logistic, "p": 3, "q": 3, "n_features": 3} | wrong))
    assert "\n" not in str(caught.value)


# Around the problem


# Custom losses that read other records are refused


class Centred(torch.autograd.Function):
    """Its vmap rule subtracts the mean over the batch, which is invisible for one record."""

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
        return a - a.mean(0), 0


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
    assert f"{level} mixes records: of 7 synthetic ones" in text
    assert text.endswith("write the loss of one record as a pure function of (x, y, features, label).")
    assert text.count("\n") == 0


def test_matrices_are_tried_too() -> None:
    """torch's own solve, two derivatives and two levels of vmap deep, gave a record the factors of another."""

    def loss(x: Any, y: Any, features: Any, label: Any) -> Any:
        scores = y[:5] * features[:5]
        matrix = torch.eye(5, dtype=torch.float64) + torch.outer(scores, scores)
        return torch.linalg.solve(matrix, y[:5] + features[:5]) @ y[:5] + torch.exp(x).sum() * y[5] - label

    with pytest.raises(InputError, match=r"mixes records: .* lower_hessian of .* use torch\.linalg\.inv"):
        made(loss, loss)
