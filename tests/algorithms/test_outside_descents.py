"""Dual averaging, linearised ADMM, local steps and clips of each agent's own, from outside: each at its price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.exchange import Gossip

CLIP, ROUNDS = 0.5, 6


class State(NamedTuple):
    """x, y: the variables. z: what else a program keeps: the dual sum before noise, or a public dual variable."""

    x: Any
    y: Any
    z: Any


def mixed(dataset: Any, own: Any, near: Any) -> Any:
    return (1.0 - dataset.neighbour_weight) * own + near


@dataclass(frozen=True)
class DualAveraging:
    """z ← W z + g, y = −λ z (Duchi, Agarwal and Wainwright, 2012)."""

    y: StepSize
    channels = ("x", "y", "z")
    RELEASES: ClassVar[Mapping[str, Any]] = {"z": {"lower_grad_y": 1.0}}

    def init(self, dataset: Any, x: Any, y: Any) -> State:
        return State(x, y, dataset.public(0.0, dataset.q))

    def step(self, t: int, dataset: Any, s: State) -> Any:
        own, near = yield Gossip(z=s.z)
        z = mixed(dataset, own.z, near.z)
        y = -self.y(t) * z
        return State(s.x, y, z + dataset.batch(t).lower_grad_y(s.x, y))


@dataclass(frozen=True)
class Admm:
    """y ← ỹ − λ (g(ỹ) + a + ỹ − W ỹ), a ← a + ỹ − W ỹ: linearised ADMM, whose duals follow from releases."""

    y: StepSize
    channels = ("x", "y")
    RELEASES: ClassVar[Mapping[str, Any]] = {"y": {"lower_grad_y": "y"}}

    def init(self, dataset: Any, x: Any, y: Any) -> State:
        return State(x, y, dataset.public(0.0, dataset.q))

    def step(self, t: int, dataset: Any, s: State) -> Any:
        own, near = yield Gossip(y=s.y)
        apart = own.y - mixed(dataset, own.y, near.y)
        dual = s.z + apart
        return State(s.x, own.y - self.y(t) * (dataset.batch(t).lower_grad_y(s.x, own.y) + dual + apart), dual)


@dataclass(frozen=True)
class LocalSteps:
    """Decentralised SGD that mixes in every third round."""

    y: StepSize
    channels = ("x", "y")
    RELEASES: ClassVar[Mapping[str, Any]] = {"y": {"lower_grad_y": "y"}}

    def init(self, dataset: Any, x: Any, y: Any) -> State:
        return State(x, y, None)

    def step(self, t: int, dataset: Any, s: State) -> Any:
        own, near = yield Gossip(y=s.y)
        at = mixed(dataset, own.y, near.y) if t % 3 == 0 else own.y
        return State(s.x, at - self.y(t) * dataset.batch(t).lower_grad_y(s.x, at), None)


@dataclass(frozen=True)
class OwnClips:
    """Decentralised SGD in which agent i clips to C/(1 + i)."""

    y: StepSize
    channels = ("x", "y")
    RELEASES: ClassVar[Mapping[str, Any]] = {"y": {"lower_grad_y": "step_of_clip"}}

    def step_of_clip(self, t: int, agents: Any) -> Any:
        return self.y(t) / (1.0 + agents)

    def init(self, dataset: Any, x: Any, y: Any) -> State:
        return State(x, y, None)

    def step(self, t: int, dataset: Any, s: State) -> Any:
        own, near = yield Gossip(y=s.y)
        at, smaller = mixed(dataset, own.y, near.y), 1.0 + dataset.agents[:, None]
        gradient = dataset.batch(t).lower_grad_y(s.x, at, times=smaller)
        return State(s.x, at - (self.y(t) / smaller) * gradient, None)


def content(**privacy: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "problem": {"kind": "classification", "data": "breast_cancer", "scale": "public_ranges", "test": 0.2},
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {"kind": "dp_dsgd", "rounds": ROUNDS, "y": {"scale": 0.5}},
        "privacy": {"mechanism": "gaussian", "clip": {"y": CLIP}, "delta": 1e-5, **privacy},
    }


@pytest.mark.parametrize(
    ("program", "channel", "factor"),
    [
        (DualAveraging, "z", np.ones(4)),
        (Admm, "y", np.full(4, 0.5)),
        (LocalSteps, "y", np.full(4, 0.5)),
        (OwnClips, "y", 0.5 / np.arange(1, 5)),
    ],
)
def test_it_is_priced_for_one_mean_a_release(program: Any, channel: str, factor: np.ndarray) -> None:
    """2C/N times what the author states, agent by agent, and as recorded."""
    run = decentral_dp.run(content(epsilon=4.0), algorithm=program(StepSize(0.5)))
    ledger = run.simulation().ledger
    (charged,) = ledger.charged
    assert charged.channel == channel
    counts = run.simulation().counts["train"]
    np.testing.assert_allclose(charged.sensitivity["train"][0, charged.group], factor * 2 * CLIP / counts, rtol=1e-6)
    assert run.records.same_releases(ledger)
    assert 3.9 < run.result["privacy"]["epsilon_max"] <= 4.0


@pytest.mark.parametrize("program", [DualAveraging, Admm, LocalSteps, OwnClips])
def test_without_noise_it_learns(program: Any) -> None:
    """What is priced above is a descent."""
    long = content(guarantee="none", clip={})
    long["algorithm"]["rounds"] = 150
    del long["privacy"]["delta"], long["privacy"]["mechanism"]
    run = decentral_dp.run(long, algorithm=program(StepSize(0.5)), set={"run.evaluate_every": 150})
    assert run.result["metrics"]["test_accuracy"] > 0.85
