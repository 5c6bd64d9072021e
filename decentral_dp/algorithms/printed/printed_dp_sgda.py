"""DP-SGDA as printed: both gradients clipped to constants, and the noise of its explicit values.

The steps are those of `dp_sgda` with ascent. ∇_y f is clipped to C_y whatever is known of the problem. The noise on
both means is 8 C √(T log(1/δ))/(nε) over T rounds, for fixed-size samples; here they are Poisson samples. The
certificate of that noise is its true price, which is less than half of what it claims.

Reference: Yang et al. 2022, Theorem 1 and the values after it; "DP-SGDA" in the paper of PrivateDiff Minimax.
"""

from __future__ import annotations

import math
from typing import Self, final

import numpy as np

from decentral_dp.algorithms.coordinator_minimax.dp_sgda import DpSgda
from decentral_dp.algorithms.coordinator_minimax.minimax_steps import CHANNELS, Iterate
from decentral_dp.algorithms.printed.printed_scales import check_ascent, constant_noise
from decentral_dp.algorithms.printed.protocol import Noise
from decentral_dp.errors import InputError
from decentral_dp.exchange import ClippedQuery
from decentral_dp.participants.minimax_context import MinimaxContext


@final
class PrintedDpSgda(DpSgda):
    """The fields and steps of `DpSgda`, for solver = "ascent" alone, with clips to constants and the printed noise."""

    protocol = "printed"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ascent(self.solver, "as printed, y ascends")

    def resolve_defaults(self, context: MinimaxContext) -> tuple[Self, MinimaxContext]:
        known, context = super().resolve_defaults(context)
        if context.reads("grad_y") and not np.isfinite(context.clip.bound("y")):
            raise InputError(
                "privacy.clip.y: missing. As printed ∇_y f is clipped around 0, too; give for example clip.y = 1.0."
            )
        return known, context

    def _questions(self, context: MinimaxContext, s: Iterate) -> dict[str, ClippedQuery]:
        """The paper clips to a constant, whatever is known of the problem at this point."""
        asked = {c: CHANNELS[c] for c in ("gx", "gy") if context.reads(CHANNELS[c])}
        return {
            c: context.query(term, s.x, s.y, self.rate, None, context.clip.bound(c[-1])) for c, term in asked.items()
        }

    def printed_calibration(self, context: MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        unit = 8.0 * math.sqrt(rounds * math.log(1.0 / delta)) / (context.n * epsilon)
        asked = self._questions(context, self.init(context))
        noise = {channel: (unit * q.bound, context.sensitivity_of(q)) for channel, q in asked.items()}
        return constant_noise(self.planned_releases(context, rounds), noise)
