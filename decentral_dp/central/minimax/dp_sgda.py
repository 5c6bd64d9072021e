"""Simultaneous gradient descent on x and ascent on y, with noise on both gradients of one Poisson sample.

Round t, with a sample that contains every record with probability q (rate), clipping norms C_x and C_y (privacy.clip),
and sums divided by the public qn:

    g = mean clip(∇_x f(x, y; ξ), C_x) + ∇_x r + noise,    h = mean clip(∇_y f(x, y; ξ), C_y) + ∇_y r + noise

    dp_sgda    x <- P(x − η_x g),    y <- Π_Y(y + η_y h)
    dptd       v <- (1 − a_t) v + a_t g,    w <- (1 − a_t) w + a_t h,    v = w = 0 at the start
               x <- P(x − η_x v),    y <- Π_Y(y + η_y w)

η_x, η_y → x, y; a_t → averaging, at most 1. A public ball of the problem for ∇_y f replaces a
larger clip. dp_sgda with solver = "closed_form" queries another mean instead of ∇_y f, and computes the best y at the
previous x from it.

The guarantee holds for every record of every agent; for problem.kind = "mspbe" a record is a whole trajectory.
Sensitivities: 2C_x/(qn) and 2C_y/(qn). Both releases of a round use one sample and are one event: with noise
multipliers z_x and z_y, a Gaussian with multiplier (z_x⁻² + z_y⁻²)^(−1/2) on a Poisson sample of rate q. v and w are
functions of released values, so averages have no privacy cost.

rate = 1 without noise is gradient descent ascent, and dptd with a_t = 1 is dp_sgda. The output is the last iterate.

Reference: Yang et al. 2022; "DP-SGDA" in Zhang et al. 2025 (PrivateDiff Minimax), Algorithm 1. DPTD is after Zhao et
al. 2023, of which only the abstract and a row of a table were available. They describe momentum SGDA on one time scale
for temporal differences with a nonlinear value function, with Gaussian noise on both gradients and both clipping norms
equal to 3 (Zhang et al. 2025, Table 5). The update above is the simplest one with these properties. The published noise
is unknown, so dptd does not support "as_published".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np

from decentral_dp.central import vocabulary as dp

# Share of a round's μ² for the mean from which the best y is computed.
_DUAL_SHARE = 0.1


class Iterate(NamedTuple):
    """Public iterates x: (p,) and y: (q,)."""

    x: dp.Array
    y: dp.Array


@dataclass(frozen=True)
class DpSgda(dp.Coordinated):
    """Minimax coordinator with simultaneous steps on one noisy Poisson sample (Yang et al., 2022).

    Args:
        x, y: learning rates η_x and η_y.
        rate: sampling rate q.
        solver: solver for y, "ascent" or "closed_form".
    """

    x: dp.StepSize = dp.option("η_x, learning rate of x (descent)")
    y: dp.StepSize | None = dp.option('η_y, learning rate of y (ascent); required by solver "ascent"', default=None)
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

    def init(self, context: dp.MinimaxContext) -> Iterate:
        return Iterate(context.start("x", self.start), context.start("y", self.start))

    def step(self, t: int, context: dp.MinimaxContext, s: Iterate) -> dp.CoordinatorSteps[Iterate]:
        problem = context.problem
        g = yield from dp.release_gradients(t, context, self.queries, s.x, s.y, self.rate)
        x = problem.project_x(s.x - self.x(t) * g.x)
        if self.y is None:
            return Iterate(x, cast(Any, problem).dual(g.dual))
        return Iterate(x, problem.project_y(s.y + self.y(t) * g.y))

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        shares = {"grad_x": 1.0 - _DUAL_SHARE, "dual": _DUAL_SHARE} if self.solver == "closed_form" else {}
        indices = dp.round_indices(rounds, 1)
        return dp.gaussian_charges(dp.gradient_parts(context, self.queries, indices, shares, self.rate))


class DptdState(NamedTuple):
    """The public state of DPTD.

    Args:
        x: iterate, (p,).
        y: iterate, (q,).
        v: average of the gradients with respect to x, (p,).
        w: average of the gradients with respect to y, (q,).
    """

    x: dp.Array
    y: dp.Array
    v: dp.Array
    w: dp.Array


@dataclass(frozen=True)
class Dptd:
    """Minimax coordinator with momentum for both variables, for temporal-difference learning (Zhao et al., 2023).

    Args:
        x, y: learning rates η_x and η_y.
        averaging: averaging weight a.
        rate: sampling rate q.
    """

    x: dp.StepSize = dp.option("η_x, learning rate of x (descent)")
    y: dp.StepSize = dp.option("η_y, learning rate of y (ascent)")
    averaging: dp.StepSize = dp.option("a, weight of the newest gradient in both moving averages, at most 1")
    rate: float = dp.sampling_rate()

    QUERIES = ("grad_x", "grad_y")
    SHARES: ClassVar[Mapping[str, float]] = {"grad_x": 0.5, "grad_y": 0.5}

    def init(self, context: dp.MinimaxContext, x: dp.Array, y: dp.Array) -> DptdState:
        return DptdState(x, y, np.zeros_like(x), np.zeros_like(y))

    def step(self, t: int, context: dp.MinimaxContext, s: DptdState) -> dp.CoordinatorSteps[DptdState]:
        g = yield from dp.release_gradients(t, context, self.QUERIES, s.x, s.y, self.rate)
        newest = min(1.0, self.averaging(t))
        v, w = (1.0 - newest) * s.v + newest * g.x, (1.0 - newest) * s.w + newest * g.y
        x = context.problem.project_x(s.x - self.x(t) * v)
        return DptdState(x, context.problem.project_y(s.y + self.y(t) * w), v, w)


ENTRIES = (
    dp.Entry(
        "dp_sgda",
        DpSgda,
        (dp.Citation("Algorithm 1 of the paper, as DP-SGDA", "zhang2025improved"),),
        example=dp.AUC | dp.ASCENT | {"clip": "clip.x = 1.0\nclip.y = 1.0"},
        proved=True,
    ),
    dp.Entry(
        "dptd",
        Dptd,
        (dp.Citation("An algorithm of the kind of", "zhao2023differentially"),),
        example={
            "problem": '"mspbe"',
            "data": '"cartpole"',
            "problem_keys": 'discount = 0.9\nmodel = { kind = "mlp", hidden = [50] }\n'
            "synthetic = { records = 20, steps = 50 }",
            "clip": "clip.x = 3.0\nclip.y = 3.0",
        },
        proved=True,
    ),
)
