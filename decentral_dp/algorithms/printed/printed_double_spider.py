"""DP Double-SPIDER as printed: the mean of a batch is clipped when it has been taken.

The steps are those of `double_spider`, with step length 1/(L√n) at most where none is given. Means are clipped to C_y
and C_x at anchors, and in both differences to 2L max{|y_t − y_{t−1}|, ‖x_t − x_{t−1}‖}, in which y_{t+1} has no part
though ∇_x f is taken there. For a clip of c the noise is, with N = qn, c times (Theorem 6, its constant taken as 1)

    u  anchors √(R log(1/δ))/(n√(Tε)),  differences √log(1/δ)/(Nε)            R rounds
    v  both    √log(1/δ)/ε · max{1/N, √R/(n√T)}

But one record can carry a clipped mean from one end to the other: by 2c, not 2c/N, whatever the sample. That is the
sensitivity which the certificate of the printed noise is for, and its ε is ∞ but for tiny n.

Reference: Xu et al. 2025, Algorithm 2 and Theorem 6.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Self, final

import numpy as np

from decentral_dp.algorithms.coordinator_minimax.double_spider import TERMS, DoubleSpider, plan_of_estimates
from decentral_dp.algorithms.coordinator_minimax.spider_releases import reach
from decentral_dp.algorithms.coordinator_minimax.spider_schedule import Point, SpiderState
from decentral_dp.algorithms.coordinator_protocol import Charge
from decentral_dp.algorithms.printed.printed_scales import constant_noise, in_units, root_log
from decentral_dp.algorithms.printed.protocol import Noise
from decentral_dp.bounded import Array
from decentral_dp.exchange import Ask, Release, Request, Response
from decentral_dp.participants.minimax_context import MinimaxContext


@final
class PrintedDoubleSpider(DoubleSpider):
    """The fields and steps of `DoubleSpider`, for clipped means of batches."""

    protocol = "printed"

    def resolve_defaults(self, context: MinimaxContext) -> tuple[Self, MinimaxContext]:
        known, context = super().resolve_defaults(context)
        if self.longest is None and self.smoothness is not None:
            return replace(known, longest=1.0 / (self.smoothness * math.sqrt(context.n))), context
        return known, context

    def _released(
        self, context: MinimaxContext, names: tuple[str, str], s: SpiderState, here: Point, before: Point | None
    ) -> Generator[Request, Response, Array]:
        """The mean, or what it has changed by, clipped when it has been taken."""
        term, channel = TERMS[names], names[before is not None]
        unit = reach(context.ball(term, *here)) if before is None else 2.0 * (self.smoothness or 0.0) * _larger(s)
        mean = (yield Ask(mean=context.query(term, *here, self.rate, before, math.inf))).mean
        # The noise is planned in units of the clip.
        released: Array = (yield Release(**{channel: in_units(context.cut(mean, unit), unit)})).released[channel][0]
        return released * unit

    def planned_releases(self, context: MinimaxContext, rounds: int) -> dict[str, Charge]:
        # What one record moves does not depend on the sample, which therefore amplifies nothing.
        return plan_of_estimates(context, rounds, self.period, 1.0)

    def printed_calibration(self, context: MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        size, root = self.rate * context.n, root_log(delta)
        often = math.sqrt(rounds) / (context.n * math.sqrt(self.period))
        by_x = root / epsilon * max(1.0 / size, often)
        noise = {"gy": root * often / math.sqrt(epsilon), "dy": root / (size * epsilon), "gx": by_x, "dx": by_x}
        charges = self.planned_releases(context, rounds)
        sizes = {c: (noise[c], context.cut_sensitivity(charge.width)) for c, charge in charges.items()}
        return constant_noise(charges, sizes)


def _larger(s: SpiderState) -> float:
    """max{|y_t − y_{t−1}|, ‖x_t − x_{t−1}‖}, 0 where one is not finite."""
    with np.errstate(all="ignore"):
        found = max(float(np.linalg.norm(s.y - s.last_y)), float(np.linalg.norm(s.x - s.last_x)))
    return found if math.isfinite(found) else 0.0
