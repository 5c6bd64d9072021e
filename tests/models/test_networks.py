"""Convolutional networks, compared with plain torch record by record, and bounds of their clips."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import decentral_dp
from decentral_dp import InputError
from decentral_dp.bounded import Array
from decentral_dp.models import module as torch_models
from decentral_dp.models.build import OneByOne
from decentral_dp.models.module import TorchModel
from decentral_dp.models.networks import convolutional_network, network_model
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.training import CrossEntropy, Examples, Training
from tests.support.training import changed

AGENTS, N, CLASSES, BOUND = 4, 9, 3, 0.3
Shape = tuple[tuple[int, int, int], tuple[int, ...]]
# An odd side, several channels, and blocks of one and of two.
CASES: list[Shape] = [((8, 8, 1), (3, 4)), ((9, 7, 3), (4,)), ((5, 6, 2), (2, 3))]


def _model(shape: Shape, outputs: int = CLASSES, seed: int = 3) -> TorchModel:
    return network_model(convolutional_network(*shape, outputs, seed), int(np.prod(shape[0])))


def _case(shape: Shape, seed: int = 0) -> tuple[Training, Array, Examples]:
    draw, model = np.random.default_rng([seed, *shape[0]]), _model(shape)
    problem = Training("tried", OneByOne(model, "a cnn"), CrossEntropy(), int(np.prod(shape[0])), CLASSES)
    records = Examples(
        draw.normal(size=(AGENTS, N, problem.n_features)), draw.integers(CLASSES, size=(AGENTS, N)).astype(float)
    )
    return problem, 0.4 * draw.normal(size=(AGENTS, problem.q)), records


def _module(shape: Shape, weights: dict[str, Array], outputs: int = CLASSES) -> nn.Module:
    """The network as torch's users write it, with these weights."""
    (height, width, c), layers = shape[0], list[nn.Module]()
    layers.append(nn.Unflatten(1, (c, height, width)))
    for o in shape[1]:
        layers += [nn.Conv2d(c, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        c, height, width = o, height // 2, width // 2
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(c * height * width, outputs)).double()
    module.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    return module


def _gradient(module: nn.Module) -> dict[str, Array]:
    return {name: value.grad.numpy().copy() for name, value in module.named_parameters() if value.grad is not None}


def _mean(problem: Training, y: Array, clip: Clip, records: Examples) -> Array:
    found = problem.stacked_terms(np.zeros((len(y), 0)), y, np.zeros_like(y), records, clip, ("lower_grad_y",))
    assert found.lower_grad_y is not None
    return found.lower_grad_y


@pytest.mark.parametrize("shape", CASES)
def test_sums_are_those_of_torch_record_by_record(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    # Groups of two records: several of an agent, the last of them a single one.
    monkeypatch.setitem(torch_models._CELLS, "cpu", 2 * _model(shape).row)
    problem, y, records = _case(shape)
    model = problem.model
    for bound in (BOUND, 1e6):
        means = _mean(problem, y, Clip("l2", y=bound), records)
        for i in range(AGENTS):
            module, total = _module(shape, model.named_weights(y[i])), dict[str, Any]()
            inputs, labels = torch.tensor(records.features[i]), torch.tensor(records.label[i]).long()
            np.testing.assert_allclose(
                module(inputs).detach().numpy(), model.outputs_of(y[i : i + 1], records.features[i])[0], atol=1e-10
            )
            for k in range(N):
                module.zero_grad()
                nn.functional.cross_entropy(module(inputs[k : k + 1]), labels[k : k + 1]).backward()
                row = _gradient(module)
                whole = np.concatenate([part.ravel() for part in row.values()])
                size = np.linalg.norm(whole)
                for name, part in row.items():
                    total[name] = total.get(name, 0.0) + min(1.0, bound / size) * part / N
            for name, part in model.named_weights(means[i]).items():
                np.testing.assert_allclose(part, total[name], atol=1e-10)


@pytest.mark.parametrize("shape", CASES)
def test_one_replaced_record_moves_a_mean_by_two_clips_over_n(shape: Shape) -> None:
    """Searched from records of many sizes, those that overflow included; near the bound where slopes are opposite."""
    problem, y, records = _case(shape, seed=1)
    draw, clip, largest = np.random.default_rng(5), Clip("l2", y=BOUND), 0.0
    for size in (1e-3, 1.0, 1e3, 1e160, 1e308):
        ends = []
        for _ in range(20):
            features, label = records.features[:1].copy(), records.label[:1].copy()
            features[0, 2] = size * draw.uniform(-1.0, 1.0, size=problem.n_features)
            label[0, 2] = draw.integers(CLASSES)
            ends.append(_mean(problem, 3.0 * y[:1], clip, Examples(features, label))[0])
            assert np.isfinite(ends[-1]).all()
        for here in ends:
            for there in ends:
                largest = max(largest, float(np.linalg.norm(here - there)))
    assert 0.5 < largest * N / (2 * BOUND) <= 1.0 + 1e-9


def test_no_record_contributes_more_than_its_clip() -> None:
    """Kernels that cancel each other's slopes, where a norm from inner products would be lost to rounding."""
    problem, y, records = _case(CASES[0])
    draw, sizes = np.random.default_rng(7), [part.size for part in problem.model.named_weights(y[0]).values()]
    first, kernel = sum(sizes[:2]), sizes[2]
    for turn in range(40):
        at, size = y[:1].copy(), 10.0 ** draw.integers(-3, 9)
        at[0, first : first + kernel] *= size
        at[0, -sum(sizes[-2:]) :] /= size
        row = Examples(records.features[:1, :1] * 10.0 ** draw.integers(-8, 8), records.label[:1, :1])
        if turn % 2:
            # A record of zeros moves only biases in the first layer.
            row.features[:] = row.features.mean() if turn % 4 == 1 else 0.0
        got = _mean(problem, at, Clip("l2", y=BOUND), row)[0]
        assert np.linalg.norm(got) <= BOUND * (1 + 1e-12)


def _scenario(model: Any, **tables: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "seed": 1,
        "problem": {
            "kind": "classification",
            "data": "digits",
            "scale": "public_ranges",
            "test": 0.2,
            "model": model,
            "sampling": {"kind": "fixed_batch", "batch_size": 16},
        },
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {"kind": "dp_dsgd", "rounds": 3, "learning_rate": {"scale": 0.3}},
        "privacy": {"epsilon": 4.0, "delta": 1e-5, "mechanism": "gaussian", "clip": 0.5},
    }
    return changed(content, **tables)


CNN = {"kind": "cnn", "channels": [2, 3]}


def test_predictions_are_those_of_the_torch_network() -> None:
    run = decentral_dp.run(_scenario(CNN))
    module = nn.Sequential(
        *(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 10)),
    ).double()
    module.load_state_dict(run.model.state_dict())
    rows = np.random.default_rng(0).uniform(0.0, 16.0, size=(20, 64))
    with torch.no_grad():
        scores = module(torch.tensor(run.model.prepare(rows))).softmax(dim=1).numpy()
    np.testing.assert_allclose(run.predict_proba(rows), scores, rtol=1e-9)


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        ({"model": {"kind": "cnn"}}, 'channels: missing, and required by "cnn" model'),
        ({"model": {"kind": "mlp", "hidden": [3], "channels": [3]}}, 'channels: does not apply to "mlp" model'),
        ({"model": {"kind": "cnn", "channels": [2, 2, 2, 2]}}, "at least 16 pixels"),
        ({"data": "breast_cancer", "model": CNN}, "got other records, expected images"),
        ({"model": {"kind": "mlp"}}, 'hidden: missing, and required by "mlp" model'),
        ({"model": "mlp"}, 'hidden: missing, and required by "mlp" model'),
        ({"model": "forest"}, "forest"),
    ],
)
def test_refusals(problem: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        decentral_dp.plan(_scenario(CNN, problem=problem))
    assert re.search(sentence, str(refused.value))
    assert "\n" not in str(refused.value)
