"""Mechanisms of pure ε = sensitivity/scale: random choices with probabilities ∝ e^{−score/scale}, and unknown laws.

Their sampler is exact, and its grid is in the sensitivity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.privacy.mechanisms.grid_arithmetic import at_the_ends, broadcast, no_slack
from decentral_dp.privacy.mechanisms.protocol import DominatingPair, Sampling, Unit


@final
@dataclass(frozen=True)
class Pure:
    """A release that is drawn by its value's own law, of pure ε. Fields as of `Mechanism`."""

    name: str
    words: str
    dominating_pair: DominatingPair

    norm = None
    pure = charged = proven = True
    unit: ClassVar[Unit] = "ε"
    adds_noise = False
    amplified_by: ClassVar[tuple[Sampling, ...]] = ()

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """ε = sensitivity/scale."""
        delta, s = broadcast(sensitivity, scale)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            loss = delta / s
        return at_the_ends(loss, delta, s)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        return no_slack(loss)


# A random choice that is itself the release (`exchange.SelectionMechanism`); its sensitivity is the oscillation of the
# scores.
EXPONENTIAL = Pure("exponential", "a random choice by an exponential mechanism", DominatingPair.RANGED)
# Of whose law nothing else is known.
PURE = Pure("pure", "a release of pure ε", DominatingPair.RESPONSE)
