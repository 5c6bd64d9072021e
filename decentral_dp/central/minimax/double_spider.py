"""DP Double-SPIDER: x and y in turn, each along its own gradient estimate that differences carry on.

Round t, with Poisson samples of rate q, one for either estimate, and means divided by the public qn:

    t % T = 0    u <- mean clip(∇_y f(x_t, y_t), C_y) + noise
    otherwise    u += mean clip(∇_y f(x_t, y_t) − ∇_y f(x_{t−1}, y_{t−1}), τ) + noise
    y_{t+1} = Π_Y(y_t + η_y (u + ∇_y r))
    t % T = 0    v <- mean clip(∇_x f(x_t, y_{t+1}), C_x) + noise
    otherwise    v += mean clip(∇_x f(x_t, y_{t+1}) − ∇_x f(x_{t−1}, y_t), τ) + noise
    x_{t+1} = P(x_t − β (v + ∇_x r)),        β = min{η_x, longest/‖v + ∇_x r‖}

where differences are of the same records at both points, and τ = L times the distance of the two points of that
difference, or the largest distance between two clipped gradients where that is less. With a robust problem's dual
variable η, y = η and ∇_y f = −∂f/∂η. η_x, η_y → x, y. T → period, L → smoothness, a public constant; q → rate.
longest: no step of x is longer; the paper's is 1/(L√n). Channels gx and gy are anchors, dx and dy differences.

Whose data: every record of every agent. Sensitivities 2C/(qn) of an anchor and 2τ/(qn) of a difference; every release
reads a sample of its own and is an event of its own, P(q, G(z)) of replacing a record. x, y, u, v and every τ are
functions of what was released, and the clip comes after subtracting: smoothness is no assumption of the privacy. Half
of Σμ² is for x and half for y, in either half for anchors and half for differences, evenly over these. Where C_y is
left out, the ball that the problem knows takes its place.

Limit cases: T = 1 is DP-SGDA in turns, on two samples. rate = 1 and no noise is gradient descent in turns, for any T.
The output is the last iterate, the paper's a random one.

Reference: Xu et al. 2025, Algorithm 2 and Theorem 6, with per-record clips.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax.steps import (
    BY_X,
    BY_Y,
    Estimating,
    SpiderState,
    block_charges,
    limited_step,
    planned_estimates,
)


@dataclass(frozen=True)
class DoubleSpider(Estimating):
    """A trusted coordinator: robust learning, x and the dual variable in turn, by differences (Xu et al., 2025).

    Args:
        x, y: η.
        period: T.
        smoothness: L.
        rate: q.
        longest: of a step of x.
    """

    x: dp.StepSize = dp.option("η_x, of x")
    y: dp.StepSize = dp.option("η_y, of the dual variable")
    period: int = dp.anchor_period()
    smoothness: float | None = dp.change_smoothness()
    rate: float = dp.sampling_rate()
    longest: float | None = dp.option(
        "length that no step of x exceeds; without it steps are as long as they come",
        default=None,
        example="1.0",
        above=0,
    )

    queries = ("grad_x", "grad_y")
    releases_per_round = 2

    def init(self, context: dp.MinimaxContext) -> SpiderState:
        return SpiderState.start(context, self.start)

    def step(self, t: int, context: dp.MinimaxContext, s: SpiderState) -> dp.CoordinatorSteps[SpiderState]:
        problem = context.problem
        u = yield from self.released_estimate(t, context, s, BY_Y, s.u, (s.x, s.y), (s.last_x, s.last_y))
        y = problem.project_y(s.y + self.y(t) * (u + problem.public("grad_y", s.x, s.y, t)))
        v = yield from self.released_estimate(t, context, s, BY_X, s.v, (s.x, y), (s.last_x, s.y))
        by_x = v + problem.public("grad_x", s.x, y, t)
        x = problem.project_x(s.x - limited_step(self.x(t), self.longest, by_x) * by_x)
        return SpiderState(x, y, v, u, s.x, s.y)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        return plan_of_estimates(context, rounds, self.period, self.rate)


def plan_of_estimates(context: dp.MinimaxContext, rounds: int, period: int, rate: float) -> dict[str, dp.Charge]:
    """Plan u in the first release of a round and v in the second: half of the budget each.

    Args:
        context: what the coordinator knows.
        rounds: of the run.
        period: T, rounds from one anchor to the next.
        rate: of their Poisson samples.

    Returns:
        Channel → its charge.
    """
    first = np.arange(rounds, dtype=np.int64) * 2 + 1
    return block_charges(planned_estimates(context, period, {BY_Y: first, BY_X: first + 1}), rate)


ENTRY = dp.Entry(
    "double_spider",
    DoubleSpider,
    (dp.Citation("Algorithm 2, with per-record clips", "xu2025differentially"),),
    example=dp.DRO | {"smoothness": "1.0"},
)
