"""The regularised exponential mechanism of Equation 5 as printed: the law of another S.

It is calibrated by its own Lemma B.6, S = 2G/n with G = L_fx + L_fy b_gxy/μ_g + L_gy b_fxy/μ_g, and by the exact curve
of Theorem B.4 where it says "k = O(·)". The lemma differentiates f(x, y_Z(x)) in x alone and is false: the ledger
prices that law by the S that holds, at more than it claims where Hessians of records differ much. A strength that
leaves Φ unproven to be convex runs, at ε = ∞.

Reference: A. Lowy and D. Liu, 2025, Equation 5 and Lemma B.6.
"""

from __future__ import annotations

from typing import final

from decentral_dp.algorithms.printed.printed_scales import one_draw, smaller_count
from decentral_dp.algorithms.printed.protocol import Noise
from decentral_dp.algorithms.selection.regularised_exponential_mechanism import RegularisedExponentialMechanism
from decentral_dp.algorithms.selection.single_draw import constants_of
from decentral_dp.constants.printed_bounds import printed_lipschitz
from decentral_dp.participants.coordinator_context import CoordinatorContext
from decentral_dp.participants.regularised_selection import Density


@final
class PrintedRegularisedExponentialMechanism(RegularisedExponentialMechanism):
    """The fields and steps of `RegularisedExponentialMechanism`, with the S of Lemma B.6."""

    protocol = "printed"

    def _check_convex(self, context: CoordinatorContext, facts: Density) -> None:
        """Without a proof that it is convex it runs, at ε = ∞."""

    def _sensitivity(self, context: CoordinatorContext) -> float:
        """S of Lemma B.6."""
        return printed_lipschitz(constants_of(context), smaller_count(context))

    def printed_calibration(self, context: CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        return one_draw(self.law(context), self._sensitivity(context) / context.budget)
