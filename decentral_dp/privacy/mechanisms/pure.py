"""Mechanisms of pure ε = sensitivity/scale: random choices with probabilities ∝ e^{−score/scale}, and unknown laws.

Their sampler is exact, and its grid is in the sensitivity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.privacy.mechanisms.protocol import (
    DominatingPair,
    Sampling,
    Unit,
    at_the_ends,
    broadcast,
    no_slack,
)


@final
@dataclass(frozen=True)
class Exponential:
    """A random choice that is itself the release; its sensitivity is the oscillation of the scores.

    The choice is drawn by the value's own law (`exchange.SelectionMechanism`).
    """

    name = "exponential"
    words = "a random choice by an exponential mechanism"
    norm = None
    pure = True
    unit: ClassVar[Unit] = "ε"
    dominating_pair = DominatingPair.RANGED
    charged = proven = True
    adds_noise = False
    amplified_by: ClassVar[tuple[Sampling, ...]] = ()

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        return _ratio(sensitivity, scale)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        return no_slack(loss)


@final
@dataclass(frozen=True)
class Pure:
    """A release that is known to be of pure ε = sensitivity/scale, and of whose law nothing else is known."""

    name = "pure"
    words = "a release of pure ε"
    norm = None
    pure = True
    unit: ClassVar[Unit] = "ε"
    dominating_pair = DominatingPair.RESPONSE
    charged = proven = True
    adds_noise = False
    amplified_by: ClassVar[tuple[Sampling, ...]] = ()

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        return _ratio(sensitivity, scale)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        return no_slack(loss)


def _ratio(sensitivity: Array | float, scale: Array | float) -> Array:
    delta, s = broadcast(sensitivity, scale)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        loss = delta / s
    return at_the_ends(loss, delta, s)
