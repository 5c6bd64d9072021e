"""DP-SGDA as printed: both gradients clipped to constants, and the noise of its explicit values.

The steps are those of `dp_sgda` with ascent. ∇_y f is clipped to C_y whatever is known of the problem. The noise on
both means is 8 C √(T log(1/δ))/(nε) over T rounds, for fixed-size samples; here they are Poisson samples. The
certificate of that noise is its true price, which is less than half of what it claims.

Reference: Yang et al. 2022, Theorem 1 and the values after it; "DP-SGDA" in the paper of PrivateDiff Minimax.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Self, final

import numpy as np

from decentral_dp.algorithms.coordinator_minimax.dp_sgda import State
from decentral_dp.algorithms.coordinator_minimax.minimax_steps import (
    CHANNELS,
    check_clipped,
    check_init,
    check_solver,
    one_event,
    slope,
    step_of,
)
from decentral_dp.algorithms.coordinator_protocol import Charge
from decentral_dp.algorithms.printed.printed_scales import check_ascent, constant_noise
from decentral_dp.algorithms.printed.protocol import Calibration
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.exchange import Ask, ClippedQuery, Release, Request, Response
from decentral_dp.participants.minimax_context import MinimaxContext


@final
@dataclass(frozen=True)
class PrintedDpSgda:
    """x, y: η. rate: q. solver: "ascent"."""

    x: StepSize
    y: StepSize | None = None
    rate: float = 1.0
    solver: str = "ascent"
    start: Mapping[str, float] = field(default_factory=dict)

    protocol = "printed"
    needs_constants = False
    needs_records = False
    queries = ("grad_x", "grad_y")
    releases_per_round = 1

    def __post_init__(self) -> None:
        check_solver(self.solver, self.y)
        check_ascent(self.solver, "as printed, y ascends")

    def resolve_defaults(self, context: MinimaxContext) -> tuple[Self, MinimaxContext]:
        check_init(self.start)
        check_clipped(context, self.queries)
        if context.reads("grad_y") and not np.isfinite(context.clip.bound("y")):
            raise InputError(
                "privacy.clip.y: missing. As printed ∇_y f is clipped around 0, too; give for example clip.y = 1.0."
            )
        return self, context

    def init(self, context: MinimaxContext) -> State:
        return State(context.start("x", self.start), context.start("y", self.start))

    def step(self, t: int, context: MinimaxContext, s: State) -> Generator[Request, Response, State]:
        released = (yield Release(**(yield Ask(**self._questions(context, s))))).released
        x = context.problem.project_x(s.x - self.x(t) * slope(context, released, "gx", s.x, s.y, t))
        y = context.problem.project_y(s.y + step_of(self.y, t) * slope(context, released, "gy", s.x, s.y, t))
        return State(x, y)

    def _questions(self, context: MinimaxContext, s: State) -> dict[str, ClippedQuery]:
        """The paper clips to a constant, whatever is known of the problem at this point."""
        asked = {c: CHANNELS[c] for c in ("gx", "gy") if context.reads(CHANNELS[c])}
        return {
            c: context.query(term, s.x, s.y, self.rate, None, context.clip.bound(c[-1])) for c, term in asked.items()
        }

    def published(self, s: State) -> dict[str, Array]:
        return {"x": s.x, "y": s.y}

    def free_channels(self, context: MinimaxContext) -> dict[str, int]:
        return {}

    def planned_releases(self, context: MinimaxContext, rounds: int) -> dict[str, Charge]:
        return one_event(context, rounds, {"gx": 0.5, "gy": 0.5}, self.rate)

    def printed_calibration(
        self, context: MinimaxContext, rounds: int, epsilon: float, delta: float
    ) -> dict[str, Calibration]:
        unit = 8.0 * math.sqrt(rounds * math.log(1.0 / delta)) / (context.n * epsilon)
        asked = self._questions(context, self.init(context))
        noise = {channel: (unit * q.bound, context.sensitivity_of(q)) for channel, q in asked.items()}
        return constant_noise(self.planned_releases(context, rounds), noise)
