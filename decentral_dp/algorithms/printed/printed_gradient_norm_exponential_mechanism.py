"""The exponential mechanism by ‖∇Φ‖ at its printed scale: the draw of `gradient_norm_exponential_mechanism`.

Probabilities ∝ exp(−(ε/2G)‖∇Φ‖), G = L_fx + L_fy b_gxy/μ + L_gy b_fxy/μ. It rests on 2G/n as a bound on what one record
moves ∇Φ by (Lemma B.6), which fails where the Hessians of records differ much; but then drops the n, and so is too
flat by far.

Reference: A. Lowy and D. Liu, 2025, Appendix C.3.
"""

from __future__ import annotations

from typing import final

from decentral_dp.algorithms.printed.printed_scales import one_draw
from decentral_dp.algorithms.printed.protocol import Noise
from decentral_dp.algorithms.selection.gradient_norm_exponential_mechanism import GradientNormMechanism
from decentral_dp.algorithms.selection.single_draw import constants_of, no_score
from decentral_dp.constants.printed_bounds import printed_lipschitz
from decentral_dp.participants.coordinator_context import CoordinatorContext


@final
class PrintedGradientNormMechanism(GradientNormMechanism):
    """The fields and steps of `GradientNormMechanism`, at the printed scale."""

    protocol = "printed"

    def printed_calibration(self, context: CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        # 2G, as the formula for n = 1 says.
        return one_draw(self.law(context, no_score), printed_lipschitz(constants_of(context), 1) / epsilon)
