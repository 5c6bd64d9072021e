"""Second-order descent from a privately chosen start, as printed: the program of `warm_start`.

(ε/2, δ/2) for each part: Equation 4 for the start, whose s does not fall with n; then σ = 32 K√(T log(1/δ))/(nε) with K
of Equation 12: valid, and up to thousands of times too much with K for the whole domain.

Reference: A. Lowy and D. Liu, 2025, Algorithm 2.
"""

from __future__ import annotations

from typing import final

import numpy as np

from decentral_dp.algorithms.coordinator_bilevel.warm_start import WarmStart
from decentral_dp.algorithms.printed.printed_exponential_mechanism import equation_4_scale
from decentral_dp.algorithms.printed.printed_second_order import PrintedSecondOrder
from decentral_dp.algorithms.printed.protocol import Calibration, Noise
from decentral_dp.algorithms.selection.single_draw import no_score
from decentral_dp.participants.coordinator_context import CoordinatorContext


@final
class PrintedWarmStart(WarmStart):
    """The fields and steps of `WarmStart`, with the printed noise."""

    protocol = "printed"

    @property
    def _descent(self) -> PrintedSecondOrder:
        return PrintedSecondOrder(self.x, start=self.start)

    def printed_calibration(self, context: CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        start = Calibration(
            np.array([equation_4_scale(context, 0.5 * epsilon)]),
            {kind: np.array([s]) for kind, s in self.law(context, no_score).sensitivity.items()},
        )
        return {"x0": start, **self._descent.printed_calibration(context, rounds - 1, 0.5 * epsilon, 0.5 * delta)}
