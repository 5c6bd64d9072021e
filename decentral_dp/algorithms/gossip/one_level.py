"""Shared parts of training at one level: min_y (1/m) Σ_i g_i(x, y) at a constant public x, by gossip on y.

Noise protects one train record of agent i: given all messages only the clipped mean gradient depends on it, at a public
point, so a release has sensitivity λ_t·2C/N_t. No validation record is read, and x is never sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from decentral_dp.algorithms import vocabulary as dp


class OneLevelState(NamedTuple):
    """State of the agents: the constant public x (b, p), and y (b, q) before noise is added."""

    x: dp.Array
    y: dp.Value


@dataclass(frozen=True)
class OneLevel(dp.Derived, Protocol):
    """Gossip on y only, with the learning rate λ, at a constant public x."""

    learning_rate: dp.StepSize = dp.option("λ, of the model along the gradient")

    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]] = {"y": {"lower_grad_y": "learning_rate"}}

    memoryless: ClassVar[bool] = True
    one_mean: ClassVar[bool] = True

    def init(self, dataset: dp.LocalDataset) -> Any:
        return OneLevelState(*self.starts(dataset))


class CorrectionState(NamedTuple):
    """State of the agents: constant x (b, p), y (b, q) before noise, and the public correction (b, q)."""

    x: dp.Array
    y: dp.Value
    correction: dp.Array


class CorrectedGossip(OneLevel, Protocol):
    """Gossip on y with a public correction for disagreement, which starts at 0."""

    def init(self, dataset: dp.LocalDataset) -> CorrectionState:
        return CorrectionState(*self.starts(dataset), dataset.public(0.0, dataset.q))
