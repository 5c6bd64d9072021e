"""DP-SGD on the dual objective with the noise that is printed for it: the program of `dp_sgd_dual`.

The noise is C √(log(1/δ)/ε) max{1/(qn), √R/n} over R rounds, where Gaussian noise for ε takes 1/ε in the place of
√(1/ε). Its certificate is its true price.

Reference: Xu et al. 2025, Theorem 5, its constant taken as 1.
"""

from __future__ import annotations

import math
from typing import final

from decentral_dp.algorithms.coordinator_minimax.dp_sgd_dual import DpSgdDual
from decentral_dp.algorithms.printed.printed_scales import constant_noise, root_log
from decentral_dp.algorithms.printed.protocol import Noise
from decentral_dp.participants.minimax_context import MinimaxContext


@final
class PrintedDpSgdDual(DpSgdDual):
    """The fields and steps of `DpSgdDual`, with the printed noise."""

    protocol = "printed"

    def printed_calibration(self, context: MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        s = self.init(context)
        asked = context.query("joint", s.x, s.y, self.rate)
        size = max(1.0 / (self.rate * context.n), math.sqrt(rounds) / context.n)
        scale = asked.bound * root_log(delta) / math.sqrt(epsilon) * size
        return constant_noise(self.planned_releases(context, rounds), {"g": (scale, context.sensitivity_of(asked))})
