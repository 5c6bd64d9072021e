"""KL-robust learning as a function of one mean, Ψ(x, λ), which is estimated recursively.

w = (x, λ) with λ = y, h_i = exp((ℓ_i − B)/λ) in (0, 1], and Ψ = λ log h̄ + B + λρ (see `kl_dro`). Round t of
`recursive_spider`, with one Poisson sample of rate q and sums divided by the public qn:

    t % T = 0    v <- mean clip(∇_x h_i(w_t), C_x) + noise             u <- mean clip(∂_λ h_i(w_t), C_λ) + noise
    otherwise    v += mean clip(∇_x h_i(w_t) − ∇_x h_i(w_{t−1}), τ) + noise,  the same for u and ∂_λ h
    s_0 = mean h_i(w_0) + noise
    s_t = (1−β_t) s_{t−1} + mean [β_t h_i(w_t) + (1−β_t) clip(h_i(w_t) − h_i(w_{t−1}), τ_s)] + noise
    x <- P(x − η_x (λ/s) v)          λ <- max{λ_0, λ − η_λ ((λ/s) u + log s + ρ)}

`scdro` is a non-private baseline, after Qi et al. It has no clipping and no noise, and requires guarantee = "none".
With β = 1 in the first round:

    s <- (1−β) s + β mean h_i(w)
    z <- (1−β) z + β ((λ/s) mean ∇_x h_i(w), (λ/s) mean ∂_λ h_i(w) + log s + ρ)
    x <- P(x − η_x z_x)          λ <- max{λ_0, λ − η_λ z_λ}

η_x, η_λ → x, y; β → averaging, at most 1; T → period; L → smoothness, a public constant; q → rate. Channels: gx and gy
are v and u at anchors, dx and dy their differences. Clipping norms of differences:

    τ = L ‖w_t − w_{t−1}‖, or the largest distance between two clipped terms if that is less
    τ_s = C_x ‖x_t − x_{t−1}‖ + C_λ |λ_t − λ_{t−1}|, the change of h that C_x and C_λ allow, or the range of h if less

In (λ/s) and log s, s is projected to the interval that contains the mean of h, and is at least the accumulated standard
deviation of its noise.

The guarantee holds for every record of every agent. Sensitivities: 2C/(qn) at anchors and 2τ/(qn) for differences. In
s_t a record contributes a number between −(1−β)τ_s and β + (1−β)τ_s with a public middle: the sensitivity is
2(β/2 + (1−β)τ_s)/(qn). All state and every τ are functions of released values. The three releases of a round use one
sample and are one event P(q, G(z̄)), z̄⁻² = Σ z⁻², for one replaced record. Each has a third of Σμ². The thirds of v and
u are divided equally between anchors and differences, and the third of s evenly over the rounds.

rate = 1 without noise is gradient descent on Ψ, for any T and β (`scdro` with β = 1). The output is the last iterate;
the paper outputs a random one.

Reference: Xu et al. 2025, Algorithm 3, with these additions: v_{t−1} and u_{t−1} in the differences, two points
in the recursion of s, a sample instead of one record, λ ≥ λ_0, a first round. SCDRO is after Qi et al. 2022; it is the
non-private row of Table 3 in Xu et al. 2025, who cite another paper for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax import steps
from decentral_dp.central.problems.saddle import PublicBall

INNER_X, INNER_Y = steps.Estimate("inner_x", "gx", "dx"), steps.Estimate("inner_y", "gy", "dy")


class RecursiveState(NamedTuple):
    """The public state of Recursive-SPIDER.

    Args:
        x: iterate, (p,).
        y: iterate, (1,).
        v: estimate of the mean of ∇_x h, (p,).
        u: estimate of the mean of ∂_λ h, (1,).
        s: estimate of the mean of h, (1,).
        variance: variance of the noise in s.
        last_x: x of the previous round, (p,).
        last_y: y of the previous round, (1,).
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
    """Coordinator for KL-robust learning, with a recursively estimated mean (Xu et al., 2025).

    Args:
        x, y: learning rates η_x and η_λ.
        period: number of rounds T from one anchor to the next.
        averaging: averaging weight β.
        smoothness: smoothness constant L.
        rate: sampling rate q.
    """

    x: dp.StepSize = dp.option("η_x, learning rate of x")
    y: dp.StepSize = dp.option("η_y, learning rate of the dual variable")
    period: int = dp.anchor_period()
    averaging: dp.StepSize = dp.option("β, weight of the newest estimate in the moving average")
    smoothness: float | None = dp.change_smoothness()
    rate: float = dp.sampling_rate()

    queries = ("inner", "inner_x", "inner_y")

    def init(self, context: dp.MinimaxContext) -> RecursiveState:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return RecursiveState(x, y, np.zeros_like(x), np.zeros_like(y), np.zeros(1), 0.0, x, y)

    def step(self, t: int, context: dp.MinimaxContext, s: RecursiveState) -> dp.CoordinatorSteps[RecursiveState]:
        point, previous, beta = (s.x, s.y), (s.last_x, s.last_y), self.weight(t)
        # All on one sample. now and change are terms of h.
        queries = {"now": context.query("inner", *point, self.rate)}
        if t:
            bound = inner_bound(context, point, previous)
            queries["change"] = context.query("inner", *point, self.rate, previous, bound)
        derivatives = dict(
            self.estimate_query(t, context, estimate, point, previous) for estimate in (INNER_X, INNER_Y)
        )
        answer = yield dp.Ask(**queries, **derivatives)
        mean = beta * answer.now + (1.0 - beta) * answer.change if t else answer.now
        released = yield dp.Release(**{channel: answer[channel] for channel in derivatives}, s=mean)
        v, u = INNER_X.next(released.released, s.v), INNER_Y.next(released.released, s.u)
        decay = 1.0 - beta if t else 0.0
        value, variance = decay * s.s + released.released.s[0], decay**2 * s.variance + released.scale["s"] ** 2
        by_x, by_y = compose_gradients(context, s.y, np.maximum(value, math.sqrt(variance)), v, u)
        x, y = context.problem.project_x(s.x - self.x(t) * by_x), context.problem.project_y(s.y + self.y(t) * by_y)
        return RecursiveState(x, y, v, u, value, variance, s.x, s.y)

    def weight(self, t: int) -> float:
        """Return the weight β_t of round t."""
        return min(1.0, self.averaging(t))

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        indices = dp.round_indices(rounds, 1)
        parts = steps.plan_estimates(context, self.period, {INNER_X: indices, INNER_Y: indices}, self.rate)
        return dp.gaussian_charges({**parts, "s": dp.Part(indices, 1, rate=self.rate)})


