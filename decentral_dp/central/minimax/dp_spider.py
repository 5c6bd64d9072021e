"""DP-SPIDER on (x, y) as one variable: one gradient estimate that differences carry on, one clip and one noise.

z = (x, y), and g_i = (∇_x f, ∇_y f) of a record as one vector; of a robust problem's dual variable η, y = η and
∇_y f = −∂f/∂η. Round t, with a Poisson sample of rate q and means divided by the public qn:

    t % T = 0    v <- mean clip(g_i(z_t), C) + noise
    otherwise    v += mean clip(g_i(z_t) − g_i(z_{t−1}), τ) + noise, the same records, τ = min{L ‖z_t − z_{t−1}‖, 2C}
    x <- P(x − η_x (v_x + ∇_x r))          y <- Π_Y(y + η_y (v_y + ∇_y r))

η_x → x; η_y → y, the same as η_x where it is left out; C → privacy.clip.x. T → period, L → smoothness, a public
constant; q → rate. Channel g is of anchors, d of differences.

Beside privatediff_xy: there the two gradients have clips and noises of their own. Here the noise on ∂f/∂η is as large
as on any coordinate of ∇_x f, which is what Double-SPIDER is meant to mend.

Whose data: every record of every agent. Sensitivities 2C/(qn) of an anchor and 2τ/(qn) of a difference, on one sample a
round: P(q, G(z)) of replacing a record. z, v and τ are functions of what was released. Half of Σμ² is for anchors and
half for differences, evenly over these.

`dp_sgd_dual` is T = 1, DP-SGD on (x, y): every round is an anchor, of sensitivity 2C/(qn).

Limit cases: rate = 1 and no noise is gradient descent ascent, for any T. The output is the last
iterate, the paper's a random one.

Reference: Arora et al. 2023 (DP-SPIDER); Xu et al. 2025 (Section 3, after Bassily, Smith & Thakurta 2014 and Abadi et
al. 2016) on (x, η) as one variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax import steps

_JOINT = steps.Estimate("joint", "g", "d")


class DpSpiderState(NamedTuple):
    """All public. v: (p + q,) estimate of the records' part of the gradient. last_x, last_y: of the round before."""

    x: dp.Array
    y: dp.Array
    v: dp.Array
    last_x: dp.Array
    last_y: dp.Array


@dataclass(frozen=True)
class DpSpider(steps.Estimating):
    """A trusted coordinator: both gradients as one vector, carried on by differences (Arora et al., 2023).

    Args:
        x, y: η.
        period: T.
        smoothness: L.
        rate: q.
    """

    x: dp.StepSize = dp.option("η, of x, and of the dual variable where y is left out")
    period: int = dp.anchor_period()
    y: dp.StepSize | None = dp.option("η of the dual variable; that of x if left out", default=None)
    smoothness: float | None = dp.change_smoothness()
    rate: float = dp.sampling_rate()

    queries = ("joint",)

    def resolve_defaults(self, context: dp.MinimaxContext) -> tuple[Self, dp.MinimaxContext]:
        dp.refuse(context, steps.ONE_CLIP)
        return super().resolve_defaults(context)

    def init(self, context: dp.MinimaxContext) -> DpSpiderState:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return DpSpiderState(x, y, np.zeros(x.size + y.size), x, y)

    def step(self, t: int, context: dp.MinimaxContext, s: DpSpiderState) -> dp.CoordinatorSteps[DpSpiderState]:
        v = yield from self.released_estimate(t, context, s, _JOINT, s.v, (s.x, s.y), (s.last_x, s.last_y))
        x, y = steps.joint_step(context, v, s.x, s.y, t, self.x, self.y)
        return DpSpiderState(x, y, v, s.x, s.y)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        first = np.arange(1, rounds + 1, dtype=np.int64)
        return steps.block_charges(steps.planned_estimates(context, self.period, {_JOINT: first}), self.rate)


@dataclass(frozen=True)
class DpSgdDual(DpSpider):
    """A trusted coordinator: both gradients as one vector, one noised step a round (DP-SGD on the dual objective).

    Args:
        x, y: η.
        rate: q.
    """

    period: int = dp.internal(1)
    smoothness: float | None = dp.internal(None)


ENTRIES = (
    dp.Entry(
        "dp_spider",
        DpSpider,
        (
            dp.Citation("Algorithm, with per-record clips", "arora2023faster"),
            dp.Citation("On (x, η) as one variable (Section 3)", "xu2025differentially"),
        ),
        example=dp.DRO | {"smoothness": "1.0"},
    ),
    dp.Entry(
        "dp_sgd_dual",
        DpSgdDual,
        (
            dp.Citation("DP-SGD", "bassily2014private"),
            dp.Citation("On (x, η) as one variable (Section 3)", "xu2025differentially"),
        ),
        example=dp.DRO,
    ),
)
