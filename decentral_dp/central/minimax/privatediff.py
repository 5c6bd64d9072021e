"""PrivateDiff Minimax: gradient estimates that are updated by clipped differences (variance reduction).

Round r, with Poisson samples of rate q and sums divided by the public qn. `privatediff` updates y first, then x:

    solver = "ascent": `inner` steps from y_r, each on its own sample, i = 0, 1, …
                 y <- Π_Y(y + η_i (mean clip(∇_y f(x_r, y), C_y) + ∇_y r + noise))
    solver = "closed_form": the best y at x_r, computed from a released mean
    r % T = 0    v <- mean clip(∇_x f(x_r, y_{r+1}), C_x) + noise
    otherwise    v += mean clip(∇_x f(x_r, y_{r+1}) − ∇_x f(x_{r−1}, y_r), τ_r) + noise,    same records at both points
    x_{r+1} = P(x_r − η_x (v + ∇_x r))

`privatediff_xy` estimates both gradients by differences, on one sample a round, and updates x and y simultaneously with
v and u, where u estimates ∇_y f in the same way. τ_r = L × the distance between the two points, or the largest distance
between two clipped gradients if that is less.

η_x, η_i → x, y (the paper's 1/(μ i) is scale 1/μ, decay 1); T → period; L → smoothness, a public constant; q → rate.
The channels gx and gy are anchors, dx and dy are differences; gy or dual is for y.

The guarantee holds for every record of every agent. Sensitivities: 2C/(qn), and 2τ_r/(qn) for a difference. Differences
are clipped after the subtraction, so privacy does not assume smoothness. All state is a function of released values,
and the anchors are fixed before the run. In `privatediff` every release uses its own sample and is its own event; y
gets a tenth of the budget, evenly over its releases. In `privatediff_xy` both releases of a round are one event P(q,
G(z̄)), z̄⁻² = z_x⁻² + z_y⁻². Half of the (remaining) budget is for anchors and half for differences: if T divides the
number of rounds, z_1 = z√(2/T) and z_2 = z√(2(T−1)/T), compared with z of DP-SGDA. Differences reduce noise only if L η
z √p/(qn) is much less than 1. With T = 2 they do not reduce noise. `privatediff_xy` with T = 1 is DP-SGDA.

rate = 1 without noise is gradient descent ascent (alternating for `privatediff`), for any T. The output is the last
iterate.

Reference: Zhang et al. 2025, Algorithms 3 and 4. `privatediff_xy` is after Algorithm 3, whose y has no noise; it has
not been published in this form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax import steps

# Share of Σμ² for y.
_Y_SHARE = 0.1


class PrivateDiffState(NamedTuple):
    """The public state of PrivateDiff.

    Args:
        x: iterate, (p,).
        y: iterate, (q,).
        v: estimate of the records' part of ∇_x F, (p,).
        last_x: x of the previous round, (p,).
    """

    x: dp.Array
    y: dp.Array
    v: dp.Array
    last_x: dp.Array


@dataclass(frozen=True)
class PrivateDiff(steps.Estimating):
    """Minimax coordinator that updates the gradient of x by differences (Zhang et al., 2025).

    Args:
        x, y: learning rates η_x and η_i.
        period: number of rounds T from one anchor to the next.
        inner: number of steps of y.
        smoothness: smoothness constant L.
        rate: sampling rate q.
        solver: solver for y, "ascent" or "closed_form".
    """

    x: dp.StepSize = dp.option("η_x, learning rate of x (descent)")
    period: int = dp.anchor_period()
    y: dp.StepSize | None = dp.option('η_y, learning rate of y (ascent); required by solver "ascent"', default=None)
    inner: int | None = dp.count_option("steps of y in every round; default 1", "steps", "5")
    smoothness: float | None = dp.change_smoothness()
    rate: float = dp.sampling_rate()
    solver: Literal["ascent", "closed_form"] = dp.option(
        'solver of y: "ascent" by steps, or "closed_form" from a released mean', default="ascent"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        dp.refuse(self, dp.MAXIMISER_RULES)

    @property
    def queries(self) -> tuple[str, ...]:
        return ("grad_x", "dual" if self.solver == "closed_form" else "grad_y")

    @property
    def steps(self) -> int:
        """Number of releases of y in a round."""
        return self.inner or 1

    @property
    def releases_per_round(self) -> int:
        return self.steps + 1

    def resolve_defaults(self, context: dp.MinimaxContext) -> tuple[Self, dp.MinimaxContext]:
        algorithm, context = super().resolve_defaults(context)
        return (replace(algorithm, inner=self.steps) if self.solver == "ascent" else algorithm), context

    def init(self, context: dp.MinimaxContext) -> PrivateDiffState:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return PrivateDiffState(x, y, np.zeros_like(x), x)

    def step(self, t: int, context: dp.MinimaxContext, s: PrivateDiffState) -> dp.CoordinatorSteps[PrivateDiffState]:
        problem, y = context.problem, s.y
        for i in range(self.steps):
            g = yield from dp.release_gradients(t, context, self.queries[1:], s.x, y, self.rate)
            y = cast(Any, problem).dual(g.dual) if self.y is None else problem.project_y(y + self.y(i) * g.y)
        v = yield from self.released_estimate(t, context, s, steps.BY_X, s.v, (s.x, y), (s.last_x, s.y))
        x = problem.project_x(s.x - self.x(t) * (v + problem.public("grad_x", s.x, y, t)))
        return PrivateDiffState(x, y, v, s.x)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        per_round = self.releases_per_round
        for_y = dp.round_indices(rounds, per_round, range(self.steps))
        shares = dict.fromkeys(self.queries, _Y_SHARE)
        parts = dp.gradient_parts(context, self.queries[1:], for_y, shares, self.rate)
        for_x = {steps.BY_X: dp.round_indices(rounds, per_round, (self.steps,))}
        by_x = steps.plan_estimates(context, self.period, for_x, self.rate, 1.0 - _Y_SHARE)
        return dp.gaussian_charges(parts | by_x)


@dataclass(frozen=True)
class PrivateDiffXY(steps.Estimating):
    """Minimax coordinator that updates both gradients by differences, with one sample per round.

    Args:
        x, y: learning rates η_x and η_y.
        period: number of rounds T from one anchor to the next.
        smoothness: smoothness constant L.
        rate: sampling rate q.
    """

    x: dp.StepSize = dp.option("η_x, learning rate of x (descent)")
    y: dp.StepSize = dp.option("η_y, learning rate of y (ascent)")
    period: int = dp.anchor_period()
    smoothness: float | None = dp.change_smoothness()
    rate: float = dp.sampling_rate()

    queries = ("grad_x", "grad_y")

    def init(self, context: dp.MinimaxContext) -> steps.SpiderState:
        return steps.SpiderState.start(context, self.start)

    def step(self, t: int, context: dp.MinimaxContext, s: steps.SpiderState) -> dp.CoordinatorSteps[steps.SpiderState]:
        problem, point, previous = context.problem, (s.x, s.y), (s.last_x, s.last_y)
        questions = dict(
            self.estimate_query(t, context, estimate, point, previous)
            for estimate in (steps.BY_X, steps.BY_Y)
            if context.reads(estimate.term)
        )
        released = (yield dp.Release(**(yield dp.Ask(**questions)))).released
        v, u = steps.BY_X.next(released, s.v), steps.BY_Y.next(released, s.u)
        x = problem.project_x(s.x - self.x(t) * (v + problem.public("grad_x", *point, t)))
        y = problem.project_y(s.y + self.y(t) * (u + problem.public("grad_y", *point, t)))
        return steps.SpiderState(x, y, v, u, s.x, s.y)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        indices = dict.fromkeys((steps.BY_X, steps.BY_Y), dp.round_indices(rounds, 1))
        return dp.gaussian_charges(steps.plan_estimates(context, self.period, indices, self.rate))


ENTRIES = (
    dp.Entry(
        "privatediff",
        PrivateDiff,
        (dp.Citation("Algorithms 3 and 4; certified here with a y that is released", "zhang2025improved"),),
        example=dp.AUC | dp.ASCENT | {"smoothness": "1.0"},
        proved=True,
    ),
    dp.Entry(
        "privatediff_xy",
        PrivateDiffXY,
        (dp.Citation("After Algorithm 3", "zhang2025improved"),),
        example=dp.AUC | {"smoothness": "1.0"},
        proved=True,
    ),
)
