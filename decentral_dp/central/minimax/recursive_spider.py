"""DP Recursive-SPIDER: a function of one mean, Ψ(x, λ) of KL-DRO, with that mean estimated recursively as well.

w = (x, λ) with λ = y, h_i = exp((ℓ_i − B)/λ) in (0, 1], and Ψ = λ log h̄ + B + λρ (see `kl_dro`). Round t, with one
Poisson sample of rate q for everything and means divided by the public qn:

    t % T = 0    v <- mean clip(∇_x h_i(w_t), C_x) + noise             u <- mean clip(∂_λ h_i(w_t), C_λ) + noise
    otherwise    v += mean clip(∇_x h_i(w_t) − ∇_x h_i(w_{t−1}), τ) + noise,  the same for u and ∂_λ h
    s_0 = mean h_i(w_0) + noise
    s_t = (1−β_t) s_{t−1} + mean [β_t h_i(w_t) + (1−β_t) clip(h_i(w_t) − h_i(w_{t−1}), τ_s)] + noise
    x <- P(x − η_x (λ/s) v)          λ <- max{λ_0, λ − η_λ ((λ/s) u + log s + ρ)}

η_x, η_λ → x, y. β → averaging, cut at 1. T → period, L → smoothness, a public constant; q → rate. Channels gx and gy
are v and u at anchors, dx and dy their differences. The clips of what changes:

    τ = L ‖w_t − w_{t−1}‖, or the largest distance between two clipped terms where that is less
    τ_s = C_x ‖x_t − x_{t−1}‖ + C_λ |λ_t − λ_{t−1}|, which is what C_x and C_λ leave h to move, or all that h can

In (λ/s) and log s, s is cut to where the mean of h must lie, and to the deviation of all the noise in it from below.

Whose data: every record of every agent. Sensitivities 2C/(qn) at anchors and 2τ/(qn) at differences. In s_t a record
counts with a number between −(1−β)τ_s and β + (1−β)τ_s, whose middle is public: it moves s_t by 2(β/2 + (1−β)τ_s)/(qn).
x, λ, v, u, s and every τ are functions of what was released. The three releases of a round read one sample and are one
event P(q, G(z̄)), z̄⁻² = Σ z⁻², of replacing a record. Each has a third of Σμ²: of v and u half for anchors and half
for differences, of s evenly.

Limit cases: rate = 1 and no noise is gradient descent on Ψ, for any T and β. The output is the last iterate, the
paper's a random one.

Reference: Xu et al. 2025, Algorithm 3, with what it lacks: v_{t−1} and u_{t−1} in the differences, two points in the
recursion of s, a sample instead of one record, λ ≥ λ_0, a first round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax import steps

INNER_X, INNER_Y = steps.Estimate("inner_x", "gx", "dx"), steps.Estimate("inner_y", "gy", "dy")


class RecursiveState(NamedTuple):
    """All public. x (p,), y (1,): the iterate; last_x, last_y: of the round before.

    v (p,), u (1,), s (1,): estimates of the means of ∇_x h, ∂_λ h and h. variance: of the noise in s.
    """

    x: dp.Array
    y: dp.Array
    v: dp.Array
    u: dp.Array
    s: dp.Array
    variance: float
    last_x: dp.Array
    last_y: dp.Array


@dataclass(frozen=True)
class RecursiveSpider(steps.Estimating):
    """A trusted coordinator: KL-robust learning, a function of a recursively estimated mean (Xu et al., 2025).

    Args:
        x, y: η.
        period: T.
        averaging: β.
        smoothness: L.
        rate: q.
    """

    x: dp.StepSize = dp.option("η_x, of x")
    y: dp.StepSize = dp.option("η_y, of the dual variable")
    period: int = dp.anchor_period()
    averaging: dp.StepSize = dp.option("β, weight of the newest estimate in the running mean")
    smoothness: float | None = dp.change_smoothness()
    rate: float = dp.sampling_rate()

    queries = ("inner", "inner_x", "inner_y")

    def init(self, context: dp.MinimaxContext) -> RecursiveState:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return RecursiveState(x, y, np.zeros_like(x), np.zeros_like(y), np.zeros(1), 0.0, x, y)

    def step(self, t: int, context: dp.MinimaxContext, s: RecursiveState) -> dp.CoordinatorSteps[RecursiveState]:
        queries, beta = self._questions(t, context, s), self.weight(t)
        answer = yield dp.Ask(**queries)
        derivatives = {channel: answer[channel] for channel in queries if channel not in ("now", "change")}
        mean = beta * answer.now + (1.0 - beta) * answer.change if t else answer.now
        released = yield dp.Release(**derivatives, s=mean)
        v, u = (of.next(released.released, last) for of, last in ((INNER_X, s.v), (INNER_Y, s.u)))
        share = 1.0 - beta if t else 0.0
        value, variance = share * s.s + released.released.s[0], share**2 * s.variance + released.scale["s"] ** 2
        by_x, by_y = steps.compose_gradients(context, s.y, np.maximum(value, math.sqrt(variance)), v, u)
        x, y = context.problem.project_x(s.x - self.x(t) * by_x), context.problem.project_y(s.y + self.y(t) * by_y)
        return RecursiveState(x, y, v, u, value, variance, s.x, s.y)

    def _questions(self, t: int, context: dp.MinimaxContext, s: RecursiveState) -> dict[str, dp.ClippedQuery]:
        """All on one sample. now, change: of h itself."""
        here, before = (s.x, s.y), (s.last_x, s.last_y)
        queries = {"now": context.query("inner", *here, self.rate)}
        if t:
            queries["change"] = context.query(
                "inner", *here, self.rate, before, steps.inner_bound(context, here, before)
            )
        return queries | dict(self.estimate_query(t, context, of, here, before) for of in (INNER_X, INNER_Y))

    def weight(self, t: int) -> float:
        """β_t."""
        return min(1.0, self.averaging(t))

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        first = np.arange(1, rounds + 1, dtype=np.int64)
        blocks = steps.planned_estimates(context, self.period, {INNER_X: first, INNER_Y: first})
        return steps.block_charges({**blocks, "s": steps.ReleaseBlock(first, 1, 1.0)}, self.rate)


ENTRY = dp.Entry(
    "recursive_spider",
    RecursiveSpider,
    (dp.Citation("Algorithm 3, corrected", "xu2025differentially"),),
    example=dp.KL_DRO | {"smoothness": "1.0"},
)
