"""Runs whose x no record has a say in: no upper level is measured, and no page speaks of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.exchange import Gossip
from decentral_dp.problems import lower_level as solve
from decentral_dp.simulation import metrics
from decentral_dp.simulation.jobs.build import build_job

ONE_LEVEL = {"kind": "dp_dsgd", "rounds": 4, "y": {"scale": 0.5}, "init": {"x": -3.0}}


class _State(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Averaged:
    """Gossip and a gradient step, from outside the package."""

    rate: StepSize
    channels = ("x", "y")
    RELEASES: ClassVar = {"y": {"lower_grad_y": "rate"}}

    def init(self, dataset: Any, x: Any, y: Any) -> Any:
        return _State(x, y)

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        own, near = yield Gossip(y=s.y)
        mixed = (1.0 - dataset.neighbour_weight) * own.y + near.y
        return s._replace(y=mixed - self.rate(t) * dataset.batch(t).lower_grad_y(s.x, own.y))


@dataclass(frozen=True)
class Tuned(Averaged):
    """The same, that releases what tunes x as well."""

    RELEASES: ClassVar = {"y": {"lower_grad_y": "rate"}, "x": {"upper_grad_x": "rate"}}

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        own, near = yield Gossip(x=s.x, y=s.y)
        mixed = (1.0 - dataset.neighbour_weight) * own.y + near.y
        batch = dataset.batch(t)
        moved = own.x - self.rate(t) * batch.upper_grad_x(own.x, own.y)
        return s._replace(x=moved, y=mixed - self.rate(t) * batch.lower_grad_y(own.x, own.y))


@pytest.fixture
def base(scenario: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return scenario()


@pytest.fixture
def unsolved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The exact lower solves that are asked for; none is answered."""
    asked: list[str] = []

    def refused(name: str) -> Callable[..., Any]:
        def solved(problem: Any, x: Any, *_: Any) -> Any:
            asked.append(name)
            return np.full(problem.p, np.nan)

        return solved

    for module in (solve, metrics):
        monkeypatch.setattr(module, "hypergradient_of_joined", refused("hypergradient"))
        monkeypatch.setattr(module, "solve_lower", refused("lower"))
    return asked


def _scenario(base: dict[str, Any], **algorithm: Any) -> dict[str, Any]:
    privacy = {"guarantee": "certified", "mechanism": "gaussian", "epsilon": 8.0, "clip": {"y": 1.0}}
    return {**base, "algorithm": {**ONE_LEVEL, **algorithm}, "privacy": privacy}


@pytest.mark.parametrize("kind", ["dp_dsgd", "ldp_single_level", "gradient_tracking", "exact_diffusion"])
def test_no_lower_level_is_solved_for_a_method_that_moves_no_x(
    base: dict[str, Any], kind: str, unsolved: list[str]
) -> None:
    run = decentral_dp.run(_scenario(base, kind=kind))
    assert not unsolved
    assert not [n for n in run.metrics["name"].unique() if n.startswith("hypergradient")]
    assert run.result["tunes_x"] is False
    assert not run.result.tunes_x


def test_what_an_algorithm_from_outside_declares_decides(base: dict[str, Any], unsolved: list[str]) -> None:
    scenario = _scenario(base)
    run = decentral_dp.run(scenario, algorithm=Averaged(StepSize(0.1)))
    assert not run.result.tunes_x
    assert not unsolved
    job = build_job(
        {**scenario, "privacy": {**scenario["privacy"], "clip": {"x": 1.0, "y": 1.0}}},
        algorithm=Tuned(StepSize(0.1)),
    )
    assert job.tunes_x


