"""PrivateDiff Minimax as it is printed: y is carried and used without noise, and nothing is certified of it.

    y <- Π_Y(y + η_i mean clip(∇_y f(x_r, y), C_0)), inner times, no noise, from the last un-noised y
    d_r = mean clip(∇_x f(x_r, y_{r+1})) over the sample of round r, less that of round r − 1 over its own sample
    r % T = 0    ṽ = mean clip(∇_x f(x_r, y_{r+1}), C_1) + N(0, (σ_1 C_1)² I)
    otherwise    ṽ += d_r + N(0, (σ_2 C_{2,r})² I),     C_{2,r} = C_2 ‖x_r − x_{r−1}‖ + C_3
    x <- P(x − η_x (ṽ + ∇_x r)),    output ỹ = y + N(0, σ_y² I), which is used for nothing else

with the noise of Remark 5.1: σ_1 = 4√((R/T) log(1/δ))/(nε), σ_2 = 4√(R log(1/δ))/(nε), and σ_y = 4(2C_0² + βM)
√(R log(1/δ))/(μnε). C_0, C_1 → privacy.clip.y and x, C_2 → smoothness, T → period, R → rounds, 1/μ → the scale of η_i.
C_3 = 1/√inner, the order that Theorem 6 gives. βM, for which no value is given anywhere, is left out.

Samples are Poisson samples. They differ in size, so that there are no pairs (z_r^j, z_{r−1}^j) whose difference could
be clipped at C_{2,r}, as the paper does: here every gradient is clipped at C_1. Both differences are of different
samples, the older one used for the second time, and add up to the newest sample's mean and all the noise.

Nothing is proven of any of these releases: all agents receive the exact means that y moves by, and what x moves by
depends on that y. In the ledger every channel has the sensitivity ∞.

Reference: Zhang et al. 2025, Algorithms 3 and 4, Theorem 5 and Remark 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, final

import numpy as np

from decentral_dp.algorithms.coordinator_minimax.minimax_steps import (
    check_solver,
    questions,
    released_gradient,
    step_of,
)
from decentral_dp.algorithms.coordinator_minimax.spider_schedule import Estimating, is_anchor
from decentral_dp.algorithms.coordinator_protocol import Charge
from decentral_dp.algorithms.printed.printed_scales import check_ascent
from decentral_dp.algorithms.printed.protocol import Calibration, Noise
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Array, Bounded, Sensitivity, Split
from decentral_dp.errors import InputError
from decentral_dp.exchange import Ask, Release, Request, Response
from decentral_dp.participants.minimax_context import MinimaxContext

REASON = (
    "As printed, y carries no noise where it is used: the agents are told exact means of samples, and what x moves by "
    "depends on them, so nothing can be proven."
)


class State(NamedTuple):
    """x: iterate. y: ỹ, the output. carried: y without noise. v: ṽ. last: x_{r−1}. sample: the last round's mean."""

    x: Array
    y: Array
    carried: Array
    v: Array
    last: Array
    sample: Bounded | None


