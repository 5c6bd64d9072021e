"""Mechanisms by name: final classes, each with its price, its sampler and what is known of its law.

Those that add no noise to a value are here:

    NothingHidden    an infinite price where a record can move the release; none where it reads no record
    Pure             pure ε = sensitivity/scale: random choices with probabilities ∝ e^{−score/scale}, whose sampler is
                     exact and whose sensitivity has the sampler's grid in it; and laws of which no more is known

A mechanism of a user's own comes in by `register_outside`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.privacy.mechanisms.gaussian import Gaussian
from decentral_dp.privacy.mechanisms.grid_arithmetic import broadcast, no_slack, price_limits
from decentral_dp.privacy.mechanisms.laplace import Laplace
from decentral_dp.privacy.mechanisms.protocol import (
    CostUnit,
    DominatingPair,
    Mechanism,
    NoiseMechanism,
    NormalVariates,
    Sampling,
    noise_of,
)

LAPLACE, GAUSSIAN = Laplace(), Gaussian()


@final
@dataclass(frozen=True)
class NothingHidden:
    """No noise on a value: whatever a record can move costs infinitely much. Fields as of `Mechanism`."""

    name: str
    description: str
    unit: CostUnit = "ε"
    # Where nothing is hidden all rules agree, so that these releases may pass for Laplace ones.
    dominating_pair: DominatingPair | None = DominatingPair.LAPLACE
    charged: bool = True
    proven: bool = False
    amplified_by: tuple[Sampling, ...] = ("fixed", "poisson")

    norm = None
    pure = True
    adds_noise = False

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """+inf wherever a record can move the release. Any shapes that broadcast, as of `Mechanism.cost`."""
        return np.where(np.asarray(sensitivity) > 0.0, np.inf, 0.0)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        return LAPLACE.float_slack(loss, width)


NO_NOISE = NothingHidden("none", "no noise")
# A law for which nothing is proven; the ledger's line says why, and its scale is of the law that it stands for.
UNCERTIFIED = NothingHidden("uncertified", "a random choice of which nothing is proven", unit="μ")
# Functions of public and released values.
NO_MECHANISM = NothingHidden(
    "free", "nothing, for it reads no record", dominating_pair=None, charged=False, proven=True, amplified_by=()
)


@final
@dataclass(frozen=True)
class Pure:
    """A release that is drawn by its value's own law, of pure ε. Fields as of `Mechanism`."""

    name: str
    description: str
    dominating_pair: DominatingPair

    norm = None
    pure = charged = proven = True
    unit: ClassVar[CostUnit] = "ε"
    adds_noise = False
    amplified_by: ClassVar[tuple[Sampling, ...]] = ()

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """ε = sensitivity/scale. Any shapes that broadcast, as of `Mechanism.cost`."""
        delta, s = broadcast(sensitivity, scale)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            loss = delta / s
        return price_limits(loss, delta, s)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        return no_slack(loss)


# A random choice that is itself the release (`exchange.SelectionMechanism`); its sensitivity is the oscillation of the
# scores.
EXPONENTIAL = Pure("exponential", "a random choice by an exponential mechanism", DominatingPair.RANGED)
# Of whose law nothing else is known.
PURE = Pure("pure", "a release of pure ε", DominatingPair.RESPONSE)

# Name, as in ledgers on disk → mechanism.
MECHANISMS: Mapping[str, Mechanism] = {
    m.name: m for m in (LAPLACE, GAUSSIAN, PURE, EXPONENTIAL, NO_NOISE, UNCERTIFIED, NO_MECHANISM)
}


def mechanism_of(named: Mechanism | str) -> Mechanism:
    """The mechanism of that name; a mechanism is its own.

    Raises:
        InputError: where no mechanism has this name.
    """
    if not isinstance(named, str):
        return named
    if named not in MECHANISMS:
        raise InputError(
            f"ledger: a channel was released by {named!r}, which no accountant knows; "
            f"it prices {', '.join(m.name for m in MECHANISMS.values() if m.charged)} and free releases."
        )
    return MECHANISMS[named]
