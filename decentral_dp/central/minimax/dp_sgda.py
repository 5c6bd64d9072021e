"""Simultaneous gradient descent on x and ascent on y, with noise on both gradients of one Poisson sample.

Round t, with a sample that contains every record with probability q (rate), clipping norms C_x and C_y (privacy.clip),
and sums divided by the public qn:

    g = mean clip(∇_x f(x, y; ξ), C_x) + ∇_x r + noise,    h = mean clip(∇_y f(x, y; ξ), C_y) + ∇_y r + noise

    dp_sgda    x <- P(x − η_x g),    y <- Π_Y(y + η_y h)
    dptd       v <- (1 − a_t) v + a_t g,    w <- (1 − a_t) w + a_t h,    v = w = 0 at the start
               x <- P(x − η_x v),    y <- Π_Y(y + η_y w)

η_x, η_y → x, y; a_t → averaging, at most 1. If the problem bounds ∇_y f by a ball of its own, that ball replaces a
larger clip. dp_sgda with solver = "closed_form" queries another mean instead of ∇_y f, and computes the best y at the
previous x from it.

The guarantee holds for every record of every agent; for problem.kind = "mspbe" a record is a whole trajectory.
Sensitivities: 2C_x/(qn) and 2C_y/(qn). Both releases of a round use one sample and are one event: with noise
multipliers z_x and z_y, a Gaussian with multiplier (z_x⁻² + z_y⁻²)^(−1/2) on a Poisson sample of rate q. v and w are
functions of released values, so averages have no privacy cost.

rate = 1 without noise is gradient descent ascent, and dptd with a_t = 1 is dp_sgda. The output is the last iterate.

Reference: Yang et al. 2022; "DP-SGDA" in Zhang et al. 2025 (PrivateDiff Minimax), Algorithm 1. DPTD is after Zhao et
al. 2023, of which only the abstract and a row of a table are known here: momentum SGDA on one time scale for temporal
differences with a nonlinear value function, Gaussian noise on both gradients, clipping norms 3 and 3 (Zhang et al.
2025, Table 5). The update above is the simplest with these properties. The published noise is unknown, so dptd has no
"as_published" form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax import steps
from decentral_dp.central.vocabulary import MINIMAX_CHANNELS

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


class DptdState(NamedTuple):
    """x: (p,), y: (q,), and the averages of their gradients, v: (p,), w: (q,): all public."""

    x: dp.Array
    y: dp.Array
    v: dp.Array
    w: dp.Array


@dataclass(frozen=True)
class Dptd:
    """A trusted coordinator: minimax with momentum on both sides, for temporal differences (Zhao et al., 2023).

    Args:
        x, y: η.
        averaging: a.
        rate: q.
    """

    x: dp.StepSize = dp.option("η_x, of x, downwards")
    y: dp.StepSize = dp.option("η_y, of y, upwards")
    averaging: dp.StepSize = dp.option("a, weight of the newest gradient in both running averages, cut at 1")
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


TEMPORAL_DIFFERENCES = {
    "problem": '"mspbe"',
    "data": '"cartpole"',
    "problem_keys": 'discount = 0.9\nmodel = { kind = "mlp", hidden = [50] }\nsynthetic = { records = 20, steps = 50 }',
    "clip": "clip.x = 3.0\nclip.y = 3.0",
}


ENTRIES = (
    dp.Entry(
        "dp_sgda",
        DpSgda,
        (dp.Citation("Algorithm 1 of the paper, as DP-SGDA", "zhang2025improved"),),
        example=dp.AUC | dp.ASCENT | {"clip": "clip.x = 1.0\nclip.y = 1.0"},
    ),
    dp.Entry(
        "dptd",
        Dptd,
        (dp.Citation("An algorithm of the kind of", "zhao2023differentially"),),
        example=TEMPORAL_DIFFERENCES,
    ),
)
