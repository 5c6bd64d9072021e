"""DP-SPIDER with its printed noise, which shrinks with the change that it is on: the steps of `dp_spider`.

Of the paper's own constant taken as 1, with N = qn and R rounds,

    anchors C √log(1/δ)/ε · max{1/N, √R/(n√T)}        differences τ √log(1/δ)/ε · max{1/N, √R/n}

for Lipschitz and smooth losses, where nothing is clipped. The clips here do to any losses what these constants say, and
what the noise is worth follows from them. A change is released in units of its clip τ, so that the scale of the noise
is planned.

Reference: Arora et al. 2023 (DP-SPIDER); Xu et al. 2025 (Section 3) on (x, η) as one variable.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import final

from decentral_dp.algorithms.coordinator_minimax.dp_spider import DpSpider
from decentral_dp.algorithms.printed.printed_scales import constant_noise, in_units, root_log
from decentral_dp.algorithms.printed.protocol import Noise
from decentral_dp.bounded import Array, Bounded
from decentral_dp.exchange import Release, Request, Response
from decentral_dp.participants.minimax_context import MinimaxContext


@final
class PrintedDpSpider(DpSpider):
    """The fields and steps of `DpSpider`, with the printed noise in units of the clip."""

    protocol = "printed"

    def _released_change(self, mean: Bounded, bound: float) -> Generator[Request, Response, Array]:
        released: Array = (yield Release(d=in_units(mean, bound))).released.d[0]
        return released * bound

    def printed_calibration(self, context: MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        s, size = self.init(context), self.rate * context.n
        often = math.sqrt(rounds) / context.n
        anchor = context.query("joint", s.x, s.y, self.rate)
        change = context.query("joint", s.x, s.y, self.rate, (s.x, s.y), 1.0)
        unit = root_log(delta) / epsilon
        noise = {
            "g": (
                unit * anchor.bound * max(1.0 / size, often / math.sqrt(self.period)),
                context.sensitivity_of(anchor),
            ),
            "d": (unit * max(1.0 / size, often), context.sensitivity_of(change)),
        }
        return constant_noise(self.planned_releases(context, rounds), noise)