@final
@dataclass(frozen=True)
class PrintedPrivateDiff(Estimating):
    """x: η_x, y: η_i. period: T. inner: steps of y. smoothness: C_2. rate: q. solver: "ascent"."""

    x: StepSize
    period: int
    y: StepSize | None = None
    inner: int | None = None
    smoothness: float | None = None
    rate: float = 1.0
    solver: str = "ascent"

    protocol = "printed"
    queries = ("grad_x", "grad_y")

    def __post_init__(self) -> None:
        check_solver(self.solver, self.y, self.inner)
        check_ascent(self.solver, "the paper ascends step by step")

    @property
    def steps(self) -> int:
        """Releases for y in a round."""
        return self.inner or 1

    @property
    def releases_per_round(self) -> int:
        return self.steps + 1

    def resolve_defaults(self, context: MinimaxContext) -> tuple[Self, MinimaxContext]:
        super().resolve_defaults(context)
        return replace(self, inner=self.steps), context

    def init(self, context: MinimaxContext) -> State:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return State(x, y, y, np.zeros_like(x), x, None)

    def step(self, t: int, context: MinimaxContext, s: State) -> Generator[Request, Response, State]:
        y = s.carried
        for i in range(self.steps):
            answer = yield Ask(**questions(context, ("gy",), s.x, y, self.rate))
            released = (yield Release(**{channel: _unproven(answer[channel]) for channel in answer})).released
            by_y = released_gradient(context, released, "gy", s.x, y, t)
            y = context.problem.project_y(y + step_of(self.y, i) * by_y)
        out = {"y": Bounded(np.zeros((1, y.size)), y[None], {"train": _unbounded(1)}, "l2")}
        v, sample = s.v, s.sample
        if context.reads("grad_x"):
            sample = (yield Ask(gx=context.query("grad_x", s.x, y, self.rate))).gx
        if sample is None:
            released = (yield Release(**out)).released
        elif is_anchor(t, self.period) or s.sample is None:
            released = (yield Release(gx=_unproven(sample), **out)).released
            v = released.gx[0]
        else:
            # In units of C_{2,r}, so that the scale of the noise is the printed constant.
            unit = self._unit(s)
            released = (yield Release(dx=_unproven((sample - s.sample) * (1.0 / unit)), **out)).released
            v = v + unit * released.dx[0]
        x = context.problem.project_x(s.x - self.x(t) * (v + context.problem.public("grad_x", s.x, y, t)))
        return State(x, released.y[0], y, v, s.x, sample)

    def _unit(self, s: State) -> float:
        """C_{2,r}; C_3 where x is not finite."""
        with np.errstate(all="ignore"):
            sensitivity = (self.smoothness or 0.0) * float(np.linalg.norm(s.x - s.last))
        return (sensitivity if math.isfinite(sensitivity) else 0.0) + 1.0 / math.sqrt(self.steps)

    def planned_releases(self, context: MinimaxContext, rounds: int) -> dict[str, Charge]:
        last = (np.arange(rounds, dtype=np.int64) + 1) * self.releases_per_round
        anchored = np.arange(rounds) % self.period == 0
        out = {}
        if context.reads("grad_y"):
            each = (last[:, None] - self.steps + np.arange(self.steps)).reshape(-1)
            out["gy"] = Charge("uncertified", context.problem.q, each, _infinite(each.size), reason=REASON)
        if context.reads("grad_x"):
            for channel, chosen in (("gx", last[anchored]), ("dx", last[~anchored])):
                if chosen.size:
                    out[channel] = Charge("gaussian", context.problem.p, chosen, _infinite(chosen.size), reason=REASON)
        return out | {"y": Charge("gaussian", context.problem.q, last, _infinite(rounds), reason=REASON)}

    def printed_calibration(self, context: MinimaxContext, rounds: int, epsilon: float, delta: float) -> Noise:
        """Compute the noise of Remark 5.1.

        Raises:
            InputError: an η_i that says nothing of μ.
        """
        if self.y is None or self.y.scale == 0.0:
            raise InputError(
                'algorithm.y: with "as_printed" its scale is 1/μ, μ the strong concavity in y, and 0 is none; give for '
                "example y = { scale = 1.0, decay = 1.0 }."
            )
        point = context.start("x", {}), context.start("y", {})
        root = 4.0 * math.sqrt(rounds * math.log(1.0 / delta)) / (context.n * epsilon)
        scales = {
            "gy": 0.0,
            "gx": root / math.sqrt(self.period) * context.ball("grad_x", *point).radius,
            "dx": root,
            "y": root * self.y.scale * 2.0 * context.ball("grad_y", *point).radius ** 2,
        }
        return {
            channel: Calibration(np.full(charge.indices.size, scales[channel]), charge.weight)
            for channel, charge in self.planned_releases(context, rounds).items()
        }


def _unproven(value: Bounded) -> Bounded:
    """A value of which nothing is claimed: its sample lives on."""
    return replace(
        value, sensitivities={split: _unbounded(s.sensitivity.size) for split, s in value.sensitivities.items()}
    )


def _unbounded(agents: int) -> Sensitivity:
    return Sensitivity(np.full(agents, np.inf), np.ones(agents), None)


def _infinite(releases: int) -> dict[Split, Array]:
    return {"train": np.full(releases, np.inf)}
