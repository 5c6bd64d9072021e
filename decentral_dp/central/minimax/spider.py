"""SPIDER for robust learning: gradient estimates that are updated by clipped differences (variance reduction).

With a Poisson sample of rate q for each estimate and sums divided by the public qn, an estimate v of a mean gradient is

    t % T = 0    v <- mean clip(g_i(z_t), C) + noise
    otherwise    v += mean clip(g_i(z_t) − g_i(z_{t−1}), τ) + noise,    same records at both points

with τ = L × the distance between the two points, or the largest distance between two clipped gradients if that is less.

    dp_spider        one estimate of the joint gradient (∇_x f, ∇_y f), clipped as one vector
                     x <- P(x − η_x (v_x + ∇_x r)),    y <- Π_Y(y + η_y (v_y + ∇_y r))
    dp_sgd_dual      dp_spider with T = 1: DP-SGD on (x, y)
    double_spider    u estimates ∇_y f at (x_t, y_t), then v estimates ∇_x f at (x_t, y_{t+1})
                     y_{t+1} = Π_Y(y_t + η_y (u + ∇_y r))
                     x_{t+1} = P(x_t − β (v + ∇_x r)),    β = min{η_x, longest/‖v + ∇_x r‖}

With the dual variable η of a robust problem, y = η and ∇_y f = −∂f/∂η. η_x, η_y → x, y (η_y defaults to η_x for
dp_spider); T → period; L → smoothness, a public constant; q → rate; longest bounds the length of a step of x (1/(L√n)
in the paper). The channels g or gx, gy are anchors; d or dx, dy are differences.

The joint clip of dp_spider adds as much noise to ∂f/∂η as to any coordinate of ∇_x f. Double-SPIDER avoids that.

The guarantee holds for every record of every agent. Sensitivities: 2C/(qn) for an anchor and 2τ/(qn) for a difference,
each on its own sample: P(q, G(z)) for one replaced record. All state and every τ are functions of released values.
Differences are clipped after the subtraction, so privacy does not assume smoothness. The budget Σμ² is divided evenly:
between x and y (double_spider), then between anchors and differences, then over their releases. If C_y is not set,
double_spider uses the public ball of the problem.

rate = 1 without noise is gradient descent ascent for any T (alternating for double_spider). double_spider with T = 1 is
alternating DP-SGDA on two samples. The output is the last iterate; the papers output a random one.

Reference: Arora et al. 2023 (DP-SPIDER); Xu et al. 2025, Section 3, Algorithm 2 and Theorem 6, with per-record clips;
Bassily, Smith & Thakurta 2014 and Abadi et al. 2016 (DP-SGD).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax import steps

_JOINT = steps.Estimate("joint", "g", "d")
# Checks of programs that clip both gradients as one vector.
_ONE_CLIP = (
    dp.Refusal[dp.MinimaxContext](
        lambda context: math.isfinite(context.clip.bound("y")),
        "privacy.clip.y",
        "the gradient by x and y is clipped as one vector, to clip.x",
        "remove it",
    ),
)


class DpSpiderState(NamedTuple):
    """The public state of DP-SPIDER.

    Args:
        x: iterate, (p,).
        y: iterate, (q,).
        v: estimate of the records' part of the joint gradient, (p + q,).
        last_x: x of the previous round, (p,).
        last_y: y of the previous round, (q,).
    """

    x: dp.Array
    y: dp.Array
    v: dp.Array
    last_x: dp.Array
    last_y: dp.Array


@dataclass(frozen=True)
class DpSpider(steps.Estimating):
    """Minimax coordinator that updates both gradients, as one vector, by differences (Arora et al., 2023).

    Args:
        x, y: learning rates η_x and η_y.
        period: number of rounds T from one anchor to the next.
        smoothness: smoothness constant L.
        rate: sampling rate q.
    """

    x: dp.StepSize = dp.option("η, learning rate of x, and of the dual variable without y")
    period: int = dp.anchor_period()
    y: dp.StepSize | None = dp.option("η, learning rate of the dual variable; default that of x", default=None)
    smoothness: float | None = dp.change_smoothness()
    rate: float = dp.sampling_rate()

    queries = ("joint",)

    def resolve_defaults(self, context: dp.MinimaxContext) -> tuple[Self, dp.MinimaxContext]:
        dp.refuse(context, _ONE_CLIP)
        return super().resolve_defaults(context)

    def init(self, context: dp.MinimaxContext) -> DpSpiderState:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return DpSpiderState(x, y, np.zeros(x.size + y.size), x, y)

    def step(self, t: int, context: dp.MinimaxContext, s: DpSpiderState) -> dp.CoordinatorSteps[DpSpiderState]:
        problem, size_y = context.problem, self.x if self.y is None else self.y
        v = yield from self.released_estimate(t, context, s, _JOINT, s.v, (s.x, s.y), (s.last_x, s.last_y))
        by_x = v[: s.x.size] + problem.public("grad_x", s.x, s.y, t)
        by_y = v[s.x.size :] + problem.public("grad_y", s.x, s.y, t)
        x, y = problem.project_x(s.x - self.x(t) * by_x), problem.project_y(s.y + size_y(t) * by_y)
        return DpSpiderState(x, y, v, s.x, s.y)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        indices = {_JOINT: dp.round_indices(rounds, 1)}
        return dp.gaussian_charges(steps.plan_estimates(context, self.period, indices, self.rate))


@dataclass(frozen=True)
class DpSgdDual(DpSpider):
    """Minimax coordinator with one noisy step per round along both gradients (DP-SGD on the dual objective).

    Args:
        x, y: learning rates η_x and η_y.
        rate: sampling rate q.
    """

    period: int = dp.internal(1)
    smoothness: float | None = dp.internal(None)


@dataclass(frozen=True)
class DoubleSpider(steps.Estimating):
    """Coordinator for robust learning that updates x and the dual variable in turn, by differences (Xu et al., 2025).

    Args:
        x, y: learning rates η_x and η_y.
        period: number of rounds T from one anchor to the next.
        smoothness: smoothness constant L.
        rate: sampling rate q.
        longest: largest allowed length of a step of x.
    """

    x: dp.StepSize = dp.option("η_x, learning rate of x")
    y: dp.StepSize = dp.option("η_y, learning rate of the dual variable")
    period: int = dp.anchor_period()
    smoothness: float | None = dp.change_smoothness()
    rate: float = dp.sampling_rate()
    longest: float | None = dp.option(
        "largest length of a step of x; default no limit",
        default=None,
        example="1.0",
        above=0,
    )

    queries = ("grad_x", "grad_y")
    releases_per_round = 2

    def init(self, context: dp.MinimaxContext) -> steps.SpiderState:
        return steps.SpiderState.start(context, self.start)

    def step(self, t: int, context: dp.MinimaxContext, s: steps.SpiderState) -> dp.CoordinatorSteps[steps.SpiderState]:
        problem = context.problem
        u = yield from self.released_estimate(t, context, s, steps.BY_Y, s.u, (s.x, s.y), (s.last_x, s.last_y))
        y = problem.project_y(s.y + self.y(t) * (u + problem.public("grad_y", s.x, s.y, t)))
        v = yield from self.released_estimate(t, context, s, steps.BY_X, s.v, (s.x, y), (s.last_x, s.y))
        by_x = v + problem.public("grad_x", s.x, y, t)
        x = problem.project_x(s.x - limit_step(self.x(t), self.longest, by_x) * by_x)
        return steps.SpiderState(x, y, v, u, s.x, s.y)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        return plan_alternating_estimates(context, rounds, self.period, self.rate)


def limit_step(size: float, longest: float | None, direction: dp.Array) -> float:
    """Compute min{size, longest/‖direction‖₂} for a direction (d,)."""
    if longest is None:
        return size
    length = float(np.linalg.norm(direction))
    return size if not length * size > longest else longest / length


def plan_alternating_estimates(
    context: dp.MinimaxContext, rounds: int, period: int, rate: float
) -> dict[str, dp.Charge]:
    """Plan u in the first release of a round and v in the second, with half of the budget for each.

    Args:
        context: public facts of the run.
        rounds: number of rounds.
        period: number of rounds T from one anchor to the next.
        rate: rate of the Poisson samples.

    Returns:
        Map from each channel to its releases.
    """
    indices = {steps.BY_Y: dp.round_indices(rounds, 2), steps.BY_X: dp.round_indices(rounds, 2, (1,))}
    return dp.gaussian_charges(steps.plan_estimates(context, period, indices, rate))


ENTRIES = (
    dp.Entry(
        "dp_spider",
        DpSpider,
        (
            dp.Citation("Algorithm, with per-record clips", "arora2023faster"),
            dp.Citation("On (x, η) as one variable (Section 3)", "xu2025differentially"),
        ),
        example=dp.DRO | {"smoothness": "1.0"},
        proved=True,
    ),
    dp.Entry(
        "dp_sgd_dual",
        DpSgdDual,
        (
            dp.Citation("DP-SGD", "bassily2014private"),
            dp.Citation("On (x, η) as one variable (Section 3)", "xu2025differentially"),
        ),
        example=dp.DRO,
        proved=True,
    ),
    dp.Entry(
        "double_spider",
        DoubleSpider,
        (dp.Citation("Algorithm 2, with per-record clips", "xu2025differentially"),),
        example=dp.DRO | {"smoothness": "1.0"},
        proved=True,
    ),
)
