"""Releases of which nothing is proven, at infinite price, and releases that read no record, at none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.privacy.mechanisms.laplace import Laplace
from decentral_dp.privacy.mechanisms.protocol import DominatingPair, Sampling, Unit


@final
@dataclass(frozen=True)
class NoNoise:
    """No noise: whatever a record can move costs infinitely much."""

    name = "none"
    words = "no noise"
    norm = None
    pure = True
    unit: ClassVar[Unit] = "ε"
    # Where nothing is hidden all rules agree, so that these releases may pass for Laplace ones.
    dominating_pair = DominatingPair.LAPLACE
    charged = True
    adds_noise = proven = False
    amplified_by: ClassVar[tuple[Sampling, ...]] = ("fixed", "poisson")

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        return nothing_hidden(sensitivity)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        return Laplace().float_slack(loss, width)


@final
@dataclass(frozen=True)
class Uncertified:
    """A law for which nothing is proven; the ledger's line says why."""

    name = "uncertified"
    words = "a random choice of which nothing is proven"
    norm = None
    pure = True
    # Of what such a release would cost if the law that it stands for were drawn.
    unit: ClassVar[Unit] = "μ"
    # Where nothing is hidden all rules agree, so that these releases may pass for Laplace ones.
    dominating_pair = DominatingPair.LAPLACE
    charged = True
    adds_noise = proven = False
    amplified_by: ClassVar[tuple[Sampling, ...]] = ("fixed", "poisson")

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        return nothing_hidden(sensitivity)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        return Laplace().float_slack(loss, width)


@final
@dataclass(frozen=True)
class Free:
    """Releases that read no record, being functions of public and released values: no mechanism, and no price."""

    name = "free"
    words = "nothing, for it reads no record"
    norm = None
    pure = True
    unit: ClassVar[Unit] = "ε"
    dominating_pair = None
    charged = adds_noise = False
    proven = True
    amplified_by: ClassVar[tuple[Sampling, ...]] = ()

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        return nothing_hidden(sensitivity)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        return Laplace().float_slack(loss, width)


def nothing_hidden(sensitivity: Array | float) -> Array:
    """+inf wherever a record can move the release."""
    return np.where(np.asarray(sensitivity) > 0.0, np.inf, 0.0)
