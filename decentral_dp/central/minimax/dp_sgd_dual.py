"""DP-SGD on (x, y) as one variable: one noised step a round along both gradients, clipped as one vector.

g_i = (∇_x f, ∇_y f) of a record; of a robust problem's dual variable η, y = η and ∇_y f = −∂f/∂η, so that this is
DP-SGD on the dual objective. Round t, with a Poisson sample of rate q and means divided by the public qn:

    v = mean clip(g_i(x, y), C) + noise
    x <- P(x − η_x (v_x + ∇_x r))          y <- Π_Y(y + η_y (v_y + ∇_y r))

η_x → x; η_y → y, the same as η_x where it is left out; C → privacy.clip.x. q → rate. Beside dp_sgda: there the two
gradients have clips and noises of their own.

Whose data: every record of every agent. Sensitivity 2C/(qn), on one sample a round: P(q, G(z)) of replacing a record.

Limit cases: rate = 1 and no noise is gradient descent ascent. The output is the last iterate.

Reference: Xu et al. 2025 (Section 3, after Bassily, Smith & Thakurta 2014 and Abadi et al. 2016).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax.steps import ONE_CLIP, Iterate, joint_step


@dataclass(frozen=True)
class DpSgdDual(dp.Coordinated):
    """A trusted coordinator: both gradients as one vector, one noised step a round (DP-SGD on the dual objective).

    Args:
        x, y: η.
        rate: q.
    """

    x: dp.StepSize = dp.option("η, of x, and of the dual variable where y is left out")
    y: dp.StepSize | None = dp.option("η of the dual variable; that of x if left out", default=None)
    rate: float = dp.sampling_rate()

    queries = ("joint",)

    def resolve_defaults(self, context: dp.MinimaxContext) -> tuple[Self, dp.MinimaxContext]:
        context.check_start(self.start)
        dp.refuse(context, ONE_CLIP)
        return self, context

    def init(self, context: dp.MinimaxContext) -> Iterate:
        return Iterate.start(context, self.start)

    def step(self, t: int, context: dp.MinimaxContext, s: Iterate) -> dp.CoordinatorSteps[Iterate]:
        mean = (yield dp.Ask(mean=context.query("joint", s.x, s.y, self.rate))).mean
        v = (yield dp.Release(g=mean)).released.g[0]
        return Iterate(*joint_step(context, v, s.x, s.y, t, self.x, self.y))

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        return dp.gaussian_charges(
            rounds, 1, {"g": dp.Part((0,), context.problem.width("joint"), ("train",), rate=self.rate)}
        )


ENTRY = dp.Entry(
    "dp_sgd_dual",
    DpSgdDual,
    (
        dp.Citation("DP-SGD", "bassily2014private"),
        dp.Citation("On (x, η) as one variable (Section 3)", "xu2025differentially"),
    ),
    example=dp.DRO,
)
