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

As printed (`privatediff_printed`) the paper's y carries no noise and is used, so that nothing is certified of it.

Limit cases: rate = 1 and no noise is alternating descent and ascent, for any T. The output is the last iterate.

Reference: Zhang et al. 2025, Algorithms 3 and 4.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from decentral_dp.algorithms.central import privatediff_printed as printed_form
from decentral_dp.algorithms.central.anchors import (
    Block,
    block_charges,
    change_bound,
    check_smoothness,
    is_anchor,
    split,
)
from decentral_dp.algorithms.central.minimax_steps import (
    best,
    check_clipped,
    check_init,
    check_solver,
    questions,
    slope,
    step_of,
)
from decentral_dp.algorithms.central.protocol import Calibration, Charge
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.errors import InputError
from decentral_dp.exchange import Ask, Publish, Request, Response
from decentral_dp.privacy.sensitivity import Array
from decentral_dp.problems.minimax.desk import MinimaxDesk

# Of Σμ², for y.
Y_SHARE = 0.1


class State(NamedTuple):
    """All public. x, y: the iterate. v: estimate of the records' part of ∇_x F. last: x_{r−1}."""

    x: Array
    y: Array
    v: Array
    last: Array


@dataclass(frozen=True)
class PrivateDiff:
    """x: η_x, y: η_i. period: T. inner: steps of y. smoothness: L. rate: q. solver: "ascent" or "closed_form"."""

    x: StepSize
    period: int
    y: StepSize | None = None
    inner: int | None = None
    smoothness: float | None = None
    rate: float = 1.0
    solver: str = "ascent"
    protocol: Literal["released", "printed"] = "released"
    start: Mapping[str, float] = field(default_factory=dict)

    needs_constants = False
    pools = False

    def __post_init__(self) -> None:
        check_solver(self.solver, self.y, self.inner)

    @property
    def asks(self) -> tuple[str, ...]:
        return ("grad_x", "dual" if self.solver == "closed_form" else "grad_y")

    @property
    def steps(self) -> int:
        """Releases for y in a round."""
        return 1 if self.solver == "closed_form" else self.inner or 1

    @property
    def exchanges(self) -> int:
        return self.steps + 1

    def settled(self, desk: MinimaxDesk) -> tuple[Self, MinimaxDesk]:
        check_init(self.start)
        check_clipped(desk, self.asks)
        check_smoothness(self.smoothness, self.period, desk.noisy)
        if self.protocol == "printed" and self.solver != "ascent":
            raise InputError(
                'algorithm.solver: the paper ascends step by step; with "as_printed" take "ascent", and a step size y.'
            )
        return (replace(self, inner=self.steps) if self.solver == "ascent" else self), desk

    def init(self, desk: MinimaxDesk) -> Any:
        x, y = desk.start("x", self.start), desk.start("y", self.start)
        if self.protocol == "printed":
            return printed_form.start(x, y)
        return State(x, y, np.zeros_like(x), x)

    def step(self, t: int, desk: MinimaxDesk, s: Any) -> Generator[Request, Response, Any]:
        if self.protocol == "printed":
            return (yield from printed_form.step(self, t, desk, s))
        return (yield from self._step(t, desk, s))

    def _step(self, t: int, desk: MinimaxDesk, s: State) -> Generator[Request, Response, State]:
        y = yield from (self._solved(desk, s) if self.solver == "closed_form" else self._ascended(t, desk, s))
        v = s.v
        if not desk.reads("grad_x"):
            yield Publish()
        elif is_anchor(t, self.period):
            asked = desk.query("grad_x", s.x, y, self.rate)
            v = (yield Publish(gx=(yield Ask(gx=asked)).gx)).own.gx[0]
        else:
            before = s.last, s.y
            bound = change_bound(desk, "grad_x", (s.x, y), before, self.smoothness)
            asked = desk.query("grad_x", s.x, y, self.rate, before, bound)
            v = v + (yield Publish(dx=(yield Ask(dx=asked)).dx)).own.dx[0]
        x = desk.problem.project_x(s.x - self.x(t) * (v + desk.problem.public("grad_x", s.x, y, t)))
        return State(x, y, v, s.x)

    def _solved(self, desk: MinimaxDesk, s: State) -> Generator[Request, Response, Array]:
        told = yield Publish(dual=(yield Ask(dual=desk.query("dual", s.x, s.y, self.rate))).dual)
        return best(desk, told.own)

    def _ascended(self, t: int, desk: MinimaxDesk, s: State) -> Generator[Request, Response, Array]:
        y = s.y
        for i in range(self.steps):
            told = (yield Publish(**(yield Ask(**questions(desk, ("gy",), s.x, y, self.rate))))).own
            y = desk.problem.project_y(y + step_of(self.y, i) * slope(desk, told, "gy", s.x, y, t))
        return y

    def published(self, s: Any) -> dict[str, Array]:
        return {"x": s.x, "y": s.y}

    def free(self, desk: MinimaxDesk) -> dict[str, int]:
        return {}

    def planned(self, desk: MinimaxDesk, rounds: int) -> dict[str, Charge]:
        if self.protocol == "printed":
            return printed_form.planned(self, desk, rounds)
        first, blocks = np.arange(rounds, dtype=np.int64) * self.exchanges + 1, {}
        channel, term = ("dual", "dual") if self.solver == "closed_form" else ("gy", "grad_y")
        if desk.reads(term):
            each = (first[:, None] + np.arange(self.steps)).reshape(-1)
            blocks[channel] = Block(each, desk.problem.width(term), Y_SHARE)
        if desk.reads("grad_x"):
            blocks |= split(first + self.steps, self.period, ("gx", "dx"), desk.problem.p, 1.0 - Y_SHARE)
        return block_charges(blocks, self.rate)

    def printed(self, desk: MinimaxDesk, rounds: int, epsilon: float, delta: float) -> dict[str, Calibration]:
        return printed_form.calibrated(self, desk, rounds, epsilon, delta)
