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
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self, final

import numpy as np

from decentral_dp.algorithms.coordinator_minimax.double_spider import TERMS, X, Y, plan_of_estimates
from decentral_dp.algorithms.coordinator_minimax.minimax_steps import check_clipped, check_init
from decentral_dp.algorithms.coordinator_minimax.spider_releases import reach, shortened
from decentral_dp.algorithms.coordinator_minimax.spider_schedule import Point, SpiderState, check_smoothness, is_anchor
from decentral_dp.algorithms.coordinator_protocol import Charge
from decentral_dp.algorithms.printed.printed_scales import constant_noise, in_units, root_log
from decentral_dp.algorithms.printed.protocol import Calibration
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Array
from decentral_dp.exchange import Ask, Release, Request, Response
from decentral_dp.participants.minimax_context import MinimaxContext


@final
@dataclass(frozen=True)
class PrintedDoubleSpider:
    """x, y: η. period: T. smoothness: L. rate: q. longest: of a step of x."""

    x: StepSize
    y: StepSize
    period: int
    smoothness: float | None = None
    rate: float = 1.0
    longest: float | None = None
    start: Mapping[str, float] = field(default_factory=dict)

    protocol = "printed"
    needs_constants = False
    needs_records = False
    queries = ("grad_x", "grad_y")
    releases_per_round = 2

    def resolve_defaults(self, context: MinimaxContext) -> tuple[Self, MinimaxContext]:
        check_init(self.start)
        check_clipped(context, self.queries)
        check_smoothness(self.smoothness, self.period, context.noisy)
        if self.longest is None and self.smoothness is not None:
            return replace(self, longest=1.0 / (self.smoothness * math.sqrt(context.n))), context
        return self, context

    def init(self, context: MinimaxContext) -> SpiderState:
        return SpiderState.start(context, self.start)

    def step(self, t: int, context: MinimaxContext, s: SpiderState) -> Generator[Request, Response, SpiderState]:
        problem, change = context.problem, 2.0 * (self.smoothness or 0.0) * _larger(s)
        u = yield from self._estimate(t, context, Y, s.u, (s.x, s.y), (s.last_x, s.last_y), change)
        y = problem.project_y(s.y + self.y(t) * (u + problem.public("grad_y", s.x, s.y, t)))
        v = yield from self._estimate(t, context, X, s.v, (s.x, y), (s.last_x, s.y), change)
        by_x = v + problem.public("grad_x", s.x, y, t)
        x = problem.project_x(s.x - shortened(self.x(t), self.longest, by_x) * by_x)
        return SpiderState(x, y, v, u, s.x, s.y)

    def _estimate(
        self,
        t: int,
        context: MinimaxContext,
        names: tuple[str, str],
        old: Array,
        here: Point,
        before: Point,
        change: float,
    ) -> Generator[Request, Response, Array]:
        """A new estimate at a point: a mean, or the last one and its change. Publishes once."""
        term, fresh = TERMS[names], is_anchor(t, self.period)
        if not context.reads(term):
            yield Release()
            return old
        channel = names[0] if fresh else names[1]
        unit = reach(context.ball(term, *here)) if fresh else change
        mean = (yield Ask(mean=context.query(term, *here, self.rate, None if fresh else before, math.inf))).mean
        # The noise is planned in units of the clip.
        released = (yield Release(**{channel: in_units(context.cut(mean, unit), unit)})).released[channel][0] * unit
        # The noise is in what was told: adding it to the estimate alone, after the difference, would betray low bits.
        return np.asarray(released if fresh else old + released)

    def published(self, s: SpiderState) -> dict[str, Array]:
        return {"x": s.x, "y": s.y}

    def free_channels(self, context: MinimaxContext) -> dict[str, int]:
        return {}

    def planned_releases(self, context: MinimaxContext, rounds: int) -> dict[str, Charge]:
        # What one record moves does not depend on the sample, which therefore amplifies nothing.
        return plan_of_estimates(context, rounds, self.period, 1.0)

    def printed_calibration(
        self, context: MinimaxContext, rounds: int, epsilon: float, delta: float
    ) -> dict[str, Calibration]:
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