def reach(ball: PublicBall) -> float:
    """Compute the largest norm of a vector in a ball."""
    return ball.radius + (0.0 if ball.centre is None else float(np.linalg.norm(ball.centre)))


def inner_bound(context: dp.MinimaxContext, point: steps.Point, previous: steps.Point) -> float:
    """Bound the change of one record's h between two points, if clipping does not change its derivatives."""
    by_x = max(reach(context.ball("inner_x", *p)) for p in (point, previous))
    by_y = max(reach(context.ball("inner_y", *p)) for p in (point, previous))
    distances = [float(np.linalg.norm(a - b)) for a, b in zip(point, previous, strict=True)]
    bound = by_x * distances[0] + by_y * distances[1]
    return min(bound, steps.distance(context, "inner", point, previous)) if math.isfinite(bound) else 0.0


def compose_gradients(
    context: dp.MinimaxContext, y: dp.Array, inner: dp.Array, inner_x: dp.Array, inner_y: dp.Array
) -> tuple[dp.Array, dp.Array]:
    """Compute ∇_xΨ (p,) and −∂_λΨ (1,) from estimates of the three means.

    Args:
        context: public facts of a problem that is a function of means.
        y: public y, (1,).
        inner: estimate of the mean of h, (1,).
        inner_x: estimate of the mean of ∇_x h, (p,).
        inner_y: estimate of the mean of ∂_λ h, (1,).
    """
    return cast(tuple[dp.Array, dp.Array], cast(Any, context.problem).outer(y, inner, inner_x, inner_y))


# SCDRO, the non-private baseline. Channel → term.
_TERMS = {"h": "inner", "hx": "inner_x", "hy": "inner_y"}


class ScdroState(NamedTuple):
    """The state of SCDRO.

    Args:
        x: iterate, (p,).
        y: iterate, (1,).
        s: estimate of h̄, (1,).
        z_x: average of ∇_xΨ, (p,).
        z_y: average of −∂_λΨ, (1,).
    """

    x: dp.Array
    y: dp.Array
    s: dp.Array
    z_x: dp.Array
    z_y: dp.Array


@dataclass(frozen=True)
class Scdro(dp.Coordinated):
    """A non-private baseline: KL-robust learning by moving averages (after Qi et al., 2022).

    Args:
        x, y: learning rates η_x and η_λ.
        averaging: averaging weight β.
        rate: sampling rate q.
    """

    x: dp.StepSize = dp.option("η_x, learning rate of x")
    y: dp.StepSize = dp.option("η_y, learning rate of the dual variable")
    averaging: dp.StepSize = dp.option("β, weight of the newest estimate in the moving averages")
    rate: float = dp.sampling_rate()

    # Its moving averages have no clip and no noise.
    protocol = "noiseless"
    queries = tuple(_TERMS.values())

    def init(self, context: dp.MinimaxContext) -> ScdroState:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return ScdroState(x, y, np.zeros(1), np.zeros_like(x), np.zeros_like(y))

    def step(self, t: int, context: dp.MinimaxContext, s: ScdroState) -> dp.CoordinatorSteps[ScdroState]:
        queries = {channel: context.query(term, s.x, s.y, self.rate) for channel, term in _TERMS.items()}
        mean = (yield dp.Release(**(yield dp.Ask(**queries)))).released
        beta = min(1.0, self.averaging(t)) if t else 1.0
        value = (1.0 - beta) * s.s + beta * mean.h[0]
        by_x, by_y = compose_gradients(context, s.y, value, mean.hx[0], mean.hy[0])
        z_x, z_y = (1.0 - beta) * s.z_x + beta * by_x, (1.0 - beta) * s.z_y + beta * by_y
        x, y = context.problem.project_x(s.x - self.x(t) * z_x), context.problem.project_y(s.y + self.y(t) * z_y)
        return ScdroState(x, y, value, z_x, z_y)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        indices, width = dp.round_indices(rounds, 1), context.problem.width
        return dp.gaussian_charges({c: dp.Part(indices, width(term), rate=self.rate) for c, term in _TERMS.items()})


ENTRIES = (
    dp.Entry(
        "recursive_spider",
        RecursiveSpider,
        (dp.Citation("Algorithm 3, corrected", "xu2025differentially"),),
        example=dp.KL_DRO | {"smoothness": "1.0"},
        proved=True,
    ),
    dp.Entry(
        "scdro",
        Scdro,
        (
            dp.Citation("After the algorithm", "qi2022stochastic"),
            dp.Citation("As the baseline that is not private (Table 3)", "xu2025differentially"),
        ),
        example=dp.KL_DRO | {"guarantee": '"none"', "clip": ""},
        proved=True,
    ),
)
