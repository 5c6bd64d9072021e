"""Train a network from a random public start, which depends only on the public seed and has no privacy cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build_job as build

# A network of one hidden layer; x is the logarithm of its weight decay.
NETWORK = """
import numpy as np
import torch

import decentral_dp

HIDDEN = 8


def _scores(y, features):
    d = features.shape[-1]
    first = y[: HIDDEN * (d + 1)].reshape(HIDDEN, d + 1)
    last = y[HIDDEN * (d + 1) :].reshape(-1, HIDDEN + 1)
    hidden = torch.tanh(first[:, :-1] @ features + first[:, -1])
    return last[:, :-1] @ hidden + last[:, -1]


def lower_loss(x, y, features, label):
    return -torch.log_softmax(_scores(y, features), dim=-1).gather(-1, label.reshape(1)).squeeze()


def upper_loss(x, y, features, label):
    return lower_loss(x, y, features, label)


def regulariser(x, y):
    return 0.5 * torch.exp(x[0]) * (y**2).sum()


def problem(n_features, n_classes, seed):
    q = HIDDEN * (n_features + 1) + n_classes * (HIDDEN + 1)
    start = 0.5 * np.random.default_rng(seed).standard_normal(q)
    return decentral_dp.from_losses(
        upper_loss=upper_loss, lower_loss=lower_loss, p=1, q=q, n_features=n_features, classes=n_classes,
        regulariser=regulariser, predict=_scores, start={"y": start},
    )
"""


@pytest.fixture
def content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.py").write_text(NETWORK)
    return {
        "seed": 3,
        "problem": {
            "kind": "network:problem",
            "data": "wine",
            "scale": "public_ranges",
        },
        "topology": {"kind": "complete", "agents": 2},
        "algorithm": {
            "kind": "ldp_dsbo",
            "rounds": 80,
            **{"x": {"scale": 0.0}, "y": {"scale": 1.0}, "z": {"scale": 0.01}},
            "init": {"x": -9.0},
        },
        "privacy": {"guarantee": "none"},
        "run": {"evaluate_every": 80},
    }


def build_start(content: dict[str, Any], **changes: Any) -> Any:
    content = {**content, **{k: v for k, v in changes.items() if k == "seed"}}
    content["problem"] = {**content["problem"], **{k: v for k, v in changes.items() if k != "seed"}}
    return build(content).problem.start


def test_the_public_seed_decides_alone(content: dict[str, Any]) -> None:
    usual = build_start(content)
    assert set(usual) == {"y"}
    assert usual["y"].shape == (8 * 14 + 3 * 9,)
    assert np.array_equal(usual["y"], build_start(content, test=0.5)["y"])
    assert not np.array_equal(usual["y"], build_start(content, seed=4)["y"])
    fixed = [build_start({**content, "problem": {**content["problem"], "seed": 9}}, seed=s)["y"] for s in (1, 2)]
    assert np.array_equal(*fixed)


def test_it_is_added_to_the_constant(content: dict[str, Any]) -> None:
    content["algorithm"] |= {"rounds": 1, "init": {"y": 0.25}, "y": {"scale": 0.0}}
    content["run"] = {"evaluate_every": 1}
    run = decentral_dp.run(content)
    assert np.array_equal(run.released["y"], np.tile(0.25 + run.simulation().problem.start["y"], (2, 1)))


def test_in_python_a_start_is_a_vector() -> None:
    losses = {
        "upper_loss": lambda x, y, features, label: (features @ y - label) ** 2,
        "lower_loss": lambda x, y, features, label: (features @ y - label) ** 2,
        "regulariser": lambda x, y: x.exp().sum() * (y @ y),
    }
    made = decentral_dp.from_losses(**losses, p=1, q=2, n_features=2, start={"y": [1.0, 2.0]})
    assert made.start["y"].tolist() == [1.0, 2.0]
    for start in ({"y": [1.0]}, {"w": [1.0]}, {"x": [np.nan]}):
        with pytest.raises(InputError, match="start: invalid"):
            decentral_dp.from_losses(**losses, p=1, q=2, n_features=2, start=start)