def test_a_hypergradient_that_would_take_minutes_is_left_out_and_said_beforehand(
    base: dict[str, Any], monkeypatch: pytest.MonkeyPatch, unsolved: list[str]
) -> None:
    monkeypatch.setattr(solve, "as_stacked", lambda _: None)
    plain = decentral_dp.plan(base)
    assert not plain.unmeasured
    assert "Scores" not in str(plain)
    monkeypatch.setattr(solve, "MOST_NUMBERS", 100)
    said = decentral_dp.plan(base).unmeasured
    assert said.startswith("The hypergradient is not measured")
    assert "30 coordinates" in said
    text = " ".join(str(decentral_dp.plan(base)).split())
    assert said in text
    run = decentral_dp.run(base)
    assert run.result.unmeasured == said
    assert not unsolved
    assert "hypergradient_norm" not in set(run.metrics["name"])


def test_the_cap_counts_the_numbers_of_a_product() -> None:
    class Network:
        q = 1898

    assert not solve.solved_quickly(Network(), 1000)  # type: ignore[arg-type]
    assert solve.solved_quickly(Network(), 500)  # type: ignore[arg-type]


def test_a_convolutional_network_trains_without_a_lower_solve(unsolved: list[str]) -> None:
    torch = pytest.importorskip("torch")
    functional_call = torch.func.functional_call
    torch.manual_seed(0)
    nn = torch.nn
    parts = (nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(0))
    net = nn.Sequential(nn.Unflatten(0, (1, 8, 8)), *parts, nn.Linear(64, 10)).double()
    named = [(name, weight.shape, weight.numel()) for name, weight in net.named_parameters()]
    start = torch.cat([weight.detach().reshape(-1) for weight in net.parameters()]).numpy()

    def predict(y: Any, features: Any) -> Any:
        flat = torch.split(y, [count for *_, count in named])
        weights = {name: part.reshape(shape) for (name, shape, _), part in zip(named, flat, strict=True)}
        return functional_call(net, weights, (features,))

    def loss(x: Any, y: Any, features: Any, label: Any) -> Any:
        return nn.functional.cross_entropy(predict(y, features), label)

    problem = decentral_dp.from_losses(
        loss, loss, p=1, q=len(start), n_features=64, classes=10, predict=predict, start={"y": start}
    )
    assert problem.q == 1898
    keys = ("algorithm.rounds=3", 'problem.kind="from_losses"', "problem.validation=0.05", 'privacy.guarantee="none"')
    run = decentral_dp.run(load("dp_dsgd", [*keys, "algorithm.y.scale=0.5"]), problem=problem)
    assert not unsolved
    assert run.result.rounds == 3
    losses = run.metrics[(run.metrics["name"] == "lower_loss") & (run.metrics["agent"] == "mean")]["value"]
    assert isinstance(losses, pd.Series)
    assert losses.iloc[-1] < losses.iloc[0]


def test_large_weights_are_computed_in_small_blocks_to_the_same_bits() -> None:
    draw, agents = np.random.default_rng(0), 30
    data = {
        "features": draw.normal(size=(4 * agents, 100)),
        "labels": draw.integers(2, size=4 * agents),
        "agent": np.repeat(np.arange(agents), 4),
        "classes": [0, 1],
    }
    content: dict[str, Any] = {
        "seed": 3,
        "problem": {"kind": "classification", "data": "digits", "model": {"kind": "mlp", "hidden": [200]}},
        "topology": {"kind": "ring", "agents": agents},
        "algorithm": {"kind": "dp_dsgd", "rounds": 3, "y": {"scale": 0.1}},
        "privacy": {"mechanism": "gaussian", "epsilon": 8.0, "delta": 1e-5, "clip": {"y": 1.0}},
    }
    small = build_job(load(content), data=data)
    whole = build_job(load(content | {"run": {"blocks": 1}}), data=data)
    assert (small.sizes(), whole.sizes()) == ([25, 5], [30])
    runs = [decentral_dp.run(c, data=data) for c in (content, content | {"run": {"blocks": 1}})]
    assert runs[0].released["y"].tobytes() == runs[1].released["y"].tobytes()
