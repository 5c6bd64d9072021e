"""Laws for which nothing is proven: run for comparison, at infinite price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from decentral_dp.privacy.bounded import Array
from decentral_dp.privacy.mechanisms.laplace import Laplace
from decentral_dp.privacy.mechanisms.none import nothing_hidden
from decentral_dp.privacy.mechanisms.protocol import DominatingPair, Sampling, Unit


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
