"""PrivateDiff with both gradients carried by differences: one sample and one event a round, no hidden state.

ζ = (x, y). Round r, with a Poisson sample of rate q and means divided by the public qn:

    r % T = 0    v <- mean clip(∇_x f(ζ_r), C_x) + noise           u <- mean clip(∇_y f(ζ_r), C_y) + noise
    otherwise    v += mean clip(∇_x f(ζ_r) − ∇_x f(ζ_{r−1}), τ_r) + noise,     the same for u and ∇_y f,
                 τ_r = L ‖ζ_r − ζ_{r−1}‖, the difference of each record's two gradients clipped as one; or what two
                 clipped gradients can be apart, where that is less
    x <- P(x − η_x (v + ∇_x r))          y <- Π_Y(y + η_y (u + ∇_y r))

η_x, η_y → x, y. T → period, L → smoothness, a public constant; q → rate. Channels gx and gy are anchors, dx and dy
differences.

Whose data: every record of every agent. Sensitivities 2C/(qn) of an anchor, 2τ_r/(qn) of a difference: the clip comes
after subtracting, so smoothness is no assumption of the privacy. x, y, v, u and τ are functions of what was released.
Both releases of a round read one sample and are one event P(q, G(z̄)), z̄⁻² = z_x⁻² + z_y⁻², whatever the thresholds
are. Half of the budget is for the anchors and half for the differences, in either evenly by rounds and by blocks: with
T dividing the number of rounds z_1 = z√(2/T) and z_2 = z√(2(T−1)/T), beside z of DP-SGDA's rounds.

Differences save noise only where L η z √p/(qn) is much less than 1 for the step that a round takes; with T = 2 there is
nothing to gain, and with T = 1 it is DP-SGDA. T is decided before the run, whatever is released in it.

Limit cases: rate = 1 and no noise is gradient descent ascent, for any T. The output is the last iterate.

Reference: after Algorithm 3 of Zhang et al. 2025, whose y carries no noise; it was never published in this form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax import steps


@dataclass(frozen=True)
class PrivateDiffXY(steps.Estimating):
    """A trusted coordinator: minimax, both gradients carried on by differences, on one sample a round.

    Args:
        x, y: η.
        period: T.
        smoothness: L.
        rate: q.
    """

    x: dp.StepSize = dp.option("η_x, of x, downwards")
    y: dp.StepSize = dp.option("η_y, of y, upwards")
    period: int = dp.anchor_period()
    smoothness: float | None = dp.change_smoothness()
    rate: float = dp.sampling_rate()

    queries = ("grad_x", "grad_y")

    def init(self, context: dp.MinimaxContext) -> steps.SpiderState:
        return steps.SpiderState.start(context, self.start)

    def step(self, t: int, context: dp.MinimaxContext, s: steps.SpiderState) -> dp.CoordinatorSteps[steps.SpiderState]:
        released = (yield dp.Release(**(yield dp.Ask(**self._questions(t, context, s))))).released
        v, u = (of.next(released, last) for of, last in ((steps.BY_X, s.v), (steps.BY_Y, s.u)))
        by_x = v + context.problem.public("grad_x", s.x, s.y, t)
        by_y = u + context.problem.public("grad_y", s.x, s.y, t)
        x, y = context.problem.project_x(s.x - self.x(t) * by_x), context.problem.project_y(s.y + self.y(t) * by_y)
        return steps.SpiderState(x, y, v, u, s.x, s.y)

    def _questions(self, t: int, context: dp.MinimaxContext, s: steps.SpiderState) -> dict[str, dp.ClippedQuery]:
        here, before = (s.x, s.y), (s.last_x, s.last_y)
        return dict(
            self.estimate_query(t, context, of, here, before)
            for of in (steps.BY_X, steps.BY_Y)
            if context.reads(of.term)
        )

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        first = dict.fromkeys((steps.BY_X, steps.BY_Y), np.arange(1, rounds + 1))
        return steps.block_charges(steps.planned_estimates(context, self.period, first), self.rate)


ENTRY = dp.Entry(
    "privatediff_xy",
    PrivateDiffXY,
    (dp.Citation("After Algorithm 3", "zhang2025improved"),),
    example=dp.AUC | {"smoothness": "1.0"},
)
