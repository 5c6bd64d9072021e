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
with these properties, and not theirs. Their calibration is not known here, so there is nothing to run "as_published".

Limit cases: a_t = 1 is DP-SGDA. The output is the last iterate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from decentral_dp.central import vocabulary as dp


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
ENTRY = dp.Entry(
    "dptd",
    Dptd,
    (dp.Citation("An algorithm of the kind of", "zhao2023differentially"),),
    example=TEMPORAL_DIFFERENCES,
)
