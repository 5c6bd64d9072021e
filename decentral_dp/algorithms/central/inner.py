"""Private solvers of the lower level, for trusted coordinators: a released ỹ near a minimiser.

    "dp_gd"   y <- P(y − (1/b)(mean clip ∇_y l + ∇_y R [+ (1/λ) mean clip ∇_y h] + noise)),   `inner` times

h is the upper loss; with it, the minimiser is that of g + f/λ, which is that of f + λg. P projects on the ball that is
known to hold the minimisers, b ≥ ‖∇²_yy‖ is public, and the start is the last released point.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

from decentral_dp.algorithms.central.plan import Part
from decentral_dp.exchange import Ask, Publish, Request, Response, Sum
from decentral_dp.privacy.sensitivity import Array, Kind
from decentral_dp.problems.desk import Desk


class Level(NamedTuple):
    """What is minimised over y, at x: g, or with pull = λ > 0 the function g + f/λ. channel: of the releases."""

    channel: str
    pull: float = 0.0

    def kinds(self, desk: Desk) -> tuple[Kind, ...]:
        """The records it reads."""
        terms = ("lower_grad_y", "upper_grad_y") if self.pull else ("lower_grad_y",)
        return tuple(desk.problem.touches[t] for t in terms if desk.reads(t))

    def questions(self, desk: Desk, x: Array, y: Array, rate: float) -> Mapping[str, Sum]:
        asked = {"g": Sum("lower_grad_y", x, y, rate=rate)}
        if self.pull:
            asked["f"] = Sum("upper_grad_y", x, y, rate=rate)
        return asked


class DpGd(NamedTuple):
    """steps: K. smoothness: b of g + f/λ. rate: of Poisson samples."""

    steps: int
    smoothness: float
    rate: float = 1.0

    @property
    def publishes(self) -> int:
        return self.steps

    def part(self, desk: Desk, level: Level, first: int, share: float) -> Part:
        """Its releases in a round, from position `first` on."""
        return Part(range(first, first + self.steps), desk.problem.q, level.kinds(desk), share, self.rate)

    def solve(self, desk: Desk, level: Level, x: Array, y: Array) -> Generator[Request, Response, Array]:
        """ỹ, (q,), from the public start y."""
        for _ in range(self.steps):
            answer = yield Ask(**level.questions(desk, x, y, self.rate))
            slope = answer.g + desk.regulariser_grad_y(x, y)
            if level.pull:
                slope = slope + (1.0 / level.pull) * answer.f
            told = yield Publish(**{level.channel: slope})
            y = desk.inside(x, y - told.own[level.channel][0] / self.smoothness, level.pull)
        return y
