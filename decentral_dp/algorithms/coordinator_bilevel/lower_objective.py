"""The two functions of y that a penalty method minimises at every x."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

from decentral_dp.bounded import Array, Split
from decentral_dp.exchange import Ask, ClippedSum, Release, Released, Request, Response, Value
from decentral_dp.participants.coordinator_context import CoordinatorContext


class LowerObjective(NamedTuple):
    """What is minimised over y, at x: g, or with pull = λ > 0 the function g + f/λ. channel: of the releases."""

    channel: str
    penalty: float = 0.0

    def kinds(self, context: CoordinatorContext) -> tuple[Split, ...]:
        """The records it reads."""
        terms = ("lower_grad_y", "upper_grad_y") if self.penalty else ("lower_grad_y",)
        return tuple(context.problem.reads_records[t] for t in terms if context.reads(t))

    def questions(self, context: CoordinatorContext, x: Array, y: Array, rate: float) -> Mapping[str, ClippedSum]:
        asked = {"g": ClippedSum("lower_grad_y", x, y, rate=rate)} if context.reads("lower_grad_y") else {}
        if self.penalty and context.reads("upper_grad_y"):
            asked["f"] = ClippedSum("upper_grad_y", x, y, rate=rate)
        return asked

    def gradient(
        self, context: CoordinatorContext, x: Array, y: Array, rate: float
    ) -> Generator[Request, Response, Released]:
        """Release mean clip ∇_y l + ∇_y R [+ (1/λ) mean clip ∇_y h] at the public (x, y).

        Args:
            context: what the coordinator knows.
            x: (p,), public.
            y: (q,), public.
            rate: of the Poisson sample; 1 for all records.

        Returns:
            What was released, on `channel`, and the scales of its noise.
        """
        asked = self.questions(context, x, y, rate)
        gradient: Value = context.regulariser_grad_y(x, y)[None]
        if asked:
            answer = yield Ask(**asked)
            for name in asked:
                gradient = gradient + (answer[name] if name == "g" else (1.0 / self.penalty) * answer[name])
        released: Released = yield Release(**{self.channel: gradient})
        return released
