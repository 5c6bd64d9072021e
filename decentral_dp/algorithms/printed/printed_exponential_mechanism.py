"""The exponential mechanism at the scale of Equation 4 as printed: the draw of `exponential_mechanism`.

Probabilities ∝ exp(−ε Φ/(2s)), with s = (2/n)(L_fx D_x + L_fy D_y) + 4 L_fy L_gy/μ. The last term lacks 1/n, so that
the noise never shrinks; the ½ is not needed. It is private, at less than it claims.

Reference: A. Lowy and D. Liu, 2025, Equation 4.
"""

from __future__ import annotations

from typing import final

from decentral_dp.algorithms.printed.printed_scales import one_draw, smaller_count
from decentral_dp.algorithms.printed.protocol import Noise
from decentral_dp.algorithms.selection.exponential_mechanism import ExponentialMechanism
from decentral_dp.algorithms.selection.single_draw import constants_of, no_score
from decentral_dp.constants.printed_bounds import printed_score
from decentral_dp.participants.coordinator_context import CoordinatorContext


@final
class PrintedExponentialMechanism(ExponentialMechanism):
    """The fields and steps of `ExponentialMechanism`, at the printed scale."""

    protocol = "printed"

    def printed_calibration(self, context: CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        return one_draw(self.law(context, no_score), equation_4_scale(context, epsilon))


def equation_4_scale(context: CoordinatorContext, epsilon: float) -> float:
    """2s/ε with s of Equation 4."""
    width = context.domain.diameter(context.problem.p)
    return 2.0 * printed_score(constants_of(context), smaller_count(context), width) / epsilon
