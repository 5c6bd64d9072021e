"""DPTD: gradient descent on x and ascent on y along running averages of noised gradients (momentum on both sides).

Round t, with a Poisson sample in which every record is with probability q (rate), clips C_x and C_y (privacy.clip), and
means divided by the public qn:

    g = mean clip(∇_x f(x, y; ξ), C_x) + ∇_x r + noise,    h = mean clip(∇_y f(x, y; ξ), C_y) + ∇_y r + noise
    v <- (1 − a_t) v + a_t g,    w <- (1 − a_t) w + a_t h                                    (both 0 before)
    x <- P(x − η_x v),    y <- Π_Y(y + η_y w)

η_x, η_y → x, y. a_t → averaging, cut at 1.

Whose data: every record of every agent; with problem.kind = "mspbe" a record is a whole trajectory. Sensitivities
2C_x/(qn) and 2C_y/(qn). Both releases of a round read one sample and are one event, exactly as in DP-SGDA; v and w are
functions of what was released, and averaging them costs nothing.

What is known of the original (Zhao et al. 2023) here is its abstract and a row of a table: it is made for temporal
differences with a nonlinear value function; it is a "momentum-based stochastic gradient descent ascent" on a single
time scale; it adds Gaussian noise to the gradients of both sides; what it protects is "encoded in transitions", n of
them in one trajectory; and its clips were 3 and 3 (Zhang et al. 2025, Table 5). The recursion above is the plainest
with these properties, and not theirs. Their calibration is not known here, so there is nothing to run "as_printed".

Limit cases: a_t = 1 is DP-SGDA. The output is the last iterate.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from decentral_dp.algorithms.central.minimax_steps import (
    check_clipped,
    check_init,
    one_event,
    questions,
    slope,
)
from decentral_dp.algorithms.central.protocol import Charge
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.exchange import Ask, Release, Request, Response
from decentral_dp.privacy.bounded import Array
from decentral_dp.problems.minimax.minimax_context import MinimaxContext


class State(NamedTuple):
    """x: (p,), y: (q,), and the averages of their slopes, v: (p,), w: (q,): all public."""

    x: Array
    y: Array
    v: Array
    w: Array


@dataclass(frozen=True)
class Dptd:
    """x, y: η. averaging: a. rate: q."""

    x: StepSize
    y: StepSize
    averaging: StepSize
    rate: float = 1.0
    start: Mapping[str, float] = field(default_factory=dict)

    protocol = "released"
    needs_constants = False
    needs_records = False
    queries = ("grad_x", "grad_y")
    releases_per_round = 1

    def resolve_defaults(self, context: MinimaxContext) -> tuple[Self, MinimaxContext]:
        check_init(self.start)
        check_clipped(context, self.queries)
        return self, context

    def init(self, context: MinimaxContext) -> State:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return State(x, y, np.zeros_like(x), np.zeros_like(y))

    def step(self, t: int, context: MinimaxContext, s: State) -> Generator[Request, Response, State]:
        released = (yield Release(**(yield Ask(**questions(context, ("gx", "gy"), s.x, s.y, self.rate))))).released
        newest = min(1.0, self.averaging(t))
        v = (1.0 - newest) * s.v + newest * slope(context, released, "gx", s.x, s.y, t)
        w = (1.0 - newest) * s.w + newest * slope(context, released, "gy", s.x, s.y, t)
        x = context.problem.project_x(s.x - self.x(t) * v)
        return State(x, context.problem.project_y(s.y + self.y(t) * w), v, w)

    def published(self, s: State) -> dict[str, Array]:
        return {"x": s.x, "y": s.y}

    def free_channels(self, context: MinimaxContext) -> dict[str, int]:
        return {}

    def planned_releases(self, context: MinimaxContext, rounds: int) -> dict[str, Charge]:
        return one_event(context, rounds, {"gx": 0.5, "gy": 0.5}, self.rate)
