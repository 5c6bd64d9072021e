"""The grid walk at its printed scale: the chain of `grid_walk`, at ε = ∞.

The scale is 2s/ε' of Equation 4, ε' = ε/2: the other half, by Theorem B.15, pays for the distance from the law under
two data sets. That distance is unknown after any number of steps that can be taken, so nothing is certified.

Reference: A. Lowy and D. Liu, 2025, Appendix B.3.
"""

from __future__ import annotations

from typing import final

from decentral_dp.algorithms.printed.printed_exponential_mechanism import equation_4_scale
from decentral_dp.algorithms.printed.printed_scales import one_draw
from decentral_dp.algorithms.printed.protocol import Noise
from decentral_dp.algorithms.selection.grid_walk import GridWalk
from decentral_dp.algorithms.selection.single_draw import no_score
from decentral_dp.participants.coordinator_context import CoordinatorContext


@final
class PrintedGridWalk(GridWalk):
    """The fields and steps of `GridWalk`, at the printed scale."""

    protocol = "printed"

    def printed_calibration(self, context: CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        law, scale = self.law(context, no_score), equation_4_scale(context, 0.5 * epsilon)
        law.check(scale)
        return one_draw(law, scale)
