"""PrivateDiff Minimax: a private y in every round, and a gradient by x that is carried on by differences.

Round r, with Poisson samples of rate q and means divided by the public qn:

    y_{r+1}: "ascent", inner steps from y_r, each on a sample of its own, i = 0, 1, …:
                 y <- Π_Y(y + η_i (mean clip(∇_y f(x_r, y), C_y) + ∇_y r + noise))
             "closed_form": the best y at x_r, of a released mean
    r % T = 0    v <- mean clip(∇_x f(x_r, y_{r+1}), C_x) + noise
    otherwise    v += mean clip(∇_x f(x_r, y_{r+1}) − ∇_x f(x_{r−1}, y_r), τ_r) + noise,    the same records at both,
                 τ_r = L ‖(x_r, y_{r+1}) − (x_{r−1}, y_r)‖, or what two clipped gradients can be apart if less
    x_{r+1} = P(x_r − η_x (v + ∇_x r))

η_x → x, η_i = scale/(i+1)^decay → y: the paper's 1/(μ i) is scale 1/μ, decay 1. T → period, L → smoothness, a public
constant; q → rate. Channels: gx are anchors, dx differences, gy or dual is for y.

Whose data: every record of every agent. Sensitivities 2C/(qn), and 2τ_r/(qn) of a difference: the clip comes after
subtracting, so smoothness is no assumption of the privacy. Everything that is carried on was released. Every release
reads a sample of its own and is an event of its own. y has a tenth of the budget, evenly over its releases; the
others have half of what is left for anchors and half for differences: with T dividing the number of rounds
z_1 = z√(2/T) and z_2 = z√(2(T−1)/T). Differences save noise only where L η z √p/(qn) is much less than 1; with T = 2
there is nothing to gain. T is decided before the run, whatever is released in it.

Limit cases: rate = 1 and no noise is alternating descent and ascent, for any T. The output is the last iterate.

Reference: Zhang et al. 2025, Algorithms 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax import steps

# Of Σμ², for y.
Y_SHARE = 0.1


class PrivateDiffState(NamedTuple):
    """All public. x (p,), y (q,): the iterate. v (p,): estimate of the records' part of ∇_x F. last_x (p,): x_{r−1}."""

    x: dp.Array
    y: dp.Array
    v: dp.Array
    last_x: dp.Array


@dataclass(frozen=True)
class PrivateDiff(steps.Estimating):
    """A trusted coordinator: minimax, the gradient by x carried on by differences (Zhang et al., 2025).

    Args:
        x: η_x, y: η_i.
        period: T.
        inner: steps of y.
        smoothness: L.
        rate: q.
        solver: "ascent" or "closed_form".
    """

    x: dp.StepSize = dp.option("η_x, of x, downwards")
    period: int = dp.anchor_period()
    y: dp.StepSize | None = dp.option('η_y, of y, upwards; needed where solver is "ascent"', default=None)
    inner: int | None = dp.count_option("steps of y in every round; settled by default", "steps", "5")
    smoothness: float | None = dp.change_smoothness()
    rate: float = dp.sampling_rate()
    solver: str = dp.maximiser()

    def __post_init__(self) -> None:
        steps.check_solver(self.solver, self.y, self.inner)

    @property
    def queries(self) -> tuple[str, ...]:
        return ("grad_x", "dual" if self.solver == "closed_form" else "grad_y")

    @property
    def steps(self) -> int:
        """Releases for y in a round."""
        return 1 if self.solver == "closed_form" else self.inner or 1

    @property
    def releases_per_round(self) -> int:
        return self.steps + 1

    def resolve_defaults(self, context: dp.MinimaxContext) -> tuple[Self, dp.MinimaxContext]:
        resolved, context = super().resolve_defaults(context)
        return (replace(resolved, inner=self.steps) if self.solver == "ascent" else resolved), context

    def init(self, context: dp.MinimaxContext) -> PrivateDiffState:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return PrivateDiffState(x, y, np.zeros_like(x), x)

    def step(self, t: int, context: dp.MinimaxContext, s: PrivateDiffState) -> dp.CoordinatorSteps[PrivateDiffState]:
        if self.solver == "closed_form":
            released = yield dp.Release(dual=(yield dp.Ask(dual=context.query("dual", s.x, s.y, self.rate))).dual)
            y = steps.best_response(context, released.released)
        else:
            y = s.y
            for i in range(self.steps):
                gradient = yield from dp.release_gradients(t, context, ("grad_y",), s.x, y, self.rate)
                y = context.problem.project_y(y + steps.step_of(self.y, i) * gradient.y)
        v = yield from self.released_estimate(t, context, s, steps.BY_X, s.v, (s.x, y), (s.last_x, s.y))
        x = context.problem.project_x(s.x - self.x(t) * (v + context.problem.public("grad_x", s.x, y, t)))
        return PrivateDiffState(x, y, v, s.x)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        first, blocks = np.arange(rounds, dtype=np.int64) * self.releases_per_round + 1, {}
        channel, term = ("dual", "dual") if self.solver == "closed_form" else ("gy", "grad_y")
        if context.reads(term):
            each = (first[:, None] + np.arange(self.steps)).reshape(-1)
            blocks[channel] = steps.ReleaseBlock(each, context.problem.width(term), Y_SHARE)
        by_x = steps.planned_estimates(context, self.period, {steps.BY_X: first + self.steps}, 1.0 - Y_SHARE)
        return steps.block_charges(blocks | by_x, self.rate)


ENTRY = dp.Entry(
    "privatediff",
    PrivateDiff,
    (dp.Citation("Algorithms 3 and 4; certified here with a y that is released", "zhang2025improved"),),
    example=dp.AUC | dp.ASCENT | {"smoothness": "1.0"},
)
