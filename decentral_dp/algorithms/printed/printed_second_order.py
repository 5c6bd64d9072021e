"""Second-order private bilevel descent with its printed noise: the program of `second_order_dp_bilevel`.

σ = 32K√(T log(1/δ))/(nε), n the smaller of the two counts, K of the whole domain; priced by what it meets.

Reference: A. Lowy and D. Liu, 2025: Algorithm 1, Theorem 4.2.
"""

from __future__ import annotations

from typing import Self, final

import numpy as np

from decentral_dp.algorithms.coordinator_bilevel.second_order_dp_bilevel import SecondOrder, bounds_of, check_bounded
from decentral_dp.algorithms.printed.printed_scales import smaller_count
from decentral_dp.algorithms.printed.protocol import Calibration, Noise
from decentral_dp.constants.printed_bounds import printed_k
from decentral_dp.participants.coordinator_context import CoordinatorContext


@final
class PrintedSecondOrder(SecondOrder):
    """The fields and steps of `SecondOrder`, with the printed noise, which needs a bounded domain."""

    protocol = "printed"

    def resolve_defaults(self, context: CoordinatorContext) -> tuple[Self, CoordinatorContext]:
        resolved = super().resolve_defaults(context)
        check_bounded(context)
        return resolved

    def printed_calibration(self, context: CoordinatorContext, rounds: int, epsilon: float, delta: float) -> Noise:
        bounds, (low, high) = bounds_of(context), context.domain.corners(context.problem.p)
        k = printed_k(bounds.family.constants(low, high))
        scale = 32.0 * k * np.sqrt(rounds * np.log(1.0 / delta)) / (smaller_count(context) * epsilon)
        slack = 2.0 * bounds.gradient_error(low, high)
        truly = {kind: np.full(rounds, s + slack) for kind, s in bounds.gradient_sensitivity(low, high).items()}
        return {"gx": Calibration(np.full(rounds, scale), truly)}
