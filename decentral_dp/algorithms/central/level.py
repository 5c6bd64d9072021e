"""The two functions of y that a penalty method minimises at every x."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

from decentral_dp.exchange import Ask, Publish, Published, Request, Response, Sum, Value
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
        asked = {"g": Sum("lower_grad_y", x, y, rate=rate)} if desk.reads("lower_grad_y") else {}
        if self.pull and desk.reads("upper_grad_y"):
            asked["f"] = Sum("upper_grad_y", x, y, rate=rate)
        return asked

    def slope(self, desk: Desk, x: Array, y: Array, rate: float) -> Generator[Request, Response, Published]:
        """Releases mean clip ∇_y l + ∇_y R [+ (1/λ) mean clip ∇_y h] at the public (x, y)."""
        asked = self.questions(desk, x, y, rate)
        slope: Value = desk.regulariser_grad_y(x, y)[None]
        if asked:
            answer = yield Ask(**asked)
            for name in asked:
                slope = slope + (answer[name] if name == "g" else (1.0 / self.pull) * answer[name])
        told: Published = yield Publish(**{self.channel: slope})
        return told
