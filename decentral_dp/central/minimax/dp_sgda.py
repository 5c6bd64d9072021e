"""DP-SGDA: simultaneous gradient descent on x and ascent on y, both gradients of one Poisson sample noised.

Round t, with a sample in which every record is with probability q (rate), clips C_x and C_y (privacy.clip), and means
divided by the public qn:

    x <- P(x − η_x (mean clip(∇_x f(x, y; ξ), C_x) + ∇_x r + noise))
    y <- Π_Y(y + η_y (mean clip(∇_y f(x, y; ξ), C_y) + ∇_y r + noise))            both at the old (x, y)

η_x, η_y → x, y. Where the problem bounds ∇_y f by a ball of its own, that is used instead of a larger clip. solver =
"closed_form" asks for another mean in the place of ∇_y f, from which the best y at the old x follows, and no η_y.

Whose data: every record of every agent. Sensitivities 2C_x/(qn) and 2C_y/(qn). Both releases of a round read one sample
and are one event: with z_x, z_y the deviations of the noise on the sums over C_x, C_y, a Gaussian of multiplier
(z_x⁻² + z_y⁻²)^(−1/2) on a Poisson sample of rate q, whatever x and y are.

Limit cases: rate = 1 and no noise is gradient descent ascent. The output is the last iterate.

Reference: Yang et al. 2022; "DP-SGDA" in Zhang et al. 2025 (PrivateDiff Minimax), Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.declared import MINIMAX_CHANNELS
from decentral_dp.central.minimax import steps

# Of a round's μ², for the mean that gives the best y.
_DUAL_SHARE = 0.1


@dataclass(frozen=True)
class DpSgda(dp.Coordinated):
    """A trusted coordinator: minimax by simultaneous steps on one noised Poisson sample (Yang et al., 2022).

    Args:
        x, y: η.
        rate: q.
        solver: "ascent" or "closed_form".
    """

    x: dp.StepSize = dp.option("η_x, of x, downwards")
    y: dp.StepSize | None = dp.option('η_y, of y, upwards; needed where solver is "ascent"', default=None)
    rate: float = dp.sampling_rate()
    solver: str = dp.maximiser()

    def __post_init__(self) -> None:
        steps.check_solver(self.solver, self.y)

    @property
    def _channels(self) -> tuple[str, str]:
        return ("gx", "dual" if self.solver == "closed_form" else "gy")

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(MINIMAX_CHANNELS[c] for c in self._channels)

    def init(self, context: dp.MinimaxContext) -> steps.Iterate:
        return steps.Iterate.start(context, self.start)

    def step(self, t: int, context: dp.MinimaxContext, s: steps.Iterate) -> dp.CoordinatorSteps[steps.Iterate]:
        released = (yield dp.Release(**(yield dp.Ask(**self._questions(context, s))))).released
        x = context.problem.project_x(s.x - self.x(t) * steps.released_gradient(context, released, "gx", s.x, s.y, t))
        if self.solver == "closed_form":
            return steps.Iterate(x, steps.best_response(context, released))
        by_y = steps.released_gradient(context, released, "gy", s.x, s.y, t)
        return steps.Iterate(x, context.problem.project_y(s.y + steps.step_of(self.y, t) * by_y))

    def _questions(self, context: dp.MinimaxContext, s: steps.Iterate) -> dict[str, dp.ClippedQuery]:
        return steps.questions(context, self._channels, s.x, s.y, self.rate)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        shares = (1.0 - _DUAL_SHARE, _DUAL_SHARE) if self.solver == "closed_form" else (0.5, 0.5)
        parts = {
            channel: dp.Part((0,), context.width(term), ("train",), share, self.rate)
            for channel, term, share in zip(self._channels, self.queries, shares, strict=True)
            if context.reads(term)
        }
        return dp.gaussian_charges(rounds, 1, parts)


ENTRY = dp.Entry(
    "dp_sgda",
    DpSgda,
    (dp.Citation("Algorithm 1 of the paper, as DP-SGDA", "zhang2025improved"),),
    example=dp.AUC | dp.ASCENT | {"clip": "clip.x = 1.0\nclip.y = 1.0"},
)
